"""Prompts to token ids."""

import json
import shutil
from pathlib import Path

import pytest

from popu.config import Base, Engine
from popu.engine.base import TransformersEngine
from popu.errors import ConfigError

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


def test_the_update_wants_a_gpu_that_is_there(base, monkeypatch):
    engine = TransformersEngine(Base(path=str(base)), Engine(threads=1), ["q_proj"])
    assert engine.trainers("cpu") == [engine.forward]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ConfigError, match="training.update.device: expected cpu where torch sees no GPU, found cuda"):
        engine.trainers("cuda")
