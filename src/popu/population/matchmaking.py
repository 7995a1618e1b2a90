"""Who plays whom: every teacher gets one student.

Prioritized fictitious self-play prefers balanced pairs, which carry most information for the ratings and most
signal for both rewards: the weight of a pair is the variance p (1 - p) of its predicted outcome, with a floor
that keeps every pair possible.
"""

import random
from dataclasses import dataclass
from difflib import get_close_matches

from popu.population.member import Member, Population
from popu.population.ratings import win_probability

PFSP_FLOOR = 0.02
METHODS = ("pfsp", "uniform", "fixed")


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

    ``pfsp`` and ``uniform`` visit the teachers in random order and draw a student for each among those left,
    with `pfsp_weight` or equal weights; ``fixed`` pairs the i-th teacher with the i-th student and draws
    nothing. The single agent is matched with itself. With fewer teachers than students some students sit out.

    Raises:
        ValueError: an unknown method, or more teachers than students.
    """
    if method not in METHODS:
        nearest = get_close_matches(method, METHODS, 1, 0.0)[0]
        raise ValueError(f"method: expected one of {METHODS}, found {method!r}; did you mean {nearest!r}?")
    teachers, free = list(population.teachers), list(population.students)
    if len(teachers) > len(free):
        raise ValueError(f"population: expected no more teachers than students, found {len(teachers)} > {len(free)}")
    chosen: dict[str, Member] = {}
    order = teachers if method == "fixed" else rng.sample(teachers, len(teachers))
    for teacher in order:
        student = free[0] if method == "fixed" else _draw(teacher, free, rng, method)
        free.remove(student)
        chosen[teacher.slot] = student
    return [
        Match(teacher.slot, chosen[teacher.slot].slot, win_probability(chosen[teacher.slot], teacher))
        for teacher in teachers
    ]


def _draw(teacher: Member, students: list[Member], rng: random.Random, method: str) -> Member:
    if method == "uniform":
        return rng.choice(students)
    weights = [pfsp_weight(win_probability(student, teacher)) for student in students]
    return rng.choices(students, weights)[0]
