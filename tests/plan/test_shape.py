"""What follows from a base's shape, against public counts and real tensors."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from popu.bench import operators
from popu.config import Lora
from popu.errors import ArtifactError, ConfigError
from popu.optimizer import state_tensors
from popu.plan.shape import KNOWN, adapter_bytes, adapter_parameters, optimizer_bytes, parameters, shape_of

NANO = Path(__file__).parents[2] / "resources" / "nano"
PUBLIC = {
    "qwen2.5-coder-0.5b": 494_032_768,
    "qwen2.5-coder-1.5b": 1_543_714_304,
    "qwen2.5-coder-3b": 3_085_938_688,
    "qwen2.5-coder-7b": 7_615_616_512,
    "smollm2": 134_515_008,
}


def test_parameters_are_the_public_counts():
    assert {name: parameters(shape) for name, shape in KNOWN.items()} == PUBLIC


def test_parameters_of_the_embedded_base_are_those_in_its_file():
    tensors = load_file(NANO / "model.safetensors")
    assert parameters(shape_of(NANO)) == sum(tensor.numel() for tensor in tensors.values())


def test_the_adapter_of_the_7b_base_is_that_of_the_benchmark_of_operators():
    per_layer = sum(operators.RANK * (d_out + d_in) for d_out, d_in in operators.MODULES.values())
    shape = KNOWN["qwen2.5-coder-7b"]
    assert adapter_parameters(shape, Lora(rank=operators.RANK)) == per_layer * operators.N_LAYERS == 80_740_352
    assert {name.rsplit(".", 1)[1]: size for name, size in operators.MODULES.items()} == shape.linears


def test_an_optimizer_state_is_what_adamw_stores():
    lora = Lora(rank=2, targets=("q_proj", "down_proj"))
    shape = shape_of(NANO)
    parts = {}
    for layer in range(shape.n_layers):
        for name in lora.targets:
            d_out, d_in = shape.linears[name]
            parts[f"{layer}.{name}.A"] = torch.nn.Parameter(torch.ones(lora.rank, d_in))
            parts[f"{layer}.{name}.B"] = torch.nn.Parameter(torch.ones(d_out, lora.rank))
    optimizer = torch.optim.AdamW(parts.values(), fused=True)
    sum(part.sum() for part in parts.values()).backward()
    optimizer.step()
    stored = state_tensors(optimizer, parts).values()
    assert optimizer_bytes(shape, lora) == sum(tensor.numel() * tensor.element_size() for tensor in stored)
    assert adapter_bytes(shape, lora) == sum(part.numel() * part.element_size() for part in parts.values())


@pytest.mark.parametrize("name", ["Qwen2.5-Coder-0.5B", "Qwen2.5-Coder-0.5B-Instruct"])
def test_a_base_that_is_not_there_is_known_by_its_name(tmp_path, name):
    assert shape_of(tmp_path / name) is KNOWN["qwen2.5-coder-0.5b"]


def test_bases_without_a_plan_are_named(tmp_path):
    with pytest.raises(ConfigError, match="base.path: expected a directory with config.json, or one named"):
        shape_of(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(ConfigError, match="base.path: expected a base of type llama, mistral or qwen2 .* found 'gpt2'"):
        shape_of(tmp_path)
    file.write_text(json.dumps({"model_type": "llama", "num_attention_heads": 4}))
    with pytest.raises(ArtifactError, match="expected the widths of a model, found: KeyError"):
        shape_of(tmp_path)
    with pytest.raises(ConfigError, match="training.lora.targets: expected names among q_proj.* found 'c_attn'"):
        adapter_parameters(KNOWN["smollm2"], Lora(targets=("c_attn",)))
