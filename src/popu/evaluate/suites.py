"""The benchmark suites by name, with their data."""

from pathlib import Path

from popu import plugins
from popu.errors import ConfigError
from popu.evaluate import code, cruxeval, data, livecodebench
from popu.evaluate.math_sets import MATH_SUITES
from popu.evaluate.suite import BenchmarkTask, Suite

OURS = {**code.SUITES, **cruxeval.SUITES, **MATH_SUITES}
"""All but those of LiveCodeBench."""


def suite_names() -> list[str]:
    """All names, and of LiveCodeBench those of whole releases: any other window of months has a name as well."""
    return [*_our_names(), *plugins.names("benchmarks")]


def suite(name: str) -> Suite:
    """The suite of a name, ours or an installed one (docs/extend.md). Raises ConfigError."""
    if name.startswith("livecodebench"):
        return livecodebench.suite(name)
    if name in OURS:
        return OURS[name]
    try:
        return plugins.load("benchmarks", name, Suite, others=tuple(_our_names()))
    except ConfigError as error:
        raise ConfigError(f"suite: {error}") from error


def tasks(name: str, data_dir: Path | None = None, limit: int | None = None) -> list[BenchmarkTask]:
    """The tasks of a suite, the first `limit` of them where it is given; without `data_dir` its data is downloaded.

    Raises ConfigError, ArtifactError.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit: expected at least 1, found {limit}")
    all_tasks = suite(name).tasks(rows_of(name, data_dir))
    return all_tasks[:limit]


def rows_of(name: str, data_dir: str | Path | None = None) -> list[data.Row]:
    """The rows of a suite's data. Raises ConfigError, ArtifactError."""
    data_dir = Path(data_dir) if data_dir else None
    if name.startswith("livecodebench"):
        return data.rows(livecodebench.dataset(name), data_dir)
    if name in OURS:
        return data.rows("cruxeval" if name in cruxeval.SUITES else name, data_dir)
    return data.rows_of(suite(name).sources, data_dir)


def _our_names() -> list[str]:
    windows = map(livecodebench.suite_name, livecodebench.RELEASES)
    return [*code.SUITES, *windows, *cruxeval.SUITES, *MATH_SUITES]
