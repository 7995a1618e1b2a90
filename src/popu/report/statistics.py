"""Estimates with 95 % intervals: the run is the unit, tasks are nested in it.

Bootstraps resample runs, then tasks within each (hierarchical). Arms are compared on the seeds that both have, since
equal seeds share their random numbers, with the same seeds and tasks drawn for both. Resampling a handful of runs gives
intervals that are too narrow (nominal 95 % of three runs covered 79 % in a simulation), so the draws of runs are spread
about their mean as a t interval of so many runs would be ("expanded", Hesterberg 2015). With one run the interval is
over tasks alone and says nothing about other seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

N_BOOTSTRAP = 2000
LEVEL = 0.05

Verdict = Literal["holds", "does not hold", "undecided", "not run"]
Scores = Mapping[int, np.ndarray]
"""Seed -> a score of every task (n_tasks,), tasks in the same order for every seed; NaN where one is left out."""


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; None as interval where nothing varies that could be resampled."""

    value: float
    low: float | None
    high: float | None
    n_runs: int
    n_tasks: int
    p: float | None = None  # two-sided, against 0; of differences and slopes over at least two runs


def mean(scores: Scores, seed: int = 0) -> Estimate:
    """The mean over runs of their means over tasks. Raises ValueError without a run or a task."""
    table = _table(scores)
    if _sizes(table) == (1, 1):
        return Estimate(float(table[0, np.isfinite(table[0])][0]), None, None, 1, 1)
    draws = _draws(table, seed)
    return Estimate(float(_run_means(table).mean()), *_interval(draws), *_sizes(table))


def difference(ours: Scores, theirs: Scores, seed: int = 0) -> Estimate | None:
    """Ours minus theirs on the seeds that both have; None where there is none with a task in both."""
    both = {k: ours[k] - theirs[k] for k in ours if k in theirs}
    known = {k: values for k, values in both.items() if np.isfinite(values).any()}
    if not known:
        return None
    table = _table(known)
    if len(table) < 2:
        return mean(known, seed)
    draws = _draws(table, seed)
    low, high = _interval(draws)
    return Estimate(float(_run_means(table).mean()), low, high, *_sizes(table), _two_sided(draws))


def interquartile_mean(scores: Scores, seed: int = 0) -> Estimate:
    """The mean of the middle half of all runs' tasks (Agarwal et al. 2021, by rliable), bootstrapped over runs."""
    from rliable.metrics import aggregate_iqm

    table = _table(scores)
    if len(table) < 2:
        return Estimate(float(aggregate_iqm(table)), None, None, *table.shape)
    rng = np.random.default_rng(seed)
    draws = [aggregate_iqm(table[rng.integers(len(table), size=len(table))]) for _ in range(N_BOOTSTRAP)]
    low, high = _interval(_expanded(np.array(draws), len(table)))
    return Estimate(float(aggregate_iqm(table)), low, high, *table.shape)


def slope(curves: Mapping[int, tuple[Sequence[float], Sequence[float]]], seed: int = 0) -> Estimate:
    """Mean over runs of the least-squares slope of (x, y); a bootstrap over runs, without interval for one run."""
    slopes = np.array([np.polyfit(x, y, 1)[0] for x, y in curves.values()])
    n_points = min(len(x) for x, _ in curves.values())
    if len(slopes) < 2:
        return Estimate(float(slopes.mean()), None, None, len(slopes), n_points)
    rng = np.random.default_rng(seed)
    draws = slopes[rng.integers(len(slopes), size=(N_BOOTSTRAP, len(slopes)))].mean(1)
    draws = _expanded(draws, len(slopes))
    low, high = _interval(draws)
    return Estimate(float(slopes.mean()), low, high, len(slopes), n_points, _two_sided(draws))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Adjusted p values of one family of tests (Holm 1979)."""
    adjusted: dict[str, float] = {}
    highest = 0.0
    for i, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        highest = max(highest, min(1.0, (len(p_values) - i) * p))
        adjusted[name] = highest
    return {name: adjusted[name] for name in p_values}


def verdict(estimate: Estimate | None, p: float | None) -> Verdict:
    """Whether "greater than 0" holds: by the sign where p is below the level, else undecided; so it is with one run."""
    if estimate is None or p is None or estimate.n_runs < 2 or p >= LEVEL:
        return "undecided"
    return "holds" if estimate.value > 0 else "does not hold"


def _table(scores: Scores) -> np.ndarray:
    """(n_runs, n_tasks), shorter runs filled up with NaN."""
    if not scores or not min(np.isfinite(values).sum() for values in scores.values()):
        raise ValueError("scores: expected runs with a task each, found none")
    table = np.full((len(scores), max(map(len, scores.values()))), np.nan)
    for row, k in zip(table, sorted(scores), strict=True):
        row[: len(scores[k])] = scores[k]
    return table


def _run_means(table: np.ndarray) -> np.ndarray:
    """(n_runs,)."""
    means: np.ndarray = np.nanmean(table, axis=-1)
    return means


def _sizes(table: np.ndarray) -> tuple[int, int]:
    """Runs, and the tasks that count in the run that has the fewest."""
    return len(table), int(np.isfinite(table).sum(1).min())


def _draws(table: np.ndarray, seed: int) -> np.ndarray:
    """(N_BOOTSTRAP,) means over resampled runs of their means over resampled tasks."""
    rng = np.random.default_rng(seed)
    rows = [row[np.isfinite(row)] for row in table]
    chosen = rng.integers(len(rows), size=(N_BOOTSTRAP, len(rows)))
    of_runs = np.array([row.mean() for row in rows])[chosen]
    resampled = np.empty(chosen.shape)
    for k, row in enumerate(rows):
        places = chosen == k
        resampled[places] = row[rng.integers(len(row), size=(int(places.sum()), len(row)))].mean(1)
    of_tasks = (resampled - of_runs).mean(1)
    return _expanded(of_runs.mean(1), len(rows)) + of_tasks


def _expanded(draws: np.ndarray, n_runs: int) -> np.ndarray:
    """Bootstrap draws spread about their mean to the width that so few runs ask for."""
    if n_runs < 2:
        return draws
    from scipy.stats import norm, t

    quantile = 1 - LEVEL / 2
    factor = np.sqrt(n_runs / (n_runs - 1)) * t.ppf(quantile, n_runs - 1) / norm.ppf(quantile)
    spread: np.ndarray = draws.mean() + factor * (draws - draws.mean())
    return spread


def _interval(draws: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(draws, (50 * LEVEL, 100 - 50 * LEVEL))
    return float(low), float(high)


def _two_sided(draws: np.ndarray) -> float:
    """Twice the smaller share of draws on one side of 0, at least one draw counted."""
    below, above = (draws <= 0).sum(), (draws >= 0).sum()
    return float(min(1.0, 2 * (min(below, above) + 1) / (len(draws) + 1)))
