"""Members and the bare base on tasks, in one batch, on the embedded base."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from popu.config import Base, Engine
from popu.engine.base import TransformersEngine
from popu.errors import ArtifactError
from popu.evaluate.generate import complete
from popu.evaluate.suite import BenchmarkTask
from popu.population.adapter import LoraConfig, new_adapter

NANO = Path(__file__).parents[2] / "resources" / "nano"
TARGETS = ("q_proj", "v_proj")
TASKS = [BenchmarkTask(f"t{i}", f"deduce {i}", {}) for i in range(3)]


@pytest.fixture(scope="module")
def engine():
    return TransformersEngine(Base(path=str(NANO)), Engine(threads=1), TARGETS)


def adapter(engine, size):
    made = new_adapter(engine.lora.shapes, LoraConfig(4, 8.0, TARGETS), torch.Generator().manual_seed(0))
    return replace(made, factors={name: (a, b + size) for name, (a, b) in made.factors.items()})


def run(engine, members, samples=1, temperature=0.0, tokens=8):
    return complete(engine, TASKS, members, samples, temperature, tokens, 1)


def test_a_row_a_member_task_and_sample_and_the_base_is_as_alone(engine):
    rows = run(engine, {"base": None, "s0.g0": adapter(engine, 0.05)}, samples=2, temperature=1.0)
    keys = [(row["member"], row["task_id"], row["sample"]) for row in rows]
    assert keys == [(m, f"t{i}", k) for m in ("base", "s0.g0") for i in range(3) for k in range(2)]
    assert {row["prompt_path"] for row in rows} == {"direct"}  # the embedded base has no chat template
    assert rows[:6] == run(engine, {"base": None}, samples=2, temperature=1.0)


def test_greedy_is_the_same_again(engine):
    """scorer-reports 20: elsewhere greedy varies from run to run."""
    assert run(engine, {"base": None}) == run(engine, {"base": None})


def test_an_adapter_that_changes_nothing_is_refused_unless_it_is_zero(engine):
    """scorer-reports 8: an adapter that is silently not applied scores the base."""
    lost = adapter(engine, 0.05)
    dead = replace(lost, factors={name: (torch.zeros_like(a), b) for name, (a, b) in lost.factors.items()})
    with pytest.raises(ArtifactError, match="m: expected an adapter that changes the base's outputs"):
        run(engine, {"base": None, "m": dead})
    assert len(run(engine, {"base": None, "m": adapter(engine, 0.0)})) == 6


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_guard_does_not_depend_on_the_temperature(engine, temperature):
    lost = adapter(engine, 0.05)
    dead = replace(lost, factors={name: (torch.zeros_like(a), b) for name, (a, b) in lost.factors.items()})
    with pytest.raises(ArtifactError, match="not applied"):
        run(engine, {"base": None, "m": dead}, samples=2, temperature=temperature)


def test_tensors_that_match_no_module_are_refused_by_name(engine):
    """scorer-reports 9 and 10: renamed keys would serve the base, wholly or in part."""
    whole = adapter(engine, 0.05)
    renamed = {name.replace("layers.0", "language_model.layers.0"): pair for name, pair in whole.factors.items()}
    with pytest.raises(ArtifactError, match="adapter m: expected modules of the base.*language_model"):
        run(engine, {"base": None, "m": replace(whole, factors=renamed)})


def test_a_prompt_without_room_counts_as_cut(engine):
    """scorer-reports 30: answers that reach the limit are flagged."""
    long = [replace(TASKS[0], prompt="1 " * 1100), TASKS[1]]
    rows = complete(engine, long, {"base": None}, 1, 0.0, 8, 1)
    assert [(row["completion"] == "", row["finish_reason"]) for row in rows[:1]] == [(True, "length")]
    assert rows[1]["n_tokens"] > 0
    at_limit = complete(engine, TASKS, {"base": None}, 1, 0.0, 2, 1)
    assert {(row["n_tokens"], row["finish_reason"]) for row in at_limit} == {(2, "length")}
