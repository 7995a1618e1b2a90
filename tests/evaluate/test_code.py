"""HumanEval+ and MBPP+; numbers are those of public reports of wrong scores. Real tasks where their data is present."""

import gzip
import json
import multiprocessing
from pathlib import Path

import pytest

from popu.errors import ArtifactError
from popu.evaluate import code, suites
from popu.evaluate.code import SUITES, digit_distance, mbpp_inputs, pyramid_surface
from popu.evaluate.suite import BenchmarkTask
from popu.problems.values import parse_value
from popu.sandbox.executor import Executor, Job, Limits, Profile

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "benchmarks"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no benchmark data at {DATA}")

ROW = {
    "task_id": "Own/0",
    "prompt": 'def f(x):\n    """ One more. """\n',
    "entry_point": "f",
    "canonical_solution": "    return x + 1\n",
    "base_input": [[1], [2]],
    "plus_input": [[-1]],
    "atol": 0,
}


@pytest.fixture(scope="module")
def executor():
    with Executor(Limits(cpu_s=2.0, value_bytes=16 * 2**20, memory_mb=1024), slots=2, profile=Profile.EVALUATION) as it:
        yield it


@pytest.fixture(scope="module")
def humaneval():
    return {task.task_id: task for task in suites.tasks("humaneval_plus", DATA)}


@pytest.fixture(scope="module")
def mbpp():
    return {task.task_id: task for task in suites.tasks("mbpp_plus", DATA)}


def own(**changes):
    return SUITES["humaneval_plus"].tasks([{**ROW, **changes}])[0]


def word(executor, task, completion):
    return code.score([task], [completion], executor)[0]


def fenced(program):
    return f"```python\n{program}\n```"


# --- the word on a completion ----------------------------------------------------------------------------------


def test_a_word_has_its_reason_and_the_program(executor):
    task = own()
    scores = code.score(
        [task] * 4,
        [fenced("def f(x):\n    return x + 1"), "    return x + 1\n", fenced("def f(x):\n    return 2"), "No."],
        executor,
    )
    assert [score.passed for score in scores] == [True, True, False, False]
    assert scores[1].extracted == task.prompt + "    return x + 1"
    assert scores[2].reason == "wrong on input 1: 2, expected 3"
    assert (scores[3].reason, scores[3].extracted) == ("no program", None)


@pytest.mark.parametrize(
    "value",
    [
        "type('E', (), {'__eq__': lambda self, other: True})()",
        "type('E', (int,), {'__eq__': lambda self, other: True})(7)",
        "type('E', (dict,), {'__eq__': lambda self, other: True})()",
        "__import__('unittest.mock').mock.ANY",
    ],
)
def test_report_06_an_object_that_equals_everything_fails(executor, value):
    assert not word(executor, own(), fenced(f"def f(x):\n    return {value}")).passed


def test_what_is_expected_is_in_no_frame_of_the_callers(executor):
    """EvalPlus's checker passes a program that takes `expected` from the frame that calls it."""
    program = """\
import sys, gc
def f(x):
    frame = sys._getframe()
    found = []
    while frame:
        found += [value for space in (frame.f_locals, frame.f_globals) for value in list(space.values())]
        for name in ("expected", "exp", "reference", "outputs", "i"):
            if name in frame.f_locals and name != "outputs":
                return frame.f_locals[name]
        frame = frame.f_back
    texts = [value for value in found + gc.get_objects() if isinstance(value, str)]
    return 987654321 if any("987654321" in text and "find me" not in text for text in texts) else 0  # find me
"""
    task = own(canonical_solution="    return 987654320 + 1\n")
    assert "wrong on input 0: 0" in word(executor, task, fenced(program)).reason


@pytest.mark.slow
def test_report_03_a_memory_bomb_is_one_failure(executor):
    """As Mbpp/255 was answered once: a list of 9 ** 40 tuples."""
    bomb = "import itertools\ndef f(x):\n    return list(itertools.product(range(9), repeat=40))"
    scores = code.score([own(), own()], [fenced(bomb), "    return x + 1"], executor)
    assert [score.passed for score in scores] == [False, True]
    assert scores[0].reason.partition(":")[0] in ("memory", "timeout")


@pytest.mark.slow
def test_report_27_a_program_that_waits_passes_in_a_full_pool():
    """Time is CPU time: two seconds of sleep, more programs at once than there are cores."""
    slots = 2 * multiprocessing.cpu_count()
    sleeper = "import time\ndef f(x):\n    time.sleep(2)\n    return x + 1"
    task = own(base_input=[[1]], plus_input={})
    programs = [fenced(f"{sleeper}\n# {i}") for i in range(slots)]
    with Executor(Limits(cpu_s=1.0), slots=slots, profile=Profile.EVALUATION) as executor:
        assert all(score.passed for score in code.score([task] * slots, programs, executor))


def test_the_arguments_of_a_call_are_its_own(executor):
    task = own(base_input=[[[3, 1]], [[2]]], plus_input=[[[3, 1]]], canonical_solution="    return sorted(x)\n")
    assert word(executor, task, fenced("def f(x):\n    x.sort()\n    return x")).passed


def test_a_solution_that_does_not_run_here_is_no_verdict(executor):
    with pytest.raises(ArtifactError, match=r"Own/0: expected the benchmark's own solution to run .* raised: Zero"):
        word(executor, own(canonical_solution="    return 1 / 0\n"), "    return x + 1")


@pytest.mark.parametrize(
    ("canonical", "given", "atol", "passed"),
    [
        ("x / 3", "x * (1 / 3)", 0, True),  # floats alone have a tolerance
        ("[x / 3, 1]", "[x / 3 + 1e-7, 1]", 0, False),
        ("[x / 3, 1]", "[x / 3 + 1e-7, 1]", 1e-6, True),
        ("x / 1", "x", 0, True),  # 1.0 == 1
        ("x + 0.00001", "x", 1e-4, False),  # near, of another type
        ("(x, 1)", "[x, 1]", 0, False),
        ("float('inf') * x", "float('inf') * x", 0, True),
        ("'a' * 100_000", "''.join('a' for _ in range(100_000))", 0, True),  # compared by digest
        ("'a' * 100_000", "'a' * 99_999 + 'b'", 0, False),
    ],
)
def test_values_are_compared_as_evalplus_does(executor, canonical, given, atol, passed):
    task = own(canonical_solution=f"    return {canonical}\n", atol=atol)
    assert word(executor, task, f"    return {given}\n").passed is passed


def test_infinite_and_missing_numbers_are_inputs(executor):
    task = own(base_input=[[[float("inf"), float("nan")]]], plus_input={}, canonical_solution="    return str(x)\n")
    assert word(executor, task, fenced("inf = 3\ndef f(x):\n    return str(list(x))")).passed


# --- real tasks ------------------------------------------------------------------------------------------------


@needs_data
def test_report_07_the_prompts(humaneval, mbpp):
    """MBPP's is the text and the first assert, no examples; HumanEval's is the head of the function."""
    assert mbpp["Mbpp/2"].prompt == (
        '"""\nWrite a function to find the shared elements from the given two lists.\n'
        'assert set(similar_elements((3, 4, 5, 6),(5, 7, 4, 10))) == set((4, 5))\n"""\n'
    )
    assert all(task.prompt.count("\nassert ") == 1 for task in mbpp.values())
    assert humaneval["HumanEval/53"].prompt == (
        '\n\ndef add(x: int, y: int):\n    """Add two numbers x and y\n    >>> add(2, 3)\n    5\n'
        '    >>> add(5, 7)\n    12\n    """\n'
    )
    assert all(task.prompt.endswith("\n") for task in humaneval.values())
    assert (len(humaneval), len(mbpp)) == (164, 378)


@needs_data
@pytest.mark.slow
def test_inputs_of_mbpp_have_the_types_of_its_test_scripts():
    """The scripts write the same inputs as Python, each of them once."""
    with gzip.open(DATA / "mbppplus/MbppPlus-OriginFmt.jsonl.gz", "rt") as lines:
        scripts = {f"Mbpp/{row['task_id']}": row["test"] for row in map(json.loads, lines)}
    with gzip.open(DATA / "mbppplus/MbppPlus-v0.2.0.jsonl.gz", "rt") as lines:
        rows = list(map(json.loads, lines))
    other = []
    for row in rows:
        typed = mbpp_inputs(row["task_id"], [*row["base_input"], *row["plus_input"]])
        line = next(line for line in scripts[row["task_id"]].split("\n") if line.startswith("inputs = "))
        written = parse_value(line.removeprefix("inputs = "), 2**23)
        if not {repr(list(case)) for case in written} <= set(map(repr, typed)):
            other.append(row["task_id"])
    assert len(rows) == 378 and other == []


@needs_data
def test_report_01_any_root_of_humaneval_32_passes(executor, humaneval):
    task = humaneval["HumanEval/32"]
    bisection = """\
    low, high = -1.0, 1.0
    while poly(xs, low) * poly(xs, high) > 0:
        low, high = 2 * low, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if poly(xs, low) * poly(xs, middle) > 0:
            low = middle
        else:
            high = middle
    return low
"""
    canonical = task.reference["solution"].removeprefix(task.prompt)
    assert word(executor, task, canonical).passed
    few = BenchmarkTask(task.task_id, task.prompt, {**task.reference, "inputs": task.reference["inputs"][:100]})
    scores = code.score([few] * 4, [canonical, bisection, "    return 0.5\n", "    return None\n"], executor)
    assert [score.passed for score in scores] == [True, True, False, False]


@needs_data
def test_tasks_where_equality_is_not_asked(executor, mbpp):
    def passes(task_id, program):
        return word(executor, mbpp[task_id], fenced(program)).passed

    assert passes("Mbpp/2", "def similar_elements(a, b):\n    return [x for x in a if x in b]")
    assert passes("Mbpp/787", "import re\ndef text_match_three(text):\n    return bool(re.search('ab{3}', text))")
    assert passes("Mbpp/787", "import re\ndef text_match_three(text):\n    return re.search('ab{3}', text)")
    assert not passes("Mbpp/787", "def text_match_three(text):\n    return None")
    padded = "def digit_distance_nums(a, b):\n    a, b = str(a), str(b)\n    n = max(len(a), len(b))\n"
    padded += "    return sum(abs(int(x) - int(y)) for x, y in zip(a.zfill(n), b.zfill(n)))"
    assert passes("Mbpp/558", padded)
    apex = "def surface_Area(b, h):\n    return round(b * b + 2 * b * ((b / 2) ** 2 + h * h) ** 0.5)"
    assert passes("Mbpp/581", apex)


def test_other_readings_of_two_tasks():
    assert digit_distance(12345, 9) == 4 + 4 + 3 + 2 + 1 and digit_distance(1, 2) == 1
    assert pyramid_surface(3, 4) == 35 and pyramid_surface(6, 4) == 96


def completions(tasks):
    """The benchmarks' own solutions as a model writes them: direct and in a block by turns."""
    return [
        task.reference["solution"].removeprefix(task.prompt) if i % 2 else fenced(task.reference["solution"])
        for i, task in enumerate(tasks)
    ]


def failed(tasks, scores):
    return {task.task_id: score.reason for task, score in zip(tasks, scores, strict=True) if not score.passed}


@pytest.fixture
def busy_loops():
    loops = [multiprocessing.get_context("spawn").Process(target=spin, daemon=True) for _ in range(4)]
    for loop in loops:
        loop.start()
    yield
    for loop in loops:
        loop.kill()


def spin():
    while True:
        pass


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["humaneval_plus", "mbpp_plus"])
def test_report_02_canonical_solutions_beside_four_busy_loops(name, busy_loops):
    """A slice; what a busy machine does to wall time must do nothing to a score."""
    tasks = suites.tasks(name, DATA)[3::16]
    with Executor(slots=2, profile=Profile.EVALUATION) as executor:
        assert failed(tasks, code.score(tasks, completions(tasks), executor)) == {}


@needs_data
@pytest.mark.long
@pytest.mark.parametrize("machine", ["idle", "busy"])
@pytest.mark.parametrize(("name", "n"), [("humaneval_plus", 164), ("mbpp_plus", 378)])
def test_canonical_solutions_pass(name, n, machine, request):
    """Under another name, so that the solution itself is another job and has to run."""
    if machine == "busy":
        request.getfixturevalue("busy_loops")
    tasks = suites.tasks(name, DATA)
    with Executor(slots=2, profile=Profile.EVALUATION) as executor:
        scores = code.score(tasks, [f"{text}\n# again" for text in completions(tasks)], executor)
    assert len(scores) == n and failed(tasks, scores) == {}


def test_the_solutions_run_once_an_executor():
    task = own()
    with Executor(profile=Profile.EVALUATION) as executor:
        word(executor, task, "    return x + 1  # one\n")
        ran = set(executor.cache)
        word(executor, task, "    return x + 1  # two\n")
        (new,) = set(executor.cache) - ran
    assert isinstance(new, Job) and "# two" in new.program
