"""HumanEval+ and MBPP+: functions judged on EvalPlus's inputs by the outputs of the benchmark's own solutions.

Both programs run in the verifier, in the profile of evaluation. Inputs and results pass as text, and what is expected
stays here: a program can neither read it nor return an object that claims to equal it. Values are compared as EvalPlus
0.3.1 does, with its tolerances and the tasks where it does not ask for equality; where that lets a program pass on its
way rather than its value (a task that EvalPlus skips in its record, a checker that raises), the value counts.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from popu.errors import ArtifactError
from popu.evaluate.extract import function_program
from popu.evaluate.suite import BenchmarkTask, Suite, TaskScore
from popu.evaluate.tolerance import same_value
from popu.problems.values import Arguments, canonical_arguments, parse_value
from popu.sandbox.executor import LIMITS, MAX_REQUEST_BYTES, Executor, Job, Outcome, Profile
from popu.sandbox.verdicts import Status

MAX_NEW_TOKENS = 768
VALUE_BYTES = LIMITS[Profile.EVALUATION].value_bytes
SHOWN_CHARS = 60  # of a value in a reason

Row = Mapping[str, Any]
Inputs = list[list[Any]]  # the argument lists of a task
Judge = Callable[[Any, Any, list[Any], float], bool]  # (given, expected, arguments, atol)


# --- tasks -----------------------------------------------------------------------------------------------------


def humaneval_tasks(rows: Sequence[Row]) -> list[BenchmarkTask]:
    """The prompt is the head of the function with its docstring, for a completion that goes on with the body."""
    return [_task(row, lambda inputs: inputs) for row in rows]


def mbpp_tasks(rows: Sequence[Row]) -> list[BenchmarkTask]:
    """The prompt is the task's text and its first assert, as a docstring; no examples."""
    return [_task(row, lambda inputs, row=row: mbpp_inputs(row["task_id"], inputs)) for row in rows]  # type: ignore[misc]


def _task(row: Row, typed: Callable[[Inputs], Inputs]) -> BenchmarkTask:
    inputs = typed([*row["base_input"], *row["plus_input"]])  # where a task has no more inputs that is an empty dict
    reference = {
        "entry": row["entry_point"],
        "solution": row["prompt"] + row["canonical_solution"],
        "inputs": inputs,
        "atol": row["atol"],
    }
    return BenchmarkTask(row["task_id"], row["prompt"], reference)


# JSON has no tuples, sets or complex numbers. What the arguments of MBPP's tasks are, by position; the last conversion
# is for all further arguments too.


def _as_is(value: Any) -> Any:
    return value


def _list_of_tuples(value: Any) -> Any:
    return [tuple(item) for item in value]


def _tuple_of_tuples(value: Any) -> Any:
    return tuple(tuple(item) if isinstance(item, list) else item for item in value)


def _tuples_all_through(value: Any) -> Any:
    return tuple(map(_tuples_all_through, value)) if isinstance(value, list) else value


def _list_of_sets(value: Any) -> Any:
    return [set(item) if item else {} for item in value]  # the task's empty ones are dicts


def _dict_of_tuples(value: Any) -> Any:
    return {key: tuple(item) for key, item in value.items()}


_MBPP_ARGUMENTS: dict[tuple[Callable[[Any], Any], ...], str] = {
    (tuple,): "2 116 132 143 222 261 273 394 399 421 424 429 470 560 579 596 616 630 726 740 744 809",
    (tuple, _as_is): "250 307 405 446 617 720 763 808",
    (_as_is, tuple): "106 750",
    (_list_of_tuples,): "63 64 70 94 120 237 272 299 400 409 417 438 473 614 780",
    (_list_of_tuples, _as_is): "75 413 444 753",
    (_tuple_of_tuples,): "259 278 401 445",
    (_tuples_all_through,): "580 615 791",
    (_list_of_sets,): "115",
    (_dict_of_tuples, _as_is): "722",
    (float, complex): "124",
    (complex,): "252",
}
_CONVERSIONS = {f"Mbpp/{task}": kinds for kinds, tasks in _MBPP_ARGUMENTS.items() for task in tasks.split()}


def mbpp_inputs(task_id: str, inputs: Inputs) -> Inputs:
    """The argument lists of an MBPP task with the types that its solution is written for."""
    kinds = _CONVERSIONS.get(task_id, (_as_is,))
    return [[kinds[min(i, len(kinds) - 1)](value) for i, value in enumerate(arguments)] for arguments in inputs]


# --- scores ----------------------------------------------------------------------------------------------------


def score(tasks: Sequence[BenchmarkTask], completions: Sequence[str], executor: Executor) -> list[TaskScore]:
    """Judge a completion a task. The benchmark's solutions run once an executor, and only where a program ran through.

    Raises ArtifactError where such a solution fails on this machine: no word on that task would be right.
    """
    programs = [
        function_program(completion, task.prompt, task.reference["entry"])
        for task, completion in zip(tasks, completions, strict=True)
    ]
    jobs = {i: _job(tasks[i], program) for i, program in enumerate(programs) if program is not None}
    outcomes = dict(zip(jobs, executor.run(list(jobs.values())), strict=True))
    ran = [i for i, outcome in outcomes.items() if outcome.status is Status.OK]
    expected = dict(zip(ran, _expected([tasks[i] for i in ran], executor), strict=True))
    return [
        TaskScore(*_word(task, outcomes.get(i), expected.get(i)), extracted=programs[i]) for i, task in enumerate(tasks)
    ]


def _job(task: BenchmarkTask, program: str) -> Job:
    inputs = (
        canonical_arguments(Arguments(tuple(arguments), {}), MAX_REQUEST_BYTES[Profile.EVALUATION])
        for arguments in task.reference["inputs"]
    )
    return Job(program, tuple(inputs), entry=task.reference["entry"])


def _expected(tasks: Sequence[BenchmarkTask], executor: Executor) -> list[Outcome]:
    outcomes = executor.run([_job(task, task.reference["solution"]) for task in tasks])
    for task, outcome in zip(tasks, outcomes, strict=True):
        if outcome.status is not Status.OK:
            raise ArtifactError(
                f"{task.task_id}: expected the benchmark's own solution to run on this machine, found "
                f"{outcome.status}: {outcome.reason}"
            )
    return outcomes


def _word(task: BenchmarkTask, outcome: Outcome | None, expected: Outcome | None) -> tuple[bool, str]:
    """Whether the completion passes, and why not."""
    if outcome is None:
        return False, "no program"
    if expected is None:
        return False, f"{outcome.status}: {outcome.reason}"
    reference = task.reference
    judge = _JUDGES.get(task.task_id, _equal)
    for i, (given, wanted) in enumerate(zip(outcome.outputs, expected.outputs, strict=True)):
        values = parse_value(given, VALUE_BYTES), parse_value(wanted, VALUE_BYTES)
        if not judge(*values, reference["inputs"][i], reference["atol"]):
            return False, f"wrong on input {i}: {given[:SHOWN_CHARS]}, expected {wanted[:SHOWN_CHARS]}"
    return True, ""


# --- where equality is not what is asked -----------------------------------------------------------------------


def _equal(given: Any, expected: Any, arguments: list[Any], atol: float) -> bool:
    return same_value(given, expected, atol)


def _same_set(given: Any, expected: Any, arguments: list[Any], atol: float) -> bool:
    try:
        return set(given) == set(expected)
    except TypeError:  # no collection, or one of lists
        return False


def _is_found(given: Any, expected: Any, arguments: list[Any], atol: float) -> bool:
    """Of a search only whether it finds something counts: the solution's own answer is a match object."""
    wanted = expected is not None
    return bool(given == wanted) if isinstance(given, bool) else (given is not None) == wanted


def _or(other: Callable[..., Any]) -> Judge:
    """Equal to the solution's value, or to that of another reading of the task."""

    def judge(given: Any, expected: Any, arguments: list[Any], atol: float) -> bool:
        return _equal(given, expected, arguments, atol) or (
            isinstance(given, int | float) and abs(given - other(*arguments)) <= atol
        )

    return judge


def _is_root(given: Any, expected: Any, arguments: list[Any], atol: float) -> bool:
    """Whether the polynomial with the coefficients `arguments[0]`, lowest first, is 0 at `given`.

    Summed in floats as the task's own `poly` does: of some inputs the exact sum is far from 0 at the solution's root.
    """
    try:
        value = sum(coefficient * math.pow(given, i) for i, coefficient in enumerate(arguments[0]))
    except (TypeError, ValueError, OverflowError):
        return False
    return abs(value) <= atol


def pyramid_surface(base: float, height: float) -> int:
    """The surface of a square pyramid whose height is that of its apex over the base, rounded."""
    return round(base**2 + 2 * base * math.hypot(base / 2, height))


def digit_distance(a: int, b: int) -> int:
    """The sum of the differences of two numbers' digits, the shorter number padded with zeros in front."""
    width = max(len(str(a)), len(str(b)))
    return sum(abs(int(x) - int(y)) for x, y in zip(str(a).zfill(width), str(b).zfill(width), strict=True))


_JUDGES: dict[str, Judge] = {
    "HumanEval/32": _is_root,
    **{f"Mbpp/{task}": _same_set for task in (2, 7, 111, 140, 232, 579, 769)},
    **{f"Mbpp/{task}": _is_found for task in (737, 787, 794)},
    "Mbpp/558": _or(digit_distance),
    "Mbpp/581": _or(pyramid_surface),
}

SUITES = {
    suite.name: suite
    for suite in (
        Suite("humaneval_plus", "code", MAX_NEW_TOKENS, humaneval_tasks, score),
        Suite("mbpp_plus", "code", MAX_NEW_TOKENS, mbpp_tasks, score),
    )
}
