"""Whole modules from either parent."""

from collections.abc import Mapping

import torch

from popu.evolution.family import Family
from popu.evolution.operator import PAPER, Operator
from popu.population.adapter import Factors


def layer_wise(family: Family, generator: torch.Generator) -> Mapping[str, Factors]:
    """Per module, both factors from one parent, each with chance 1/2."""
    picks = torch.randint(2, (len(family.names),), generator=generator).tolist()
    return {module.name: module.kept(pick) for module, pick in zip(family, picks, strict=True)}


OPERATOR = Operator("layer_wise", 2, layer_wise, PAPER)
