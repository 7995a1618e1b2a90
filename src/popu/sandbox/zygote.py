"""The fork server: a small process that forks one child per request, watches it, and forwards what it sent.

The executor starts it by exec as `python -S -s -P zygote.py SOCKET DIRECTORY` with an environment that
holds PYTHONHASHSEED alone. `-I` would be shorter, but it implies `-E`, which ignores PYTHONHASHSEED: the two
zygotes of a slot would then differ by chance instead of by choice, and verdicts would not be reproducible.

Covered: an own process and session per request, no open file but one private pipe, limits on CPU, memory,
processes, files and core dumps, no privileges, a filter of system calls that kills, Landlock where the kernel
has it, a restricted import and builtins, death by SIGKILL from outside. Not covered: faults of the kernel and
of the processor, and what a program can learn from the clock.

This file imports nothing of popu; it loads `confinement` from beside it, and `literals`, `values` and `allowed`
by path from DIRECTORY. It never reads what a child sends: the trusted parent does.
"""

from __future__ import annotations

import builtins
import codecs
import ctypes
import gc
import importlib
import importlib.util
import json
import mmap
import os
import platform
import resource
import select
import signal
import sys
import time
import types
from collections.abc import Callable
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
NOBODY = 65534
SOCKET = 3  # the zygote's end: low, so that a child's other descriptors lie between it and MAX_FDS
ANSWER = 4  # the child's end of its pipe
MAX_FDS = 64
MIN_POLL_S = 0.005  # between two looks at a child's CPU clock once it may have used its limit up
CODECS = (
    *("ascii", "latin-1", "cp1252", "unicode_escape", "raw_unicode_escape", "hex", "base64", "rot13"),
    *(
        "cp437",
        "cp1251",
        "koi8-r",
        "iso8859-15",
        "mac-roman",
        "shift_jis",
        "euc_jp",
        "gbk",
        "gb18030",
        "big5",
        "euc_kr",
    ),
    *("utf-7", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"),
)
MEMORY_FRAME = b'{"status": "memory", "reason": "MemoryError", "outputs": []}'
PROGRAM_NAME = "program"  # `sys.modules` has it
SOURCE_NAME = "<program>"
WARM_UP_REQUEST = {
    "program": "def f(x):\n    return x, {'a': [1.5, True, None]}",
    "inputs": ["[1, 'a', {2: -3}]"],
    "twice": "",
    "value_bytes": 1000,
}


def main(socket_fd: int, directory: str) -> None:
    """Preload, give up privileges, then serve requests until the socket closes."""
    load("popu.problems.literals", f"{directory}/literals.py")
    values = load("popu.problems.values", f"{directory}/values.py")
    runner = Runner(values, load("popu.problems.allowed", f"{directory}/allowed.py"))
    confinement = load("confinement", f"{os.path.dirname(os.path.abspath(__file__))}/confinement.py")
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/statm", encoding="ascii") as statm:
        own_bytes = int(statm.read().split()[0]) * resource.getpagesize()
    os.dup2(socket_fd, SOCKET)
    if socket_fd != SOCKET:
        os.close(socket_fd)
    sys.meta_path.clear()  # all that may be imported has been; a child could not open the files
    drop_privileges(libc)
    silence()
    sys.unraisablehook = lambda _: None  # the default one would look for source files
    sys.addaudithook(refuse_source)
    jail = Jail(confinement, libc, own_bytes)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for _ in range(20):  # what the interpreter caches and specialises now, no child has to: 12 % less per request
        json.dumps(runner.execute(WARM_UP_REQUEST))
    gc.collect()
    gc.freeze()
    write_frame(SOCKET, json.dumps(jail.layers).encode())
    while (raw := read_frame(SOCKET)) is not None:
        report, frame = serve(json.loads(raw), runner, jail)
        write_frame(SOCKET, json.dumps(report).encode())
        write_frame(SOCKET, frame)


def load(name: str, path: str) -> types.ModuleType:
    """Return the module in the file at `path`, known as `name` to those that import it afterwards."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def drop_privileges(libc: ctypes.CDLL) -> None:
    """Become nobody when root; forbid gaining privileges, tracing and core files in any case."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def refuse_source(event: str, arguments: tuple[Any, ...]) -> None:
    """Keep the interpreter from opening the program's file to show a faulty line: the filter would kill."""
    if event == "open" and arguments[0] == SOURCE_NAME:
        raise FileNotFoundError(SOURCE_NAME)


def silence() -> None:
    """Point the three standard streams at /dev/null."""
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


# ---------------------------------------------------------------- frames: 4 bytes of length, then the content


def write_frame(fd: int, content: bytes) -> None:
    left = memoryview(len(content).to_bytes(4, "big") + content)
    while left:
        left = left[os.write(fd, left) :]


def read_frame(fd: int) -> bytes | None:
    """Return the next frame, or None when the other side has closed."""
    header = read_exactly(fd, 4)
    return None if header is None else read_exactly(fd, int.from_bytes(header, "big"))


def read_exactly(fd: int, size: int) -> bytes | None:
    content = bytearray()
    while len(content) < size:
        part = os.read(fd, size - len(content))
        if not part:
            return None
        content += part
    return bytes(content)


# ---------------------------------------------------------------- one request, seen from outside the child


def serve(request: dict[str, Any], runner: Runner, jail: Jail) -> tuple[dict[str, Any], bytes]:
    """Run a request in a forked child; return how it ended and the bytes it sent."""
    reader, writer = os.pipe()
    jail.confined[0] = 0
    pid = os.fork()
    if pid == 0:
        try:
            jail.enter(request, writer)
            if "canary" in request:
                jail.canaries[request["canary"]]()
            else:
                runner.run(request, ANSWER)
        finally:
            os._exit(1)
    os.close(writer)
    try:
        ended, frame = watch(request, pid, reader)
    finally:
        os.close(reader)
        kill(pid)
        _, wait_status, usage = os.wait4(pid, 0)
    if ended == "orphaned":
        os._exit(0)
    if not jail.confined[0]:
        ended, frame = "unconfined", b""
    over_cpu = usage.ru_utime + usage.ru_stime > request["cpu_s"]
    return {"ended": ended, "exit": os.waitstatus_to_exitcode(wait_status), "over_cpu": over_cpu}, frame


def watch(request: dict[str, Any], pid: int, reader: int) -> tuple[str, bytes]:
    """Collect the child's bytes until it is done or over a limit; return (how it ended, bytes).

    It ends by "closed", "cpu", "wall", "overflow", or "orphaned" when the executor has gone.
    """
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    poll.register(SOCKET, select.POLLIN)  # nothing is sent during a request: readable means closed
    started = time.monotonic()
    content = bytearray()
    next_look_s = request["cpu_s"]
    while True:
        events = dict(poll.poll(next_look_s * 1000))
        if SOCKET in events:
            return "orphaned", b""
        if reader in events:
            part = os.read(reader, 65_536)
            if not part:
                return "closed", bytes(content)
            content += part
            if len(content) > request["frame_bytes"]:
                return "overflow", b""
            complete = len(content) >= 4 and len(content) - 4 >= int.from_bytes(content[:4], "big")
            if complete:
                return "closed", bytes(content)
        left_cpu_s = request["cpu_s"] - cpu_time_s(pid)
        left_wall_s = request["wall_s"] - (time.monotonic() - started)
        if left_cpu_s <= 0:
            return "cpu", b""
        if left_wall_s <= 0:
            return "wall", b""
        next_look_s = max(MIN_POLL_S, min(left_cpu_s, left_wall_s))


def cpu_time_s(pid: int) -> float:
    """Return the CPU seconds of a process by its Linux clock id, finer than /proc/<pid>/stat."""
    return time.clock_gettime((~pid << 3) | 2)


def kill(pid: int) -> None:
    """Kill the child and its process group."""
    for send in (os.killpg, os.kill):
        try:
            send(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


# ---------------------------------------------------------------- inside the child


class Jail:
    """What confines a child; `layers` says what the kernel has."""

    def __init__(self, confinement: types.ModuleType, libc: ctypes.CDLL, own_bytes: int) -> None:
        self.libc = libc
        self.own_bytes = own_bytes
        self.canaries = confinement.CANARIES
        self.confined = mmap.mmap(-1, mmap.PAGESIZE)  # shared: a child says here that it is, before it runs anything
        machine = platform.machine()
        known = machine in confinement.AUDIT
        self.filter = confinement.SystemCallFilter(machine, ANSWER) if known else None
        self.layers = {"machine": machine, "filter": known, "landlock": confinement.restrict_files(libc)}

    def enter(self, request: dict[str, Any], writer: int) -> None:
        """Leave the zygote's session, files and limits behind; only `ANSWER` stays open beside /dev/null."""
        self.libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.setsid()
        os.dup2(writer, ANSWER)
        os.close(SOCKET)
        os.closerange(ANSWER + 1, MAX_FDS)
        memory = self.own_bytes + request["memory_mb"] * 2**20
        cpu_s = int(request["cpu_s"]) + 2  # a backstop: the limit in whole seconds is the zygote's to judge
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
        confined = self.confined
        if request["filtered"] and not (self.filter and self.filter.install(self.libc)):
            os._exit(1)
        confined[0] = 1
        confined.close()


class Unequal(Exception):
    """Two calls with equal arguments gave different values."""


class Runner:
    """Runs programs; holds what every child shares: the codec of values, the module facades, the builtins."""

    def __init__(self, values: types.ModuleType, allowed: types.ModuleType) -> None:
        self.values = values
        self.facades = facades(allowed.MODULES, allowed.BANNED_MEMBERS)
        self.writer = -1
        for codec in CODECS:  # a lookup in the child would have to open a file
            codecs.lookup(codec)
        importlib.import_module("unicodedata")  # `'\N{DASH}'` would load it
        kept = {name: value for name, value in vars(builtins).items() if name not in allowed.BANNED_BUILTINS}
        for name in ("getattr", "hasattr", "setattr", "delattr"):
            kept[name] = self.guarded(getattr(builtins, name), allowed)
        kept["__import__"] = self.import_module
        self.builtins = kept

    def run(self, request: dict[str, Any], writer: int) -> None:
        """Run a request, report on `writer`, exit."""
        self.writer = writer
        try:
            answer = json.dumps(self.execute(request)).encode()
        except MemoryError:
            answer = MEMORY_FRAME
        write_frame(writer, answer)
        os._exit(0)

    def execute(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return status, reason and, where the status is ok, one output per input."""
        outputs: list[str] = []
        status, reason = "ok", ""
        try:
            outputs = self.outputs(request["program"], request["inputs"], request)
            if request["twice"] == "reversed":
                again = self.outputs(request["program"], request["inputs"][::-1], request)[::-1]
                if outputs != again:
                    status, reason = "nondeterministic", "another order of inputs gave other values"
        except Unequal:
            status, reason = "nondeterministic", "two calls in one process gave different values"
        except MemoryError:
            raise
        except self.values.ValueTooLarge as error:
            status, reason = "too_large", error.reason
        except self.values.ValueRejected as error:
            status, reason = "unsupported_value", error.reason
        except BaseException as error:  # KeyboardInterrupt and SystemExit are the program's too
            status, reason = "raised", describe(error)
        return {"status": status, "reason": reason, "outputs": outputs}

    def outputs(self, source: str, inputs: list[str], request: dict[str, Any]) -> list[str]:
        """Return the outputs of a fresh copy of the program; with `twice: calls` each call is made twice."""
        function = self.function(source)
        outputs = []
        for text in inputs:
            output = self.call(function, text, request["value_bytes"])
            if request["twice"] == "calls" and self.call(function, text, request["value_bytes"]) != output:
                raise Unequal
            outputs.append(output)
        return outputs

    def function(self, source: str) -> Callable[..., object]:
        """Run the program's top level and return its `f`."""
        module = types.ModuleType(PROGRAM_NAME)
        module.__dict__["__builtins__"] = self.builtins
        sys.modules[PROGRAM_NAME] = module  # dataclasses look the module of a class up
        exec(compile(source, SOURCE_NAME, "exec", dont_inherit=True), module.__dict__)
        function: Callable[..., object] = module.__dict__["f"]
        return function

    def call(self, function: Callable[..., object], text: str, value_bytes: int) -> str:
        """Return the canonical text of one result; the arguments are made afresh for every call."""
        arguments = self.values.parse_arguments(text)
        output: str = self.values.canonical(function(*arguments.args, **arguments.kwargs), value_bytes)
        return output

    def deny(self, reason: str) -> NoReturn:
        """Report and exit at once, so that a program cannot catch the denial."""
        write_frame(self.writer, json.dumps({"status": "denied", "reason": reason, "outputs": []}).encode())
        os._exit(0)

    def import_module(
        self,
        name: str,
        namespace: object = None,
        local: object = None,
        names: tuple[str, ...] | None = (),
        level: int = 0,
    ) -> types.ModuleType:
        """The program's `__import__`: facades of the allowed modules, nothing else."""
        if level or name not in self.facades:
            self.deny(f"import of {str(name)[:40]}")
        return self.facades[name if names else name.partition(".")[0]]

    def guarded(self, builtin: Callable[..., object], allowed: types.ModuleType) -> Callable[..., object]:
        """Return `getattr` or a relative of it without the attributes that the static check bans."""

        def guard(target: object, name: str, *rest: object) -> object:
            if type(name) is str:
                hidden = name.startswith("__") and name not in allowed.DUNDER_ATTRIBUTES
                if hidden or name in allowed.BANNED_ATTRIBUTES:
                    self.deny(f"attribute {name[:40]}")
            elif isinstance(name, str):
                self.deny("attribute named by a subclass of str")
            return builtin(target, name, *rest)

        return guard


def facades(names: frozenset[str], banned: frozenset[str]) -> dict[str, types.ModuleType]:
    """Return copies of the modules that hold their public members only.

    The modules themselves hold `sys` and others as members, and a program could patch what this file uses.
    """
    copies = {}
    for name in sorted(names):
        module = importlib.import_module(name)
        public = getattr(module, "__all__", None) or [member for member in vars(module) if member[0] != "_"]
        copy = types.ModuleType(name, module.__doc__)
        for member in public:
            value = getattr(module, member)
            if member not in banned and not isinstance(value, types.ModuleType):
                setattr(copy, member, value)
        copies[name] = copy
    copies["collections"].abc = copies["collections.abc"]  # type: ignore[attr-defined]
    return copies


def describe(error: BaseException) -> str:
    """Return the name and message of an exception; a message that cannot be made is left out."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"[:200] if str(error) else name[:200]
    except BaseException:
        return name[:200]


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
