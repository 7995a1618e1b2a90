"""Tables and claims of small known arms: one run, a missing arm, a member replaced half way, equal scores."""

from dataclasses import replace

import numpy as np
import pytest
from rows import arm, heldout, round_robin

from popu.config import Base, Engine, Run, Training
from popu.population.member import founders
from popu.report.claims import claims
from popu.report.crossplay import round_robin_table, solve_rates
from popu.report.evidence import Arm, difference_table, iqm_table, main_table, scores
from popu.rundir import RunDirectory, State

SINGLE = arm("single", {1: heldout((0, 0, 4, 4), a0=(4, 4, 4, 4)), 2: heldout((0, 0, 4, 4), a0=(4, 4, 4, 4))})
TEAM = arm(
    "4t4s",
    {seed: heldout((0, 0, 4, 4), s0=(8, 8, 8, 8), s1=(8, 4, 8, 4), t0=(0, 0, 0, 0)) for seed in (1, 2, 3)},
)


@pytest.mark.parametrize(
    ("suite", "group", "expected"),
    [
        ("all", "base", [0, 0, 50, 50]),
        ("all", "students", [100, 75, 100, 75]),
        ("all", "teachers", [0, 0, 0, 0]),
        ("all", "all members", [200 / 3, 50, 200 / 3, 50]),
        ("unmet", "students", [np.nan, 75, 100, 75]),
        ("unseen levels", "students", [np.nan, 75, np.nan, 75]),
        ("code_i", "students", [np.nan, np.nan, 100, 75]),
        ("greedy", "students", [100, 50, 100, 50]),
    ],
)
def test_scores_of_groups_and_suites(suite, group, expected):
    np.testing.assert_allclose(scores(TEAM, suite, group)[1], expected)


def test_the_weakest_is_chosen_on_one_half_and_scored_on_the_other():
    team = arm("x", {1: heldout((0,) * 4, s0=(8, 1, 8, 1), s1=(7, 8, 7, 8))})
    np.testing.assert_allclose(scores(team, "all", "weakest")[1], [np.nan, 100, np.nan, 100])
    np.testing.assert_allclose(scores(team, "all", "best")[1], [np.nan, 12.5, np.nan, 12.5])


def test_the_main_table_names_the_bare_base_once():
    rows = main_table({"single": SINGLE, "4t4s": TEAM}).rows
    assert [tuple(row[:2]) for row in rows].count(("bare base", "")) == 1
    by_name = {(row[0], row[1]): row[2] for row in rows}
    assert by_name["4t4s", "students"].value == 87.5 and by_name["4t4s", "students"].n_runs == 3
    assert ("single", "teachers") not in by_name


def test_differences_are_on_equal_seeds_and_equal_scores_are_decided_by_them():
    rows = {(row[0], row[1]): row for row in difference_table({"single": SINGLE, "4t4s": TEAM}).rows}
    assert rows["4t4s", "all"][2].value == 37.5 and rows["4t4s", "all"][2].n_runs == 2
    assert rows["4t4s", "all"][4] == "better"
    same = {(row[0], row[1]): row for row in difference_table({"single": SINGLE, "same": SINGLE}).rows}
    assert same["same", "all"][2].value == 0 and same["same", "all"][4] == "undecided"


def test_one_run_decides_nothing():
    one = {"single": arm("single", {1: SINGLE.heldout[1]}), "4t4s": arm("4t4s", {1: TEAM.heldout[1]})}
    assert {row[4] for row in difference_table(one).rows} == {"undecided"}
    assert {claim.verdict for claim in claims(one)} == {"undecided", "not run"}


def test_populations_are_compared_with_the_main_run_too():
    table = difference_table({"single": SINGLE, "4t4s": TEAM, "same": TEAM}, "4t4s")
    assert table.name == "differences-4t4s" and {row[0] for row in table.rows} == {"same"}
    assert next(row[2].value for row in table.rows if row[1] == "all") == 0
    assert not difference_table({"single": SINGLE}, "4t4s").rows


def test_without_the_reference_there_is_no_comparison():
    table = difference_table({"4t4s": TEAM})
    assert not table.rows and "single" in table.note
    assert {claim.verdict for claim in claims({"other": TEAM})} == {"not run"}


def test_interquartile_means_have_a_row_an_arm():
    assert [row[0] for row in iqm_table({"single": SINGLE, "4t4s": TEAM}).rows] == ["single", "4t4s"]


@pytest.mark.parametrize(("order", "expected"), [((0, 1, 2), 1.0), ((2, 1, 0), -1.0)])
def test_ratings_against_a_round_robin(tmp_path, order, expected):
    run = RunDirectory(tmp_path)
    run.create(Run(arm="4t4s", seed=1, training=Training(), base=Base(path="b"), base_sha256="0" * 64, engine=Engine()))
    population = founders(3, 3)
    for rank, i in enumerate(order):
        population = population.with_member(replace(population.by_slot(f"s{i}"), mu=20.0 + rank))
    run.finish(1, "evolve", [run.write_state(1, State(population.to_json(), {}, {}))])
    rows = [round_robin(f"t{t}.g0", f"s{s}.g0", s) for t in range(3) for s in range(3)]
    table = round_robin_table({"4t4s": Arm("4t4s", {1: run}, {}, {})}, rows)
    assert [(row[1], row[2].value) for row in table.rows] == [("student", pytest.approx(expected))]


def test_cross_play_rates_are_over_members_and_seeds():
    rows = [
        round_robin("t0.g0", "s0.g0", 4),
        round_robin("t1.g0", "s0.g0", 0),
        {**round_robin("t0.g0", "s0.g0", 2), "seed": 2},
    ]
    assert solve_rates(rows) == {("4t4s", 1, "4t4s", 1): 0.5}
