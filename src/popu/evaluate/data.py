"""The rows of a benchmark: from a directory of the user's, or downloaded once into the cache.

Both hold the files of `sources.SOURCES` under the same names. A file is what that table says, by its digest and its
number of rows, or it is refused.
"""

import fcntl
import gzip
import hashlib
import http.client
import json
import os
import sys
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from popu.errors import ArtifactError
from popu.evaluate.sources import SOURCES, Source

ATTEMPTS = 4  # of a download that breaks off; each takes up where the last one ended
TIMEOUT_S = 60.0  # without a byte
CHUNK_BYTES = 2**20
PROGRESS_BYTES = 64 * 2**20  # between two lines of progress
GZIP_MAGIC = b"\x1f\x8b"

Row = dict[str, Any]


def rows(dataset: str, data_dir: Path | None = None) -> list[Row]:
    """The rows of all files of a data set, in order; without `data_dir` they are downloaded where the cache lacks them.

    Raises ArtifactError for a file that is missing, altered or not to be had, KeyError for an unknown data set.
    """
    return rows_of(SOURCES[dataset], data_dir)


def rows_of(sources: Sequence[Source], data_dir: Path | None = None) -> list[Row]:
    """The rows of some files. Raises ArtifactError as `rows`."""
    return [row for source in sources for row in read_rows(found(source, data_dir), source)]


def cache_directory() -> Path:
    """`$XDG_CACHE_HOME/popu`, by default `~/.cache/popu`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "popu"


def found(source: Source, data_dir: Path | None = None) -> Path:
    """Where a source's file is: in `data_dir`, or in the cache, downloaded if need be. Its content is not checked here.

    Raises ArtifactError.
    """
    if data_dir is None:
        return download(source, cache_directory() / "benchmarks" / source.file)
    path = Path(data_dir) / source.file
    if not path.is_file():
        raise ArtifactError(f"{path}: expected a file of the benchmark, found none; take it from {source.url}")
    return path


def read_rows(path: Path, source: Source) -> list[Row]:
    """The JSON lines of a file, gzipped or not, checked. Raises ArtifactError, which names the file and the remedy."""
    remedy = f"delete it and take it from {source.url}"
    _check(path, source, remedy)
    with _opened(path) as file:
        result = [json.loads(line) for line in file if line.strip()]
    if len(result) != source.rows:
        raise ArtifactError(f"{path}: expected {source.rows} rows, found {len(result)}; {remedy}")
    return result


def _opened(path: Path) -> IO[bytes]:
    """The lines of a file as bytes, whether it is gzipped or not: a mirror may have packed it otherwise."""
    with open(path, "rb") as file:
        zipped = file.read(2) == GZIP_MAGIC
    return gzip.open(path, "rb") if zipped else open(path, "rb")  # type: ignore[return-value]


def _check(path: Path, source: Source, remedy: str) -> None:
    """Raises ArtifactError unless the file is the source's."""
    digest = hashlib.sha256()
    try:
        with _opened(path) as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
    except (OSError, EOFError, zlib.error) as error:
        raise ArtifactError(f"{path}: expected a readable file, found: {error}; {remedy}") from error
    if digest.hexdigest() != source.sha256:
        expected, has = source.sha256[:12], digest.hexdigest()[:12]
        raise ArtifactError(f"{path}: expected sha256 {expected}... (uncompressed), found {has}...; {remedy}")


# --- download --------------------------------------------------------------------------------------------------


def download(source: Source, path: Path) -> Path:
    """Return `path`, holding the source's file: left alone where it exists, else downloaded, checked and renamed.

    What a broken attempt has received is kept beside it as `.part`, and the next attempt or call asks for the rest.
    Two processes that want the same file wait for each other. Raises ArtifactError.
    """
    if path.is_file():
        return path
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(part):
            if not path.is_file():
                _receive(source, part)
                _check_download(source, part)
                os.replace(part, path)
    except (OSError, http.client.HTTPException) as error:
        raise ArtifactError(
            f"{path}: could not be downloaded from {source.url}: {error}; on a machine without internet copy it into a "
            "directory and name that as evaluation.data_dir (--data-dir)"
        ) from error
    return path


@contextmanager
def _locked(part: Path) -> Iterator[None]:
    with open(part.with_name(f"{part.name}.lock"), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _receive(source: Source, part: Path) -> None:
    """Append to `part` until it is whole. Raises OSError or HTTPException of the last attempt."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _receive_rest(source, part)
            return
        except urllib.error.HTTPError as error:
            if error.code < 500 or attempt == ATTEMPTS:  # asking again helps against no 404
                raise
        except (OSError, http.client.HTTPException):
            if attempt == ATTEMPTS:
                raise
        _say(f"{source.file}: broken off, attempt {attempt + 1} of {ATTEMPTS}")


def _receive_rest(source: Source, part: Path) -> None:
    """One request for what `part` lacks. Raises OSError where the connection ends early."""
    have = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(source.url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if have and error.code == 416:  # nothing lies beyond: `part` was whole
            return
        raise
    with response:
        if response.status != 206:  # a server that knows no ranges sends the whole file
            have = 0
        length = response.headers.get("Content-Length")
        total = None if length is None else have + int(length)
        with open(part, "r+b" if have else "wb") as file:
            file.seek(have)
            _copy(response, file, source.file, have, total)


def _copy(response: IO[bytes], file: IO[bytes], name: str, have: int, total: int | None) -> None:
    of = "" if total is None else f" of {total / 2**20:.1f}"
    _say(f"{name}: downloading, {have / 2**20:.1f}{of} MiB there")
    said = have
    while chunk := response.read(CHUNK_BYTES):
        file.write(chunk)
        have += len(chunk)
        if have - said >= PROGRESS_BYTES:
            _say(f"{name}: {have / 2**20:.1f}{of} MiB")
            said = have
    file.flush()
    os.fsync(file.fileno())
    if total is not None and have < total:
        raise OSError(f"the connection ended after {have} of {total} bytes")
    _say(f"{name}: {have / 2**20:.1f} MiB, complete")


def _check_download(source: Source, part: Path) -> None:
    """Raises ArtifactError and removes `part` unless it is the source's file."""
    try:
        _check(part, source, f"what {source.url} gives now is another file, please report it")
    except ArtifactError:
        part.unlink()
        raise


def _say(text: str) -> None:
    print(f"popu: {text}", file=sys.stderr)
