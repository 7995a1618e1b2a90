"""Leading components of one parent, the rest of the other."""

from collections.abc import Mapping

import torch

from popu.evolution.factors import from_svd, thin_svd
from popu.evolution.family import Family, Module
from popu.evolution.operator import PAPER, Operator
from popu.population.adapter import Factors


def svd_subspace(family: Family, generator: torch.Generator) -> Mapping[str, Factors]:
    """Per module, the components 1..k of the first parent's dW and k+1..r of the second's, k uniform in 1..r-1.

    At rank 1, one parent's module, each with chance 1/2.
    """
    return {module.name: _spliced(module, generator) for module in family}


def _spliced(module: Module, generator: torch.Generator) -> Factors:
    low, high = (1, module.rank) if module.rank > 1 else (0, 2)
    k = int(torch.randint(low, high, (), generator=generator))
    parts = [
        from_svd(thin_svd(delta.a, delta.b, delta.scale).part(components), module.scale, delta.a[components])
        for delta, components in zip(module.deltas, (slice(k), slice(k, None)), strict=True)
    ]
    return torch.cat([a for a, _ in parts]), torch.cat([b for _, b in parts], dim=1)


OPERATOR = Operator("svd_subspace", 2, svd_subspace, PAPER)
