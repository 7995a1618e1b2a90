"""Completions of a run's members on benchmark tasks, all members and the bare base in one mixed batch."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from popu.engine.base import TransformersEngine
from popu.engine.protocol import Completion, Request
from popu.errors import ArtifactError
from popu.evaluate.suite import BenchmarkTask
from popu.population.adapter import Adapter
from popu.seeds import derive_seed

PromptPath = Literal["chat", "direct"]


def prompt_path(engine: TransformersEngine) -> PromptPath:
    """`chat` where the tokenizer has a chat template, else the bare text; the path moves scores by tens of points."""
    return "chat" if engine.tokenizer.chat_template else "direct"


def complete(
    engine: TransformersEngine,
    tasks: Sequence[BenchmarkTask],
    members: Mapping[str, Adapter | None],
    samples: int,
    temperature: float,
    max_new_tokens: int,
    seed: int,
    chat_prompt: str = "{prompt}",
    check: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """A row a member (adapter None: the bare base), task and sample, columns of table `generations` but for the slot.

    Temperature 0 is greedy. A prompt that leaves no room for a token in the base's context yields an empty completion
    that counts as cut. Raises ArtifactError for an adapter that changes nothing: it was not applied.
    """
    path = prompt_path(engine)
    context = engine.model.config.max_position_embeddings
    planned = []
    for name, adapter in members.items():
        for task in tasks:
            text = chat_prompt.format(prompt=task.prompt.strip()) if path == "chat" else task.prompt
            prompt = engine.encode(text, chat=path == "chat")
            room = min(max_new_tokens, context - len(prompt))
            wanted = Request(
                task.task_id, prompt, None if adapter is None else name, samples, room, temperature, _seed(seed, name)
            )
            planned.append((name, task, wanted))
    groups = iter(
        engine.generate(
            [wanted for *_, wanted in planned if wanted.max_new_tokens > 0],
            {name: adapter for name, adapter in members.items() if adapter is not None},
            check,
        )
    )
    cut = tuple(Completion((), (), "length") for _ in range(samples))
    done = [(name, task, next(groups) if wanted.max_new_tokens > 0 else cut) for name, task, wanted in planned]
    _check_applied(members, done)
    return [
        {
            "member": name,
            "task_id": task.task_id,
            "sample": i,
            "prompt_path": path,
            "completion": engine.decode(completion.tokens),
            "n_tokens": len(completion.tokens),
            "finish_reason": completion.finish_reason,
        }
        for name, task, group in done
        for i, completion in enumerate(group)
    ]


def _seed(seed: int, member: str) -> int:
    """Members draw apart: equal random numbers would tie their errors together."""
    return derive_seed("benchmark", seed, member)


def _check_applied(
    members: Mapping[str, Adapter | None], done: Iterable[tuple[str, BenchmarkTask, Sequence[Completion]]]
) -> None:
    """Log-probabilities of a non-zero adapter differ from the base's somewhere, else it silently served the base."""
    said: dict[str, list[tuple[Any, ...]]] = {}
    for name, _, group in done:
        said.setdefault(name, []).extend((c.tokens, c.log_probs) for c in group)
    bases = [said[name] for name, adapter in members.items() if adapter is None and name in said]
    for name, adapter in members.items():
        if adapter is None or not bases or not any(tokens for tokens, _ in said[name]):
            continue
        if any(b.any() for _, b in adapter.factors.values()) and said[name] == bases[0]:
            raise ArtifactError(
                f"{name}: expected an adapter that changes the base's outputs, found equal ones: not applied"
            )
