"""The lineage of a run drawn over its steps: a lane a slot, a bar a member, a line from every parent to its child."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.colors import Normalize

BAR = 0.34  # height of a member's bar, in lanes
MAP = "cividis"  # dark is low; ordered in grey too


def lineage_figure(
    members: Sequence[Mapping[str, Any]], scores: Mapping[str, float], last: int, measure: str, unit: str
) -> Any:
    """Members as bars from birth to death, births named by operator, solid lines from first and dashed from second
    parents.

    Args:
        members: rows of `population.lineage.histories`.
        scores: member -> the number that colours its bar; grey without one.
        last: the step that the living have reached.
        measure, unit: what the number is.
    """
    slots = sorted({row["slot"] for row in members}, key=lambda slot: ("ts".find(slot[0]), int(slot[1:])))
    lanes = {slot: i for i, slot in enumerate(slots)}
    place = {row["member"]: lanes[row["slot"]] for row in members}
    figure, axis = plt.subplots(figsize=(13, 1.4 + 0.62 * len(slots)), constrained_layout=True)
    known = list(scores.values()) or [0.0]
    norm = Normalize(min(known), max(known) if max(known) > min(known) else min(known) + 1)
    colours = plt.get_cmap(MAP)
    for row in members:
        end = last if row["died_step"] is None else row["died_step"]
        score = scores.get(row["member"])
        left, lane = row["born_step"], lanes[row["slot"]]
        colour = "0.85" if score is None else colours(norm(score))
        axis.barh(lane, end - left, BAR, left, color=colour, edgecolor="white", linewidth=1)
        if score is not None and end - left >= last / 25:
            ink = "white" if norm(score) < 0.55 else "black"
            axis.text(left + last / 100, lane, f"{score:.1f}", va="center", fontsize=7, color=ink, zorder=4)
        for parent, style in zip(row["parents"], ("-", (0, (3, 2))), strict=False):
            _link(axis, row["born_step"], place[parent], lane, style)
        if row["operator"]:
            axis.plot(left, lane, "o", color="black", markersize=3.5, zorder=3, clip_on=False)
            axis.text(left + last / 250, lane - BAR / 2 - 0.03, row["operator"].replace("_", " "), fontsize=6.5)
    _finish(figure, axis, slots, last)
    image = plt.cm.ScalarMappable(norm, MAP)
    figure.colorbar(image, ax=axis, label=f"{measure}, {unit}", fraction=0.02, pad=0.01)
    return figure


def _link(axis: Any, step: int, parent: int, child: int, style: Any) -> None:
    """From the parent's lane to the child's, both at the birth, bent a little back so that links of one step differ."""
    axis.plot(
        step,
        parent,
        "o",
        color="white",
        markeredgecolor="0.35",
        markersize=3.5,
        markeredgewidth=0.8,
        zorder=3,
        clip_on=False,
    )
    arrow = {"arrowstyle": "-", "color": "0.35", "linewidth": 0.9, "linestyle": style, "shrinkA": 0, "shrinkB": 0}
    arrow |= {"connectionstyle": f"arc3,rad={0.12 if child > parent else -0.12}"}
    axis.annotate("", xy=(step, child), xytext=(step, parent), arrowprops=arrow)


def _finish(figure: Any, axis: Any, slots: Sequence[str], last: int) -> None:
    axis.set_yticks(range(len(slots)), slots)
    axis.set_ylim(len(slots) - 0.4, -0.75)
    axis.set_xlim(0, last)
    axis.set_xlabel("step")
    n_teachers = sum(slot.startswith("t") for slot in slots)
    if 0 < n_teachers < len(slots):
        axis.axhline(n_teachers - 0.5, color="0.7", linewidth=0.8)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0)
