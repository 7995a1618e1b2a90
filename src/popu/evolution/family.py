"""The parents of one child, seen module by module.

Operators work on dW = scale * B @ A, so parents may differ in alpha, and a module that only one of them adapts is a
module of dW = 0 in the other. What they must share is what makes the sum of their dW meaningful and the child as large
as they are: the targeted names, the shape of every module and its rank.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from popu.population.adapter import Adapter, Factors, LoraConfig


@dataclass(frozen=True)
class Delta:
    """One parent's dW of a module: scale * b @ a with a (rank, d_in), b (d_out, rank), float32."""

    a: Tensor
    b: Tensor
    scale: float


@dataclass(frozen=True)
class Module:
    """A module of the child to be: the parents' deltas in order, and the child's scale and rank."""

    name: str
    deltas: tuple[Delta, ...]
    scale: float

    @property
    def rank(self) -> int:
        return self.deltas[0].a.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """(d_out, d_in)."""
        return self.deltas[0].b.shape[0], self.deltas[0].a.shape[1]

    def kept(self, parent: int = 0) -> Factors:
        """A parent's factors in own memory, for the child's scale; bit for bit where that is the parent's own."""
        delta = self.deltas[parent]
        return delta.a.clone(), delta.b.clone() if delta.scale == self.scale else delta.b * (delta.scale / self.scale)


class Family:
    """The parents of a child, checked. Iterating gives the modules in the sorted order of their paths.

    Raises:
        ValueError: another number of parents than `arity`; different targeted names; a module of different shapes or
            ranks. The message names what differs.
    """

    def __init__(self, parents: Sequence[Adapter], arity: int) -> None:
        if len(parents) != arity:
            raise ValueError(f"parents: expected {arity}, found {len(parents)}")
        self.parents = tuple(parents)
        for other in self.parents[1:]:
            _check_pair(self.parents[0], other)
        self.names = sorted(set().union(*(parent.factors for parent in self.parents)))
        self.config = _child_config(self.parents, self.names)

    def __iter__(self) -> Iterator[Module]:
        for name in self.names:
            yield Module(name, tuple(self._delta(parent, name) for parent in self.parents), self.config.scale_of(name))

    def _delta(self, parent: Adapter, name: str) -> Delta:
        if name in parent.factors:
            a, b = (factor.detach() for factor in parent.factors[name])
            return Delta(a, b, parent.config.scale_of(name))
        other = next(p for p in self.parents if name in p.factors)
        a, b = (factor.detach() for factor in other.factors[name])
        return Delta(a, torch.zeros_like(b), other.config.scale_of(name))


def _check_pair(first: Adapter, other: Adapter) -> None:
    expected, found = (sorted({name.rsplit(".", 1)[-1] for name in parent.factors}) for parent in (first, other))
    if expected != found:
        raise ValueError(f"parents' targets: expected {expected} in both, found {found} in one")
    for name in sorted(set(first.factors) & set(other.factors)):
        shapes = first.shapes[name], other.shapes[name]
        if shapes[0] != shapes[1]:
            raise ValueError(f"module {name}: expected (d_out, d_in) {shapes[0]} in both parents, found {shapes[1]}")
        ranks = tuple(parent.factors[name][0].shape[0] for parent in (first, other))
        if ranks[0] != ranks[1]:
            raise ValueError(f"module {name}: expected rank {ranks[0]} in both parents, found {ranks[1]}")


def _child_config(parents: Sequence[Adapter], names: Sequence[str]) -> LoraConfig:
    """The first parent's config, extended by what it does not adapt itself."""
    config = parents[0].config
    added = [name for name in names if name not in parents[0].factors]
    if not added:
        return config
    ranks, alphas = dict(config.rank_pattern), dict(config.alpha_pattern)
    for name in added:
        other = next(parent for parent in parents if name in parent.factors)
        ranks[name], alphas[name] = other.config.rank_of(name), other.config.alpha_of(name)
    return replace(config, targets=tuple(names), rank_pattern=ranks, alpha_pattern=alphas)
