"""The scorers' black-box door, line by line."""

import json
from pathlib import Path

import pytest

from popu.cli import main
from popu.errors import ArtifactError, ConfigError
from popu.evaluate import data, suites
from popu.evaluate.sources import SOURCES, Source
from popu.sandbox.executor import Executor, Limits, Profile
from popu.score import score_lines
from popu.verify import CHUNK

ROW = {"id": "own_0", "code": "def f(x):\n    return x + 1", "input": "1", "output": "2"}


@pytest.fixture(scope="module")
def executor():
    with Executor(Limits(cpu_s=1.0), profile=Profile.EVALUATION) as running:
        yield running


@pytest.fixture
def data_dir(tmp_path, monkeypatch):
    """A CRUXEval of one task; the product's table knows it by its digest."""
    path = tmp_path / "data" / "own.jsonl"
    path.parent.mkdir()
    path.write_text(json.dumps(ROW) + "\n")
    digest = data.hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(SOURCES, "cruxeval", (Source("own.jsonl", "http://none", digest, 1, "none"),))
    return path.parent


def answers(executor, data_dir, *requests, suite="cruxeval_o"):
    lines = [request if isinstance(request, str) else json.dumps(request) for request in requests]
    return list(score_lines(lines, suite, lambda profile: executor, data_dir))


def line(number, value):
    return {"id": number, "task_id": "own_0", "completion": f"```python\nassert f(1) == {value}\n```"}


def test_one_answer_a_line_in_order(executor, data_dir):
    right, wrong, none = answers(executor, data_dir, line("a", 2), line(7, 3), {**line("b", 2), "completion": "?"})
    assert right == {"id": "a", "passed": True, "extracted": "2", "reason": ""}
    assert wrong == {"id": 7, "passed": False, "extracted": "3", "reason": "wrong: 3, expected 2"}
    assert none == {"id": "b", "passed": False, "extracted": None, "reason": "no answer"}
    many = answers(executor, data_dir, *(line(i, i % 3) for i in range(CHUNK + 5)))
    assert [answer["passed"] for answer in many] == [i % 3 == 2 for i in range(CHUNK + 5)]


@pytest.mark.parametrize(
    ("request_line", "request_id", "says"),
    [
        ("{", None, "line 1: Invalid JSON"),
        ('{"id": 1, "completion": "x"}', 1, "task_id, gold: expected one of both"),
        ('{"id": 1, "completion": "x", "task_id": "own_0", "gold": "2"}', 1, "task_id, gold: expected one of both"),
        ('{"id": 1, "task_id": "own_0"}', 1, "completion: Field required"),
        ('{"id": 1, "task_id": "own_0", "completion": 3}', 1, "completion"),
        ('{"id": 1, "task_id": "own_0", "completion": "x", "golden": "2"}', 1, "golden"),
        ('{"id": 1, "task_id": "other", "completion": "x"}', 1, "task_id: expected a task of cruxeval_o"),
        ('{"id": 1, "gold": "2", "completion": "x"}', 1, "gold: expected for a suite of mathematics"),
        ("[" * 100_000, None, "line 1"),
        ('{"id": 1, "task_id": "own_0", "completion": "\\ud800"}', 1, "line 1"),
    ],
)
def test_a_malformed_line_has_an_answer_of_its_own(executor, data_dir, request_line, request_id, says):
    bad, good = answers(executor, data_dir, request_line, line("good", 2))
    assert says in bad["error"] and "passed" not in bad and bad["id"] in (request_id, None)
    assert good["passed"]


def test_the_command(data_dir, tmp_path, capsys):
    given, out = tmp_path / "answers.jsonl", tmp_path / "scores.jsonl"
    given.write_text(f"{json.dumps(line(1, 2))}\n\nnonsense\n")
    command = ["score", "--in", str(given), "--out", str(out), "--data-dir", str(data_dir), "--suite"]
    assert main([*command, "cruxeval_o"]) == 0
    right, malformed = map(json.loads, out.read_text().splitlines())
    assert right["passed"] and "line 3" in malformed["error"]
    out.unlink()
    assert main([*command, "humaneval"]) == 2
    assert (
        "suite: expected one of humaneval_plus, mbpp_plus, livecodebench_v5_2023-05_2025-01" in capsys.readouterr().err
    )
    (data_dir / "own.jsonl").write_text("{}\n")
    assert main([*command, "cruxeval_i"]) == 2
    assert "own.jsonl: expected sha256" in capsys.readouterr().err
    assert not out.exists()  # nothing half done under the final name


def test_limits(data_dir):
    assert len(suites.tasks("cruxeval_o", data_dir, 1)) == 1
    with pytest.raises(ConfigError, match="limit: expected at least 1, found 0"):
        suites.tasks("cruxeval_o", data_dir, 0)
    with pytest.raises(ArtifactError, match="expected a file of the benchmark"):
        suites.tasks("mbpp_plus", Path(data_dir))
    for name in suites.suite_names():
        assert suites.suite(name).name == name and suites.suite(name).kind in ("code", "math", "reasoning")
