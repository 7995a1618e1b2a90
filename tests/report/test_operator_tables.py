"""Tables and curves of small known studies: one unit, repeats, open recovery, equal scores, a run that is behind."""

import numpy as np
import pandas as pd
import pytest

from popu.errors import ArtifactError
from popu.report.figures import recovery_figure, save
from popu.report.operator_study import (
    CONTROL,
    PARENT,
    change_table,
    changed_verdicts,
    curves_of,
    operator_table,
    ratios,
    read_study,
    regained,
    steps_to_regain,
    study_of,
)

SAMPLES = 4
N_TASKS = 20


def frames(curves, seeds=(1,), repeats=(0,), wobble=0):
    """Tables of `curves`: operator -> number correct (of 4, in every task) at steps 0, 5 and 10.

    With `wobble` one more in every second task, the odd or the even ones by the seed.
    """
    scores, changes = [], []
    for seed in seeds:
        for repeat in repeats:
            for operator, counts in curves.items():
                for step, n_correct in zip((0, 5, 10), counts, strict=True):
                    key = {"seed": seed, "repeat": repeat, "operator": operator, "step": step}
                    for i in range(N_TASKS):
                        scores.append(
                            {
                                **key,
                                "task_id": f"code_o/1/{i}",
                                "samples": SAMPLES,
                                "n_correct": n_correct + (wobble and (seed + i) % 2),
                                "greedy_correct": n_correct > 1 and i > 0,
                            }
                        )
                    changes.append(
                        {
                            **key,
                            "first_size": 2.0,
                            "parents_apart": 4.0,
                            "to_first": 0.0 if operator == PARENT else 1.0 + repeat,
                            "to_second": 0.5,
                            "to_copy": 2.0,
                            "solve_rate": None if step == 0 else 0.5,
                        }
                    )
    return pd.DataFrame(scores), pd.DataFrame(changes)


CURVES = {PARENT: (2, 2, 2), CONTROL: (2, 2, 2), "full_gaussian": (1, 2, 3), "dare": (0, 1, 1)}


def row(table, operator):
    (found,) = [cells for cells in table.rows if cells[0] == operator]
    return dict(zip(table.columns, found, strict=True))


def test_operators_are_measured_against_the_control_on_equal_runs():
    table = operator_table(study_of(*frames(CURVES, seeds=range(5))))
    assert [cells[0] for cells in table.rows] == [PARENT, CONTROL, "full_gaussian", "dare"], "of one parent first"
    gaussian, dare, control = (row(table, name) for name in ("full_gaussian", "dare", CONTROL))
    assert gaussian["at birth"].value == 25 and gaussian["at the end"].value == 75
    assert gaussian["minus control at birth"].value == -25 and gaussian["minus control at the end"].value == 25
    assert (gaussian["at the end"].n_runs, gaussian["at the end"].n_tasks) == (5, N_TASKS)
    assert (gaussian["verdict"], dare["verdict"]) == ("better", "worse")
    assert float(gaussian["p"]) == pytest.approx(3 * 2 / 2001, abs=1e-3), "three operators, by Holm"
    assert (control["verdict"], control["p"], control["minus control at the end"]) == ("control", None, None)
    assert "Better than the control: full_gaussian. Not better: copy_parent, dare." in table.note


def test_equal_scores_are_undecided():
    table = operator_table(study_of(*frames(dict.fromkeys(CURVES, (2, 2, 2)), seeds=range(5))))
    found = row(table, "dare")
    assert (found["minus control at the end"].value, found["verdict"], found["p"]) == (0.0, "undecided", "1.000")
    assert "Better than the control: none." in table.note


def test_one_run_once_is_undecided_and_says_so():
    table = operator_table(study_of(*frames(CURVES)))
    found = row(table, "full_gaussian")
    assert (found["verdict"], found["p"], found["at the end"].n_runs) == ("undecided", None, 1)
    assert "repeats of one run" in table.note


def test_repeats_are_units_in_one_run_and_averaged_over_several():
    one = study_of(*frames(CURVES, seeds=(7,), repeats=range(3)))
    assert sorted(curves_of(one, "dare")) == [0, 1, 2]
    several = study_of(*frames(CURVES, seeds=(7, 8), repeats=range(3)))
    assert sorted(curves_of(several, "dare")) == [7, 8]
    assert ratios(several, "dare", 0, "size")[7] == pytest.approx([1.0]), "mean of 1, 2 and 3 over 2"
    assert row(operator_table(several), "dare")["at the end"].n_runs == 2


def test_tasks_are_paired_within_a_run():
    """Scores that differ by run and task, alike for all, leave the differences exact."""
    table = operator_table(study_of(*frames(CURVES, seeds=range(4), wobble=1)))
    found = row(table, "dare")["minus control at the end"]
    assert (found.value, found.low, found.high) == pytest.approx((-25, -25, -25))


def test_recovery_is_the_first_scored_step_at_the_parents_level():
    study = study_of(*frames(CURVES, seeds=(1, 2)))
    assert steps_to_regain(study, PARENT) == {1: 0.0, 2: 0.0}
    assert steps_to_regain(study, "full_gaussian") == {1: 5.0, 2: 5.0}
    assert steps_to_regain(study, "dare") == {1: np.inf, 2: np.inf}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([5.0], "5; 1 of 1"),
        ([0.0, 10.0, 5.0], "5 (0 to 10); 3 of 3"),
        ([0.0, np.inf, 5.0], "5 (0 to > 20); 2 of 3"),
        ([0.0, np.inf], "> 20 (0 to > 20); 1 of 2"),
        ([np.inf], "> 20; 0 of 1"),
    ],
)
def test_what_is_not_regained_is_open(steps, expected):
    assert regained(dict(enumerate(steps)), 20) == expected


def test_changes_are_ratios_of_lengths():
    study = study_of(*frames(CURVES))
    found = row(change_table(study), "dare")
    assert found["change"].value == 0.5
    assert found["added at birth"].value == pytest.approx(0.125), "the nearest parent is the second"
    assert found["kept at the end"].value == 0.5
    assert found["solved in training"].value == 50.0
    assert found["greedy verdicts changed"].value == pytest.approx(100 * (N_TASKS - 1) / N_TASKS)
    assert changed_verdicts(study, PARENT)[0].max() == 0.0


def test_equal_parents_add_nothing_that_can_be_measured():
    scores, changes = frames(CURVES)
    study = study_of(scores, changes.assign(parents_apart=0.0))
    assert row(change_table(study), "dare")["added at birth"] is None


def test_a_run_that_is_behind_holds_back_its_steps_for_all():
    scores, changes = frames(CURVES, seeds=(1, 2))
    behind = (scores["seed"] == 2) & (scores["step"] == 10), (changes["seed"] == 2) & (changes["step"] == 10)
    assert study_of(scores[~behind[0]], changes[~behind[1]]).steps == [0, 5]


def test_the_figure_has_a_panel_an_operator_and_equal_bytes(tmp_path):
    study = study_of(*frames(CURVES, seeds=(1, 2)))
    made = []
    for name in ("a", "b"):
        curves = {operator: curves_of(study, operator) for operator in CURVES}
        figure = recovery_figure(curves, {PARENT: 1, CONTROL: 1, "full_gaussian": 1, "dare": 2}, CONTROL, PARENT)
        assert [axis.get_title() for axis in figure.axes if axis.get_visible()] == list(CURVES)
        made.append([path.read_bytes() for path in save(figure, tmp_path / name, "recovery")])
    assert made[0] == made[1]


def test_a_directory_without_a_study_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match="expected an operator study"):
        read_study(tmp_path)
