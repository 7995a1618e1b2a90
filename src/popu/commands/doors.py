"""JSON lines in and out, for other programs."""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from popu.commands.common import Commands, add_command
from popu.errors import ConfigError

if TYPE_CHECKING:
    from popu.verify import Executors, Response


def add(commands: Commands) -> None:
    verify = add_command(
        commands, "verify", _verify, "check proposals, judge answers, run programs: JSON lines in and out"
    )
    verify.add_argument("--in", dest="requests", type=Path, required=True, help="requests (docs/verifier.md)")
    verify.add_argument("--out", type=Path, required=True)
    scoring = add_command(commands, "score", _score, "judge completions of a benchmark: JSON lines in and out")
    scoring.add_argument("--suite", required=True, help="name; an unknown one lists all")
    scoring.add_argument("--in", dest="answers", type=Path, required=True, help="completions (docs/benchmarks.md)")
    scoring.add_argument("--out", type=Path, required=True)
    scoring.add_argument("--data-dir", type=Path, help="the benchmarks' files; without it they are downloaded")


def _verify(arguments: argparse.Namespace) -> None:
    from popu.verify import verify_lines

    _door(arguments.requests, arguments.out, verify_lines)


def _score(arguments: argparse.Namespace) -> None:
    from popu.score import score_lines

    _door(
        arguments.answers,
        arguments.out,
        lambda lines, executor_of: score_lines(lines, arguments.suite, executor_of, arguments.data_dir),
    )


def _door(requests: Path, out: Path, answers: "Callable[[Iterable[str], Executors], Iterator[Response]]") -> None:
    """JSON lines of a file to JSON lines of another, with the verifier at hand."""
    from popu.artifacts import atomic_write
    from popu.sandbox.executor import executors

    try:
        lines = requests.open(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise ConfigError(f"--in: expected a readable file, found: {error}") from error
    with lines, executors() as executor_of, atomic_write(out) as path, path.open("w") as file:
        for answer in answers(lines, executor_of):
            file.write(json.dumps(answer) + "\n")
