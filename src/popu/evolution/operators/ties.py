"""Trim, elect signs, merge what agrees (TIES, arXiv 2306.01708)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from popu.evolution.factors import row_blocks, truncate
from popu.evolution.family import Family, Module
from popu.evolution.operator import Operator
from popu.evolution.sparsify import magnitude_threshold, mean_of_agreeing, trim
from popu.population.adapter import Factors


def ties(family: Family, generator: torch.Generator, density: float) -> Mapping[str, Factors]:
    """The mean, entry by entry, of those parents' dW that agree with the sign of their sum, after each has been trimmed
    to its `density` largest entries; truncated by SVD.

    Spare rows of A are the first parent's.
    """
    return {
        module.name: truncate(merged(module, generator, density), module.scale, module.deltas[0].a, generator)
        for module in family
    }


def merged(module: Module, generator: torch.Generator, density: float) -> Tensor:
    """(d_out, d_in): what is truncated."""
    first = module.deltas[0]
    result = torch.empty(first.b.shape[0], first.a.shape[1])
    thresholds = [magnitude_threshold(delta, density, generator) for delta in module.deltas]
    for rows in row_blocks(result):
        dense = [delta.scale * (delta.b[rows] @ delta.a) for delta in module.deltas]
        trimmed = [trim(block, threshold) for block, threshold in zip(dense, thresholds, strict=True)]
        result[rows] = mean_of_agreeing(trimmed)
    return result


OPERATOR = Operator("ties", 2, ties, "arXiv 2605.16727 (introduction); arXiv 2306.01708", {"density": 0.5})
