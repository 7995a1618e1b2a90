"""The parent, unchanged: the control that separates selection from variation."""

from collections.abc import Mapping

import torch

from popu.evolution.family import Family
from popu.evolution.operator import Operator
from popu.population.adapter import Factors


def copy_parent(family: Family, generator: torch.Generator) -> Mapping[str, Factors]:
    """The parent's factors, bit for bit."""
    return {module.name: module.kept() for module in family}


OPERATOR = Operator("copy_parent", 1, copy_parent, "control (exploit step of arXiv 1711.09846)")
