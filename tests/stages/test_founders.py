"""A run whose founders come from elsewhere: its identity, its first state, and what is refused."""

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from popu.base import expected_identity, founder_identities
from popu.config import Base, ConfigError, Engine, Run, Training, load_config, run_id
from popu.errors import ArtifactError
from popu.population.adapter import read_adapter
from popu.rundir import RunDirectory
from popu.stages.backend import Backend
from popu.stages.call import StageCall
from popu.stages.run import run_stage

NANO = Path(__file__).resolve().parents[2] / "resources" / "nano"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A LoRA adapter of the embedded base, saved by PEFT."""
    path = tmp_path_factory.mktemp("peft") / "adapter"
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(NANO), LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"])
    )
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(0))
    model.save_pretrained(path)
    return path


def settings(founders):
    base = Base(path=str(NANO))
    training = Training.model_validate(
        {"population": {"n_teachers": 1, "n_students": 2, "founders": founders}, "seed_problems": {"count": 1}}
    )
    return Run(
        arm="a",
        seed=1,
        training=training,
        base=base,
        base_sha256=expected_identity(base),
        engine=Engine(threads=1),
        founders=founder_identities(founders),
    )


def init(path, run):
    directory = RunDirectory(path)
    directory.create(run)
    with closing(Backend()) as backend:
        run_stage(StageCall("init", str(path), 0), backend)
    return directory


def test_a_founder_begins_with_the_adapters_weights_and_the_others_as_ever(saved, tmp_path):
    plain, run = init(tmp_path / "plain", settings({})), init(tmp_path / "with", settings({"s1": str(saved)}))
    for slot in ("t0", "s0"):
        paths = [one.step(0) / "adapters" / slot / "adapter_model.safetensors" for one in (plain, run)]
        assert paths[0].read_bytes() == paths[1].read_bytes()
    founder, theirs = read_adapter(run.step(0) / "adapters" / "s1"), read_adapter(saved)
    assert founder.config.rank == 8 and set(theirs.factors) < set(founder.factors)
    for name, (a, b) in founder.factors.items():
        expected = 0.0
        if name in theirs.factors:
            own_a, own_b = theirs.factors[name]
            expected = theirs.config.scale_of(name) * own_b @ own_a
        torch.testing.assert_close(founder.config.scale_of(name) * b @ a, expected + torch.zeros(len(b), a.shape[1]))


def test_the_adapters_content_is_part_of_the_runs_name_and_its_path_is_not(saved, tmp_path):
    copy = shutil.copytree(saved, tmp_path / "copy")
    first = run_id(settings({"s1": str(saved)}))
    assert first == run_id(settings({"s1": str(copy)}))
    assert len({first, run_id(settings({})), run_id(settings({"s0": str(saved)}))}) == 3
    config = json.loads((copy / "adapter_config.json").read_text())
    (copy / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 8}))
    assert run_id(settings({"s1": str(copy)})) != first


def test_an_adapter_that_changed_since_is_refused(saved, tmp_path):
    copy = shutil.copytree(saved, tmp_path / "copy")
    run = settings({"s1": str(copy)})
    config = json.loads((copy / "adapter_config.json").read_text())
    (copy / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 8}))
    with pytest.raises(
        ConfigError, match=r"training\.population\.founders\.s1: expected the adapter that the run was made"
    ):
        init(tmp_path / "run", run)


def test_an_adapter_of_a_base_with_other_weights_is_refused(saved, tmp_path):
    other = shutil.copytree(NANO, tmp_path / "other")
    weights = bytearray((other / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (other / "model.safetensors").write_bytes(weights)
    copy = shutil.copytree(saved, tmp_path / "copy")
    config = json.loads((copy / "adapter_config.json").read_text())
    (copy / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": str(other)}))
    with pytest.raises(ConfigError, match=r"founders\.s1: expected an adapter of the run's base, found one of .*other"):
        init(tmp_path / "run", settings({"s1": str(copy)}))


def test_a_slot_or_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="founders: slots among t0, .* expected, found 's7'"):
        load_config({"training": {"population": {"founders": {"s7": "x"}}}})
    with pytest.raises(ArtifactError, match=r"founders\.t0: expected an adapter in .*, no adapter_config\.json"):
        founder_identities({"t0": str(tmp_path)})
