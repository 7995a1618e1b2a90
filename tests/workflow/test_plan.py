"""`popu plan` against what a real run wrote, and the configs for accelerators before Snakemake."""

import json
import sys

import pyarrow.parquet as pq
import pytest
import yaml

from .conftest import REPO

pytestmark = pytest.mark.slow
LARGE = ("paper", "qwen-3b", "qwen-1.5b", "qwen-0.5b")


def test_a_plan_agrees_with_what_a_run_wrote(finished):
    """Counts exactly, given the shares and lengths of the run; files within 5 %, the whole directory within 15 %."""
    directory = finished.run_directory()
    tables = {
        name: [pq.read_table(path) for path in sorted(directory.glob(f"step*/{name}.parquet"))]
        for name in ("proposals", "problems", "rollouts")
    }
    valid = sum(status == "ok" for table in tables["problems"] for status in table["status"].to_pylist())
    n_proposals = sum(len(table) for table in tables["proposals"])

    def mean_tokens(name):
        lengths = [len(tokens) for table in tables[name] for tokens in table["tokens"].to_pylist()]
        return sum(lengths) / len(lengths)

    stated = [
        f"valid_share={valid / n_proposals}",
        f"proposal_tokens={mean_tokens('proposals')}",
        f"answer_tokens={mean_tokens('rollouts')}",
    ]
    command = ["plan", "--config", "config.yaml", "--json", *(part for line in stated for part in ("--assume", line))]
    result = finished.popu(*command)
    assert result.returncode == 0, result.stderr
    (arm,) = json.loads(result.stdout)["arms"]
    assert [len(table) for table in tables["proposals"]] == [arm["expected"]["proposals"]] * arm["steps"]
    assert sum(len(table) for table in tables["rollouts"]) == pytest.approx(arm["steps"] * arm["expected"]["rollouts"])
    adapter, state = directory / "step00002/adapters/s0/adapter_model.safetensors", "step00002/optimizer/s0.safetensors"
    assert adapter.stat().st_size == pytest.approx(arm["adapter_bytes"], rel=0.05)
    assert (directory / state).stat().st_size == pytest.approx(arm["optimizer_bytes"], rel=0.05)
    places = (*directory.glob("step*"), directory / "checkpoints")
    written = sum(path.stat().st_size for place in places for path in place.rglob("*") if path.is_file())
    assert arm["disk"][-1]["step"] == 2 and arm["disk"][-1]["total"] == pytest.approx(written, rel=0.15)


@pytest.mark.parametrize("name", LARGE)
def test_without_weights_the_workflow_says_what_is_missing(workspace, name):
    path = REPO / "config" / f"{name}.yaml"
    workspace.write(yaml.safe_load(path.read_text()))
    result = workspace.run("train_all", "-n")
    base = yaml.safe_load(path.read_text())["base"]["path"]
    message = f"popu: base.path: expected a model directory with *.safetensors, found none in {base}"
    assert result.returncode == 2 and message in result.stderr


def test_the_papers_jobs_are_laid_out(workspace):
    """With the embedded base, and as much context as it has, in the place of the weights: 2 arms of 20 blocks."""
    config = yaml.safe_load((REPO / "config" / "paper.yaml").read_text())
    config["base"]["path"] = str(REPO / "resources" / "nano")
    config["engine"]["vllm"]["python"] = sys.executable
    config["training"]["sampling"]["context"] = 1024
    workspace.write(config)
    result = workspace.run("train_all", "-n")
    assert result.returncode == 0, result.stderr
    assert any(line.split() == ["block", "40"] for line in result.stdout.splitlines()), result.stdout[-2000:]
