"""Trim, elect signs, merge what agrees (TIES, arXiv 2306.01708)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from popu.evolution.factors import Scratch, recompress, row_blocks, truncate
from popu.evolution.family import Family, Module
from popu.evolution.operator import Operator
from popu.evolution.sparsify import magnitude_threshold, mean_of_agreeing, trim
from popu.population.adapter import Factors


def ties(family: Family, generator: torch.Generator, density: float) -> Mapping[str, Factors]:
    """The mean, entry by entry, of those parents' dW that agree with the sign of their sum, after each has been trimmed
    to its `density` largest entries; truncated by SVD.

    Spare rows of A are the first parent's.
    """
    factors, scratch = {}, Scratch()
    for module in family:
        keep_a = module.deltas[0].a
        mean, _ = recompress([(0.5, delta) for delta in module.deltas], module.scale, keep_a)
        dense = merged(module, generator, density, scratch)
        factors[module.name] = truncate(dense, module.scale, keep_a, generator, guess=mean)
    return factors


def merged(module: Module, generator: torch.Generator, density: float, scratch: Scratch) -> Tensor:
    """(d_out, d_in): what is truncated."""
    dense = scratch("merged", module.shape)
    thresholds = [magnitude_threshold(delta, density, generator) for delta in module.deltas]
    for rows in row_blocks(dense):
        trimmed = []
        for i, (delta, threshold) in enumerate(zip(module.deltas, thresholds, strict=True)):
            block = torch.mm(delta.scale * delta.b[rows], delta.a, out=scratch(f"block {i}", dense[rows].shape))
            trimmed.append(trim(block, threshold, scratch))
        mean_of_agreeing(trimmed[0], trimmed[1], dense[rows], scratch)
    return dense


OPERATOR = Operator("ties", 2, ties, "arXiv 2605.16727 (introduction); arXiv 2306.01708", {"density": 0.5})
