"""The held-out suite: grammar problems that pretraining has not seen, by level and type."""

from collections.abc import Sequence

from popu.grammar.examples import problems_of, sample_example
from popu.grammar.levels import LEVELS
from popu.problems.types import PROBLEM_TYPES, Task
from popu.seeds import derive_rng


def heldout_suite(tasks_per_level: int, seed: int = 0, levels: Sequence[int] = tuple(LEVELS)) -> list[Task]:
    """`tasks_per_level` tasks of every level and problem type, distinct, the same for every run.

    Their programs are held out after normalising names and constants; of the levels that pretraining never saw, all
    are.
    """
    tasks = []
    for problem_type in PROBLEM_TYPES:
        for level in levels:
            rng = derive_rng("heldout", seed, problem_type, level)
            seen: set[str] = set()
            while len(seen) < tasks_per_level:
                example = sample_example(level, "heldout", rng)
                if example.source not in seen:
                    task_id = f"{problem_type}/{level}/{len(seen)}"
                    seen.add(example.source)
                    tasks.append(Task(task_id, level, problems_of(example, problem_type)[0]))
    return tasks
