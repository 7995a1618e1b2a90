"""Batched decoding with many adapters: prompts computed once, finished sequences leave the batch.

The readable reference is `decode_reference`, one sequence at a time without a cache; both give the same tokens.
"""

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from popu.engine.flat import Forward
from popu.engine.multilora import MultiLora, Segment
from popu.engine.protocol import Completion, FinishReason, Request
from popu.engine.rectangle import Rectangle
from popu.engine.trees import FlatTrees, Tree, TreeAttention
from popu.population.adapter import Adapter

COMPACT_BELOW = 0.75  # share of live sequences under which the batch is compacted
FIRST_SLAB = 16  # tokens a sequence may write before its slab doubles


class GroupAttention:
    """Attention of one new token a sequence to its prompt, which a group shares, and to what it has written so far.

    `prompts`: each layer's keys and values of the prompts, (n_groups, h_kv, width, d), padded on the right where `bias`
    (n_groups, width) is -inf. `groups`: (n,) the group of every sequence, ascending.
    """

    def __init__(self, prompts: Sequence[tuple[Tensor, Tensor]], bias: Tensor, groups: Tensor) -> None:
        self.prompts, self.bias = list(prompts), bias
        self.written: list[tuple[Tensor, Tensor]] = []
        for keys, values in prompts:
            shape = (len(groups), keys.shape[1], FIRST_SLAB, keys.shape[3])
            self.written.append((keys.new_empty(shape), values.new_empty(shape)))
        self.n_written = 0
        self._group(groups)

    def _group(self, groups: Tensor) -> None:
        """Lays the sequences out as a rectangle: a row a group, as wide as the largest."""
        self.groups = groups
        sizes = torch.bincount(groups, minlength=self.bias.shape[0])
        self.rectangle = Rectangle(sizes.tolist(), 0)

    def select(self, rows: Tensor) -> None:
        """Keeps these sequences (ascending); groups without any are left out."""
        groups = self.groups[rows]
        live, renumbered = torch.unique(groups, return_inverse=True)
        if len(live) < self.bias.shape[0]:
            self.prompts = [(keys[live], values[live]) for keys, values in self.prompts]
            self.bias = self.bias[live]
        self.written = [
            (_rows(keys, rows, self.n_written), _rows(values, rows, self.n_written)) for keys, values in self.written
        ]
        self._group(renumbered)

    def advance(self) -> None:
        """Makes room for the next token; called before every forward pass."""
        self.n_written += 1
        if self.n_written > self.written[0][0].shape[2]:
            self.written = [(_grown(keys), _grown(values)) for keys, values in self.written]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """See `flat.Attend`: n tokens, one a sequence."""
        n, h, d = q.shape
        (prompt_keys, prompt_values), (keys, values) = self.prompts[layer], self.written[layer]
        h_kv, width = prompt_keys.shape[1:3]
        keys[:, :, self.n_written - 1] = k
        values[:, :, self.n_written - 1] = v
        times = h // h_kv
        q = (q * scale).view(n, h_kv, times, d)
        own = q @ keys[:, :, : self.n_written].transpose(-1, -2)  # (n, h_kv, h / h_kv, n_written)
        shared = self._spread(q) @ prompt_keys.transpose(-1, -2) + self.bias[:, None, None].to(q.dtype)
        p = torch.softmax(torch.cat([self._gather(shared, times), own], -1), -1)
        out = p[..., width:] @ values[:, :, : self.n_written]
        return (out + self._gather(self._spread(p[..., :width]) @ prompt_values, times)).view(n, h, d)

    def _spread(self, rows: Tensor) -> Tensor:
        """(n, h_kv, times, x) -> (n_groups, h_kv, size * times, x), for one product a group."""
        _, h_kv, times, x = rows.shape
        return self.rectangle.spread(rows).transpose(1, 2).reshape(self.rectangle.n, h_kv, -1, x)

    def _gather(self, spread: Tensor, times: int) -> Tensor:
        """The way back from `_spread`."""
        groups, h_kv, _, x = spread.shape
        rows = spread.view(groups, h_kv, self.rectangle.width, times, x).transpose(1, 2)
        return self.rectangle.gather(rows)


def _rows(slab: Tensor, rows: Tensor, n_written: int) -> Tensor:
    """These rows of a slab, with as much room."""
    kept = slab.new_empty(len(rows), *slab.shape[1:])
    kept[:, :, :n_written] = slab[:, :, :n_written].index_select(0, rows)
    return kept


def _grown(slab: Tensor) -> Tensor:
    grown = slab.new_empty(*slab.shape[:2], 2 * slab.shape[2], slab.shape[3])
    grown[:, :, : slab.shape[2]] = slab
    return grown


class Decoder:
    """Decodes with a forward pass over flat rows; `check` is called before every token and may raise."""

    def __init__(self, forward: Forward, eos_ids: Sequence[int], max_batch_rows: int) -> None:
        self.forward, self.max_batch_rows = forward, max_batch_rows
        self.eos_ids = torch.tensor(sorted(eos_ids), dtype=torch.long)

    @torch.inference_mode()
    def generate(
        self,
        requests: Sequence[Request],
        adapters: Mapping[str, Adapter],
        check: Callable[[], None] = lambda: None,
    ) -> list[tuple[Completion, ...]]:
        """See `Engine.generate`. Batches hold prompts of like length, ordered by adapter."""
        done: dict[int, tuple[Completion, ...]] = {}
        for batch in _batches(requests, self.max_batch_rows):
            done |= zip(batch, self._decode([requests[i] for i in batch], adapters, check), strict=True)
        return [done[i] for i in range(len(requests))]

    def _decode(
        self, requests: Sequence[Request], adapters: Mapping[str, Adapter], check: Callable[[], None]
    ) -> list[tuple[Completion, ...]]:
        check()
        prompts, attention, logits = self._prefill(requests, adapters)
        counts = torch.tensor([request.n for request in requests])
        groups = torch.repeat_interleave(torch.arange(len(requests)), counts)
        decoding = GroupAttention(attention.kept, attention.prefixes.bias, groups)
        batch = _Batch(requests, groups)
        logits, positions = logits[groups], (prompts.positions[prompts.ends] + 1)[groups]
        segments = _segments([requests[i].adapter for i in groups.tolist()], adapters)
        while True:
            check()
            tokens = batch.sample(logits, self.eos_ids)
            keep = batch.unfinished()
            if not len(keep):
                return batch.completions()
            if len(keep) < COMPACT_BELOW * len(batch.live):
                batch.select(keep)
                decoding.select(keep)
                tokens, positions = tokens[keep], positions[keep]
                segments = _segments([requests[i].adapter for i in groups[batch.live].tolist()], adapters)
            decoding.advance()
            logits = self.forward.logits(self.forward.states(tokens, positions, segments, decoding))
            positions = positions + 1

    def _prefill(
        self, requests: Sequence[Request], adapters: Mapping[str, Adapter]
    ) -> tuple[FlatTrees, TreeAttention, Tensor]:
        """The prompts, their attention with the keys and values kept, and the logits (n, v) after each."""
        prompts = FlatTrees([Tree(request.prompt) for request in requests])
        attention = prompts.attention
        attention.keep = True
        names = [request.adapter for request in requests for _ in request.prompt]
        hidden = self.forward.states(prompts.ids, prompts.positions, _segments(names, adapters), attention)
        return prompts, attention, self.forward.logits(hidden[prompts.ends])


class _Batch:
    """The completions of one batch in the making; `live` (n,) are the sequences that are still decoded."""

    def __init__(self, requests: Sequence[Request], groups: Tensor) -> None:
        self.requests = requests
        owners = [requests[i] for i in groups.tolist()]
        self.budgets = torch.tensor([request.max_new_tokens for request in owners])
        self.temperatures = torch.tensor([request.temperature for request in owners])
        most = int(self.budgets.max())
        uniforms = np.zeros((len(owners), most))
        attempts = [k for request in requests for k in range(request.n)]
        for row, (request, k) in enumerate(zip(owners, attempts, strict=True)):
            uniforms[row, : request.max_new_tokens] = _uniforms(request, k)
        self.uniforms = torch.from_numpy(uniforms)
        self.tokens = torch.zeros(len(owners), most, dtype=torch.long)
        self.log_probs = torch.zeros(len(owners), most)
        self.lengths = torch.zeros(len(owners), dtype=torch.long)  # 0 while unfinished
        self.stopped = torch.zeros(len(owners), dtype=torch.bool)
        self.live = torch.arange(len(owners))
        self.step = 0

    def sample(self, logits: Tensor, eos_ids: Tensor) -> Tensor:
        """The next token of every live sequence (n,), recorded with its log-probability; what is finished stays so."""
        step = min(self.step, self.tokens.shape[1] - 1)
        tokens, log_probs = sample_tokens(logits, self.temperatures[self.live], self.uniforms[self.live, step])
        self.tokens[self.live, step], self.log_probs[self.live, step] = tokens, log_probs
        self.step += 1
        unfinished = self.lengths[self.live] == 0
        stops = torch.isin(tokens, eos_ids)
        ends = self.live[unfinished & (stops | (self.budgets[self.live] == self.step))]
        self.lengths[ends] = self.step
        self.stopped[self.live[unfinished & stops]] = True
        return tokens

    def unfinished(self) -> Tensor:
        """Rows of `live` that are not finished."""
        return torch.nonzero(self.lengths[self.live] == 0)[:, 0]

    def select(self, rows: Tensor) -> None:
        self.live = self.live[rows]

    def completions(self) -> list[tuple[Completion, ...]]:
        """`n` a request, in order."""
        tokens, log_probs = self.tokens.tolist(), self.log_probs.tolist()
        made = iter(
            Completion(tuple(tokens[i][:n]), tuple(log_probs[i][:n]), "stop" if stopped else "length")
            for i, (n, stopped) in enumerate(zip(self.lengths.tolist(), self.stopped.tolist(), strict=True))
        )
        return [tuple(next(made) for _ in range(request.n)) for request in self.requests]


def sample_tokens(
    logits: torch.Tensor, temperatures: torch.Tensor, uniforms: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (n,) and their log-probabilities (n,) from logits (n, v); temperature 0 takes the largest logit.

    The first token whose cumulative probability exceeds the uniform, so a token of probability 0 is never drawn.
    """
    greedy = temperatures == 0
    log_probs = torch.log_softmax(logits / torch.where(greedy, 1.0, temperatures)[:, None], -1)
    cumulative = log_probs.exp().cumsum(-1, dtype=torch.float64)
    points = uniforms.double()[:, None] * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, points, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
    if greedy.any():
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
    segments = []
    for name, run in itertools.groupby(names):
        length = sum(1 for _ in run)
        if name is None:
            segments.append(Segment(length, None))
        else:
            segments.append(Segment(length, adapters[name].factors, adapters[name].config.scale))
    return segments


def _uniforms(request: Request, k: int) -> np.ndarray:
    """One uniform in [0, 1) a token of completion `k`, a function of seed, request id, k and token index alone."""
    digest = hashlib.sha256(f"{request.seed}/{request.request_id}/{k}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big"))).random(request.max_new_tokens)


@torch.inference_mode()
def decode_reference(
    model: PreTrainedModel, lora: MultiLora, eos_ids: Sequence[int], request: Request, adapter: Adapter | None
) -> tuple[Completion, ...]:
    """The same completions one token and one sequence at a time, without cache, padding or batch."""
    factors, scale = (None, 1.0) if adapter is None else (adapter.factors, adapter.config.scale)
    completions = []
    for k in range(request.n):
        tokens: list[int] = []
        log_probs: list[float] = []
        uniforms = torch.from_numpy(_uniforms(request, k))
        while not tokens or (tokens[-1] not in eos_ids and len(tokens) < request.max_new_tokens):
            ids = torch.tensor([[*request.prompt, *tokens]])
            with lora.segments([Segment(ids.numel(), factors, scale)]):
                logits = model(input_ids=ids, use_cache=False).logits[:, -1].float()
            uniform = uniforms[len(tokens)][None]
            token, log_prob = sample_tokens(logits, torch.tensor([request.temperature]), uniform)
            tokens.append(int(token))
            log_probs.append(float(log_prob))
        reason: FinishReason = "stop" if tokens[-1] in eos_ids else "length"
        completions.append(Completion(tuple(tokens), tuple(log_probs), reason))
    return tuple(completions)
