"""An experiment at a glance: held-out accuracy against the bare base with intervals, and the dynamics per step.

Writes summary.json, summary.md and summary.png beside the runs.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from popu.artifacts import atomic_write, write_json
from popu.errors import ArtifactError
from popu.report.series import find_runs, heldout_rows, metric_rows
from popu.report.statistics import mean
from popu.rundir import RunDirectory

BASE = "base"  # the name of the bare base in the held-out tables
SOLVERS = ("s", "a")  # first letters of the slots that solve: students and the single agent

Row = Mapping[str, Any]


def write_summary(experiment: Path) -> None:
    """See the module. Raises ArtifactError where there is no run."""
    runs = find_runs(experiment)
    if not runs:
        raise ArtifactError(f"--experiment: expected a directory with runs, found none in {experiment}")
    by_arm: dict[str, list[RunDirectory]] = {}
    for run in runs:
        by_arm.setdefault(run.path.parent.name, []).append(run)
    dynamics = {arm: [metric_rows(run) for run in group] for arm, group in by_arm.items()}
    heldout = {arm: [rows for run in group if (rows := heldout_rows(run))] for arm, group in by_arm.items()}
    scores = {arm: learning(groups) for arm, groups in heldout.items() if groups}
    last = {arm: [rows[-1] for rows in group if rows] for arm, group in dynamics.items()}
    write_json(experiment / "summary.json", {"heldout": scores, "last_step": last})
    with atomic_write(experiment / "summary.md") as path:
        path.write_text(markdown(scores, dynamics))
    from popu.report.figures import summary_figure

    with atomic_write(experiment / "summary.png") as path:
        summary_figure(dynamics, scores, path)


# --- learning ----------------------------------------------------------------------------------------------------


def learning(groups: Sequence[Sequence[Row]]) -> dict[str, Any]:
    """Students' mean accuracy against the bare base over runs and tasks, in points, with 95 % intervals.

    `all` counts every task, `unmet` leaves out tasks whose program was met in that run's training buffer, names and
    constants aside; `greedy` is greedy decoding. The interval is a bootstrap over runs, then over tasks within a run;
    with one run it is over tasks alone.
    """
    return {
        "n_runs": len(groups),
        "all": _compare(groups, lambda row: row["n_correct"] / row["samples"]),
        "unmet": _compare([[r for r in g if not r["in_buffer"]] for g in groups], _sampled),
        "greedy": _compare(groups, lambda row: float(row["greedy_correct"])),
        **{
            problem_type: _compare([[r for r in g if r["problem_type"] == problem_type] for g in groups], _sampled)
            for problem_type in dict.fromkeys(row["problem_type"] for group in groups for row in group)
        },
        "by_level": {
            level: _compare([[r for r in g if r["level"] == level] for g in groups], _sampled)
            for level in sorted({row["level"] for group in groups for row in group})
        },
    }


def suites_of(score: Mapping[str, Any]) -> list[str]:
    """The names of the suites in what `learning` gives: all, unmet, problem types, greedy."""
    types = [name for name in score if name not in ("n_runs", "all", "unmet", "greedy", "by_level")]
    return ["all", "unmet", *types, "greedy"]


def _sampled(row: Row) -> float:
    return float(row["n_correct"] / row["samples"])


def _compare(groups: Sequence[Sequence[Row]], value: Any) -> dict[str, Any] | None:
    pairs = [pair for group in groups if len(pair := task_pairs(group, value))]
    if not pairs:
        return None
    gains = [pair[:, 1] - pair[:, 0] for pair in pairs]
    found = mean(dict(enumerate(gains)))
    low, high = (found.value if end is None else end for end in (found.low, found.high))
    return {
        "n_tasks": sum(map(len, pairs)),
        "base": round(100 * float(np.mean([pair[:, 0].mean() for pair in pairs])), 2),
        "students": round(100 * float(np.mean([pair[:, 1].mean() for pair in pairs])), 2),
        "gain": round(100 * float(np.mean([gain.mean() for gain in gains])), 2),
        "gain_low": round(100 * low, 2),
        "gain_high": round(100 * high, 2),
        "gain_by_run": [round(100 * float(gain.mean()), 2) for gain in gains],
    }


def task_pairs(rows: Sequence[Row], value: Any) -> np.ndarray:
    """(n_tasks, 2): the base's value and the mean of the students' on every task of one run."""
    base = {row["task_id"]: value(row) for row in rows if row["member"] == BASE}
    members: dict[str, list[float]] = {task: [] for task in base}
    for row in rows:
        if row["slot"][:1] in SOLVERS:
            members[row["task_id"]].append(value(row))
    return np.array([(base[task], np.mean(members[task])) for task in sorted(base)])


# --- text --------------------------------------------------------------------------------------------------------


def markdown(scores: Mapping[str, Any], dynamics: Mapping[str, Sequence[Sequence[Row]]]) -> str:
    """The held-out table and the last steps' dynamics."""
    lines = [
        "# Summary",
        "",
        "Held-out accuracy in %, temperature 1, students' mean against the bare base.",
        "",
    ]
    lines += [
        "| arm | runs | suite | tasks | base | students | gain | 95 % interval |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for arm, score in scores.items():
        for suite in suites_of(score):
            row = score[suite]
            if row:
                interval = f"{row['gain_low']:+.1f} to {row['gain_high']:+.1f}"
                cells = (
                    arm,
                    score["n_runs"],
                    suite,
                    row["n_tasks"],
                    f"{row['base']:.1f}",
                    f"{row['students']:.1f}",
                )
                lines.append(f"| {' | '.join(map(str, cells))} | {row['gain']:+.1f} | {interval} |")
    lines += [
        "",
        "`unmet` leaves out tasks whose program, names and constants aside, was met in training.",
        "",
    ]
    lines += [
        "| arm | run | step | solve rate | valid | unique | duplicates | AST nodes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for arm, group in dynamics.items():
        for i, rows in enumerate(group):
            for row in (rows[0], rows[-1]) if rows else ():
                shares = [row.get(name) for name in ("solve_rate", "valid_share", "unique_share", "duplicate_share")]
                shown = [f"{100 * s:.0f} %" if s is not None else "-" for s in shares]
                nodes = f"{row['n_nodes']:.1f}" if "n_nodes" in row else "-"
                lines.append(f"| {arm} | {i + 1} | {row['step']} | {' | '.join(shown)} | {nodes} |")
    return "\n".join(lines) + "\n"
