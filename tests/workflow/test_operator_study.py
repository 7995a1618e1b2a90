"""`operator_study` end to end on the tiny run."""

import json

import pandas as pd
import pytest

from popu.evolution.registry import OPERATORS

from .conftest import TINY

pytestmark = pytest.mark.slow

SMALL = {"arm": "pair", "repeats": 2, "steps": 1, "problems": 3, "every": 1, "tasks_per_level": 1, "samples": 2}


@pytest.fixture()
def study(copied):
    """Runs the study beside a finished run; gives the workspace and the study's directory."""
    before = copied.digests()
    copied.write({**TINY, "operator_study": SMALL})
    result = copied.run("operator_study")
    assert result.returncode == 0, result.stderr[-3000:]
    (directory,) = (copied.path / "results" / "tiny" / "operator_study").iterdir()
    after = copied.digests()
    assert {name: after[name] for name in before} == before, "nothing of the run is redone"
    return copied, directory


def test_a_study_makes_tables_and_a_figure_and_is_kept(study):
    workspace, directory = study
    table = pd.read_csv(directory / "operators.csv")
    assert sorted(table["operator"].unique()) == sorted(OPERATORS)
    assert set(table["n_runs"]) == {2}, "two repeats of one run"
    for name in ("operators.md", "operators.tex", "changes.csv", "changes.md", "changes.tex", "recovery.svg"):
        assert (directory / name).stat().st_size > 0
    assert (directory / "recovery.png").read_bytes().startswith(b"\x89PNG")
    again = workspace.run("operator_study")
    assert again.returncode == 0 and "Nothing to be done" in again.stdout + again.stderr
    first = workspace.digests()
    for name in ("operators.csv", "changes.csv", "recovery.png"):
        (directory / name).unlink()
    assert workspace.run("operator_study").returncode == 0
    assert workspace.digests() == first
    more = {**SMALL, "repeats": 3}
    workspace.write({**TINY, "operator_study": more})
    planned = workspace.run("operator_study", "-n")
    assert planned.returncode == 0 and "repeat=2" in planned.stdout and "repeat=1" not in planned.stdout


def test_an_arm_that_does_not_exist_is_one_message(workspace):
    workspace.write({**TINY, "operator_study": {**SMALL, "arm": "4t4s"}})
    result = workspace.run("operator_study")
    assert result.returncode == 2
    assert "popu: operator_study.arm: expected one of pair, found '4t4s'" in result.stderr
    assert "Traceback" not in result.stderr


def test_settings_on_the_command_line_are_checked(workspace):
    arguments = ("--run", "x", "--step", "1", "--out", "y", "--settings", json.dumps({"step": 3}))
    result = workspace.popu("operator-study", *arguments)
    assert result.returncode == 2 and "unknown key; the nearest valid key is steps" in result.stderr
