"""CRUXEval: what a short function returns, and what it is given where it returned something. Judged by running it.

A completion is read for one assertion, `assert f(...) == ...`. Its wording in the prompts is ours.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from popu.evaluate.extract import before_fences, fenced_blocks, parse
from popu.evaluate.suite import BenchmarkTask, Suite, TaskScore
from popu.problems.values import parse_value
from popu.sandbox.executor import LIMITS, Executor, Job, Outcome, Profile
from popu.sandbox.verdicts import Status

MAX_NEW_TOKENS = 768
VALUE_BYTES = LIMITS[Profile.EVALUATION].value_bytes
SHOWN_CHARS = 60  # of a value in a reason
IDENTITY = "def value(it):\n    return it\n"  # an expected output is worked out where the task's `f` is not known

_ANSWER = re.compile(r"\[ANSWER\](.*?)(?:\[/ANSWER\]|\Z)", re.DOTALL)


def output_prompt(code: str, arguments: str) -> str:
    """Asks for the output."""
    return _prompt(code, f"assert f({arguments}) == ??", "the value that f returns, as a literal")


def input_prompt(code: str, output: str) -> str:
    """Asks for an input."""
    return _prompt(code, f"assert f(??) == {output}", "arguments for which the assertion holds; any such will do")


def _prompt(code: str, assertion: str, missing: str) -> str:
    return (
        f"```python\n{code}\n```\n\nReplace ?? by {missing}.\n\n"
        f"```python\n{assertion}\n```\n\nEnd your answer with the completed assertion in one ```python block.\n"
    )


def _tasks(rows: Sequence[Mapping[str, Any]], asked: str) -> list[BenchmarkTask]:
    return [
        BenchmarkTask(
            row["id"],
            output_prompt(row["code"], row["input"]) if asked == "output" else input_prompt(row["code"], row["output"]),
            {"code": row["code"], "output": row["output"]},
        )
        for row in rows
    ]


# --- extraction ------------------------------------------------------------------------------------------------


def answered(completion: str, asked: str) -> str | None:
    """The text of the output, or of the argument list, that a completion ends with; None for none.

    It is looked for in the last fenced block, after a last [ANSWER], and in the last line, in this order; an assertion
    or a call of `f` before a bare expression.
    """
    for text in _candidates(completion):
        tree = parse(text)
        found = _from_statement(text, tree.body[-1], asked) if tree is not None and tree.body else None
        if found is not None:
            return found
        if asked == "input" and _is_argument_list(text):
            return text
    return None


def _candidates(completion: str) -> Iterator[str]:
    texts = [block.text for block in fenced_blocks(completion)][-1:]
    texts += _ANSWER.findall(completion)[-1:]
    texts += [line for line in before_fences(completion).split("\n") if line.strip()][-1:]
    return (text.strip() for text in texts if text.strip())


def _from_statement(text: str, statement: ast.stmt, asked: str) -> str | None:
    call: ast.expr | None = None
    value: ast.expr | None = None
    if isinstance(statement, ast.Assert) and isinstance(statement.test, ast.Compare):
        sides = [statement.test.left, *statement.test.comparators]
        call, value = next(((a, b) for a, b in (sides[:2], sides[1::-1]) if _is_call(a)), (None, None))
    elif isinstance(statement, ast.Expr) and _is_call(statement.value):
        call = statement.value
    elif isinstance(statement, ast.Expr):
        value = statement.value
    if asked == "output":
        return None if value is None else ast.get_source_segment(text, value)
    segment = None if call is None else ast.get_source_segment(text, call)
    return None if segment is None else segment[segment.index("(") + 1 : -1]


def _is_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "f"


def _is_argument_list(text: str) -> bool:
    tree = parse(f"f({text}\n)")
    if tree is None or len(tree.body) != 1:
        return False
    statement = tree.body[0]
    return isinstance(statement, ast.Expr) and _is_call(statement.value)


# --- scores ----------------------------------------------------------------------------------------------------


def _score(
    tasks: Sequence[BenchmarkTask], completions: Sequence[str], executor: Executor, asked: str
) -> list[TaskScore]:
    """Judge a completion a task: any input with the output is right; an output is by its value, however written."""
    texts = [answered(completion, asked) for completion in completions]
    jobs = {
        i: Job(IDENTITY, (f"({text}\n)",), entry="value") if asked == "output" else Job(task.reference["code"], (text,))
        for i, (task, text) in enumerate(zip(tasks, texts, strict=True))
        if text is not None
    }
    outcomes = dict(zip(jobs, executor.run(list(jobs.values())), strict=True))
    return [
        TaskScore(*_word(outcomes.get(i), task.reference["output"]), extracted=texts[i]) for i, task in enumerate(tasks)
    ]


def _word(outcome: Outcome | None, expected: str) -> tuple[bool, str]:
    if outcome is None:
        return False, "no answer"
    if outcome.status is not Status.OK:
        return False, f"{outcome.status}: {outcome.reason}"
    given = outcome.outputs[0]
    right = parse_value(given, VALUE_BYTES) == parse_value(expected, VALUE_BYTES)
    return right, "" if right else f"wrong: {given[:SHOWN_CHARS]}, expected {expected[:SHOWN_CHARS]}"


SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            f"cruxeval_{asked[0]}",
            "reasoning",
            MAX_NEW_TOKENS,
            partial(_tasks, asked=asked),
            partial(_score, asked=asked),
        )
        for asked in ("input", "output")
    )
}
