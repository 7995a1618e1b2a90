"""The profile of evaluation: what benchmark programs may do and return, and that the walls are the same."""

import pytest

from popu.sandbox.executor import Executor, Job, Limits, Profile
from popu.sandbox.verdicts import Status


@pytest.fixture(scope="module")
def executor():
    limits = Limits(cpu_s=1.0, memory_mb=256, value_bytes=1_000_000)
    with Executor(limits, profile=Profile.EVALUATION) as running:
        yield running


def run(executor, program, *inputs, **options):
    return executor.run([Job(program, inputs, **options)])[0]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("Counter('aab')", "{'a': 2, 'b': 1}"),
        ("OrderedDict(b=1, a=defaultdict(list, c=[1]))", "{'a': {'c': [1]}, 'b': 1}"),
        ("namedtuple('P', 'x y')(1, 2)", "(1, 2)"),
        ("IntEnum('E', 'A').A", "1"),
        ("True, type('S', (str,), {})('a')", "(True, 'a')"),
        ("deque([1, (2,)])", "('deque', [1, (2,)])"),
        ("range(1, 9, 2)", "('range', 1, 9, 2)"),
        ("{1: 2}.keys(), {1: 2}.items()", "(('dict_keys', {1}), ('dict_items', {(1, 2)}))"),
        ("{1: [2]}.values()", "('dict_values', [[2]])"),
        ("re.match('a+', 'aab'), re.match('b', 'a')", "(('Match', True, (0, 2)), None)"),
        ("Fraction(1, 2), Decimal('1.50')", "(('Fraction', 1, 2), ('Decimal', '1.50'))"),
        ("{frozenset([range(2)]): bytearray(b'a')}", "{frozenset({('range', 0, 2, 1)}): ('bytearray', b'a')}"),
        ("10 ** 5000", "1" + "0" * 5000),
        ("-(1 << 400_000)", "('int', '-0x1" + "0" * 100_000 + "')"),
        ("hashlib.md5(b'a').hexdigest()", "'0cc175b9c0f1b6a831c399e269772661'"),
        ("datetime.strptime('2020-02', '%Y-%m').year, eval('x + 1'), sys.maxsize > 1", "(2020, 2, True)"),
        ("float('nan')", "nan"),
    ],
)  # fmt: skip
def test_wider_values_and_modules(executor, body, value):
    program = (
        "import hashlib, re, sys\nfrom collections import *\nfrom datetime import datetime\n"
        "from decimal import Decimal\nfrom enum import IntEnum\nfrom fractions import Fraction\n"
        f"def f(x):\n    return {body}"
    )
    outcome = run(executor, program, "1", check_determinism=True)
    assert (outcome.status, outcome.outputs) == (Status.OK, (value,)), outcome.reason


@pytest.mark.parametrize("body", ["lambda: 1", "iter([1])", "(i for i in 'a')", "object()", "f"])
def test_what_has_no_value_is_refused(executor, body):
    assert run(executor, f"def f(x):\n    return {body}", "1").status is Status.UNSUPPORTED_VALUE


def test_a_list_in_itself_is_refused(executor):
    program = "def f(x):\n    x.append(x)\n    return x"
    assert run(executor, program, "[]").status is Status.UNSUPPORTED_VALUE


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("dict(a=1), 'b'.upper()", "(({'a': 1}, 'B'), {})"),
        ("[i for i in range(3)], k=N  # a comment", "(([0, 1, 2],), {'k': 7})"),
        ("*[1, 2], **{'k': 3}", "((1, 2), {'k': 3})"),
        ("", "((), {})"),
    ],
)
def test_arguments_are_expressions_in_the_programs_namespace(executor, text, output):
    program = "N = 7\ndef g(*args, **kwargs):\n    return args, kwargs"
    assert run(executor, program, text, entry="g").outputs == (output,)


@pytest.mark.parametrize("text", ["0) or (1", "1) and ('gold'", "1).__class__(2", "1); f(2", "x := 5)("])
def test_text_that_is_no_argument_list_is_not_a_call(executor, text):
    outcome = run(executor, "def f(x):\n    return x", text)
    assert outcome.status is Status.RAISED and "SyntaxError" in outcome.reason


def test_scripts_read_standard_input_and_print(executor):
    program = "n = int(input())\nimport sys\nprint(n + sum(map(int, sys.stdin.read().split())))"
    assert run(executor, program, "2\n3 4\n", "0\n1", entry=None).outputs == ("'9\\n'", "'1\\n'")
    program = "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.readline())"
    assert run(executor, program, "a\nb", entry=None).outputs == ("'a\\n'",)
    whole = "if __name__ == '__main__':\n    print(open(0).read(), end='')\n    exit()"
    assert run(executor, whole, "é\n", check_determinism=True, entry=None).outputs == ("'é\\n'",)
    assert run(executor, "import sys\nsys.exit(3)", "", entry=None).status is Status.RAISED
    assert run(executor, "input()", "", entry=None).reason.startswith("EOFError")


def test_scripts_do_not_run_in_training():
    with Executor() as executor, pytest.raises(ValueError, match="entry"):
        run(executor, "print(1)", "", entry=None)


@pytest.mark.parametrize(
    "body",
    [
        "open('/etc/passwd')",
        "__import__('os').system('true')",
        "__import__('os').listdir('/')",
        "__import__('os').unlink('/nonexistent')",
        "__import__('os').kill(1, 0)",
        "__import__('socket').socket() if 'socket' in __import__('sys').modules else open('x')",
        "__import__('threading').Thread(target=print).start()",
        "__import__('tempfile').mkstemp()",
        "__import__('ctypes').CDLL(None).socket(2, 1, 0)",
    ],
)
def test_the_walls_are_those_of_training(executor, body):
    program = f"def f(x):\n    try:\n        return str({body})\n    except BaseException:\n        return 1"
    assert run(executor, program, "1").status is Status.DENIED


def output(executor, body):
    return run(executor, f"def f(x):\n    return {body}", "1", check_determinism=True).outputs[0]


def is_digest(text):
    return text.startswith("('sha256', '") and len(text) == 78


def test_a_long_value_is_known_by_its_digest(executor):
    bodies = ("'a' * 2_000_000", "'a' * 1_999_999 + 'b'", "[1.5, 'x'] * 300_000", "[7] * 300_000", "(7,) * 300_000")
    digests = [output(executor, body) for body in bodies]
    assert all(map(is_digest, digests)) and len(set(digests)) == len(bodies)
    assert digests[0] == output(executor, "'aa' * 1_000_000")
    assert output(executor, "[7.5] * 30_000") == str([7.5] * 30_000)  # a tolerance may look into it
    assert output(executor, "{i: i for i in range(30_000)}") == str({i: i for i in range(30_000)})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("[1, 0] * 30_000", "[True, 0.0] * 30_000"),
        ("[1] * 13_108", "[True] * 13_108"),  # 1 marshalled is five times True
        ("[(2**40, 'a')] * 9_000", "[(2.0**40, 'a')] * 9_000"),
        ("tuple(range(50_000))", "tuple(map(float, range(50_000)))"),
    ],
)
def test_equal_long_values_have_one_digest(executor, one, other):
    """As `1 == 1.0 == True`."""
    assert is_digest(output(executor, one)) and output(executor, one) == output(executor, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("[1] * 50_000", "(1,) * 50_000"),
        ("[1] * 50_000", "[1] * 49_999 + [2]"),
        ("[2.0**60] * 50_000", "[2.0**60 + 512] * 50_000"),
        ("[[1]] * 50_000", "[[1, 1]] * 50_000"),
        ("['1'] * 50_000", "[1] * 50_000"),
    ],
)
def test_other_long_values_have_another(executor, one, other):
    assert output(executor, one) != output(executor, other)


def test_limits_and_the_next_request(executor):
    for program, status in {
        "def f(x):\n    while True: pass": Status.TIMEOUT,
        "def f(x):\n    return [0] * 10**9": Status.MEMORY,
        "import fractions\ndef f(x):\n    return [fractions.Fraction(1, 3)] * 100_000": Status.TOO_LARGE,
        "import os, json\nos._exit = json.dumps = print\ndef f(x):\n    return 1": Status.OK,
        "def f(x):\n    return __import__('random').random()": Status.NONDETERMINISTIC,
        "import numpy\ndef f(x): return 1": Status.RAISED,
    }.items():
        assert run(executor, program, "1", check_determinism=True).status is status, program
    assert run(executor, "import json\ndef f(x):\n    return json.dumps(x)", "[1]").outputs == ("'[1]'",)
