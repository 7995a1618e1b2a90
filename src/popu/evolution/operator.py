"""What an operator is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from popu.evolution.family import Family
from popu.population.adapter import Adapter, Factors

PAPER = "arXiv 2605.16727 (name); formula and constants of a third-party adaptation"


@dataclass(frozen=True)
class Operator:
    """A way to make one child of one parent (a mutation) or two (a crossover).

    Args:
        arity: number of parents, 1 or 2.
        combine: (family, generator, **constants) -> the child's factors by module, in memory of their own. It draws
            from the generator alone, in the family's order of modules.
        reference: where it comes from.
        constants: what the formula is fixed to.
        fitter_first: whether the first parent must be the fitter; elsewhere their order is either without effect or
            left to chance.
    """

    name: str
    arity: int
    combine: Callable[..., Mapping[str, Factors]]
    reference: str
    constants: Mapping[str, float] = field(default_factory=dict)
    fitter_first: bool = False

    def apply(self, parents: Sequence[Adapter], generator: torch.Generator) -> Adapter:
        """The child, with the first parent's config; parents are not modified and share no memory with it.

        Raises:
            ValueError: see `Family`.
        """
        family = Family(parents, self.arity)
        return Adapter(family.config, dict(self.combine(family, generator, **self.constants)))
