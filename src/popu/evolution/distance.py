"""Sizes and distances of adapters as models: Frobenius norms of dW over all modules, from the factors."""

import math

import torch

from popu.evolution.factors import gram
from popu.evolution.family import Delta, Family
from popu.population.adapter import Adapter


def size(adapter: Adapter) -> float:
    """||dW||. Two adapters whose factors differ by a rotation have equal sizes."""
    return math.sqrt(sum(_squared(*module.deltas) for module in Family((adapter,), 1)))


def distance(first: Adapter, other: Adapter) -> float:
    """||dW - dW'||, exact to about 1e-7 of the sizes. Raises ValueError for adapters that do not fit each other."""
    total = 0.0
    for module in Family((first, other), 2):
        ours, theirs = module.deltas
        total += _squared(ours, Delta(theirs.a, theirs.b, -theirs.scale))
    return math.sqrt(total)


def _squared(*deltas: Delta) -> float:
    """||sum of dW||^2 = tr(B^T B A A^T) of the stacked factors, never below 0."""
    a = torch.cat([delta.a for delta in deltas])
    b = torch.cat([delta.scale * delta.b for delta in deltas], dim=1)
    return max(0.0, float((gram(a) * gram(b.T)).sum()))
