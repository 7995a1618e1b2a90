"""The operators by name: every file of `operators` defines one as OPERATOR."""

from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules

from popu.evolution import operators
from popu.evolution.operator import Operator


def _all_operators() -> dict[str, Operator]:
    found = [
        import_module(f"{operators.__name__}.{module.name}").OPERATOR for module in iter_modules(operators.__path__)
    ]
    return {operator.name: operator for operator in found}


OPERATORS = _all_operators()


def get_operator(name: str) -> Operator:
    """The operator of that name. Raises ValueError naming the nearest valid name."""
    if name not in OPERATORS:
        nearest = get_close_matches(name, sorted(OPERATORS), 1, 0.0)[0]
        raise ValueError(f"operator: expected one of {sorted(OPERATORS)}, found {name!r}; did you mean {nearest!r}?")
    return OPERATORS[name]
