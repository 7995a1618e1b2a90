"""Which accelerators this process may use: processes of one machine take theirs by locks that die with them.

A batch system gives a job its own; within a job, and on a machine without one, nobody else says who has which.
"""

import errno
import fcntl
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from popu.errors import ConfigError

VISIBLE = "CUDA_VISIBLE_DEVICES"
_held: dict[str, int] = {}  # the descriptors of the locks, closed by the end of the process


def private_directory() -> Path:
    """The directory of this user's sockets and locks on this machine. Raises PermissionError if others may enter it."""
    directory = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"popu-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    status = directory.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or directory.is_symlink():
        raise PermissionError(errno.EACCES, "expected a directory of this user with mode 0700", str(directory))
    return directory


def visible_devices() -> list[str]:
    """The names in `CUDA_VISIBLE_DEVICES`, else the numbers of the driver's devices; none on a machine without."""
    names = os.environ.get(VISIBLE)
    if names is None:
        names = ",".join(str(i) for i in range(len(list(Path("/dev").glob("nvidia[0-9]*")))))
    return [name for name in names.split(",") if name]


def take_devices(n: int) -> Sequence[str]:
    """Takes `n` devices that nobody else of this batch job or machine holds, and hides the others from this process.

    They are held until the process ends. Comes before the first use of CUDA. Raises ConfigError where fewer are free.
    """
    if not n or _held:
        return visible_devices()
    names = visible_devices()
    job = os.environ.get("SLURM_JOB_ID", "0")  # jobs of one machine may call different devices by one number
    taken: dict[str, int] = {}
    for name in names:
        lock = _lock(private_directory() / f"device-{job}-{name.replace('/', '-')}.lock") if len(taken) < n else None
        if lock is not None:
            taken[name] = lock
    if len(taken) < n:
        for lock in taken.values():
            os.close(lock)
        raise ConfigError(
            f"gpus: expected {n} free devices, found {len(taken)} of the {len(names)} that this process may see; "
            "`--resources gpu=N` is what all jobs of a machine may take"
        )
    _held.update(taken)
    os.environ[VISIBLE] = ",".join(taken)
    return list(taken)


def _lock(path: Path) -> int | None:
    """The descriptor that holds the lock, None where another process does."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
