import math
from dataclasses import replace

import pytest
import trueskill
from hypothesis import given, settings
from hypothesis import strategies as st

from popu.population.member import founder, founders
from popu.population.ratings import Outcome, PairResult, lower_bound, outcome, rate_pairs, win_probability

skill = st.floats(-50, 100)
spread = st.floats(0.1, 10)


def result(solve_rate, p=0.5, rollouts=8, teacher="t0", student="s0") -> PairResult:
    return PairResult(teacher, student, p, solve_rate, rollouts)


@settings(deadline=None)
@given(skill, spread, skill, spread)
def test_win_probability_against_the_formula_and_its_mirror(mu_s, sigma_s, mu_t, sigma_t):
    student, teacher = (
        replace(founder("s0"), mu=mu_s, sigma=sigma_s),
        replace(founder("t0"), mu=mu_t, sigma=sigma_t),
    )
    p = win_probability(student, teacher)
    z = (mu_s - mu_t) / math.sqrt(2 * (25 / 6) ** 2 + sigma_s**2 + sigma_t**2)
    assert p == pytest.approx((1 + math.erf(z / math.sqrt(2))) / 2, abs=1e-12)
    assert p == pytest.approx(trueskill.TrueSkill().cdf(z), abs=1e-6)
    assert p + win_probability(replace(student, mu=mu_t, sigma=sigma_t), replace(teacher, mu=mu_s, sigma=sigma_s)) == (
        pytest.approx(1)
    )


@pytest.mark.parametrize(
    ("solve_rate", "p", "rollouts", "expected"),
    [
        (0.5, 0.5, 8, Outcome.DRAW),
        (0.5625, 0.5, 8, Outcome.DRAW),
        (0.625, 0.5, 8, Outcome.STUDENT),
        (0.375, 0.5, 8, Outcome.TEACHER),
        (4 / 7, 0.5, 7, Outcome.DRAW),
        (3 / 7, 0.5, 7, Outcome.DRAW),
        (1.0, 0.97, 8, Outcome.DRAW),
        (0.0, 0.97, 8, Outcome.TEACHER),
        (1.0, 0.97, 800, Outcome.STUDENT),
        (None, 0.97, 0, Outcome.STUDENT),
    ],
)
def test_outcome(solve_rate, p, rollouts, expected):
    assert outcome(result(solve_rate, p, rollouts)) is expected


def test_ratings_are_the_packages():
    before = founders(1, 1)
    win = rate_pairs(before, [result(1.0)])
    winner, loser = trueskill.rate_1vs1(trueskill.Rating(), trueskill.Rating())
    assert (win.by_slot("s0").mu, win.by_slot("s0").sigma) == (winner.mu, winner.sigma)
    assert (win.by_slot("t0").mu, win.by_slot("t0").sigma) == (loser.mu, loser.sigma)
    # the values of Microsoft's rating calculator, as in trueskill's own tests
    assert winner.mu == pytest.approx(29.396, abs=1e-3) and winner.sigma == pytest.approx(7.171, abs=1e-3)
    lost = rate_pairs(before, [result(0.0)])
    assert lost.by_slot("t0").mu == winner.mu and lost.by_slot("s0").mu == loser.mu
    drawn, _ = trueskill.rate_1vs1(trueskill.Rating(), trueskill.Rating(), drawn=True)
    assert rate_pairs(before, [result(0.5)]).by_slot("t0").sigma == drawn.sigma
    assert rate_pairs(before, [result(None, rollouts=0)]) == win


def test_order_of_results_does_not_matter_and_absent_members_stay():
    before = founders(2, 3)
    results = [result(1.0), result(0.0, teacher="t1", student="s1"), result(0.2, teacher="t1", student="s0")]
    after = rate_pairs(before, results)
    assert after == rate_pairs(before, results[::-1])
    assert after.by_slot("s2") == before.by_slot("s2")
    assert rate_pairs(before, []) == before


def test_single_agent_is_not_rated():
    assert rate_pairs(founders(0, 0), [result(1.0, teacher="a0", student="a0")]) == founders(0, 0)


def test_errors():
    with pytest.raises(ValueError, match="found 's9'"):
        rate_pairs(founders(1, 1), [result(1.0, student="s9")])
    with pytest.raises(ValueError, match="expected \\(teacher, student\\), found s0, t0"):
        rate_pairs(founders(1, 1), [result(1.0, teacher="s0", student="t0")])
    for bad in ((1.1, 0.5, 8), (float("nan"), 0.5, 8), (0.5, 1.5, 8), (0.5, 0.5, 0)):
        with pytest.raises(ValueError, match="expected"):
            result(*bad)


def test_lower_bound():
    assert lower_bound(founder("s0")) == pytest.approx(0.0)
    assert lower_bound(replace(founder("s0"), mu=30, sigma=2)) == 24.0
