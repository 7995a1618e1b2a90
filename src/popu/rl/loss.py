"""The clipped policy-gradient loss, token-mean over one adapter's whole batch.

`policy_loss` sees one micro-batch of flattened completion tokens and divides by the token count of the whole
batch, so the losses and the gradients of the micro-batches add up to those of the batch whatever its split.
`reference_loss` is the same in loops, to be read and tested against.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

CLIP_LOW = 0.2
CLIP_HIGH = 0.28


@dataclass(frozen=True)
class LossStats:
    """A micro-batch's share of the loss, and what to log about it.

    Args:
        loss: scalar with gradient: sum over its tokens / tokens of the whole batch.
        clip_fraction: share of its tokens whose gradient the clip cut off.
        ratio_mean: mean of its tokens' probability ratios (1 on the first update of a batch).
        n_tokens: how many tokens these shares are of, to weight them across micro-batches.
    """

    loss: Tensor
    clip_fraction: float
    ratio_mean: float
    n_tokens: int


def token_log_probs(logits: Tensor, ids: Tensor) -> Tensor:
    """Log-probability (n, t) float32, at temperature 1, of each id under the logits at its own position.

    The caller shifts: ``logits[:, j]`` must be the model's output at the token before ``ids[:, j]``.

    Args:
        logits: (n, t, v), any floating dtype. ids: (n, t) integers in [0, v).

    Raises:
        ValueError: shapes do not fit.
    """
    if logits.dim() != 3 or ids.shape != logits.shape[:2]:
        raise ValueError(f"ids: expected shape {tuple(logits.shape[:2])}, found {tuple(ids.shape)}")
    losses = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), ids.flatten(), reduction="none")
    return -losses.view(ids.shape)


def policy_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantage: Tensor,
    n_tokens_total: int,
    clip_low: float = CLIP_LOW,
    clip_high: float = CLIP_HIGH,
    weights: Tensor | None = None,
) -> LossStats:
    """-sum(w min(ratio A, clip(ratio, 1 - low, 1 + high) A)) / n_tokens_total (PPO's objective, asymmetric
    clip).

    Args:
        logp: (m,) with gradient. old_logp: (m,) from the policy that took the actions, no gradient flows into
            it.
        advantage: (m,), the sequence's advantage repeated for each of its tokens, no gradient.
        n_tokens_total: completion tokens (EOS included) of the adapter's whole batch, >= m.
        weights: (m,) of `mismatch.truncated_weights`; None is 1 everywhere.

    Raises:
        ValueError: shapes differ, or n_tokens_total < max(m, 1). An empty micro-batch (m = 0) has loss 0.
    """
    n_tokens = logp.numel()
    if logp.dim() != 1 or old_logp.shape != logp.shape or advantage.shape != logp.shape:
        raise ValueError(
            f"logp, old_logp, advantage: expected one shape (m,), found {tuple(logp.shape)},"
            f" {tuple(old_logp.shape)}, {tuple(advantage.shape)}"
        )
    if n_tokens_total < max(n_tokens, 1):
        raise ValueError(f"n_tokens_total: expected >= {max(n_tokens, 1)}, found {n_tokens_total}")
    advantage = advantage.detach()
    ratio = (logp - old_logp.detach()).exp()
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    objective = torch.minimum(ratio * advantage, clipped * advantage)
    loss = -(objective if weights is None else weights * objective).sum() / n_tokens_total
    if n_tokens == 0:
        return LossStats(loss, 0.0, 1.0, 0)
    cut = ((ratio > 1.0 + clip_high) & (advantage > 0)) | ((ratio < 1.0 - clip_low) & (advantage < 0))
    return LossStats(loss, cut.float().mean().item(), ratio.detach().mean().item(), n_tokens)


def reference_loss(
    logits: Sequence[Tensor],
    ids: Sequence[Sequence[int]],
    old_log_probs: Sequence[Sequence[float]],
    advantage: Sequence[float],
    clip_low: float = CLIP_LOW,
    clip_high: float = CLIP_HIGH,
    engine_log_probs: Sequence[Sequence[float]] | None = None,
    importance_cap: float = math.inf,
) -> Tensor:
    """The loss of a whole batch, one sequence and one token at a time: slow, for tests.

    Args:
        logits: per sequence (t_i, v), aligned with its ids. ids, old_log_probs: per sequence t_i values.
        advantage: one value per sequence.
        engine_log_probs: as old_log_probs, of the engine that sampled: tokens are weighed by truncated importance.
    """
    engine = old_log_probs if engine_log_probs is None else engine_log_probs
    total = torch.zeros(())
    n_tokens = 0
    for sequence_logits, *sequence, a in zip(logits, ids, old_log_probs, engine, advantage, strict=True):
        for row, token, old, sampled in zip(sequence_logits, *sequence, strict=True):
            logp = row[token] - torch.logsumexp(row, dim=0)
            ratio = torch.exp(logp - old)
            if a >= 0:
                objective = a * (ratio if ratio <= 1 + clip_high else torch.tensor(1 + clip_high))
            else:
                objective = a * (ratio if ratio >= 1 - clip_low else torch.tensor(1 - clip_low))
            total = total - min(math.exp(old - sampled), importance_cap) * objective
            n_tokens += 1
    return total / n_tokens
