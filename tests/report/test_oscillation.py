"""Curves of which it is known whether they oscillate."""

import numpy as np
import pytest

from popu.report.oscillation import LAGS, chase, detrended, excess_variance, lagged_correlation

STEPS = np.arange(100)
WAVE = np.sin(2 * np.pi * STEPS / 20)


def test_a_cubic_trend_is_taken_out():
    x = np.linspace(-1, 1, 50)
    assert np.abs(detrended(1 + x - 2 * x**2 + 3 * x**3)).max() < 1e-9
    with pytest.raises(ValueError, match="at least 5"):
        detrended([1.0] * 4)


def test_noise_of_the_stated_size_is_no_oscillation():
    rng = np.random.default_rng(0)
    found = [excess_variance(0.5 + 0.002 * STEPS + rng.normal(0, 0.05, 100), [0.05] * 100) for _ in range(200)]
    assert np.mean(found) == pytest.approx(0.0, abs=0.03)


def test_a_wave_is_one():
    rng = np.random.default_rng(1)
    found = excess_variance(0.5 + 0.1 * WAVE + rng.normal(0, 0.05, 100), [0.05] * 100)
    assert found == pytest.approx(0.1**2 / 2 / 0.05**2, abs=0.8)
    assert excess_variance([0.5] * 100, [0.05] * 100) == pytest.approx(-1.0), "flatter than its noise"
    assert excess_variance([0.5] * 100, [0.0] * 100) is None and excess_variance([0.5] * 9, [0.1] * 9) is None


def test_the_lag_of_a_wave():
    later = np.roll(WAVE, 5)  # a quarter of a period
    assert lagged_correlation(WAVE, later, 5) > 0.95 and abs(lagged_correlation(WAVE, later, 0)) < 0.2
    assert lagged_correlation(WAVE, np.ones(100), 3) == 0.0


def test_who_chases_whom():
    assert chase(WAVE, np.roll(WAVE, 5)) > 0.8 and chase(np.roll(WAVE, 5), WAVE) < -0.8
    assert chase(WAVE, WAVE) == pytest.approx(0.0, abs=1e-9), "together is no chase"
    assert chase(WAVE[: 2 * LAGS - 1], WAVE) is None
