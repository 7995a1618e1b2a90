"""The three problem types of the method and what a problem holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

ProblemType = Literal["code_o", "code_i", "code_f"]
PROBLEM_TYPES: tuple[ProblemType, ...] = get_args(ProblemType)

N_PAIRS = 10  # inputs that a code_f teacher writes (AZR)
N_SHOWN = 5  # of them, the pairs that the student sees; the others are hidden (AZR)


@dataclass(frozen=True)
class Problem:
    """A valid problem. Inputs are argument lists and outputs values, both as canonical text.

    `code_o` and `code_i` have one pair, `code_f` has `N_PAIRS` of which the first `N_SHOWN` are shown.
    """

    problem_type: ProblemType
    program: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    message: str = ""


@dataclass(frozen=True)
class Reference:
    """A problem from the buffer as a teacher sees it: a program and one input."""

    program: str
    input: str


IDENTITY = Reference("def f(x):\n    return x", "1")  # the program that AZR starts from


def problem_of(row: Mapping[str, Any]) -> Problem:
    """The problem of a row of problems whose status is ok."""
    return Problem(row["problem_type"], row["program"], tuple(row["inputs"]), tuple(row["outputs"]), row["message"])
