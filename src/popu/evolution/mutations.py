"""Operators with one parent."""

from collections.abc import Sequence

import torch
from torch import Tensor

from popu.evolution.parents import check_parents
from popu.population.adapter import Adapter

FULL_GAUSSIAN_EPS = 0.15


def copy_parent(parents: Sequence[Adapter], generator: torch.Generator) -> Adapter:
    """The parent, bit for bit, in own memory. The control that separates selection from variation."""
    (parent,) = check_parents(parents, 1)
    factors = {module: (a.detach().clone(), b.detach().clone()) for module, (a, b) in parent.factors.items()}
    return Adapter(parent.config, factors)


def full_gaussian(parents: Sequence[Adapter], generator: torch.Generator, eps: float = FULL_GAUSSIAN_EPS) -> Adapter:
    """Add eps std(W) N(0, 1) to both factors W of every module, drawn in the sorted order of the module
    paths.

    std is the population deviation of the factor itself, so the relative change of dW, about sqrt(2) eps,
    does not depend on how its norm is split over A and B. A fresh adapter's B = 0 has std 0 and stays zero, A
    does not: dW stays 0 and trainable.
    """
    (parent,) = check_parents(parents, 1)
    factors = {}
    for module in sorted(parent.factors):
        a, b = parent.factors[module]
        factors[module] = (_noisy(a, eps, generator), _noisy(b, eps, generator))
    return Adapter(parent.config, factors)


def _noisy(factor: Tensor, eps: float, generator: torch.Generator) -> Tensor:
    noise = torch.randn(factor.shape, generator=generator, dtype=factor.dtype)
    return factor.detach() + eps * factor.detach().std(correction=0) * noise
