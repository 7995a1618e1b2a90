"""Drop and rescale, then average (DARE, arXiv 2311.03099)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from popu.evolution.factors import row_blocks, truncate
from popu.evolution.family import Family, Module
from popu.evolution.operator import PAPER, Operator
from popu.evolution.sparsify import drop_and_rescale
from popu.population.adapter import Factors


def dare(family: Family, generator: torch.Generator, p: float) -> Mapping[str, Factors]:
    """The mean of the parents' dW of which entries are dropped with chance p and the rest rescaled; truncated by SVD.

    Spare rows of A are the first parent's.
    """
    factors = {}
    for module in family:
        mean = mean_of_dropped(module, generator, p)
        factors[module.name] = truncate(mean, module.scale, module.deltas[0].a, generator)
    return factors


def mean_of_dropped(module: Module, generator: torch.Generator, p: float) -> Tensor:
    """(d_out, d_in): what is truncated. Its expectation is the mean of the parents' dW."""
    first = module.deltas[0]
    mean = torch.zeros(first.b.shape[0], first.a.shape[1])
    share = 1.0 / len(module.deltas)
    for rows in row_blocks(mean):
        for delta in module.deltas:
            mean[rows] += drop_and_rescale((share * delta.scale) * (delta.b[rows] @ delta.a), p, generator)
    return mean


OPERATOR = Operator("dare", 2, dare, f"{PAPER}; arXiv 2311.03099", {"p": 0.7})
