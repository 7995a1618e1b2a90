"""LiveCodeBench; numbers are those of public reports of wrong scores. Real statements where their data is present."""

import base64
import json
import pickle
import zlib
from pathlib import Path

import pytest

from popu.errors import ArtifactError, ConfigError
from popu.evaluate import livecodebench, suites
from popu.evaluate.livecodebench import cases_of, decoded, same_json, same_text, suite
from popu.sandbox.executor import Executor, Limits, Profile

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "benchmarks"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no benchmark data at {DATA}")


def packed(value):
    """As the hub has hidden tests: pickled, compressed, in base 64."""
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def cases(*pairs, kind="stdin"):
    return json.dumps([{"input": given, "output": expected, "testtype": kind} for given, expected in pairs])


ROW = {
    "platform": "atcoder",
    "question_id": "abc1_a",
    "question_content": "Add two numbers.",
    "starter_code": "",
    "contest_date": "2024-08-03T00:00:00",
    "public_test_cases": cases(("1 2\n", "3\n")),
    "private_test_cases": packed(cases(("5 6\n", "11\n"), ("0 0\n", "0\n"))),
    "metadata": "{}",
}
CALLED = {
    **ROW,
    "platform": "leetcode",
    "starter_code": "class Solution:\n    def add(self, a: List[int], b: int) -> List[int]:\n        ",
    "public_test_cases": cases(("[1, 2]\n1", "[2, 3]"), kind="functional"),
    "private_test_cases": packed(cases(("[]\n0", "[]"), kind="functional")),
    "metadata": '{"func_name": "add"}',
}
NAME = "livecodebench_v5_2024-08_2025-01"
RIGHT = "print(sum(map(int, input().split())))"


@pytest.fixture(scope="module")
def executor():
    with Executor(
        Limits(cpu_s=1.0, wall_s=90.0, memory_mb=256, value_bytes=2**20), profile=Profile.EVALUATION
    ) as running:
        yield running


def task(name=NAME, **changes):
    return suite(name).tasks([{**ROW, **changes}])[0]


def words(executor, of, *programs):
    return livecodebench.score([of] * len(programs), [f"```python\n{p}\n```" for p in programs], executor)


# --- programs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "program",
    [
        RIGHT,
        "import sys\na, b = map(int, sys.stdin.readline().split())\nsys.stdout.write(f'{a + b}\\n')",
        "import sys\ndata = sys.stdin.buffer.read().split()\nprint(int(data[0]) + int(data[1]))",
        "import os, io\ndata = io.BytesIO(open(0, 'rb').read() if False else __import__('sys').stdin.buffer.read())\n"
        "print(sum(map(int, data.readline().split())))",
        f"def main():\n    {RIGHT}\nif __name__ == '__main__':\n    main()",
        "from __future__ import annotations\n" + RIGHT,
        "print(reduce(add := lambda x, y: x + y, map(int, input().split())))\nexit()",
    ],
)
def test_report_25_ways_to_read_standard_input(executor, program):
    (word,) = words(executor, task(), program)
    assert word.passed, word.reason


def test_the_hidden_tests_count_and_the_reason_names_one(executor):
    public, no_program = words(executor, task(), "print(3)", "")
    assert not public.passed and public.reason == r"wrong on test 1: '3\n', expected '11\n'"
    assert (no_program.passed, no_program.reason, no_program.extracted) == (False, "no program", None)


@pytest.mark.parametrize(
    "program",
    [
        "def f(n):\n    return f(n + 1)\nprint(f(0))",
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(n):\n    return f(n + 1)\nprint(f(0))",
        "import sys\nsys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**6): x = [x]\nprint(x == eval('x'), x)",
    ],
)
@pytest.mark.slow
def test_report_24_deep_recursion_fails_and_crashes_nothing(executor, program):
    fallen, next_one = words(executor, task(), program, RIGHT)
    assert not fallen.passed and fallen.reason.partition(":")[0] in ("raised", "crashed", "memory", "timeout")
    assert next_one.passed


def test_recursion_as_deep_as_livecodebench_allows(executor):
    deep = "def f(n):\n    return 0 if n == 0 else f(n - 1)\nf(20_000)\n" + RIGHT
    assert words(executor, task(), deep)[0].passed


@pytest.mark.slow
def test_time_is_cpu_time_of_a_test_and_not_the_executors(executor, monkeypatch):
    assert livecodebench.TEST_CPU_S == 6.0
    monkeypatch.setattr(livecodebench, "TEST_CPU_S", 2.0)
    sleeper, busy, endless = words(
        executor,
        task(),
        f"import time\ntime.sleep(2)\n{RIGHT}",
        f"import time\nwhile time.process_time() < 1.3: pass\n{RIGHT}",
        f"while True: pass\n{RIGHT}",
    )
    assert sleeper.passed and busy.passed  # this executor's own limit is 1 s
    assert endless.reason == "timeout: over the cpu limit"


def test_methods_are_called(executor):
    of = task(**CALLED)
    body = "    def add(self, a: List[int], b: int) -> List[int]:\n        return "
    scores = words(
        executor,
        of,
        f"class Solution:\n{body}[x + b for x in a]",
        f"class Solution:\n{body}tuple(map(lambda x: x + b, a))",
        "def add(a, b):\n    return [x + b for x in a]",
        f"class Solution:\n{body}a",
        "x = 1",
    )
    assert [score.passed for score in scores] == [True, True, True, False, False]
    assert scores[3].reason == "wrong on test 0: [1, 2], expected '[2, 3]'"


def test_a_long_value_of_a_method(executor):
    """It comes back as a digest."""
    numbers = list(range(100_000))
    test = cases((f"{json.dumps(numbers)}\n1", json.dumps([x + 1 for x in numbers])), kind="functional")
    of = task(**{**CALLED, "private_test_cases": packed(test)})
    right, wrong = words(
        executor,
        of,
        "def add(a, b):\n    return tuple(x + b for x in a)",
        "def add(a, b):\n    return [x + b for x in a[:99_999]] + [7] if a[5:] else [x + b for x in a]",
    )
    assert right.passed and "wrong on test 1: ('sha256'" in wrong.reason


def test_inputs_of_megabytes(executor):
    numbers = " ".join(["7"] * 1_500_000)
    of = task(private_test_cases=packed(cases(*[(f"{numbers} {i}", str(10_500_000 + i)) for i in range(3)])))
    assert [score.passed for score in words(executor, of, RIGHT, "print(3)")] == [True, False]


@pytest.mark.parametrize(
    ("given", "expected", "same"),
    [
        ("1\n2\n", "1\n2", True),
        (" 1 \n2", "1\n2\n", True),
        ("1 2.50", "1.0 2.5", True),
        ("1\n2", "1 2", False),
        ("yes", "YES", False),
        ("1e400", "1e401", False),
        ("nan", "x", False),
        ("", "", True),
        ("1\n\n2", "1\n2", False),
    ],
)
def test_same_text(given, expected, same):
    assert same_text(given, expected) is same


def test_same_json():
    assert same_json([1, 2], "[1, 2]") and same_json(True, "true") and same_json(None, "null") and same_json(1.0, "1")
    assert not same_json([1, 2], "[2, 1]") and not same_json("1", "1")


# --- tests of a task -------------------------------------------------------------------------------------------


def test_hidden_tests_are_read_and_follow_the_public_ones():
    assert [case.output for case in cases_of(task())] == ["3\n", "11\n", "0\n"]
    plain = task(private_test_cases=cases(("5 6", "11")))  # some rows hold them as they are
    assert [case.output for case in cases_of(plain)] == ["3\n", "11"]
    long = "x" * 100_000 + "\u00e9\ud800"
    assert decoded(packed(long)) == long


class Evil:
    def __reduce__(self):
        return print, ("run",)


@pytest.mark.parametrize(
    "value", [Evil(), ["[]"], 7, b"[]", ("a", "b"), {"a": "b"}, None, print], ids=lambda value: type(value).__name__
)
def test_a_pickle_of_anything_but_a_string_is_refused(value, capsys):
    with pytest.raises(ArtifactError, match="expected hidden tests as a compressed string"):
        decoded(packed(value))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "text",
    [
        "not base 64",
        base64.b64encode(b"not compressed").decode(),
        base64.b64encode(zlib.compress(b"no pickle")).decode(),
        base64.b64encode(zlib.compress(pickle.dumps("[]"))[:-4]).decode(),
        packed("no json"),
        packed('[{"input": "1"}]'),
        packed('"[]"'),
        packed("{}"),
    ],
)
def test_report_28_tests_that_cannot_be_read_are_no_pass(executor, text):
    with pytest.raises(ArtifactError, match="atcoder/abc1_a: expected"):
        words(executor, task(private_test_cases=text, public_test_cases="[]"), RIGHT)


@pytest.mark.parametrize("changes", [{"private_test_cases": packed("[]"), "public_test_cases": "[]"}])
def test_report_28_an_empty_list_of_tests_is_no_pass(executor, changes):
    with pytest.raises(ArtifactError, match="atcoder/abc1_a: expected tests, found an empty list"):
        words(executor, task(**changes), RIGHT)


def test_report_28_missing_tests_are_no_pass():
    with pytest.raises(ArtifactError, match="expected hidden tests, found none"):
        task(private_test_cases="")
    with pytest.raises(ArtifactError, match="expected tests, found an empty list"):
        task("livecodebench_v1_public_tests_only_2024-08_2024-08", public_test_cases="[]")


# --- names -----------------------------------------------------------------------------------------------------


def test_report_29_release_and_window_are_in_the_name():
    assert suite(NAME).name == NAME and livecodebench.dataset(NAME) == "livecodebench_v5"
    dates = ["2024-07-31T23:59:59", "2024-08-01T00:00:00", "2025-01-31T00:00:00", "2025-02-01T00:00:00"]
    rows = [{**ROW, "contest_date": date, "question_id": date[:10]} for date in dates]
    assert [of.task_id for of in suite(NAME).tasks(rows)] == ["atcoder/2024-08-01", "atcoder/2025-01-31"]
    with pytest.raises(ArtifactError, match="expected tasks from 2024-08 to 2025-01, found none"):
        suite(NAME).tasks(rows[:1])


@pytest.mark.parametrize(
    "name",
    ["livecodebench", "livecodebench_v5", "livecodebench_v9_2024-08_2025-01", "livecodebench_v5_2025-01_2024-08"],
)
def test_a_name_without_them_is_refused(name):
    with pytest.raises(ConfigError, match=r"such as livecodebench_v5_2023-05_2025-01, .*_public_tests_only_.*found"):
        suites.suite(name)


@needs_data
def test_the_release_with_public_tests_only_says_so():
    name = livecodebench.suite_name("v1_public_tests_only")
    assert name == "livecodebench_v1_public_tests_only_2023-05_2024-03" and name in suites.suite_names()
    tasks = suites.tasks(name, DATA)
    assert len(tasks) == 400 and all(cases_of(of) for of in tasks)
    few = suites.tasks("livecodebench_v1_public_tests_only_2023-05_2023-05", DATA)
    assert {of.task_id for of in few} < {of.task_id for of in tasks}


@needs_data
def test_a_real_statement_of_each_kind(executor):
    tasks = {of.task_id: of for of in suites.tasks("livecodebench_v1_public_tests_only_2023-05_2023-08", DATA)}
    seniors = "class Solution:\n    def countSeniors(self, details: List[str]) -> int:\n"
    seniors += "        return sum(int(d[11:13]) > 60 for d in details)"
    swap = (
        "for _ in range(int(input())):\n    s = input()\n    print('YES' if sum(a != b for a, b in zip(s, 'abc')) < 3"
    )
    swap += " else 'NO')"
    of = [tasks["leetcode/2727"], tasks["codeforces/1873_A"]]
    assert "class Solution" in of[0].prompt and "standard input" in of[1].prompt
    scores = livecodebench.score(of, [f"```python\n{p}\n```" for p in (seniors, swap)], executor)
    assert [score.passed for score in scores] == [True, True], scores
