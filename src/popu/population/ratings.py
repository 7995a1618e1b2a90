"""TrueSkill ratings of teachers and students, who play against each other.

One match per matched pair and step. The student is not asked to solve more than half of the problems but more
than its rating predicted, so a student matched with an easy teacher gains nothing by solving what it should.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist

import trueskill  # type: ignore[import-untyped]

from popu.population.member import INITIAL_MU, INITIAL_SIGMA, Member, Population

BETA = 25.0 / 6.0  # skill difference that gives the stronger about 76 % of the wins
TAU = 25.0 / 300.0  # what every match adds to the variance (as its root), so that ratings can follow training
DRAW_PROBABILITY = 0.10
LOWER_BOUND_SIGMAS = 3.0
BOUNDARY_TOLERANCE = 1e-9  # so that 3/7 and 4/7 against p = 1/2 are both draws whatever the rounding

ENVIRONMENT = trueskill.TrueSkill(INITIAL_MU, INITIAL_SIGMA, BETA, TAU, DRAW_PROBABILITY)


class Outcome(StrEnum):
    """Who won the match of a pair."""

    STUDENT = "student"
    TEACHER = "teacher"
    DRAW = "draw"


@dataclass(frozen=True)
class PairResult:
    """What a matched pair did in one step.

    Args:
        p: probability of a student's win as it was when the pair was matched.
        solve_rate: solved / counted rollouts over all valid problems of the teacher; None if it wrote no
            valid one. A pair whose every rollout was lost to the infrastructure is no result: leave it out.
        rollouts: the number of counted rollouts behind `solve_rate`.

    Raises:
        ValueError: a probability outside [0, 1], or a solve rate of no rollouts.
    """

    teacher_slot: str
    student_slot: str
    p: float
    solve_rate: float | None
    rollouts: int

    def __post_init__(self) -> None:
        if not 0.0 <= self.p <= 1.0:
            raise ValueError(f"p: expected in [0, 1], found {self.p!r}")
        if self.solve_rate is not None and not (0.0 <= self.solve_rate <= 1.0 and self.rollouts >= 1):
            found = f"{self.solve_rate!r} from {self.rollouts}"
            raise ValueError(f"solve_rate: expected in [0, 1] from >= 1 rollouts, found {found}")


def win_probability(student: Member, teacher: Member) -> float:
    """Chance that the student wins: Phi((mu_s - mu_t) / sqrt(2 beta^2 + sigma_s^2 + sigma_t^2))."""
    spread = math.sqrt(2 * BETA**2 + student.sigma**2 + teacher.sigma**2)
    return NormalDist().cdf((student.mu - teacher.mu) / spread)


def lower_bound(member: Member, sigmas: float = LOWER_BOUND_SIGMAS) -> float:
    """mu - 3 sigma, the lower confidence bound that selection ranks by."""
    return member.mu - sigmas * member.sigma


def outcome(result: PairResult) -> Outcome:
    """The student wins above its expectation, the teacher below; no valid problem is a win for the student.

    A draw is a solve rate within half of one rollout's worth (0.5 / rollouts, inclusive) of p.
    """
    if result.solve_rate is None:
        return Outcome.STUDENT
    surprise = result.solve_rate - result.p
    if abs(surprise) <= 0.5 / result.rollouts + BOUNDARY_TOLERANCE:
        return Outcome.DRAW
    return Outcome.STUDENT if surprise > 0 else Outcome.TEACHER


def rate_pairs(population: Population, results: Sequence[PairResult]) -> Population:
    """The population with the ratings after these matches.

    Matches are played in the order of (teacher slot, student slot), so the order of `results` does not
    matter. The single agent plays against itself and is not rated. Members without a result keep their
    rating.

    Raises:
        ValueError: an unknown slot, or a slot whose member does not have the role it is named for.
    """
    for result in sorted(results, key=lambda item: (item.teacher_slot, item.student_slot)):
        teacher, student = population.by_slot(result.teacher_slot), population.by_slot(result.student_slot)
        if teacher.role == student.role == "both":
            continue
        if (teacher.role, student.role) != ("teacher", "student"):
            raise ValueError(f"pair: expected (teacher, student), found {teacher.slot}, {student.slot}")
        for member in _rated(teacher, student, outcome(result)):
            population = population.with_member(member)
    return population


def _rated(teacher: Member, student: Member, result: Outcome) -> tuple[Member, Member]:
    ranks = {Outcome.TEACHER: (0, 1), Outcome.STUDENT: (1, 0), Outcome.DRAW: (0, 0)}[result]
    groups = [(ENVIRONMENT.create_rating(member.mu, member.sigma),) for member in (teacher, student)]
    (new_teacher,), (new_student,) = ENVIRONMENT.rate(groups, ranks=ranks)
    return (
        replace(teacher, mu=new_teacher.mu, sigma=new_teacher.sigma),
        replace(student, mu=new_student.mu, sigma=new_student.sigma),
    )
