"""Completions of a run's members on benchmark tasks, all members and the bare base in one mixed batch."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from popu.engine.base import TransformersEngine
from popu.engine.protocol import Completion, Request
from popu.errors import ArtifactError
from popu.evaluate.suite import BenchmarkTask
from popu.population.adapter import Adapter
from popu.seeds import derive_seed

PromptPath = Literal["chat", "direct"]
N_PROBES, PROBE_TOKENS = 8, 8  # greedy, to see that every adapter is applied


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
    prompts = [_prompt(engine, task, chat_prompt, path) for task in tasks]
    context = engine.model.config.max_position_embeddings
    adapters = {name: adapter for name, adapter in members.items() if adapter is not None}
    _check_applied(engine, [prompt for prompt in prompts if len(prompt) + PROBE_TOKENS <= context], adapters, check)
    planned = []
    for name in members:
        for task, prompt in zip(tasks, prompts, strict=True):
            room = min(max_new_tokens, context - len(prompt))
            adapter = name if name in adapters else None
            wanted = Request(task.task_id, prompt, adapter, samples, room, temperature, _seed(seed, name))
            planned.append((name, task, wanted))
    groups = iter(engine.generate([wanted for *_, wanted in planned if wanted.max_new_tokens > 0], adapters, check))
    cut = tuple(Completion((), (), "length") for _ in range(samples))
    done = [(name, task, next(groups) if wanted.max_new_tokens > 0 else cut) for name, task, wanted in planned]
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


def _prompt(engine: TransformersEngine, task: BenchmarkTask, chat_prompt: str, path: PromptPath) -> tuple[int, ...]:
    text = chat_prompt.format(prompt=task.prompt.strip()) if path == "chat" else task.prompt
    return engine.encode(text, chat=path == "chat")


def _check_applied(
    engine: TransformersEngine,
    prompts: Sequence[tuple[int, ...]],
    adapters: Mapping[str, Adapter],
    check: Callable[[], None],
) -> None:
    """A non-zero adapter's greedy tokens or log-probabilities differ from the base's on one of the first prompts."""
    live = {name: a for name, a in adapters.items() if any(b.any() for _, b in a.factors.values())}
    probes = [
        Request(f"probe/{i}", prompt, name, 1, PROBE_TOKENS, 0.0, 0)
        for name in (None, *live)
        for i, prompt in enumerate(prompts[:N_PROBES])
    ]
    if not live or not prompts:
        return
    said = iter(engine.generate(probes, live, check))
    by_name = {name: [next(said)[0] for _ in prompts[:N_PROBES]] for name in (None, *live)}
    for name in live:
        if by_name[name] == by_name[None]:
            raise ArtifactError(
                f"{name}: expected an adapter that changes the base's outputs, found equal ones: not applied"
            )
