"""`popu plan` on the configs of the repository."""

import json
import re
from pathlib import Path

import pytest
import yaml

from popu.cli import main
from popu.config import Config, read_config
from popu.errors import ConfigError
from popu.plan.fit import largest
from popu.plan.report import Hardware, check, plan, recommended, side_by_side, stated_values
from popu.plan.text import as_text

REPO = Path(__file__).parents[2]
CONFIGS = sorted((REPO / "config").glob("*.yaml"))
PAPER = REPO / "config" / "paper.yaml"


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch):
    monkeypatch.chdir(REPO)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_has_a_plan(path):
    found = plan(read_config(path), Hardware(), {})
    assert found.arms and found.seconds > 0 and found.disk_bytes > 0


def leaves(value, prefix=""):
    for key, item in value.items():
        if isinstance(item, dict) and item and prefix + key != "arms":
            yield from leaves(item, f"{prefix}{key}.")
        else:
            yield prefix + key


def test_the_papers_config_names_and_labels_every_key():
    text = PAPER.read_text()
    known = leaves(Config().model_dump(mode="json"))
    wanted = {key for key in known if not key.startswith("nano.")}  # how the embedded base is made
    assert set(leaves(yaml.safe_load(text))) == wanted
    values = [line for line in text.splitlines() if re.match(r" *[a-z0-9_]+: *[^ #]", line)]
    assert len(values) >= len(wanted)
    unlabelled = [line for line in values if not re.search(r"# \[[PSTD]\]", line)]
    assert not unlabelled


def test_the_papers_arithmetic_in_the_docs_is_the_plans():
    """Rows of docs/operations.md: | name | by hand | figure |."""
    found = plan(read_config(PAPER), Hardware(8, 80), {})
    arm = found.arms[1]
    step, memory = arm.most, arm.memory
    figures = {
        "parameters of the base": found.base_parameters,
        "parameters of an adapter": arm.adapter_bytes / 4,
        "bytes of an adapter": arm.adapter_bytes,
        "bytes of an optimizer state": arm.optimizer_bytes,
        "proposals a step": step.proposals,
        "rollouts a step, at most": step.rollouts,
        "proposals a run": arm.steps * step.proposals,
        "rollouts a run, at most": arm.steps * step.rollouts,
        "tokens written a run, at most": arm.steps * step.tokens_written,
        "bytes of the last two steps": arm.disk[-1].heavy,
        "bytes of parents": arm.disk[-1].parents,
        "bytes of checkpoints": arm.disk[-1].checkpoints,
        "weights on a device": memory.weights,
        "share of vLLM": memory.generate,
        "vLLM's room for adapters": memory.slots,
        "vLLM's largest moment": memory.reading,
        "cache": memory.cache,
        "states of an update": memory.states,
        "activations of an update": memory.activations,
        "attention of an update": memory.scores,
        "logits of an update": memory.logits,
    }
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([0-9,]+) \|$", (REPO / "docs/operations.md").read_text(), re.MULTILINE)
    assert {name: int(number.replace(",", "")) for name, number in rows} == figures


@pytest.mark.parametrize(("name", "card"), [("qwen-0.5b", 24), ("qwen-1.5b", 80), ("qwen-3b", 80)])
def test_the_small_configs_fit_their_card_and_the_next_smaller_refuses(name, card):
    config = read_config(REPO / "config" / f"{name}.yaml")
    check(config, plan(config, Hardware(1, card), {}))
    smaller = card / 2
    with pytest.raises(ConfigError, match=f"expected .* in {smaller - 2:.1f} GB a device, found"):
        check(config, plan(config, Hardware(1, smaller), {}))


def test_what_cannot_fit_is_one_message_that_names_a_value_that_does(capsys, tmp_path):
    where = ["--gpu-memory", "80", "--devices", "8"]
    config, path = yaml.safe_load(PAPER.read_text()), tmp_path / "shorter.yaml"
    config["training"]["update"] |= {"gradient_checkpointing": False, "micro_batch_tokens": 6144}
    path.write_text(yaml.safe_dump(config))
    assert main(["plan", "--config", str(path), *where]) == 2
    said = capsys.readouterr()
    assert "4t4s: 8 adapters, 200 steps" in said.out and len(said.err.strip().splitlines()) == 1
    key, value, found = re.match(r"popu: ([a-z_.]+): expected at most (\d+) .*, found (\d+) ", said.err).groups()
    assert (key, found) == ("training.sampling.max_new_tokens", "8096")
    assert re.search(rf"\b{value} new\s+tokens", (REPO / "docs" / "operations.md").read_text())
    config["training"]["sampling"] = {"max_new_tokens": int(value), "context": 6144 + int(value)}
    path.write_text(yaml.safe_dump(config))
    assert main(["plan", "--config", str(path), *where, "--json"]) == 0
    assert 77e9 < max(arm["memory"]["peak"] for arm in json.loads(capsys.readouterr().out)["arms"]) <= 78e9


def changed(config, **values):
    """A config with other values of keys a.b.c, written a__b__c."""
    data = config.model_dump(mode="json")
    for key, value in values.items():
        *sections, name = key.split("__")
        section = data
        for part in sections:
            section = section[part]
        section[name] = value
    return Config.model_validate(data)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"training__update__micro_batch_tokens": 100_000},
            r"training.update.micro_batch_tokens: expected at most \d+",
        ),
        (
            {"engine__vllm__memory_fraction": 0.95},
            r"engine.vllm.memory_fraction: expected at most 0.87 for arm single",
        ),
        (
            {"engine__vllm__memory_fraction": 0.06},
            r"engine.vllm.memory_fraction: expected at least 0.11 for arm single",
        ),
        ({"engine__vllm__sleep": False}, "engine.vllm.sleep: expected true for arm single .*, found false"),
        ({"engine__vllm__cache_gb": 30}, r"engine.vllm.cache_gb: expected at most 1\d for arm single .*, found 30"),
        ({"engine__vllm__cache_gb": 0.1}, "engine.vllm.cache_gb: expected at least 1 for arm single"),
        (
            {"engine__vllm__cache_gb": 2, "engine__max_batch_rows": 8192},
            r"engine.max_batch_rows: expected at most \d+ for arm single .*, found 8192",
        ),
        (
            {"engine__vllm__data_parallel": 2},
            "engine.vllm: expected tensor_parallel times data_parallel to be at most the 1",
        ),
        ({"gpus": 2}, "gpus: expected at most 1, the devices that there are, found 2"),
    ],
)
def test_too_much_of_anything_is_named(values, message):
    large = changed(read_config(REPO / "config" / "qwen-0.5b.yaml"), **values)
    with pytest.raises(ConfigError, match=message):
        check(large, plan(large, Hardware(1, 24), {}))


def test_devices_of_a_run_share_its_work():
    """8 copies of vLLM write 8 times as much; an update of 8 members is 8 devices', the single agent's is one's."""
    paper = read_config(PAPER)
    alone = changed(paper, gpus=1, engine__vllm__data_parallel=1)
    eight, one = (plan(config, Hardware(8, 80), {}) for config in (paper, alone))
    device_s = [arm.expected.seconds - arm.expected.sandbox_core_s / 16 for arm in (*eight.arms, *one.arms)]
    assert device_s[3] == pytest.approx(8 * device_s[1])
    assert device_s[0] < device_s[2] < 8 * device_s[0]
    assert eight.seconds == sum(arm.run_seconds for arm in eight.arms), "one run at a time"
    assert one.seconds == max(arm.run_seconds for arm in one.arms), "side by side"


def test_transformers_generate_on_the_cores_of_the_machine():
    slow = changed(read_config(REPO / "config" / "qwen-0.5b.yaml"), engine__kind="transformers")
    fast = plan(read_config(REPO / "config" / "qwen-0.5b.yaml"), Hardware(1, 24), {})
    found = plan(slow, Hardware(1, 24), {})
    assert found.given.decode_tokens_s < fast.given.decode_tokens_s / 100
    assert found.given.update_tokens_s == fast.given.update_tokens_s
    nowhere = plan(changed(slow, training__update__device="cpu"), Hardware(1, 24), {})
    assert "nothing on a device" in as_text(nowhere)


def test_a_base_that_is_too_large_is_named(capsys):
    assert main(["plan", "--config", str(PAPER), "--gpu-memory", "12", "--devices", "8"]) == 2
    message = (
        "popu: base.path: expected weights, adapters and states for arm single in 10.0 GB a device, found 34.2 GB\n"
    )
    assert capsys.readouterr().err == message


def test_recommendations():
    directory = REPO / "config"
    names = [recommended(directory, Hardware(1, memory)).stem for memory in (4, 24, 68, 80)]
    assert names == ["config", "qwen-0.5b", "qwen-1.5b", "qwen-3b"]
    assert recommended(directory, Hardware(8, 80)).stem == "paper"
    assert recommended(directory, Hardware()).stem == "config"


def test_assumptions_are_stated_with_their_source(capsys):
    command = ["plan", "--config", "config/qwen-3b.yaml", "--gpu-memory", "80", "--json"]
    assert main([*command, "--assume", "decode_tokens_s=1000", "--assume", "valid_share=1"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (
        value["given"]["decode_tokens_s"] == 1000
        and value["sources"]["decode_tokens_s"] == "stated on the command line"
    )
    assert value["sources"]["update_tokens_s"] == "assumption"
    (arm,) = (arm for arm in value["arms"] if arm["arm"] == "4t4s")
    assert arm["expected"]["problems"] == arm["expected"]["proposals"] == 192
    assert main([*command, "--assume", "decode=3"]) == 2
    assert "--assume: expected one of valid_share, " in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", ["valid_share=1.1", "valid_share=x", "token_bytes=0", "read_tokens_s=nan", "reserve_gb"]
)
def test_assumptions_out_of_bounds_are_named(line):
    with pytest.raises(ConfigError, match=f"--assume {line.partition('=')[0]}: expected a number .*, found "):
        stated_values([line])


@pytest.mark.parametrize("option", [["--gpu-memory", "-1"], ["--devices", "0"], ["--devices", "999"]])
def test_devices_out_of_bounds_are_named(option, capsys):
    assert main(["plan", "--config", "config/config.yaml", *option]) == 2
    assert option[0] in capsys.readouterr().err


def test_runs_lie_side_by_side():
    assert side_by_side([3, 1, 1, 1], 2) == 3 and side_by_side([3, 1, 1, 1], 1) == 6 and side_by_side([2], 8) == 2


def test_largest():
    assert [largest(10, lambda n, most=most: n <= most) for most in (0, 1, 7, 99)] == [0, 1, 7, 10]
