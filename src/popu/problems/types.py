"""What a problem holds, how it is proposed and answered, and the three problem types of Python code."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from popu.sandbox.verdicts import Status, Verdict

ProblemType = Literal["code_o", "code_i", "code_f"]
PROBLEM_TYPES: tuple[ProblemType, ...] = get_args(ProblemType)

N_PAIRS = 10  # inputs that a code_f teacher writes (AZR)
N_SHOWN = 5  # of them, the pairs that the student sees; the others are hidden (AZR)


PromptStyle = Literal["compact", "instruct"]


@dataclass(frozen=True)
class Problem:
    """A valid problem of any domain; `program` is what it is about, and not empty.

    Of code: inputs are argument lists and outputs values, both as canonical text; `code_o` and `code_i` have one pair,
    `code_f` has `N_PAIRS` of which the first `N_SHOWN` are shown. Other domains leave out what they do not need.
    """

    problem_type: str
    program: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    message: str = ""


@dataclass(frozen=True)
class Reference:
    """A problem from the buffer as a teacher sees it: a program and one input, "" where it has none."""

    program: str
    input: str


@dataclass(frozen=True)
class Proposal:
    """A teacher's completion. `program` is the one that it was shown where its type takes a program that is there (as
    `code_f` does), None for the other types. `truncated`: cut at the limit of tokens.
    """

    problem_type: str
    completion: str
    program: str | None
    truncated: bool


@dataclass(frozen=True)
class Validated:
    """A checked proposal: a problem if `status` is OK, else the reason why not. Its fields are those of `Problem`;
    where the status is not OK, those not reached are empty.
    """

    status: Status
    reason: str = ""
    program: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    message: str = ""


@dataclass(frozen=True)
class Attempt:
    """A student's completion on a problem. `truncated`: cut at the limit of tokens."""

    problem: Problem
    completion: str
    truncated: bool


@dataclass(frozen=True)
class Judged:
    """The verdict on an attempt, with the reason where it is not "correct"."""

    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True)
class Task:
    """One problem of a held-out suite with its level."""

    task_id: str
    level: int
    problem: Problem


IDENTITY = Reference("def f(x):\n    return x", "1")  # the program that AZR starts from


def pair_lines(row: Mapping[str, Any]) -> list[str]:
    """What a row of problems gives, for a reader: `f(1) = 2` a pair, `= 2` without inputs."""
    calls = [f"f({given}) " for given in row["inputs"]] or [""] * len(row["outputs"])
    return [f"{call}= {output}" for call, output in zip(calls, row["outputs"], strict=True)]


def problem_of(row: Mapping[str, Any]) -> Problem:
    """The problem of a row of problems whose status is ok."""
    return Problem(row["problem_type"], row["program"], tuple(row["inputs"]), tuple(row["outputs"]), row["message"])
