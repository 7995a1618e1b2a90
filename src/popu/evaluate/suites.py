"""The benchmark suites by name, with their data.

A result is known by its suite's name, and by the number of tasks where it is not of all (`humaneval_plus-limit20`).
"""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from popu.errors import ConfigError
from popu.evaluate import code, cruxeval, data, livecodebench
from popu.evaluate.suite import BenchmarkTask, Suite

_MATH = "popu.evaluate.math_sets"  # loaded when asked for, where it is part of the installation


def math_suites() -> dict[str, Suite]:
    """The suites of mathematics, by name; none where this installation lacks them."""
    return dict(import_module(_MATH).MATH_SUITES) if find_spec(_MATH) else {}


def suite_names() -> list[str]:
    """All names, and of LiveCodeBench those of whole releases: any other window of months has a name as well."""
    windows = map(livecodebench.suite_name, livecodebench.RELEASES)
    return [*code.SUITES, *windows, *cruxeval.SUITES, *math_suites()]


def suite(name: str) -> Suite:
    """The suite of a name. Raises ConfigError."""
    if name.startswith("livecodebench"):
        return livecodebench.suite(name)
    known = {**code.SUITES, **cruxeval.SUITES}
    known = known if name in known else {**known, **math_suites()}
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


def result_name(name: str, limit: int | None = None) -> str:
    """What a score on these tasks is called. A limit is never left out of it."""
    return name if limit is None else f"{name}-limit{limit}"


def _dataset(name: str) -> str:
    if name.startswith("livecodebench"):
        return livecodebench.dataset(name)
    return "cruxeval" if name in cruxeval.SUITES else name
