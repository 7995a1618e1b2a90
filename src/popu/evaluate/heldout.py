"""Scores members on the held-out suite of their domain: several samples at temperature 1, and greedy."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from popu.config import Run
from popu.domains.domain import domain_of
from popu.engine.base import TransformersEngine
from popu.engine.protocol import Request
from popu.population.adapter import Adapter
from popu.problems.types import Attempt, Task
from popu.sandbox.executor import Executor
from popu.sandbox.verdicts import Verdict
from popu.seeds import derive_seed

BASE = "base"  # the name of the bare base among the members


def score(
    engine: TransformersEngine,
    executor: Executor,
    settings: Run,
    tasks: Sequence[Task],
    members: Mapping[str, Adapter | None],
    samples: int,
    check: Callable[[], None] = lambda: None,
    places: Mapping[str, int] | None = None,
) -> dict[str, list[tuple[int, bool]]]:
    """For every member name (adapter None: the bare base) and task: samples correct, and whether greedy is.

    Members of different `places` (0 where none is given) draw independent samples; those in equal ones, also of two
    runs of a seed, draw equal random numbers, so that they are compared on them.
    """
    domain = domain_of(settings.training)
    adapters = {name: adapter for name, adapter in members.items() if adapter is not None}
    requests, owners = [], []
    for name, adapter in members.items():
        for i, task in enumerate(tasks):
            prompt = engine.encode(domain.solve_prompt(task.problem, settings.base.prompt_style))
            for temperature, n in ((1.0, samples), (0.0, 1)):
                requests.append(
                    Request(
                        f"{task.task_id}/{temperature}",
                        prompt,
                        None if adapter is None else name,
                        n,
                        settings.training.sampling.max_new_tokens,
                        temperature,
                        derive_seed("heldout", settings.seed, *_stream((places or {}).get(name, 0))),
                    )
                )
                owners.append((name, i, temperature))
    groups = engine.generate(requests, adapters, check)
    attempts = [
        Attempt(tasks[i].problem, engine.decode(completion.tokens), completion.finish_reason == "length")
        for (_, i, _), group in zip(owners, groups, strict=True)
        for completion in group
    ]
    judged = iter(domain.judge(attempts, executor))
    scores: dict[str, dict[int, list[Any]]] = {name: {} for name in members}
    for (name, i, temperature), group in zip(owners, groups, strict=True):
        n_correct = sum(next(judged).verdict is Verdict.CORRECT for _ in group)
        scores[name].setdefault(i, []).append(n_correct if temperature else bool(n_correct))
    return {name: [(rows[i][0], rows[i][1]) for i in range(len(tasks))] for name, rows in scores.items()}


def _stream(place: int) -> tuple[int, ...]:
    return (place,) if place else ()
