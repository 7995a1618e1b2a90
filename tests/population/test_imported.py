"""Adapters that PEFT saved, taken in as founders: the model says the same with them."""

import pytest
import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from popu.population.adapter import LoraConfig, new_adapter, write_adapter
from popu.population.imported import imported

IDS = torch.tensor([[1, 5, 9, 2, 7]])


@pytest.fixture
def fresh(shapes, config):
    return new_adapter(shapes, config, torch.Generator().manual_seed(1))


@pytest.fixture
def save(tiny_llama, tmp_path):
    """Saves a trained adapter by PEFT and returns its directory and what the model says with it."""

    def make(**options):
        options = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM", **options}
        torch.manual_seed(5)
        model = get_peft_model(tiny_llama(), PeftLoraConfig(**options)).eval()
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.data.normal_(std=0.3)
        model.save_pretrained(tmp_path / "saved")
        with torch.no_grad():
            return tmp_path / "saved", model(IDS).logits

    return make


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"r": 1},
        {"r": 3, "lora_alpha": 5},
        {"use_rslora": True},
        {"r": 2, "rank_pattern": {"v_proj": 4}, "alpha_pattern": {"layers.0.self_attn.q_proj": 30}},
        {"target_modules": "all-linear"},
    ],
    ids=lambda options: "-".join(options) or "as the run's",
)
def test_the_model_says_the_same_with_what_was_taken_in(tiny_llama, save, fresh, tmp_path, options):
    directory, expected = save(**options)
    adapter = imported(directory, fresh)
    assert adapter.config == fresh.config and adapter.shapes == fresh.shapes
    write_adapter(tmp_path / "founder", adapter, "tiny", {})
    model = PeftModel.from_pretrained(tiny_llama(), str(tmp_path / "founder")).eval()
    with torch.no_grad():
        torch.testing.assert_close(model(IDS).logits, expected, rtol=1e-4, atol=1e-5)
        assert (expected - tiny_llama()(IDS).logits).abs().max() > 0.01


def test_factors_of_the_runs_shape_are_kept_bit_for_bit(save, fresh):
    directory, _ = save(target_modules=list(fresh.config.targets))
    theirs = load_file(directory / "adapter_model.safetensors")
    for name, (a, b) in imported(directory, fresh).factors.items():
        assert torch.equal(a, theirs[f"base_model.model.{name}.lora_A.weight"])
        assert torch.equal(b, theirs[f"base_model.model.{name}.lora_B.weight"])


def test_what_is_filled_up_is_fresh_and_can_be_trained(save, fresh):
    directory, _ = save(r=1)
    a, b = imported(directory, fresh).factors["model.layers.0.self_attn.q_proj"]
    assert torch.equal(a[1:], fresh.factors["model.layers.0.self_attn.q_proj"][0][1:]) and a[1:].any()
    assert not b[:, 1:].any() and b[:, 0].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"r": 6}, r"expected a rank of at most 4, found 6; set training\.lora\.rank: 6"),
        ({"use_dora": True}, "expected plain LoRA"),
        ({"bias": "all"}, "expected plain LoRA"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_to_set(save, fresh, options, message):
    directory, _ = save(**options)
    with pytest.raises(ValueError, match=message):
        imported(directory, fresh)


def test_a_module_that_the_run_does_not_adapt_is_refused_with_what_to_set(save, shapes):
    directory, _ = save(target_modules=["q_proj", "k_proj"])
    some = {name: shape for name, shape in shapes.items() if name.endswith(("q_proj", "v_proj"))}
    fresh = new_adapter(some, LoraConfig(4, 8, ("q_proj", "v_proj")), torch.Generator())
    with pytest.raises(
        ValueError, match=r"found model\.layers\.0\.self_attn\.k_proj; .*targets: \[k_proj, q_proj, v_proj\]"
    ):
        imported(directory, fresh)


def test_an_adapter_of_another_base_is_refused(save, shapes):
    directory, _ = save()
    larger = {name: (2 * d_out, d_in) for name, (d_out, d_in) in shapes.items()}
    config = LoraConfig(4, 8, tuple({name.rsplit(".", 1)[-1] for name in shapes}))
    with pytest.raises(ValueError, match="of the run's base, .d_out, d_in. .*found"):
        imported(directory, new_adapter(larger, config, torch.Generator()))


def test_a_pickle_in_place_of_safetensors_is_not_read(save, fresh):
    directory, _ = save()
    path = directory / "adapter_model.safetensors"
    torch.save(load_file(path), directory / "adapter_model.bin")
    path.unlink()
    with pytest.raises(ValueError, match="adapter_model.safetensors: expected a file, found none"):
        imported(directory, fresh)


def test_a_value_that_is_not_finite_is_refused(save, fresh):
    directory, _ = save()
    path = directory / "adapter_model.safetensors"
    tensors = load_file(path)
    next(iter(tensors.values())).view(-1)[0] = float("nan")
    save_file(tensors, path)
    with pytest.raises(ValueError, match="finite"):
        imported(directory, fresh)
