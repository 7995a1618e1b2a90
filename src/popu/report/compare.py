"""Two runs beside each other: settings that differ, late metrics, held-out scores."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from popu.report.evidence import LAST_STEPS, Arm, scores, suite_names
from popu.report.series import heldout_rows, metric_rows
from popu.report.statistics import difference, mean
from popu.report.tables import shown
from popu.rundir import RunDirectory

Pairs = dict[str, tuple[Any, Any]]


def compare(ours: RunDirectory, theirs: RunDirectory) -> dict[str, Any]:
    """`settings` that differ by key; `metrics`: means of the last steps; `heldout` by suite: ours, theirs, difference.

    Differences are over tasks: two runs say nothing of other seeds. Raises ArtifactError or ConfigError for no run.
    """
    runs = (ours, theirs)
    flat = [_flat(run.settings.model_dump(mode="json")) for run in runs]
    late = [_late(run) for run in runs]
    arms = [Arm("", {}, {}, {0: rows} if (rows := heldout_rows(run)) else {}) for run in runs]
    held = {}
    for suite in suite_names(arms):
        found = [scores(arm, suite, "students") for arm in arms]
        if all(found) and all(np.isfinite(values[0]).any() for values in found):
            held[suite] = (mean(found[0]), mean(found[1]), difference(found[0], found[1]))
    return {
        "settings": {
            key: (flat[0].get(key), flat[1].get(key))
            for key in dict.fromkeys((*flat[0], *flat[1]))
            if flat[0].get(key) != flat[1].get(key)
        },
        "metrics": {name: (late[0].get(name), late[1].get(name)) for name in dict.fromkeys((*late[0], *late[1]))},
        "heldout": held,
    }


def as_text(result: Mapping[str, Any]) -> str:
    """Three lists for a terminal."""
    lines = ["settings that differ"]
    lines += [f"  {key:42} {ours} | {theirs}" for key, (ours, theirs) in result["settings"].items()] or ["  none"]
    lines += [f"metrics, mean of the last {LAST_STEPS} steps"]
    lines += [f"  {key:42} {_number(ours)} | {_number(theirs)}" for key, (ours, theirs) in result["metrics"].items()]
    lines += ["held-out accuracy of the students, %: ours | theirs | difference (95 % over tasks; runs x tasks)"]
    rows = result["heldout"].items()
    lines += [f"  {suite:42} {' | '.join(map(shown, estimates))}" for suite, estimates in rows] or ["  not scored"]
    return "\n".join(lines)


def _late(run: RunDirectory) -> dict[str, float]:
    rows = metric_rows(run)[-LAST_STEPS:]
    names = dict.fromkeys(name for row in rows for name in row if name != "step")
    return {name: float(np.mean([row[name] for row in rows if name in row])) for name in names}


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    return {k: v for key, item in value.items() for k, v in _flat(item, f"{prefix}.{key}".strip(".")).items()}


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
