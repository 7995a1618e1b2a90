"""Equality of LaTeX expressions by math-verify, in a process of its own that can be ended.

math-verify limits its time by SIGALRM, which only works in a main thread and cannot stop sympy inside a C call. Here
its limits are off, and the worker process has one on processor time that the kernel keeps: the verdict is the same
from any thread and on a busy machine.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

WORKER_FILE = Path(__file__).resolve().with_name("symbolic_worker.py")
START_S = 120.0
WALL_S = 300.0  # for a worker that waits; the limit that counts is its own, on processor time


class OverLimit(Exception):
    """The comparison took more time or memory than it may."""


class Symbolic:
    """A context manager around the worker, which starts when it is first needed. Not for several threads at once."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Symbolic:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def equal(self, gold: str, answer: str) -> bool:
        """Return whether the worker says so (see `symbolic_worker.equal`).

        Raises OverLimit where it ends instead of answering, RuntimeError where it does not start.
        """
        process = self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps([gold, answer]) + "\n")
            process.stdin.flush()
            verdict, large = json.loads(self._line(process, WALL_S))
        except BaseException as error:  # an interrupt too: the answer still to come would be taken for the next one's
            self.close()
            if isinstance(error, OSError | EOFError):
                raise OverLimit from None
            raise
        if large:
            self.close()
        return bool(verdict)

    def close(self) -> None:
        """End the worker; harmless where there is none."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                assert pipe is not None
                with suppress(BrokenPipeError):
                    pipe.close()
        self.process = None

    def _started(self) -> subprocess.Popen[str]:
        if self.process is not None and self.process.poll() is not None:
            self.close()
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-B", str(WORKER_FILE)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONHASHSEED": "0"},
                start_new_session=True,
            )
            try:
                self._line(self.process, START_S)
            except EOFError:
                self.close()
                raise RuntimeError("math-verify: its process did not start; its message is on standard error") from None
        return self.process

    @staticmethod
    def _line(process: subprocess.Popen[str], wall_s: float) -> str:
        """Return the next line of the worker; raise EOFError where it ended or is silent for `wall_s`."""
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], wall_s)
        line = process.stdout.readline() if ready else ""
        if not line.endswith("\n"):
            raise EOFError
        return line
