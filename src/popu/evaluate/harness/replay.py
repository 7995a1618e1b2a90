"""lm-eval over completions that are there already."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.evaluator import simple_evaluate
from lm_eval.tasks import TaskManager

TASK_FILES = Path(__file__).parent


class Replay(LM):
    """A model of lm-eval that answers each task with the completion given for its `task_id`."""

    def __init__(self, completions: Mapping[str, str]) -> None:
        super().__init__()
        self.completions = completions

    def generate_until(self, requests: list[Instance]) -> list[str]:
        return [self.completions[request.doc["task_id"]] for request in requests]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        raise NotImplementedError("loglikelihood: completions have none")

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        raise NotImplementedError("loglikelihood_rolling: completions have none")


def evaluate(files: Mapping[str, Path], completions: Mapping[str, str]) -> dict[str, Any]:
    """Return lm-eval's results, samples included, on the suites in `files`: the JSON lines of each, by its name.

    `completions` has one for every `task_id`; KeyError for one that is missing.
    """
    tasks = [
        {"task": f"popu_{suite}", "dataset_kwargs": {"data_files": {"test": str(path.resolve())}}}
        for suite, path in files.items()
    ]
    manager = TaskManager(include_path=str(TASK_FILES), include_defaults=False)
    # In a group: a task file is completed by what a task of a group says, not by a task named alone.
    results = simple_evaluate(
        Replay(completions), tasks=[{"group": "popu_math", "task": tasks}], task_manager=manager, bootstrap_iters=0
    )
    assert results is not None  # as on the first of several processes
    return dict(results)
