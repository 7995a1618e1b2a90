"""Scores of members on the held-out suite: whose random numbers are whose."""

from pathlib import Path

import pytest
import torch

from popu.config import Base, Engine, Lora, Run, Sampling, Training
from popu.engine.base import TransformersEngine
from popu.evaluate.heldout import score
from popu.grammar.suite import heldout_suite
from popu.population.adapter import LoraConfig, new_adapter
from popu.sandbox.executor import Executor

NANO = Path(__file__).parents[2] / "resources" / "nano"


@pytest.mark.slow
def test_members_of_a_population_draw_independent_samples():
    """Three equal members: the one in place 0 draws what the base draws, the others draw their own; greedy agrees."""
    base = Base(path=str(NANO))
    training = Training(sampling=Sampling(max_new_tokens=48))
    settings = Run(arm="a", seed=1, training=training, base=base, base_sha256="0" * 64, engine=Engine(threads=1))
    engine = TransformersEngine(base, settings.engine, Lora().targets)
    fresh = new_adapter(engine.lora.shapes, LoraConfig(2, 4.0, Lora().targets), torch.Generator().manual_seed(0))
    tasks = heldout_suite(4, levels=(1, 2, 3))
    with Executor() as executor:
        members = {"base": None, "s0.g3": fresh, "s1.g0": fresh, "s2.g1": fresh}
        places = {"s0.g3": 0, "s1.g0": 1, "s2.g1": 2}
        found = score(engine, executor, settings, tasks, members, 4, places=places)
    assert found["s0.g3"] == found["base"]
    sampled = [[n for n, _ in found[name]] for name in members]
    assert sampled[1] != sampled[2] != sampled[3] != sampled[1]
    assert len({tuple(greedy for _, greedy in rows) for rows in found.values()}) == 1
