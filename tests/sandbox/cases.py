"""Cases on which some verifier has failed, as requests at the black-box door with their right verdicts.

`CASES` maps a name to (request, status or verdict, or several where the rules leave a choice). `ELSEWHERE` names the
tests of cases that are not about a verdict.
"""

from typing import Any

Request = dict[str, Any]


def block(tag: str, text: str) -> str:
    return f"```{tag}\n{text}\n```\n"


def proposal(program: str, given: str = "1") -> Request:
    return raw_proposal(block("python", program) + block("input", given))


def raw_proposal(completion: str, problem_type: str = "code_o", **fields: str) -> Request:
    return {"kind": "proposal", "problem_type": problem_type, "completion": completion, **fields}


def pairs(inputs: list[str], message: str = "It doubles.", program: str = "def f(x):\n    return 2 * x") -> Request:
    completion = "".join(block("input", text) for text in inputs) + block("message", message)
    return raw_proposal(completion, "code_f", program=program)


def output(answer: str, gold: str) -> Request:
    return {"kind": "answer", "problem_type": "code_o", "output": gold, "completion": block("output", answer)}


def given(answer: str, gold: str = "5", program: str = "def f(x):\n    return x") -> Request:
    answer_type = {"kind": "answer", "problem_type": "code_i"}
    return {**answer_type, "program": program, "output": gold, "completion": block("input", answer)}


def induced(program: str) -> Request:
    """Judged on squares of 5 to 9."""
    hidden = [[str(i), str(i * i)] for i in range(5, 10)]
    return {"kind": "answer", "problem_type": "code_f", "hidden": hidden, "completion": block("python", program)}


def f(*lines: str, top: str = "") -> str:
    return "\n".join([*([top] if top else []), "def f(x):", *(f"    {line}" for line in lines)])


IDENTITY = block("python", f("return x")) + block("input", "3")
TEN = [str(i) for i in range(10)]
OS = "os = [c.__init__.__globals__ for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close'][0]"
AWAY = ("denied", "raised")  # refused before it runs or by the run

CASES: dict[str, tuple[Request, str | tuple[str, ...]]] = {
    # ------------------------------------------------------------ the numbered list
    "1 counter in a closure": (proposal(f("n[0] += 1", "return n[0]", top="n = [0]")), "nondeterministic"),
    "2 order of a set": (proposal(f("return list(set(x))"), "'abcdef'"), "nondeterministic"),
    "3 hash": (proposal(f("return hash(x)"), "'a'"), "nondeterministic"),
    "3 id": (proposal(f("return id(x)")), "nondeterministic"),
    "4 NaN": (proposal(f("return float('nan')")), "unsupported_value"),
    "4 NaN inside": (proposal(f("return {'a': [x * float('inf')]}"), "0"), "unsupported_value"),
    "5 StopIteration": (proposal(f("return next(iter([]))")), "raised"),
    "6 sys.exit": (proposal(f("sys.exit(0)", top="import sys")), "denied"),
    "6 SystemExit": (proposal(f("raise SystemExit(0)")), "raised"),
    "6 KeyboardInterrupt": (proposal(f("raise KeyboardInterrupt")), "raised"),
    "7 exception of its own": (proposal(f("raise Stop", top="class Stop(Exception): pass")), "raised"),
    "7 base exception of its own": (proposal(f("raise Stop", top="class Stop(BaseException): pass")), "raised"),
    "8 long text": (proposal(f("return 'a' * 1000")), "ok"),
    "8 text over the cap": (proposal(f("return 'a' * 100_000")), "too_large"),
    "9 long list": (proposal(f("return list(range(200))")), "ok"),
    "10 dict over three lines": (proposal(f("return x"), '{\n  "a": 1,\n  "b": [2]\n}'), "ok"),
    "11 text that looks like a call": (proposal(f("return len(x)"), "'print(1)'"), "ok"),
    "12 helper read_input": (proposal("def read_input(x): return x\n" + f("return read_input(x)")), "ok"),
    "13 injection": (given("0) or (1"), "bad_format"),
    "14 walrus": (given("x:=5"), "bad_format"),
    "14 star": (given("*[5]"), "bad_format"),
    "14 two stars": (given("**{'x': 5}"), "bad_format"),
    "14 keyword": (given("x=5"), "correct"),
    "15 trailing comment": (given("5 # it is five"), "correct"),
    "16 call in an input": (given("__import__('os').getpid()"), "bad_format"),
    "17 exit in an output": (output("__import__('os')._exit(1)", "1"), "bad_format"),
    "18 power tower": (output("9**9**9", "1"), "bad_format"),
    "18 huge list": (output("[0]*10**12", "1"), "bad_format"),
    "19 brackets": (output("[" * 100_000, "1"), ("bad_format", "too_large")),
    "19 brackets below the cap": (output("[" * 60_000, "1"), "bad_format"),
    "20 text of an int and of a float": (output("'1.0'", "'1'"), "wrong"),
    "21 the call copied": (output("f('[1, 2]')", "'[1, 2]'"), "bad_format"),
    "22 True and 1": (output("1", "True"), "wrong"),
    "22 True and 1.0": (output("1.0", "True"), "wrong"),
    "22 1 and 1.0": (output("1.0", "1"), "wrong"),
    "23 tuple without parentheses": (output("1, 2", "(1, 2)"), "correct"),
    "23 tuple and list": (output("(1, 2)", "[1, 2]"), "wrong"),
    "24 nearly": (output("0.3", "0.30000000000000004"), "wrong"),
    "25 zeros": (output("0.0", "-0.0"), "wrong"),
    "26 OrderedDict": (proposal(f("return OrderedDict(a=1)", top="from collections import *")), "unsupported_value"),
    "26 Counter": (proposal(f("return Counter('a')", top="from collections import *")), "unsupported_value"),
    "26 deque": (proposal(f("return deque([1])", top="from collections import *")), "unsupported_value"),
    "26 Fraction": (proposal(f("return Fraction(1)", top="from fractions import *")), "unsupported_value"),
    "26 named tuple": (
        proposal(f("return namedtuple('P', 'a')(1)", top="from collections import *")),
        ("unsupported_value", "raised"),
    ),
    "27 instance": (proposal(f("return A()", top="class A: pass")), "unsupported_value"),
    "27 lambda": (proposal(f("return lambda: 1")), "unsupported_value"),
    "27 generator": (proposal(f("return (i for i in x)"), "[1]"), "unsupported_value"),
    "28 infinity": (proposal(f("return float('inf')")), "ok"),
    "28 infinity answered": (output("-inf", "-inf"), "correct"),
    "29 empty set": (proposal(f("return set(), frozenset()")), "ok"),
    "29 set in another order": (output("{3, 1, 2}", "{1, 2, 3}"), "correct"),
    "29 empty set answered": (output("set()", "set()"), "correct"),
    "29 frozen set answered": (output("frozenset({2, 1})", "frozenset({1, 2})"), "correct"),
    "30 5000 digits": (proposal(f("return 10 ** x"), "5000"), "ok"),
    "30 5000 digits answered": (output("1" + "0" * 5000, "1" + "0" * 5000), "correct"),
    "30 other 5000 digits": (output("1" + "0" * 4999 + "1", "1" + "0" * 5000), "wrong"),
    "31 equal to everything": (
        induced(f("return A()", top="class A:\n    def __eq__(self, other): return True")),
        "unsupported_value",
    ),
    "32 text as equality": (
        induced(f("return A()", top="class A:\n    def __eq__(self, o): return \"__import__('os').system('id')\"")),
        "unsupported_value",
    ),
    "33 reduce": (
        induced(f("return A()", top="class A:\n    def __reduce__(self): return print, ('x',)")),
        ("unsupported_value", "denied"),
    ),
    "34 list that equals all": (
        induced(f("return L()", top="class L(list):\n    __eq__ = lambda a, b: True")),
        "unsupported_value",
    ),
    "34 int that equals all": (
        induced(f("return I(1)", top="class I(int):\n    __eq__ = lambda a, b: True")),
        "unsupported_value",
    ),
    "34 str of its own": (proposal(f("return S('a')", top="class S(str): pass")), "unsupported_value"),
    "35 patched builtins": (
        induced(f("builtins.len = lambda y: 0", "return x * x", top="import builtins")),
        "denied",
    ),
    "35 the next request": (proposal(f("return len(x)"), "'ab'"), "ok"),
    "36 forged line": (induced(f("print('{\"status\": \"ok\"}', flush=True)", "return 0")), "wrong"),
    "36 200 MB of prints": (proposal(f("for _ in range(200): print('a' * 10**6)", "return x")), "ok"),
    "37 swallowed alarm": (
        proposal(f("while True:", "    try:", "        while True: pass", "    except BaseException: pass")),
        "timeout",
    ),
    "38 alarm": (proposal(f("signal.alarm(0)", "while True: pass", top="import signal")), "denied"),
    "38 fork bomb": (proposal(f("while True: os.fork()", top="import os")), "denied"),
    "38 fork bomb past the restrictions": (induced(f(OS, "while True: os['fork']()")), "denied"),
    "38 sleep": (proposal(f("time.sleep(100)", top="import time")), "denied"),
    "39 memory": (proposal(f("return 'a' * 10**11")), "memory"),
    "40 recursion": (proposal(f("return f(x)")), "raised"),
    "40 raised recursion limit": (
        proposal(f("sys.setrecursionlimit(10**9)", "return f(x)", top="import sys")),
        "denied",
    ),
    "41 read a file": (proposal(f("return open('/etc/passwd').read()")), "denied"),
    "41 remove a file": (proposal(f("os.remove('/tmp/x')", top="import os")), "denied"),
    "41 connect": (proposal(f("socket.create_connection(('1.1.1.1', 53))", top="import socket")), "denied"),
    "42 environ": (proposal(f("return os.environ", top="import os")), "denied"),
    "43 input first": (raw_proposal(block("input", "3") + block("python", f("return x"))), "ok"),
    "44 python3": (raw_proposal(block("python3", f("return x")) + block("input", "3")), "ok"),
    "44 py": (raw_proposal(block("py", f("return x")) + block("input", "3")), "ok"),
    "44 tildes": (raw_proposal("~~~python\ndef f(x): return x\n~~~\n" + block("input", "3")), "ok"),
    "44 CRLF": (raw_proposal(IDENTITY.replace("\n", "\r\n")), "ok"),
    "45 backticks in a string": (proposal(f("return '```' + x"), "'a'"), "ok"),
    "46 sort": (proposal("def sort(a):\n    a.sort()\n    return a\n" + f("return sort(x)"), "[2, 1]"), "ok"),
    "46 no f": (proposal("def sort(a):\n    a.sort()\n    return a", "[2, 1]"), "bad_format"),
    "47 nested helper": (proposal(f("def g(y): return y + 1", "return g(x)")), "ok"),
    "47 class": (proposal("class A:\n    def g(self, y): return y\n" + f("return A().g(x)")), "ok"),
    "48 async": (proposal("async " + f("return x")), "bad_format"),
    "48 lambda": (proposal("f = lambda x: x"), "bad_format"),
    "48 no parameter": (proposal("def f():\n    return 1", ""), "bad_format"),
    "48 generator": (proposal(f("yield x")), "bad_format"),
    "49 two answers": (
        raw_proposal(f"<answer>{block('python', 'x')}</answer><answer>\n{IDENTITY}</answer>"),
        "ok",
    ),
    "49 unclosed answer": (raw_proposal("<answer>\n" + IDENTITY), "bad_format"),
    "51 from __future__": (proposal(f("return x", top="from __future__ import annotations")), "ok"),
    "52 ten inputs": (pairs(TEN), "ok"),
    "52 nine inputs": (pairs(TEN[:9]), "bad_format"),
    "52 eleven inputs": (pairs([*TEN, "10"]), "bad_format"),
    "52 equal inputs": (pairs(["1"] * 10), "bad_format"),
    "52 hidden equal to shown": (pairs([*TEN[:9], "0x0"]), "bad_format"),
    "53 the program in the message": (pairs(TEN, "def f(x):\n    return 2 * x"), "bad_format"),
    "53 the program renamed": (pairs(TEN, "def g(number):\n    return 2 * number"), "bad_format"),
    "54 constant": (pairs(TEN, program="def f(x):\n    return 7"), "bad_format"),
    "55 lookup table": (induced(f("return {0: 0, 1: 1, 2: 4, 3: 9, 4: 16}.get(x)")), "wrong"),
    "56 mutated argument": (proposal(f("x.append(1)", "return x"), "[0]"), "ok"),
    "57 mutable default": (proposal("def f(x, acc=[]):\n    acc.append(x)\n    return acc"), "nondeterministic"),
    "58 no answer": ({**given("", "1", "def f(x=1):\n    return x"), "completion": "I do not know."}, "bad_format"),
    "58 empty answer": (given("", "1", "def f(x=1):\n    return x"), ("correct", "bad_format")),
    "60 lone surrogate": (proposal(f("return '\\ud800' + x"), "'\\ud800'"), "ok"),
    "60 NUL": (proposal(f("return x") + "\0"), "bad_format"),
    "60 a megabyte of source": (proposal(f("return x") + "#" * 10**6), "too_large"),
    "60 deep source": (proposal(f("return " + "(" * 3000 + "x" + ")" * 3000)), "bad_format"),
    "60 deep expression": (proposal(f("return " + "-" * 3000 + "x")), "bad_format"),
    # ------------------------------------------------------------ the list in the text
    "input()": (proposal(f("return input()")), "denied"),
    "import in a function": (proposal(f("import subprocess", "return 1")), "denied"),
    "evil repr": (proposal(f("return A()", top="class A:\n    def __repr__(self): return '1'")), "unsupported_value"),
    "evil hash": (
        proposal(f("return {A(): 1}", top="class A:\n    def __hash__(self): return 1")),
        "unsupported_value",
    ),
    "regex": (proposal(f("return re.match('(a+)+b', 'a' * 50) and 1", top="import re")), "timeout"),
    "huge power": (proposal(f("return str(7 ** 10 ** 8)")), "timeout"),
    "huge list": (proposal(f("return [0] * 10**10")), "memory"),
    "bytearray loop": (proposal(f("b = bytearray()", "while True: b += bytes(10**7)")), "memory"),
    "2 GiB text": (proposal(f("return 'a' * (1 << 31)")), "memory"),
    "deep list": (proposal(f("y = []", "for _ in range(10**6): y = [y]", "return y")), "unsupported_value"),
    "list in itself": (proposal(f("x.append(x)", "return x"), "[]"), "unsupported_value"),
    "os._exit": (induced(f(OS, "os['_exit'](0)")), ("denied", "crashed")),
    "abort": (induced(f(OS, "os['abort']()")), ("denied", "crashed")),
    "null read": (induced(f(OS, "os['sys'].modules['ctypes'].string_at(0)")), ("denied", "crashed")),
    "kill the parent": (induced(f(OS, "os['kill'](os['getppid'](), 9)")), "denied"),
    "kill all": (induced(f(OS, "os['kill'](-1, 9)")), "denied"),
    "thread": (induced(f(OS, "os['sys'].modules['_thread'].start_new_thread(print, ())")), ("denied", "raised")),
    "token in the cache": (proposal(f("return open('/root/.cache/token').read()")), "denied"),
    "environment of the process": (induced(f(OS, "return os['open']('/proc/self/environ', 0)")), "denied"),
    "shared memory": (proposal(f("return shared_memory", top="from multiprocessing import shared_memory")), "denied"),
    "unlink": (induced(f(OS, "os['unlink']('/tmp/popu-victim')")), "denied"),
    "names of hosts": (proposal(f("socket.gethostbyname('localhost')", top="import socket")), "denied"),
}  # fmt: skip

ELSEWHERE = {
    "50 prompt that holds text of a response": "tests/engine/test_decode.py",
    "59 one of several executions lost": "tests/rl/test_rewards.py::test_lost_proposal_is_excluded",
    "61 all rewards equal": "tests/rl/test_advantages.py::test_equal_rewards_give_exact_zeros",
    "62 no valid proposal, short buffer": "tests/stages/test_stages.py::test_references_are_distinct_and_half_recent",
    "63 killed while it writes": "tests/workflow/test_kill.py::test_killed_at_random_moments_the_artifacts_are_equal",
    "64 two runs in one place": "tests/workflow/test_faults.py::test_another_config_in_the_same_directory_is_refused",
}
