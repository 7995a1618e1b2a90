"""The parent's dW in balanced factors: the control of what refactoring alone does.

An adaptive optimizer sees other factors than the parent's, although the model is the same.
"""

from collections.abc import Mapping

import torch

from popu.evolution.factors import recompress
from popu.evolution.family import Family
from popu.evolution.operator import Operator
from popu.population.adapter import Factors


def copy_parent_refactored(family: Family, generator: torch.Generator) -> Mapping[str, Factors]:
    """The thin SVD of the parent's dW, its singular values split evenly over A and B."""
    return {m.name: recompress([(1.0, m.deltas[0])], m.scale, keep_a=m.deltas[0].a) for m in family}


OPERATOR = Operator("copy_parent_refactored", 1, copy_parent_refactored, "control (ours)")
