"""EvalPlus beside ours. What needs EvalPlus is skipped where it is not installed."""

import importlib.util
import os
from dataclasses import replace
from pathlib import Path

import pytest

from popu.errors import ConfigError
from popu.evaluate import code, data, suites
from popu.evaluate.evalplus_peer import EvalPlusWord, compare, counted, evaluate
from popu.evaluate.peers import Comparison
from popu.evaluate.suite import TaskScore
from popu.sandbox.executor import Executor, Profile

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "benchmarks"
HAVE_EVALPLUS = importlib.util.find_spec("evalplus") is not None
needs_evalplus = pytest.mark.skipif(not (HAVE_EVALPLUS and DATA.is_dir()), reason="no evalplus, or no benchmark data")


def test_a_rescored_task_is_counted_by_our_word_and_listed():
    ours = TaskScore(True, "", "x")
    skipped = Comparison("HumanEval/32", ours, EvalPlusWord("fail", "fail"))
    assert counted(skipped) and "ours: pass; EvalPlus: base fail, plus fail" in skipped.disagreement
    other = replace(skipped, task_id="HumanEval/33")
    assert not counted(other) and other.disagreement
    assert replace(other, peer=EvalPlusWord("pass", "pass")).disagreement == ""


@pytest.mark.skipif(HAVE_EVALPLUS, reason="evalplus is installed")
def test_without_evalplus_it_is_one_message():
    with pytest.raises(ConfigError, match=r"evalplus: expected 0\.3\.1"):
        evaluate("humaneval_plus", [], [], [])


@needs_evalplus
@pytest.mark.parametrize(
    ("name", "ids", "differ"),
    [
        pytest.param("humaneval_plus", ("2", "13", "32", "53"), {"HumanEval/32"}, marks=pytest.mark.slow),
        pytest.param("mbpp_plus", ("2", "106", "581", "787"), set(), marks=pytest.mark.slow),
        pytest.param("mbpp_plus", ("2", "255"), set(), marks=pytest.mark.long),  # gigabytes of output
    ],
)
def test_canonical_solutions_agree_but_for_the_task_that_evalplus_skips(name, ids, differ, monkeypatch):
    monkeypatch.setenv("EVALPLUS_TIMEOUT_PER_TASK", "60")  # alone it would end EvalPlus with a TypeError
    rows = data.rows(name, DATA)
    tasks = [task for task in suites.tasks(name, DATA) if task.task_id.partition("/")[2] in ids]
    solutions = [task.reference["solution"] for task in tasks]
    wrong = f"```python\ndef {tasks[0].reference['entry']}(*arguments):\n    return None\n```"
    bad = f"import socket\nsocket.socket()\n{solutions[0]}"
    given = [*(f"```python\n{text}\n```" for text in [*solutions, bad]), wrong]
    of = [*tasks, tasks[0], tasks[0]]
    with Executor(slots=2, profile=Profile.EVALUATION) as executor:
        scores = code.score(of, given, executor)
    assert [score.passed for score in scores] == [True] * len(tasks) + [False, False]
    assert scores[-2].reason.startswith("denied:")
    both = compare(name, rows, of, scores)
    assert {one.task_id for one in both if one.disagreement} == differ, [one.disagreement for one in both]
    assert [counted(one) for one in both] == [score.passed for score in scores]
    assert os.environ["EVALPLUS_TIMEOUT_PER_TASK"] == "60"


@needs_evalplus
@pytest.mark.slow
def test_report_06_evalplus_passes_what_equals_everything_and_ours_does_not():
    """The fault is still there, so ours has to be the score."""
    (task,) = [task for task in suites.tasks("humaneval_plus", DATA) if task.task_id == "HumanEval/53"]
    equal = "class E:\n    def __eq__(self, other):\n        return True\n\ndef add(x, y):\n    return E()"
    with Executor(profile=Profile.EVALUATION) as executor:
        scores = code.score([task], [f"```python\n{equal}\n```"], executor)
    (both,) = compare("humaneval_plus", data.rows("humaneval_plus", DATA), [task], scores)
    assert both.peer.passed and not both.ours.passed and both.disagreement
