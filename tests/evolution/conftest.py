import pytest
import torch

from popu.population.adapter import Adapter, LoraConfig, new_adapter

SHAPES = {
    "layers.0.q_proj": (24, 16),
    "layers.0.down_proj": (16, 40),
    "layers.1.q_proj": (24, 16),
    "layers.1.down_proj": (16, 40),
}


@pytest.fixture
def config() -> LoraConfig:
    return LoraConfig(rank=4, alpha=6, targets=("q_proj", "down_proj"))


@pytest.fixture
def fresh(config):
    """A function giving the fresh adapter (B = 0) of a seed."""
    return lambda seed: new_adapter(SHAPES, config, torch.Generator().manual_seed(seed))


@pytest.fixture
def trained(fresh, config):
    """A function giving an adapter of a seed with B not zero."""

    def build(seed: int) -> Adapter:
        generator = torch.Generator().manual_seed(1000 + seed)
        factors = {
            module: (a, torch.randn(b.shape, generator=generator)) for module, (a, b) in fresh(seed).factors.items()
        }
        return Adapter(config, factors)

    return build
