"""Members of the population, and the population as a value.

A **slot** (``t0``, ``s3``, ``a0``) is a place that exists for the whole run; a **member** (``s3.g2``) is the
individual that lives in it for a while; a **version** (``s3.g2@00057``) is one state of that member's
adapter.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

Role = Literal["teacher", "student", "both"]

SLOT_ROLES: dict[str, Role] = {"t": "teacher", "s": "student", "a": "both"}
INITIAL_MU = 25.0  # TrueSkill's standard prior
INITIAL_SIGMA = 25.0 / 3.0


def member_id(slot: str, generation: int) -> str:
    """``s3.g2``: the third individual (counted from 0) to live in slot s3."""
    return f"{slot}.g{generation}"


def version_name(identity: str, step: int) -> str:
    """``s3.g2@00057``: the adapter of member s3.g2 at the end of step 57. Never reused within a run."""
    return f"{identity}@{step:05d}"


@dataclass(frozen=True)
class Member:
    """One individual.

    Args:
        generation: how many earlier individuals lived in this slot (0 for a founder); makes the id unique.
        born_step: the step at whose end it came to be; founders 0.
        mu, sigma: its TrueSkill rating within its game of teachers against students.
        parents: ids of its parents, empty for a founder.
        operator: name of the operator that made it, None for a founder.

    Raises:
        ValueError: a field contradicts another or is out of range.
    """

    id: str
    slot: str
    role: Role
    generation: int
    born_step: int
    mu: float
    sigma: float
    parents: tuple[str, ...]
    operator: str | None
    version: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[tsa](0|[1-9][0-9]*)", self.slot):
            raise ValueError(f"slot: expected t<n>, s<n> or a<n>, found {self.slot!r}")
        if self.role != SLOT_ROLES[self.slot[0]]:
            raise ValueError(f"role: expected {SLOT_ROLES[self.slot[0]]!r} in slot {self.slot}, found {self.role!r}")
        if self.generation < 0 or self.born_step < 0:
            raise ValueError(f"generation, born_step: expected >= 0, found {self.generation}, {self.born_step}")
        if self.id != member_id(self.slot, self.generation):
            raise ValueError(f"id: expected {member_id(self.slot, self.generation)!r}, found {self.id!r}")
        if not re.fullmatch(re.escape(self.id) + r"@[0-9]{5,}", self.version):
            raise ValueError(f"version: expected {self.id}@<step>, found {self.version!r}")
        if not (math.isfinite(self.mu) and math.isfinite(self.sigma) and self.sigma > 0):
            raise ValueError(f"mu, sigma: expected finite, sigma > 0, found {self.mu!r}, {self.sigma!r}")
        if bool(self.parents) != (self.operator is not None):
            raise ValueError(f"parents: expected with an operator only, found {self.parents!r}, {self.operator!r}")

    def to_json(self) -> dict[str, Any]:
        """A JSON-able object; ``from_json`` gives back an equal member (floats survive exactly)."""
        return {**asdict(self), "parents": list(self.parents)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Raises ValueError for a missing or unknown key, or a value of a wrong type or range."""
        expected = {field.name for field in fields(cls)}
        if set(data) != expected:
            raise ValueError(f"member: expected keys {sorted(expected)}, found {sorted(data)}")
        for name, kind in JSON_TYPES.items():
            if not isinstance(data[name], kind) or isinstance(data[name], bool):
                raise ValueError(f"member {name}: expected {kind}, found {data[name]!r}")
        if not all(isinstance(parent, str) for parent in data["parents"]):
            raise ValueError(f"member parents: expected a list of ids, found {data['parents']!r}")
        floats = {"mu": float(data["mu"]), "sigma": float(data["sigma"])}
        return cls(**{**data, **floats, "parents": tuple(data["parents"])})


JSON_TYPES: dict[str, Any] = {
    **dict.fromkeys(("id", "slot", "role", "version"), str),
    **dict.fromkeys(("generation", "born_step"), int),
    **dict.fromkeys(("mu", "sigma"), int | float),
    "parents": list,
    "operator": str | None,
}


@dataclass(frozen=True)
class Population:
    """The members in a fixed order. Empty before the founders exist.

    Raises:
        ValueError: two members share a slot.
    """

    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        slots = [member.slot for member in self.members]
        if len(set(slots)) != len(slots):
            raise ValueError(f"members: expected distinct slots, found {slots}")

    @property
    def teachers(self) -> tuple[Member, ...]:
        """Members that write problems, the single agent included."""
        return tuple(member for member in self.members if member.role != "student")

    @property
    def students(self) -> tuple[Member, ...]:
        """Members that solve problems, the single agent included."""
        return tuple(member for member in self.members if member.role != "teacher")

    def by_slot(self, slot: str) -> Member:
        """The member living in `slot`. Raises ValueError if there is no such slot."""
        for member in self.members:
            if member.slot == slot:
                return member
        raise ValueError(f"slot: expected one of {[member.slot for member in self.members]}, found {slot!r}")

    def with_member(self, member: Member) -> "Population":
        """The same population with `member` in its slot, which must exist, instead of who lived there."""
        self.by_slot(member.slot)
        return Population(tuple(member if old.slot == member.slot else old for old in self.members))

    def to_json(self) -> dict[str, Any]:
        """``{"members": [...]}``."""
        return {"members": [member.to_json() for member in self.members]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises ValueError as `Member.from_json` does."""
        if set(data) != {"members"} or not isinstance(data["members"], list):
            raise ValueError(f"population: expected one key 'members' with a list, found {sorted(data)}")
        return cls(tuple(Member.from_json(row) for row in data["members"]))


def founder(slot: str) -> Member:
    """The first member of `slot`, born at step 0 with TrueSkill's initial rating."""
    identity = member_id(slot, 0)
    role = SLOT_ROLES.get(slot[:1], "both")
    return Member(identity, slot, role, 0, 0, INITIAL_MU, INITIAL_SIGMA, (), None, version_name(identity, 0))


def founders(n_teachers: int, n_students: int) -> Population:
    """Teachers t0.. and students s0..; ``founders(0, 0)`` is the single agent a0, which has both roles.

    Raises:
        ValueError: unless 1 <= n_teachers <= n_students or both are 0 (paper: N_T <= N_S).
    """
    if n_teachers == n_students == 0:
        return Population((founder("a0"),))
    if not 1 <= n_teachers <= n_students:
        raise ValueError(f"n_teachers: expected 1 <= n_teachers <= n_students, found {n_teachers}, {n_students}")
    slots = [f"t{i}" for i in range(n_teachers)] + [f"s{i}" for i in range(n_students)]
    return Population(tuple(founder(slot) for slot in slots))
