"""`train_all` end to end on the embedded base."""

import copy
import json
import os
import shutil

import pandas as pd
import pytest
import torch
import yaml
from peft import PeftModel
from transformers import AutoModelForCausalLM

import popu
from popu.artifacts import TABLES, read_json, read_table
from popu.config import Base, Engine
from popu.engine.base import TransformersEngine
from popu.engine.multilora import Segment
from popu.engine.trees import FlatTrees, Tree
from popu.population.adapter import read_adapter

from .conftest import REPO, TINY

pytestmark = pytest.mark.slow


def test_every_artifact_is_there(finished):
    run = finished.run_directory()
    for step in (1, 2):
        directory = run / f"step{step:05d}"
        for stage in ("propose", "validate", "solve", "verify", "update", "evolve"):
            assert (directory / f"{stage}.json").is_file()
        assert read_json(directory / "timings.json")["verifier"]["filter"] is True
        for path in directory.glob("*.parquet"):
            assert isinstance(read_table(path, path.stem), list)
    assert {path.stem for path in (run / "step00001").glob("*.parquet")} <= set(TABLES)
    assert (run.parents[1] / "summary.png").read_bytes().startswith(b"\x89PNG")
    lineage = read_table(run / "checkpoints" / "step00002" / "lineage.parquet", "lineage")
    assert {row["slot"][0] for row in lineage} == {"t", "s"}, "one teacher and one student are replaced at step 2"


def test_teachers_learn_something_in_the_default_groups(finished):
    """Not all advantages of the teachers are zero."""
    rows = read_table(finished.run_directory() / "step00001" / "update_metrics.parquet", "update_metrics")
    assert any(row["mean_advantage_abs"] > 0 for row in rows if row["role"] == "teacher")
    mismatches = [row["engine_mismatch"] for row in rows if row["engine_mismatch"] is not None]
    assert mismatches and max(mismatches) < 1e-3


def test_run_again_there_is_nothing_to_do(finished):
    result = finished.run("train_all")
    assert result.returncode == 0 and "Nothing to be done" in result.stdout + result.stderr


def test_an_exported_member_gives_the_logits_of_the_engine(finished, tmp_path):
    result = finished.popu("export", "s0", "--run", str(finished.run_directory()), "--out", str(tmp_path / "s0"))
    assert result.returncode == 0, result.stderr
    base = Base(path=TINY["base"]["path"])
    adapter = read_adapter(tmp_path / "s0")
    engine = TransformersEngine(base, Engine(threads=1), adapter.config.targets)
    tokens = engine.encode("deduce\n```python\ndef f(x):\n    return x + 1\n```\n")
    flat = FlatTrees([Tree(tokens)])
    segment = Segment(len(tokens), adapter.factors, adapter.config.scale)
    with torch.no_grad():
        ours = engine.forward.logits(engine.forward.states(flat.ids, flat.positions, [segment], flat.attention))
    theirs = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base.path), tmp_path / "s0")
    with torch.no_grad():
        torch.testing.assert_close(ours, theirs(input_ids=flat.ids[None]).logits[0], atol=1e-4, rtol=1e-4)
    assert "popu" in (tmp_path / "s0" / "README.md").read_text().lower()


def test_block_and_stage_give_equal_artifacts(finished, workspace):
    workspace.write({**TINY, "granularity": "block"})
    result = workspace.run("train_all")
    assert result.returncode == 0, result.stderr[-3000:]
    assert workspace.digests() == finished.digests()


def test_a_finished_step_is_never_redone(copied, finished):
    """A copied tree with new times, a touched and a deleted early file redo nothing; a lost last step is rebuilt."""
    run = copied.run_directory()
    os.utime(run / "step00000" / "init.json")
    os.utime(run / "step00001" / "propose.json")
    shutil.rmtree(run / "step00001")
    assert "Nothing to be done" in (result := copied.run("train_all")).stdout + result.stderr


def test_a_run_can_be_extended(copied):
    config = copy.deepcopy(TINY)
    config["training"]["steps"] = 3
    copied.write(config)
    before = copied.digests()
    result = copied.run("train_all")
    assert result.returncode == 0, result.stderr[-3000:]
    after = copied.digests()
    kept = [name for name in before if "/step00001/" in name and name.count("/") == 5]  # adapters are let go
    assert kept and all(after[name] == before[name] for name in kept)
    assert any("/checkpoints/step00003/" in name for name in after)


def test_status_is_a_table_and_json(finished):
    assert "2/2" in finished.popu("status").stdout
    (row,) = json.loads(finished.popu("status", "--json").stdout)
    assert (row["step"], row["steps_to_go"]) == (2, 0) and set(row["ratings"]) == {"t0", "t1", "s0", "s1"}


def test_dynamics_are_those_of_the_tables(finished):
    run = finished.run_directory()
    directory = run / "dynamics" / "step00002"
    steps = pd.DataFrame(read_table(directory / "dynamics.parquet", "dynamics"))
    value = steps[steps["problem_type"] == ""].pivot(index="step", columns="metric", values="value")
    frames = popu.load_run(run)
    outcomes, verdicts = frames.frame("outcomes"), frames.frame("verdicts")
    assert list(value.index) == list(frames.steps) == [1, 2]
    assert value["solve_rate"].to_dict() == pytest.approx(outcomes.groupby("step")["rho"].mean().to_dict())
    assert value["student_reward"].to_dict() == pytest.approx(verdicts.groupby("step")["reward"].mean().to_dict())
    assert value["coverage"].is_monotonic_increasing and value["coverage"].iloc[0] > 0
    members = pd.DataFrame(read_table(directory / "member_dynamics.parquet", "member_dynamics"))
    assert set(members["member"]) == {"t0.g0", "t1.g0", "s0.g0", "s1.g0"}, "those born at step 2 have not lived yet"
    assert {(row["teacher"], row["step"]) for row in read_table(directory / "pairs.parquet", "pairs")} == {
        (f"t{i}.g0", step) for i in (0, 1) for step in (1, 2)
    }


def test_weights_are_those_of_the_checkpoints(finished):
    run = finished.run_directory()
    rows = read_table(run / "dynamics" / "step00002" / "weights.parquet", "weights")
    bundles = {int(path.name.removeprefix("step")) for path in (run / "checkpoints").glob("step*")}
    assert {row["step"] for row in rows} == bundles and all(row["norm"] > 0 and row["distance"] > 0 for row in rows)
    for row in rows:
        adapter = read_adapter(run / "checkpoints" / f"step{row['step']:05d}" / "adapters" / row["slot"])
        dense = sum(float((adapter.config.scale * b @ a).norm()) ** 2 for a, b in adapter.factors.values())
        assert row["norm"] == pytest.approx(dense**0.5, rel=1e-4)


def test_show_names_what_became_of_a_problem(finished):
    run = finished.run_directory()
    outcomes = popu.load_run(run).frame("outcomes", steps=[1])
    valid, rejected = outcomes[outcomes["rho"].notna()].iloc[0], outcomes[outcomes["status"] != "ok"]
    text = finished.popu("show", "problem", valid["problem_id"], "--run", str(run)).stdout
    assert "program" in text and f"rho      {valid['rho']:.3g}" in text
    attempt = finished.popu("show", "rollout", f"{valid['problem_id']}/0", "--run", str(run)).stdout
    assert "verdict" in attempt and "answer" in attempt
    for row in rejected.head(1).itertuples():
        text = finished.popu("show", "problem", row.proposal_id, "--run", str(run)).stdout
        assert f"status   {row.status}" in text and "written" in text
    assert "operator" in finished.popu("show", "member", "s0.g0", "--run", str(run)).stdout
    for what, name in (("problem", "00009-q0000.0"), ("problem", "x"), ("rollout", "00001-q0000.0"), ("member", "z")):
        result = finished.popu("show", what, name, "--run", str(run))
        assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr


def test_the_report_is_one_page_with_tables_and_figures(finished):
    directory = finished.run_directory().parents[1] / "report"
    page = (directory / "index.html").read_text()
    assert page.count("<img") >= 2 and "undecided" in page and "http" not in page.split("<body>")[1]
    assert (directory / "figures" / "dynamics.svg").is_file()
    rows = (directory / "tables" / "main.csv").read_text().splitlines()
    assert len(rows) > 5 and rows[0].startswith("arm,members,column,value,low,high")


def test_the_report_is_made_again_byte_for_byte(copied):
    directory = copied.run_directory().parents[1] / "report"
    before = {path.name: path.read_bytes() for path in directory.rglob("*.*")}
    shutil.rmtree(directory)
    assert copied.run("train_all").returncode == 0
    assert {path.name: path.read_bytes() for path in directory.rglob("*.*")} == before


def test_a_fork_goes_on_under_other_settings(copied, finished):
    run = copied.run_directory()
    change = ("--set", "evolution.every=0", "--set", "steps=3")
    result = copied.popu("fork", str(run), "--at", "2", "--arm", "calm", *change)
    assert result.returncode == 0, result.stderr
    forked = copied.run_directory("calm")
    state = popu.load_run(forked).run.state(2)
    assert state.members == popu.load_run(run).run.state(2).members and not any(state.optimizers.values())
    arms = yaml.safe_load(result.stdout.splitlines()[-1])["arms"]
    copied.write({**TINY, "arms": arms})
    done = copied.run("train_all")
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes = popu.load_run(forked).frame("outcomes")
    assert set(outcomes["step"]) == {1, 2, 3}
    assert outcomes[outcomes["step"] < 3].equals(popu.load_run(run).frame("outcomes"))
    for wrong in (("--at", "1"), ("--at", "2", "--set", "lora.rank=4"), ("--at", "2", "--set", "evolution.evry=1")):
        fault = copied.popu("fork", str(run), "--arm", "other", *wrong)
        assert (fault.returncode, fault.stderr.count("\n")) == (2, 1), fault.stderr
    assert copied.popu("fork", str(run), "--at", "2", "--arm", "calm", *change).returncode == 2, "it exists"


def test_cross_play_is_a_round_robin_within_a_run_and_step(finished):
    rows = read_table(finished.run_directory().parents[1] / "crossplay.parquet", "crossplay")
    assert {(row["teacher_arm"], row["teacher_step"], row["student_step"]) for row in rows} == {("pair", 2, 2)}
    attempts = {}
    for row in rows:
        attempts[row["student"]] = attempts.get(row["student"], 0) + row["n_attempts"]
        assert 0 <= row["n_correct"] <= row["n_attempts"]
    assert len(attempts) == 2 and set(attempts.values()) <= {2, 4, 6}, "both students try the same problems"


def test_compare_a_run_with_itself(finished):
    run = str(finished.run_directory())
    text = finished.popu("compare", run, run).stdout
    assert "none" in text and "solve_rate" in text and "0.0 (0.0 to 0.0; 1 x " in text


def test_lineage_is_two_tables_and_json(finished):
    run = finished.run_directory()
    births = read_table(run / "step00002" / "lineage.parquet", "lineage")
    result = json.loads(finished.popu("lineage", "--run", str(run), "--json").stdout)
    born = {row["member"]: row["operator"] for row in result["members"] if row["born_step"]}
    assert born == {row["child"]: row["operator"] for row in births} and born
    assert all(row["died_step"] == 2 for row in result["members"] if row["member"] in {b["replaced"] for b in births})
    assert sum(row["births"] for row in result["operators"]) == len(births)
    text = finished.popu("lineage", "--run", str(run)).stdout
    assert all(name in text for name in (*born, *born.values()))
    assert finished.popu("lineage", "--run", str(finished.path / "nowhere")).returncode == 2


def test_without_a_worker_the_artifacts_are_equal(finished, workspace, monkeypatch):
    monkeypatch.setenv("POPU_WORKER", "0")
    run = finished.run_directory()
    step = run / "step00001"
    settings = json.loads((run / "run.json").read_text())
    target = workspace.path / run.relative_to(finished.path)
    arguments = ("--run", str(target), "--step")
    assert workspace.popu("stage", "init", *arguments, "0", "--settings", json.dumps(settings)).returncode == 0
    for stage in ("propose", "validate", "solve", "verify", "update", "evolve"):
        assert (result := workspace.popu("stage", stage, *arguments, "1")).returncode == 0, result.stderr
    for path in step.glob("*.json"):
        if path.name != "timings.json":
            assert path.read_bytes() == (target / "step00001" / path.name).read_bytes()


def test_the_repository_is_the_base(finished):
    assert (REPO / "resources" / "nano" / "card.json").is_file()
