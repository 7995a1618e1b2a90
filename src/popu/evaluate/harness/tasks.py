"""What the task files of lm-eval beside this one call: rows become our tasks, completions our scores.

lm-eval brings none of its own extraction or comparison: its result differs from `math.score_against` by nothing.
"""

from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import Any

from popu.evaluate.math import score_answer
from popu.evaluate.math_sets import MATH_SUITES
from popu.evaluate.symbolic import Symbolic

SYMBOLIC = Symbolic()  # ends with this process, since its input does


def documents(suite: str, dataset: Any) -> Any:
    """Return the rows of a `datasets.Dataset` as documents: task_id, prompt, gold, tolerance (text or None)."""

    def document(row: Mapping[str, Any]) -> dict[str, Any]:
        [task] = MATH_SUITES[suite].tasks([row])
        return {"task_id": task.task_id, "prompt": task.prompt, **task.reference}

    return dataset.map(document, remove_columns=dataset.column_names)


def score(document: Mapping[str, Any], results: list[str]) -> dict[str, float]:
    """Return 1.0 or 0.0 for the one completion of a document."""
    tolerance = document["tolerance"]
    word = score_answer(
        document["gold"], results[0], SYMBOLIC.equal, None if tolerance is None else Fraction(str(tolerance))
    )
    return {"passed": float(word.passed)}


aime24, aime25, amc23, math500, minerva_math, gsm8k, olympiadbench = (
    partial(documents, suite)
    for suite in ("aime24", "aime25", "amc23", "math500", "minerva_math", "gsm8k", "olympiadbench")
)
