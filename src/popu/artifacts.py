"""Artifacts: atomic files, one schema a table, and a manifest a stage that names what it wrote.

Whatever is read under its final name is whole. A stage is finished when its manifest exists, and the manifest is
written last. Readers validate: a file that is missing, corrupted or of another schema raises `ArtifactError`, which
names it.
"""

import errno
import fcntl
import glob
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from popu.errors import ArtifactError

SCHEMA_VERSION = 2


# --- atomic files ----------------------------------------------------------------------------------------------


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on success it is fsynced and renamed onto `path`, on failure removed.

    It is locked while in use: what a killed writer of the same file left beside it is not, and is removed. An OSError
    that names it, or no file, as of a library that finds the disk full, leaves with the name of `path`.
    """
    path = Path(path)
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{glob.escape(path.name)}.tmp-*"):
        with suppress(OSError), _locked(left, os.O_RDONLY):
            left.unlink()
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        with _locked(temporary, os.O_RDWR | os.O_CREAT):
            yield temporary
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
    except OSError as error:
        if error.filename in (None, str(temporary)):
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise
    finally:
        with suppress(OSError):
            temporary.unlink()


@contextmanager
def _locked(path: Path, flags: int) -> Iterator[None]:
    """Holds the file's lock. Raises OSError where another process does, or, unless it is made here, there are none."""
    descriptor = os.open(path, flags, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if not flags & os.O_CREAT:
                raise
        yield
    finally:
        os.close(descriptor)


def write_json(path: Path, value: object) -> None:
    """`value` as indented JSON, keys in the order given."""
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1) + "\n")


def read_json(path: Path) -> Any:
    """The JSON value of a file. Raises ArtifactError."""
    try:
        return json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path}: expected a JSON file, found: {error}") from error


def write_tensors(path: Path, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Tensors by name as safetensors, in the order given. Raises ArtifactError where the file cannot be written."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with atomic_write(path) as temporary:
        try:
            save_file(dict(tensors), temporary, metadata=dict(metadata) if metadata else None)
        except SafetensorError as error:  # of the file system among others, which it does not tell apart
            raise ArtifactError(f"{path}: expected to write {len(tensors)} tensors, found: {error}") from error
        temporary.chmod(0o644)  # safetensors creates its files for the owner only


def read_tensors(path: Path) -> dict[str, Any]:
    """Tensors by name, on the CPU. Raises SafetensorError and OSError.

    What is read is the whole file: safetensors 0.8.0 keeps two Python integers for good with every tensor that it takes
    from a mapped one, 0.1 MB a step of a tiny run.
    """
    from safetensors.torch import load

    return load(Path(path).read_bytes())


def sha256(path: Path) -> str:
    """Hex digest of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_version(path: Path, found: object) -> None:
    """Raises ArtifactError for a file of another schema version than this code writes."""
    if str(found) != str(SCHEMA_VERSION):
        raise ArtifactError(
            f"{path}: expected schema version {SCHEMA_VERSION}, found {found}; go on with the version of popu that "
            "began this run (checkpoints name it in versions.json), or begin another"
        )


# --- tables ----------------------------------------------------------------------------------------------------

# Columns of every table as (name, Arrow type): s string, i int64, u uint64, f float32, d float64, b bool; l<type> is a
# list.
_TOKENS = {"prompt_tokens": "li", "tokens": "li", "log_probs": "lf", "finish_reason": "s"}
TABLES: dict[str, dict[str, str]] = {
    "proposals": {
        "proposal_id": "s",
        "slot": "s",
        "member": "s",
        "problem_type": "s",
        "group": "i",
        "reference_programs": "ls",
        "reference_inputs": "ls",
        "completion": "s",
        **_TOKENS,
    },
    "problems": {
        "proposal_id": "s",
        "problem_id": "s",
        "slot": "s",
        "member": "s",
        "problem_type": "s",
        "group": "i",
        "status": "s",
        "reason": "s",
        "program": "s",
        "inputs": "ls",
        "outputs": "ls",
        "message": "s",
        "problem_key": "s",
        "program_key": "s",
        "duplicate_of": "s",
        "n_nodes": "i",
        "depth": "i",
        "n_lines": "i",
        "n_variables": "i",
        "cyclomatic": "i",
    },
    "rollouts": {
        "problem_id": "s",
        "problem_type": "s",
        "teacher_slot": "s",
        "slot": "s",
        "member": "s",
        "attempt": "i",
        "completion": "s",
        **_TOKENS,
    },
    "verdicts": {
        "problem_id": "s",
        "slot": "s",
        "attempt": "i",
        "verdict": "s",
        "reason": "s",
        "reward": "f",
    },
    "flips": {
        "problem_id": "s",
        "slot": "s",
        "attempt": "i",
        "verdict": "s",
        "told": "s",
    },
    "outcomes": {
        "proposal_id": "s",
        "problem_id": "s",
        "slot": "s",
        "student_slot": "s",
        "status": "s",
        "rho": "f",
        "reward": "f",
    },
    "buffer": {
        "problem_id": "s",
        "step": "i",
        "problem_type": "s",
        "program": "s",
        "input": "s",
        "problem_key": "s",
        "program_key": "s",
        "solved": "b",
    },
    "buffer_index": {"step": "i", "row": "i", "problem_key": "u", "drawable": "b"},
    "update_metrics": {
        "slot": "s",
        "member": "s",
        "role": "s",
        "problem_type": "s",
        "n_sequences": "i",
        "n_tokens": "i",
        "mean_reward": "f",
        "mean_advantage_abs": "f",
        "loss": "f",
        "gradient_norm": "f",
        "clip_share": "f",
        "engine_mismatch": "f",
        "entropy": "f",
        "kl_to_base": "f",
    },
    "mismatch": {
        "slot": "s",
        "member": "s",
        "role": "s",
        "problem_type": "s",
        "n_tokens": "i",
        "mean_abs": "f",
        "max_abs": "f",
        "kl": "f",
        "effective_share": "f",
        "cut_share": "f",
    },
    "dynamics": {"step": "i", "problem_type": "s", "metric": "s", "value": "d"},
    "member_dynamics": {"step": "i", "slot": "s", "member": "s", "role": "s", "metric": "s", "value": "d"},
    "weights": {
        "step": "i",
        "slot": "s",
        "member": "s",
        "role": "s",
        "norm": "d",
        "effective_rank": "d",
        "distance": "d",
    },
    "pairs": {"step": "i", "teacher": "s", "student": "s", "p": "d", "solve_rate": "d"},
    "crossplay": {
        "seed": "i",
        "teacher_arm": "s",
        "teacher_step": "i",
        "teacher": "s",
        "student_arm": "s",
        "student_step": "i",
        "student": "s",
        "n_attempts": "i",
        "n_correct": "i",
    },
    "study_scores": {
        "seed": "i",
        "repeat": "i",
        "operator": "s",
        "step": "i",
        "task_id": "s",
        "problem_type": "s",
        "level": "i",
        "samples": "i",
        "n_correct": "i",
        "greedy_correct": "b",
    },
    "study_changes": {
        "seed": "i",
        "repeat": "i",
        "operator": "s",
        "step": "i",
        "first": "s",
        "second": "s",
        "size": "d",
        "first_size": "d",
        "to_first": "d",
        "to_second": "d",
        "parents_apart": "d",
        "to_copy": "d",
        "solve_rate": "d",
    },
    "heldout": {
        "member": "s",
        "slot": "s",
        "task_id": "s",
        "problem_type": "s",
        "level": "i",
        "samples": "i",
        "n_correct": "i",
        "greedy_correct": "b",
        "in_buffer": "b",
    },
    "generations": {
        "member": "s",
        "slot": "s",
        "task_id": "s",
        "sample": "i",
        "prompt_path": "s",
        "completion": "s",
        "n_tokens": "i",
        "finish_reason": "s",
    },
    "scores": {
        "member": "s",
        "slot": "s",
        "task_id": "s",
        "sample": "i",
        "prompt_path": "s",
        "passed": "b",
        "reason": "s",
        "cut": "b",
    },
    "lineage": {
        "step": "i",
        "slot": "s",
        "child": "s",
        "parents": "ls",
        "operator": "s",
        "mu": "f",
        "sigma": "f",
        "replaced": "s",
        "age_at_death": "i",
        "replaced_mu": "f",
        "replaced_sigma": "f",
    },
}


# Tables that no stage's manifest lists: they hold a digest of their own rows.
_SELF_CHECKED = {
    *("dynamics", "member_dynamics", "weights", "pairs", "crossplay", "heldout"),
    *("study_scores", "study_changes", "generations", "scores"),
}


def table_schema(name: str) -> Any:
    """The Arrow schema of a table, its name and version in the metadata."""
    import pyarrow as pa

    scalars = {
        "s": pa.string(),
        "i": pa.int64(),
        "u": pa.uint64(),
        "f": pa.float32(),
        "d": pa.float64(),
        "b": pa.bool_(),
    }
    fields = [
        (column, pa.list_(scalars[kind[1]]) if kind[0] == "l" else scalars[kind])
        for column, kind in TABLES[name].items()
    ]
    return pa.schema(fields, metadata={"popu_table": name, "popu_schema_version": str(SCHEMA_VERSION)})


def write_table(path: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows as Parquet in the schema of table `name`. Raises KeyError for a row that lacks a column."""
    write_columns(path, name, {column: [row[column] for row in rows] for column in TABLES[name]})


def write_columns(path: Path, name: str, columns: Mapping[str, Any]) -> None:
    """Columns (sequences or arrays, of equal length) as Parquet in the schema of table `name`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(dict(columns), schema=table_schema(name))
    if name in _SELF_CHECKED:
        table = table.replace_schema_metadata({**table.schema.metadata, b"popu_rows": _digest_of_rows(table)})
    with atomic_write(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)


def read_table(path: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a table. Raises ArtifactError where the file is not whole or not of this schema and version."""
    rows: list[dict[str, Any]] = _read_arrow(path, name).to_pylist()
    return rows


def read_columns(path: Path, name: str) -> dict[str, Any]:
    """The columns of a table of numbers as NumPy arrays. Raises ArtifactError as `read_table`."""
    table = _read_arrow(path, name)
    return {column: table[column].to_numpy() for column in table.column_names}


def read_frame(path: Path, name: str, columns: Sequence[str] | None = None) -> Any:
    """A table, or some of its columns, as a pandas frame. Raises ArtifactError as `read_table`."""
    return _read_arrow(path, name, columns).to_pandas()


def _read_arrow(path: Path, name: str, columns: Sequence[str] | None = None) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        wanted = None if columns is None or name in _SELF_CHECKED else list(columns)
        table = pq.read_table(path, columns=wanted, page_checksum_verification=True)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise ArtifactError(f"{path}: expected a Parquet table of {name}, found: {error}") from error
    metadata = table.schema.metadata or {}
    found = metadata.get(b"popu_table", b"another").decode(errors="replace")
    if found != name:
        raise ArtifactError(f"{path}: expected table {name}, found {found}")
    check_version(path, metadata.get(b"popu_schema_version", b"none").decode(errors="replace"))
    expected = table_schema(name)
    if wanted is not None:
        expected = pa.schema([expected.field(column) for column in wanted])
    if not table.schema.equals(expected):
        raise ArtifactError(f"{path}: expected the columns of table {name}, found others")
    digest = metadata.get(b"popu_rows")  # older tables of this schema have none
    if digest is not None and digest != _digest_of_rows(table):
        raise ArtifactError(f"{path}: expected the rows that were written, found others")
    return table if columns is None else table.select(list(columns))


def _digest_of_rows(table: Any) -> bytes:
    return hashlib.sha256(repr(table.to_pylist()).encode()).hexdigest().encode()


def check_table(path: Path) -> None:
    """Reads a table of any name. Raises ArtifactError as `read_table`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        name = (pq.read_schema(path).metadata or {}).get(b"popu_table", b"").decode(errors="replace")
    except (OSError, pa.ArrowException, ValueError) as error:
        raise ArtifactError(f"{path}: expected a Parquet table, found: {error}") from error
    if name not in TABLES:
        raise ArtifactError(f"{path}: expected one of the tables of popu, found {name or 'another'!r}")
    _read_arrow(path, name)


# --- manifests -------------------------------------------------------------------------------------------------


def manifest_path(step_directory: Path, stage: str) -> Path:
    """Where a stage's manifest is: its existence says that the stage is finished."""
    return step_directory / f"{stage}.json"


def write_manifest(step_directory: Path, stage: str, run_hash: str, outputs: Iterable[Path]) -> None:
    """Written last: relative path -> sha256 of every output of the stage."""
    digests = {str(path.relative_to(step_directory)): sha256(path) for path in sorted(outputs)}
    value = {"stage": stage, "schema_version": SCHEMA_VERSION, "run": run_hash, "outputs": digests}
    write_json(manifest_path(step_directory, stage), value)


def read_manifest(step_directory: Path, stage: str) -> dict[str, Any]:
    """A finished stage's manifest. Raises ArtifactError."""
    path = manifest_path(step_directory, stage)
    value = read_json(path)
    if not isinstance(value, dict) or value.get("stage") != stage or not isinstance(value.get("outputs"), dict):
        raise ArtifactError(f"{path}: expected the manifest of stage {stage}, found another file")
    check_version(path, value.get("schema_version"))
    return value


def verified(step_directory: Path, stage: str, relative: str) -> Path:
    """The path of a stage's output, after comparing its content with the manifest. Raises ArtifactError."""
    digests = read_manifest(step_directory, stage)["outputs"]
    path = step_directory / relative
    if relative not in digests:
        raise ArtifactError(f"{path}: expected an output of stage {stage}, found none of that name in its manifest")
    if not path.exists():
        raise ArtifactError(f"{path}: expected an output of stage {stage}, found no file")
    if sha256(path) != digests[relative]:
        raise ArtifactError(f"{path}: expected sha256 {digests[relative][:12]}..., found another content")
    return path
