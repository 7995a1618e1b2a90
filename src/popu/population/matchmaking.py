"""Who plays whom: every teacher gets one student.

Prioritized fictitious self-play prefers balanced pairs, which carry most information for the ratings and most
signal for both rewards: the weight of a pair is the variance p (1 - p) of its predicted outcome, with a floor
that keeps every pair possible.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from popu import plugins
from popu.errors import ConfigError
from popu.population.member import Member, Population
from popu.population.ratings import win_probability

PFSP_FLOOR = 0.02

Matcher: TypeAlias = Callable[[Population, random.Random], Mapping[str, str]]
"""(population, generator) -> the slot of every teacher's student by the teacher's slot; no student twice. The single
agent is teacher and student: it is matched with itself."""


@dataclass(frozen=True)
class Match:
    """A teacher's slot, its student's slot, and the predicted probability that the student wins."""

    teacher_slot: str
    student_slot: str
    p: float


def pfsp_weight(p: float) -> float:
    """max(p (1 - p), 0.02): in [0.02, 0.25], largest at p = 1/2."""
    return max(p * (1.0 - p), PFSP_FLOOR)


def match(population: Population, rng: random.Random, method: str = "pfsp") -> list[Match]:
    """One match per teacher, in the population's order of teachers; no student is in two.

    The matcher of that name chooses. With fewer teachers than students some students sit out.

    Raises:
        ConfigError: an unknown method, one that leaves a teacher out, or takes a student twice or from nowhere.
        ValueError: more teachers than students.
    """
    teachers, students = population.teachers, {student.slot: student for student in population.students}
    if len(teachers) > len(students):
        found = f"{len(teachers)} > {len(students)}"
        raise ValueError(f"population: expected no more teachers than students, found {found}")
    matcher: Matcher = plugins.load("matchers", method, Callable)  # type: ignore[type-abstract]
    chosen = dict(matcher(population, rng))
    if {*chosen} != {teacher.slot for teacher in teachers} or len({*chosen.values()} & {*students}) != len(teachers):
        raise ConfigError(f"training.matching.method: expected {method} to give each teacher a student, found {chosen}")
    return [
        Match(teacher.slot, chosen[teacher.slot], win_probability(students[chosen[teacher.slot]], teacher))
        for teacher in teachers
    ]


def pfsp(population: Population, rng: random.Random) -> dict[str, str]:
    """Teachers in random order each draw one of the students left, with `pfsp_weight`."""
    return _in_random_order(
        population,
        rng,
        lambda teacher, free: rng.choices(free, [pfsp_weight(win_probability(s, teacher)) for s in free])[0],
    )


def uniform(population: Population, rng: random.Random) -> dict[str, str]:
    """Teachers in random order each draw one of the students left, all alike."""
    return _in_random_order(population, rng, lambda teacher, free: rng.choice(free))


def fixed(population: Population, rng: random.Random) -> dict[str, str]:
    """The i-th teacher with the i-th student; nothing is drawn."""
    pairs = zip(population.teachers, population.students, strict=False)
    return {teacher.slot: student.slot for teacher, student in pairs}


def _in_random_order(
    population: Population, rng: random.Random, draw: Callable[[Member, list[Member]], Member]
) -> dict[str, str]:
    free = list(population.students)
    chosen = {}
    for teacher in rng.sample(population.teachers, len(population.teachers)):
        student = draw(teacher, free)
        free.remove(student)
        chosen[teacher.slot] = student.slot
    return chosen
