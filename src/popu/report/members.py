"""What the members of an arm are to each other: specialists, parents, children. Tables over runs."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from popu.report.evidence import REFERENCE, Arm
from popu.report.offspring import Childhood, childhoods, levels, median_steps, regained_within
from popu.report.specialisation import (
    any_member,
    both_wrong,
    equal_budget,
    majority,
    pass_at,
    student_counts,
    unsolved,
)
from popu.report.statistics import Estimate, Scores, difference, holm, mean, verdict
from popu.report.tables import Cell, Table

LIMITS = (10, 20)  # steps within which a level may be regained

# --- specialisation ----------------------------------------------------------------------------------------------


def _by_seed(arm: Arm, measure: Callable[[np.ndarray, int], np.ndarray | None]) -> Scores:
    """Seed -> a measure of the students' correct samples on every task, in %."""
    found = {seed: measure(*student_counts(rows)) for seed, rows in arm.heldout.items()}
    return {seed: 100.0 * values for seed, values in found.items() if values is not None}


def together(arm: Arm) -> Scores:
    """The chance of one right answer among `equal_budget` answers, equally many of every student."""
    return _by_seed(arm, any_member)


def alone(arm: Arm) -> Scores:
    """The chance of one right answer among as many of one student, mean over students."""

    def measure(counts: np.ndarray, samples: int) -> np.ndarray | None:
        budget = equal_budget(len(counts), samples)
        return None if budget is None else pass_at(budget, counts, samples).mean(0)

    return _by_seed(arm, measure)


def alone_at(single: Arm, team: Arm) -> Scores:
    """The single agent's chance of one right among as many answers as `together(team)` counts, on equal seeds."""
    found = {}
    for seed in team.heldout.keys() & single.heldout.keys():
        counts, samples = student_counts(team.heldout[seed])
        own, own_samples = student_counts(single.heldout[seed])
        budget = equal_budget(len(counts), samples)
        if budget is not None and budget <= own_samples:
            found[seed] = 100.0 * pass_at(budget, own, own_samples).mean(0)
    return found


def shared_failures(arm: Arm) -> tuple[Scores, Scores]:
    """Chances of two wrong answers (`both_wrong`) in %: of one student, of two."""

    def part(i: int) -> Callable[[np.ndarray, int], np.ndarray | None]:
        return lambda counts, samples: None if (found := both_wrong(counts, samples)) is None else found[i]

    return _by_seed(arm, part(0)), _by_seed(arm, part(1))


def specialisation_table(arms: Mapping[str, Arm]) -> Table:
    """What students solve alone and together, against the single agent at equally many answers."""
    scored = {name: arm for name, arm in arms.items() if arm.heldout}
    gaps = {
        name: gap
        for name, arm in scored.items()
        if REFERENCE in scored
        and name != REFERENCE
        and (gap := difference(together(arm), alone_at(scored[REFERENCE], arm))) is not None
    }
    adjusted = holm({name: gap.p for name, gap in gaps.items() if gap.p is not None})
    words = {"holds": "better", "does not hold": "worse", "undecided": "undecided"}
    rows: list[list[Cell]] = []
    for name, arm in scored.items():
        counts, samples = student_counts(next(iter(arm.heldout.values())))
        of_one, of_two = shared_failures(arm)
        gap, p = gaps.get(name), adjusted.get(name)
        cells: list[Cell] = [_mean(alone(arm)), _mean(together(arm)), gap, None if p is None else f"{p:.3f}"]
        cells += [words[verdict(gap, p)] if gap else None]
        cells += [_mean(_by_seed(arm, majority)), _mean(_by_seed(arm, lambda counts, _: unsolved(counts)))]
        rows.append([name, len(counts), equal_budget(len(counts), samples), *cells, _mean(of_one), _mean(of_two)])
    note = (
        "Held-out tasks in % (95 % interval; runs x tasks). Alone, together: the chance that one of so many answers at "
        "temperature 1 is right, all of one student or equally many of each; the difference is to as many answers of "
        f"{REFERENCE} on equal seeds, p adjusted by Holm's method over arms. Majority: more than half of all students' "
        "samples are right; none solves: no sample of any student is (more students have more samples). Two wrong: the "
        "chance that two answers to a task are both wrong, two of one student or one of each of two; students that are "
        "alike on every task have equal chances, those that fail at different tasks a smaller second one."
    )
    columns = ["arm", "students", "answers", "alone", "together", f"together - {REFERENCE}", "p", "verdict"]
    columns += ["majority", "none solves", "two wrong, of one", "of two"]
    return Table("specialisation", "Specialisation", note, columns, rows)


def together_estimates(arm: Arm) -> dict[str, Estimate | None]:
    """Name of a bar -> its value in %."""
    measures = {
        "one of equally many answers, of one student": alone(arm),
        "of all students": together(arm),
        "majority": _by_seed(arm, majority),
        "none solves": _by_seed(arm, lambda counts, _: unsolved(counts)),
    }
    return {name: mean(values) if values else None for name, values in measures.items()}


def _mean(values: Scores) -> Cell:
    return mean(values) if values else None


# --- children ----------------------------------------------------------------------------------------------------


def children_of(arm: Arm) -> dict[int, list[Childhood]]:
    """Seed -> the children of a run against their first parents."""
    return {seed: childhoods(births, levels(arm.members.get(seed, []))) for seed, births in arm.births.items()}


def children_table(arms: Mapping[str, Arm]) -> Table:
    """Children against their first parents by arm, role and operator."""
    rows: list[list[Cell]] = []
    for arm in arms.values():
        families = children_of(arm)
        for role in ("teacher", "student"):
            own = {seed: [c for c in found if c.role == role] for seed, found in families.items()}
            operators = Counter(child.operator for found in own.values() for child in found)
            if operators:
                rows.append([arm.name, role, "all", *_childhood_cells(own)])
            for operator in sorted(operators):
                made = {seed: [c for c in found if c.operator == operator] for seed, found in own.items()}
                rows.append([arm.name, role, operator, *_childhood_cells(made)])
    note = (
        "Level: a student's solve rate, a teacher's reward, in points, against whomever it met. First gap: child minus "
        "first parent over the 5 steps after birth, in the same steps. Regained: the child's running mean of 5 steps "
        "is no lower than its parent's; a child as good as its parent passes by chance at the first look about every "
        "second time. Median steps by Kaplan and Meier: children count as long as both lived; - where fewer than half "
        "regain it. In brackets 95 % interval; runs x children."
    )
    columns = ["arm", "role", "operator", "births", "first gap", *(f"in {n} steps, %" for n in LIMITS), "median steps"]
    return Table("children", "Children against their parents", note, columns, rows)


def _childhood_cells(families: Mapping[int, Sequence[Childhood]]) -> list[Cell]:
    """Births, first gap, shares regained, median steps."""
    everyone = [child for found in families.values() for child in found]
    gaps = {seed: np.array([100 * c.gap for c in found if c.gap is not None]) for seed, found in families.items()}
    cells: list[Cell] = [len(everyone), _mean({seed: values for seed, values in gaps.items() if len(values)})]
    for limit in LIMITS:
        shares = {seed: 100 * regained_within(found, limit) for seed, found in families.items()}
        cells.append(_mean({seed: values for seed, values in shares.items() if len(values)}))
    return [*cells, median_steps(everyone)]
