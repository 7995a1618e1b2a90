"""Drop and rescale, then average (DARE, arXiv 2311.03099)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from popu.evolution.factors import Scratch, recompress, row_blocks, truncate
from popu.evolution.family import Family, Module
from popu.evolution.operator import PAPER, Operator
from popu.evolution.sparsify import drop_and_rescale
from popu.population.adapter import Factors


def dare(family: Family, generator: torch.Generator, p: float) -> Mapping[str, Factors]:
    """The mean of the parents' dW of which entries are dropped with chance p and the rest rescaled; truncated by SVD.

    Spare rows of A are the first parent's.
    """
    factors, scratch = {}, Scratch()
    for module in family:
        keep_a = module.deltas[0].a
        expected, _ = recompress([(0.5, delta) for delta in module.deltas], module.scale, keep_a)
        mean = mean_of_dropped(module, generator, p, scratch)
        factors[module.name] = truncate(mean, module.scale, keep_a, generator, guess=expected)
    return factors


def mean_of_dropped(module: Module, generator: torch.Generator, p: float, scratch: Scratch) -> Tensor:
    """(d_out, d_in): what is truncated. Its expectation is the mean of the parents' dW."""
    mean = scratch("mean", module.shape)
    for rows in row_blocks(mean):
        block = mean[rows].zero_()
        for delta in module.deltas:
            part = torch.mm(0.5 * delta.scale * delta.b[rows], delta.a, out=scratch("block", block.shape))
            block += drop_and_rescale(part, p, generator, scratch)
    return mean


OPERATOR = Operator("dare", 2, dare, f"{PAPER}; arXiv 2311.03099", {"p": 0.7})
