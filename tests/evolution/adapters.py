"""Adapters for the tests of evolution, and what they are compared by."""

import torch

from popu.evolution.factors import dense
from popu.evolution.family import Delta
from popu.population.adapter import Adapter

SHAPES = {
    "layers.0.q_proj": (24, 16),
    "layers.0.down_proj": (16, 40),
    "layers.1.q_proj": (24, 16),
    "layers.1.down_proj": (16, 40),
}


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def deltas(adapter: Adapter) -> dict[str, torch.Tensor]:
    return {m: dense(Delta(a, b, adapter.config.scale_of(m))) for m, (a, b) in adapter.factors.items()}


def flat(adapter: Adapter) -> torch.Tensor:
    return torch.cat([factor.flatten() for module in sorted(adapter.factors) for factor in adapter.factors[module]])


def random_b(adapter: Adapter, seed: int) -> Adapter:
    """The adapter with another B: N(0, 1)."""
    generator = rng(1000 + seed)
    factors = {m: (a, torch.randn(b.shape, generator=generator)) for m, (a, b) in adapter.factors.items()}
    return Adapter(adapter.config, factors)


def rotated(adapter: Adapter, seed: int) -> Adapter:
    """The same dW in other factors."""
    generator = rng(seed)
    factors = {}
    for module, (a, b) in adapter.factors.items():
        q, _ = torch.linalg.qr(torch.randn(a.shape[0], a.shape[0], generator=generator))
        factors[module] = (2 * q.T @ a, b @ q / 2)
    return Adapter(adapter.config, factors)
