"""Noise on every module."""

from collections.abc import Mapping

import torch

from popu.evolution.factors import with_noise
from popu.evolution.family import Family
from popu.evolution.operator import PAPER, Operator
from popu.population.adapter import Factors


def full_gaussian(family: Family, generator: torch.Generator, eps: float) -> Mapping[str, Factors]:
    """Add eps std(W) N(0, 1) to both factors W of every module; see `with_noise`."""
    return {module.name: with_noise(module.kept(), eps, generator) for module in family}


OPERATOR = Operator("full_gaussian", 1, full_gaussian, PAPER, {"eps": 0.15})
