"""Proposals to statuses and answers to verdicts, with a real executor."""

from collections.abc import Iterator

import pytest

from popu.problems.check import Answer, contains_program, judge, validate
from popu.problems.types import Judged, Proposal, Validated
from popu.sandbox.executor import Executor, Limits
from popu.sandbox.verdicts import Status, Verdict


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with Executor(Limits(cpu_s=0.4, wall_s=5.0)) as running:
        yield running


def _block(tag: str, text: str) -> str:
    return f"```{tag}\n{text}\n```\n"


def _validate(executor: Executor, program: str, given: str, problem_type: str = "code_o") -> Validated:
    completion = _block("python", program) + _block("input", given)
    return validate([Proposal(problem_type, completion, None, truncated=False)], executor)[0]


IDENTITY = "def f(x):\n    return x"

PROPOSALS = [
    (IDENTITY, "3, ", Status.OK),
    (IDENTITY, '{\n"a": 1,\n"b": 2}', Status.OK),
    ("def f(s):\n    return len(s)", "'print(1)'", Status.OK),
    ("def read_input(x):\n    return x\ndef f(x):\n    return read_input(x)", "1", Status.OK),
    ("def sort(a):\n    a.sort()\n    return a\ndef f(x):\n    return sort(x)", "[2, 1]", Status.OK),
    ("def f(x=1):\n    return x", "x=2", Status.OK),
    ("n = [0]\ndef f(x):\n    n[0] += 1\n    return n[0]", "1", Status.NONDETERMINISTIC),
    ("def f(x, acc=[]):\n    acc.append(x)\n    return acc", "1", Status.NONDETERMINISTIC),
    ("def f(s):\n    return list(set(s))", "'abcdef'", Status.NONDETERMINISTIC),
    ("def f(x):\n    return hash(x)", "'a'", Status.NONDETERMINISTIC),
    ("def f(x):\n    return id(x)", "'a'", Status.NONDETERMINISTIC),
    ("def f(x):\n    return float('nan')", "1", Status.UNSUPPORTED_VALUE),
    ("def f(x):\n    return next(iter([]))", "1", Status.RAISED),
    ("import sys\ndef f(x):\n    sys.exit(0)", "1", Status.DENIED),
    ("def f(x):\n    raise SystemExit", "1", Status.RAISED),
    ("class Stop(Exception): pass\ndef f(x):\n    raise Stop", "1", Status.RAISED),
    ("def f(x):\n    return input()", "1", Status.DENIED),
    ("def f(x):\n    return lambda: x", "1", Status.UNSUPPORTED_VALUE),
    ("def f(x):\n    while True: pass", "1", Status.TIMEOUT),
    ("def f(x):\n    return 'a' * 10**11", "1", Status.MEMORY),
    ("def f(x):\n    return 'a' * 10**5", "1", Status.TOO_LARGE),
    ("def f(x):\n    return x", "f(1)", Status.BAD_FORMAT),
    ("def f(x):\n    return x", "[" * 1000, Status.BAD_FORMAT),
    ("def f(x):\n    return x", "'" + "a" * 70_000 + "'", Status.TOO_LARGE),
    ("def f(x):\n    return x", "'\ud800'", Status.BAD_FORMAT),
    ("def f(x):\n    return x", "'\0'", Status.BAD_FORMAT),
    ("def f(x):\n    return x" + "#" * 10**6, "1", Status.TOO_LARGE),
    ("async def f(x):\n    return x", "1", Status.BAD_FORMAT),
    ("f = lambda x: x", "1", Status.BAD_FORMAT),
    ("def f():\n    return 1", "1", Status.BAD_FORMAT),
    ("def f(x) return x", "1", Status.BAD_FORMAT),
    ("def f(x):\n    return x", "1, 2", Status.RAISED),
    ("import os\ndef f(x):\n    return os.environ", "1", Status.DENIED),
]


@pytest.mark.parametrize(("program", "given", "status"), PROPOSALS)
def test_proposals(executor: Executor, program: str, given: str, status: Status) -> None:
    checked = _validate(executor, program, given)
    assert checked.status is status
    assert bool(checked.reason) == (status is not Status.OK)
    assert len(checked.outputs) == (status is Status.OK)


def test_a_valid_proposal_holds_canonical_text(executor: Executor) -> None:
    checked = _validate(executor, "def f(x, k):\n    return [x, k]", "{'b': 1, 'a': {2,1}} , k = 0x10", "code_i")
    assert checked.inputs == ("{'a': {1, 2}, 'b': 1}, k=16",)
    assert checked.outputs == ("[{'a': {1, 2}, 'b': 1}, 16]",)
    assert checked.message == ""


def test_the_input_that_runs_is_the_canonical_one(executor: Executor) -> None:
    spelt = [_validate(executor, "def f(x):\n    return list(x)", text) for text in ("{2: 0, 1: 0}", "{1: 0, 2: 0}")]
    assert spelt[0] == spelt[1]
    assert spelt[0].outputs == ("[1, 2]",)


def test_truncated_and_malformed_proposals(executor: Executor) -> None:
    good = _block("python", IDENTITY) + _block("input", "1")
    proposals = [Proposal("code_o", good, None, True), Proposal("code_i", "", None, False)]
    assert [v.status for v in validate(proposals, executor)] == [Status.BAD_FORMAT] * 2
    assert validate([], executor) == []


SQUARE = "def f(x):\n    # square it\n    return x * x + 1"


def _induction(executor: Executor, inputs: list[str], message: str = "A square.", program: str = SQUARE) -> Validated:
    completion = "".join(_block("input", text) for text in inputs) + _block("message", message)
    return validate([Proposal("code_f", completion, program, truncated=False)], executor)[0]


def test_induction_proposals(executor: Executor) -> None:
    numbers = [str(i) for i in range(10)]
    checked = _induction(executor, numbers)
    assert checked.status is Status.OK
    assert checked.program == SQUARE
    assert checked.inputs == tuple(numbers)
    assert checked.outputs == tuple(str(i * i + 1) for i in range(10))
    assert checked.message == "A square."
    for inputs in (numbers[:9], [*numbers, "10"], ["1"] * 10, [*numbers[:9], "0x0"]):
        assert _induction(executor, inputs).status is Status.BAD_FORMAT
    assert _induction(executor, numbers, program="def f(x):\n    return 1").status is Status.BAD_FORMAT
    assert _induction(executor, [*numbers[:9], "'a'"]).status is Status.RAISED
    with pytest.raises(ValueError, match="program"):
        validate([Proposal("code_f", "", None, truncated=False)], executor)


@pytest.mark.parametrize(
    "message",
    [
        SQUARE,
        "It is " + SQUARE.replace("    # square it\n", ""),
        "def f(x): return x*x+1",
        "The body is `return x * x + 1`.",
        "See:\n  def g(value):\n      return value * value + 7\nGood luck.",
    ],
)
def test_a_message_that_gives_the_program_away(executor: Executor, message: str) -> None:
    checked = _induction(executor, [str(i) for i in range(10)], message)
    assert (checked.status, checked.reason) == (Status.BAD_FORMAT, "the message contains the program")


def test_honest_messages_do_not_contain_the_program() -> None:
    for message in ("", "Squares a number and adds one.", "def means define", "import nothing\ndef f(x"):
        assert not contains_program(message, SQUARE)
    assert not contains_program("What you return is x.", IDENTITY)
    assert contains_program("f = 'def f(x):\n  return x'", IDENTITY)
    nested = "def f(x):\n    return f'{x}' + f\"{x['a']}'\""
    assert contains_program(nested, nested)


def _answer(problem_type: str, block: str, **fields: object) -> Answer:
    tag = {"code_o": "output", "code_i": "input", "code_f": "python"}[problem_type]
    known = {"program": None, "input": None, "output": None, "hidden": (), "truncated": False, **fields}
    return Answer(problem_type, _block(tag, block), **known)  # type: ignore[arg-type]


OUTPUTS = [
    ("(1, 2)", "1, 2", Verdict.CORRECT),
    ("[1, 2]", "(1, 2)", Verdict.WRONG),
    ("'1'", "'1.0'", Verdict.WRONG),
    ("'[1, 2]'", "f('[1, 2]')", Verdict.BAD_FORMAT),
    ("True", "1", Verdict.WRONG),
    ("True", "1.0", Verdict.WRONG),
    ("0.30000000000000004", "0.3", Verdict.WRONG),
    ("-0.0", "0.0", Verdict.WRONG),
    ("inf", "inf", Verdict.CORRECT),
    ("{1, 2}", "{2, 1} # a set", Verdict.CORRECT),
    ("set()", "set()", Verdict.CORRECT),
    ("{'a': 1, 'b': 2}", "{'b': 2,\n'a': 1}", Verdict.CORRECT),
    ("1" + "0" * 5000, "1" + "0" * 5000, Verdict.CORRECT),
    ("1", "1" + "0" * 5000, Verdict.WRONG),
    ("1", "__import__('os')._exit(1)", Verdict.BAD_FORMAT),
    ("1", "9**9**9", Verdict.BAD_FORMAT),
    ("1", "[0]*10**12", Verdict.BAD_FORMAT),
    ("1", "[" * 60_000, Verdict.BAD_FORMAT),
    ("1", "1" * 100_000, Verdict.TOO_LARGE),
    ("1", "'\ud800'", Verdict.BAD_FORMAT),
]


@pytest.mark.parametrize(("gold", "text", "verdict"), OUTPUTS)
def test_deduction(executor: Executor, gold: str, text: str, verdict: Verdict) -> None:
    assert judge([_answer("code_o", text, output=gold)], executor)[0].verdict is verdict


ABDUCTIONS = [
    ("def f(x):\n    return x % 10", "5", "25", Verdict.CORRECT),
    ("def f(x):\n    return x % 10", "5", "x=5", Verdict.CORRECT),
    ("def f(x):\n    return x % 10", "5", "5 # it is five", Verdict.CORRECT),
    ("def f(x):\n    return x % 10", "5", "4", Verdict.WRONG),
    ("def f(x):\n    return x % 10", "5", "5.0", Verdict.WRONG),
    ("def f(x):\n    return x % 10", "5", "0) or (1", Verdict.BAD_FORMAT),
    ("def f(x):\n    return x % 10", "5", "x:=5", Verdict.BAD_FORMAT),
    ("def f(x):\n    return x % 10", "5", "*[5]", Verdict.BAD_FORMAT),
    ("def f(x):\n    return x % 10", "5", "__import__('os').getpid()", Verdict.BAD_FORMAT),
    ("def f(x):\n    return x % 10", "5", "None", Verdict.RAISED),
    ("def f(x):\n    return x % 10", "5", "1, 2", Verdict.RAISED),
    ("def f(x=1):\n    return x", "1", "# nothing", Verdict.BAD_FORMAT),
    ("def f(n):\n    while n: pass\n    return 0", "0", "1", Verdict.TIMEOUT),
    ("def f(n):\n    return len('a' * n)", "0", "10000000000000", Verdict.MEMORY),
    ("def f(n):\n    return 'a' * n", "''", "100000", Verdict.TOO_LARGE),
    ("def f(n):\n    return n or print", "1", "0", Verdict.UNSUPPORTED_VALUE),
]


@pytest.mark.parametrize(("program", "gold", "text", "verdict"), ABDUCTIONS)
def test_abduction(executor: Executor, program: str, gold: str, text: str, verdict: Verdict) -> None:
    judged = judge([_answer("code_i", text, program=program, output=gold)], executor)[0]
    assert judged.verdict is verdict
    assert bool(judged.reason) == (verdict is not Verdict.CORRECT)


HIDDEN = tuple((str(i), str(i * i)) for i in range(5, 10))

INDUCTIONS = [
    ("def f(x):\n    return x ** 2", Verdict.CORRECT),
    ("class A:\n    def g(self, x):\n        return x * x\ndef f(x):\n    return A().g(x)", Verdict.CORRECT),
    ("def f(x):\n    return {0: 0, 1: 1, 2: 4, 3: 9, 4: 16}.get(x)", Verdict.WRONG),
    ("def f(x):\n    return float(x * x)", Verdict.WRONG),
    ("def f(x):\n    return 25 if x == 5 else [].pop()", Verdict.RAISED),
    ("class A:\n    def __eq__(self, o): return True\ndef f(x):\n    return A()", Verdict.UNSUPPORTED_VALUE),
    ("class A(int):\n    __eq__ = lambda a, b: True\ndef f(x):\n    return A(1)", Verdict.UNSUPPORTED_VALUE),
    ("class A:\n    def __eq__(self, o): return 'x'\n    __hash__ = None\ndef f(x):\n    return A()",
     Verdict.UNSUPPORTED_VALUE),
    ("def f(x):\n    print('correct')\n    return 0", Verdict.WRONG),
    ("n = [4]\ndef f(x):\n    n[0] += 1\n    return n[0] ** 2", Verdict.WRONG),
    ("def f(x):\n    while True: pass", Verdict.TIMEOUT),
    ("import os\ndef f(x):\n    return x * x", Verdict.DENIED),
    ("def f(x):\n    return hash(x) ** 2", Verdict.DENIED),
    ("import builtins\ndef f(x):\n    builtins.len = lambda y: 0", Verdict.DENIED),
    ("f = lambda x: x * x", Verdict.BAD_FORMAT),
    ("def g(x):\n    return x * x", Verdict.BAD_FORMAT),
    ("def f(x) return x * x", Verdict.BAD_FORMAT),
    ("def f(x):\n    return " + "(" * 3000 + "x" + ")" * 3000, Verdict.BAD_FORMAT),
]  # fmt: skip


@pytest.mark.parametrize(("program", "verdict"), INDUCTIONS)
def test_induction(executor: Executor, program: str, verdict: Verdict) -> None:
    assert judge([_answer("code_f", program, hidden=HIDDEN)], executor)[0].verdict is verdict


def test_a_mixed_batch_keeps_its_order(executor: Executor) -> None:
    answers = [
        _answer("code_i", "1", program=IDENTITY, output="1"),
        _answer("code_o", "1", output="1"),
        _answer("code_f", IDENTITY, hidden=HIDDEN),
        _answer("code_i", "2", program=IDENTITY, output="1"),
        _answer("code_o", "1", output="1", truncated=True),
        Answer("code_o", "no block", False, None, None, "1", ()),
    ]
    verdicts = [judged.verdict for judged in judge(answers, executor)]
    assert verdicts == [
        Verdict.CORRECT,
        Verdict.CORRECT,
        Verdict.WRONG,
        Verdict.WRONG,
        Verdict.BAD_FORMAT,
        Verdict.BAD_FORMAT,
    ]
    assert judge([], executor) == []


def test_missing_fields_are_the_callers_error(executor: Executor) -> None:
    for answer in (
        _answer("code_o", "1"),
        _answer("code_i", "1", output="1"),
        _answer("code_f", IDENTITY),
        Answer("code_x", "", False, None, None, None, ()),
    ):
        with pytest.raises(ValueError, match="code_"):
            judge([answer], executor)


def test_infrastructure_is_a_verdict_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with Executor() as executor:
        executor.slots[0].close()
        monkeypatch.setattr("popu.sandbox.fork_server.sys.executable", "/bin/false")
        judged = judge([_answer("code_i", "1", program=IDENTITY, output="1")], executor)
    assert judged == [Judged(Verdict.INFRASTRUCTURE, judged[0].reason)]
