"""Tables of benchmarks on small known scores."""

from dataclasses import replace

import pytest

from popu.artifacts import write_table
from popu.config import Base, Engine, Run, Training
from popu.report.benchmarks import FLOOR_TASKS, ablation_table, benchmark_tables, pass_at_k, print_scores
from popu.report.evidence import Arm
from popu.report.tables import markdown
from popu.rundir import RunDirectory


def score_rows(**members):
    """A row a member, task and sample; a member's value is one text of 1 and 0 a task."""
    return [
        {
            "member": name,
            "slot": "" if name == "base" else name[:2],
            "task_id": f"t{i}",
            "sample": k,
            "prompt_path": "chat",
            "passed": mark == "1",
            "reason": "" if mark == "1" else "wrong: 3",
            "cut": i == 0,
        }
        for name, tasks in members.items()
        for i, marks in enumerate(tasks)
        for k, mark in enumerate(marks)
    ]


@pytest.fixture()
def arm(tmp_path):
    """One run of two students and a teacher, with a greedy benchmark, one at the floor, and a sampled one."""
    run = RunDirectory(tmp_path / "seed1")
    run.create(Run(arm="a", seed=1, training=Training(), base=Base(path="b"), base_sha256="0" * 64, engine=Engine()))
    (run.step(0)).mkdir()
    run.finish(0, "init", [])
    tables = {
        "easy": score_rows(base="0000", **{"s0.g0": "1110", "s1.g0": "1111", "t0.g0": "0000"}),
        "hard": score_rows(base="0000", **{"s0.g0": "0000", "s1.g0": "0001", "t0.g0": "0000"}),
        "easy-avg2": score_rows(
            base=("00", "00"), **{"s0.g0": ("10", "11"), "s1.g0": ("10", "11"), "t0.g0": ("00", "00")}
        ),
    }
    for label, rows in tables.items():
        write_table(run.path / "benchmarks" / "step00000" / label / "scores.parquet", "scores", rows)
    return Arm("a", {1: run}, {1: []}, {})


def test_every_group_has_its_mean_and_a_column_at_the_floor_says_so(arm):
    main, answers, _ = benchmark_tables({"a": arm})
    assert main.columns[2:] == ["easy", "easy-avg2 (floor)", "hard (floor)"] and FLOOR_TASKS == 3
    rows = {(row[0], row[1]): row[2:] for row in main.rows}
    assert [cell.value for cell in rows["bare base", ""]] == [0, 0, 0]
    assert [cell.value for cell in rows["a", "students"]] == [87.5, 75, 12.5]
    assert [cell.value for cell in rows["a", "teachers"]] == [0, 0, 0]
    assert rows["a", "all members"][0].value == pytest.approx(100 * 7 / 12)
    assert (rows["a", "students"][0].n_runs, rows["a", "students"][0].n_tasks) == (1, 4)
    assert answers.rows[0] == ["easy", "a", "bare base", "chat", 4, "25.0", "wrong 4"]
    assert "| a | students | 87.5 (" in markdown(main)


def test_an_arm_without_scores_has_no_row_and_no_scores_no_table(arm):
    bare = replace(arm, name="b", runs={})
    assert not [row for row in benchmark_tables({"a": arm, "b": bare})[0].rows if row[0] == "b"]
    assert benchmark_tables({"b": bare}) == []


def test_pass_at_k(arm):
    table = benchmark_tables({"a": arm})[2]
    assert table.columns == ["benchmark", "arm", "pass@1", "pass@2"]
    assert [cell.value for cell in table.rows[0][2:]] == [75, 100]


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"), [(2, 1, 1, 0.5), (4, 2, 2, 1 - 1 / 6), (5, 0, 5, 0), (5, 5, 1, 1), (3, 1, 3, 1)]
)
def test_pass_at_k_is_one_minus_the_chance_of_none(n, c, k, expected):
    assert pass_at_k(n, c, k) == pytest.approx(expected)


@pytest.mark.parametrize(("n", "c", "k"), [(5, 6, 1), (5, -1, 1), (5, 2, 0), (5, 2, 6)])
def test_pass_at_k_of_what_cannot_be_is_refused(n, c, k):
    with pytest.raises(ValueError, match="pass@k"):
        pass_at_k(n, c, k)


def test_the_lines_for_people(arm, capsys):
    print_scores(arm.runs[1].path / "benchmarks" / "step00000" / "easy" / "scores.parquet")
    assert "s0.g0: 3 of 4, 75.0 % (30.1 to 95.4), prompt chat, 1 cut" in capsys.readouterr().out


def test_suites_of_a_kind_weigh_the_same_however_many_tasks_they_have(arm):
    directory = arm.runs[1].path / "benchmarks" / "step00000"
    write_table(directory / "gsm8k-limit4" / "scores.parquet", "scores", score_rows(**{"s0.g0": "1111"}))
    write_table(directory / "aime24" / "scores.parquet", "scores", score_rows(**{"s0.g0": "00"}))
    write_table(directory / "aime24-avg2" / "scores.parquet", "scores", score_rows(**{"s0.g0": ("11", "11")}))
    write_table(directory / "mbpp_plus" / "scores.parquet", "scores", score_rows(**{"s0.g0": "1000"}))
    table = ablation_table({"a": arm})
    assert table.columns == ["arm", "code", "math", "other", "held-out", "unseen levels"]
    ((_, code, math, _, heldout, _),) = table.rows
    assert (code.value, math.value, heldout) == (25, 50, None) and math.n_tasks == 6


def test_a_run_that_lacks_a_benchmark_is_left_out_of_the_mean(arm, tmp_path):
    for seed, label in ((1, "aime24"), (2, "gsm8k")):
        run = RunDirectory(tmp_path / f"seed{seed}")
        if seed == 2:
            run.create(arm.runs[1].settings.model_copy(update={"seed": 2}))
            run.step(0).mkdir()
            run.finish(0, "init", [])
        rows = score_rows(**{"s0.g0": "1" * seed})
        write_table(run.path / "benchmarks" / "step00000" / label / "scores.parquet", "scores", rows)
    both = replace(arm, runs={1: arm.runs[1], 2: RunDirectory(tmp_path / "seed2")})
    row = dict(zip(ablation_table({"a": both}).columns, ablation_table({"a": both}).rows[0], strict=True))
    assert row["math"] is None and row["other"] is not None
