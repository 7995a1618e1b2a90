"""What an experiment shows: its runs by arm, their scores by suite, and the tables of both.

Every comparison is against the single agent on equal seeds; p values of one table are adjusted by Holm's method.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from popu.errors import ArtifactError
from popu.grammar.levels import UNSEEN_LEVELS
from popu.report.lineage import births
from popu.report.series import dynamics_rows, find_runs, heldout_rows, metric_rows, step_seconds
from popu.report.statistics import Estimate, Scores, difference, holm, interquartile_mean, mean, verdict
from popu.report.summary import SOLVERS
from popu.report.tables import Cell, Table
from popu.rundir import RunDirectory

REFERENCE = "single"
POPULATION = "4t4s"  # the main run, of which the other populations are ablations
LAST_STEPS = 20  # whose mean is "late" in a run
Row = Mapping[str, Any]
Value = Callable[[Row], float]


def _sampled(row: Row) -> float:
    return 100.0 * row["n_correct"] / row["samples"]


def _greedy(row: Row) -> float:
    return 100.0 * row["greedy_correct"]


_SUITES: dict[str, tuple[Value, Callable[[Row], bool]]] = {
    "all": (_sampled, lambda row: True),
    "unmet": (_sampled, lambda row: not row["in_buffer"]),
    "unseen levels": (_sampled, lambda row: row["level"] in UNSEEN_LEVELS),
    "greedy": (_greedy, lambda row: True),
}


def suite(name: str) -> tuple[Value, Callable[[Row], bool]]:
    """The score of a row of the held-out table in %, and whether the row counts; a problem type is a suite too."""
    return _SUITES.get(name, (_sampled, lambda row: row["problem_type"] == name))


@dataclass(frozen=True)
class Arm:
    """The finished runs of one arm by seed, and their tables: steps, held-out, births, dynamics."""

    name: str
    runs: Mapping[int, RunDirectory]
    metrics: Mapping[int, Sequence[Row]]
    heldout: Mapping[int, Sequence[Row]]
    births: Mapping[int, Sequence[Row]] = field(default_factory=dict)
    members: Mapping[int, Sequence[Row]] = field(default_factory=dict)
    pairs: Mapping[int, Sequence[Row]] = field(default_factory=dict)
    weights: Mapping[int, Sequence[Row]] = field(default_factory=dict)

    def evolved_every(self, seed: int) -> int:
        """Steps between evolutions; 0 where there is none."""
        return self.runs[seed].settings.training.evolution.every


def read_arms(experiment: Path) -> dict[str, Arm]:
    """The arms of an experiment by name, single agent first. Raises ArtifactError where there is no run."""
    runs = find_runs(experiment)
    if not runs:
        raise ArtifactError(f"--experiment: expected a directory with runs, found none in {experiment}")
    by_name: dict[str, dict[int, RunDirectory]] = {}
    for run in runs:
        by_name.setdefault(run.settings.arm, {})[run.settings.seed] = run
    names = sorted(by_name, key=lambda name: (name != REFERENCE, name))
    return {name: _read_arm(name, by_name[name]) for name in names}


def _read_arm(name: str, runs: Mapping[int, RunDirectory]) -> Arm:
    return Arm(
        name,
        runs,
        metrics={seed: metric_rows(run) for seed, run in runs.items()},
        heldout={seed: rows for seed, run in runs.items() if (rows := heldout_rows(run))},
        births={seed: births(run, run.last_step() or 0) for seed, run in runs.items()},
        members={seed: dynamics_rows(run, "member_dynamics") for seed, run in runs.items()},
        pairs={seed: dynamics_rows(run, "pairs") for seed, run in runs.items()},
        weights={seed: dynamics_rows(run, "weights") for seed, run in runs.items()},
    )


# --- scores ------------------------------------------------------------------------------------------------------


def suite_names(arms: Iterable[Arm]) -> list[str]:
    """The suites of these arms: the general ones and, before the last, their problem types."""
    rows = (row for arm in arms for group in arm.heldout.values() for row in group)
    *general, last = _SUITES
    return [*general, *dict.fromkeys(row["problem_type"] for row in rows), last]


def scores(arm: Arm, name: str, group: str) -> Scores:
    """Seed -> the group's mean score of every held-out task, NaN where the suite leaves it out; see `group_scores`."""
    value, counts = suite(name)
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
    names = suite_names(arms.values())
    for arm in arms.values():
        for group in GROUPS:
            cells = [_mean(scores(arm, name, group)) for name in names]
            if any(cells) and (group != "base" or arm.name == next(iter(arms))):
                rows.append(["bare base" if group == "base" else arm.name, "" if group == "base" else group, *cells])
    note = (
        "Held-out accuracy in %: mean (95 % interval; runs x tasks). Samples at temperature 1, but for greedy. unmet: "
        "programs that were not met in that run's training; weakest and best: chosen on half of the tasks, scored on "
        "the other half; best is selected on test data of the same suite."
    )
    return Table("main", "Held-out accuracy by arm", note, ["arm", "members", *names], rows)


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


def difference_table(arms: Mapping[str, Arm], reference: str = REFERENCE) -> Table:
    """Students of every arm against those of one, by suite; the single agent is compared in its own table alone."""
    name = "differences" if reference == REFERENCE else f"differences-{reference}"
    if reference not in arms:
        return Table(name, f"Against {reference}", f"No arm {reference} to compare with.", ["arm", "suite"], [])
    rows: list[list[Cell]] = []
    for of in suite_names(arms.values()):
        theirs = scores(arms[reference], of, "students")
        found = {
            other: estimate
            for other, arm in arms.items()
            if other not in (reference, REFERENCE)
            and (estimate := difference(scores(arm, of, "students"), theirs)) is not None
        }
        adjusted = holm({name: estimate.p for name, estimate in found.items() if estimate.p is not None})
        for other, estimate in found.items():
            p = adjusted.get(other)
            words = {"holds": "better", "does not hold": "worse", "undecided": "undecided"}
            rows.append([other, of, estimate, None if p is None else f"{p:.3f}", words[verdict(estimate, p)]])
    note = (
        f"Students' mean minus the arm {reference} on equal seeds, in points (95 % interval; runs x tasks); p by a "
        "hierarchical bootstrap, adjusted by Holm's method over the arms of a suite. With one run: undecided."
    )
    return Table(name, f"Against {reference}", note, ["arm", "suite", "difference", "p", "verdict"], rows)


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
