"""Survivor and parent selection: who is replaced, by whose child, made how.

Truncation with elitism within each sub-population; parents are drawn evenly among the survivors, or by tournaments.
**Relative** fitness only: the rating's lower confidence bound.

Deviation: a child starts from its first parent's mu and sigma (times `sigma_inflation`), not from the initial
rating, and enjoys a grace period. With the initial sigma its bound is near 0, far below everyone's, so nearly
every cull would hit the newest child.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from popu.evolution.registry import get_operator
from popu.population.member import INITIAL_MU, INITIAL_SIGMA, Member, Population, member_id, version_name
from popu.population.ratings import lower_bound

DEFAULT_OPERATORS = ("full_gaussian", "layer_wise")


@dataclass(frozen=True)
class SelectionConfig:
    """Constants of selection.

    Args:
        fraction: of a sub-population that one evolution replaces (rounded down, at least one), in (0, 1).
        bound_sigmas: members are ranked by mu minus this many sigma; >= 0.
        grace_steps: a child younger than this is not culled. Founders have no grace: they are all of one age,
            so none of them is at a disadvantage, and the first evolution would otherwise have nobody to
            replace.
        child_rating: "inherited" from its first parent, or the "initial" one.
        sigma_inflation: an inherited sigma is the first parent's times this, at most the initial 25/3; >= 1.
        parent_selection: "uniform" among the survivors, or "tournament": the best bound of `tournament_size` of them.
        crossover_probability: chance of a crossover where both kinds of operators are listed.
        operators: names, drawn evenly within their kind, or weights by name.
        roles: which sub-populations evolve.
        survivors: who stays: the members of the highest "bound", or "random" ones (of those that may be replaced).

    Raises:
        ValueError: a value out of range, an unknown operator (naming the nearest) or role.
    """

    fraction: float = 0.25
    bound_sigmas: float = 3.0
    grace_steps: int = 20
    child_rating: str = "inherited"
    sigma_inflation: float = 1.0
    parent_selection: str = "uniform"
    tournament_size: int = 2
    crossover_probability: float = 0.5
    operators: tuple[str, ...] | Mapping[str, float] = DEFAULT_OPERATORS
    roles: tuple[str, ...] = ("teacher", "student")
    survivors: str = "bound"

    @property
    def weights(self) -> dict[str, float]:
        """The operators' weights by name, in the order given."""
        return {**self.operators} if isinstance(self.operators, Mapping) else dict.fromkeys(self.operators, 1.0)

    def __post_init__(self) -> None:
        if not 0.0 < self.fraction < 1.0:
            raise ValueError(f"fraction: expected in (0, 1), found {self.fraction!r}")
        if not (math.isfinite(self.bound_sigmas) and self.bound_sigmas >= 0.0):
            raise ValueError(f"bound_sigmas: expected >= 0, found {self.bound_sigmas!r}")
        if self.child_rating not in ("inherited", "initial"):
            raise ValueError(f"child_rating: expected inherited or initial, found {self.child_rating!r}")
        if self.parent_selection not in ("uniform", "tournament"):
            raise ValueError(f"parent_selection: expected uniform or tournament, found {self.parent_selection!r}")
        if self.survivors not in ("bound", "random"):
            raise ValueError(f"survivors: expected bound or random, found {self.survivors!r}")
        if self.tournament_size < 1:
            raise ValueError(f"tournament_size: expected >= 1, found {self.tournament_size!r}")
        if self.grace_steps < 0:
            raise ValueError(f"grace_steps: expected >= 0, found {self.grace_steps!r}")
        if not (math.isfinite(self.sigma_inflation) and self.sigma_inflation >= 1.0):
            raise ValueError(f"sigma_inflation: expected >= 1, found {self.sigma_inflation!r}")
        if not 0.0 <= self.crossover_probability <= 1.0:
            raise ValueError(f"crossover_probability: expected in [0, 1], found {self.crossover_probability!r}")
        if not self.operators or len(set(self.operators)) != len(self.operators):
            raise ValueError(f"operators: expected distinct names, at least one, found {self.operators!r}")
        for name, weight in self.weights.items():
            get_operator(name)
            if not (math.isfinite(weight) and weight > 0.0):
                raise ValueError(f"operators: expected weights > 0, found {weight!r} for {name}")
        if len(set(self.roles)) != len(self.roles) or not set(self.roles) <= {"teacher", "student"}:
            raise ValueError(f"roles: expected some of ('teacher', 'student'), each once, found {self.roles!r}")


@dataclass(frozen=True)
class Replacement:
    """A birth to carry out: `operator` applied to the adapters in `parent_slots`, in order, becomes `child`
    in `slot`.

    The parents' slots are never replaced in the same plan, so the order of carrying out does not matter.
    """

    slot: str
    parent_slots: tuple[str, ...]
    operator: str
    child: Member


def cullable(members: Sequence[Member], step: int, config: SelectionConfig) -> tuple[Member, ...]:
    """Those of one sub-population who may be replaced, by ascending bound: not the best, no child within its
    grace. With random survivors in the order of `members`, the best among them.

    Ties keep the order of `members`; among equally good ones the last is the best.
    """
    if config.survivors == "random":
        ranked = list(members)
    else:
        ranked = sorted(members, key=lambda member: lower_bound(member, config.bound_sigmas))[:-1]
    return tuple(m for m in ranked if m.generation == 0 or step - m.born_step >= config.grace_steps)


def check_survivors(config: SelectionConfig, sizes: Mapping[str, int]) -> None:
    """Raises ValueError if in an evolving sub-population of `sizes` too few survive for every listed operator."""
    for role in config.roles:
        n_survivors = sizes[role] - _quota(config, sizes[role])
        if sizes[role] >= 2:
            _fitting(config, n_survivors, f" of {sizes[role]} {role}s")


def plan_replacements(
    population: Population, step: int, config: SelectionConfig, rng: random.Random
) -> list[Replacement]:
    """The births at the end of `step`, teachers first.

    Per evolving sub-population the floor(fraction * size) members of lowest bound, at least one, among the
    `cullable` (fewer, even none, where grace leaves fewer); ties in the bound are broken at random. Each is
    replaced by a child of parents drawn, without repetition, among the members of the
    sub-population that stay. Which of two parents comes first is random too, except where the operator takes the
    fitter first, and the child takes the first one's rating. A sub-population of one, the single agent included, is
    never replaced.

    Raises:
        ValueError: only crossovers are listed and a single member survives.
    """
    plan: list[Replacement] = []
    for role in ("teacher", "student"):
        members = [member for member in population.members if member.role == role]
        if role not in config.roles or len(members) < 2:
            continue
        rng.shuffle(members)
        culled = cullable(members, step, config)[: _quota(config, len(members))]
        survivors = [member for member in population.members if member in members and member not in culled]
        plan += [_birth(member, survivors, step, config, rng) for member in culled]
    return plan


def _quota(config: SelectionConfig, size: int) -> int:
    return max(1, math.floor(config.fraction * size + 1e-9))


def _fitting(config: SelectionConfig, n_survivors: int, of: str = "") -> list[str]:
    """The listed operators that `n_survivors` parents suffice for."""
    fitting = [name for name in config.operators if get_operator(name).arity <= n_survivors]
    if not fitting:
        found = ", ".join(config.operators)
        raise ValueError(f"operators: expected one that takes the {n_survivors} survivor{of} as parent, found {found}")
    return fitting


def _birth(
    replaced: Member, survivors: list[Member], step: int, config: SelectionConfig, rng: random.Random
) -> Replacement:
    operator = _draw_operator(config, len(survivors), rng)
    parents = _draw_parents(config, survivors, get_operator(operator).arity, rng)
    if get_operator(operator).fitter_first:
        parents.sort(key=lambda member: lower_bound(member, config.bound_sigmas), reverse=True)
    inherits = config.child_rating == "inherited"
    generation = replaced.generation + 1
    identity = member_id(replaced.slot, generation)
    child = Member(
        id=identity,
        slot=replaced.slot,
        role=replaced.role,
        generation=generation,
        born_step=step,
        mu=parents[0].mu if inherits else INITIAL_MU,
        sigma=min(parents[0].sigma * config.sigma_inflation, INITIAL_SIGMA) if inherits else INITIAL_SIGMA,
        parents=tuple(parent.id for parent in parents),
        operator=operator,
        version=version_name(identity, step),
    )
    return Replacement(replaced.slot, tuple(parent.slot for parent in parents), operator, child)


def _draw_parents(config: SelectionConfig, survivors: list[Member], n: int, rng: random.Random) -> list[Member]:
    if config.parent_selection == "uniform":
        return rng.sample(survivors, n)
    parents: list[Member] = []
    for _ in range(n):
        left = [member for member in survivors if member not in parents]
        entrants = rng.sample(left, min(config.tournament_size, len(left)))
        parents.append(max(entrants, key=lambda member: lower_bound(member, config.bound_sigmas)))
    return parents


def _draw_operator(config: SelectionConfig, n_survivors: int, rng: random.Random) -> str:
    possible = _fitting(config, n_survivors)
    crossovers = [name for name in possible if get_operator(name).arity > 1]
    mutations = [name for name in possible if get_operator(name).arity == 1]
    if crossovers and mutations:
        possible = crossovers if rng.random() < config.crossover_probability else mutations
    return rng.choices(possible, [config.weights[name] for name in possible])[0]
