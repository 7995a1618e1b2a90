import pytest

from popu.rl.rewards import solve_fraction, student_reward, teacher_reward

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
