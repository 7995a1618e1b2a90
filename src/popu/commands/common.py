"""What the commands share."""

import argparse
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from popu.stages.backend import Backend

Commands = Any  # argparse's sub-parsers have no public type


def add_command(
    commands: Commands, name: str, function: Callable[[argparse.Namespace], None], text: str
) -> argparse.ArgumentParser:
    """A parser of `popu NAME`, whose lines `function` carries out."""
    parser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(command=function)
    return parser  # type: ignore[no-any-return]


def run_arguments(command: argparse.ArgumentParser, step: str = "--step") -> None:
    """A run, and a step of it."""
    command.add_argument("--run", type=Path, required=True, help="a run's seed directory")
    command.add_argument(step, type=int, required=True)


def open_backend() -> "closing[Backend]":
    """Engine and verifier of this process, closed at the end of a `with`."""
    from popu.stages.backend import Backend

    return closing(Backend())
