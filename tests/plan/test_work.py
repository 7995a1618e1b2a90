"""Work and disk of a run: counts by hand, and the real retention."""

import pytest

from popu.base import Base
from popu.config import Engine, Heldout, Run, Training
from popu.grammar.levels import LEVELS
from popu.plan.shape import KNOWN, adapter_bytes, optimizer_bytes
from popu.plan.work import EMBEDDED, disk, expected_work, heldout_completions, most_work, n_members
from popu.rundir import RunDirectory
from popu.stages.retention import apply_retention

SMALL = {
    "steps": 33,
    "checkpoint_every": 7,
    "population": {"n_teachers": 2, "n_students": 3},
    "proposals": {"prompts_per_type": 1, "proposals_per_prompt": 5},
    "rollouts": {"per_problem": 4},
    "evolution": {"every": 5},
}


def training(**changes) -> Training:
    return Training.model_validate({**SMALL, **changes})


def test_counts_of_a_step():
    work = expected_work(training(), Engine(), EMBEDDED)
    assert (work.prompts, work.proposals, work.problems, work.rollouts) == (6, 30, 27, 108)
    assert work.tokens_read == 45 * (6 + 27)  # a prompt once for all its completions
    assert work.tokens_written == 45 * 30 + 13 * 108
    assert work.tokens_updated == work.tokens_read + work.tokens_written
    assert work.forks == 2 * 30 + 72
    most = most_work(training(), Engine(), EMBEDDED)
    assert (most.problems, most.rollouts, most.tokens_written) == (30, 120, 160 * 150)
    assert most.sandbox_core_s == pytest.approx(30 * 6 + 80 * 2)


def test_who_does_not_learn_or_write_takes_no_time():
    alone = expected_work(training(update={"roles": ["student"]}), Engine(), EMBEDDED)
    assert alone.tokens_updated == 45 * 27 + 13 * 108
    drawn = {"proposals": {**SMALL["proposals"], "source": "grammar"}, "update": {"roles": ["student"]}}
    assert expected_work(training(**drawn), Engine(), EMBEDDED).tokens_written == 13 * 108
    both = expected_work(training(), Engine(), EMBEDDED).tokens_updated
    assert expected_work(training(update={"schedule": "alternating"}), Engine(), EMBEDDED).tokens_updated == both / 2
    assert expected_work(training(update={"epochs": 3}), Engine(), EMBEDDED).tokens_updated == 3 * both


def test_the_single_agent_is_one_adapter_in_both_roles():
    single = training(population={"kind": "single"})
    assert n_members(single) == 1 and expected_work(single, Engine(), EMBEDDED).proposals == 15
    assert heldout_completions(single, Heldout(tasks_per_level=2, samples=4)) == 2 * 3 * len(LEVELS) * 2 * 5


@pytest.mark.parametrize("every", [0, 1, 5])
def test_disk_is_what_retention_leaves(tmp_path, every):
    settings = training(evolution={"every": every})
    run = RunDirectory(tmp_path)
    run.create(Run(arm="a", seed=1, training=settings, base=Base(path="b"), base_sha256="0" * 64, engine=Engine()))
    shape = KNOWN["smollm2"]
    sizes = {"adapters": adapter_bytes(shape, settings.lora), "optimizer": optimizer_bytes(shape, settings.lora)}
    for step in range(settings.steps + 1):
        for name in ("adapters", "optimizer")[: 2 if step else 1]:
            (run.step(step) / name).mkdir(parents=True)
        if step:
            apply_retention(run, step)
        left = sum(sizes[path.name] for path in tmp_path.glob("step*/*") if path.is_dir())
        planned = disk(shape, settings, expected_work(settings, Engine(), EMBEDDED), step)
        assert planned.heavy + planned.parents == n_members(settings) * left, step
        assert planned.checkpoints == n_members(settings) * sizes["adapters"] * (step // 7 + (step == 33))
