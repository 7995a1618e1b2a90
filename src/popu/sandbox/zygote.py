"""The fork server: a small process that forks one child per request, watches it, and forwards what it sent.

The executor starts it by exec as `python -S -s -P zygote.py SOCKET DIRECTORY PROFILE` with an environment that
holds PYTHONHASHSEED alone. `-I` would be shorter, but it implies `-E`, which ignores PYTHONHASHSEED: the two
zygotes of a slot would then differ by chance instead of by choice, and verdicts would not be reproducible.

Covered: an own process and session per request, no open file but one private pipe, limits on CPU, memory,
processes, files and core dumps, no privileges, a filter of system calls that kills, Landlock where the kernel
has it, death by SIGKILL from outside. `runner` restricts imports and builtins. Not covered: faults of the kernel and
of the processor, and what a program can learn from the clock.

This file imports nothing of popu; it loads `confinement` and `runner` from beside it, and `literals`, `values` and
`allowed` by path from DIRECTORY. It never reads what a child sends: the trusted parent does.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib.util
import marshal
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
from typing import Any

PR_SET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 3, 4, 38
NOBODY = 65534
READER, ANSWER = 3, 4  # the pipe of the running child: the zygote's end and the child's
SOCKET = 5  # the zygote's end of its socket
MAX_FDS = 64
MAX_READ = 65_536
SIGKILL = int(signal.SIGKILL)
MIN_POLL_S = 0.005  # between two looks at a child's CPU clock once it may have used its limit up
WARM_UP_REQUEST = {
    "program": "def f(x):\n    return x, {'a': [1.5, True, None]}",
    "entry": "f",
    "twice": "",
    "value_bytes": 1000,
}

Steps = tuple[tuple[Callable[..., object], tuple[Any, ...]], ...]  # functions to call one after the other


def main(socket_fd: int, directory: str, profile: str) -> None:
    """Preload, give up privileges, then serve requests until the socket closes."""
    os.environ.pop("LD_BIND_NOW", None)
    os.register_at_fork = lambda **_: None  # type: ignore[assignment]  # what modules want of a fork doubles its cost
    here = os.path.dirname(os.path.abspath(__file__))
    load("popu.problems.literals", f"{directory}/literals.py")
    values = load("popu.problems.values", f"{directory}/values.py")
    allowed = load("popu.problems.allowed", f"{directory}/allowed.py")
    runners = load("runner", f"{here}/runner.py")
    runner = runners.RUNNERS[profile](values, allowed)
    confinement = load("confinement", f"{here}/confinement.py")
    libc = ctypes.CDLL(None)
    with open("/proc/self/statm", encoding="ascii") as statm:
        own_bytes = int(statm.read().split()[0]) * resource.getpagesize()
    os.dup2(socket_fd, SOCKET)
    if socket_fd != SOCKET:
        os.close(socket_fd)
    sys.meta_path.clear()  # all that may be imported has been; a child could not open the files
    drop_privileges(libc)
    silence()
    sys.unraisablehook = lambda _: None  # the default one would look for source files
    sys.addaudithook(refuser(runners.SOURCE_NAME))
    jail = Jail(confinement, libc, own_bytes)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warm_up(runner, jail)
    runner.send = send_answer
    gc.collect()
    gc.freeze()
    write_frame(SOCKET, jail.layers.encode())
    while (raw := read_frame(SOCKET)) is not None:
        write_frame(SOCKET, serve(marshal.loads(raw), runner, jail))


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
        raise OSError("no_new_privs")
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def refuser(source_name: str) -> Callable[[str, tuple[Any, ...]], None]:
    """Return a hook that keeps the interpreter from opening the program's file to show a faulty line.

    The filter would kill it for that.
    """

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and arguments[0] == source_name:
            raise FileNotFoundError(source_name)

    return refuse


def silence() -> None:
    """Point the three standard streams at /dev/null."""
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


# ---------------------------------------------------------------- frames: 4 bytes of length, then the content


def write_frame(fd: int, content: bytes) -> None:
    message = len(content).to_bytes(4, "big") + content
    left = memoryview(message)[os.write(fd, message) :]
    while left:
        left = left[os.write(fd, left) :]


def send_answer(content: bytes) -> None:
    write_frame(ANSWER, content)


def read_frame(fd: int) -> bytes | None:
    """Return the next frame, or None when the other side has closed. Nothing may follow the frame."""
    content = bytearray(os.read(fd, MAX_READ))
    while not is_complete(content):
        part = os.read(fd, MAX_READ)
        if not part:
            return None
        content += part
    return bytes(content[4:])


def is_complete(content: bytearray) -> bool:
    return len(content) >= 4 and len(content) - 4 >= int.from_bytes(content[:4], "big")


# ---------------------------------------------------------------- one request, seen from outside the child


def serve(request: dict[str, Any], runner: Any, jail: Jail) -> bytes:
    """Run a request in a forked child; return a line on how it ended, then the bytes it sent.

    The line has the way of `watch`, the exit code, and 1 if the child was over its CPU limit, else 0.
    """
    steps = jail.steps(request)
    work = jail.canaries[request["canary"]] if "canary" in request else runner.answer
    jail.confined[0] = 0
    reader, writer = os.pipe()
    assert (reader, writer) == (READER, ANSWER)
    pid = os.fork()
    if pid == 0:
        live(steps, work, request, send_answer, os._exit)
    os.close(writer)
    try:
        ended, frame = watch(request, pid, reader)
    finally:
        os.close(reader)
        kill(pid)
        over_cpu = cpu_time_s(pid) > request["cpu_s"]  # of a zombie, too
        _, wait_status = os.waitpid(pid, 0)
    if ended == "orphaned":
        os._exit(0)
    if not jail.confined[0]:
        ended, frame = "unconfined", b""
    return b"%s %d %d\n%s" % (ended.encode(), os.waitstatus_to_exitcode(wait_status), over_cpu, frame)


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
        for ready, _ in poll.poll(next_look_s * 1000):
            if ready == SOCKET:
                return "orphaned", b""
            part = os.read(reader, MAX_READ)
            content += part
            if len(content) > request["frame_bytes"]:
                return "overflow", b""
            if not part or is_complete(content):
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
    """Kill the child, which leads its process group unless it is not that far yet."""
    try:
        os.killpg(pid, SIGKILL)
    except ProcessLookupError:
        os.kill(pid, SIGKILL)


# ---------------------------------------------------------------- inside the child


def live(
    steps: Steps,
    work: Callable[[Any], bytes],
    request: dict[str, Any],
    send: Callable[[bytes], None],
    leave: Callable[[int], object],
) -> None:
    """A child from its first line to its end: be confined by `steps`, work, send what came of it, leave.

    A step that fails, by an exception or the -1 of C, ends the child before it works.
    """
    status = 1
    try:
        for call, arguments in steps:
            if call(*arguments) == -1:
                leave(1)
        send(work(request))
        status = 0
    finally:
        leave(status)


def warm_up(runner: Any, jail: Jail) -> None:
    """Do what a child does, without the walls: what the interpreter caches and specialises now, no child has to."""
    request = {**WARM_UP_REQUEST, "inputs": runner.warm_up_inputs}
    for _ in range(20):
        live(jail.harmless, runner.answer, request, functools.partial(write_frame, 1), bool)


def ignoring_argument(action: Callable[[], object]) -> Callable[[object], object]:
    return lambda _: action()


class Jail:
    """What confines a child; `layers` has the machine, whether its system calls are known, its Landlock ABI."""

    def __init__(self, confinement: types.ModuleType, libc: ctypes.CDLL, own_bytes: int) -> None:
        self.own_bytes = own_bytes
        self.canaries = {name: ignoring_argument(canary) for name, canary in confinement.CANARIES.items()}
        self.confined = mmap.mmap(-1, mmap.PAGESIZE)  # shared: a child says here that it is, before it runs anything
        machine = platform.machine()
        known = machine in confinement.AUDIT
        system_calls = confinement.SystemCallFilter(machine, ANSWER, libc) if known else None
        self.filtering: Steps = system_calls.steps if system_calls else ((os._exit, (1,)),)
        self.leaving: Steps = (
            (libc.prctl, (PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)),
            (os.setsid, ()),
            (os.close, (READER,)),
            (os.closerange, (ANSWER + 1, MAX_FDS)),
        )
        self.saying: Steps = ((self.confined.__setitem__, (0, 1)), (self.confined.close, ()))
        self.harmless: Steps = (
            (libc.prctl, (PR_GET_DUMPABLE, 0, 0, 0, 0)),
            (os.getpid, ()),
            (self.confined.__setitem__, (0, 0)),
            *self.filtering[:-1],
        )
        self.layers = f"{machine} {known:d} {confinement.restrict_files(libc)}"
        self.kept_steps: dict[tuple[Any, ...], Steps] = {}

    def steps(self, request: dict[str, Any]) -> Steps:
        """The calls, in order, that leave the zygote's session, files and limits behind, as `live` makes them.

        Only `ANSWER` stays open beside /dev/null. They are made ready once: in a child, every object that is looked up
        costs the copy of a page. A `bare` request goes without the walls: a benchmark measures by it what they cost.
        """
        key = (request["memory_mb"], request["cpu_s"], request["filtered"], request["bare"])
        if key not in self.kept_steps:
            walls = () if request["bare"] else self.walls(request)
            self.kept_steps[key] = (*self.leaving, *walls, *self.saying)
        return self.kept_steps[key]

    def walls(self, request: dict[str, Any]) -> Steps:
        """Limits, then the filter of system calls."""
        memory = self.own_bytes + request["memory_mb"] * 2**20
        cpu_s = int(request["cpu_s"]) + 2  # a backstop: the limit in whole seconds is the zygote's to judge
        limits = (
            (resource.RLIMIT_AS, memory),
            (resource.RLIMIT_CPU, cpu_s),
            (resource.RLIMIT_NPROC, 0),
            (resource.RLIMIT_NOFILE, 0),
        )
        limiting = tuple((resource.setrlimit, (what, (limit, limit))) for what, limit in limits)
        return (*limiting, *(self.filtering if request["filtered"] else ()))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
