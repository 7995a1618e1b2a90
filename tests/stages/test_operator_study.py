"""The operator study on a run of two steps: parents, problems, equal retraining, and going on after a kill."""

import hashlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from popu.artifacts import read_table
from popu.base import expected_identity
from popu.config import Base, Engine, OperatorStudy, Run, Training
from popu.errors import ConfigError
from popu.evolution.registry import OPERATORS
from popu.population.member import founders
from popu.rundir import RunDirectory
from popu.stages.backend import Backend
from popu.stages.call import StageCall
from popu.stages.checkpoint import read_students
from popu.stages.operator_study import best_two, newborn, operator_study, retrained, study_problems
from popu.stages.run import run_block, run_stage

BASE = Base(path=str(Path(__file__).resolve().parents[2] / "resources" / "nano"))
TRAINING = Training.model_validate(
    {
        "steps": 2,
        "population": {"n_teachers": 2, "n_students": 2},
        "proposals": {"prompts_per_type": 1, "proposals_per_prompt": 3},
        "rollouts": {"per_problem": 3},
        "seed_problems": {"count": 6},
    }
)
STUDY = OperatorStudy(steps=2, problems=3, every=1, tasks_per_level=1, samples=1)


def students(*ratings):
    """Pairs as `read_students` gives them, without adapters: (born_step, mu)."""
    found = founders(len(ratings), len(ratings)).students
    return [(replace(m, born_step=born, mu=mu), None) for m, (born, mu) in zip(found, ratings, strict=True)]


def slots(pairs):
    return [member.slot for member, _ in pairs]


def test_parents_are_the_best_that_were_trained():
    assert slots(best_two(students((0, 25), (0, 27), (0, 26)), 10)) == ["s1", "s2"]
    assert slots(best_two(students((0, 25), (10, 27), (0, 26)), 10)) == ["s2", "s0"], "born in this step, not trained"
    assert slots(best_two(students((10, 27), (0, 26)), 10)) == ["s1", "s0"], "unless there are no others"


def test_a_single_agent_has_no_second_parent():
    with pytest.raises(ConfigError, match="two students or more, found 1"):
        best_two(students((0, 25)), 10)


@pytest.fixture(scope="module")
def backend():
    with closing(Backend()) as made:
        yield made


@pytest.fixture(scope="module")
def run(backend, tmp_path_factory):
    settings = Run(
        arm="pair",
        seed=1,
        training=TRAINING,
        base=BASE,
        base_sha256=expected_identity(BASE),
        engine=Engine(threads=1),
    )
    directory = RunDirectory(tmp_path_factory.mktemp("run") / "seed1")
    directory.create(settings)
    run_stage(StageCall("init", str(directory.path), 0), backend)
    run_block(str(directory.path), 1, 2, backend, lambda text: None)
    run_stage(StageCall("checkpoint", str(directory.path), 2), backend)
    return directory


@pytest.fixture(scope="module")
def studied(run, backend, tmp_path_factory):
    out = tmp_path_factory.mktemp("study")
    operator_study(run, 2, 0, STUDY, out, backend)
    return out


def digests(directory):
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.slow
def test_problems_are_those_of_the_run_then_of_the_grammar(run):
    rows = study_problems(run, 2, 0, 40)
    own = [row for row in rows if not row["problem_id"].startswith("grammar")]
    assert len(rows) == 40 and 0 < len(own) < 40
    assert all(row["status"] == "ok" and not row["duplicate_of"] for row in own)
    assert len({(row["problem_type"], row["program"], tuple(row["inputs"])) for row in own}) == len(own)
    assert {row["problem_type"] for row in rows if row not in own} == {"code_o", "code_i", "code_f"}
    assert study_problems(run, 2, 0, 40) == rows and study_problems(run, 2, 1, 40) != rows


@pytest.mark.slow
def test_a_child_does_not_depend_on_who_is_trained_beside_it(run, backend):
    """And the child of `copy_parent` is the parent."""
    settings = run.settings
    engine, executor = backend.engine(settings), backend.executor(settings)
    parents = [adapter for _, adapter in read_students(run, 2)]
    children = newborn(sorted(OPERATORS), parents, 5)
    assert sorted(children) == sorted(OPERATORS)
    problems = study_problems(run, 2, 0, 4)
    arguments = (problems, ("test", 1), lambda: None)
    together = retrained(engine, executor, settings, children, *arguments)
    for name in ("copy_parent", "layer_wise"):
        alone = retrained(engine, executor, settings, {name: children[name]}, *arguments)[name]
        assert alone.solve_rates == together[name].solve_rates
        for module, factors in alone.adapter.factors.items():
            for ours, theirs in zip(factors, together[name].adapter.factors[module], strict=True):
                torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    for module, factors in children["copy_parent"].adapter.factors.items():
        assert all(torch.equal(a, b) for a, b in zip(factors, parents[0].factors[module], strict=True))


@pytest.mark.slow
def test_every_scored_step_has_its_tables(studied):
    assert sorted(path.name for path in studied.iterdir()) == ["step00000", "step00001", "step00002"]
    for step in (0, 1, 2):
        scores = read_table(studied / f"step{step:05d}" / "scores.parquet", "study_scores")
        changes = read_table(studied / f"step{step:05d}" / "changes.parquet", "study_changes")
        assert len(scores) == len(OPERATORS) * 30 and {row["step"] for row in scores + changes} == {step}
        assert sorted(row["operator"] for row in changes) == sorted(OPERATORS)
    born, trained = (
        {row["operator"]: row for row in read_table(studied / f"step0000{step}" / "changes.parquet", "study_changes")}
        for step in (0, 2)
    )
    assert born["copy_parent"]["to_first"] <= 1e-7 * born["copy_parent"]["first_size"]
    assert born["copy_parent_refactored"]["to_first"] <= 1e-5 * born["copy_parent"]["first_size"]
    assert born["full_gaussian"]["to_first"] > 0.05 * born["copy_parent"]["first_size"]
    assert trained["copy_parent"]["to_first"] > 0 and trained["copy_parent"]["to_copy"] <= 1e-6
    assert born["dare"]["solve_rate"] is None and 0 <= trained["dare"]["solve_rate"] <= 1


class Killed(Exception):
    """As if the process had ended."""


@pytest.mark.slow
def test_a_killed_study_goes_on_from_its_last_scored_step(run, backend, studied, tmp_path, monkeypatch):
    finished = {}

    def kill():
        done = tmp_path / "step00001" / "changes.parquet"
        if done.exists():
            finished[done] = done.stat().st_mtime_ns
            raise Killed

    monkeypatch.setattr(backend, "check", kill)
    with pytest.raises(Killed):
        operator_study(run, 2, 0, STUDY, tmp_path, backend)
    assert [path.parent.name for path in tmp_path.glob("step*/children")] == ["step00001"]
    monkeypatch.undo()
    operator_study(run, 2, 0, STUDY, tmp_path, backend)
    assert digests(tmp_path) == digests(studied)
    assert all(path.stat().st_mtime_ns == before for path, before in finished.items()), "not written again"
    operator_study(run, 2, 0, STUDY, tmp_path, backend)
    assert digests(tmp_path) == digests(studied), "there is nothing to do"
