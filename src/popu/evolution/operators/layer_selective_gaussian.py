"""Noise on some modules."""

from collections.abc import Mapping

import torch

from popu.evolution.factors import with_noise
from popu.evolution.family import Family
from popu.evolution.operator import PAPER, Operator
from popu.population.adapter import Factors


def layer_selective_gaussian(
    family: Family, generator: torch.Generator, eps: float, fraction: float
) -> Mapping[str, Factors]:
    """`full_gaussian` on floor(fraction * n) of the n modules, at least one, drawn without repetition."""
    n_chosen = max(1, int(fraction * len(family.names)))
    chosen = set(torch.randperm(len(family.names), generator=generator)[:n_chosen].tolist())
    return {
        module.name: with_noise(module.kept(), eps, generator) if index in chosen else module.kept()
        for index, module in enumerate(family)
    }


OPERATOR = Operator("layer_selective_gaussian", 1, layer_selective_gaussian, PAPER, {"eps": 0.1, "fraction": 0.33})
