"""The paper's claims, each with the criterion that decides it, fixed before a confirming run.

A criterion is a number that is above 0 where the claim holds. Letters are those of docs/evidence.md.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from popu.report.evidence import LAST_STEPS, POPULATION, REFERENCE, Arm, scores
from popu.report.members import alone_at, children_of, shared_failures, together
from popu.report.offspring import regained_within
from popu.report.oscillation import chase, excess_variance
from popu.report.statistics import Estimate, difference, slope, verdict
from popu.report.tables import Cell, Table

REGAINED_IN = 20  # steps

Measure = Callable[..., Estimate | None]


@dataclass(frozen=True)
class Criterion:
    """`measure` takes the named arms in order; it is None where their runs do not hold what it needs."""

    letter: str
    claim: str
    number: str
    arms: tuple[str, ...]
    measure: Measure


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the criterion that decides it, and what was found."""

    letter: str
    text: str
    criterion: str
    estimate: Estimate | None
    verdict: str


def claims(arms: Mapping[str, Arm]) -> list[Claim]:
    """Every claim with its verdict; "not run" where an arm that it needs is missing."""
    return [_decide(criterion, arms) for criterion in CRITERIA]


def _decide(criterion: Criterion, arms: Mapping[str, Arm]) -> Claim:
    c = criterion
    if not all(name in arms for name in c.arms):
        return Claim(c.letter, c.claim, c.number, None, "not run")
    found = c.measure(*(arms[name] for name in c.arms))
    return Claim(c.letter, c.claim, c.number, found, verdict(found, found.p if found else None))


def claims_table(found: Sequence[Claim]) -> Table:
    rows: list[list[Cell]] = [
        [
            c.letter,
            c.text,
            c.criterion,
            c.estimate,
            None if c.estimate is None or c.estimate.p is None else f"{c.estimate.p:.3f}",
            c.verdict,
        ]
        for c in found
    ]
    note = (
        "A claim holds, or does not (the opposite holds), where p < 0.05 (bootstrap over runs, and tasks within them), "
        "else it is undecided; with one run it is always. Not run: the experiment lacks an arm. p values are not "
        "adjusted over claims."
    )
    return Table("claims", "Claims", note, ["", "claim", "criterion (> 0)", "found", "p", "verdict"], rows, digits=3)


# --- measures ----------------------------------------------------------------------------------------------------


def _slope(metric: str, scale: float, start: float = 0.0) -> Measure:
    """Of a metric over the steps after the share `start` of a run, in units of 1 / `scale` a step."""

    def measure(arm: Arm) -> Estimate | None:
        curves = {}
        for seed, rows in arm.metrics.items():
            late = [row for row in rows[int(start * len(rows)) :] if metric in row]
            if len(late) > 1:
                curves[seed] = ([row["step"] for row in late], [scale * row[metric] for row in late])
        return slope(curves) if curves else None

    return measure


def _late_difference(metric: str) -> Measure:
    """Of the means over the last steps of two arms; every run is one task."""

    def late(arm: Arm) -> dict[int, float | None]:
        ends = {
            seed: [row[metric] for row in rows[-LAST_STEPS:] if metric in row] for seed, rows in arm.metrics.items()
        }
        return {seed: float(np.mean(values)) if values else None for seed, values in ends.items()}

    return lambda ours, theirs: difference(_one_each(late(ours)), _one_each(late(theirs)))


def _heldout_difference(group: str = "students") -> Measure:
    """A group's accuracy in one arm minus the students' in another, on all tasks."""
    return lambda ours, theirs: difference(scores(ours, "all", group), scores(theirs, "all", "students"))


def _oscillation(arm: Arm) -> Estimate | None:
    found = {}
    for seed, rows in arm.metrics.items():
        known = [row for row in rows if "solve_rate" in row and "solve_rate_error" in row]
        found[seed] = excess_variance([r["solve_rate"] for r in known], [r["solve_rate_error"] for r in known])
    return _above(found)


def _chase(arm: Arm) -> Estimate | None:
    found = {}
    for seed, rows in arm.metrics.items():
        known = [row for row in rows if "solve_rate" in row and "n_nodes" in row]
        found[seed] = chase([row["solve_rate"] for row in known], [row["n_nodes"] for row in known])
    return _above(found)


def _regained(arm: Arm) -> Estimate | None:
    """The share of children that regain their first parent's level in time, minus a half, in points."""
    found = {seed: 100 * regained_within(children, REGAINED_IN) for seed, children in children_of(arm).items()}
    known = {seed: values for seed, values in found.items() if len(values)}
    return difference(known, {seed: np.full(len(values), 50.0) for seed, values in known.items()})


def _different_failures(arm: Arm) -> Estimate | None:
    """How much likelier two wrong answers to a task are of one student than of two, in points."""
    return difference(*shared_failures(arm))


def _together(team: Arm, single: Arm) -> Estimate | None:
    """One right of so many answers: of the students in equal parts, minus as many of the single agent, in points."""
    return difference(together(team), alone_at(single, team))


def _above(values: Mapping[int, float | None]) -> Estimate | None:
    """A number a run against 0."""
    known = _one_each(values)
    return difference(known, {seed: np.zeros(1) for seed in known})


def _one_each(values: Mapping[int, float | None]) -> dict[int, np.ndarray]:
    return {seed: np.array([value]) for seed, value in values.items() if value is not None}


# --- the claims --------------------------------------------------------------------------------------------------


def _versus(letter: str, claim: str, ours: str, theirs: str) -> Criterion:
    number = f"{ours} minus {theirs}, students, all tasks, points"
    return Criterion(letter, claim, number, (ours, theirs), _heldout_difference())


SINGLE, TEAM, BOTH = (REFERENCE,), (POPULATION,), (POPULATION, REFERENCE)
CRITERIA = (
    Criterion("a1", "the single agent's solve rate rises", "slope, points a step", SINGLE, _slope("solve_rate", 100)),
    Criterion("a2", "its problems become simpler", "minus the slope of syntax nodes", SINGLE, _slope("n_nodes", -1)),
    Criterion("a3", "it narrows", "slope of the commonest program's share, points", SINGLE, _slope("top_share", 100)),
    Criterion(
        "b1",
        "the population's solve rate oscillates",
        "variance about a cubic trend / of noise - 1",
        TEAM,
        _oscillation,
    ),
    Criterion(
        "b2",
        "teachers chase students",
        "correlation of solve rate with later nodes minus that of nodes with later solve rate",
        TEAM,
        _chase,
    ),
    Criterion(
        "b3", "the population's problems become more complex", "slope of syntax nodes", TEAM, _slope("n_nodes", 1)
    ),
    Criterion(
        "c", "its coverage keeps growing", "slope of net coverage, second half", TEAM, _slope("coverage_net", 1, 0.5)
    ),
    Criterion(
        "d1",
        "the population's training reward is lower",
        f"{REFERENCE} minus {POPULATION}, students, last {LAST_STEPS} steps",
        (REFERENCE, POPULATION),
        _late_difference("student_reward"),
    ),
    _versus("d2", "and its held-out score higher", POPULATION, REFERENCE),
    Criterion(
        "e1",
        "the mean member beats the single agent",
        "all members minus single, points",
        BOTH,
        _heldout_difference("all members"),
    ),
    Criterion(
        "e2",
        "the weakest member beats the single agent",
        "weakest student minus single, points, on the tasks that did not choose it",
        BOTH,
        _heldout_difference("weakest"),
    ),
    _versus("f1", "asymmetry helps: a pair beats the single agent", "1t1s", REFERENCE),
    _versus("f2", "the population sustains it: several pairs beat one", POPULATION, "1t1s"),
    _versus("f3", "evolution helps", POPULATION, "no_evolution"),
    _versus("f4", "teachers that learn beat frozen ones", POPULATION, "frozen_teacher"),
    _versus("g", "joint updates beat alternating ones", POPULATION, "alternating"),
    _versus("h", "cross-evaluation beats a fixed target band", POPULATION, "target_band"),
    Criterion(
        "i",
        f"children regain their parent's level within {REGAINED_IN} steps",
        "share that does minus a half, points",
        TEAM,
        _regained,
    ),
    Criterion(
        "j1",
        "members specialise: they fail at different tasks",
        "chance of two wrong answers of one student minus of two students, points",
        TEAM,
        _different_failures,
    ),
    Criterion(
        "j2",
        "students together solve more than the single agent",
        "one right of equally many answers, minus single, points",
        BOTH,
        _together,
    ),
    _versus("n", "true rewards beat random ones", POPULATION, "random_reward"),
)
