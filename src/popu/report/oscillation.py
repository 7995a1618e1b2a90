"""Is a curve of self-play more than noise about a trend, and does one curve follow the other?"""

from collections.abc import Sequence

import numpy as np

DEGREE = 3  # of the polynomial taken as the trend
LAGS = 10  # steps
MIN_STEPS = 2 * LAGS  # a curve that is shorter says nothing


def detrended(values: Sequence[float]) -> np.ndarray:
    """(n,) what is left of (n,) equally spaced values after a least-squares cubic. Raises ValueError for under 5."""
    y = np.asarray(values, dtype=float)
    if len(y) < DEGREE + 2:
        raise ValueError(f"values: expected at least {DEGREE + 2}, found {len(y)}")
    x = np.linspace(-1.0, 1.0, len(y))
    rest: np.ndarray = y - np.polynomial.Polynomial.fit(x, y, DEGREE)(x)
    return rest


def excess_variance(values: Sequence[float], errors: Sequence[float]) -> float | None:
    """Variance about the trend over the variance that `errors` (standard errors) explain, minus 1.

    0 on average for a curve that is its trend plus noise of that size; 1 is twice the variance. None for a curve
    shorter than MIN_STEPS or errors of zero.
    """
    noise = float(np.mean(np.square(errors))) if len(errors) else 0.0
    if len(values) < MIN_STEPS or noise == 0.0:
        return None
    rest = detrended(values)
    return float((rest**2).sum() / (len(rest) - DEGREE - 1) / noise - 1.0)


def lagged_correlation(first: Sequence[float], second: Sequence[float], lag: int) -> float:
    """Correlation of `first` at a step with `second` `lag` >= 0 steps later, both detrended; 0 where one is flat."""
    x, y = detrended(first), detrended(second)
    x, y = x[: len(x) - lag], y[lag:]
    if min(x.std(), y.std()) < 1e-12:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])


def chase(first: Sequence[float], second: Sequence[float]) -> float | None:
    """How far `second` follows `first` and `first` flees `second`: over lags 1 to LAGS, the mean of the correlation of
    `first` with a later `second` minus that of `second` with a later `first`.

    From -2 to 2; 0 on average for curves that do not turn in a circle. None for curves shorter than MIN_STEPS.
    """
    if min(len(first), len(second)) < MIN_STEPS:
        return None
    forward = [lagged_correlation(first, second, lag) for lag in range(1, LAGS + 1)]
    backward = [lagged_correlation(second, first, lag) for lag in range(1, LAGS + 1)]
    return float(np.mean(forward) - np.mean(backward))
