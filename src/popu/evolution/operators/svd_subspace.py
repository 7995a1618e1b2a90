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
    first, second = module.deltas
    low, high = (1, module.rank) if module.rank > 1 else (0, 2)
    k = int(torch.randint(low, high, (), generator=generator))
    (u1, s1, vh1), (u2, s2, vh2) = (thin_svd(delta.a, delta.b, delta.scale) for delta in module.deltas)
    u, s, vh = torch.cat([u1[:, :k], u2[:, k:]], 1), torch.cat([s1[:k], s2[k:]]), torch.cat([vh1[:k], vh2[k:]])
    return from_svd(u, s, vh, module.scale, keep_a=torch.cat([first.a[:k], second.a[k:]]))


OPERATOR = Operator("svd_subspace", 2, svd_subspace, PAPER)
