"""What students solve together, on counts whose answers are known."""

import numpy as np
import pytest
from rows import arm, heldout

from popu.report.members import specialisation_table
from popu.report.specialisation import (
    any_member,
    both_wrong,
    equal_budget,
    majority,
    pass_at,
    student_counts,
    unsolved,
)


def test_counts_are_of_students_alone():
    counts, samples = student_counts(heldout((0, 0, 4, 4), s0=(8, 1, 0, 0), s1=(0, 2, 0, 3), t0=(8, 8, 8, 8)))
    assert samples == 8 and counts.tolist() == [[8, 1, 0, 0], [0, 2, 0, 3]]
    with pytest.raises(ValueError, match="all tasks"):
        student_counts(heldout((0, 0, 4, 4), s0=(8, 1, 0, 0), s1=(1, 2))[:-1])


def test_pass_at_k():
    assert pass_at(1, np.array([0, 2, 8]), 8).tolist() == [0.0, 0.25, 1.0]
    assert pass_at(2, np.array([2]), 4)[0] == pytest.approx(1 - 1 / 6)  # one pair of six has both wrong ones
    assert pass_at(8, np.array([0, 1]), 8).tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="at most 8"):
        pass_at(9, np.array([1]), 8)


@pytest.mark.parametrize(("members", "budget"), [(1, 8), (3, 6), (4, 8), (8, 8), (9, None)])
def test_members_share_the_answers_of_one(members, budget):
    assert equal_budget(members, 8) == budget


def test_specialists_solve_together_what_none_solves_alone():
    specialists, alike = np.array([[8, 0], [0, 8]]), np.array([[8, 0], [8, 0]])
    assert any_member(specialists, 8).tolist() == [1.0, 1.0] and any_member(alike, 8).tolist() == [1.0, 0.0]
    assert any_member(np.ones((9, 2), int), 8) is None
    assert any_member(np.array([[2, 0]]), 8).tolist() == [1.0, 0.0], "of one member: pass at all its samples"


def test_members_of_one_skill_gain_nothing_by_being_many():
    """The budget is fair: four copies of one student with independent samples do as well as one with all of them."""
    rng = np.random.default_rng(0)
    chance = rng.uniform(0, 0.5, 20_000)
    team = rng.binomial(8, chance, (4, len(chance)))
    alone = pass_at(8, rng.binomial(8, chance), 8).mean()
    assert any_member(team, 8).mean() == pytest.approx(alone, abs=0.01)


def test_majority_is_more_than_half_and_unsolved_is_none():
    counts = np.array([[8, 8, 4, 0], [1, 0, 4, 0]])
    assert majority(counts, 8).tolist() == [1.0, 0.0, 0.0, 0.0]
    assert unsolved(counts).tolist() == [0.0, 0.0, 0.0, 1.0]


def test_two_wrong_answers():
    of_one, of_two = both_wrong(np.array([[4, 0, 2], [0, 0, 2]]), 4)
    assert of_one.tolist() == pytest.approx([0.5, 1.0, 1 / 6]) and of_two.tolist() == [0.0, 1.0, 0.25]
    assert both_wrong(np.array([[4, 0]]), 4) is None and both_wrong(np.array([[1], [0]]), 1) is None


def test_students_alike_share_their_failures_and_specialists_do_not():
    rng = np.random.default_rng(1)
    chance = rng.uniform(0, 0.4, 20_000)
    of_one, of_two = both_wrong(rng.binomial(8, chance, (4, len(chance))), 8)
    assert of_one.mean() == pytest.approx(of_two.mean(), abs=0.003), "however much tasks differ"
    of_one, of_two = both_wrong(rng.binomial(8, rng.permuted(np.tile(chance, (4, 1)), axis=1)), 8)
    assert of_one.mean() - of_two.mean() == pytest.approx(0.4**2 / 12, abs=0.003), "the variance of their skills"


SINGLE = arm("single", {1: heldout((0,) * 4, a0=(8, 0, 0, 0)), 2: heldout((0,) * 4, a0=(8, 0, 0, 0))})
TEAM = arm("4t4s", {seed: heldout((0,) * 4, s0=(8, 8, 0, 0), s1=(0, 0, 8, 0)) for seed in (1, 2, 3)})


def test_the_table_compares_at_equal_answers_on_equal_seeds():
    single, team = specialisation_table({"single": SINGLE, "4t4s": TEAM}).rows
    assert (team[1], team[2]) == (2, 8) and team[3].value == 37.5 and team[4].value == 75.0
    assert (team[5].value, team[5].n_runs, team[7]) == (50.0, 2, "better")
    assert team[8].value == 0.0 and team[9].value == 25.0, "half of the samples are no majority"
    assert (team[10].value, team[11].value) == (62.5, 25.0)
    assert single[3].value == single[4].value == 25.0 and single[5:8] == [None, None, None]
    assert single[10] is None, "one student has nobody to differ from"


def test_one_seed_and_a_missing_arm():
    (team,) = specialisation_table({"4t4s": arm("4t4s", {1: TEAM.heldout[1]})}).rows
    assert team[4].n_runs == 1 and team[5] is None and team[7] is None
    assert specialisation_table({"4t4s": arm("4t4s", {})}).rows == []
    one = {"single": arm("single", {1: SINGLE.heldout[1]}), "4t4s": arm("4t4s", {1: TEAM.heldout[1]})}
    assert specialisation_table(one).rows[1][7] == "undecided"


def test_equal_scores_are_equal():
    same = specialisation_table({"single": SINGLE, "same": SINGLE}).rows[1]
    assert same[5].value == 0.0 and same[7] == "undecided"
