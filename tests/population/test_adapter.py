import json
import math
import shutil
from dataclasses import replace

import pytest
import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from popu.population.adapter import (
    CARD_FILE,
    CONFIG_FILE,
    WEIGHTS_FILE,
    Adapter,
    LoraConfig,
    new_adapter,
    read_adapter,
    write_adapter,
)

Q0 = "model.layers.0.self_attn.q_proj"
KEY = f"base_model.model.{Q0}.lora_A.weight"
IDS = torch.tensor([[1, 5, 9, 2, 30, 39, 7]])


def equal(one: Adapter, two: Adapter) -> bool:
    return (
        one.config == two.config
        and one.factors.keys() == two.factors.keys()
        and all(
            torch.equal(x, y)
            for module in one.factors
            for x, y in zip(one.factors[module], two.factors[module], strict=True)
        )
    )


def merged_logits(model, adapter: Adapter) -> torch.Tensor:
    with torch.no_grad():
        for module, (a, b) in adapter.factors.items():
            model.get_submodule(module).weight += adapter.config.scale * (b @ a)
        return model(IDS).logits


@pytest.fixture
def written(tmp_path, trained):
    write_adapter(tmp_path / "one", trained, "tiny", {"member": "s3.g2"})
    return tmp_path / "one"


def edit_config(directory, **changes) -> None:
    path = directory / CONFIG_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("rslora", [False, True])
def test_peft_loads_what_is_written(tiny_llama, trained, tmp_path, rslora):
    adapter = Adapter(replace(trained.config, rslora=rslora, alpha=6.5), trained.factors)
    write_adapter(tmp_path, adapter, "tiny", {})
    model = PeftModel.from_pretrained(tiny_llama(), str(tmp_path)).eval()
    with torch.no_grad():
        logits = model(IDS).logits
    torch.testing.assert_close(logits, merged_logits(tiny_llama(), adapter), rtol=1e-4, atol=1e-5)
    assert (logits - tiny_llama()(IDS).logits).abs().max() > 0.01


def test_what_peft_writes_is_read(tiny_llama, trained, shapes, tmp_path):
    peft_config = PeftLoraConfig(r=4, lora_alpha=8, target_modules=list(trained.config.targets), task_type="CAUSAL_LM")
    model = get_peft_model(tiny_llama(), peft_config)
    state = {key: value for key, value in model.named_parameters() if "lora_" in key}
    for module, (a, b) in trained.factors.items():
        state[f"base_model.model.{module}.lora_A.default.weight"].data.copy_(a)
        state[f"base_model.model.{module}.lora_B.default.weight"].data.copy_(b)
    model.save_pretrained(tmp_path)
    assert equal(read_adapter(tmp_path, shapes), trained)


def test_new_adapter_matches_peft_initialisation(tiny_llama, config, shapes):
    adapter = new_adapter(shapes, config, torch.Generator().manual_seed(3))
    peft_config = PeftLoraConfig(r=4, lora_alpha=8, target_modules=list(config.targets))
    model = get_peft_model(tiny_llama(), peft_config)
    theirs = torch.cat([p.flatten() for n, p in model.named_parameters() if "lora_A" in n and ".q_proj" in n])
    ours = torch.cat([a.flatten() for m, (a, _) in adapter.factors.items() if m.endswith("q_proj")])
    bound = 1 / math.sqrt(32)
    assert 0.9 * bound < ours.abs().max() <= bound and 0.9 * bound < theirs.abs().max() <= bound
    assert ours.std().item() == pytest.approx(theirs.std().item(), rel=0.15)
    assert all(not b.any() for _, b in adapter.factors.values())
    first = sorted(shapes)[0]
    golden = torch.empty(4, shapes[first][1])
    torch.nn.init.kaiming_uniform_(golden, a=math.sqrt(5), generator=torch.Generator().manual_seed(3))
    assert torch.equal(adapter.factors[first][0], golden)


def test_new_adapter_ignores_the_order_of_shapes(config, shapes):
    backwards = dict(reversed(shapes.items()))
    one, two = (new_adapter(s, config, torch.Generator().manual_seed(3)) for s in (shapes, backwards))
    assert equal(one, two)
    assert not equal(one, new_adapter(shapes, config, torch.Generator().manual_seed(4)))


def test_round_trip_and_identical_bytes(trained, written, shapes, tmp_path):
    assert equal(read_adapter(written, shapes), trained)
    shuffled = Adapter(trained.config, dict(reversed(trained.factors.items())))
    write_adapter(tmp_path / "two", shuffled, "tiny", {"member": "s3.g2"})
    write_adapter(tmp_path / "three", read_adapter(written), "tiny", {"member": "s3.g2"})
    for name in (CONFIG_FILE, WEIGHTS_FILE, CARD_FILE):
        assert (written / name).read_bytes() == (tmp_path / "three" / name).read_bytes()
        assert (written / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert sorted(path.name for path in written.iterdir()) == sorted([CONFIG_FILE, WEIGHTS_FILE, CARD_FILE])


def test_card_escapes_its_values(trained, tmp_path):
    write_adapter(tmp_path, trained, "a\nb: c", {"k|<b>": "x | <script>\n# `y`"})
    text = (tmp_path / CARD_FILE).read_text()
    body = text.split("---\n", 2)[2]
    assert "<script>" not in text and "\n# `y`" not in text and "<b>" not in text
    assert all(line.count("|") == 3 for line in body.splitlines() if line.startswith("|"))
    assert text.splitlines()[1] == 'base_model: "a\\nb: c"'


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_files_become_float32(written, trained, dtype):
    path = written / WEIGHTS_FILE
    save_file({key: value.to(dtype) for key, value in load_file(path).items()}, path)
    a, b = read_adapter(written).factors[Q0]
    assert a.dtype == b.dtype == torch.float32
    assert torch.equal(a, trained.factors[Q0][0].to(dtype).float())


@pytest.mark.parametrize("name", [CONFIG_FILE, WEIGHTS_FILE])
def test_missing_file(written, name):
    (written / name).unlink()
    with pytest.raises(ValueError, match=rf"{name}: expected a file, found none"):
        read_adapter(written)


@pytest.mark.parametrize("name", [CONFIG_FILE, WEIGHTS_FILE])
@pytest.mark.parametrize("keep", [0, 5, 0.5, -1])
def test_truncated_file(written, name, keep):
    data = (written / name).read_bytes()
    (written / name).write_bytes(data[: int(keep * len(data)) if isinstance(keep, float) else keep - (keep < 0)])
    with pytest.raises(ValueError, match=name):
        read_adapter(written)


@pytest.mark.parametrize("text", ["\xff\xfe", "[" * 100_000, "null", "[]", '{"peft_type": "IA3"}'])
def test_config_that_is_none(written, text):
    (written / CONFIG_FILE).write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=CONFIG_FILE):
        read_adapter(written)


@pytest.mark.parametrize(
    "change",
    [
        {"rank_pattern": {"q_proj": 2.5}},
        {"rank_pattern": ["q_proj"]},
        {"alpha_pattern": {"q_proj": 0}},
        {"alpha_pattern": {"q_proj": "8"}},
        {"alpha_pattern": {"(": 8}},
        {"use_dora": True},
        {"bias": "all"},
        {"modules_to_save": ["lm_head"]},
        {"fan_in_fan_out": True},
        {"a_future_option": 1},
        {"init_lora_weights": "pissa"},
        {"target_modules": []},
        {"target_modules": 3},
        {"r": "4"},
        {"r": True},
        {"r": 0},
        {"lora_alpha": None},
        {"lora_alpha": 10**400},
        {"lora_alpha": float("nan")},
        {"use_rslora": "yes"},
    ],
)
def test_config_beyond_plain_lora(written, change):
    edit_config(written, **change)
    with pytest.raises(ValueError, match=CONFIG_FILE):
        read_adapter(written)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({KEY: None}, "expected tensor .*q_proj.lora_A.weight, found no such tensor"),
        ({KEY: torch.zeros(3, 32)}, r"q_proj.lora_A: expected shape \(4, any\), found \(3, 32\)"),
        ({KEY: torch.zeros(4)}, r"found \(4,\)"),
        ({KEY: torch.full((4, 32), float("nan"))}, "expected finite values in .*found 128 non-finite"),
        ({KEY: torch.tensor([[math.inf] + [0.0] * 31] * 4)}, "found 4 non-finite"),
        ({KEY: torch.zeros(4, 32, dtype=torch.int32)}, "dtype .*found torch.int32"),
        ({KEY: torch.zeros(4, 31)}, r"\(d_out, d_in\) \(32, 32\), found \(32, 31\)"),
        ({"base_model.model.lm_head.weight": torch.zeros(2, 2)}, "expected keys .*found .*lm_head.weight"),
        ({"lora_A.weight": torch.zeros(2, 2)}, "expected keys"),
        ({KEY.replace("q_proj", "x_proj"): torch.zeros(4, 32)}, "x_proj.lora_B"),
    ],
)
def test_tensors_that_do_not_fit(written, shapes, change, message):
    path = written / WEIGHTS_FILE
    tensors = {**load_file(path), **change}
    save_file({key: value for key, value in tensors.items() if value is not None}, path)
    with pytest.raises(ValueError, match=message) as error:
        read_adapter(written, shapes)
    assert str(path) in str(error.value)


def test_module_outside_and_target_without_module(written):
    edit_config(written, target_modules=["q_proj"])
    with pytest.raises(ValueError, match="expected a name ending in one of"):
        read_adapter(written)
    edit_config(
        written,
        target_modules=["lm_head", *json.loads((written / CONFIG_FILE).read_text())["target_modules"]],
    )
    with pytest.raises(ValueError):
        read_adapter(written)


def test_non_finite_adapter_is_not_written(trained, tmp_path):
    trained.factors[Q0][1][0, 0] = float("nan")
    with pytest.raises(ValueError, match="q_proj.lora_B"):
        write_adapter(tmp_path / "one", trained, "tiny", {})
    assert not (tmp_path / "one").exists()


def test_rewriting_replaces_whole_files(written, shapes, config):
    other = new_adapter(shapes, config, torch.Generator().manual_seed(9))
    shutil.copy(written / WEIGHTS_FILE, written / f".{WEIGHTS_FILE}.tmp-1")  # what a killed writer leaves behind
    write_adapter(written, other, "tiny", {})
    assert equal(read_adapter(written), other) and len(list(written.iterdir())) == 3


@pytest.mark.parametrize(
    "arguments",
    [
        (0, 8, ("q",)),
        (4, 0, ("q",)),
        (4, math.inf, ("q",)),
        (4, 8, ()),
        (4, 8, ("q", "q")),
        (True, 8, ("q",)),
    ],
)
def test_config_bounds(arguments):
    with pytest.raises(ValueError, match="expected"):
        LoraConfig(*arguments)


def test_scale():
    assert LoraConfig(16, 32, ("q",)).scale == 2.0
    assert LoraConfig(16, 32, ("q",), rslora=True).scale == 8.0
    assert LoraConfig(16, 32, ("v", "q")) == LoraConfig(16, 32, ("q", "v"))
