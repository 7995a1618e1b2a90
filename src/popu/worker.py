"""The worker: one warm process a machine that keeps the base loaded and runs the stages of any run.

It is a cache. Stage commands connect to it or start it; where it is absent, dead or of another code version they do
without it, and no result depends on it. The socket lies in a directory that only its owner may enter.
"""

import fcntl
import hashlib
import json
import os
import select
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from popu import plugins
from popu.devices import private_directory
from popu.errors import USER_FAULTS, ArtifactError, explained
from popu.stages.call import StageCall

START_TIMEOUT_S = 60.0
IDLE_TIMEOUT_S = float(os.environ.get("POPU_WORKER_IDLE_S", "120"))


class WorkerUnavailable(RuntimeError):
    """No worker could be reached or started; the caller runs the stage itself."""


class Cancelled(RuntimeError):
    """The client of the running request is gone."""


def code_version() -> str:
    """16 hex digits of the package's sources, the plug-ins and the interpreter: workers of another version are not
    used."""
    digest = hashlib.sha256(json.dumps([sys.executable, plugins.installed()]).encode())
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def socket_path() -> Path:
    """The worker's socket for this user and code version. Raises WorkerUnavailable if the directory is not private."""
    try:
        return private_directory() / f"{code_version()}.sock"
    except PermissionError as error:
        raise WorkerUnavailable(str(error)) from error


# --- client ----------------------------------------------------------------------------------------------------


def run_in_worker(call: StageCall, report: Callable[[str], None]) -> None:
    """Runs a stage in the worker, starting it where there is none.

    Raises the stage's fault of `USER_FAULTS`, RuntimeError where it fails otherwise, WorkerUnavailable where no
    worker answers (twice).
    """
    for attempt in (1, 2):
        connection = _connect_or_start()
        with connection:
            request = {**asdict(call), "run": str(Path(call.run).resolve())}
            try:
                connection.sendall(json.dumps({**request, "cwd": os.getcwd()}).encode() + b"\n")
                answer = _read_answer(connection)
            except OSError:
                answer = None
        if answer is not None:
            _raise_error(answer)
            return
        report(f"the worker died during {call.stage}, attempt {attempt}")
    raise WorkerUnavailable("the worker died twice")


def status() -> dict[str, Any]:
    """Whether a worker of this code version runs, its pid and socket."""
    path = socket_path()
    connection = _connect(path)
    if connection is None:
        return {"running": False, "socket": str(path)}
    with connection:
        connection.sendall(b'{"query": "status"}\n')
        answer = _read_answer(connection) or {}
    return {"running": True, "socket": str(path), **answer}


def stop() -> bool:
    """Ends the worker; returns whether there was one."""
    connection = _connect(socket_path())
    if connection is None:
        return False
    with connection:
        connection.sendall(b'{"query": "stop"}\n')
        _read_answer(connection)
    return True


def _connect(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        return None
    return connection


def _connect_or_start() -> socket.socket:
    path = socket_path()
    connection = _connect(path)
    if connection is not None:
        return connection
    with _exclusive(path.with_suffix(".start")):
        connection = _connect(path)
        if connection is None:
            _start(path)
        deadline = time.monotonic() + START_TIMEOUT_S
        while connection is None and time.monotonic() < deadline:
            time.sleep(0.05)
            connection = _connect(path)
    if connection is None:
        raise WorkerUnavailable(f"no worker answered on {path} within {START_TIMEOUT_S:.0f} s")
    return connection


def _start(path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "POPU_WATCH_PARENT"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # it is to find what its client finds
    with open(path.with_suffix(".log"), "ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "popu", "worker", "serve"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env=environment,
        )


def _read_answer(connection: socket.socket) -> dict[str, Any] | None:
    """The answer's one line; None if the worker closed without one."""
    with connection.makefile("rb") as file:
        line = file.readline()
    return json.loads(line) if line.endswith(b"\n") else None


def _raise_error(answer: dict[str, Any]) -> None:
    if answer["status"] == "ok":
        return
    kinds = {kind.__name__: kind for kind in USER_FAULTS}
    raise kinds.get(answer["status"], RuntimeError)(answer["message"])


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# --- server ----------------------------------------------------------------------------------------------------


def serve() -> None:
    """Answers one request at a time until idle for `IDLE_TIMEOUT_S` or stopped."""
    from popu.stages.backend import Backend

    path = socket_path()
    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    path.unlink(missing_ok=True)
    backend = Backend()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen(64)
        server.settimeout(IDLE_TIMEOUT_S)
        try:
            while True:
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    break
                with connection:
                    if not _serve_one(connection, backend):
                        break
        finally:
            path.unlink(missing_ok=True)
            backend.close()


def _serve_one(connection: socket.socket, backend: Any) -> bool:
    """Answers one request; False means to stop."""
    connection.settimeout(5.0)
    try:
        with connection.makefile("rb") as file:
            request = json.loads(file.readline(1 << 16))
        if request.get("query") == "stop":
            connection.sendall(b'{"status": "ok"}\n')
            return False
        if request.get("query") == "status":
            answer: dict[str, Any] = {"status": "ok", "pid": os.getpid(), "code_version": code_version()}
        else:
            directory = request.pop("cwd")
            answer = _run(StageCall(**request), directory, connection, backend)
        connection.sendall(json.dumps(answer).encode() + b"\n")
    except (OSError, ValueError, KeyError, TypeError, Cancelled):
        pass  # the client is gone or sent no request: nobody waits for an answer
    return True


def _run(call: StageCall, directory: str, connection: socket.socket, backend: Any) -> dict[str, Any]:
    os.chdir(directory)  # relative paths of a run's config are relative to where the user stands
    backend.check = lambda: _check_client(connection)
    from popu.stages.run import run_stage

    try:
        run_stage(call, backend)
    except Cancelled:
        raise
    except Exception as error:
        message = explained(error)
        if message is None:
            return {"status": "failed", "message": traceback.format_exc()}
        kind = type(error) if isinstance(error, USER_FAULTS) else ArtifactError
        return {"status": kind.__name__, "message": message}
    finally:
        os.chdir("/")
    return {"status": "ok"}


def _check_client(connection: socket.socket) -> None:
    """Raises Cancelled once the client has closed its end."""
    readable, _, _ = select.select([connection], [], [], 0)
    if readable and not connection.recv(1, socket.MSG_PEEK):
        raise Cancelled
