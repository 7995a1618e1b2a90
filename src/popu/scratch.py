"""Temporary directories that outlive no process for long: what a killed one left is removed by the next that asks."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FRESH = ".new"  # ends the name of a directory that is not locked yet


@contextmanager
def scratch_directory(prefix: str) -> Iterator[Path]:
    """An empty directory, locked while in use and removed after; unlocked ones of this prefix and user are removed.

    It has its final name only once it is locked, so that nobody takes it for one that was left.
    """
    place = Path(tempfile.gettempdir())
    for path in place.glob(f"{prefix}*"):
        _remove_if_left(path)
    fresh = Path(tempfile.mkdtemp(prefix=prefix, suffix=FRESH))
    lock = os.open(fresh, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        directory = fresh.rename(fresh.with_name(fresh.name.removesuffix(FRESH)))
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(lock)


def _remove_if_left(path: Path) -> None:
    """Removes a directory of this user's that no process has locked."""
    if path.name.endswith(FRESH):
        return
    with suppress(OSError):  # another's, in use, or gone by now
        if path.lstat().st_uid != os.getuid():
            return
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)
        finally:
            os.close(lock)
