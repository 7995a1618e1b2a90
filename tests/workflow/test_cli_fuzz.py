"""Random command lines on real and on wrong files: each works, or is refused by one message and exit code 2."""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from popu import cli

pytestmark = pytest.mark.slow

N_LINES = 600
SKIPPED = {
    "warm-start",
    "bench",
    "torture",
    "worker",
    "nano",
    "doctor",
    "evaluate",
    "crossplay",
    "operator-study",
}  # they work long
TEXTS = ["", "x", "s0", "s0.g1", "00001-q0001.1", "single", "-1", "0", "1", "2", "é", "../x", "{}", "[]", "null", "a=1"]
NUMBERS = ["-1", "0", "1", "2", "99999", "x", "1.5", "", str(10**30)]


def leaf_parsers(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], list]]:
    """(words of a command, its arguments)"""
    actions = parser._actions
    below = [action for action in actions if isinstance(action, argparse._SubParsersAction)]
    for action in below:
        for name, child in action.choices.items():
            if name not in SKIPPED:
                yield from leaf_parsers(child, (*words, name))
    if not below:
        yield words, [action for action in actions if action.dest != "help"]


def line(words: tuple[str, ...], arguments: list, paths: list[str], rng: random.Random) -> list[str]:
    result = list(words)
    for argument in arguments:
        if argument.required is False and rng.random() < 0.5:
            continue
        if argument.required and rng.random() < 0.03:
            continue  # one that is wanted is left out
        result += argument.option_strings[-1:]
        if argument.nargs == 0:
            continue
        if argument.choices and rng.random() < 0.8:
            pool = list(argument.choices)
        else:
            pool = {Path: paths, int: NUMBERS, float: NUMBERS}.get(argument.type, TEXTS)
        n = {None: 1, "?": rng.randint(0, 1), "+": rng.randint(1, 2)}.get(argument.nargs, argument.nargs)
        result += [rng.choice(pool) for _ in range(n)]
    if rng.random() < 0.05:
        result.insert(rng.randrange(len(result) + 1), "--unknwon")
    return result


@pytest.fixture()
def paths(copied, tmp_path, monkeypatch) -> list[str]:
    """Names of things that are there and of things that are not; the working directory is a fresh one."""
    run = copied.run_directory()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POPU_WORKER", "0")
    (tmp_path / "empty").write_text("")
    (tmp_path / "text").write_text("not JSON\n{}\n[1, 2]\n")
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "folder").mkdir()
    there = [run, run.parents[1], run / "checkpoints" / "step00002", run / "step00002" / "problems.parquet"]
    adapters = sorted((run / "checkpoints" / "step00002" / "adapters").iterdir())
    own = ["empty", "text", "binary", "folder", "new", "no/such", "", "folder/new", "config.yaml", "x" * 300]
    return [*map(str, [*there, *adapters]), *own]


def test_no_command_line_ends_in_a_traceback(paths, capfd):
    rng = random.Random(0)
    parsers = list(leaf_parsers(cli.parser()))
    assert len(parsers) > 25
    ended = {0: 0, 2: 0}
    for _ in range(N_LINES):
        words = line(*rng.choice(parsers), paths, rng)
        try:
            code = cli.main(words)
        except SystemExit as end:
            code = end.code
        except BaseException as error:
            raise AssertionError(f"popu {' '.join(map(repr, words))}") from error
        out = capfd.readouterr()
        assert code in ended, (words, out.err)
        ended[code] += 1
        if code == 2:
            assert len(out.err.strip()) > 10 and "Traceback" not in out.err, (words, out.err)
    assert ended[0] > 20 and ended[2] > 200
