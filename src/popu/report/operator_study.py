"""What an operator study shows: its tables and the curves of recovery.

The unit is the run: repeats of one run are averaged, task by task, since they share their parents. In a study of one
run the repeats are the units, and the intervals say nothing of other parents. Every operator is compared with
`copy_parent_refactored`, the same model in other factors, on equal units; p values are adjusted by Holm's method.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from popu.artifacts import read_frame
from popu.errors import ArtifactError
from popu.evolution.registry import get_operator
from popu.report import figures
from popu.report.statistics import Estimate, Scores, difference, holm, mean, verdict
from popu.report.tables import Cell, Table, write_tables

CONTROL = "copy_parent_refactored"
PARENT = "copy_parent"  # the parent itself, trained as the others are
WORDS = {"holds": "better", "does not hold": "worse", "undecided": "undecided"}


@dataclass(frozen=True)
class Study:
    """Tables `study_scores` and `study_changes` of all runs and repeats, with the column `unit`, and what a unit is."""

    scores: pd.DataFrame
    changes: pd.DataFrame
    unit: str

    @property
    def operators(self) -> list[str]:
        """Of one parent first."""
        return sorted(self.changes["operator"].unique(), key=lambda name: (get_operator(name).arity, name))

    @property
    def steps(self) -> list[int]:
        """The scored ones, 0 being birth."""
        return [int(step) for step in sorted(self.changes["step"].unique())]


def write_operator_report(directory: Path) -> None:
    """operators and changes as CSV, Markdown and LaTeX, recovery as PNG and SVG. Raises ArtifactError."""
    study = read_study(directory)
    write_tables(directory, [operator_table(study), change_table(study)])
    curves = {name: curves_of(study, name) for name in study.operators}
    arity = {name: get_operator(name).arity for name in study.operators}
    figures.save(figures.recovery_figure(curves, arity, CONTROL, PARENT), directory, "recovery")


def read_study(directory: Path) -> Study:
    """All seed<k>-repeat<r>/step<n> of a study. Raises ArtifactError."""
    tables = {
        name: [
            read_frame(path, f"study_{name}")
            for path in sorted(directory.glob(f"seed*-repeat*/step*/{name}.parquet"))
            if path.with_name("changes.parquet").exists()
        ]
        for name in ("scores", "changes")
    }
    if not tables["changes"]:
        raise ArtifactError(f"{directory}: expected an operator study, found no seed<k>-repeat<r>/step<n> in it")
    return study_of(pd.concat(tables["scores"]), pd.concat(tables["changes"]))


def study_of(scores: pd.DataFrame, changes: pd.DataFrame) -> Study:
    """Steps that not every run and repeat has reached are left out."""
    sizes = changes.groupby("step")[["seed", "repeat"]].apply(lambda rows: len(rows.drop_duplicates()))
    reached = sizes.index[sizes == sizes.max()]
    unit = "seed" if changes["seed"].nunique() > 1 else "repeat"
    scores, changes = (frame[frame["step"].isin(reached)].assign(unit=frame[unit]) for frame in (scores, changes))
    accuracy = 100.0 * scores["n_correct"] / scores["samples"]
    return Study(scores.assign(accuracy=accuracy), changes, unit)


# --- measures ----------------------------------------------------------------------------------------------------


def accuracies(study: Study, operator: str, step: int) -> Scores:
    """Unit -> accuracy in % of every held-out task, over repeats."""
    own = study.scores[(study.scores["operator"] == operator) & (study.scores["step"] == step)]
    table = own.pivot_table(index="unit", columns="task_id", values="accuracy")
    return {int(unit): row.to_numpy() for unit, row in table.iterrows()}


def curves_of(study: Study, operator: str) -> dict[int, tuple[list[int], list[float]]]:
    """Unit -> scored steps and accuracies in %."""
    means = {step: accuracies(study, operator, step) for step in study.steps}
    return {unit: (study.steps, [float(means[step][unit].mean()) for step in study.steps]) for unit in means[0]}


def steps_to_regain(study: Study, operator: str) -> dict[int, float]:
    """Unit -> the first scored step at which the child is where the parent was at the start, or above; infinite where
    there is none.
    """
    start = {unit: values.mean() for unit, values in accuracies(study, PARENT, 0).items()}
    return {
        unit: next((float(s) for s, value in zip(*curve, strict=True) if value >= start[unit] - 1e-9), np.inf)
        for unit, curve in curves_of(study, operator).items()
    }


def regained(steps: Mapping[int, float], last: int) -> str:
    """`5 (0 to 10); 4 of 5`: median and range over units, and how many regained it; `> 20` where that is open."""
    values = np.sort(list(steps.values()))
    median = values[len(values) // 2]  # the upper one of two

    def shown(value: float) -> str:
        return f"> {last}" if np.isinf(value) else f"{value:.0f}"

    spread = f" ({shown(values[0])} to {shown(values[-1])})" if len(values) > 1 else ""
    return f"{shown(median)}{spread}; {int(np.isfinite(values).sum())} of {len(values)}"


def changed_verdicts(study: Study, operator: str) -> Scores:
    """Unit -> 100 for every task whose greedy verdict at birth is not the parent's, else 0; over repeats."""
    born = study.scores[study.scores["step"] == 0]
    keys = ["unit", "seed", "repeat", "task_id"]
    both = born[born["operator"] == operator].merge(born[born["operator"] == PARENT], on=keys, suffixes=("", "_parent"))
    both["differs"] = 100.0 * (both["greedy_correct"] != both["greedy_correct_parent"])
    return {int(unit): row.to_numpy() for unit, row in both.pivot_table("differs", "unit", "task_id").iterrows()}


def ratios(study: Study, operator: str, step: int, name: str) -> Scores:
    """Unit -> one of the lengths of the table, over repeats.

    `size`: of the change, in the first parent's size. `added`: distance to the nearest parent, in the distance of the
    parents. `kept`: distance to the child of `copy_parent` at that step, in the same. `solved`: % of attempts while
    training. Units whose parents are equal have no `added` and `kept`.
    """
    own = study.changes[study.changes["operator"] == operator]
    own = own if name == "solved" else own[own["step"] == step]
    apart = own["parents_apart"].where(own["parents_apart"] > 0)
    values = {
        "size": own["to_first"] / own["first_size"],
        "added": own[["to_first", "to_second"]].min(axis=1) / apart,
        "kept": own["to_copy"] / apart,
        "solved": 100.0 * own["solve_rate"],
    }[name]
    means = values.groupby(own["unit"]).mean()
    return {int(unit): np.array([value]) for unit, value in means.items() if np.isfinite(value)}


# --- tables ------------------------------------------------------------------------------------------------------


def operator_table(study: Study) -> Table:
    """A row an operator: scores, differences to the control, steps to regain."""
    last = study.steps[-1]
    ends = {name: accuracies(study, name, last) for name in study.operators}
    born = {name: accuracies(study, name, 0) for name in study.operators}
    others = [name for name in study.operators if name != CONTROL]
    against = {name: difference(ends[name], ends[CONTROL]) for name in others}
    adjusted = holm({name: e.p for name, e in against.items() if e is not None and e.p is not None})
    verdicts = {name: WORDS[verdict(against[name], adjusted.get(name))] for name in others}
    rows: list[list[Cell]] = [
        [
            name,
            get_operator(name).arity,
            mean(born[name]),
            difference(born[name], born[CONTROL]) if name in verdicts else None,
            regained(steps_to_regain(study, name), last),
            mean(ends[name]),
            against.get(name),
            f"{adjusted[name]:.3f}" if name in adjusted else None,
            verdicts.get(name, "control"),
        ]
        for name in study.operators
    ]
    return Table(
        "operators", f"Operators after {last} steps of equal retraining", _note(study, verdicts), COLUMNS, rows
    )


COLUMNS = (
    "operator",
    "parents",
    "at birth",
    "minus control at birth",
    "steps to regain",
    "at the end",
    "minus control at the end",
    "p",
    "verdict",
)


def _note(study: Study, verdicts: Mapping[str, str]) -> str:
    better = [name for name, word in verdicts.items() if word == "better"]
    rest = [name for name, word in verdicts.items() if word != "better"]
    unit = "runs" if study.unit == "seed" else "repeats of one run"
    return (
        f"Held-out accuracy in % at temperature 1: mean (95 % interval; {unit} x tasks). The control is {CONTROL}; "
        f"{PARENT} is the untouched parent, trained equally. Steps to regain: the first of the scored steps "
        f"{', '.join(map(str, study.steps))} at which the child is at least where the parent was at the start, median "
        "(range) and how many reach it. p: bootstrap of the difference at the end, adjusted by Holm's method over "
        f"{len(verdicts)} operators. Better than the control: {', '.join(better) or 'none'}. Not better: "
        f"{', '.join(rest) or 'none'}."
    )


def change_table(study: Study) -> Table:
    """A row an operator: how far a child is from its parents, in weights and in answers."""
    last = study.steps[-1]

    def cell(values: Scores) -> Estimate | None:
        return mean(values) if values else None

    rows: list[list[Cell]] = [
        [
            name,
            cell(ratios(study, name, 0, "size")),
            cell(ratios(study, name, 0, "added")),
            cell(ratios(study, name, last, "kept")),
            cell(changed_verdicts(study, name)),
            cell(ratios(study, name, last, "solved")),
        ]
        for name in study.operators
    ]
    note = (
        "Frobenius norms of dW over all modules, mean (95 % interval over units). Change: distance to the first "
        "parent, in its size. Added: distance to the nearest parent, in the parents' distance. Kept: distance to the "
        f"child of {PARENT} after the last step, in the parents' distance. Verdicts: tasks whose greedy verdict "
        "at birth is not the parent's, %. Solved: attempts while training, on the same problems for all, %."
    )
    columns = [
        "operator",
        "change",
        "added at birth",
        "kept at the end",
        "greedy verdicts changed",
        "solved in training",
    ]
    return Table("changes", "What operators change", note, columns, rows, digits=2)
