"""Every arm of the shipped configs runs, at small size, and does what its name says."""

from contextlib import closing
from pathlib import Path

import pytest
import yaml

from popu.base import expected_identity
from popu.config import Base, Run, arm_training, load_config
from popu.rundir import RunDirectory
from popu.stages.backend import Backend
from popu.stages.call import StageCall
from popu.stages.run import run_block, run_stage

REPO = Path(__file__).resolve().parents[2]
SMALL = {
    "steps": 2,
    "checkpoint_every": 2,
    "proposals": {"prompts_per_type": 1, "proposals_per_prompt": 2},
    "rollouts": {"per_problem": 2},
    "seed_problems": {"count": 6},
}

pytestmark = pytest.mark.slow


def merged(*names):
    """The configs over each other, as Snakemake merges them."""

    def over(a, b):
        return {
            **a,
            **{k: over(a[k], v) if isinstance(v, dict) and isinstance(a.get(k), dict) else v for k, v in b.items()},
        }

    result = {}
    for name in names:
        result = over(result, yaml.safe_load((REPO / "config" / name).read_text()))
    return over(result, {"training": SMALL, "base": {"path": str(REPO / "resources" / "nano")}})


CONFIG = load_config(merged("config.yaml", "evidence.yaml", "ablations.yaml"))


@pytest.fixture(scope="module")
def backend():
    with closing(Backend()) as made:
        yield made


@pytest.fixture(scope="module")
def finished(backend, tmp_path_factory):
    """Runs an arm once; evolution is due at step 2 where the arm evolves at all."""
    runs = {}

    def run(arm):
        if arm not in runs:
            training = arm_training(CONFIG, arm)
            if training.evolution.every:
                training = training.model_copy(update={"evolution": training.evolution.model_copy(update={"every": 2})})
            if "single" in arm:
                training = training.model_copy(update={"proposals": arm_training(CONFIG, "single").proposals})
            base = Base(path=CONFIG.base.path)
            settings = Run(
                arm=arm, seed=1, training=training, base=base, base_sha256=expected_identity(base), engine=CONFIG.engine
            )
            runs[arm] = RunDirectory(tmp_path_factory.mktemp(arm))
            runs[arm].create(settings)
            run_stage(StageCall("init", str(runs[arm].path), 0), backend)
            run_block(str(runs[arm].path), 1, 2, backend, lambda _: None)
        return runs[arm]

    return run


def weights(run, step, slot):
    directory = run.step(step) / "adapters" / slot
    return (directory / "adapter_model.safetensors").read_bytes()


def born(run):
    return {row["slot"][0]: row["operator"] for row in run.table(2, "evolve", "lineage")}


@pytest.mark.parametrize("arm", list(CONFIG.arms))
def test_the_arm_runs(finished, arm):
    run = finished(arm)
    assert run.last_step() == 2
    sizes = {"2t2s": 4, "8t8s": 16, "1t1s": 2}
    expected = sizes.get(arm, 1 if "single" in arm else 8)
    assert len(run.state(2).adapters) == expected


def test_ranks_differ_and_their_scale_does_not(finished):
    found = {arm: finished(arm).settings.training.lora for arm in ("rank_2", "4t4s", "rank_32")}
    assert [lora.rank for lora in found.values()] == [2, 8, 32]
    assert {lora.alpha / lora.rank for lora in found.values()} == {2.0}
    assert len(weights(finished("rank_2"), 2, "s0")) < len(weights(finished("rank_32"), 2, "s0"))


@pytest.mark.parametrize("arm", ["frozen_teacher", "fixed_curriculum"])
def test_frozen_teachers_keep_their_weights_and_students_learn(finished, arm):
    run = finished(arm)
    assert all(weights(run, 2, f"t{i}") == weights(run, 1, f"t{i}") for i in range(4))
    assert any(weights(run, 2, f"s{i}") != weights(run, 1, f"s{i}") for i in range(4))
    assert "t" not in born(run)


def test_teachers_and_students_alternate(finished):
    run = finished("alternating")
    learned = [{row["role"] for row in run.table(step, "update", "update_metrics")} for step in (1, 2)]
    assert learned == [{"teacher"}, {"student"}]
    assert all(weights(run, 2, f"t{i}") == weights(run, 1, f"t{i}") for i in range(4))
    assert any(weights(run, 2, f"s{i}") != weights(run, 1, f"s{i}") for i in range(4))


def test_a_fixed_curriculum_is_valid_and_varied(finished):
    problems = finished("fixed_curriculum").table(1, "validate", "problems")
    assert {row["status"] for row in problems} == {"ok"}
    assert len({row["program_key"] for row in problems}) > len(problems) / 2


def test_random_rewards_say_nothing_of_the_answers(finished):
    run = finished("random_reward")
    rewards = [(row["verdict"], row["reward"]) for row in run.table(1, "verify", "verdicts")]
    assert {reward for verdict, reward in rewards if verdict == "correct"} == {1.0, -0.5}
    assert len({row["rho"] for row in run.table(1, "verify", "outcomes")}) > 1, "rho stays true"


def test_an_erring_verifier_changes_what_is_paid_and_nothing_that_is_measured(finished):
    true, erring = finished("4t4s"), finished("flip_20")
    verdicts, others = (run.table(1, "verify", "verdicts") for run in (true, erring))
    assert [row["verdict"] for row in verdicts] == [row["verdict"] for row in others]
    flips = {(row["problem_id"], row["attempt"]): row for row in erring.table(1, "verify", "flips")}
    paid = {(row["problem_id"], row["attempt"]): row["reward"] for row in verdicts}
    for row in others:
        flip = flips.get((row["problem_id"], row["attempt"]))
        told = (
            paid[row["problem_id"], row["attempt"]] if flip is None else {"correct": 1.0, "wrong": -0.5}[flip["told"]]
        )
        assert row["reward"] == told and (flip is None or flip["verdict"] == row["verdict"])
    n_formed = sum(row["verdict"] not in ("bad_format", "infrastructure") for row in others)
    assert 0 < len(flips) < n_formed / 2
    assert [row["rho"] for row in true.table(1, "verify", "outcomes")] == [
        row["rho"] for row in erring.table(1, "verify", "outcomes")
    ]
    assert not (true.step(1) / "flips.parquet").exists()


@pytest.mark.parametrize(
    ("arm", "roles"),
    [("4t4s", "ts"), ("no_evolution", ""), ("evolve_teachers_only", "t"), ("evolve_students_only", "s")],
)
def test_who_evolves(finished, arm, roles):
    assert {*born(finished(arm))} == {*roles}


def test_kinds_of_variation(finished):
    from popu.evolution.registry import get_operator

    assert {get_operator(name).arity for name in born(finished("mutation_only")).values()} == {1}
    assert {get_operator(name).arity for name in born(finished("crossover_only")).values()} == {2}
    assert {*born(finished("copy_parent_pbt")).values()} == {"copy_parent"}


def test_arms_share_their_random_numbers(finished):
    """Before the first update every arm of one size is the same."""
    tables = [finished(arm).table(1, "propose", "proposals") for arm in ("4t4s", "no_evolution", "random_reward")]
    assert tables[0] == tables[1] == tables[2]
