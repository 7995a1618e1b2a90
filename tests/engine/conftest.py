"""Tiny random bases and adapters with a visible effect."""

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

from popu.engine.flat import HookedForward
from popu.engine.llama import LlamaForward, is_llama_shaped
from popu.engine.multilora import MultiLora
from popu.population.adapter import Adapter, LoraConfig, new_adapter

TARGETS = ("q_proj", "v_proj", "down_proj")


SHAPE = {
    "vocab_size": 50,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "eos_token_id": 1,
}
CONFIGS = {
    "llama": LlamaConfig(**SHAPE, num_key_value_heads=4),
    "llama3": LlamaConfig(
        **SHAPE,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    ),
    "qwen2": Qwen2Config(**SHAPE, num_key_value_heads=1),
}


@pytest.fixture(scope="session", params=CONFIGS)
def model(request):
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(CONFIGS[request.param])
    for name, parameter in made.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    return made.requires_grad_(False).eval()


@pytest.fixture(scope="session")
def lora(model):
    return MultiLora(model, TARGETS)


@pytest.fixture(scope="session", params=["hooked", "llama"])
def forward(request, model, lora):
    """Both forward passes."""
    if request.param == "hooked":
        return HookedForward(model, lora)
    assert is_llama_shaped(model)
    return LlamaForward(model)


def make_adapter(lora: MultiLora, seed: int) -> Adapter:
    """An adapter whose B is not zero."""
    generator = torch.Generator().manual_seed(seed)
    fresh = new_adapter(lora.shapes, LoraConfig(4, 8.0, TARGETS), generator)
    factors = {name: (a, torch.randn(b.shape, generator=generator) * 0.3) for name, (a, b) in fresh.factors.items()}
    return Adapter(fresh.config, factors)


@pytest.fixture(scope="session")
def adapters(lora):
    return {f"m{i}@00001": make_adapter(lora, i) for i in range(3)}
