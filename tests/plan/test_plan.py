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
    assert main(["plan", "--config", str(PAPER), *where]) == 2
    said = capsys.readouterr()
    assert "4t4s: 8 adapters, 200 steps" in said.out and len(said.err.strip().splitlines()) == 1
    key, value, found = re.match(r"popu: ([a-z_.]+): expected at most (\d+) .*, found (\d+) ", said.err).groups()
    assert (key, found) == ("training.sampling.max_new_tokens", "8096")
    assert re.search(rf"\b{value} new\s+tokens", (REPO / "docs" / "operations.md").read_text())
    config = yaml.safe_load(PAPER.read_text())
    config["training"]["sampling"] = {"max_new_tokens": int(value), "context": 6144 + int(value)}
    path = tmp_path / "shorter.yaml"
    path.write_text(yaml.safe_dump(config))
    assert main(["plan", "--config", str(path), *where, "--json"]) == 0
    assert 77e9 < max(arm["memory"]["peak"] for arm in json.loads(capsys.readouterr().out)["arms"]) <= 78e9


def test_too_large_a_batch_is_named():
    config = read_config(REPO / "config" / "qwen-0.5b.yaml")
    large = config.model_copy(update={"engine": config.engine.model_copy(update={"max_batch_rows": 4096})})
    with pytest.raises(ConfigError, match=r"engine.max_batch_rows: expected at most \d+ for arm 4t4s .*, found 4096"):
        check(large, plan(large, Hardware(1, 24), {}))
    training = config.training
    update = training.update.model_copy(update={"micro_batch_tokens": 100_000})
    large = config.model_copy(update={"training": training.model_copy(update={"update": update})})
    with pytest.raises(ConfigError, match=r"training.update.micro_batch_tokens: expected at most \d+ .*, found 100000"):
        check(large, plan(large, Hardware(1, 24), {}))


def test_a_base_that_is_too_large_is_named(capsys):
    assert main(["plan", "--config", str(PAPER), "--gpu-memory", "12"]) == 2
    message = (
        "popu: base.path: expected weights, adapters and states of arm 4t4s within 10.0 GB a device, found 20.8 GB\n"
    )
    assert capsys.readouterr().err == message


def test_recommendations():
    directory = REPO / "config"
    names = [recommended(directory, Hardware(1, memory)).stem for memory in (4, 24, 80, 4000)]
    assert names == ["config", "qwen-0.5b", "qwen-3b", "paper"]
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
