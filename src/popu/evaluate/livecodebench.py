"""LiveCodeBench: programs that read standard input and print, and methods that are called.

A score depends on the release and on the window of contest dates, so both are part of a suite's name
(`livecodebench_v5_2024-08_2025-01`), and on the hidden tests: a release without them says so in its own. The prompt's
words are ours; the tests' equality is LiveCodeBench's.
"""

import base64
import binascii
import hashlib
import json
import keyword
import pickletools
import re
import zlib
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import accumulate
from typing import Any, NamedTuple

from popu.errors import ArtifactError, ConfigError
from popu.evaluate.extract import script_program
from popu.evaluate.suite import BenchmarkTask, Suite, TaskScore
from popu.problems.values import Arguments, canonical_arguments, parse_value
from popu.sandbox.executor import LIMITS, MAX_REQUEST_BYTES, Executor, Job, Outcome, Profile
from popu.sandbox.runner import digested
from popu.sandbox.verdicts import Status

RELEASES = {"v5": ("2023-05", "2025-01"), "v1_public_tests_only": ("2023-05", "2024-03")}  # first and last month
PUBLIC_ONLY = frozenset({"v1_public_tests_only"})
MAX_NEW_TOKENS = 8096
TEST_CPU_S = 6.0  # LiveCodeBench's limit of a test, which there is wall time
JOB_BYTES = 4 * 2**20  # of inputs that go into one job
TASKS_AT_ONCE = 8  # hidden tests of a task unpack to tens of megabytes
MAX_TESTS_BYTES = 2**30  # of a task's hidden tests, unpacked
VALUE_BYTES = LIMITS[Profile.EVALUATION].value_bytes
SHOWN_CHARS = 60  # of an output in a reason
CALLED = "_called"  # the function that calls a task's method

# What LeetCode and LiveCodeBench have in scope. Its recursion limit too.
PRELUDE = """\
import bisect, collections, copy, datetime, functools, heapq, itertools, json, math, operator, random, re, string, sys
from bisect import *
from collections import *
from copy import copy, deepcopy
from functools import *
from heapq import *
from itertools import *
from math import ceil, comb, dist, factorial, floor, gcd, hypot, inf, isqrt, lcm, log, log2, log10, perm, pi, prod, sqrt
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits
from typing import *
sys.setrecursionlimit(50_000)
"""

_NAME = re.compile(r"livecodebench_(v\w+?)_(\d{4}-\d{2})_(\d{4}-\d{2})")
_FUTURE = re.compile(r"^from __future__ import .*$", re.MULTILINE)
# The operations of a pickled string, and of no other object.
_STRING_OPERATIONS = frozenset({"BINUNICODE", "BINUNICODE8", "SHORT_BINUNICODE", "UNICODE"})
_OTHER_OPERATIONS = frozenset({"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"})


class Case(NamedTuple):
    """What a program reads, and what it should print; of a method, its arguments and its value as lines of JSON."""

    input: str
    output: str


def suite(name: str) -> Suite:
    """The suite of a name `livecodebench_<release>_<first month>_<last month>`, both months included.

    Raises ConfigError.
    """
    match = _NAME.fullmatch(name)
    if match is None or match[1] not in RELEASES or match[2] > match[3]:
        examples = ", ".join(suite_name(release) for release in RELEASES)
        raise ConfigError(f"suite: expected a release and a window of months, such as {examples}, found {name!r}")
    release, first, last = match.groups()
    return Suite(name, "code", MAX_NEW_TOKENS, lambda rows: _tasks(rows, release, first, last), score)


def suite_name(release: str, first: str = "", last: str = "") -> str:
    """The name of a release's suite; its window is all of the release where none is given."""
    whole = RELEASES[release]
    return f"livecodebench_{release}_{first or whole[0]}_{last or whole[1]}"


def dataset(name: str) -> str:
    """The data set of a suite. Raises ConfigError."""
    return suite(name).name[: -len("_2023-05_2024-03")]


# --- tasks -----------------------------------------------------------------------------------------------------


def _tasks(rows: Sequence[Mapping[str, Any]], release: str, first: str, last: str) -> list[BenchmarkTask]:
    """The tasks in the window. Raises ArtifactError for a row without tests, and for a window without rows."""
    tasks = [_task(row, release) for row in rows if first <= row["contest_date"][:7] <= last]
    if not tasks:
        raise ArtifactError(f"livecodebench {release}: expected tasks from {first} to {last}, found none")
    return tasks


def _task(row: Mapping[str, Any], release: str) -> BenchmarkTask:
    task_id = f"{row['platform']}/{row['question_id']}"
    function = json.loads(row["metadata"] or "{}").get("func_name")
    if function is not None and not (function.isidentifier() and not keyword.iskeyword(function)):
        raise ArtifactError(f"{task_id}: expected the name of a method, found {function[:40]!r}")
    hidden = "" if release in PUBLIC_ONLY else row.get("private_test_cases", "")
    public = row["public_test_cases"]
    if release not in PUBLIC_ONLY and not hidden:
        raise ArtifactError(f"{task_id}: expected hidden tests, found none")
    if not hidden and not _cases(task_id, public):
        raise ArtifactError(f"{task_id}: expected tests, found an empty list")
    reference = {"function": function, "public": public, "hidden": hidden}
    return BenchmarkTask(task_id, prompt(row["question_content"], row["starter_code"]), reference)


def prompt(statement: str, starter_code: str) -> str:
    """The statement with what is asked of the answer."""
    if starter_code.strip():
        ask = f"Complete this class. Keep its method's name and parameters.\n\n```python\n{starter_code.rstrip()}\n```"
    else:
        ask = "Write a Python program that reads from standard input and prints its answer to standard output."
    return f"{statement.strip()}\n\n{ask}\n\nGive the whole program in one ```python block.\n"


def cases_of(task: BenchmarkTask) -> list[Case]:
    """The public and hidden tests of a task. Raises ArtifactError where they cannot be read, or are none."""
    reference = task.reference
    tests = _cases(task.task_id, reference["public"])
    if reference["hidden"]:
        tests += _cases(task.task_id, decoded(reference["hidden"], task.task_id))
    if not tests:
        raise ArtifactError(f"{task.task_id}: expected tests, found an empty list")
    return tests


def _cases(task_id: str, text: str) -> list[Case]:
    try:
        return [Case(test["input"], test["output"]) for test in json.loads(text)]
    except (ValueError, TypeError, KeyError) as error:
        raise ArtifactError(f"{task_id}: expected a list of tests, found {text[:40]!r}: {error}") from error


def decoded(text: str, task_id: str = "private_test_cases") -> str:
    """The JSON of hidden tests: as it stands, or from a pickled string, compressed and in base 64.

    The pickle is not loaded. Its operations are read one by one, and any that is not of a string is refused: what is
    returned is the only string. Raises ArtifactError.
    """
    if text.lstrip().startswith("["):
        return text
    try:
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(base64.b64decode(text.strip(), validate=True), MAX_TESTS_BYTES)
        if unpacker.unconsumed_tail or not unpacker.eof:
            raise ValueError(f"longer than {MAX_TESTS_BYTES} bytes, or cut off")
        return _pickled_string(content)
    except (ValueError, binascii.Error, zlib.error) as error:
        raise ArtifactError(f"{task_id}: expected hidden tests as a compressed string, found: {error}") from error


def _pickled_string(content: bytes) -> str:
    """Raises ValueError for the pickle of anything but a string."""
    strings = []
    for operation, argument, _ in pickletools.genops(content):
        if operation.name in _STRING_OPERATIONS:
            strings.append(argument)
        elif operation.name not in _OTHER_OPERATIONS:
            raise ValueError(f"a pickle with {operation.name}")
    if len(strings) != 1 or not isinstance(strings[0], str):
        raise ValueError(f"a pickle of {len(strings)} strings")
    return strings[0]


# --- scores ----------------------------------------------------------------------------------------------------


def score(tasks: Sequence[BenchmarkTask], completions: Sequence[str], executor: Executor) -> list[TaskScore]:
    """Judge a completion a task; a program passes that is right on every test. Raises ArtifactError as `cases_of`."""
    scores: list[TaskScore] = []
    programs = list(map(script_program, completions))
    for i in range(0, len(tasks), TASKS_AT_ONCE):
        scores += _scores(tasks[i : i + TASKS_AT_ONCE], programs[i : i + TASKS_AT_ONCE], executor)
    return scores


def _scores(tasks: Sequence[BenchmarkTask], programs: Sequence[str | None], executor: Executor) -> list[TaskScore]:
    tests = [cases_of(task) for task in tasks]
    jobs = [
        [] if program is None else [_job(program, task, part) for part in _parts(cases)]
        for task, program, cases in zip(tasks, programs, tests, strict=True)
    ]
    outcomes = iter(executor.run([job for part in jobs for job in part]))
    scores = []
    for task, program, cases, parts in zip(tasks, programs, tests, jobs, strict=True):
        faults = (
            [
                _fault(next(outcomes), task.reference["function"], cases, first)
                for first in accumulate((len(job.inputs) for job in parts[:-1]), initial=0)
            ]
            if parts
            else ["no program"]
        )
        reason = next(filter(None, faults), "")
        scores.append(TaskScore(not reason, reason, program))
    return scores


def _parts(cases: list[Case]) -> list[list[Case]]:
    """The cases in order, so many together as make `JOB_BYTES`."""
    parts: list[list[Case]] = [[]]
    size = 0
    for case in cases:
        if parts[-1] and size + len(case.input) > JOB_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(case)
        size += len(case.input)
    return parts


def _job(program: str, task: BenchmarkTask, cases: list[Case]) -> Job:
    function = task.reference["function"]
    head = max((match.end() for match in _FUTURE.finditer(program)), default=0)  # such an import has to come first
    source = f"{program[:head]}\n{PRELUDE}{program[head:]}\n"
    if function is None:
        return Job(source, tuple(case.input for case in cases), entry=None, cpu_s=TEST_CPU_S)
    owner = "Solution()." if re.search(r"^class Solution\b", program, re.MULTILINE) else ""
    source += f"\ndef {CALLED}(*arguments):\n    value = {owner}{function}(*arguments)\n"
    source += "    return list(value) if isinstance(value, tuple) else value\n"  # JSON has no tuples
    inputs = tuple(_arguments(case.input, task.task_id) for case in cases)
    return Job(source, inputs, entry=CALLED, cpu_s=TEST_CPU_S)


def _arguments(lines: str, task_id: str) -> str:
    """The text of an argument list that is written as a line of JSON an argument. Raises ArtifactError."""
    try:
        values = tuple(json.loads(line) for line in lines.split("\n") if line.strip())
    except ValueError as error:
        raise ArtifactError(f"{task_id}: expected a line of JSON an argument, found {lines[:40]!r}") from error
    return canonical_arguments(Arguments(values, {}), MAX_REQUEST_BYTES[Profile.EVALUATION])


def _fault(outcome: Outcome, function: str | None, cases: list[Case], first: int) -> str:
    """What is wrong with an outcome of the cases from `first` on; "" for nothing."""
    if outcome.status is not Status.OK:
        return f"{outcome.status}: {outcome.reason}"
    for i, output in enumerate(outcome.outputs, start=first):
        given, expected = parse_value(output, VALUE_BYTES), cases[i].output
        right = same_text(str(given), expected) if function is None else same_json(given, expected)
        if not right:
            return f"wrong on test {i}: {output[:SHOWN_CHARS]}, expected {expected[:SHOWN_CHARS]!r}"
    return ""


def same_json(given: object, expected: str) -> bool:
    """Whether a value, or the digest that stands for a long one, equals what JSON writes."""
    value = json.loads(expected)
    content = digested(value, VALUE_BYTES)
    return bool(given == (value if content is None else ("sha256", hashlib.sha256(content).hexdigest())))


def same_text(given: str, expected: str) -> bool:
    """Whether two outputs agree line by line, but for white space around and for how numbers are written."""
    ours, theirs = given.strip().split("\n"), expected.strip().split("\n")
    return len(ours) == len(theirs) and all(map(_same_line, ours, theirs))


def _same_line(given: str, expected: str) -> bool:
    if given.strip() == expected.strip():
        return True
    try:
        return list(map(Decimal, given.split())) == list(map(Decimal, expected.split()))
    except InvalidOperation:
        return False
