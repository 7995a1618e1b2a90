import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from popu.population.adapter import Adapter, LoraConfig, new_adapter

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@pytest.fixture(scope="session")
def tiny_llama():
    """A function giving a fresh copy of one tiny random model, since PEFT modifies the base in place."""

    def build() -> LlamaForCausalLM:
        torch.manual_seed(0)
        config = LlamaConfig(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=40,
        )
        return LlamaForCausalLM(config).eval()

    return build


@pytest.fixture(scope="session")
def shapes(tiny_llama) -> dict[str, tuple[int, int]]:
    """(d_out, d_in) of the seven linear modules of every layer of the tiny model."""
    return {
        name: tuple(module.weight.shape)
        for name, module in tiny_llama().named_modules()
        if name.rsplit(".", 1)[-1] in TARGETS
    }


@pytest.fixture
def config() -> LoraConfig:
    return LoraConfig(rank=4, alpha=8, targets=TARGETS)


@pytest.fixture
def trained(shapes, config) -> Adapter:
    """An adapter whose B is not zero."""
    generator = torch.Generator().manual_seed(1)
    adapter = new_adapter(shapes, config, generator)
    factors = {
        module: (a, 0.3 * torch.randn(b.shape, generator=generator)) for module, (a, b) in adapter.factors.items()
    }
    return Adapter(config, factors)
