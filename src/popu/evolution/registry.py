"""The operators by name, with their constants and sources as data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

import torch

from popu.evolution.crossovers import layer_wise, linear_0_5
from popu.evolution.mutations import FULL_GAUSSIAN_EPS, copy_parent, full_gaussian
from popu.population.adapter import Adapter

PAPER = "arXiv 2605.16727 (name); third-party adaptation (formula and constants)"


@dataclass(frozen=True)
class Operator:
    """A way to make one child.

    Args:
        arity: number of parents: 1 for a mutation, 2 for a crossover.
        apply: (parents, generator) -> child of the same config; parents are never modified and share no
            memory with the child; raises ValueError for another number of parents or parents that do not fit
            each other.
        constants: what the formula is fixed to.
        reference: where it comes from.
    """

    name: str
    arity: int
    apply: Callable[[Sequence[Adapter], torch.Generator], Adapter]
    constants: Mapping[str, float]
    reference: str


def _table(*operators: Operator) -> dict[str, Operator]:
    return {operator.name: operator for operator in operators}


OPERATORS: dict[str, Operator] = _table(
    Operator("full_gaussian", 1, full_gaussian, MappingProxyType({"eps": FULL_GAUSSIAN_EPS}), PAPER),
    Operator("layer_wise", 2, layer_wise, MappingProxyType({}), PAPER),
    Operator("copy_parent", 1, copy_parent, MappingProxyType({}), "control (exploit step of arXiv 1711.09846)"),
    Operator("linear_0_5", 2, linear_0_5, MappingProxyType({"weight": 0.5}), "control (mean of dW)"),
)


def get_operator(name: str) -> Operator:
    """The operator of that name. Raises ValueError naming the nearest valid name."""
    if name not in OPERATORS:
        nearest = get_close_matches(name, sorted(OPERATORS), 1, 0.0)[0]
        raise ValueError(f"operator: expected one of {sorted(OPERATORS)}, found {name!r}; did you mean {nearest!r}?")
    return OPERATORS[name]
