"""One adapter's policy-gradient step on its own sequences, prompts computed once.

Sequences of one prompt are packed into a tree; log-probabilities are recomputed here (the ratio of the first update is
1), the engine's serve for the logged mismatch, and for truncated importance sampling where the config asks for it.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from popu.config import Update
from popu.engine.flat import Forward
from popu.engine.multilora import Segment
from popu.engine.trees import FlatTrees, Tree
from popu.optimizer import load_state_tensors, state_tensors
from popu.population.adapter import Adapter
from popu.rl.loss import policy_loss
from popu.rl.mismatch import mismatch, truncated_weights

Kind = tuple[str, str]
Sums = dict[Kind, float]
KL_PROMPTS = 1  # prompts of each role and type on which the KL to the base is estimated


@dataclass(frozen=True)
class TrainSequence:
    """One completion with its advantage; `kind` (role, problem type) splits the metrics."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    engine_log_probs: tuple[float, ...]
    reward: float
    advantage: float
    kind: Kind


@dataclass(frozen=True)
class Updated:
    """The new adapter, its optimizer state, a row of metrics a kind, and one of mismatch for those that were read."""

    adapter: Adapter
    optimizer: dict[str, Tensor]
    metrics: list[dict[str, float | int | str | None]]
    mismatch: list[dict[str, float | int | str | None]]


def update_adapter(
    forward: Forward,
    adapter: Adapter,
    optimizer_state: Mapping[str, Tensor],
    sequences: Sequence[TrainSequence],
    config: Update,
    temperature: float,
    check: Callable[[], None] = lambda: None,
) -> Updated:
    """`config.epochs` AdamW steps on all sequences, token-mean over the whole batch, gradients clipped by norm.

    Without sequences the adapter and its state come back unchanged. A prompt all of whose advantages are 0 is silent:
    its loss has no gradient, so it is not read at all, and counts in the number of tokens alone.
    """
    parameters = _parameters(adapter, forward.device)
    optimizer = torch.optim.AdamW(parameters.values(), lr=config.learning_rate, weight_decay=0.0, fused=True)
    load_state_tensors(optimizer, parameters, optimizer_state)
    signal = {sequence.prompt for sequence in sequences if sequence.advantage}
    trained = _micro_batches([s for s in sequences if s.prompt in signal], config.micro_batch_tokens)
    n_tokens = sum(len(sequence.tokens) for sequence in sequences)
    old: dict[int, Tensor] = {}
    totals, kl = _Totals(), _KlToBase(forward, temperature)
    norm = 0.0
    for epoch in range(config.epochs if sequences else 0):
        for parameter in parameters.values():
            parameter.grad = torch.zeros_like(parameter)  # where every group is silent AdamW still steps on its moments
        for i, batch in enumerate(trained):
            check()
            trees = FlatTrees([tree for tree, _ in batch], forward.device)
            segments = [_segment(len(trees.ids), parameters, adapter)]
            logits = _logits(forward, trees, segments, config.gradient_checkpointing) / temperature
            log_probs = -torch.nn.functional.cross_entropy(logits, trees.tokens, reduction="none").cpu()
            old.setdefault(i, log_probs.detach())
            flat = [sequence for _, group in batch for sequence in group]
            advantage, engine = _of_tokens(flat)
            weights = truncated_weights(old[i], engine, config.importance_cap)
            stats = policy_loss(log_probs, old[i], advantage, n_tokens, config.clip_low, config.clip_high, weights)
            stats.loss.backward()
            totals.loss += stats.loss.item()
            totals.clipped += stats.clip_fraction * len(log_probs) / (n_tokens * config.epochs)
            if epoch == 0:
                logs = torch.log_softmax(logits.detach(), -1)
                totals.add_policy(flat, log_probs.detach(), engine, logs)
                kl.add(batch, logs)
        norm = float(torch.nn.utils.clip_grad_norm_(parameters.values(), config.gradient_clip))
        optimizer.step()
    totals.add_silent([s for s in sequences if s.prompt not in signal])
    updated = Adapter(adapter.config, _factors(parameters, adapter))
    metrics = totals.rows(sequences, norm, kl.means())
    return Updated(updated, state_tensors(optimizer, parameters), metrics, totals.mismatches(config.importance_cap))


def _of_tokens(sequences: Sequence[TrainSequence]) -> tuple[Tensor, Tensor]:
    """Advantage and the engine's log-probability of every token (m,)."""
    advantages = torch.tensor([s.advantage for s in sequences])
    lengths = torch.tensor([len(s.tokens) for s in sequences])
    engine = torch.tensor([log_prob for s in sequences for log_prob in s.engine_log_probs])
    return torch.repeat_interleave(advantages, lengths), engine


def _parameters(adapter: Adapter, device: torch.device) -> dict[str, torch.nn.Parameter]:
    """`<module>.A` and `<module>.B` as trainable copies on the device, float32 as they are."""
    return {
        f"{module}.{name}": torch.nn.Parameter(factor.to(device, copy=True))
        for module, factors in adapter.factors.items()
        for name, factor in zip("AB", factors, strict=True)
    }


def _factors(parameters: Mapping[str, Tensor], adapter: Adapter) -> dict[str, tuple[Tensor, Tensor]]:
    return {
        module: (parameters[f"{module}.A"].detach().cpu(), parameters[f"{module}.B"].detach().cpu())
        for module in adapter.factors
    }


def _segment(n_tokens: int, parameters: Mapping[str, Tensor], adapter: Adapter) -> Segment:
    factors = {module: (parameters[f"{module}.A"], parameters[f"{module}.B"]) for module in adapter.factors}
    return Segment(n_tokens, factors, adapter.config.scale)


MicroBatch = list[tuple[Tree, list[TrainSequence]]]


def _micro_batches(sequences: Sequence[TrainSequence], budget: int) -> list[MicroBatch]:
    """Trees of like shape together, at most `budget` tokens each but at least one tree.

    A tree is a prompt with its sequences, or with some of them where all exceed the budget: at least one.
    """
    groups: dict[tuple[int, ...], list[TrainSequence]] = {}
    for sequence in sequences:
        groups.setdefault(sequence.prompt, []).append(sequence)
    trees = [
        (Tree(prompt, [s.tokens for s in part]), part)
        for prompt, group in groups.items()
        for part in _parts(group, budget - len(prompt))
    ]
    trees.sort(key=lambda item: (max(map(len, item[0].branches)), item[0].n_tokens))
    batches: list[MicroBatch] = [[]]
    filled = 0
    for tree, group in trees:
        if batches[-1] and filled + tree.n_tokens > budget:
            batches.append([])
            filled = 0
        batches[-1].append((tree, group))
        filled += tree.n_tokens
    return batches if trees else []


def _parts(group: Sequence[TrainSequence], room: int) -> list[list[TrainSequence]]:
    """The group in order, in parts of at most `room` tokens but at least one sequence."""
    parts: list[list[TrainSequence]] = []
    filled = 0
    for sequence in group:
        filled += len(sequence.tokens)
        if not parts or filled > room:
            parts.append([])
            filled = len(sequence.tokens)
        parts[-1].append(sequence)
    return parts


def _logits(forward: Forward, trees: FlatTrees, segments: Sequence[Segment], recompute: bool = False) -> Tensor:
    """float32 logits (m, v) at the positions that predict the completions' tokens, and no others."""
    states = forward.states(trees.ids, trees.positions, segments, trees.attention, recompute)
    return forward.logits(states[trees.sources])


class _KlToBase:
    """KL(policy || base), mean over tokens, by kind, on the first `KL_PROMPTS` trained prompts of each kind."""

    def __init__(self, forward: Forward, temperature: float) -> None:
        self.forward, self.temperature = forward, temperature
        self.prompts: dict[Kind, list[Sequence[int]]] = defaultdict(list)
        self.sums: Sums = defaultdict(float)
        self.counts: Sums = defaultdict(float)

    @torch.no_grad()
    def add(self, batch: MicroBatch, logs: Tensor) -> None:
        """`logs` (m, v): the policy's log-probabilities at all positions of the batch's completions."""
        start = 0
        for tree, group in batch:
            kind, end = group[0].kind, start + sum(map(len, tree.branches))
            prompts = self.prompts[kind]
            if len(prompts) < KL_PROMPTS and tree.prefix not in prompts:
                prompts.append(tree.prefix)
            if tree.prefix in prompts:
                flat = FlatTrees([tree], self.forward.device)
                bare = _logits(self.forward, flat, [Segment(len(flat.ids), None)]) / self.temperature
                ours = logs[start:end]
                self.sums[kind] += float((ours.exp() * (ours - torch.log_softmax(bare, -1))).sum())
                self.counts[kind] += end - start
            start = end

    def means(self) -> dict[Kind, float]:
        return {kind: self.sums[kind] / self.counts[kind] for kind in self.sums}


def _by_kind(sequences: Sequence[TrainSequence], values: Tensor) -> tuple[Sums, Sums]:
    """Sums by kind of `values` (m,), one a token of the sequences in order, and the numbers of tokens."""
    kinds = sorted({sequence.kind for sequence in sequences})
    lengths = torch.tensor([len(sequence.tokens) for sequence in sequences])
    owners = torch.repeat_interleave(torch.tensor([kinds.index(s.kind) for s in sequences]), lengths)
    sums = torch.zeros(len(kinds), dtype=torch.float64).index_add(0, owners, values.double())
    counts = torch.bincount(owners, minlength=len(kinds))
    return dict(zip(kinds, sums.tolist(), strict=True)), dict(zip(kinds, counts.tolist(), strict=True))


def _add(total: Sums, part: Sums) -> None:
    for kind, value in part.items():
        total[kind] += value


class _Totals:
    """Sums over micro-batches: of the loss over all epochs, of the policy as it was before the first, by kind."""

    def __init__(self) -> None:
        self.entropy: Sums = defaultdict(float)
        self.mismatch: Sums = defaultdict(float)
        self.recomputed: Sums = defaultdict(float)  # tokens
        self.differences: dict[Kind, list[Tensor]] = defaultdict(list)
        self.loss = 0.0
        self.clipped = 0.0  # share of all tokens, over all epochs

    def add_policy(self, sequences: Sequence[TrainSequence], log_probs: Tensor, engine: Tensor, logs: Tensor) -> None:
        """Log-probabilities of the tokens taken (m,), here and in the engine, and of all tokens (m, v)."""
        _add(self.entropy, _by_kind(sequences, -(logs.exp() * logs).sum(-1).cpu())[0])
        mismatch, n_tokens = _by_kind(sequences, (log_probs - engine).abs())
        _add(self.mismatch, mismatch)
        _add(self.recomputed, n_tokens)
        lengths = [len(sequence.tokens) for sequence in sequences]
        for sequence, part in zip(sequences, (log_probs - engine).split(lengths), strict=True):
            self.differences[sequence.kind].append(part)

    def add_silent(self, sequences: Sequence[TrainSequence]) -> None:
        """What was not recomputed enters the entropy by its engine's -log p, whose expectation it is."""
        for sequence in sequences:
            self.entropy[sequence.kind] -= sum(sequence.engine_log_probs)

    def mismatches(self, cap: float | None) -> list[dict[str, float | int | str | None]]:
        return [
            {"role": kind[0], "problem_type": kind[1], **mismatch(torch.cat(self.differences[kind]), cap)}
            for kind in sorted(self.differences)
        ]

    def rows(
        self, sequences: Sequence[TrainSequence], norm: float, kl: Mapping[Kind, float]
    ) -> list[dict[str, float | int | str | None]]:
        rows: list[dict[str, float | int | str | None]] = []
        for kind in sorted({sequence.kind for sequence in sequences}):
            own = [sequence for sequence in sequences if sequence.kind == kind]
            n_tokens = sum(len(sequence.tokens) for sequence in own)
            read = self.recomputed[kind]
            rows.append(
                {
                    "role": kind[0],
                    "problem_type": kind[1],
                    "n_sequences": len(own),
                    "n_tokens": n_tokens,
                    "mean_reward": sum(sequence.reward for sequence in own) / len(own),
                    "mean_advantage_abs": sum(abs(sequence.advantage) for sequence in own) / len(own),
                    "loss": self.loss,
                    "gradient_norm": norm,
                    "clip_share": self.clipped,
                    "engine_mismatch": self.mismatch[kind] / read if read else None,
                    "entropy": self.entropy[kind] / n_tokens,
                    "kl_to_base": kl.get(kind),
                }
            )
        return rows
