"""lm-eval over completions that are there already."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.evaluator import simple_evaluate
from lm_eval.loggers import EvaluationTracker
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


def evaluate(files: Mapping[str, Path], completions: Mapping[str, str], out: Path) -> dict[str, Any]:
    """Run lm-eval on the suites in `files`, the JSON lines of each by its name; return its results, with the samples.

    Its own result file and samples lie below `out` afterwards. `completions` has one for every `task_id`; KeyError for
    one that is missing.
    """
    tasks = [
        {"task": f"popu_{suite}", "dataset_kwargs": {"data_files": {"test": str(path.resolve())}}}
        for suite, path in files.items()
    ]
    tracker = EvaluationTracker(output_path=str(out))
    results = simple_evaluate(
        Replay(completions),
        # In a group: a task file is completed by what a task of a group says, not by a task named alone.
        tasks=[{"group": "popu_math", "task": tasks}],
        task_manager=TaskManager(include_path=str(TASK_FILES), include_defaults=False),
        evaluation_tracker=tracker,
        bootstrap_iters=0,
    )
    assert results is not None  # as on the first of several processes
    whole = dict(results)
    samples = whole.pop("samples")
    tracker.save_results_aggregated(results=dict(whole), samples=samples)
    for task, of_task in samples.items():
        tracker.save_results_samples(task_name=task, samples=of_task)
    return {**whole, "samples": samples}
