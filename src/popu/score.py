"""The scorers' black-box door: completions as JSON lines, the word on each as JSON lines, in order.

A line names a task of the suite, or in a suite of mathematics states the gold answer itself. A line that does neither
gets an answer with `error` in place of a score.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, model_validator

from popu.evaluate import suites
from popu.evaluate.math import score_against
from popu.evaluate.suite import BenchmarkTask, TaskScore
from popu.sandbox.executor import Profile
from popu.verify import DoorRequest, Executors, Response, request_chunks


class ScoreRequest(DoorRequest):
    """A completion with the id of its task, or with the gold answer of one that is in no suite."""

    completion: str
    task_id: str | None = None
    gold: str | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "ScoreRequest":
        if (self.task_id is None) == (self.gold is None):
            raise ValueError("task_id, gold: expected one of both")
        return self


_REQUEST = TypeAdapter(ScoreRequest)


def score_lines(
    lines: Iterable[str], name: str, executor_of: Executors, data_dir: Path | None = None
) -> Iterator[Response]:
    """One answer a line, in order; blank lines have none. The suite's data is read at the first line with a task_id.

    Raises ConfigError for an unknown suite, ArtifactError for data that cannot be used.
    """
    kind = suites.suite(name).kind

    @cache
    def tasks() -> dict[str, BenchmarkTask]:
        return {task.task_id: task for task in suites.tasks(name, data_dir)}

    for requests in request_chunks(lines, _REQUEST):
        answers: dict[int, Response] = {}
        named, golds = [], []
        for i, request in enumerate(requests):
            if isinstance(request, dict):
                answers[i] = request
            elif request.gold is not None and kind == "math":
                golds.append((i, request))
            elif request.gold is not None:
                answers[i] = {"id": request.id, "error": f"gold: expected for a suite of mathematics, {name} is none"}
            elif request.task_id in tasks():
                named.append((i, request))
            else:
                answers[i] = {"id": request.id, "error": f"task_id: expected a task of {name}, found another"}
        answers |= _scored(named, lambda of: _score_tasks(name, tasks(), of, executor_of))
        answers |= _scored(golds, _score_golds)
        yield from (answers[i] for i in range(len(requests)))


def _scored(
    requests: list[tuple[int, ScoreRequest]], score: Callable[[list[ScoreRequest]], list[TaskScore]]
) -> dict[int, Response]:
    if not requests:
        return {}
    scores = score([request for _, request in requests])
    return {
        i: {"id": request.id, "passed": word.passed, "extracted": word.extracted, "reason": word.reason}
        for (i, request), word in zip(requests, scores, strict=True)
    }


def _score_tasks(
    name: str, tasks: dict[str, BenchmarkTask], requests: list[ScoreRequest], executor_of: Executors
) -> list[TaskScore]:
    named = [tasks[request.task_id] for request in requests if request.task_id is not None]
    completions = [request.completion for request in requests]
    return suites.suite(name).score(named, completions, executor_of(Profile.EVALUATION))


def _score_golds(requests: list[ScoreRequest]) -> list[TaskScore]:
    return list(
        score_against([request.gold or "" for request in requests], [request.completion for request in requests])
    )
