import random

import pytest

from popu.config import Rewards
from popu.rl.rewards import pay_student, pay_teacher, solve_fraction, student_reward, teacher_reward

FAULTS = ["raised", "timeout", "memory", "crashed", "too_large", "unsupported_value", "denied"]


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
    assert pay_student(Rewards(), verdict, rng) == student_reward(verdict)
    assert pay_teacher(Rewards(), "ok", 0.25, True, rng) == 0.75
    assert pay_teacher(Rewards(), "raised", None, False, rng) == -1.0


def test_random_rewards_ignore_what_was_done():
    rewards, rng = Rewards(source="random"), random.Random(0)
    paid = [pay_student(rewards, verdict, rng) for verdict in ("correct", "bad_format") for _ in range(500)]
    assert {*paid} == {1.0, -0.5}
    assert abs(paid[:500].count(1.0) - paid[500:].count(1.0)) < 60
    proposed = [pay_teacher(rewards, "raised", None, False, rng) for _ in range(500)]
    assert 0.45 < sum(proposed) / 500 < 0.55 and len({*proposed}) == 500
    assert pay_student(rewards, "infrastructure", rng) is None
    assert pay_teacher(rewards, "infrastructure", None, False, rng) is None


def test_form_alone():
    rewards, rng = Rewards(source="format"), random.Random(0)
    assert [pay_student(rewards, v, rng) for v in ("correct", "wrong", "timeout", "bad_format")] == [1, 1, 1, -1]
    assert [pay_teacher(rewards, s, r, False, rng) for s, r in (("ok", 0.0), ("ok", 1.0), ("denied", None))] == [
        1,
        1,
        -1,
    ]


def test_a_target_band_includes_its_ends():
    rewards, rng = Rewards(target_band=(0.25, 0.75)), random.Random(0)
    assert [pay_teacher(rewards, "ok", rho, False, rng) for rho in (0.0, 0.25, 0.5, 0.75, 1.0)] == [0, 1, 1, 1, 0]
    assert pay_teacher(rewards, "raised", None, False, rng) == -1.0


def test_a_duplicate_may_be_paid_as_invalid():
    rewards, rng = Rewards(duplicate="invalid"), random.Random(0)
    assert [pay_teacher(rewards, "ok", 0.5, duplicate, rng) for duplicate in (True, False)] == [-1.0, 0.5]
