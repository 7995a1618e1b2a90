"""The mean of two parents: the control of what a crossover adds to averaging."""

from collections.abc import Mapping

import torch

from popu.evolution.factors import recompress
from popu.evolution.family import Family
from popu.evolution.operator import Operator
from popu.population.adapter import Factors


def linear_0_5(family: Family, generator: torch.Generator, weight: float) -> Mapping[str, Factors]:
    """(1 - weight) W1 + weight W2 of the parents' dW, truncated to their rank by SVD.

    Where that has fewer components than the rank, the spare rows of A are the first parent's (two fresh parents: its A,
    and B = 0).
    """
    factors = {}
    for module in family:
        first, second = module.deltas
        factors[module.name] = recompress([(1 - weight, first), (weight, second)], module.scale, keep_a=first.a)
    return factors


OPERATOR = Operator("linear_0_5", 2, linear_0_5, "control (mean of dW)", {"weight": 0.5})
