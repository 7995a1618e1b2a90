"""The black-box door, line by line."""

import json

import pytest

from popu.cli import main
from popu.sandbox.executor import Executor, Limits, executors
from popu.verify import CHUNK, verify_lines


@pytest.fixture(scope="module")
def executor():
    with Executor(Limits(cpu_s=0.5)) as running:
        yield running


def answers(executor, *requests):
    lines = [request if isinstance(request, str) else json.dumps(request) for request in requests]
    return list(verify_lines(lines, lambda profile: executor))


def fenced(*blocks):
    return "".join(f"```{tag}\n{text}\n```\n" for tag, text in blocks)


def test_a_proposal_comes_back_as_a_problem(executor):
    completion = fenced(("python", "def f(x):\n    return {'b': x, 'a': 1}"), ("input", "3"))
    request = {"id": "a", "kind": "proposal", "problem_type": "code_o", "completion": completion}
    assert answers(executor, request) == [
        {
            "id": "a",
            "status": "ok",
            "reason": "",
            "program": "def f(x):\n    return {'b': x, 'a': 1}",
            "inputs": ("3",),
            "outputs": ("{'a': 1, 'b': 3}",),
        }
    ]


def test_a_proposal_of_pairs_takes_the_program_that_was_shown(executor):
    completion = fenced(*(("input", str(i)) for i in range(10)), ("message", "it doubles"))
    request = {"id": 1, "kind": "proposal", "problem_type": "code_f", "completion": completion}
    whole, without = answers(executor, {**request, "program": "def f(x):\n    return 2 * x"}, request)
    assert whole["status"] == "ok" and whole["outputs"] == tuple(str(2 * i) for i in range(10))
    assert "program: expected for code_f" in without["error"]


@pytest.mark.parametrize(
    ("given", "verdict", "reward"),
    [("2", "correct", 1.0), ("3", "wrong", -0.5), ("2.0", "wrong", -0.5), ("f(1)", "bad_format", -1.0)],
)
def test_an_answer_is_judged_and_paid(executor, given, verdict, reward):
    program = "def f(x):\n    return x + 1"
    output = {
        "id": 1,
        "kind": "answer",
        "problem_type": "code_o",
        "output": "2",
        "completion": fenced(("output", given)),
    }
    (judged,) = answers(executor, output)
    assert (judged["verdict"], judged["reward"]) == (verdict, reward)
    preimage = {"id": 2, "kind": "answer", "problem_type": "code_i", "program": program, "output": "2"}
    (found,) = answers(executor, {**preimage, "completion": fenced(("input", "1"))})
    assert found == {"id": 2, "verdict": "correct", "reason": "", "reward": 1.0}


def test_a_program_is_judged_by_the_hidden_pairs(executor):
    request = {
        "id": 1,
        "kind": "answer",
        "problem_type": "code_f",
        "shown": [["1", "2"]],
        "hidden": [["2", "3"], ["3", "4"]],
        "message": "plus one",
    }
    programs = ("def f(x):\n    return x + 1", "def f(x):\n    return 2", "import os\ndef f(x):\n    return 2")
    got = answers(executor, *({**request, "completion": fenced(("python", program))} for program in programs))
    assert [answer["verdict"] for answer in got] == ["correct", "wrong", "denied"]


def test_problems_of_another_domain_are_checked_and_judged(executor):
    """Two domains in one chunk; the gold answer of an expression is made by the verifier."""
    code = {"id": 0, "kind": "answer", "problem_type": "code_o", "output": "23", "completion": "```output\n23\n```"}
    written = {"id": 1, "kind": "proposal", "problem_type": "arith_v", "completion": "```input\n7 add 2\n```"}
    right = {**code, "id": 2, "problem_type": "arith_v", "program": "seven times three plus two"}
    wrong = {**right, "id": 3, "completion": "```output\n9\n```"}
    bad = [{**right, "id": 4, "program": "7 divide 0"}, {**right, "id": 5, "output": "9"}]
    found = answers(executor, code, right, wrong, *bad, written)
    assert [answer.get("verdict") for answer in found[:3]] == ["correct", "correct", "wrong"]
    assert [answer.get("error") for answer in found[3:]] == [
        "program: division by zero",
        "output: expected '23', found '9'",
        None,
    ]
    assert found[5]["outputs"] == ("9",)


def test_a_program_is_run_and_its_determinism_checked(executor):
    def run(program, *inputs):
        return answers(executor, {"id": 0, "kind": "run", "program": program, "inputs": inputs})[0]

    assert run("def f(x):\n    return x", "{'b':1,'a':2}", "'x'")["outputs"] == ("{'a': 2, 'b': 1}", "'x'")
    assert run("def f(x):\n    return list(set('abcdef'))", "1")["status"] == "nondeterministic"
    assert run("def f(x)\n    return x", "1")["status"] == "bad_format"
    assert run("def f(x):\n    return x", "g()")["status"] == "bad_format"
    assert run("import os\ndef f(x):\n    return x", "1")["status"] == "denied"
    assert run("def f(x):\n    while True: pass", "1")["status"] == "timeout"


@pytest.mark.parametrize(
    ("line", "request_id", "says"),
    [
        ("{", None, "line 1: Invalid JSON"),
        ("[]", None, "line 1"),
        ('{"id": 7}', 7, "kind"),
        ('{"id": 7, "kind": "walk"}', 7, "'proposal', 'answer', 'run'"),
        ('{"id": 7, "kind": "run", "program": "x"}', 7, "run.inputs: Field required"),
        ('{"id": 7, "kind": "run", "program": "x", "inputs": []}', 7, "run.inputs"),
        ('{"id": 7, "kind": "run", "program": 3, "inputs": ["1"]}', 7, "run.program"),
        ('{"id": 7, "kind": "run", "program": "x", "inputs": ["1"], "profil": "x"}', 7, "run.profil"),
        ('{"id": 7, "kind": "answer", "problem_type": "code_o", "completion": ""}', 7, "output"),
        ('{"id": 7, "kind": "answer", "problem_type": "code_o", "completion": "", "output": "f()"}', 7, "output"),
        ('{"id": 7, "kind": "answer", "problem_type": "code_x", "completion": "", "output": "1"}', 7, "problem_type"),
        ('{"id": 7, "kind": "run", "program": "x", "inputs": ["1"], "profile": "x"}', 7, "run.profile"),
        ('{"id": 7, "kind": "run", "program": "x", "inputs": ["1"], "entry": null}', 7, "entry"),
        ("[" * 100_000, None, "line 1"),
        ('{"id": "\\ud800"}', None, "line 1"),
    ],
)
def test_a_malformed_line_has_an_answer_of_its_own(executor, line, request_id, says):
    good = json.dumps({"id": "good", "kind": "run", "program": "def f(x):\n    return x", "inputs": ["1"]})
    bad, fine = verify_lines([line, good], lambda profile: executor)
    assert bad["id"] == request_id or request_id is None
    assert says in bad["error"] and len(bad["error"]) <= 300
    assert fine["status"] == "ok"


def test_order_is_kept_over_chunks_and_blank_lines(executor):
    program = "def f(x):\n    return x % 7"
    lines = [
        json.dumps({"id": i, "kind": "run", "program": program, "inputs": [str(i % 20)]}) for i in range(CHUNK + 5)
    ]
    got = list(verify_lines([*lines[:3], "\n", *lines[3:]], lambda profile: executor))
    assert [answer["id"] for answer in got] == list(range(CHUNK + 5))
    assert all(answer["outputs"] == (str(answer["id"] % 20 % 7),) for answer in got)


def test_runs_in_the_profile_of_evaluation():
    request = {"id": 1, "kind": "run", "profile": "evaluation"}
    lines = [
        {**request, "program": "import sys\ndef f(x):\n    return range(x)", "inputs": ["len('ab')"]},
        {**request, "program": "print(input() * 2)", "inputs": ["a"], "entry": None},
        {"id": 2, "kind": "run", "program": "import sys\ndef f(x):\n    return x", "inputs": ["1"]},
    ]
    with executors() as executor_of:
        got = list(verify_lines(map(json.dumps, lines), executor_of))
    assert [answer.get("outputs") for answer in got] == [("('range', 0, 2, 1)",), (r"'aa\n'",), ()]
    assert [answer["status"] for answer in got] == ["ok", "ok", "denied"]


def test_the_command_reads_and_writes_files(tmp_path, capsys):
    requests = tmp_path / "requests.jsonl"
    requests.write_bytes(b'{"id": 1, "kind": "run", "program": "def f(x): return x", "inputs": ["1"]}\n\xff\n')
    assert main(["verify", "--in", str(requests), "--out", str(tmp_path / "verdicts.jsonl")]) == 0
    ok, malformed = map(json.loads, (tmp_path / "verdicts.jsonl").read_text().splitlines())
    assert ok == {"id": 1, "status": "ok", "reason": "", "outputs": ["1"]}
    assert "line 2" in malformed["error"]
    assert main(["verify", "--in", str(tmp_path / "none"), "--out", str(tmp_path / "x")]) == 2
    assert "--in: expected a readable file" in capsys.readouterr().err
