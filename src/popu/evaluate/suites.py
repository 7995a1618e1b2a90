"""The benchmark suites by name, with their data."""

from pathlib import Path

from popu.errors import ConfigError
from popu.evaluate import code, cruxeval, data, livecodebench
from popu.evaluate.math_sets import MATH_SUITES
from popu.evaluate.suite import BenchmarkTask, Suite


def suite_names() -> list[str]:
    """All names, and of LiveCodeBench those of whole releases: any other window of months has a name as well."""
    windows = map(livecodebench.suite_name, livecodebench.RELEASES)
    return [*code.SUITES, *windows, *cruxeval.SUITES, *MATH_SUITES]


def suite(name: str) -> Suite:
    """The suite of a name. Raises ConfigError."""
    if name.startswith("livecodebench"):
        return livecodebench.suite(name)
    known = {**code.SUITES, **cruxeval.SUITES, **MATH_SUITES}
    if name not in known:
        raise ConfigError(f"suite: expected one of {', '.join(suite_names())}, found {name!r}")
    return known[name]


def tasks(name: str, data_dir: Path | None = None, limit: int | None = None) -> list[BenchmarkTask]:
    """The tasks of a suite, the first `limit` of them where it is given; without `data_dir` its data is downloaded.

    Raises ConfigError, ArtifactError.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit: expected at least 1, found {limit}")
    all_tasks = suite(name).tasks(data.rows(_dataset(name), data_dir))
    return all_tasks[:limit]


def _dataset(name: str) -> str:
    if name.startswith("livecodebench"):
        return livecodebench.dataset(name)
    return "cruxeval" if name in cruxeval.SUITES else name
