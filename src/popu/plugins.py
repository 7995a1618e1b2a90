"""Parts that a config names: our own, and those that an installed distribution offers as entry points.

Group `popu.<kind>` of a distribution's entry points adds to the kind of that name; a name that two offer is refused.
Our own parts are written here as entry points are, so that a name can be checked without importing anything.
docs/extend.md has an example of every kind.
"""

import hashlib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, TypeVar

from popu.errors import ConfigError

T = TypeVar("T")
OPERATORS = "popu.evolution.operators"

BUILT_IN: Mapping[str, Mapping[str, str]] = {
    "rewards": {name: f"popu.rl.rewards:{name.upper()}" for name in ("verifier", "random", "format")},
    "matchers": {name: f"popu.population.matchmaking:{name}" for name in ("pfsp", "uniform", "fixed")},
    "operators": {
        module.name: f"{OPERATORS}.{module.name}:OPERATOR"
        for module in iter_modules([str(Path(__file__).parent / "evolution" / "operators")])
    },
    "problem_types": {
        **dict.fromkeys(("code_o", "code_i", "code_f"), "popu.domains.code:CODE"),
        **dict.fromkeys(("arith_v", "arith_x"), "popu.domains.arithmetic:ARITHMETIC"),
    },
    "benchmarks": {},  # `popu.evaluate.suites` knows ours: those of LiveCodeBench have no end of names
}

Parts = Iterable[tuple[str, str]]
"""(kind, name)."""


def names(kind: str) -> list[str]:
    """Ours, then the installed ones."""
    return list(dict.fromkeys([*BUILT_IN[kind], *sorted(entry.name for entry in _installed(kind))]))


def find(kind: str, name: str, others: Iterable[str] = ()) -> EntryPoint:
    """The one part of a name, not loaded; `others` are names that the caller knows beside these.

    Raises ConfigError for an unknown name, with the nearest, and for one that is offered twice.
    """
    found = [entry for entry in _installed(kind) if entry.name == name]
    if name in BUILT_IN[kind]:
        found.insert(0, EntryPoint(name, BUILT_IN[kind][name], f"popu.{kind}"))
    if len(found) == 1:
        return found[0]
    if found:
        origins = " and ".join(_origin(entry) for entry in found)
        raise ConfigError(f"expected {name!r} of popu.{kind} to be offered once, found it in {origins}")
    ours = [*others, *BUILT_IN[kind]]
    installed = [f"{entry.name} ({_origin(entry)})" for entry in sorted(_installed(kind), key=lambda entry: entry.name)]
    known = ", ".join([*ours, *installed]) or "none"
    near = get_close_matches(name, [*ours, *names(kind)], 1, 0.0)
    advice = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"expected one of {known}, found {name!r}{advice}")


@cache
def load(kind: str, name: str, expected: type[T], others: tuple[str, ...] = ()) -> T:
    """The part of a name. Raises ConfigError as `find`, and for one that cannot be loaded or is of another type."""
    entry = find(kind, name, others)
    try:
        part = entry.load()
    except Exception as error:
        raise ConfigError(f"{_told(entry)}: cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(part, expected):
        raise ConfigError(f"{_told(entry)}: expected {expected.__name__}, found {type(part).__name__}")
    return part


def distributions(parts: Parts) -> dict[str, str]:
    """The distributions of those parts that are not ours, by name: version and 8 hex digits of their sources.

    The parts are loaded. Raises ConfigError as `load`.
    """
    foreign = [(kind, name) for kind, name in parts if find(kind, name).dist is not None]
    for kind, name in foreign:
        load(kind, name, object)
    return _states(find(kind, name) for kind, name in foreign)


def installed() -> dict[str, str]:
    """All distributions that offer parts, as `distributions`."""
    return _states(entry for kind in BUILT_IN for entry in _installed(kind))


def _states(entries: Iterable[EntryPoint]) -> dict[str, str]:
    packages: dict[str, set[str]] = {}
    for entry in entries:
        if entry.dist is not None:
            packages.setdefault(f"{entry.dist.name} {entry.dist.version}", set()).add(entry.module)
    states = {}
    for origin, modules in sorted(packages.items()):
        name, _, version = origin.partition(" ")
        states[name] = f"{version}+{_digest(modules)}"
    return states


def _digest(modules: Iterable[str]) -> str:
    """8 hex digits of the Python sources of the packages that these modules lie in."""
    digest = hashlib.sha256()
    for path in sorted({path for module in modules for path in _sources(module)}):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:8]


def _sources(module: str) -> list[Path]:
    """The files of a module's outermost package, namespaces aside; none where it cannot be found."""
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        try:
            spec = find_spec(".".join(parts[:depth]))
        except (ImportError, ValueError):
            return []
        if spec is None:
            return []
        if spec.origin and spec.submodule_search_locations is None:
            return [Path(spec.origin)]
        if spec.origin:
            return [path for place in spec.submodule_search_locations or () for path in Path(place).rglob("*.py")]
    return []


@cache
def _installed(kind: str) -> tuple[EntryPoint, ...]:
    return tuple(_all_entry_points().select(group=f"popu.{kind}"))


@cache
def _all_entry_points() -> Any:  # its type is another one before Python 3.12
    """Read once: it takes some 30 ms."""
    return entry_points()


def _origin(entry: EntryPoint) -> str:
    return "popu itself" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def _told(entry: EntryPoint) -> str:
    return f"{entry.group} {entry.name!r} of {_origin(entry)} ({entry.value})"
