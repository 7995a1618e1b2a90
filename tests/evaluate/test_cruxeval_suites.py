"""CRUXEval: what is read of a completion, and that running it decides. All golds where the data is present."""

from pathlib import Path

import pytest

from popu.evaluate import suites
from popu.evaluate.cruxeval import SUITES, answered
from popu.sandbox.executor import Executor, Limits, Profile

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "benchmarks"
ROW = {
    "id": "own_0",
    "code": "def f(x, y=0):\n    return {x: [y, 1.5]}",
    "input": "'a', y=2",
    "output": "{'a': [2, 1.5]}",
}


@pytest.fixture(scope="module")
def executor():
    with Executor(Limits(cpu_s=1.0), slots=2, profile=Profile.EVALUATION) as running:
        yield running


def words(executor, name, *completions):
    (task,) = SUITES[name].tasks([ROW])
    return SUITES[name].score([task] * len(completions), completions, executor)


def test_the_prompts():
    asked_for_input, asked_for_output = (SUITES[name].tasks([ROW])[0].prompt for name in ("cruxeval_i", "cruxeval_o"))
    assert asked_for_output == (
        "```python\ndef f(x, y=0):\n    return {x: [y, 1.5]}\n```\n\n"
        "Replace ?? by the value that f returns, as a literal.\n\n```python\nassert f('a', y=2) == ??\n```\n\n"
        "End your answer with the completed assertion in one ```python block.\n"
    )
    assert "assert f(??) == {'a': [2, 1.5]}" in asked_for_input and "'a', y" not in asked_for_input
    assert "2, 1.5" not in asked_for_output


@pytest.mark.parametrize(
    ("completion", "asked", "text"),
    [
        ("```python\nassert f(1) == [2]\n```", "output", "[2]"),
        ("```python\nassert f(1) == [2]\n```", "input", "1"),
        ("```\nassert [2] == f((1, 2), k=')')  # so\n```", "input", "(1, 2), k=')'"),
        ("```python\ndef f(x):\n    return x\nassert f( 1 ) == 2, 'no'\n```", "output", "2"),
        ("```python\nassert f(1) == 1\n```\nNo.\n```python\nassert f(1) == 2\n```", "output", "2"),
        ("It gives [ANSWER]\n'a b'\n[/ANSWER] as said", "output", "'a b'"),
        ("[ANSWER]assert f('x') == 'y'[/ANSWER]", "input", "'x'"),
        ("First this.\nassert f(3) == 4", "output", "4"),
        ("```python\n[1, 2]\n```", "output", "[1, 2]"),
        ("```python\n1, 2\n```", "input", "1, 2"),
        ("```python\nf([1],\n  2)\n```", "input", "[1],\n  2"),
        ("```python\nf([1])\n```", "output", None),
        ("```python\nassert f() == 1\n```", "input", ""),
        ("I do not know.", "output", None),
        ("I do not know.", "input", None),
        ("", "output", None),
        ("```python\n0) or (1\n```", "input", None),
        ("```python\nassert True\n```", "output", None),
        ("[" * 10_000, "output", None),
    ],
)
def test_what_is_read_of_a_completion(completion, asked, text):
    assert answered(completion, asked) == text


def test_an_output_is_right_by_its_value(executor):
    block = "```python\nassert f('a', y=2) == {}\n```".format
    right, computed, other, called, free, none = words(
        executor,
        "cruxeval_o",
        block("{'a': [2.0, 3 / 2]}"),
        block("dict(a=[2, 1.5])"),
        block("{'a': [2]}"),
        block("f('a', y=2)"),
        block("undefined"),
        "?",
    )
    assert right.passed and right.extracted == "{'a': [2.0, 3 / 2]}" and computed.passed
    assert other.reason == "wrong: {'a': [2]}, expected {'a': [2, 1.5]}"
    assert not called.passed and called.reason.startswith("raised: NameError")  # it names the question as the answer
    assert not free.passed and not none.passed and none.reason == "no answer"


def test_an_input_is_right_by_running_it(executor):
    block = "```python\nassert f({}) == 0\n```".format
    gold, other_words, wrong, raises = words(
        executor, "cruxeval_i", block("'a', y=2"), block("chr(97), *[2]"), block("'a'"), block("[], 2")
    )
    assert gold.passed and other_words.passed
    assert wrong.reason == "wrong: {'a': [0, 1.5]}, expected {'a': [2, 1.5]}"
    assert raises.reason.startswith("raised: TypeError")


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason=f"no benchmark data at {DATA}")
@pytest.mark.parametrize("name", ["cruxeval_i", "cruxeval_o"])
def test_the_golds_of_all_800(executor, name):
    tasks = suites.tasks(name, DATA)
    rows = suites.data.rows("cruxeval", DATA)
    completions = [f"So:\n```python\nassert f({row['input']}) == {row['output']}\n```\n" for row in rows]
    scores = suites.suite(name).score(tasks, completions, executor)
    assert [task.task_id for task, score in zip(tasks, scores, strict=True) if not score.passed] == []
    assert len(scores) == 800
