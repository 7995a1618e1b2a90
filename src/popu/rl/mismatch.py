"""How far the engine that sampled is from the trainer, and the weights that make up for it.

The two compute the same policy with other kernels, so the tokens come from a distribution q a little beside the
trainer's p, and the update is off-policy. Truncated importance sampling weighs every token by min(p / q, cap): unbiased
where no ratio reaches the cap, of bounded variance else (Ionides 2008; for rollout engines Yao et al. 2025, "Your
efficient RL framework secretly brings you off-policy RL training", where the cap is 2).
"""

import torch
from torch import Tensor


def truncated_weights(trainer: Tensor, engine: Tensor, cap: float | None) -> Tensor | None:
    """min(exp(trainer - engine), cap) from the log-probabilities (m,) of both, no gradient; None without a cap.

    Raises ValueError where the shapes differ.
    """
    if trainer.shape != engine.shape:
        raise ValueError(f"engine: expected shape {tuple(trainer.shape)}, found {tuple(engine.shape)}")
    return None if cap is None else (trainer - engine).detach().exp().clamp(max=cap)


def mismatch(differences: Tensor, cap: float | None) -> dict[str, float | int | None]:
    """Of the differences log p - log q (n,), n >= 1, at tokens drawn from q.

    `mean_abs` and `max_abs` in nats; `kl`, an estimate of KL(q || p) in nats a token that is never negative
    (p / q - 1 - log(p / q), http://joschu.net/blog/kl-approx.html); `effective_share`, the effective sample size of
    the weights p / q over n; `cut_share`, of tokens whose ratio exceeds the cap, None without one.
    """
    d = differences.double()
    ratio = d.exp()
    return {
        "n_tokens": d.numel(),
        "mean_abs": float(d.abs().mean()),
        "max_abs": float(d.abs().max()),
        "kl": float((torch.expm1(d) - d).mean()),
        "effective_share": float(ratio.sum().square() / (d.numel() * ratio.square().sum())),
        "cut_share": None if cap is None else float((ratio > cap).double().mean()),
    }
