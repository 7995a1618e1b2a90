"""Two runs, or two arms, beside each other: settings that differ, late metrics, held-out scores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from popu.errors import ConfigError
from popu.report.evidence import LAST_STEPS, Arm, scores, suite_names
from popu.report.series import heldout_rows, metric_rows
from popu.report.statistics import difference, mean
from popu.report.tables import shown
from popu.rundir import SETTINGS, RunDirectory

Runs = Mapping[int, RunDirectory]


def compare(ours: Path, theirs: Path) -> dict[str, Any]:
    """`settings` that differ by key; `metrics`: means of the last steps; `heldout` by suite: ours, theirs, difference.

    Both are a run's seed directory, or both an arm's directory of runs. Arms are compared on the seeds that both have.
    Two runs of one seed each say nothing of other seeds: their intervals are over tasks alone. Raises ConfigError where
    one is a run and the other an arm, or no seed is in both, ArtifactError or ConfigError for no run.
    """
    sides = _sides(ours, theirs)
    flat = [_flat(_settings(runs)) for runs in sides]
    late = [_late(runs) for runs in sides]
    arms = [Arm("", {}, {}, {k: rows for k, run in runs.items() if (rows := heldout_rows(run))}) for runs in sides]
    held = {}
    for suite in suite_names(arms):
        found = [scores(arm, suite, "students") for arm in arms]
        known = [{k: values for k, values in side.items() if np.isfinite(values).any()} for side in found]
        if all(known):
            held[suite] = (mean(known[0]), mean(known[1]), difference(known[0], known[1]))
    return {
        "settings": {
            key: (flat[0].get(key), flat[1].get(key))
            for key in dict.fromkeys((*flat[0], *flat[1]))
            if flat[0].get(key) != flat[1].get(key)
        },
        "metrics": {name: (late[0].get(name), late[1].get(name)) for name in dict.fromkeys((*late[0], *late[1]))},
        "heldout": held,
    }


def _sides(ours: Path, theirs: Path) -> tuple[Runs, Runs]:
    """Both sides' runs by seed; two runs are one pair, whatever their seeds."""
    found = [_runs_of_arm(path) for path in (ours, theirs)]
    if not found[0] and not found[1]:
        return {0: RunDirectory(ours)}, {0: RunDirectory(theirs)}
    if not found[0] or not found[1]:
        raise ConfigError(f"popu compare: expected two runs or two arms, found one of each: {ours}, {theirs}")
    both = sorted(set(found[0]) & set(found[1]))
    if not both:
        raise ConfigError(f"popu compare: expected arms with a seed in common, found none in {ours} and {theirs}")
    return {k: found[0][k] for k in both}, {k: found[1][k] for k in both}


def _runs_of_arm(path: Path) -> dict[int, RunDirectory]:
    """The runs of an arm's directory by seed; none where it is no such directory."""
    runs = [RunDirectory(file.parent) for file in path.glob(f"seed*/{SETTINGS}")]
    return {run.settings.seed: run for run in runs}


def _settings(runs: Runs) -> dict[str, Any]:
    """Those of the first run; of an arm, without the seed."""
    settings = next(iter(runs.values())).settings.model_dump(mode="json")
    return settings if len(runs) == 1 else {key: value for key, value in settings.items() if key != "seed"}


def as_text(result: Mapping[str, Any]) -> str:
    """Three lists for a terminal."""
    lines = ["settings that differ"]
    lines += [f"  {key:42} {ours} | {theirs}" for key, (ours, theirs) in result["settings"].items()] or ["  none"]
    lines += [f"metrics, mean of the last {LAST_STEPS} steps"]
    lines += [f"  {key:42} {_number(ours)} | {_number(theirs)}" for key, (ours, theirs) in result["metrics"].items()]
    lines += ["held-out accuracy of the students, %: ours | theirs | difference (95 %; runs x tasks)"]
    rows = result["heldout"].items()
    lines += [f"  {suite:42} {' | '.join(map(shown, estimates))}" for suite, estimates in rows] or ["  not scored"]
    return "\n".join(lines)


def _late(runs: Runs) -> dict[str, float]:
    """Means over the last steps of every run, then over runs."""
    rows = [metric_rows(run)[-LAST_STEPS:] for run in runs.values()]
    names = dict.fromkeys(name for own in rows for row in own for name in row if name != "step")
    means = {name: [np.mean(known) for own in rows if (known := [r[name] for r in own if name in r])] for name in names}
    return {name: float(np.mean(values)) for name, values in means.items()}


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    return {k: v for key, item in value.items() for k, v in _flat(item, f"{prefix}.{key}".strip(".")).items()}


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
