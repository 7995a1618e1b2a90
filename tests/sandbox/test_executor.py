"""The executor against real children: statuses, isolation, determinism, survival."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from popu.errors import SandboxUnavailable
from popu.problems.values import canonical, parse_value
from popu.sandbox.executor import Executor, Job, Limits
from popu.sandbox.fork_server import Zygote
from popu.sandbox.verdicts import Status

LIMITS = Limits(cpu_s=0.5, wall_s=10.0, memory_mb=64)


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with Executor(LIMITS) as running:
        yield running


def _f(*lines: str) -> str:
    return "\n".join(["def f(x):", *(f"    {line}" for line in lines)])


# An escape through object internals, which the static check denies: this stage must survive it all the same.
_OS = "os = [c.__init__.__globals__ for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close'][0]"

VALUES = [
    ("def f(x): return x + 1", "1", "2"),
    ("def f(x): return len(x)", "'print(1)'", "8"),
    ("def f(x):\n    x.append(1)\n    return x", "[]", "[1]"),
    ("def f(x): return 'a' * 1000", "0", repr("a" * 1000)),
    ("def f(x): return list(range(200))", "0", repr(list(range(200)))),
    ("def f(x): return {3, 1, 2}, set(), frozenset(), -0.0, float('inf'), 1 - 2j", "0", None),
    ("def f(x): return 10 ** x", "5000", "1" + "0" * 5000),
    ("def f(x): return '\\ud800\\x00' + x", "'\\ud800'", r"'\ud800\x00\ud800'"),
    ("def f(*args, **kwargs): return args, kwargs", "1, b=2, a=3", "((1,), {'a': 3, 'b': 2})"),
    ("def f(x):\n    for _ in range(10_000): print('a' * 1000)\n    return x", "1", "1"),
    ("from __future__ import annotations\ndef f(x: Unknown): return x", "1", "1"),
    (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass(order=True)\n"
        "class A:\n    n: int = 0\n    def g(self): return self.n\ndef f(x): return max(A(x), A(1)).g()",
        "3",
        "3",
    ),
    ("from enum import Enum\nclass C(Enum):\n    A = 1\ndef f(x): return C(x).name", "1", "'A'"),
    ("import collections.abc\ndef f(x): return isinstance(x, collections.abc.Sequence)", "[]", "True"),
    (
        "import re, math, itertools as it\ndef f(x): return re.sub('a', 'b', x) + str(math.floor(2.5))",
        "'aa'",
        "'bb2'",
    ),
    ("import statistics, fractions, decimal\ndef f(x): return statistics.mean(x)", "[1, 3]", "2"),
    ("def f(x): return x.encode('utf-16-le').decode('latin-1') + '\\N{DIGIT ONE}'", "'a'", r"'a\x001'"),
    ("def f(x):\n    try:\n        return [0] * 10**10\n    except MemoryError:\n        return 1", "0", "1"),
]


@pytest.mark.parametrize(("program", "given", "expected"), VALUES)
@pytest.mark.parametrize("check_determinism", [False, True])
def test_values(executor: Executor, program: str, given: str, expected: str | None, check_determinism: bool) -> None:
    outcome = executor.run([Job(program, (given,), check_determinism)])[0]
    assert (outcome.status, outcome.reason) == (Status.OK, "")
    assert outcome.outputs[0] == expected or expected is None
    assert canonical(parse_value(outcome.outputs[0])) == outcome.outputs[0]


FAILURES = {
    Status.RAISED: [
        _f("return 1 / 0"),
        _f("return next(iter([]))"),
        _f("raise SystemExit(0)"),
        _f("raise KeyboardInterrupt"),
        _f("raise GeneratorExit"),
        "class Stop(Exception): pass\n" + _f("raise Stop"),
        "class Stop(BaseException):\n    def __str__(self): raise self\n" + _f("raise Stop"),
        _f("return f(x)"),
        "return 1\n" + _f("return 1"),
        "class A:\n    def __del__(self): 1 / 0\n" + _f("A()", "return '\\d' / x"),
        _f("return input()"),
        _f("return open('/etc/passwd').read()"),
        _f("return hash('a')"),
        _f("assert x"),
        "def f(): return 1",
        "def g(x): return 1",
        "f = 3",
        "def f(x) return",
        "1 / 0\n" + _f("return 1"),
        "import dataclasses\n" + _f("return dataclasses.sys.modules"),
        "from re import enum\n" + _f("return 1"),
    ],
    Status.DENIED: [
        "import os\n" + _f("return os.environ"),
        _f("import socket", "return socket.create_connection(('1.1.1.1', 53))"),
        _f("try:", "    import subprocess", "except BaseException:", "    return 1"),
        _f("try:", "    return getattr(f, '__glo' + 'bals__')", "except BaseException:", "    return 1"),
        "from . import math\n" + _f("return 1"),
        "class S(str): pass\n" + _f("return getattr(f, S('__globals__'))"),
    ],
    Status.TIMEOUT: [
        _f("while True: pass"),
        _f("while True:", "    try:", "        while True: pass", "    except BaseException: pass"),
        "import re\n" + _f("return re.match('(a+)+b', 'a' * 50)"),
        _f("return 7 ** 10 ** 7 % 10 ** 5 ** 9"),
        "class E(Exception):\n    def __str__(self):\n        while True: pass\n" + _f("raise E"),
        "while True: pass\n" + _f("return 1"),
    ],
    Status.MEMORY: [
        _f("return [0] * 10**10"),
        _f("return 'a' * (1 << 31)"),
        _f("b = bytearray()", "while True: b += bytes(10**7)"),
    ],
    Status.TOO_LARGE: [
        _f("return 'a' * 100_000"),
        _f("return list(range(100_000))"),
        _f("return 1 << 10_000_000"),
    ],
    Status.UNSUPPORTED_VALUE: [
        "from collections import OrderedDict\n" + _f("return OrderedDict(a=1)"),
        "from collections import Counter, deque\n" + _f("return [Counter(), deque()]"),
        "from fractions import Fraction\n" + _f("return Fraction(1, 2)"),
        "from typing import NamedTuple\nclass P(NamedTuple):\n    x: int\n" + _f("return P(1)"),
        _f("return lambda: 1"),
        _f("return (i for i in 'a')"),
        _f("yield x"),
        "async " + _f("return x"),
        "class A: pass\n" + _f("return A()"),
        "class A:\n    def __eq__(self, other): return True\n    __hash__ = None\n" + _f("return A()"),
        "class A:\n    def __repr__(self): return '1'\n" + _f("return A()"),
        "class A:\n    def __reduce__(self): return print, ()\n" + _f("return A()"),
        "class L(list):\n    __eq__ = lambda a, b: True\n" + _f("return L()"),
        "class S(str): pass\n" + _f("return {S('a'): 1}"),
        "class I(int): pass\n" + _f("return I(3)"),
        _f("x = []", "x.append(x)", "return x"),
        _f("x = []", "for _ in range(10**5): x = [x]", "return x"),
    ],
    Status.CRASHED: [
        _f(_OS, "os['_exit'](0)"),
        _f(_OS, "os['abort']()"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("status", "program"),
    [(status, program) for status, programs in FAILURES.items() for program in programs],
)
def test_failures(executor: Executor, status: Status, program: str) -> None:
    outcome = executor.run([Job(program, ("0",))])[0]
    assert outcome.status is status
    assert outcome.outputs == ()
    assert outcome.reason
    assert len(outcome.reason) <= 300


def test_nested_parentheses_and_a_large_program_end(executor: Executor) -> None:
    parentheses = _f("return " + "(" * 3000 + "1" + ")" * 3000)
    signs = _f("return " + "-" * 100_000 + "1")
    outcomes = executor.run([Job(parentheses, ("0",)), Job(signs, ("0",)), Job("#" * 10**7, ("0",))])
    assert outcomes[0].status in (Status.RAISED, Status.MEMORY)
    assert outcomes[1].status in (Status.RAISED, Status.MEMORY, Status.CRASHED)
    assert outcomes[2].status is Status.TOO_LARGE


NONDETERMINISTIC = [
    "n = [0]\n" + _f("n[0] += 1", "return n[0]"),
    "def f(x, acc=[]):\n    acc.append(x)\n    return acc",
    "def make(n):\n    def g(x):\n        nonlocal n\n        n += 1\n        return n\n    return g\nf = make(0)",
    _f("return list(set('abcdefgh'))"),
    _f("return list({c: 1 for c in 'abc'} | dict.fromkeys(set('defghijk')))"),
    _f("return str(object())"),
    "import statistics\n" + _f("return statistics.NormalDist().samples(2)"),
]


@pytest.mark.parametrize("program", NONDETERMINISTIC)
def test_nondeterministic(executor: Executor, program: str) -> None:
    assert executor.run([Job(program, ("0",), check_determinism=True)])[0].status is Status.NONDETERMINISTIC


def test_an_order_of_inputs_that_matters_is_nondeterminism(executor: Executor) -> None:
    program = "seen = []\n" + _f("if x not in seen: seen.append(x)", "return seen.index(x)")
    inputs = ("'a'", "'b'", "'c'")
    assert executor.run([Job(program, inputs, check_determinism=True)])[0].status is Status.NONDETERMINISTIC
    alone = executor.run([Job(program, inputs)])[0]
    assert (alone.status, alone.outputs) == (Status.OK, ("0", "0", "0"))


def test_nan_is_refused_only_where_determinism_is_checked(executor: Executor) -> None:
    program = _f("return [float('nan')]")
    checked, plain = executor.run([Job(program, ("0",), check_determinism=True), Job(program, ("0",))])
    assert checked.status is Status.UNSUPPORTED_VALUE
    assert plain.outputs == ("[nan]",)
    assert executor.run([Job(_f("return 'nan'"), ("0",), check_determinism=True)])[0].status is Status.OK


def test_several_inputs(executor: Executor) -> None:
    inputs = tuple(str(i) for i in range(8))
    for check in (False, True):
        outcome = executor.run([Job(_f("return x * x"), inputs, check)])[0]
        assert outcome.outputs == tuple(str(i * i) for i in range(8))
        failing = executor.run([Job(_f("return 12 // (x - 3) if x < 5 else [].pop()"), inputs, check)])[0]
        assert failing.status is Status.RAISED
        assert failing.reason.startswith("ZeroDivisionError")


def test_the_order_of_jobs_is_kept_and_equal_jobs_agree(executor: Executor) -> None:
    jobs = [Job(_f(f"return x + {i % 5}"), ("1",)) for i in range(20)]
    assert [outcome.outputs[0] for outcome in executor.run(jobs)] == [str(1 + i % 5) for i in range(20)]
    assert executor.run([]) == []


def test_two_slots_give_the_same_outcomes() -> None:
    jobs = [Job(_f(f"return x + {i}"), ("1",), check_determinism=i % 2 == 0) for i in range(12)]
    with Executor(LIMITS, slots=2) as executor:
        outcomes = executor.run(jobs)
    assert [outcome.outputs for outcome in outcomes] == [(str(1 + i),) for i in range(12)]


def test_inputs_obey_the_grammar_inside_the_child_too(executor: Executor) -> None:
    for text in ("__import__('os')._exit(1)", "0) or (1", "[" * 100_000):
        status = executor.run([Job(_f("return x"), (text,))])[0].status
        assert status in (Status.UNSUPPORTED_VALUE, Status.TOO_LARGE)


def test_a_request_leaves_no_trace_for_the_next(executor: Executor) -> None:
    patches = [
        _f("import math", "math.floor = lambda y: 99", "return 1"),
        _f("__builtins__['len'] = lambda y: 99", "return 1"),
        _f(_OS, "os['sys'].modules.clear()", "return 1"),
        _f(_OS, "os['sys'].modules['marshal'].loads = lambda y: ((99,), {})", "return 1"),
        _f(_OS, "os['sys'].modules['os'].write = print", "return 1"),
        _f(_OS, "os['sys'].modules['popu.problems.values'].canonical = lambda v, n: '99'", "return 1"),
    ]
    executor.run([Job(program, ("0",)) for program in patches])
    after = executor.run([Job("import math\n" + _f("return math.floor(x), len('ab')"), ("2.5",), True)])[0]
    assert after.outputs == ("(2, 2)",)


def _forge(answer: str | bytes) -> str:
    content = answer.encode() if isinstance(answer, str) else answer
    frame = len(content).to_bytes(4, "big") + content
    return _f(_OS, f"os['write'](4, {frame!r})", "os['_exit'](0)")


@pytest.mark.parametrize(
    "answer",
    [
        "ok\n1+1",
        "ok\n[1,2]",
        "ok\n__import__('os')",
        "ok\n1\n1",
        "ok\n1\n",
        "ok\n",
        "ok",
        "ok\n" + "1" * 66_000,
        b"ok\n'\xff'",
        "OK\n1",
        "correct\n1",
        "infrastructure\nx",
        "nondeterministic\nx",
        "\nok\n1",
        "",
    ],
)
def test_a_forged_answer_is_not_believed(executor: Executor, answer: str | bytes) -> None:
    assert executor.run([Job(_forge(answer), ("0",))])[0].status is Status.CRASHED


def test_a_forged_answer_can_only_state_a_value_or_a_failure(executor: Executor) -> None:
    value, failure, flood = (
        executor.run([Job(_forge(answer), ("0",))])[0]
        for answer in (
            "ok\n7",
            "raised\n\n" + "é" * 1000,
            "ok\n" + "1" * 200_000,
        )
    )
    assert value.outputs == ("7",)
    assert failure.status is Status.RAISED
    assert len(failure.reason) == 300
    assert failure.reason.encode()
    assert flood.status is Status.TOO_LARGE


def _children_of(pid: int) -> list[str]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as listing:
        return listing.read().split()


@pytest.mark.skipif(os.geteuid() != 0, reason="another account's descriptors are for root to see")
def test_a_child_holds_one_descriptor_beside_the_null_device() -> None:
    ours = [os.open("/dev/null", os.O_RDONLY) for _ in range(200)]
    try:
        with Executor(LIMITS) as executor, ThreadPoolExecutor(1) as pool:
            process = executor.slots[0].first.process
            assert process is not None
            running = pool.submit(executor.run, [Job(_f("while True: pass"), ("0",))])
            while not (children := _children_of(process.pid)) and not running.done():
                time.sleep(0.01)
            time.sleep(0.1)
            assert sorted(map(int, os.listdir(f"/proc/{children[0]}/fd"))) == [0, 1, 2, 4]
            assert running.result()[0].status is Status.TIMEOUT
    finally:
        for fd in ours:
            os.close(fd)


def test_an_interrupted_request_does_not_answer_the_next(executor: Executor) -> None:
    class Interrupt(BaseException):
        pass

    def interrupt(number: int, frame: object) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Interrupt):
            executor.run([Job(_f("for _ in range(10**8): pass", "return 1"), ("0",))])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert executor.run([Job(_f("return 2"), ("0",))])[0].outputs == ("2",)


def test_files_processes_and_environment_are_out_of_reach(executor: Executor) -> None:
    attempts = [
        "os['open']('/etc/passwd', 0)",
        "os['open']('/proc/self/environ', 0)",
        "os['open']('/tmp/popu-test-escape', 65)",
        "os['listdir']('/')",
        "os['fork']()",
        "os['pipe']()",
        "os['setuid'](0)",
        "os['posix_spawn']('/bin/true', ['true'], {})",
    ]
    outcomes = executor.run(
        [Job(_f(_OS, f"try: {attempt}", "except BaseException: pass", "return 1"), ("0",)) for attempt in attempts]
    )
    assert [outcome.status for outcome in outcomes] == [Status.DENIED] * len(attempts)
    environment = executor.run([Job(_f(_OS, "return sorted(os['environ'])"), ("0",))])[0]
    assert environment.outputs[0] in ("['LC_CTYPE', 'PYTHONHASHSEED']", "['PYTHONHASHSEED']")


@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGTERM", "SIGSTOP", "SIGABRT"])
@pytest.mark.parametrize("whom", ["os['getppid']()", "-1", "1", "0"])
def test_a_program_cannot_signal_others(executor: Executor, signal_name: str, whom: str) -> None:
    process = executor.slots[0].first.process
    number = int(getattr(signal, signal_name))
    denied = executor.run([Job(_f(_OS, f"os['kill']({whom}, {number})", "while True: pass"), ("0",))])[0]
    assert denied.status is Status.DENIED
    assert executor.slots[0].first.process is process and process is not None and process.poll() is None


def test_a_zygote_killed_during_a_run_is_replaced_and_asked_again() -> None:
    with Executor(Limits(cpu_s=5.0)) as executor, ThreadPoolExecutor(1) as pool:
        process = executor.slots[0].first.process
        assert process is not None
        running = pool.submit(executor.run, [Job(_f("for _ in range(5 * 10**6): pass", "return x"), ("1",))])
        while not _children_of(process.pid) and not running.done():
            time.sleep(0.005)
        process.kill()
        assert running.result()[0].outputs == ("1",)


def test_a_zygote_killed_between_requests_is_replaced() -> None:
    with Executor(LIMITS) as executor:
        for zygote in (executor.slots[0].first, executor.slots[0].second):
            assert zygote.process is not None
            zygote.process.kill()
        assert executor.run([Job(_f("return x"), ("1",), check_determinism=True)])[0].outputs == ("1",)


def test_a_program_that_waits_meets_the_wall_limit() -> None:
    program = _f(_OS, "os['sys'].modules['time'].sleep(9)", "return 1")
    with Executor(Limits(cpu_s=0.2, wall_s=0.4)) as executor:
        outcome = executor.run([Job(program, ("0",))])[0]
    assert outcome.status is Status.TIMEOUT
    assert "wall" in outcome.reason


def test_infrastructure_failures_are_a_status_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(_f("return x"), ("1",))
    with Executor(LIMITS) as executor:
        executor.slots[0].close()
        with monkeypatch.context() as broken:
            broken.setattr("popu.sandbox.fork_server.sys.executable", "/bin/false")
            assert executor.run([job])[0].status is Status.INFRASTRUCTURE
        assert executor.run([job])[0].status is Status.OK  # the failure was not kept


def test_no_zygote_means_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("popu.sandbox.fork_server.sys.executable", "/bin/false")
    with pytest.raises(SandboxUnavailable):
        Executor().__enter__()


def test_hash_seeds_are_given_and_differ() -> None:
    program = _f("return list(set('abcdefgh'))")
    with Executor(LIMITS) as one, Executor(LIMITS) as two:
        slot = one.slots[0]
        assert slot.first.hash_seed != slot.second.hash_seed
        assert one.run([Job(program, ("0",))]) == two.run([Job(program, ("0",))])


def test_no_zombie_and_no_orphan_remains() -> None:
    with Executor(LIMITS) as executor:
        programs = [_f(f"return {i}") for i in range(60)] + [_f("while True: pass"), _f("[].pop()")]
        executor.run([Job(program, ("0",)) for program in programs])
        processes = [zygote.process for zygote in (executor.slots[0].first, executor.slots[0].second)]
        pids = [process.pid for process in processes if process is not None]
        assert len(pids) == 2
        assert [_children_of(pid) for pid in pids] == [[], []]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_zygote_ends_when_its_executor_goes() -> None:
    zygote = Zygote(hash_seed=1)
    zygote.start()
    process = zygote.process
    assert process is not None
    assert zygote.socket is not None
    zygote.socket.close()
    assert process.wait(timeout=10) == 0


def test_callers_errors() -> None:
    with pytest.raises(ValueError, match="slots"):
        Executor(slots=0)
    with pytest.raises(ValueError, match="cpu_s"):
        Limits(cpu_s=0)
    with Executor(LIMITS) as executor, pytest.raises(ValueError, match="inputs"):
        executor.run([Job(_f("return 1"), ())])
