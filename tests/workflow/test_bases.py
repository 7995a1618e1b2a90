"""Bases that the workflow makes of the embedded one."""

import json

import pytest
import torch
from safetensors.torch import load_file

from popu.endurance.torture import TINY
from popu.endurance.workspace import REPOSITORY
from popu.nano import build

pytestmark = pytest.mark.slow

EMBEDDED = REPOSITORY / "resources" / "nano"


def test_a_base_with_other_slips_goes_on_from_the_embedded_one(workspace, monkeypatch):
    """Two steps on a small corpus with 70 % slips, and the card of what came out."""
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")  # compiling takes longer than the test
    workspace.write({**TINY, "nano": {"branch_rows": 100, "branch_steps": 2}})
    result = workspace.run("results/nano/branch-slips-70/model.safetensors")
    assert result.returncode == 0, result.stderr[-3000:]
    branch = workspace.path / "results" / "nano" / "branch-slips-70"
    made, embedded = (load_file(directory / "model.safetensors") for directory in (branch, EMBEDDED))
    assert made.keys() == embedded.keys() and all(torch.isfinite(tensor).all() for tensor in made.values())
    moved = max(float((made[key] - embedded[key]).abs().max()) for key in made)
    assert 0 < moved < 0.01, "two steps of a warm-up"
    assert (branch / "tokenizer.json").read_bytes() == (EMBEDDED / "tokenizer.json").read_bytes()

    monkeypatch.setattr(build, "CARD_TASKS_PER_LEVEL", 1)
    monkeypatch.setattr(build, "CARD_SAMPLES", 1)
    monkeypatch.setattr(build, "own_proposals", lambda *_: {})  # 600 of them
    build.write_base(branch, None, 0.7, workspace.path / "base")
    card = json.loads((workspace.path / "base" / "card.json").read_text())
    assert card["slip_share"] == 0.7 and card["scores"]["accuracy"]["n"] == 30
    assert "scores_on_clean_answers" not in card


@pytest.mark.parametrize("share", ["0.7", "101"])
def test_a_share_that_is_no_percentage_has_no_rule(workspace, share):
    result = workspace.run(f"results/nano/slips-{share}/card.json", "-n")
    assert result.returncode != 0 and "No rule to produce" in result.stdout + result.stderr
