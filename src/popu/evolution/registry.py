"""The operators by name: every file of `operators` defines one as OPERATOR; others are installed (docs/extend.md)."""

from popu import plugins
from popu.errors import ConfigError
from popu.evolution.operator import Operator

OPERATORS = {name: plugins.load("operators", name, Operator) for name in plugins.BUILT_IN["operators"]}
"""Our own."""


def get_operator(name: str) -> Operator:
    """The operator of that name, ours or installed. Raises ConfigError naming the nearest valid name."""
    try:
        return plugins.load("operators", name, Operator)
    except ConfigError as error:
        raise ConfigError(f"operator: {error}") from error
