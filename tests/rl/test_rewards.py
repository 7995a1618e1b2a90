import random

import pytest

from popu.config import Rewards
from popu.problems.types import Attempt, Problem
from popu.rl.rewards import (
    Taught,
    pay_student,
    pay_teacher,
    solve_fraction,
    student_reward,
    teacher_reward,
    told_verdict,
)

FAULTS = ["raised", "timeout", "memory", "crashed", "too_large", "unsupported_value", "denied"]
PROBLEM = Problem("code_o", "def f(x):\n    return x", ("1",), ("1",))
ATTEMPT = Attempt(PROBLEM, "", False)


@pytest.mark.parametrize(
    ("verdict", "reward"),
    [
        ("correct", 1.0),
        ("wrong", -0.5),
        ("bad_format", -1.0),
        ("infrastructure", None),
        *((f, -0.5) for f in FAULTS),
    ],
)
def test_student(verdict, reward):
    assert student_reward(verdict) == reward


@pytest.mark.parametrize("status", ["bad_format", "nondeterministic", *FAULTS])
@pytest.mark.parametrize("rho", [None, 0.5])
def test_invalid_proposal(status, rho):
    assert teacher_reward(status, rho) == -1.0


@pytest.mark.parametrize(("rho", "reward"), [(0.0, 0.0), (0.125, 0.875), (0.5, 0.5), (1.0, 0.0), (None, None)])
def test_valid_proposal(rho, reward):
    assert teacher_reward("ok", rho) == reward


def test_lost_proposal_is_excluded():
    assert teacher_reward("infrastructure", None) is None


def test_solve_fraction():
    assert solve_fraction(["correct", "wrong", "bad_format", "timeout"]) == 0.25
    assert solve_fraction(["correct", "infrastructure", "infrastructure"]) == 1.0
    assert solve_fraction(["infrastructure"]) is None and solve_fraction([]) is None


def test_errors():
    for call in (lambda: student_reward("corect"), lambda: solve_fraction(["corect"])):
        with pytest.raises(ValueError, match="found 'corect'; did you mean 'correct'"):
            call()
    for call in (lambda: student_reward("ok"), lambda: teacher_reward("correct", 0.5)):
        with pytest.raises(ValueError, match="expected one of"):
            call()
    for rho in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="rho"):
            teacher_reward("ok", rho)


@pytest.mark.parametrize("verdict", ["correct", "wrong", "bad_format", "infrastructure"])
def test_by_default_the_paper_pays(verdict):
    rng = random.Random(0)
    assert pay_student(Rewards(), ATTEMPT, verdict, rng) == student_reward(verdict)
    assert pay_teacher(Rewards(), Taught(PROBLEM, "ok", 0.25, True), rng) == 0.75
    assert pay_teacher(Rewards(), Taught(PROBLEM, "raised", None, False), rng) == -1.0


def test_random_rewards_ignore_what_was_done():
    rewards, rng = Rewards(source="random"), random.Random(0)
    paid = [pay_student(rewards, ATTEMPT, verdict, rng) for verdict in ("correct", "bad_format") for _ in range(500)]
    assert {*paid} == {1.0, -0.5}
    assert abs(paid[:500].count(1.0) - paid[500:].count(1.0)) < 60
    proposed = [pay_teacher(rewards, Taught(PROBLEM, "raised", None, False), rng) for _ in range(500)]
    assert 0.45 < sum(proposed) / 500 < 0.55 and len({*proposed}) == 500
    assert pay_student(rewards, ATTEMPT, "infrastructure", rng) is None
    assert pay_teacher(rewards, Taught(PROBLEM, "infrastructure", None, False), rng) is None


def test_form_alone():
    rewards, rng = Rewards(source="format"), random.Random(0)
    verdicts = ("correct", "wrong", "timeout", "bad_format")
    assert [pay_student(rewards, ATTEMPT, verdict, rng) for verdict in verdicts] == [1, 1, 1, -1]
    proposals = [Taught(PROBLEM, status, rho, False) for status, rho in (("ok", 0.0), ("ok", 1.0), ("denied", None))]
    assert [pay_teacher(rewards, taught, rng) for taught in proposals] == [1, 1, -1]


def test_a_target_band_includes_its_ends():
    rewards, rng = Rewards(target_band=(0.25, 0.75)), random.Random(0)
    proposals = [Taught(PROBLEM, "ok", rho, False) for rho in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert [pay_teacher(rewards, taught, rng) for taught in proposals] == [0, 1, 1, 1, 0]
    assert pay_teacher(rewards, Taught(PROBLEM, "raised", None, False), rng) == -1.0


def test_a_duplicate_may_be_paid_as_invalid():
    rewards, rng = Rewards(duplicate="invalid"), random.Random(0)
    proposals = [Taught(PROBLEM, "ok", 0.5, is_duplicate) for is_duplicate in (True, False)]
    assert [pay_teacher(rewards, taught, rng) for taught in proposals] == [-1.0, 0.5]


def told(share, verdict, n=4000, seed=1):
    return [told_verdict(seed, share, "00001-q0000.0", attempt, verdict) for attempt in range(n)]


@pytest.mark.parametrize("share", [0.01, 0.05, 0.2])
def test_an_erring_verifier_errs_in_its_share(share):
    for verdict, other in (("correct", "wrong"), ("wrong", "correct"), ("timeout", "correct")):
        found = told(share, verdict)
        assert {*found} == {verdict, other}
        assert found.count(other) / len(found) == pytest.approx(
            share, abs=3 * (share * (1 - share) / len(found)) ** 0.5
        )


def test_what_has_no_form_or_was_lost_is_told_as_it_is():
    assert {*told(0.5, "bad_format")} == {"bad_format"} and {*told(0.5, "infrastructure")} == {"infrastructure"}
    assert {*told(0.0, "correct")} == {"correct"}


def test_a_smaller_share_errs_in_some_of_the_same_places():
    small, large = told(0.05, "correct"), told(0.2, "correct")
    assert all(b == "wrong" for a, b in zip(small, large, strict=True) if a == "wrong")
    assert told(0.2, "correct", seed=2) != large == told(0.2, "correct")
