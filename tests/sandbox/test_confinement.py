"""The filter of system calls, where it holds and where it is missing."""

import ctypes
import platform
import subprocess
import sys

import pytest

from popu.sandbox.confinement import AUDIT, CANARIES, FREE, GUARDED, SystemCallFilter
from popu.sandbox.executor import Executor, Job, Limits
from popu.sandbox.verdicts import Status

LIBC = ctypes.CDLL(None)
# Takes the filter away as a container runtime can: prctl(PR_SET_SECCOMP) fails from here on.
WITHOUT_FILTER = """
import ctypes, struct, sys
libc = ctypes.CDLL(None)
code = [(0x20, 0, 0, 0), (0x15, 0, 3, {prctl}), (0x20, 0, 0, 16), (0x15, 0, 1, 22), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
packed = b"".join(struct.pack("=HBBI", *line) for line in code)
class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(code), packed)), 0, 0) == 0
from popu.errors import SandboxUnavailable
from popu.sandbox.executor import Executor, Job, Limits
try:
    with Executor(Limits(unsafe={unsafe})) as executor:
        print(executor.layers["filter"], executor.run([Job("def f(x): return x + 1", ("1",))])[0].outputs)
except SandboxUnavailable as error:
    print("refused:", error)
"""  # noqa: E501
PRCTL = {"x86_64": 157, "aarch64": 167}


def _without_filter(unsafe: bool) -> str:
    script = WITHOUT_FILTER.format(prctl=PRCTL[platform.machine()], unsafe=unsafe)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def test_without_a_filter_it_refuses_to_start_and_says_what_to_do() -> None:
    said = _without_filter(unsafe=False)
    assert said.startswith("refused: ") and "seccomp" in said and "training.verifier.unsafe: true" in said


def test_unsafe_runs_without_a_filter_and_says_so() -> None:
    assert _without_filter(unsafe=True) == "False ('2',)\n"


def test_the_layers_of_this_machine_are_told() -> None:
    with Executor() as executor:
        assert executor.layers["filter"] is True
        assert executor.layers["machine"] == platform.machine()
        assert executor.layers["landlock"] >= 0


def test_tables_are_complete_and_unambiguous() -> None:
    assert set(AUDIT) == set(FREE) == set(GUARDED)
    for machine in AUDIT:
        numbers = [*FREE[machine].values(), *GUARDED[machine].values()]
        assert len(set(numbers)) == len(numbers)
        assert set(FREE[machine]) == set(FREE["x86_64"]) and set(GUARDED[machine]) == set(GUARDED["x86_64"])
    with pytest.raises(ValueError, match="expected one of .*aarch64.*found 'riscv64'"):
        SystemCallFilter("riscv64", 4, LIBC)


def test_a_filter_fits_the_kernels_limits() -> None:
    code = SystemCallFilter("x86_64", 4, LIBC).code.raw
    assert len(code) % 8 == 0 and len(code) // 8 <= 4096
    assert len(CANARIES) >= 8


ESCAPED = (
    "os = [c.__init__.__globals__ for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close'][0]"
)
ATTACKS = [
    "os['sys'].modules['ctypes'].CDLL(None).syscall(57)",  # fork by number
    "os['sys'].modules['ctypes'].CDLL(None).syscall(0x40000000 + 1, 1, b'x', 1)",  # the x32 convention
    "os['sys'].modules['ctypes'].CDLL(None).syscall(425, 1, 0)",  # io_uring
    "os['sys'].modules['ctypes'].CDLL(None).prctl(22, 0, 0, 0, 0)",
    "os['sys'].modules['resource'].setrlimit(7, (64, 64))",
    "os['sys'].modules['mmap'].mmap(-1, 4096, prot=5)",
    "os['sys'].modules['signal'].signal(14, print)",
    "os['sys'].modules['signal'].alarm(0)",
    "os['unlink']('/tmp/popu-victim')",
    "os['rename']('/tmp/popu-victim', '/tmp/popu-moved')",
    "os['mkdir']('/tmp/popu-made')",
    "os['stat']('/')",
    "os['readlink']('/proc/self/exe')",
    "os['execv']('/bin/true', ['true'])",
    "os['write'](3, b'x')",
    "os['dup'](1)",
    "os['setsid']()",
    "os['nice'](1)",
    "os['sys'].modules['_thread'].start_new_thread(print, ())",
]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="system calls by number")
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_program_past_the_interpreters_restrictions_is_killed(attack: str) -> None:
    lines = ["def f(x):", f"    {ESCAPED}", f"    try: {attack}", "    except BaseException: pass", "    return 1"]
    with Executor(Limits(cpu_s=1.0)) as executor:
        outcome = executor.run([Job("\n".join(lines), ("0",))])[0]
        assert (outcome.status, outcome.reason) == (Status.DENIED, "forbidden system call")
        assert executor.run([Job("def f(x): return x", ("1",))])[0].outputs == ("1",)
