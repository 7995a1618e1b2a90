"""`popu evolve-adapter` on what PEFT writes, and what PEFT makes of its children."""

import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig as PeftConfig
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from popu.cli import main
from popu.evolution.registry import OPERATORS

IDS = torch.tensor([[1, 5, 9, 2, 30, 39, 7]])


def base() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 40}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)).eval()


def save(directory: Path, seed: int, dtype: torch.dtype = torch.float32, base_name: str = "tiny", **options) -> Path:
    """A PEFT adapter with random factors, as PEFT saves it."""
    settings = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"], "task_type": "CAUSAL_LM"} | options
    model = get_peft_model(base(), PeftConfig(**settings, base_model_name_or_path=base_name))
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator).to(dtype)
    model.peft_config["default"].base_model_name_or_path = base_name
    model.save_pretrained(directory)
    return directory


def evolve(operator: str, out: Path, *parents: Path, seed: int = 0) -> int:
    return main(
        ["evolve-adapter", "--operator", operator, "--parents", *map(str, parents), "--out", str(out)]
        + ["--seed", str(seed)]
    )


def merged(directory: Path) -> dict[str, torch.Tensor]:
    """What PEFT adds to every weight of the base."""
    before = base().state_dict()
    after = PeftModel.from_pretrained(base(), str(directory)).merge_and_unload().state_dict()
    return {key: after[key] - value for key, value in before.items() if not torch.equal(after[key], value)}


VARIANTS = {
    "plain": ({}, {}),
    "another alpha": ({}, {"lora_alpha": 32}),
    "rank-stabilised": ({"use_rslora": True}, {}),
    "patterns": (
        {"rank_pattern": {"layers.1.self_attn.q_proj": 2}, "alpha_pattern": {"down_proj": 3}},
        {"rank_pattern": {"1.self_attn.q_proj": 2}, "alpha_pattern": {r"layers\.0\..*": 24}},
    ),
    "one layer only": ({"layers_to_transform": [1]}, {}),
    "the other way round": ({}, {"layers_to_transform": [1]}),
    "an expression": ({"target_modules": r".*\.(q_proj|down_proj)"}, {}),
    "bfloat16": ({"dtype": torch.bfloat16}, {"dtype": torch.bfloat16}),
}


@pytest.mark.parametrize(("first", "second"), VARIANTS.values(), ids=VARIANTS)
def test_peft_loads_the_mean_of_what_it_wrote(first, second, tmp_path):
    """`linear_0_5` of an adapter and its own double: 1.5 times its dW. Of two adapters: the best approximation."""
    one, two = save(tmp_path / "one", 1, **first), save(tmp_path / "two", 2, **second)
    assert evolve("linear_0_5", tmp_path / "child", one, two) == 0
    a, b, child = merged(one), merged(two), merged(tmp_path / "child")
    assert set(child) == set(a) | set(b)
    for key, got in child.items():
        mean = (a.get(key, torch.zeros_like(got)) + b.get(key, torch.zeros_like(got))) / 2
        rank = 2 if first.get("rank_pattern") and key.endswith("1.self_attn.q_proj.weight") else 4
        optimal = torch.linalg.svdvals(mean)[rank:].norm()
        assert (got - mean).norm() <= 1.001 * optimal + 1e-4 * mean.norm(), key


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_writes_a_directory_that_peft_loads(name, tmp_path):
    parents = [save(tmp_path / str(i), i) for i in range(OPERATORS[name].arity)]
    assert evolve(name, tmp_path / "child", *parents, seed=7) == 0
    model = PeftModel.from_pretrained(base(), str(tmp_path / "child")).eval()
    with torch.no_grad():
        assert torch.isfinite(model(IDS).logits).all()
    assert evolve(name, tmp_path / "again", *parents, seed=7) == 0
    weights = "adapter_model.safetensors"
    assert (tmp_path / "child" / weights).read_bytes() == (tmp_path / "again" / weights).read_bytes()


def test_the_card_says_where_the_child_comes_from(tmp_path, capsys):
    one, two = save(tmp_path / "one", 1), save(tmp_path / "two", 2)
    assert evolve("extrapolative", tmp_path / "child", one, two, seed=3) == 0
    card = (tmp_path / "child" / "README.md").read_text()
    for fact in ("extrapolative", "eta_max", '"one"', '"two"', "sha256", "| operator_seed | 3 |", 'base_model: "tiny"'):
        assert fact in card
    assert json.loads((tmp_path / "child" / "adapter_config.json").read_text())["base_model_name_or_path"] == "tiny"
    assert load_file(tmp_path / "child" / "adapter_model.safetensors")


@pytest.mark.parametrize(
    ("operator", "options", "message"),
    [
        ("ties", {"base_name": "other"}, "--parents: expected adapters of one base, found 'tiny' and 'other'"),
        ("ties", {"r": 8}, "expected rank 4 in both parents, found 8"),
        ("ties", {"target_modules": ["q_proj"]}, "expected ['down_proj', 'q_proj'] in both, found ['q_proj'] in one"),
        ("ties", {"use_dora": True}, "expected plain LoRA (use_dora unset), found use_dora = True"),
        ("ties", {"modules_to_save": ["lm_head"]}, "expected plain LoRA (modules_to_save unset)"),
        ("tie", {}, "--operator: operator: expected one of component_masking"),
        ("copy_parent", {}, "--parents: copy_parent: parents: expected 1, found 2"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(operator, options, message, tmp_path, capsys):
    one, two = save(tmp_path / "one", 1), save(tmp_path / "two", 2, **options)
    assert evolve(operator, tmp_path / "child", one, two) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "child").exists()


def test_an_old_directory_is_not_written_over(tmp_path, capsys):
    one = save(tmp_path / "one", 1)
    assert evolve("copy_parent", one, one) == 2
    assert "--out: expected a new or an empty directory" in capsys.readouterr().err
    assert evolve("copy_parent", tmp_path / "child", tmp_path / "none") == 2
    assert "none/adapter_config.json: expected a file, found none" in capsys.readouterr().err
