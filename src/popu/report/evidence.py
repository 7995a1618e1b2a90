"""What an experiment shows: its runs by arm, scores by suite, the claims with their verdicts, and the tables of all.

Every comparison is against the single agent on equal seeds; p values of one table are adjusted by Holm's method.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from popu.errors import ArtifactError
from popu.grammar.levels import UNSEEN_LEVELS
from popu.population.member import Population
from popu.population.ratings import lower_bound
from popu.report.series import find_runs, heldout_rows, metric_rows, step_seconds
from popu.report.statistics import Estimate, Scores, difference, holm, interquartile_mean, mean, slope, verdict
from popu.report.summary import SOLVERS
from popu.report.tables import Cell, Table
from popu.rundir import RunDirectory

REFERENCE = "single"
LAST_STEPS = 20  # whose mean is "late" in a run
Row = Mapping[str, Any]
Value = Callable[[Row], float]


def _sampled(row: Row) -> float:
    return 100.0 * row["n_correct"] / row["samples"]


def _greedy(row: Row) -> float:
    return 100.0 * row["greedy_correct"]


SUITES: dict[str, tuple[Value, Callable[[Row], bool]]] = {
    "all": (_sampled, lambda row: True),
    "unmet": (_sampled, lambda row: not row["in_buffer"]),
    "unseen levels": (_sampled, lambda row: row["level"] in UNSEEN_LEVELS),
    "code_o": (_sampled, lambda row: row["problem_type"] == "code_o"),
    "code_i": (_sampled, lambda row: row["problem_type"] == "code_i"),
    "code_f": (_sampled, lambda row: row["problem_type"] == "code_f"),
    "greedy": (_greedy, lambda row: True),
}
"""Suite -> the score of a row of the held-out table in %, and whether the row counts."""


@dataclass(frozen=True)
class Arm:
    """The finished runs of one arm by seed: their metrics a step and their held-out tables."""

    name: str
    runs: Mapping[int, RunDirectory]
    metrics: Mapping[int, Sequence[Row]]
    heldout: Mapping[int, Sequence[Row]]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the criterion that decides it, and what was found."""

    letter: str
    text: str
    criterion: str
    estimate: Estimate | None
    verdict: str


def read_arms(experiment: Path) -> dict[str, Arm]:
    """The arms of an experiment by name, single agent first. Raises ArtifactError where there is no run."""
    runs = find_runs(experiment)
    if not runs:
        raise ArtifactError(f"--experiment: expected a directory with runs, found none in {experiment}")
    by_name: dict[str, dict[int, RunDirectory]] = {}
    for run in runs:
        by_name.setdefault(run.settings.arm, {})[run.settings.seed] = run
    names = sorted(by_name, key=lambda name: (name != REFERENCE, name))
    return {
        name: Arm(
            name,
            by_name[name],
            {seed: metric_rows(run) for seed, run in by_name[name].items()},
            {seed: rows for seed, run in by_name[name].items() if (rows := heldout_rows(run))},
        )
        for name in names
    }


# --- scores ------------------------------------------------------------------------------------------------------


def scores(arm: Arm, suite: str, group: str) -> Scores:
    """Seed -> the group's mean score of every held-out task, NaN where the suite leaves it out; see `group_scores`."""
    value, counts = SUITES[suite]
    found = {seed: group_scores(rows, group, value, counts) for seed, rows in arm.heldout.items()}
    return {seed: own for seed, own in found.items() if own is not None}


def group_scores(
    rows: Sequence[Row], group: str, value: Value, counts: Callable[[Row], bool] = lambda row: True
) -> np.ndarray | None:
    """The group's mean score of every task (n_tasks,) of a table with a row a member and task; None without the group.

    Groups: `base`, `students` (the single agent too), `teachers`, `all members`, and `weakest` and `best`: of the
    students, chosen on the even tasks and scored on the odd ones.
    """
    tasks = {task: i for i, task in enumerate(dict.fromkeys(row["task_id"] for row in rows))}
    members: dict[str, np.ndarray] = {}
    slots: dict[str, str] = {}
    for row in rows:
        own = members.setdefault(row["member"], np.full(len(tasks), np.nan))
        slots[row["member"]] = row["slot"]
        if counts(row):
            own[tasks[row["task_id"]]] = value(row)
    return _chosen(members, slots, group)


def _chosen(members: Mapping[str, np.ndarray], slots: Mapping[str, str], group: str) -> np.ndarray | None:
    kinds = {"base": ("",), "students": SOLVERS, "teachers": ("t",), "all members": ("t", *SOLVERS)}
    own = [scores for name, scores in members.items() if slots[name][:1] in kinds.get(group, SOLVERS)]
    if not own or (len(own) < 2 and group in ("all members", "weakest", "best")):
        return None
    table = np.stack(own)
    if group in kinds:
        mean_score: np.ndarray = table.mean(0)
        return mean_score
    development = np.nan_to_num(table[:, ::2]).sum(1)
    index = development.argmin() if group == "weakest" else development.argmax()
    scored = np.full(table.shape[1], np.nan)
    scored[1::2] = table[index, 1::2]
    return scored


GROUPS = ("base", "students", "teachers", "all members", "weakest", "best")


def main_table(arms: Mapping[str, Arm]) -> Table:
    """Arm and group by suite."""
    rows: list[list[Cell]] = []
    for arm in arms.values():
        for group in GROUPS:
            cells = [_mean(scores(arm, suite, group)) for suite in SUITES]
            if any(cells) and (group != "base" or arm.name == next(iter(arms))):
                rows.append(["bare base" if group == "base" else arm.name, "" if group == "base" else group, *cells])
    note = (
        "Held-out accuracy in %: mean (95 % interval; runs x tasks). Samples at temperature 1, but for greedy. unmet: "
        "programs that were not met in that run's training; weakest and best: chosen on half of the tasks, scored on "
        "the other half; best is selected on test data of the same suite."
    )
    return Table("main", "Held-out accuracy by arm", note, ["arm", "members", *SUITES], rows)


def _mean(values: Scores) -> Estimate | None:
    known = {seed: row for seed, row in values.items() if np.isfinite(row).any()}
    return mean(known) if known else None


def iqm_table(arms: Mapping[str, Arm]) -> Table:
    """Interquartile means of the students on all tasks."""
    rows: list[list[Cell]] = [
        [arm.name, interquartile_mean(values)] for arm in arms.values() if (values := scores(arm, "all", "students"))
    ]
    note = "Interquartile mean of the students' accuracy in % over runs and tasks, bootstrapped over runs."
    return Table("iqm", "Interquartile means", note, ["arm", "students"], rows)


def difference_table(arms: Mapping[str, Arm]) -> Table:
    """Every arm's students against the single agent's, by suite."""
    if REFERENCE not in arms:
        return Table("differences", "Differences", f"No arm {REFERENCE} to compare with.", ["arm", "suite"], [])
    rows: list[list[Cell]] = []
    for suite in SUITES:
        theirs = scores(arms[REFERENCE], suite, "students")
        found = {
            name: estimate
            for name, arm in arms.items()
            if name != REFERENCE and (estimate := difference(scores(arm, suite, "students"), theirs)) is not None
        }
        adjusted = holm({name: estimate.p for name, estimate in found.items() if estimate.p is not None})
        for name, estimate in found.items():
            p = adjusted.get(name)
            words = {"holds": "better", "does not hold": "worse", "undecided": "undecided"}
            rows.append([name, suite, estimate, None if p is None else f"{p:.3f}", words[verdict(estimate, p)]])
    note = (
        f"Students' mean minus the arm {REFERENCE} on equal seeds, in points (95 % interval; runs x tasks); p by a "
        "hierarchical bootstrap, adjusted by Holm's method over the arms of a suite. With one run: undecided."
    )
    return Table("differences", f"Against {REFERENCE}", note, ["arm", "suite", "difference", "p", "verdict"], rows)


def cost_table(arms: Mapping[str, Arm]) -> Table:
    """What a run of every arm spent, per adapter and in total."""
    rows: list[list[Cell]] = []
    for arm in arms.values():
        totals = {name: _total(arm, name) for name in ("n_proposals", "n_rollouts", "gradient_tokens")}
        n_adapters = len(next(iter(arm.runs.values())).state(0).adapters)
        steps = float(np.mean([len(metrics) for metrics in arm.metrics.values()]))
        hours = float(np.mean([_seconds(run) for run in arm.runs.values()])) / 3600
        for scope, n in (("total", 1), ("an adapter", n_adapters)):
            counts = [f"{value / n:,.0f}" for value in totals.values()]
            optimizer_steps = f"{steps * n_adapters / n:,.0f}"
            rows.append([arm.name, scope, len(arm.runs), *counts, optimizer_steps, f"{hours / n:.2f}"])
    note = "Means over runs. Gradient tokens are completion tokens of the updates; hours are inside the stages."
    columns = ["arm", "of", "runs", "proposals", "rollouts", "gradient tokens", "optimizer steps", "hours"]
    return Table("cost", "Cost of a run", note, columns, rows)


def _total(arm: Arm, metric: str) -> float:
    return float(np.mean([sum(row.get(metric, 0.0) for row in rows) for rows in arm.metrics.values()]))


def _seconds(run: RunDirectory) -> float:
    return sum(step_seconds(run, step) or 0.0 for step in range(1, (run.last_step() or 0) + 1))


def round_robin_table(arms: Mapping[str, Arm], rows: Sequence[Row]) -> Table:
    """Whether ratings rank the members as a round robin does: Spearman's correlation within a run and step.

    `rows` of crossplay. A student's skill is its share of correct attempts, a teacher's the share that fails.
    """
    found: list[list[Cell]] = []
    for arm in arms.values():
        for role in ("teacher", "student"):
            by_seed: dict[int, list[float]] = {}
            for seed, run in arm.runs.items():
                own = [r for r in rows if r["seed"] == seed and r["teacher_arm"] == r["student_arm"] == arm.name]
                for step in sorted({r["teacher_step"] for r in own}):
                    same = [r for r in own if r["teacher_step"] == r["student_step"] == step]
                    by_seed.setdefault(seed, []).append(_rank_correlation(run, step, role, same))
            known = {seed: np.array(values) for seed, values in by_seed.items() if np.isfinite(values).any()}
            if known:
                found.append([arm.name, role, mean(known)])
    note = (
        "Spearman's correlation of the rating's lower bound with the round robin, within a run and step: mean (95 % "
        "interval; runs x steps). With four members chance alone gives anything between -1 and 1 at one step."
    )
    return Table("round-robin", "Ratings against a round robin", note, ["arm", "role", "correlation"], found, digits=2)


def _rank_correlation(run: RunDirectory, step: int, role: str, rows: Sequence[Row]) -> float:
    """NaN where fewer than three members can be ranked."""
    bounds = {m.id: lower_bound(m) for m in Population.from_json(run.state(step).members).members if m.role == role}
    skills = {}
    for name in bounds:
        own = [row for row in rows if row[role] == name]
        if own:
            share = sum(row["n_correct"] for row in own) / sum(row["n_attempts"] for row in own)
            skills[name] = share if role == "student" else 1 - share
    if len(skills) < 3 or len({*skills.values()}) < 2:
        return float("nan")
    return float(pd.Series(skills).corr(pd.Series({name: bounds[name] for name in skills}), method="spearman"))


# --- claims ------------------------------------------------------------------------------------------------------


def claims(arms: Mapping[str, Arm], population: str = "4t4s") -> list[Claim]:
    """The paper's claims that these arms can decide, each with a criterion that was fixed before."""
    single, team = arms.get(REFERENCE), arms.get(population)
    found: list[Claim] = []

    def add(letter: str, text: str, criterion: str, estimate: Estimate | None) -> None:
        found.append(Claim(letter, text, criterion, estimate, verdict(estimate, estimate.p if estimate else None)))

    if single:
        add(
            "a1",
            "the single agent's solve rate rises",
            "slope over steps > 0, points a step",
            _slope(single, "solve_rate", 100),
        )
        add(
            "a2",
            "the single agent's problems become simpler",
            "slope of syntax nodes < 0",
            _slope(single, "n_nodes", -1),
        )
        add(
            "a3",
            "the single agent narrows",
            "slope of the commonest program's share > 0, points a step",
            _slope(single, "top_share", 100),
        )
    if team:
        add(
            "b",
            "the population's problems become more complex",
            "slope of syntax nodes > 0",
            _slope(team, "n_nodes", 1),
        )
        add(
            "c",
            "the population's coverage keeps growing",
            "slope of net coverage over the second half > 0",
            _slope(team, "coverage_net", 1, 0.5),
        )
    if single and team:
        add(
            "d1",
            "the population's training reward is lower",
            f"single minus {population}, students, last {LAST_STEPS} steps > 0",
            _late_difference(single, team, "student_reward"),
        )
        add(
            "d2",
            "and its held-out score higher",
            f"{population} minus single, all tasks > 0, points",
            _compare(team, single, "students"),
        )
        add(
            "e1",
            "the mean member beats the single agent",
            "all members minus single > 0, points",
            _compare(team, single, "all members"),
        )
        add(
            "e2",
            "the weakest member beats the single agent",
            "weakest student minus single > 0, points, on the tasks that did not choose it",
            _compare(team, single, "weakest"),
        )
    for letter, text, other in (
        ("f1", "several pairs beat one", "1t1s"),
        ("f2", "evolution helps", "no_evolution"),
        ("f3", "teachers that learn beat frozen ones", "frozen_teacher"),
        ("g", "joint updates beat alternating ones", "alternating"),
        ("h", "cross-evaluation beats a fixed target band", "target_band"),
        ("n", "true rewards beat random ones", "random_reward"),
    ):
        if team and other in arms:
            add(
                letter,
                text,
                f"{population} minus {other}, students, all tasks > 0, points",
                _compare(team, arms[other], "students"),
            )
    return found


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
        "else it is undecided; with one run it is always. p values are not adjusted over claims."
    )
    return Table("claims", "Claims", note, ["", "claim", "criterion (> 0)", "found", "p", "verdict"], rows, digits=3)


def _slope(arm: Arm, metric: str, scale: float, start: float = 0.0) -> Estimate | None:
    curves = {}
    for seed, rows in arm.metrics.items():
        late = [row for row in rows[int(start * len(rows)) :] if metric in row]
        if len(late) > 1:
            curves[seed] = ([row["step"] for row in late], [scale * row[metric] for row in late])
    return slope(curves) if curves else None


def _late_difference(ours: Arm, theirs: Arm, metric: str) -> Estimate | None:
    """Of the means over the last steps; every run is one task."""
    ends, their_ends = (
        {
            seed: np.array([np.mean([row[metric] for row in rows[-LAST_STEPS:] if metric in row])])
            for seed, rows in arm.metrics.items()
            if any(metric in row for row in rows[-LAST_STEPS:])
        }
        for arm in (ours, theirs)
    )
    return difference(ends, their_ends)


def _compare(ours: Arm, theirs: Arm, group: str) -> Estimate | None:
    return difference(scores(ours, "all", group), scores(theirs, "all", "students"))
