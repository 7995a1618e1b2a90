"""Bad input gets one clear message, exit code 2 of the stage, and nothing finished is lost."""

import copy
import json

import pytest

from ..distributions import install
from .conftest import TINY

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trainig": {}}, "trainig: unknown key; the nearest valid key is training"),
        ({"training": {"step": 3}}, "training.step: unknown key; the nearest valid key is steps"),
        ({"training": {"steps": 0}}, "training.steps: Input should be greater than or equal to 1, found 0"),
        ({"arms": {"x": {"lora": {"rank": -1}}}}, "arms.x.lora.rank"),
        (
            {"arms": {"x": {"rewards": {"source": "verifer"}}}},
            "arms.x.rewards.source: expected one of verifier, random",
        ),
        (
            {"arms": {"x": {"population": {"founders": {"t0": "no/adapter"}}}}},
            "founders.t0: expected an adapter in no/ad",
        ),
        (
            {"arms": {"x": {"problem_types": ["code_o", "arith_v"]}}},
            "arms.x.problem_types: expected types of one domain",
        ),
        ({"base": {"path": "no/such/base"}}, "base.path: expected a model directory with *.safetensors, found none"),
    ],
)
def test_a_wrong_config_is_one_message_and_exit_2(workspace, change, message):
    workspace.write({**TINY, **change})
    result = workspace.run("train_all")
    assert result.returncode == 2
    assert message in result.stderr and "Traceback" not in result.stdout + result.stderr
    assert not (workspace.path / "results").exists()


def test_a_plug_in_that_cannot_be_loaded_is_one_message_and_exit_2(workspace):
    entry_points = {"popu.matchers": {"broken": "popu_broken:match"}}
    install(workspace.plugins, "popu-broken", entry_points, {"popu_broken.py": "import no_such_module"})
    workspace.write({**TINY, "arms": {"x": {"matching": {"method": "broken"}}}})
    result = workspace.run("train_all")
    assert result.returncode == 2 and "Traceback" not in result.stdout + result.stderr
    message = "popu.matchers 'broken' of popu-broken 1.0 (popu_broken:match): cannot be loaded: ModuleNotFoundError"
    assert message in result.stderr
    assert not (workspace.path / "results").exists()


def extend(workspace):
    config = copy.deepcopy(TINY)
    config["training"]["steps"] = 3
    workspace.write(config)


@pytest.mark.parametrize(
    "relative",
    [
        "checkpoints",
        "step00002/buffer.parquet",
        "step00002/adapters/t0/adapter_model.safetensors",
        "step00002/population.json",
    ],
)
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_artifact_is_named_and_nothing_else_is_lost(copied, relative, damage):
    run = copied.run_directory()
    if relative == "checkpoints":
        relative = "checkpoints/step00002/adapters/s0/adapter_model.safetensors"
    path = run / relative
    if relative.startswith("step00002/adapters"):
        state = json.loads((run / "step00002" / "population.json").read_text())
        slot = next(slot for slot, place in state["adapters"].items() if "/adapters/" in place and slot[0] == "t")
        path = run / "step00002" / "adapters" / slot / "adapter_model.safetensors"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes(content if damage == "flip" else content[:-20])
    before = copied.digests()
    if relative.startswith("checkpoints"):
        result = copied.popu("export", "s0", "--run", str(run), "--out", str(copied.path / "out"))
    else:
        result = copied.popu("stage", "propose", "--run", str(run), "--step", "3")
    assert result.returncode == 2, result.stderr
    assert path.name in result.stderr and "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert copied.digests() == before


def test_another_config_in_the_same_directory_is_refused(copied):
    run = copied.run_directory()
    settings = json.loads((run / "run.json").read_text())
    settings["training"]["update"]["learning_rate"] = 0.1
    result = copied.popu("stage", "init", "--run", str(run), "--step", "0", "--settings", json.dumps(settings))
    assert result.returncode == 2 and "expected the settings of run pair-" in result.stderr


def test_a_second_snakemake_on_the_experiment_is_refused(workspace):
    import time

    first = workspace.start("train_all")
    deadline = time.monotonic() + 60
    while not (workspace.path / "results" / "tiny" / ".lock").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    second = workspace.run("train_all")
    first.kill()
    first.wait()
    assert second.returncode == 2 and "another Snakemake is at work" in second.stderr
