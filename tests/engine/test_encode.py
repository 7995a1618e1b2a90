"""Prompts to token ids."""

import json
import shutil
from pathlib import Path

import pytest

from popu.config import Base, Engine
from popu.engine.base import TransformersEngine
from popu.engine.vllm_engine import VllmEngine
from popu.errors import ConfigError
from popu.evaluate.generate import complete, prompt_path
from popu.evaluate.suite import BenchmarkTask

NANO = Path(__file__).resolve().parents[2] / "resources" / "nano"
BOS = "<pad>"  # stands in for one: the embedded base has none


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The embedded base with a tokenizer that puts a BOS in front, and a chat template that writes it too."""
    directory = tmp_path_factory.mktemp("base") / "nano"
    shutil.copytree(NANO, directory)
    path = directory / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    first = {"SpecialToken": {"id": BOS, "type_id": 0}}
    tokenizer["post_processor"]["single"].insert(0, first)
    tokenizer["post_processor"]["special_tokens"] = {BOS: {"id": BOS, "ids": [0], "tokens": [BOS]}}
    path.write_text(json.dumps(tokenizer))
    path = directory / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings |= {"bos_token": BOS, "chat_template": "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"}
    path.write_text(json.dumps(settings))
    return directory


@pytest.mark.parametrize("chat_template", [True, False])
def test_report_04_a_prompt_begins_with_one_bos(base, chat_template):
    engine = TransformersEngine(Base(path=str(base), chat_template=chat_template), Engine(threads=1), ["q_proj"])
    tokens = engine.encode("def f(x):\n    return x + 1")
    assert engine.tokenizer("x")["input_ids"][0] == 0  # it would add another
    assert tokens[0] == 0 and tokens[1] != 0
    assert engine.tokenizer.decode(tokens[1:]) == "def f(x):\n    return x + 1"


def test_reports_18_and_19_every_engine_has_the_same_ids_and_one_bos(base):
    """The template is applied in one place, and vLLM is given ids: it adds nothing."""
    engine = TransformersEngine(Base(path=str(base)), Engine(threads=1), ["q_proj"])
    messages = [{"role": "user", "content": "f(1)"}]
    theirs = engine.tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert engine.encode("f(1)", chat=True) == tuple(theirs) and theirs.count(0) == 1
    assert VllmEngine.encode is TransformersEngine.encode


def test_report_31_the_chat_path_and_the_direct_one_are_told_apart(base):
    engine = TransformersEngine(Base(path=str(base)), Engine(threads=1), ["q_proj"])
    task = BenchmarkTask("t", "f(1)", {})
    (row,) = complete(engine, [task], {"base": None}, 1, 0.0, 4, 1, chat_prompt="solve: {prompt}")
    assert row["prompt_path"] == "chat" and prompt_path(engine) == "chat"
    bare = TransformersEngine(Base(path=str(NANO)), Engine(threads=1), ["q_proj"])
    (row,) = complete(bare, [task], {"base": None}, 1, 0.0, 4, 1, chat_prompt="solve: {prompt}")
    assert row["prompt_path"] == "direct"


def test_the_update_wants_a_gpu_that_is_there(base, monkeypatch):
    engine = TransformersEngine(Base(path=str(base)), Engine(threads=1), ["q_proj"])
    assert engine.trainers("cpu") == [engine.forward]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ConfigError, match="training.update.device: expected cpu where torch sees no GPU, found cuda"):
        engine.trainers("cuda")
