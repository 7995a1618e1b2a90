"""Figures, in one style that is readable in print and for the colour-blind."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
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
    suites = ("all", "unmet", "code_o", "code_i", "code_f", "greedy")
    for i, arm in enumerate(scores):
        points = [(x, scores[arm][suite]) for x, suite in enumerate(suites) if scores[arm][suite]]
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
