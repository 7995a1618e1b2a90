"""Forget some singular components."""

import math
from collections.abc import Mapping

import torch

from popu.evolution.factors import from_svd, thin_svd
from popu.evolution.family import Family, Module
from popu.evolution.operator import PAPER, Operator
from popu.population.adapter import Factors, kaiming_a


def component_masking(family: Family, generator: torch.Generator, rho: float) -> Mapping[str, Factors]:
    """Drop ceil(rho r) random singular components of every module's dW.

    A dropped component would leave its row of A and its column of B both zero, which no gradient leaves: its row of A
    becomes a fresh Kaiming draw instead.
    """
    return {module.name: _masked(module, generator, rho) for module in family}


def _masked(module: Module, generator: torch.Generator, rho: float) -> Factors:
    (parent,) = module.deltas
    dropped = torch.randperm(module.rank, generator=generator)[: math.ceil(rho * module.rank)]
    svd = thin_svd(parent.a, parent.b, parent.scale)
    svd.s[dropped] = 0.0
    a, b = from_svd(svd, module.scale, keep_a=parent.a)
    a[dropped] = kaiming_a(len(dropped), a.shape[1], generator)
    return a, b


OPERATOR = Operator("component_masking", 1, component_masking, PAPER, {"rho": 0.3})
