"""What an engine takes and gives: token ids in, sampled token ids with their log-probabilities out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from popu.population.adapter import Adapter

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Request:
    """`n` completions of one prompt.

    `request_id` is unique in a call and, with `seed`, decides every random number of its completions: the result does
    not depend on what else is in the batch. `adapter` names an entry of the adapters given with the call; None is the
    bare base. `temperature` 0 is greedy.
    """

    request_id: str
    prompt: tuple[int, ...]
    adapter: str | None
    n: int
    max_new_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True)
class Completion:
    """`tokens` end with EOS when `finish_reason` is `stop`; `log_probs` are those of the sampling distribution."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    finish_reason: FinishReason


class Engine(Protocol):
    """Generates with any number of adapters over one frozen base in one call."""

    def generate(self, requests: Sequence[Request], adapters: Mapping[str, Adapter]) -> list[tuple[Completion, ...]]:
        """The completions of every request, `n` each, in order."""
        ...
