"""The check every operator makes of its parents before it touches them."""

from collections.abc import Sequence
from dataclasses import fields

from popu.population.adapter import Adapter, LoraConfig


def check_parents(parents: Sequence[Adapter], arity: int) -> tuple[Adapter, ...]:
    """The parents as a tuple, if there are `arity` of them and they adapt the same modules in the same way.

    Raises:
        ValueError: another number of parents; a module that only one adapts, or whose factors differ in shape
            (the message names the module); a config that differs in alpha, targets or rslora, so that one
            scale would not serve both.
    """
    if len(parents) != arity:
        raise ValueError(f"parents: expected {arity}, found {len(parents)}")
    first = parents[0]
    for other in parents[1:]:
        if differing := sorted(set(first.factors) ^ set(other.factors)):
            raise ValueError(f"module {differing[0]}: expected in every parent, found in one only")
        for module in sorted(first.factors):
            expected, found = (tuple(tuple(f.shape) for f in p.factors[module]) for p in (first, other))
            if expected != found:
                raise ValueError(f"module {module}: expected factor shapes {expected} of A and B, found {found}")
        for field in fields(LoraConfig):
            wanted, found_value = getattr(first.config, field.name), getattr(other.config, field.name)
            if wanted != found_value:
                raise ValueError(f"parents' {field.name}: expected {wanted!r}, found {found_value!r}")
    return tuple(parents)
