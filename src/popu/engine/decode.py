"""Batched decoding with many adapters: prompts computed once, finished sequences leave the batch.

The readable reference is `decode_reference`, one sequence at a time without a cache; both give the same tokens.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from popu.engine.multilora import MultiLora, Segment
from popu.engine.protocol import Completion, FinishReason, Request
from popu.population.adapter import Adapter

COMPACT_BELOW = 0.75  # share of live sequences under which the batch is compacted


class SlabLayer(DynamicLayer):
    """A cache layer that grows by doubling, so that a decoded token does not copy what is there."""

    def __init__(self) -> None:
        super().__init__()
        self._slabs: list[torch.Tensor] = []

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        used = self.get_seq_length()
        total = used + key_states.shape[-2]
        if not self._slabs or total > self._slabs[0].shape[-2]:
            self._grow((key_states, value_states), used, total)
        for slab, states in zip(self._slabs, (key_states, value_states), strict=True):
            slab[:, :, used:total] = states
        self.keys, self.values = (slab[:, :, :total] for slab in self._slabs)
        self.is_initialized = True
        return self.keys, self.values

    def _grow(self, states: Sequence[torch.Tensor], used: int, total: int) -> None:
        grown = []
        for i, state in enumerate(states):
            n, heads, _, width = state.shape
            slab = state.new_empty(n, heads, max(total + 16, total * 5 // 4), width)
            if used:
                slab[:, :, :used] = self._slabs[i][:, :, :used]
            grown.append(slab)
        self._slabs = grown

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        total = self.get_seq_length()
        self._slabs = [slab.index_select(0, indices) for slab in self._slabs]
        self.keys, self.values = (slab[:, :, :total] for slab in self._slabs)


class SlabCache(Cache):
    """A `SlabLayer` for every layer of the model."""

    def __init__(self, n_layers: int) -> None:
        self.slabs = [SlabLayer() for _ in range(n_layers)]
        super().__init__(layers=list(self.slabs))

    def select(self, rows: torch.Tensor) -> None:
        """Keeps these rows of the batch, in this order; a row may be taken several times."""
        for slab in self.slabs:
            slab.batch_select_indices(rows)


@dataclass
class _Sequence:
    """One completion in the making."""

    request: int
    adapter: str | None
    uniforms: np.ndarray
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    finish_reason: str = ""


class Decoder:
    """Decodes on a base with :class:`MultiLora` hooks; `check` is called before every token and may raise."""

    def __init__(self, model: PreTrainedModel, lora: MultiLora, eos_ids: Sequence[int], max_batch_rows: int) -> None:
        self.model, self.lora, self.eos_ids, self.max_batch_rows = (
            model,
            lora,
            frozenset(eos_ids),
            max_batch_rows,
        )

    @torch.inference_mode()
    def generate(
        self,
        requests: Sequence[Request],
        adapters: Mapping[str, Adapter],
        check: Callable[[], None] = lambda: None,
    ) -> list[tuple[Completion, ...]]:
        """See `Engine.generate`. Batches hold prompts of like length, ordered by adapter."""
        done: dict[int, list[_Sequence]] = {}
        for batch in _batches(requests, self.max_batch_rows):
            for sequence in self._decode(batch, requests, adapters, check):
                done.setdefault(sequence.request, []).append(sequence)
        return [tuple(_completion(sequence) for sequence in done[i]) for i in range(len(requests))]

    def _decode(
        self,
        batch: Sequence[int],
        requests: Sequence[Request],
        adapters: Mapping[str, Adapter],
        check: Callable[[], None],
    ) -> list[_Sequence]:
        prompts = [requests[i] for i in batch]
        cache, mask, logits = self._prefill(prompts, adapters, check)
        sequences = [
            _Sequence(i, requests[i].adapter, _uniforms(requests[i], k)) for i in batch for k in range(requests[i].n)
        ]
        rows = torch.tensor([row for row, request in enumerate(prompts) for _ in range(request.n)])
        cache.select(rows)
        mask, logits = mask[rows], logits[rows]
        positions = mask.sum(1)
        temperatures = torch.tensor([requests[s.request].temperature for s in sequences])
        budgets = [requests[s.request].max_new_tokens for s in sequences]
        live = list(range(len(sequences)))
        for step in range(max(budgets)):
            check()
            tokens = self._sample(logits, [sequences[i] for i in live], temperatures[live], step)
            for i, token in zip(live, tokens.tolist(), strict=True):
                _advance(sequences[i], token, self.eos_ids, budgets[i])
            keep = [row for row, i in enumerate(live) if not sequences[i].finish_reason]
            if not keep:
                break
            if len(keep) < COMPACT_BELOW * len(live):
                chosen = torch.tensor(keep)
                cache.select(chosen)
                mask, positions, tokens = mask[chosen], positions[chosen], tokens[chosen]
                live = [live[row] for row in keep]
            mask = torch.cat([mask, mask.new_ones(len(live), 1)], 1)
            segments = _segments([sequences[i].adapter for i in live], adapters)
            logits = self._forward(tokens[:, None], mask[:, None, None, :], positions[:, None], cache, segments)
            positions = positions + 1
        return sequences

    def _prefill(
        self, prompts: Sequence[Request], adapters: Mapping[str, Adapter], check: Callable[[], None]
    ) -> tuple["SlabCache", torch.Tensor, torch.Tensor]:
        """Cache, mask (n, t) and next-token logits (n, v) of prompts padded on the left."""
        check()
        width = max(len(request.prompt) for request in prompts)
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        mask = torch.zeros(len(prompts), width, dtype=torch.bool)
        for row, request in enumerate(prompts):
            ids[row, width - len(request.prompt) :] = torch.tensor(request.prompt)
            mask[row, width - len(request.prompt) :] = True
        causal = torch.ones(width, width, dtype=torch.bool).tril() & mask[:, None, :]
        causal = causal | torch.eye(width, dtype=torch.bool)  # padding sees itself: no row without a key
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        cache = SlabCache(self.model.config.num_hidden_layers)
        segments = _segments([request.adapter for request in prompts], adapters)
        logits = self._forward(ids, causal[:, None], positions, cache, segments)
        return cache, mask, logits

    def _forward(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        positions: torch.Tensor,
        cache: Cache,
        segments: Sequence[Segment],
    ) -> torch.Tensor:
        with self.lora.segments(segments):
            output = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                cache=cache,
                use_cache=True,
                logits_to_keep=1,
            )
        return output.logits[:, -1].float()

    def _sample(
        self, logits: torch.Tensor, live: Sequence[_Sequence], temperatures: torch.Tensor, step: int
    ) -> torch.Tensor:
        """Next tokens (n,) by inverting the distribution at each sequence's own uniform; records log-probs."""
        uniforms = torch.tensor([sequence.uniforms[step] if not sequence.finish_reason else 0.5 for sequence in live])
        tokens, log_probs = sample_tokens(logits, temperatures, uniforms)
        for sequence, log_prob in zip(live, log_probs.tolist(), strict=True):
            if not sequence.finish_reason:
                sequence.log_probs.append(log_prob)
        return tokens


def sample_tokens(
    logits: torch.Tensor, temperatures: torch.Tensor, uniforms: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (n,) and their log-probabilities (n,) from logits (n, v); temperature 0 takes the largest logit.

    The first token whose cumulative probability exceeds the uniform, so a token of probability 0 is never drawn.
    """
    greedy = temperatures == 0
    log_probs = torch.log_softmax(logits / torch.where(greedy, 1.0, temperatures)[:, None], -1)
    cumulative = log_probs.double().exp().cumsum(-1)
    points = uniforms.double()[:, None] * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, points, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
    tokens = torch.where(greedy, logits.argmax(-1), tokens)
    return tokens, log_probs.gather(1, tokens[:, None])[:, 0]


def _batches(requests: Sequence[Request], max_rows: int) -> list[list[int]]:
    """Indices of the requests: sorted by prompt length, cut at `max_rows` completions, each ordered by adapter."""
    order = sorted(range(len(requests)), key=lambda i: (len(requests[i].prompt), i))
    batches: list[list[int]] = [[]]
    rows = 0
    for i in order:
        if batches[-1] and rows + requests[i].n > max_rows:
            batches.append([])
            rows = 0
        batches[-1].append(i)
        rows += requests[i].n
    return [sorted(batch, key=lambda i: (requests[i].adapter or "", i)) for batch in batches if batch]


def _segments(names: Sequence[str | None], adapters: Mapping[str, Adapter]) -> list[Segment]:
    """Runs of equal adapter names as segments."""
    segments: list[Segment] = []
    start = 0
    for row in range(1, len(names) + 1):
        if row == len(names) or names[row] != names[start]:
            name = names[start]
            if name is None:
                segments.append(Segment(row - start, None))
            else:
                segments.append(Segment(row - start, adapters[name].factors, adapters[name].config.scale))
            start = row
    return segments


def _uniforms(request: Request, k: int) -> np.ndarray:
    """One uniform in [0, 1) a token of completion `k`, a function of seed, request id, k and token index alone."""
    digest = hashlib.sha256(f"{request.seed}/{request.request_id}/{k}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big"))).random(request.max_new_tokens)


def _advance(sequence: _Sequence, token: int, eos_ids: frozenset[int], budget: int) -> None:
    if sequence.finish_reason:
        return
    sequence.tokens.append(token)
    if token in eos_ids:
        sequence.finish_reason = "stop"
    elif len(sequence.tokens) == budget:
        sequence.finish_reason = "length"


def _completion(sequence: _Sequence) -> Completion:
    reason: FinishReason = "stop" if sequence.finish_reason == "stop" else "length"
    return Completion(tuple(sequence.tokens), tuple(sequence.log_probs), reason)


@torch.inference_mode()
def decode_reference(
    model: PreTrainedModel, lora: MultiLora, eos_ids: Sequence[int], request: Request, adapter: Adapter | None
) -> tuple[Completion, ...]:
    """The same completions one token and one sequence at a time, without cache, padding or batch."""
    segments = [Segment(1, None)] if adapter is None else [Segment(1, adapter.factors, adapter.config.scale)]
    completions = []
    for k in range(request.n):
        sequence = _Sequence(0, request.adapter, _uniforms(request, k))
        while not sequence.finish_reason:
            ids = torch.tensor([[*request.prompt, *sequence.tokens]])
            with lora.segments(segments):
                logits = model(input_ids=ids, use_cache=False).logits[:, -1].float()
            uniform = torch.tensor([sequence.uniforms[len(sequence.tokens)]])
            token, log_prob = sample_tokens(logits, torch.tensor([request.temperature]), uniform)
            sequence.log_probs.append(log_prob.item())
            _advance(sequence, int(token.item()), frozenset(eos_ids), request.max_new_tokens)
        completions.append(_completion(sequence))
    return tuple(completions)
