"""Do members specialise? What a population's students solve together that none of them solves alone.

All from the rows of a held-out table: for every student and task how many of `samples` answers at temperature 1 were
correct. Answers themselves are not kept, so a majority vote counts correct samples. Students draw their samples
independently (`popu.evaluate.heldout`); all that is said of them together rests on it.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from popu.report.benchmarks import pass_at_k
from popu.report.summary import SOLVERS

Row = Mapping[str, Any]


def student_counts(rows: Sequence[Row]) -> tuple[np.ndarray, int]:
    """(n_students, n_tasks) correct samples, tasks in the order of the table, and the samples a student and task.

    The single agent is a student. Raises ValueError where students have different tasks or numbers of samples.
    """
    own = [row for row in rows if row["slot"][:1] in SOLVERS]
    tasks = {task: i for i, task in enumerate(dict.fromkeys(row["task_id"] for row in own))}
    members = {member: i for i, member in enumerate(dict.fromkeys(row["member"] for row in own))}
    samples = {row["samples"] for row in own}
    if len(samples) != 1 or len(own) != len(tasks) * len(members):
        raise ValueError(f"rows: expected all tasks with one number of samples a student, found {len(own)} rows")
    counts = np.zeros((len(members), len(tasks)), dtype=int)
    for row in own:
        counts[members[row["member"]], tasks[row["task_id"]]] = row["n_correct"]
    return counts, samples.pop()


def pass_at(k: int, n_correct: np.ndarray, samples: int) -> np.ndarray:
    """`pass_at_k` of any array of correct samples. Raises ValueError for k > samples."""
    if not 0 <= k <= samples:
        raise ValueError(f"k: expected at most {samples} samples, found {k}")
    table = np.array([pass_at_k(samples, c, k) for c in range(samples + 1)])
    chances: np.ndarray = table[n_correct]
    return chances


def equal_budget(n_members: int, samples: int) -> int | None:
    """The most answers, up to `samples`, that members can give in equal parts; None where one each is too many."""
    return n_members * (samples // n_members) or None


def any_member(counts: np.ndarray, samples: int) -> np.ndarray | None:
    """(n_tasks,) chance that one of `equal_budget` answers, equally many of every member, is correct.

    To be compared with `pass_at` the same number of answers of one agent. None where there are more members than
    samples.
    """
    budget = equal_budget(len(counts), samples)
    if budget is None:
        return None
    chances: np.ndarray = 1.0 - np.prod(1.0 - pass_at(budget // len(counts), counts, samples), axis=0)
    return chances


def majority(counts: np.ndarray, samples: int) -> np.ndarray:
    """(n_tasks,) 1 where more than half of all members' samples are correct, else 0.

    A vote among the answers would find the correct one there, and on some tasks where wrong answers disagree.
    """
    return (counts.sum(0) > samples * len(counts) / 2).astype(float)


def unsolved(counts: np.ndarray) -> np.ndarray:
    """(n_tasks,) 1 where no sample of any member is correct, else 0."""
    return (counts.sum(0) == 0).astype(float)


def both_wrong(counts: np.ndarray, samples: int) -> tuple[np.ndarray, np.ndarray] | None:
    """(n_tasks,) chances that two answers to a task are both wrong: two of one student, and one of each of two.

    Means over students and over pairs. Were all students alike on every task, however hard it is, the two would be
    equal on average; their difference is half the mean squared difference of two students' skills on a task. None for
    one student or one sample.
    """
    n_members, wrong = len(counts), samples - counts
    if n_members < 2 or samples < 2:
        return None
    of_one = (wrong * (wrong - 1)).mean(0) / (samples * (samples - 1))
    pairs = [wrong[i] * wrong[j] for i, j in combinations(range(n_members), 2)]
    return of_one, np.mean(pairs, axis=0) / samples**2
