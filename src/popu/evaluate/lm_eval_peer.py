"""lm-eval 0.4.13's own word on answers to GSM8K beside ours: the filters and the metric of the `gsm8k` task it has.

Only the prompt is ours and nothing cuts a completion, so both judge the same text. `strict-match` reads the number
after a `####`, `flexible-extract` the last number; our scorer reads the last box, and without any a last `####`.
"""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from popu.errors import ConfigError
from popu.evaluate.peers import Comparison
from popu.evaluate.suite import BenchmarkTask, TaskScore

if TYPE_CHECKING:
    from lm_eval.api.model import LM

SUITE = "gsm8k"


class LmEvalWord(NamedTuple):
    """Whether each of its two filters finds the gold, and what `flexible-extract` finds."""

    strict: bool
    flexible: bool
    extracted: str

    @property
    def passed(self) -> bool:
        return self.flexible

    def __str__(self) -> str:
        words = {True: "right", False: "wrong"}
        return f"lm-eval: strict {words[self.strict]}, flexible {words[self.flexible]} ({self.extracted!r})"


def compare(
    tasks: Sequence[BenchmarkTask], completions: Sequence[str], scores: Sequence[TaskScore]
) -> list[Comparison]:
    """Our scores beside lm-eval's of the same completions, one a task, in their order.

    Raises ConfigError where there is no lm-eval.
    """
    _require()
    from popu.evaluate.harness.replay import Replay

    given = {task.task_id: text for task, text in zip(tasks, completions, strict=True)}
    theirs = evaluate(Replay(given), tasks, max_new_tokens=1)
    return [Comparison(task.task_id, ours, theirs[task.task_id][1]) for task, ours in zip(tasks, scores, strict=True)]


def evaluate(
    model: "LM", tasks: Sequence[BenchmarkTask], max_new_tokens: int, chat: bool = False
) -> dict[str, tuple[str, LmEvalWord]]:
    """Each task's completion by a model of lm-eval, greedy, and lm-eval's word on it, by task id.

    `chat` puts the prompt into the model's chat template. Raises as `compare`.
    """
    _require()
    import lm_eval
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.evaluator import evaluate as run

    stock = yaml.safe_load((Path(lm_eval.__file__).parent / "tasks/gsm8k/gsm8k.yaml").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="popu-lm-eval-") as directory:
        data = Path(directory) / "test.jsonl"
        documents = ({"task_id": one.task_id, "prompt": one.prompt, "gold": one.reference["gold"]} for one in tasks)
        data.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")
        task = ConfigurableTask(
            config={
                **stock,
                "dataset_path": "json",
                "dataset_name": None,
                "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": directory},
                "training_split": None,
                "fewshot_split": None,
                "num_fewshot": 0,
                "doc_to_text": "{{prompt}}",
                "doc_to_target": "{{gold}}",
                "generation_kwargs": {"until": [], "do_sample": False, "max_gen_toks": max_new_tokens},
            }
        )
        results = run(model, {SUITE: task}, bootstrap_iters=0, apply_chat_template=chat)
    assert results is not None  # as on the first of several processes
    said: dict[str, dict[str, Any]] = {}
    for sample in results["samples"][SUITE]:
        said.setdefault(sample["doc"]["task_id"], {})[sample["filter"]] = sample
    return {task_id: _word(of["strict-match"], of["flexible-extract"]) for task_id, of in said.items()}


def _word(strict: Mapping[str, Any], flexible: Mapping[str, Any]) -> tuple[str, LmEvalWord]:
    word = LmEvalWord(strict["exact_match"] == 1, flexible["exact_match"] == 1, flexible["filtered_resps"][0])
    return flexible["resps"][0][0], word


def _require() -> None:
    if find_spec("lm_eval") is None:
        raise ConfigError("lm-eval: expected 0.4.13 in this environment (envs/evaluate.txt), found none")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
