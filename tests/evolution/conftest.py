import pytest
from adapters import SHAPES, random_b, rng

from popu.population.adapter import LoraConfig, new_adapter


@pytest.fixture
def config() -> LoraConfig:
    return LoraConfig(rank=4, alpha=6, targets=("q_proj", "down_proj"))


@pytest.fixture
def fresh(config):
    """A function giving the fresh adapter (B = 0) of a seed."""
    return lambda seed: new_adapter(SHAPES, config, rng(seed))


@pytest.fixture
def trained(fresh):
    """A function giving an adapter of a seed with B not zero."""
    return lambda seed: random_b(fresh(seed), seed)
