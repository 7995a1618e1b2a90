"""Figures of small tables: what they name, and equal bytes for equal values."""

import pytest

from popu.population.lineage import histories
from popu.population.member import founders
from popu.report import figures
from popu.report.statistics import Estimate
from popu.report.tree import lineage_figure


def lineage():
    row = {"step": 10, "slot": "s1", "child": "s1.g1", "parents": ["s0.g0", "s2.g0"], "operator": "layer_wise"}
    row |= {"mu": 25.0, "sigma": 8.0, "replaced": "s1.g0", "age_at_death": 10}
    row |= {"replaced_mu": 20.0, "replaced_sigma": 5.0}
    return lineage_figure(histories([row], founders(1, 3), 20), {"s0.g0": 27.0, "s1.g0": 20.0}, 20, "mu", "points")


def together():
    return figures.together_figure({"single": {"alone": Estimate(50.0, 40.0, 60.0, 2, 9), "together": None}})


def weights():
    rows = [
        {"step": step, "role": role, "norm": float(step), "effective_rank": 3.0, "distance": None}
        for step in (10, 20)
        for role in ("teacher", "student")
    ]
    return figures.weights_figure({"1t1s": {1: rows, 2: rows[:2]}, "4t4s": {1: []}})


@pytest.mark.parametrize("draw", [lineage, together, weights])
def test_equal_values_give_equal_bytes(draw, tmp_path):
    first, second = ([path.read_bytes() for path in figures.save(draw(), tmp_path / str(i), "f")] for i in range(2))
    assert first == second and first[0].startswith(b"\x89PNG")


def test_the_lineage_has_a_bar_a_member_and_a_line_a_parent():
    axis = lineage().axes[0]
    bars = sorted((bar.get_x(), bar.get_width()) for bar in axis.patches)
    assert bars == [(0, 10), (0, 20), (0, 20), (0, 20), (10, 10)], "the one that was replaced lived half as long"
    texts = [text.get_text() for text in axis.texts if text.get_text()]
    assert "layer wise" in texts and "27.0" in texts and "20.0" in texts
    assert sum(text.get_text() == "" for text in axis.texts) == 2, "an arrow from each parent"


def test_the_mean_of_weights_is_over_the_steps_that_all_runs_have():
    (mean,) = [line for line in weights().axes[0].get_lines() if line.get_label() == "1t1s"]
    assert list(mean.get_xdata()) == [10] and list(mean.get_ydata()) == [10.0]
