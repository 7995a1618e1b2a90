"""docs/extend.md: its distribution is built from the page and used by a real run."""

import json
import re
import tomllib

import pytest
import yaml

from popu.artifacts import read_table

from ..distributions import install
from .conftest import REPO, TINY, Workspace

PAGE = (REPO / "docs" / "extend.md").read_text()
MAX_LINES = 40
pytestmark = pytest.mark.slow


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def over(a, b):
    nested = {k: over(a[k], v) for k, v in b.items() if isinstance(v, dict) and isinstance(a.get(k), dict)}
    return {**a, **b, **nested}


MODULES = {block.partition("\n")[0].removeprefix("# "): block for block in blocks("python")}
(PROJECT,) = map(tomllib.loads, blocks("toml"))
(CONFIG,) = map(yaml.safe_load, blocks("yaml"))


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """A run with all five examples, and its members' scores on the example's benchmark."""
    config = over({**TINY, "heldout": {"tasks_per_level": 0}, "crossplay": {"problems": 0}}, CONFIG)
    workspace = Workspace(tmp_path_factory.mktemp("extended"), config)
    project = PROJECT["project"]
    files = {"popu_extras/__init__.py": "", **MODULES}
    install(workspace.plugins, project["name"], project["entry-points"], files, project["version"])
    result = workspace.run("train_all", "evaluate_all")
    assert result.returncode == 0, result.stderr[-3000:]
    yield workspace
    workspace.popu("worker", "stop")


def table(workspace, step, name):
    return read_table(workspace.run_directory() / f"step{step:05d}" / f"{name}.parquet", name)


def test_there_is_a_short_example_of_every_kind():
    kinds = ("rewards", "matchers", "operators", "problem_types", "benchmarks")
    assert sorted(PROJECT["project"]["entry-points"]) == sorted(f"popu.{kind}" for kind in kinds)
    assert len(MODULES) == 5 and all(len(text.splitlines()) <= MAX_LINES for text in MODULES.values())


def test_the_run_names_the_distribution_and_the_bundle_its_version(extended):
    run = extended.run_directory()
    state = json.loads((run / "run.json").read_text())["plugins"]["popu-extras"]
    assert re.fullmatch(r"1\.0\+[0-9a-f]{8}", state)
    assert json.loads((run / "checkpoints" / "step00002" / "versions.json").read_text())["popu-extras"] == "1.0"


def test_the_problem_type_is_trained_on(extended):
    problems = table(extended, 1, "problems")
    assert {row["problem_type"] for row in problems} == {"word_sort"} and {row["status"] for row in problems} == {"ok"}
    assert all(row["outputs"] == ["".join(sorted(row["program"]))] for row in problems)
    assert {row["problem_type"] for row in table(extended, 0, "buffer")} == {"word_sort"}
    shown = extended.popu("show", "problem", problems[0]["problem_id"], "--run", str(extended.run_directory()))
    assert shown.returncode == 0 and f"  = {problems[0]['outputs'][0]}\n" in shown.stdout


def test_the_reward_pays(extended):
    verdicts, rollouts = table(extended, 1, "verdicts"), table(extended, 1, "rollouts")
    for verdict, rollout in zip(verdicts, rollouts, strict=True):
        expected = {"bad_format": -1.0, "wrong": -0.5}.get(verdict["verdict"], 1 + 1 / (1 + len(rollout["completion"])))
        assert verdict["reward"] == pytest.approx(expected, abs=1e-6)


def test_the_matcher_matches(extended):
    matches = json.loads((extended.run_directory() / "step00001" / "matches.json").read_text())
    assert [(row["teacher"], row["student"]) for row in matches] == [("t0", "s0"), ("t1", "s1")], "equal ratings"


def test_the_operator_makes_children(extended):
    assert [row["operator"] for row in table(extended, 2, "lineage")] == ["scaled"]
    (card,) = (extended.run_directory() / "step00002" / "children").glob("*/README.md")
    assert "1.2" in card.read_text()


def test_the_benchmark_scores_every_member(extended):
    path = extended.run_directory() / "benchmarks" / "step00002" / "doubling" / "scores.parquet"
    rows = read_table(path, "scores")
    assert len(rows) == 5 * 4 and {row["task_id"] for row in rows} == {f"doubling/{n}" for n in range(1, 5)}


def test_the_benchmark_scores_answers_from_anywhere(extended):
    lines = [{"id": n, "task_id": "doubling/2", "completion": text} for n, text in enumerate(("4\n", "5"))]
    (extended.path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
    result = extended.popu("score", "--suite", "doubling", "--in", "in.jsonl", "--out", "out.jsonl")
    assert result.returncode == 0, result.stderr
    found = [json.loads(line) for line in (extended.path / "out.jsonl").read_text().splitlines()]
    assert [answer["passed"] for answer in found] == [True, False]


def test_a_changed_plug_in_starts_another_run_and_a_stage_refuses_it(extended):
    """Last: it changes the distribution."""
    run = extended.run_directory()
    path = extended.plugins / "popu_extras" / "reward.py"
    path.write_text(path.read_text() + "\n# changed\n")
    result = extended.popu("stage", "propose", "--run", str(run), "--step", "3")
    assert result.returncode == 2 and "plug-ins of the run: expected popu-extras 1.0+" in result.stderr
    result = extended.run("train_all", "--dry-run")
    assert result.returncode == 0 and "propose" in result.stdout, "another directory: all of it is to be done"
