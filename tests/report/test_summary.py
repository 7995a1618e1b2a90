import numpy as np
import pytest

from popu.report.summary import learning, markdown, task_pairs


def rows(gain, n=40, in_buffer=()):
    """The base solves 2 of 8 of every task, two members 2 + gain each."""
    out = []
    for task in range(n):
        for member, correct in (("base", 2), ("s0.g0", 2 + gain), ("s1.g0", 2 + gain)):
            out.append(
                {
                    "member": member,
                    "slot": member.split(".")[0] if member != "base" else "",
                    "task_id": f"code_o/1/{task}",
                    "problem_type": "code_o",
                    "level": 1,
                    "samples": 8,
                    "n_correct": correct,
                    "greedy_correct": member != "base",
                    "in_buffer": task in in_buffer,
                }
            )
    return out


def test_gain_is_students_mean_minus_base_in_points():
    score = learning([rows(2), rows(4)])
    assert (score["all"]["base"], score["all"]["students"], score["all"]["gain"]) == (25.0, 62.5, 37.5)
    assert score["all"]["gain_by_run"] == [25.0, 50.0] and score["n_runs"] == 2
    assert score["all"]["gain_low"] < 25.0 and score["all"]["gain_high"] > 50.0, "two runs leave much open"
    assert score["greedy"]["gain"] == 100.0 and "code_f" not in score


def test_tasks_met_in_training_are_left_out_of_unmet():
    score = learning([rows(1, in_buffer={0, 1, 2})])
    assert (score["all"]["n_tasks"], score["unmet"]["n_tasks"]) == (40, 37)


def test_pairs_are_base_and_mean_of_members():
    np.testing.assert_allclose(task_pairs(rows(2, 1), lambda row: row["n_correct"]), [[2, 4]])


def test_markdown_names_every_arm():
    series = [
        [
            {
                "step": 1,
                "solve_rate": 0.5,
                "valid_share": 1.0,
                "duplicate_share": 0.0,
            }
        ]
    ]
    text = markdown({"4t4s-x": learning([rows(2)])}, {"4t4s-x": series})
    assert "| 4t4s-x | 1 | all | 40 | 25.0 | 50.0 | +25.0 | +25.0 to +25.0 |" in text
    assert text.count("4t4s-x") >= 3 and "code_f" not in text.split("`unmet`")[0]


def test_an_experiment_without_runs_is_named(tmp_path):
    from popu.errors import ArtifactError
    from popu.report.summary import write_summary

    with pytest.raises(ArtifactError, match="found none"):
        write_summary(tmp_path)
