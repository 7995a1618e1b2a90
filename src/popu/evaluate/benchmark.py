"""One benchmark of an evaluation: which suite, how many tasks and samples; its tasks in shards; completions judged."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from popu.config import Evaluation
from popu.errors import ArtifactError
from popu.evaluate.math import mark_truncated
from popu.evaluate.suite import BenchmarkTask
from popu.evaluate.suites import suite, tasks
from popu.sandbox.executor import Executor


@dataclass(frozen=True)
class Benchmark:
    """A suite and what moves its figures; `limit` None is the whole suite, temperature 0 one greedy answer."""

    suite: str
    samples: int
    temperature: float
    limit: int | None
    max_new_tokens: int

    @property
    def label(self) -> str:
        """The suite's name, and what departs from its protocol: `gsm8k-limit50-tokens256`."""
        parts = [self.suite]
        if self.samples > 1:
            parts.append(f"avg{self.samples}-temperature{self.temperature:g}")
        if self.limit:
            parts.append(f"limit{self.limit}")
        if self.max_new_tokens != suite(self.suite).max_new_tokens:
            parts.append(f"tokens{self.max_new_tokens}")
        return "-".join(parts)

    def tasks(self, data_dir: str | None) -> list[BenchmarkTask]:
        """The tasks that count. Raises ArtifactError for a data file that is missing or altered."""
        return tasks(self.suite, Path(data_dir) if data_dir else None, self.limit)


def benchmarks(evaluation: Evaluation) -> dict[str, Benchmark]:
    """The benchmarks of a config by label. Raises ConfigError for an unknown suite."""
    found = [benchmark(text, evaluation) for text in evaluation.suites]
    return {item.label: item for item in found}


def benchmark(text: str, evaluation: Evaluation) -> Benchmark:
    """`suite` or `suite@samples` under the section's limits."""
    name, _, samples = text.partition("@")
    return Benchmark(
        suite=name,
        samples=int(samples or 1),
        temperature=evaluation.temperature if samples else 0.0,
        limit=evaluation.limit,
        max_new_tokens=evaluation.max_new_tokens or suite(name).max_new_tokens,
    )


def shard(tasks: Sequence[BenchmarkTask], k: int, n: int) -> Sequence[BenchmarkTask]:
    """The k-th of n parts, in order, as equal as can be; empty where there are fewer tasks than parts."""
    return tasks[len(tasks) * k // n : len(tasks) * (k + 1) // n]


def judge_rows(
    item: Benchmark, tasks: Sequence[BenchmarkTask], generations: Sequence[Mapping[str, Any]], executor: Executor
) -> list[dict[str, Any]]:
    """A row of table `scores` for every generation, in order; `cut` where it hit the limit of tokens.

    Raises ArtifactError where tasks or samples of a member are missing or too many.
    """
    by_id = {task.task_id: task for task in tasks}
    _check_complete(item, by_id, generations)
    judged = suite(item.suite).score(
        [by_id[row["task_id"]] for row in generations], [row["completion"] for row in generations], executor
    )
    cut = [row["finish_reason"] == "length" for row in generations]
    return [
        {
            **{name: row[name] for name in ("member", "slot", "task_id", "sample", "prompt_path")},
            "passed": score.passed,
            "reason": score.reason,
            "cut": at_limit,
        }
        for row, score, at_limit in zip(generations, mark_truncated(judged, cut), cut, strict=True)
    ]


def _check_complete(
    item: Benchmark, tasks: Mapping[str, BenchmarkTask], generations: Sequence[Mapping[str, Any]]
) -> None:
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for row in generations:
        found[row["member"]].append((row["task_id"], row["sample"]))
    expected = sorted((task, i) for task in tasks for i in range(item.samples))
    for member, keys in found.items():
        if sorted(keys) != expected:
            raise ArtifactError(
                f"generations of {member}: expected {item.samples} samples of each of {len(tasks)} tasks of "
                f"{item.label}, found {len(keys)} rows, or other tasks"
            )
