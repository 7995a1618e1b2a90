"""Figures, in one style that is readable in print and for the colour-blind."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from popu.artifacts import atomic_write
from popu.report.summary import suites_of

matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
LINES = ("-", "--", ":", "-.")  # once the colours are used up
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++")
MARKERS = ("o", "s", "^", "D", "v", "P")


def summary_figure(
    dynamics: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]], scores: Mapping[str, Any], path: Path
) -> None:
    """Solve rate, uniqueness and complexity per step, runs as thin lines; held-out gain by type with intervals."""
    figure, axes = plt.subplots(1, 4, figsize=(15, 3.6), constrained_layout=True)
    panels = (
        ("solve_rate", "solve rate of valid problems"),
        ("unique_share", "distinct programs / valid"),
        ("n_nodes", "AST nodes of written programs"),
    )
    for axis, (name, title) in zip(axes, panels, strict=False):
        for arm, colour in zip(dynamics, COLOURS, strict=False):
            _lines(axis, dynamics[arm], name, arm, colour)
        axis.set(title=title, xlabel="step")
        axis.xaxis.get_major_locator().set_params(integer=True)
        if name != "n_nodes":
            axis.set_ylim(0, 1)
    axes[0].legend(frameon=False)
    _gains(axes[3], scores)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, format="png", dpi=120, metadata={"Software": None})
    plt.close(figure)


def _lines(axis: Any, runs: Sequence[Sequence[Mapping[str, Any]]], name: str, arm: str, colour: str) -> None:
    curves = [[(row["step"], row[name]) for row in rows if name in row] for rows in runs]
    for i, curve in enumerate(curves):
        if curve:
            axis.plot(*zip(*curve, strict=True), color=colour, linewidth=1.3, label=arm if i == 0 else None)


def _gains(axis: Any, scores: Mapping[str, Any]) -> None:
    suites = list(dict.fromkeys(suite for score in scores.values() for suite in suites_of(score)))
    for i, arm in enumerate(scores):
        points = [(x, scores[arm][suite]) for x, suite in enumerate(suites) if scores[arm].get(suite)]
        offset = 0.12 * (i - (len(scores) - 1) / 2)
        xs = [x + offset for x, _ in points]
        gains = [row["gain"] for _, row in points]
        errors = [
            [row["gain"] - row["gain_low"] for _, row in points],
            [row["gain_high"] - row["gain"] for _, row in points],
        ]
        style = {"color": COLOURS[i % len(COLOURS)], "fmt": MARKERS[i % len(MARKERS)]}
        axis.errorbar(xs, gains, yerr=errors, capsize=3, label=arm, **style)
    axis.axhline(0, color="0.6", linewidth=0.8)
    axis.set_xticks(range(len(suites)), suites, rotation=30)
    axis.set(title="held-out gain over the base, points")


# --- the evidence ------------------------------------------------------------------------------------------------

PANELS = (
    ("solve_rate", "solve rate of valid problems"),
    ("n_nodes", "syntax nodes of written programs"),
    ("coverage_net", "archive cells beyond the seeds"),
    ("unique_share", "distinct programs / valid"),
    ("top_share", "share of the commonest program"),
    ("duplicate_share", "duplicates / valid"),
    ("teacher_entropy", "teachers' entropy, nats a token"),
    ("student_entropy", "students' entropy, nats a token"),
)
SMOOTHED = 5  # steps of the running mean of a line


def dynamics_figure(metrics: Mapping[str, Mapping[int, Sequence[Mapping[str, Any]]]]) -> Any:
    """A panel a metric: runs as thin lines, the arm's mean over runs as a thick one, both smoothed.

    `metrics`: arm -> seed -> rows of steps.
    """
    figure, axes = plt.subplots(2, 4, figsize=(15, 6.4), constrained_layout=True, sharex=True)
    for axis, (name, title) in zip(axes.flat, PANELS, strict=True):
        for i, (arm, runs) in enumerate(metrics.items()):
            style = {"color": COLOURS[i % len(COLOURS)], "linestyle": LINES[i // len(COLOURS) % len(LINES)]}
            curves = [np.array([row.get(name, np.nan) for row in rows]) for rows in runs.values()]
            for curve in curves:
                axis.plot(np.arange(1, len(curve) + 1), _smooth(curve), linewidth=0.5, alpha=0.5, **style)
            shortest = min(map(len, curves))
            average = _mean_of([curve[:shortest] for curve in curves])
            axis.plot(np.arange(1, shortest + 1), _smooth(average), linewidth=2, label=arm, **style)
        axis.set_title(title, fontsize=10)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[1]:
        axis.set_xlabel("step")
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure


def heldout_figure(estimates: Mapping[str, Mapping[str, Any]], base: Any) -> Any:
    """Held-out accuracy by arm and group of members, with intervals; the bare base as a line.

    `estimates`: arm -> group -> Estimate or None; `base`: an Estimate or None.
    """
    groups = list(dict.fromkeys(group for values in estimates.values() for group in values))
    figure, axis = plt.subplots(figsize=(1.6 + 1.5 * len(estimates), 4), constrained_layout=True)
    for i, group in enumerate(groups):
        offset = 0.13 * (i - (len(groups) - 1) / 2)
        points = [(x + offset, v[group]) for x, v in enumerate(estimates.values()) if v.get(group) is not None]
        if points:
            values = [e.value for _, e in points]
            errors = [[e.value - (e.value if e.low is None else e.low) for _, e in points]]
            errors += [[(e.value if e.high is None else e.high) - e.value for _, e in points]]
            style: dict[str, Any] = {"color": COLOURS[i % len(COLOURS)], "fmt": MARKERS[i % len(MARKERS)]}
            axis.errorbar([x for x, _ in points], values, yerr=errors, markersize=5, capsize=2, label=group, **style)
    if base is not None:
        axis.axhline(base.value, color="0.5", linewidth=1, linestyle="--", label="bare base")
    axis.set_xticks(range(len(estimates)), list(estimates), rotation=15)
    axis.set_ylabel("held-out accuracy, %")
    axis.legend(frameon=False, fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def ratings_figure(rows: Sequence[Mapping[str, Any]], births: Sequence[Mapping[str, Any]]) -> Any:
    """Ratings (mu) of every member of one run by step, teachers and students apart; births named by operator."""
    figure, axes = plt.subplots(1, 2, figsize=(12, 3.8), constrained_layout=True, sharey=True)
    for axis, role in zip(axes, ("teacher", "student"), strict=True):
        own = [row for row in rows if row["role"] == role and row["metric"] == "mu"]
        slots = sorted({row["slot"] for row in own})
        for member in dict.fromkeys(row["member"] for row in own):
            points = [(row["step"], row["value"]) for row in own if row["member"] == member]
            colour = COLOURS[slots.index(member.split(".")[0]) % len(COLOURS)]
            axis.plot(*zip(*points, strict=True), color=colour, linewidth=1.2)
        for birth in births:
            if birth["slot"] in slots:
                colour = COLOURS[slots.index(birth["slot"]) % len(COLOURS)]
                axis.plot(birth["step"], birth["mu"], "o", color=colour, markersize=4)
                place = (birth["step"], birth["mu"])
                axis.annotate(
                    birth["operator"], place, fontsize=6, rotation=40, xytext=(2, 2), textcoords="offset points"
                )
        axis.set(title=f"{role}s", xlabel="step")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("rating mu (dots: births)")
    return figure


def specialisation_figure(table: np.ndarray, members: Sequence[str], columns: Sequence[str]) -> Any:
    """Accuracy in % of every member (rows) by type and level (columns) as a heat map with its numbers."""
    size = (2 + 0.7 * len(columns), 1.2 + 0.35 * len(members))
    figure, axis = plt.subplots(figsize=size, constrained_layout=True)
    image = axis.imshow(table, cmap="cividis", aspect="auto", vmin=0, vmax=100)
    axis.set_xticks(range(len(columns)), list(columns), rotation=30, fontsize=8)
    axis.set_yticks(range(len(members)), list(members), fontsize=8)
    for (i, j), value in np.ndenumerate(table):
        colour = "white" if value < 55 else "black"
        axis.text(j, i, f"{value:.0f}", ha="center", va="center", fontsize=7, color=colour)
    figure.colorbar(image, ax=axis, label="accuracy, %")
    return figure


def together_figure(estimates: Mapping[str, Mapping[str, Any]]) -> Any:
    """A group of bars an arm: what its students solve alone and together, with intervals.

    `estimates`: arm -> name of a bar -> Estimate or None.
    """
    names = list(dict.fromkeys(name for values in estimates.values() for name in values))
    width = 0.8 / len(names)
    figure, axis = plt.subplots(figsize=(2.5 + 1.6 * len(estimates), 4), constrained_layout=True)
    for i, name in enumerate(names):
        known = [(x, values[name]) for x, values in enumerate(estimates.values()) if values.get(name) is not None]
        places = [x + width * (i - (len(names) - 1) / 2) for x, _ in known]
        errors = [[e.value - (e.value if e.low is None else e.low) for _, e in known]]
        errors += [[(e.value if e.high is None else e.high) - e.value for _, e in known]]
        style: dict[str, Any] = {"color": COLOURS[i], "hatch": HATCHES[i], "edgecolor": "white", "ecolor": "0.2"}
        axis.bar(places, [e.value for _, e in known], 0.92 * width, yerr=errors, capsize=2, label=name, **style)
    axis.set_xticks(range(len(estimates)), list(estimates), rotation=15)
    axis.set_ylabel("held-out tasks, %")
    axis.set_ylim(0, 100)
    axis.legend(frameon=False, fontsize=8, ncols=2, loc="upper left")
    axis.spines[["top", "right"]].set_visible(False)
    return figure


WEIGHTS = (
    ("norm", "norm of the learned dW"),
    ("distance", "distance to the others of the role"),
    ("effective_rank", "effective rank of dW"),
)


def weights_figure(tables: Mapping[str, Mapping[int, Sequence[Mapping[str, Any]]]]) -> Any:
    """Weight space by checkpoint: a panel a measure and role; runs thin, the arm's mean thick.

    `tables`: arm -> seed -> rows of `weights`. The single agent is drawn in both rows of panels.
    """
    figure, axes = plt.subplots(2, 3, figsize=(12, 6.2), constrained_layout=True, sharex=True, sharey="col")
    for line, role in zip(axes, ("teacher", "student"), strict=True):
        for axis, (name, title) in zip(line, WEIGHTS, strict=True):
            for i, (arm, runs) in enumerate(tables.items()):
                style = {"color": COLOURS[i % len(COLOURS)], "linestyle": LINES[i // len(COLOURS) % len(LINES)]}
                curves = [_role_means(rows, role, name) for rows in runs.values()]
                for curve in curves:
                    axis.plot(list(curve), list(curve.values()), linewidth=0.5, alpha=0.5, **style)
                shared = [step for step in curves[0] if all(step in curve for curve in curves)] if curves else []
                average = [float(np.mean([curve[step] for curve in curves])) for step in shared]
                marker = MARKERS[i % len(MARKERS)]
                axis.plot(shared, average, linewidth=2, marker=marker, markersize=3, label=arm, **style)
            axis.set_title(f"{role}s: {title}", fontsize=10)
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[1]:
        axis.set_xlabel("step")
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure


def _role_means(rows: Sequence[Mapping[str, Any]], role: str, name: str) -> dict[int, float]:
    """Step -> the mean over the members that have the role, of those with a value."""
    values: dict[int, list[float]] = {}
    for row in rows:
        if row["role"] in (role, "both") and row[name] is not None:
            values.setdefault(row["step"], []).append(row[name])
    return {step: float(np.mean(own)) for step, own in values.items()}


def crossplay_figure(rates: Mapping[tuple[str, int, str, int], float]) -> Any:
    """Solve rates: rows are whose problems, columns who tries them, both by arm and step."""
    times = sorted({key[:2] for key in rates} | {key[2:] for key in rates})
    table = np.array([[100 * rates.get((*posing, *solving), np.nan) for solving in times] for posing in times])
    size = 2.5 + 0.5 * len(times)
    figure, axis = plt.subplots(figsize=(size + 1, size), constrained_layout=True)
    image = axis.imshow(table, cmap="cividis", vmin=0, vmax=100)
    names = [f"{arm} {step}" for arm, step in times]
    axis.set_xticks(range(len(times)), names, rotation=90, fontsize=8)
    axis.set_yticks(range(len(times)), names, fontsize=8)
    axis.set(xlabel="students of", ylabel="problems of")
    for (i, j), value in np.ndenumerate(table):
        if np.isfinite(value):
            colour = "white" if value < 55 else "black"
            axis.text(j, i, f"{value:.0f}", ha="center", va="center", fontsize=7, color=colour)
    figure.colorbar(image, ax=axis, label="solve rate, %")
    return figure


Curves = Mapping[int, tuple[Sequence[int], Sequence[float]]]


def recovery_figure(curves: Mapping[str, Curves], arity: Mapping[str, int], control: str, parent: str) -> Any:
    """A panel an operator, those of one parent above: held-out accuracy by step of retraining.

    Units are thin lines, their mean a thick one, the control's mean grey; dotted is where the parent was at the start.

    `curves`: operator -> unit -> steps and accuracies in %.
    """
    rows = [[name for name in curves if arity[name] == n] for n in sorted({arity[name] for name in curves})]
    n_columns = max(map(len, rows))
    size = (2.3 * n_columns, 2.5 * len(rows) + 0.3)
    figure, axes = plt.subplots(
        len(rows), n_columns, figsize=size, constrained_layout=True, sharex=True, sharey=True, squeeze=False
    )
    steps, reference = _mean_curve(curves[control])
    start = _mean_curve(curves[parent])[1][0]
    for line, names in zip(axes, rows, strict=True):
        for axis in line[len(names) :]:
            axis.set_visible(False)
        for axis, name in zip(line, names, strict=False):
            colour = COLOURS[arity[name] - 1]
            axis.axhline(start, color="0.3", linewidth=0.8, linestyle=":")
            if name != control:
                axis.plot(steps, reference, color="0.6", linewidth=2, linestyle="--")
            for own in curves[name].values():
                axis.plot(*own, color=colour, linewidth=0.6, alpha=0.6)
            axis.plot(*_mean_curve(curves[name]), color=colour, linewidth=2, marker="o", markersize=3)
            axis.set_title(name, fontsize=9)
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("step of retraining", fontsize=10)
    figure.supylabel("held-out accuracy, %", fontsize=10)
    return figure


def _mean_curve(curves: Curves) -> tuple[Sequence[int], np.ndarray]:
    values: np.ndarray = np.mean([values for _, values in curves.values()], axis=0)
    return next(iter(curves.values()))[0], values


def save(figure: Any, directory: Path, name: str) -> list[Path]:
    """`<name>.png` and `<name>.svg`, equal bytes for equal figures; closes the figure."""
    paths = []
    for ending, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
        path = directory / f"{name}.{ending}"
        with atomic_write(path) as temporary, plt.rc_context({"svg.hashsalt": name}):
            figure.savefig(temporary, format=ending, dpi=110, metadata=metadata)
        paths.append(path)
    plt.close(figure)
    return paths


def _smooth(curve: np.ndarray) -> np.ndarray:
    """Mean over the steps at most SMOOTHED // 2 away, of those that have a value."""
    half = SMOOTHED // 2
    windows = (curve[max(0, i - half) : i + half + 1] for i in range(len(curve)))
    return np.array([np.nan if np.isnan(w).all() else np.nanmean(w) for w in windows])


def _mean_of(curves: Sequence[np.ndarray]) -> np.ndarray:
    table = np.stack(curves)
    counts = np.isfinite(table).sum(0)
    sums: np.ndarray = np.nansum(table, axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
