"""The profile of evaluation on real benchmarks: their own solutions pass. Skipped where the data is absent."""

import ast
import gzip
import json
from pathlib import Path

import pytest

from popu.evaluate.tolerance import same_value
from popu.problems.values import parse_value
from popu.sandbox.executor import LIMITS, Executor, Job, Profile
from popu.sandbox.verdicts import Status

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "benchmarks"
CAP = LIMITS[Profile.EVALUATION].value_bytes

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no benchmark data at {DATA}")


@pytest.fixture(scope="module")
def executor():
    with Executor(slots=2, profile=Profile.EVALUATION) as running:
        yield running


def test_cruxeval_programs_give_their_outputs(executor):
    rows = [json.loads(line) for line in (DATA / "cruxeval" / "test.jsonl").read_text().splitlines()]
    outcomes = executor.run([Job(row["code"], (row["input"],), check_determinism=True) for row in rows])
    wrong = [
        row["id"]
        for row, outcome in zip(rows, outcomes, strict=True)
        if outcome.status is not Status.OK or not same_value(value(outcome.outputs[0]), value(row["output"]))
    ]
    assert len(rows) == 800 and wrong == []


def value(text):
    return parse_value(text, CAP)


def read(name):
    with gzip.open(DATA / name, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.long
@pytest.mark.parametrize(
    ("folder", "release", "n"), [("humanevalplus", "HumanEvalPlus-v0.1.10", 164), ("mbppplus", "MbppPlus-v0.2.0", 378)]
)
def test_canonical_solutions_pass(executor, folder, release, n):
    """On the inputs of the test scripts, compared with the outputs that these state; where they hold a reference
    function instead, with what it gives in the same profile."""
    rows = read(f"{folder}/{release}.jsonl.gz")
    scripts = {str(row["task_id"]): row["test"] for row in read(f"{folder}/{release.split('-')[0]}-OriginFmt.jsonl.gz")}
    tests = [Script(row, scripts[row["task_id"].removeprefix("Mbpp/")]) for row in rows]
    outcomes = executor.run([test.job for test in tests])
    references = executor.run([test.reference_job or test.job for test in tests])
    failed = {
        row["task_id"]: why
        for row, test, outcome, reference in zip(rows, tests, outcomes, references, strict=True)
        if (why := test.failure(outcome, reference, executor))
    }
    assert len(rows) == n and failed == {}


class Script:
    """What a task's test script holds, read from its syntax tree: nothing of it runs in this process."""

    def __init__(self, row, source):
        self.row, self.source = row, source
        self.entry = row["entry_point"]
        tree = ast.parse(source)
        assigned = {
            node.targets[0].id: node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        inputs = [", ".join(ast.unparse(argument) for argument in case.elts) for case in assigned["inputs"].elts]
        program = (
            row["prompt"] + row["canonical_solution"] if "HumanEval" in row["task_id"] else row["canonical_solution"]
        )
        self.job = Job(f"from math import inf, nan\n{program}", tuple(inputs), entry=self.entry)
        self.expected = [ast.unparse(case) for case in assigned["results"].elts] if "results" in assigned else None
        self.reference_job = None if self.expected else Job(reference(tree), tuple(inputs), entry="ref_func")

    def failure(self, outcome, reference, executor):
        if outcome.status is not Status.OK:
            return f"{outcome.status}: {outcome.reason}"
        if self.expected is None and reference.status is not Status.OK:
            return f"reference {reference.status}: {reference.reason}"
        expected = reference.outputs if self.expected is None else self.expected
        for given, text in zip(outcome.outputs, expected, strict=True):
            if given.startswith("('sha256', ") and not text.startswith("('sha256', "):
                text = executor.run([Job("def f(value):\n    return value", (text,))])[0].outputs[0]
            if not self.passes(value(given), value(text)):
                return f"{given[:60]}, expected {text[:60]}"
        return None

    def passes(self, given, expected):
        if "set(out)" in self.source:
            return set(given) == set(expected)
        if "out is not None" in self.source:
            return (given if isinstance(given, bool) else given is not None) == expected
        return same_value(given, expected, self.row["atol"])


def reference(tree):
    """The script's imports and functions without its checker, which needs numpy."""
    left_out = {"is_floats", "assertion", "check"}
    kept = [
        node
        for node in tree.body
        if isinstance(node, ast.ImportFrom | ast.Import | ast.FunctionDef)
        and getattr(node, "name", "") not in left_out
        and "numpy" not in ast.unparse(node)
    ]
    return "\n".join(map(ast.unparse, kept))
