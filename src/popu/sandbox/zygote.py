"""The fork server: a small process that forks one child per request, watches it, and forwards what it sent.

`fork_server` starts it by exec as `python -S -s -P zygote.py SOCKET DIRECTORY PROFILE` with an environment that holds
PYTHONHASHSEED, and LD_BIND_NOW for the loader alone. `-I` would be shorter, but it implies `-E`, which ignores
PYTHONHASHSEED: the two zygotes of a slot would then differ by chance instead of by choice, and verdicts would not be
reproducible.

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
FIRST_READ, MAX_READ = 440, 65_536  # a small object does for most frames: memory for a large one is written to
SIGKILL = int(signal.SIGKILL)
MIN_POLL_S = 0.005  # between two looks at a child's CPU clock once it may have used its limit up
WARM_UP_PROGRAM = "def f(x):\n    return x, {'a': [1.5, True, None]}"

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
    poll = select.poll()
    poll.register(READER, select.POLLIN)
    poll.register(SOCKET, select.POLLIN)  # nothing is sent during a request: readable means closed
    while (raw := read_frame(SOCKET)) is not None:
        write_frame(SOCKET, serve(raw, runner.answer, jail, poll))


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
    written = os.write(fd, message)
    while written < len(message):
        written += os.write(fd, memoryview(message)[written:])


def send_answer(content: bytes) -> None:
    write_frame(ANSWER, content)


def read_frame(fd: int) -> bytes | None:
    """Return the next frame, or None when the other side has closed. Nothing may follow the frame."""
    content = bytearray(os.read(fd, FIRST_READ))
    while not is_complete(content):
        part = os.read(fd, MAX_READ)
        if not part:
            return None
        content += part
    return bytes(content[4:])


def is_complete(content: bytearray) -> bool:
    return len(content) >= 4 and len(content) - 4 >= int.from_bytes(content[:4], "big")


# ---------------------------------------------------------------- one request, seen from outside the child


def serve(raw: bytes, answer: Callable[[bytes], bytes], jail: Jail, poll: select.poll) -> bytes:
    """Run a request in a forked child; return a line on how it ended, then the bytes it sent.

    The line has the way of `watch`, the exit code, and 1 if the child was over its CPU limit, else 0. The request is a
    marshalled tuple (see `fork_server.Request`): only the child reads its last field, the work.
    """
    walls, cpu_s, wall_s, frame_bytes, canary, work = marshal.loads(raw)
    steps = jail.steps(walls)
    task = jail.canaries[canary] if canary else answer
    jail.confined[0] = 0
    reader, writer = os.pipe()
    assert (reader, writer) == (READER, ANSWER)
    pid = os.fork()
    if pid == 0:
        live(steps, task, work, send_answer, os._exit)
    os.close(ANSWER)
    try:
        ended, frame = watch(pid, poll, cpu_s, wall_s, frame_bytes)
    finally:
        os.close(READER)
        kill(pid)
        over_cpu = cpu_time_s(pid) > cpu_s  # of a zombie, too
        _, wait_status = os.waitpid(pid, 0)
    if ended == "orphaned":
        os._exit(0)
    if not jail.confined[0]:
        ended, frame = "unconfined", b""
    return b"%s %d %d\n%s" % (ended.encode(), os.waitstatus_to_exitcode(wait_status), over_cpu, frame)


def watch(pid: int, poll: select.poll, cpu_s: float, wall_s: float, frame_bytes: int) -> tuple[str, bytes]:
    """Collect the child's bytes until it is done or over a limit; return (how it ended, bytes).

    It ends by "closed", "cpu", "wall", "overflow", or "orphaned" when the executor has gone.
    """
    started = time.monotonic()
    content = bytearray()
    next_look_s = cpu_s
    while True:
        for ready, _ in poll.poll(next_look_s * 1000):
            if ready == SOCKET:
                return "orphaned", b""
            part = os.read(READER, MAX_READ if content else FIRST_READ)
            content += part
            if len(content) > frame_bytes:
                return "overflow", b""
            if not part or is_complete(content):
                return "closed", bytes(content)
        left_cpu_s = cpu_s - cpu_time_s(pid)
        left_wall_s = wall_s - (time.monotonic() - started)
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
    task: Callable[[bytes], Any],
    work: bytes,
    send: Callable[[bytes], None],
    leave: Callable[[int], object],
) -> None:
    """A child from its first line to its end: be confined by `steps`, work, send the answer, leave.

    A step that fails, by an exception or the -1 of C, ends the child before it works.
    """
    status = 1
    try:
        for call, arguments in steps:
            if call(*arguments) == -1:
                leave(1)
        send(task(work))
        status = 0
    finally:
        leave(status)


def warm_up(runner: Any, jail: Jail) -> None:
    """Do what a child does, without the walls: what the interpreter caches and specialises now, no child has to."""
    work = marshal.dumps((WARM_UP_PROGRAM, "f", runner.warm_up_inputs, "", 1000))
    for _ in range(20):
        live(jail.harmless, runner.answer, work, functools.partial(write_frame, 1), bool)


def ignoring_argument(action: Callable[[], object]) -> Callable[[bytes], object]:
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

    def steps(self, walls: tuple[int, float, bool, bool]) -> Steps:
        """The calls, in order, that leave the zygote's session, files and limits behind, as `live` makes them.

        `walls` are megabytes of memory, seconds of CPU, whether system calls are filtered, and whether there are none
        of these at all, for a benchmark of what they cost. Only `ANSWER` stays open beside /dev/null. The calls are
        made ready once: in a child, every object that is looked up costs the copy of a page.
        """
        if walls not in self.kept_steps:
            memory_mb, cpu_s, filtered, bare = walls
            between = () if bare else (*self.limiting(memory_mb, cpu_s), *(self.filtering if filtered else ()))
            self.kept_steps[walls] = (*self.leaving, *between, *self.saying)
        return self.kept_steps[walls]

    def limiting(self, memory_mb: int, cpu_s: float) -> Steps:
        memory = self.own_bytes + memory_mb * 2**20
        limits = (
            (resource.RLIMIT_AS, memory),
            (resource.RLIMIT_CPU, int(cpu_s) + 2),  # a backstop: the limit in whole seconds is the zygote's to judge
            (resource.RLIMIT_NPROC, 0),
            (resource.RLIMIT_NOFILE, 0),
        )
        return tuple((resource.setrlimit, (what, (limit, limit))) for what, limit in limits)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
