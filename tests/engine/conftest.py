"""A tiny random Llama and adapters with a visible effect."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from popu.engine.multilora import MultiLora
from popu.population.adapter import Adapter, LoraConfig, new_adapter

TARGETS = ("q_proj", "v_proj", "down_proj")


@pytest.fixture(scope="session")
def model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=256,
        eos_token_id=1,
    )
    return LlamaForCausalLM(config).requires_grad_(False).eval()


@pytest.fixture(scope="session")
def lora(model):
    return MultiLora(model, TARGETS)


def make_adapter(lora: MultiLora, seed: int) -> Adapter:
    """An adapter whose B is not zero."""
    generator = torch.Generator().manual_seed(seed)
    fresh = new_adapter(lora.shapes, LoraConfig(4, 8.0, TARGETS), generator)
    factors = {name: (a, torch.randn(b.shape, generator=generator) * 0.3) for name, (a, b) in fresh.factors.items()}
    return Adapter(fresh.config, factors)


@pytest.fixture(scope="session")
def adapters(lora):
    return {f"m{i}@00001": make_adapter(lora, i) for i in range(3)}
