"""Steps of a run whose members generate with vLLM. Needs a Python with vLLM, as tests/engine/test_vllm.py."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import permutation_test

from popu.base import expected_identity
from popu.config import Base, Engine, Run, Training, Vllm
from popu.frames import load_run
from popu.population.adapter import read_adapter
from popu.rundir import RunDirectory
from popu.stages.backend import Backend
from popu.stages.call import StageCall
from popu.stages.run import run_block, run_stage

pytestmark = pytest.mark.slow

BASE = Base(path=str(Path(__file__).resolve().parents[2] / "resources" / "nano"))
TRAINING = Training.model_validate(
    {
        "steps": 2,
        "population": {"n_teachers": 2, "n_students": 2},
        "proposals": {"prompts_per_type": 4, "proposals_per_prompt": 6},
        "rollouts": {"per_problem": 6},
        "update": {"learning_rate": 1e-3, "importance_cap": 2.0},
        "evolution": {"every": 2, "grace_steps": 0},
        "seed_problems": {"source": "grammar", "count": 64},  # so that both engines are given equal prompts
    }
)


def run_steps(directory, engine, steps):
    settings = Run(arm="a", seed=1, training=TRAINING, base=BASE, base_sha256=expected_identity(BASE), engine=engine)
    run = RunDirectory(directory)
    directory.mkdir()
    run.create(settings)
    with closing(Backend()) as backend:
        run_stage(StageCall("init", str(directory), 0), backend)
        run_block(str(directory), 1, steps, backend, print)
    return run


@pytest.fixture(scope="module")
def runs(vllm_python, tmp_path_factory):
    """Two steps with vLLM, one with transformers."""
    vllm = Engine(kind="vllm", threads=1, max_batch_rows=128, vllm=Vllm(python=vllm_python, cache_gb=0.25, eager=True))
    directory = tmp_path_factory.mktemp("runs")
    return run_steps(directory / "vllm", vllm, 2), run_steps(directory / "transformers", Engine(threads=1), 1)


def test_a_run_with_vllm_trains_end_to_end(runs):
    run, _ = runs
    frames = load_run(run.path)
    assert list(frames.steps) == [1, 2]
    metrics, mismatch = frames.frame("update_metrics"), frames.frame("mismatch")
    assert (metrics["gradient_norm"] > 0).any() and set(metrics["role"]) == {"teacher", "student"}
    assert mismatch["mean_abs"].max() < 1e-4 and mismatch["max_abs"].max() < 1e-2
    assert mismatch["effective_share"].min() > 0.999 and (mismatch["cut_share"] == 0).all()
    for slot in ("t0", "t1", "s0", "s1"):  # founders' B are 0
        adapter = read_adapter(run.path / "step00001" / "adapters" / slot)
        assert all(b.any() for _, b in adapter.factors.values())
    assert len(frames.frame("lineage")) > 0
    assert (frames.frame("rollouts", ["finish_reason"])["finish_reason"] == "stop").mean() > 0.5


def p_value(first, second):
    """Of the difference of means of paired clusters, signs flipped at random."""
    found = permutation_test(
        (first - second,), lambda d, axis: d.mean(axis=axis), permutation_type="samples", n_resamples=9999, rng=1
    )
    return float(found.pvalue)


def rewards_by_prompt(run):
    """Mean rewards of step 1: of each prompt's proposals, and of the attempts at its problems (nan without any)."""
    frames = load_run(run.path)
    groups = frames.frame("proposals", ["proposal_id", "slot", "group"], [1])
    teacher = groups.merge(frames.frame("outcomes", ["proposal_id", "problem_id", "reward"], [1]), on="proposal_id")
    attempts = frames.frame("verdicts", ["problem_id", "reward"], [1])
    student = teacher[["group", "problem_id"]].merge(attempts, on="problem_id").groupby("group")["reward"].mean()
    means = teacher.groupby("group")["reward"].mean()
    return means.to_numpy(), student.reindex(means.index).to_numpy()


def test_rewards_of_the_first_step_are_distributed_as_with_transformers(runs):
    """The policies are equal (fresh adapters), the random numbers are not: prompts are the clusters, in pairs."""
    (teacher, student), (teacher_2, student_2) = (rewards_by_prompt(run) for run in runs)
    assert len(teacher) == len(teacher_2) == 24
    assert p_value(teacher, teacher_2) > 1e-3
    both = ~np.isnan(student) & ~np.isnan(student_2)
    assert both.sum() > 10
    assert p_value(student[both], student_2[both]) > 1e-3
