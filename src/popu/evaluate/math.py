r"""The word on answers to mathematical problems: the last box of a completion against the gold.

`boxed` finds the answer, `quantities` and `answers` compare what people write in many ways, math-verify the rest.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from popu.evaluate.answers import same_answer
from popu.evaluate.boxed import final_answer
from popu.evaluate.suite import TaskScore
from popu.evaluate.symbolic import OverLimit, Symbolic

WRONG, NO_ANSWER, TRUNCATED, OVER_LIMIT = "wrong", "no_answer", "truncated", "timeout"
MAX_ANSWER_CHARACTERS = 2000  # the longest gold has 300; longer answers are wrong unread
MAX_COMPARISONS = 64  # of the parts of one answer: each has a limit on time, so they need one on their number


def score_against(
    golds: Sequence[str], completions: Sequence[str], tolerances: Sequence[Fraction | None] | None = None
) -> list[TaskScore]:
    r"""Return the word on each completion, in order: its last box against its gold.

    Reasons: "" for the gold, `wrong`, `no_answer` (see `final_answer`), `timeout` for an answer whose comparison takes
    more than 5 s of processor time or 2 GB. A gold is what would stand in the box. `tolerances` are absolute, None for
    the usual equality. Raises ValueError where the numbers of golds and completions differ.
    """
    if len(golds) != len(completions):
        raise ValueError(f"completions: expected one for each of {len(golds)} golds, got {len(completions)}")
    with Symbolic() as symbolic:
        return [
            score_answer(gold, completion, symbolic.equal, tolerance)
            for gold, completion, tolerance in zip(golds, completions, tolerances or [None] * len(golds), strict=True)
        ]


def score_answer(
    gold: str, completion: str, equal: Callable[[str, str], bool], tolerance: Fraction | None = None
) -> TaskScore:
    """Return the word on one completion; `equal` compares expressions, as `Symbolic.equal`."""
    answer = final_answer(completion)
    if answer is None:
        return TaskScore(False, NO_ANSWER, None)
    left = iter(range(MAX_COMPARISONS))

    def limited(one: str, other: str) -> bool:
        if next(left, None) is None:
            raise OverLimit
        return equal(one, other)

    try:
        passed = len(answer) <= MAX_ANSWER_CHARACTERS and same_answer(gold, answer, limited, tolerance)
    except OverLimit:
        return TaskScore(False, OVER_LIMIT, answer)
    return TaskScore(passed, "" if passed else WRONG, answer)


def mark_truncated(scores: Sequence[TaskScore], cut: Sequence[bool]) -> list[TaskScore]:
    """Return the scores with the reason `truncated` where a completion was cut at the token limit before any answer."""
    return [
        replace(score, reason=TRUNCATED) if at_limit and score.extracted is None else score
        for score, at_limit in zip(scores, cut, strict=True)
    ]
