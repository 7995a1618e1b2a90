r"""The seven mathematical suites: prompts and golds from the rows of their files.

One zero-shot prompt serves all (ours; the paper does not print one). Golds are what would stand in the box.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from popu.evaluate.boxed import last_boxed
from popu.evaluate.math import score_against
from popu.evaluate.suite import BenchmarkTask, Suite, TaskScore
from popu.sandbox.executor import Executor

Row = Mapping[str, Any]

PROMPT = "{problem}\n\nPlease reason step by step, and put your final answer within \\boxed{{}}."
MAX_NEW_TOKENS = 16_000


def written_gold(row: Row) -> str:
    """The field `answer`, a text or a number: AIME24's keeps its leading zeros, AMC's 27.0 is 27."""
    answer = row["answer"]
    return f"{answer:g}" if isinstance(answer, float) and answer.is_integer() and abs(answer) < 1e6 else str(answer)


def gsm8k_gold(row: Row) -> str:
    """What follows the last `####` of the solution."""
    return str(row["answer"]).rpartition("####")[2].strip()


def minerva_gold(row: Row) -> str:
    """The last box of the solution; the set has no field for the answer. Raises ValueError for one without a box."""
    gold = last_boxed(row["solution"])
    if gold is None:
        raise ValueError(f"solution: expected a box, found none in row {row.get('idx')}")
    return gold


def olympiad_gold(row: Row) -> str:
    """All the answers of a row as one list, without dollar signs; a unit of percent is written, others are left out."""
    gold = ", ".join(answer.replace("$", "").strip().rstrip(".") for answer in row["final_answer"])
    return f"{gold}\\%" if row.get("unit") == "%" and not gold.endswith("%") else gold


def math_suite(name: str, identity: str, problem: str, gold: Callable[[Row], str]) -> Suite:
    """Return the suite whose rows have their number and their problem in the fields `identity` and `problem`."""

    def tasks(rows: Sequence[Row]) -> list[BenchmarkTask]:
        return [
            BenchmarkTask(
                task_id=f"{name}/{row[identity]}",
                prompt=PROMPT.format(problem="\n".join(filter(None, [row.get("context"), row[problem]]))),
                reference={"gold": gold(row), "tolerance": row.get("error")},
            )
            for row in rows
        ]

    return Suite(name, "math", MAX_NEW_TOKENS, tasks, score)


def score(tasks: Sequence[BenchmarkTask], completions: Sequence[str], _: Executor) -> list[TaskScore]:
    """Return the word on one completion a task; no program is run, so the executor is not used."""
    stated = [task.reference["tolerance"] for task in tasks]
    tolerances = [None if text is None else Fraction(str(text)) for text in stated]
    return score_against([task.reference["gold"] for task in tasks], completions, tolerances)


MATH_SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        math_suite("aime24", "id", "problem", written_gold),
        math_suite("aime25", "id", "problem", written_gold),
        math_suite("amc23", "id", "problem", written_gold),
        math_suite("math500", "unique_id", "problem", written_gold),
        math_suite("minerva_math", "idx", "problem", minerva_gold),
        math_suite("gsm8k", "idx", "question", gsm8k_gold),
        math_suite("olympiadbench", "id", "question", olympiad_gold),
    )
}
