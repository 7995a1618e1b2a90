"""Operators with two parents."""

from collections.abc import Sequence

import torch

from popu.evolution.factors import recompress
from popu.evolution.parents import check_parents
from popu.population.adapter import Adapter


def linear_0_5(parents: Sequence[Adapter], generator: torch.Generator) -> Adapter:
    """The mean of the parents' dW, truncated to their rank by SVD; a control.

    Where the mean has fewer components than the rank, the spare rows of A are the first parent's (two fresh
    parents: its A, and B = 0).
    """
    first, second = check_parents(parents, 2)
    factors = {}
    for module, (a1, b1) in first.factors.items():
        a2, b2 = second.factors[module]
        factors[module] = recompress([(0.5, a1, b1), (0.5, a2, b2)], first.config.rank, keep_a=a1)
    return Adapter(first.config, factors)


def layer_wise(parents: Sequence[Adapter], generator: torch.Generator) -> Adapter:
    """Per module, both factors from one parent, each with chance 1/2, drawn in sorted module order."""
    pair = check_parents(parents, 2)
    modules = sorted(pair[0].factors)
    picks = torch.randint(2, (len(modules),), generator=generator).tolist()
    factors = {}
    for module, pick in zip(modules, picks, strict=True):
        a, b = pair[pick].factors[module]
        factors[module] = (a.detach().clone(), b.detach().clone())
    return Adapter(pair[0].config, factors)
