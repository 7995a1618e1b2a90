"""The trusted end of a zygote: starts its process, tries what it must stop, sends requests and receives answers."""

from __future__ import annotations

import marshal
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from popu.errors import SandboxUnavailable
from popu.problems import values
from popu.sandbox.confinement import CANARIES

ZYGOTE_FILE = Path(__file__).resolve().with_name("zygote.py")
LINKED_AT_START = {"LD_BIND_NOW": "1"}  # else every child looks the same symbols up; the zygote forgets it at once
START_TIMEOUT_S = 30.0
WALL_GRACE_S = 5.0  # beyond a request's wall limit, before its zygote counts as dead


class Request(NamedTuple):
    """What one fork is asked: its limits, and either the work for `runner.execute`, marshalled, or a canary's name."""

    memory_mb: int
    cpu_s: float
    wall_s: float
    frame_bytes: int
    work: bytes = b""
    canary: str = ""


class Report(NamedTuple):
    """How a child ended, by its zygote: the way (see `zygote.watch`), the exit code, whether it used too much CPU."""

    ended: str
    exit: int
    over_cpu: bool


class ZygoteDied(Exception):
    """The zygote went away or stopped answering; `during_run` when a request was in its hands."""

    def __init__(self, during_run: bool) -> None:
        super().__init__("the zygote died")
        self.during_run = during_run


class Zygote:
    """The trusted end of one fork server; it is started when first needed and after every death."""

    def __init__(self, hash_seed: int, unsafe: bool = False, profile: str = "training") -> None:
        self.hash_seed = hash_seed
        self.unsafe = unsafe
        self.profile = profile
        self.layers: dict[str, Any] = {}
        self.bare = False  # for a benchmark of the walls alone: programs run without them
        self.process: subprocess.Popen[bytes] | None = None
        self.socket: socket.socket | None = None

    def start(self) -> None:
        """Start the process unless it runs; raise SandboxUnavailable if it does not come up or confine."""
        if self.socket is not None:
            return
        if sys.platform != "linux":
            raise SandboxUnavailable(
                f"the verifier needs Linux, found {sys.platform}; use a Linux machine or container"
            )
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(START_TIMEOUT_S)
        files = [str(ZYGOTE_FILE), str(theirs.fileno()), str(Path(values.__file__).resolve().parent)]
        command = [sys.executable, "-S", "-s", "-P", "-B", "-W", "ignore", *files, self.profile]
        with theirs:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={"PYTHONHASHSEED": str(self.hash_seed), **LINKED_AT_START},
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        try:
            machine, known, landlock = self._receive().decode().split()
        except (OSError, EOFError, ValueError):
            self.close()
            raise SandboxUnavailable("the zygote did not start; its message is on standard error") from None
        has_table = known == "1"
        try:
            filters = has_table and not (alive := self._surviving_canaries())
        except ZygoteDied:
            raise SandboxUnavailable("the zygote died of its canaries") from None
        self.layers = {"machine": machine, "filter": filters, "landlock": int(landlock)}
        if not filters and not self.unsafe:
            self.close()
            found = f"nothing stops a program that would {alive[0]}" if has_table else f"a {machine}"
            raise SandboxUnavailable(
                f"the verifier needs a kernel that filters system calls (seccomp, x86-64 or aarch64), found {found}; "
                "use another machine or container runtime, or set training.verifier.unsafe: true to run what the model "
                "writes unconfined"
            )

    def _surviving_canaries(self) -> list[str]:
        """What a confined child can do that should kill it: nothing, where the filter holds."""
        limits = Request(memory_mb=64, cpu_s=5.0, wall_s=10.0, frame_bytes=4096)
        reports = {name: self.request(limits._replace(canary=name))[0] for name in CANARIES}
        return [name for name, report in reports.items() if report.exit != -signal.SIGSYS]

    def close(self) -> None:
        """Kill and reap the process; harmless when there is none."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        if self.socket is not None:
            self.socket.close()
        self.process = self.socket = None

    def request(self, request: Request) -> tuple[Report, bytes]:
        """Return the zygote's report and the child's bytes; raise ZygoteDied or SandboxUnavailable.

        After any exception the process is gone, and the next request starts another.
        """
        self.start()
        assert self.socket is not None
        walls = (request.memory_mb, request.cpu_s, self.layers.get("filter", True), self.bare)
        content = marshal.dumps(
            (walls, request.cpu_s, request.wall_s, request.frame_bytes, request.canary, request.work)
        )
        sent = False
        try:
            self.socket.settimeout(request.wall_s + WALL_GRACE_S)
            self.socket.sendall(len(content).to_bytes(4, "big") + content)
            sent = True
            line, _, frame = self._receive().partition(b"\n")
            ended, exit_code, over_cpu = line.decode().split()
            return Report(ended, int(exit_code), over_cpu == "1"), frame
        except (OSError, EOFError, ValueError):
            self.close()
            raise ZygoteDied(during_run=sent) from None
        except BaseException:  # an interrupt: the answer still to come would be taken for the next one's
            self.close()
            raise

    def _receive(self) -> bytes:
        """Return the content of the next frame; nothing follows it before the next request."""
        assert self.socket is not None
        received = bytearray()
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            part = self.socket.recv(65_536)
            if not part:
                raise EOFError
            received += part
        return bytes(received[4:])
