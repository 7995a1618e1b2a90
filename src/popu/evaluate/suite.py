"""A benchmark suite: its tasks, and the word on one completion of each.

Data is read by `popu.evaluate.data`; the suites are `popu.evaluate.code`, `livecodebench`, `cruxeval` and `math`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from popu.evaluate.sources import Source
from popu.sandbox.executor import Executor


@dataclass(frozen=True)
class BenchmarkTask:
    """One task: `prompt` is what the model is asked, `reference` what scoring needs and no model sees."""

    task_id: str
    prompt: str
    reference: Mapping[str, Any]


@dataclass(frozen=True)
class TaskScore:
    """The word on one completion; `reason` says why it does not pass, "" where it does; `extracted` is
    the program or the answer that was found in it, None for none."""

    passed: bool
    reason: str
    extracted: str | None


@dataclass(frozen=True)
class Suite:
    """`tasks` reads the rows of the suite's data file; `score` judges one completion a task, in their order.

    `kind` is `code`, `math` or `reasoning`: the group of columns in tables. `max_new_tokens` is the protocol's.
    """

    name: str
    kind: str
    max_new_tokens: int
    tasks: Callable[[Sequence[Mapping[str, Any]]], list[BenchmarkTask]]
    score: Callable[[Sequence[BenchmarkTask], Sequence[str], Executor], list[TaskScore]]
    chat_prompt: str = "{prompt}"
    """What a chat model is asked; a base model goes on where the bare prompt ends."""
    sources: tuple[Source, ...] = ()
    """The data files of an installed suite, whose rows `tasks` is given; without any it makes its tasks itself. Ours
    have theirs in `popu.evaluate.sources.SOURCES`."""
