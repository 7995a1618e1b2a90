"""One adapter's policy-gradient step on its own sequences, prompts computed once.

Sequences of one prompt are packed into a tree; log-probabilities are recomputed here (the ratio of the first update is
1), the engine's serve for the logged mismatch alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from popu.config import Update
from popu.engine.multilora import MultiLora, Segment
from popu.engine.packing import PackedTrees, Tree, pack
from popu.optimizer import load_state_tensors, state_tensors
from popu.population.adapter import Adapter
from popu.rl.loss import policy_loss

KL_PROMPTS = 2  # prompts of each role and type on which the KL to the base is estimated


@dataclass(frozen=True)
class TrainSequence:
    """One completion with its advantage; `kind` (role, problem type) splits the metrics."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    engine_log_probs: tuple[float, ...]
    reward: float
    advantage: float
    kind: tuple[str, str]


@dataclass(frozen=True)
class Updated:
    """The new adapter, its optimizer state, and one metrics row a kind."""

    adapter: Adapter
    optimizer: dict[str, Tensor]
    metrics: list[dict[str, float | int | str]]


def update_adapter(
    model: PreTrainedModel,
    lora: MultiLora,
    adapter: Adapter,
    optimizer_state: Mapping[str, Tensor],
    sequences: Sequence[TrainSequence],
    config: Update,
    temperature: float,
    check: Callable[[], None] = lambda: None,
) -> Updated:
    """`config.epochs` AdamW steps on all sequences, token-mean over the whole batch, gradients clipped by norm.

    Without sequences the adapter and its state come back unchanged. A prompt all of whose advantages are 0 is silent:
    its loss has no gradient, so it is read once, for the metrics alone.
    """
    parameters = _parameters(adapter)
    optimizer = torch.optim.AdamW(parameters.values(), lr=config.learning_rate, weight_decay=0.0)
    load_state_tensors(optimizer, parameters, optimizer_state)
    signal = {sequence.prompt for sequence in sequences if sequence.advantage}
    trained = _micro_batches([s for s in sequences if s.prompt in signal], config.micro_batch_tokens)
    silent = _micro_batches([s for s in sequences if s.prompt not in signal], config.micro_batch_tokens)
    n_tokens = sum(len(sequence.tokens) for sequence in sequences)
    old: dict[int, Tensor] = {}
    totals = _Totals()
    norm = 0.0

    def policy(batch: MicroBatch) -> tuple[list[TrainSequence], Tensor, Tensor]:
        check()
        packed = pack([tree for tree, _ in batch])
        logits = _logits(model, lora, packed, _segment(packed.n_rows, parameters, adapter)) / temperature
        log_probs = -torch.nn.functional.cross_entropy(logits, packed.tokens, reduction="none")
        return [sequence for _, group in batch for sequence in group], log_probs, logits

    with torch.no_grad():
        for batch in silent:
            totals.add_policy(*policy(batch))
    for epoch in range(config.epochs if sequences else 0):
        for parameter in parameters.values():
            parameter.grad = torch.zeros_like(parameter)  # where every group is silent AdamW still steps on its moments
        for i, batch in enumerate(trained):
            flat, log_probs, logits = policy(batch)
            old.setdefault(i, log_probs.detach())
            advantage = torch.repeat_interleave(
                torch.tensor([s.advantage for s in flat]), torch.tensor([len(s.tokens) for s in flat])
            )
            stats = policy_loss(log_probs, old[i], advantage, n_tokens, config.clip_low, config.clip_high)
            stats.loss.backward()
            totals.loss += stats.loss.item()
            totals.clipped += stats.clip_fraction * len(log_probs) / (n_tokens * config.epochs)
            if epoch == 0:
                totals.add_policy(flat, log_probs.detach(), logits.detach())
        norm = float(torch.nn.utils.clip_grad_norm_(parameters.values(), config.gradient_clip))
        optimizer.step()
    updated = Adapter(adapter.config, _factors(parameters, adapter))
    kl = _kl_to_base(model, lora, adapter, sequences, temperature)
    return Updated(updated, state_tensors(optimizer, parameters), totals.rows(sequences, norm, kl))


def _parameters(adapter: Adapter) -> dict[str, torch.nn.Parameter]:
    """`<module>.A` and `<module>.B` as trainable copies."""
    return {
        f"{module}.{name}": torch.nn.Parameter(factor.clone())
        for module, factors in adapter.factors.items()
        for name, factor in zip("AB", factors, strict=True)
    }


def _factors(parameters: Mapping[str, Tensor], adapter: Adapter) -> dict[str, tuple[Tensor, Tensor]]:
    return {
        module: (parameters[f"{module}.A"].detach(), parameters[f"{module}.B"].detach()) for module in adapter.factors
    }


def _segment(n_rows: int, parameters: Mapping[str, Tensor], adapter: Adapter) -> Segment:
    factors = {module: (parameters[f"{module}.A"], parameters[f"{module}.B"]) for module in adapter.factors}
    return Segment(n_rows, factors, adapter.config.scale)


MicroBatch = list[tuple[Tree, list[TrainSequence]]]


def _micro_batches(sequences: Sequence[TrainSequence], budget: int) -> list[MicroBatch]:
    """Trees (one a prompt) of like length together, at most `budget` padded tokens each but at least one tree."""
    groups: dict[tuple[int, ...], list[TrainSequence]] = {}
    for sequence in sequences:
        groups.setdefault(sequence.prompt, []).append(sequence)
    trees = [(Tree(prompt, [s.tokens for s in group]), group) for prompt, group in groups.items()]
    trees.sort(key=lambda item: item[0].n_tokens)
    batches: list[MicroBatch] = [[]]
    for tree, group in trees:
        if batches[-1] and (len(batches[-1]) + 1) * tree.n_tokens > budget:
            batches.append([])
        batches[-1].append((tree, group))
    return batches if trees else []


def _logits(model: PreTrainedModel, lora: MultiLora, packed: PackedTrees, segment: Segment) -> Tensor:
    """float32 logits (m, v) at the positions that predict the completions' tokens, and no others."""
    with lora.segments([segment]):
        states = model.get_decoder()(
            input_ids=packed.ids,
            attention_mask=packed.mask,
            position_ids=packed.positions,
            use_cache=False,
        ).last_hidden_state
    return model.get_output_embeddings()(states[packed.rows, packed.sources]).float()


@torch.no_grad()
def _kl_to_base(
    model: PreTrainedModel,
    lora: MultiLora,
    adapter: Adapter,
    sequences: Sequence[TrainSequence],
    temperature: float,
) -> dict[tuple[str, str], float]:
    """Mean over tokens of KL(adapter before this update || base), by kind, on the first `KL_PROMPTS` prompts."""
    kl: dict[tuple[str, str], float] = {}
    for kind in sorted({sequence.kind for sequence in sequences}):
        prompts = list(dict.fromkeys(s.prompt for s in sequences if s.kind == kind))[:KL_PROMPTS]
        chosen = [s for s in sequences if s.kind == kind and s.prompt in set(prompts)]
        packed = pack([tree for batch in _micro_batches(chosen, 1 << 30) for tree, _ in batch])
        with_adapter = Segment(packed.n_rows, adapter.factors, adapter.config.scale)
        ours = torch.log_softmax(_logits(model, lora, packed, with_adapter) / temperature, -1)
        base = torch.log_softmax(_logits(model, lora, packed, Segment(packed.n_rows, None)) / temperature, -1)
        kl[kind] = float((ours.exp() * (ours - base)).sum(-1).mean())
    return kl


class _Totals:
    """Sums over micro-batches: of the loss over all epochs, of the policy as it was before the first, by kind."""

    def __init__(self) -> None:
        self.sums: dict[tuple[str, str], dict[str, float]] = {}
        self.loss = 0.0
        self.clipped = 0.0  # share of all tokens, over all epochs

    def add_policy(self, sequences: Sequence[TrainSequence], log_probs: Tensor, logits: Tensor) -> None:
        logs = torch.log_softmax(logits, -1)
        entropy = -(logs.exp() * logs).sum(-1)
        start = 0
        for sequence in sequences:
            end = start + len(sequence.tokens)
            engine = torch.tensor(sequence.engine_log_probs)
            sums = self.sums.setdefault(sequence.kind, {"tokens": 0, "entropy": 0.0, "mismatch": 0.0})
            sums["tokens"] += end - start
            sums["entropy"] += float(entropy[start:end].sum())
            sums["mismatch"] += float((log_probs[start:end] - engine).abs().sum())
            start = end

    def rows(
        self, sequences: Sequence[TrainSequence], norm: float, kl: Mapping[tuple[str, str], float]
    ) -> list[dict[str, float | int | str]]:
        rows: list[dict[str, float | int | str]] = []
        for kind, sums in sorted(self.sums.items()):
            own = [sequence for sequence in sequences if sequence.kind == kind]
            rows.append(
                {
                    "role": kind[0],
                    "problem_type": kind[1],
                    "n_sequences": len(own),
                    "n_tokens": sum(len(sequence.tokens) for sequence in own),
                    "mean_reward": sum(sequence.reward for sequence in own) / len(own),
                    "mean_advantage_abs": sum(abs(sequence.advantage) for sequence in own) / len(own),
                    "loss": self.loss,
                    "gradient_norm": norm,
                    "clip_share": self.clipped,
                    "engine_mismatch": sums["mismatch"] / sums["tokens"],
                    "entropy": sums["entropy"] / sums["tokens"],
                    "kl_to_base": kl[kind],
                }
            )
        return rows
