"""Static checks: the shape of `f`, what may be named."""

import pytest

from popu.problems.static import MAX_SOURCE_BYTES, ProgramRejected, check_program

ACCEPTED = {
    "plain": "def f(x):\n    return x",
    "annotated": "def f(x: 'list[int]', *, k: int = 1) -> int:\n    return k",
    "future": "from __future__ import annotations\ndef f(x: Unknown):\n    return x",
    "star": "def f(*args, **kwargs):\n    return args",
    "helper": "def g(x):\n    return x\ndef f(x):\n    return g(x)",
    "nested": "def f(x):\n    def f(y):\n        yield y\n    return list(f(x))",
    "class": "class A:\n    def __init__(self, x):\n        super().__init__()\n        self.x = x\n"
    "    def __len__(self):\n        return 1\n    def f(self):\n        return self.x\n"
    "def f(x):\n    return A(x).f()",
    "dataclass": "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\ndef f(x):\n    return A(x).x",
    "imports": "import math, collections.abc\nfrom collections import Counter as C\ndef f(x):\n    return math.pi",
    "inner import": "def f(x):\n    import re\n    return re.sub('a', 'b', x)",
    "a banned word in a name": "def read_input(x):\n    return x\ndef f(x):\n    return read_input(x)",
    "a parameter called input": "def f(input, id=0):\n    return input + id",
    "a variable called hash": "def f(x):\n    hash = 0\n    for c in x:\n        hash += 1\n    return hash",
    "banned words in strings": "def f(x):\n    # import os\n    return 'eval(open(__import__))'",
    "reflection on plain names": "def f(x):\n    return getattr(x, 'real') if hasattr(x, 'real') else 0",
    "a generator inside": "def f(x):\n    return sum(c for c in x)",
    "a lambda inside": "def f(x):\n    return sorted(x, key=lambda c: -c)",
    "odd escapes": "def f(x):\n    return '\\d' + x",
    "type name": "def f(x):\n    return type(x).__name__ + x.__class__.__name__",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    check_program(ACCEPTED[name])


BAD_FORMAT = {
    "empty": "",
    "no f": "def g(x):\n    return x",
    "two": "def f(x):\n    return 1\ndef f(x):\n    return 2",
    "rebound": "def f(x):\n    return 1\nf = 3",
    "rebound by import": "def f(x):\n    return 1\nfrom math import floor as f",
    "conditional": "if True:\n    def f(x):\n        return 1",
    "async": "async def f(x):\n    return x",
    "lambda": "f = lambda x: x",
    "class": "class f:\n    pass",
    "generator": "def f(x):\n    yield x",
    "hidden generator": "def f(x):\n    if x:\n        y = yield from x",
    "no parameter": "def f():\n    return 1",
    "method only": "class A:\n    def f(self):\n        return 1",
    "syntax": "def f(x)\n    return x",
    "surrogate": "def f(x):\n    return '\ud800'",
    "NUL": "def f(x):\n    return '\0'",
    "parentheses": "def f(x):\n    return " + "(" * 3000 + "x" + ")" * 3000,
    "brackets": "def f(x):\n    return " + "[" * 150 + "x" + "]" * 150,
    "signs": "def f(x):\n    return " + "-" * 20_000 + "x",
    "sum": "def f(x):\n    return " + "+".join("x" * 20_000),
    "attributes": "def f(x):\n    return x" + ".a" * 20_000,
    "blocks": "def f(x):\n" + "".join(" " * (i + 1) + "if x:\n" for i in range(98)) + " " * 99 + "return x",
    "long integer": "def f(x):\n    return " + "9" * 5000,
}


@pytest.mark.parametrize("name", BAD_FORMAT)
def test_bad_format(name: str) -> None:
    with pytest.raises(ProgramRejected) as refusal:
        check_program(BAD_FORMAT[name])
    assert refusal.value.status == "bad_format"
    assert refusal.value.reason


DENIED = [
    "import os\ndef f(x):\n    return os.environ",
    "import sys\ndef f(x):\n    sys.exit(0)",
    "def f(x):\n    import socket\n    return socket.create_connection(x)",
    "from os import path\ndef f(x):\n    return x",
    "import os.path\ndef f(x):\n    return x",
    "import math, time\ndef f(x):\n    return time.time()",
    "import random as math\ndef f(x):\n    return math.random()",
    "from . import math\ndef f(x):\n    return x",
    "import collections.abc.os\ndef f(x):\n    return x",
    "import ctypes\ndef f(x):\n    return ctypes.string_at(0)",
    "import builtins\ndef f(x):\n    builtins.len = lambda x: 0",
    "import signal\ndef f(x):\n    signal.alarm(0)",
    "import subprocess, threading\ndef f(x):\n    return x",
    "import uuid\ndef f(x):\n    return str(uuid.uuid4())",
    "def f(x):\n    return open('/etc/passwd').read()",
    "def f(x):\n    return eval(x)",
    "def f(x):\n    exec(x)",
    "def f(x):\n    return compile(x, '', 'eval')",
    "def f(x):\n    return __import__('os').getpid()",
    "def f(x):\n    return input()",
    "def f(x):\n    return globals()",
    "def f(x):\n    return vars(x)",
    "def f(x):\n    breakpoint()",
    "def f(x):\n    return memoryview(x)",
    "def f(x):\n    return __builtins__",
    "def f(x):\n    return ().__class__.__base__.__subclasses__()",
    "def f(x):\n    return f.__globals__",
    "def f(x):\n    return getattr(f, '__globals__')",
    "def f(x):\n    return (lambda: (yield))().gi_frame.f_back",
    "from operator import attrgetter\ndef f(x):\n    return attrgetter('__globals__')(f)",
    "import string\ndef f(x):\n    return string.Formatter().get_field('0.__class__', [x], {})",
    "import typing\ndef f(x):\n    return typing.get_type_hints(f)",
]


@pytest.mark.parametrize("source", DENIED)
def test_denied(source: str) -> None:
    with pytest.raises(ProgramRejected) as refusal:
        check_program(source)
    assert refusal.value.status == "denied"
    assert refusal.value.reason


@pytest.mark.parametrize("value", ["hash(x)", "id(x)", "sorted(x, key=id)"])
def test_what_differs_between_runs_is_nondeterministic(value: str) -> None:
    with pytest.raises(ProgramRejected, match="nondeterministic: use of"):
        check_program(f"def f(x):\n    return {value}")


def test_a_large_source_is_too_large() -> None:
    source = "def f(x):\n    return x\n"
    check_program(source + "#" * (MAX_SOURCE_BYTES - len(source)))
    with pytest.raises(ProgramRejected) as refusal:
        check_program(source + "#" * 10**6)
    assert refusal.value.status == "too_large"
