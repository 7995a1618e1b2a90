"""What a machine does to a run: a full or read-only disk, other times, damaged files, workers of others."""

import contextlib
import copy
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from popu import artifacts
from popu.endurance.workspace import REPOSITORY
from popu.stages.call import STAGES

from .conftest import TINY, Workspace

pytestmark = pytest.mark.slow

SIZE = 64 * 2**20


@contextmanager
def mounted(path: Path, *options: str) -> Iterator[None]:
    """A file system of its own in `path`; skips where mounts are not allowed."""
    path.mkdir(exist_ok=True)
    if os.geteuid() != 0:
        pytest.skip("a mount needs root")
    made = subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", str(path)], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no mount here: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def said(workspace: Workspace, result: subprocess.CompletedProcess) -> str:
    """All that a person can read of a run."""
    logs = (path.read_text() for path in workspace.path.rglob("logs/*.log"))
    return result.stdout + result.stderr + "".join(logs)


def fill(directory: Path, room: int) -> Path:
    """A file that leaves `room` bytes of the small disk."""
    ballast = directory / "ballast"
    ballast.unlink(missing_ok=True)
    free = os.statvfs(directory).f_bavail * os.statvfs(directory).f_frsize
    with open(ballast, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(free - room, 1))
    return ballast


def test_a_full_disk_is_named_and_with_room_again_the_same_command_ends(finished, workspace):
    """Full at three places of the run; a step and its checkpoint are about 2 MB."""
    results = workspace.path / "results"
    with mounted(results, "-o", f"size={SIZE}"):
        named = 0
        for room in (60_000, 700_000, 1_500_000):
            ballast = fill(results, room)
            result = workspace.run("train_all")
            text = said(workspace, result)
            assert result.returncode and "Traceback" not in text, text[-3000:]
            named += "No space left on device" in text
            ballast.unlink()
        assert named >= 2
        result = workspace.run("train_all")
        assert result.returncode == 0, result.stderr[-3000:]
        assert workspace.digests() == finished.digests()
        workspace.popu("worker", "stop")


def test_a_read_only_results_directory_is_named_and_nothing_is_lost(copied, finished):
    """A run that is to be extended is named by Snakemake, which looks at what it will write anew; a new one by us."""
    results = copied.path / "results"
    kept = results.rename(copied.path / "kept")
    with mounted(results):
        shutil.copytree(kept, results, dirs_exist_ok=True)
        subprocess.run(["mount", "-o", "remount,ro", str(results)], check=True)
        copied.write(TINY | {"training": {**TINY["training"], "steps": 3}})
        extended = copied.run("train_all")
        assert extended.returncode == 1 and "Write-protected output files" in extended.stderr
        copied.write(TINY | {"experiment": "new"})
        new = copied.run("train_all")
        assert new.returncode == 2 and "popu: results/new: Read-only file system" in new.stderr
        for result in (extended, new):
            assert "Traceback" not in result.stdout + result.stderr
        assert copied.digests() == finished.digests()


def test_a_tree_copied_with_new_times_and_a_clock_that_jumped_go_on(copied, finished, tmp_path):
    """Times of the future and of long ago; the run is extended as it would be at home."""
    longer = copy.deepcopy(TINY)
    longer["training"]["steps"] = 3
    at_home = Workspace(tmp_path / "home", longer)
    shutil.copytree(copied.path / "results", at_home.path / "results")
    for i, path in enumerate(sorted((copied.path / "results").rglob("*"))):
        os.utime(path, (0, 0) if i % 2 else (4e9, 4e9))
    assert "Nothing to be done" in (again := copied.run("train_all")).stdout + again.stderr
    copied.write(longer)
    for workspace in (at_home, copied):
        result = workspace.run("train_all")
        assert result.returncode == 0, result.stderr[-3000:]
    assert copied.digests() == at_home.digests()
    at_home.popu("worker", "stop")


def artifact_kinds(results: Path) -> dict[str, Path]:
    """One file of every kind that a run has, by its name."""
    files = [path for path in sorted(results.rglob("*")) if path.suffix in (".parquet", ".json", ".safetensors")]
    left_out = {"timings.json", "summary.json"}  # measured, and written for people
    return {
        ("bundle " if "checkpoints" in path.parts else "") + path.name.replace(path.parts[-2], "slot"): path
        for path in files
        if path.name not in left_out and "report" not in path.parts
    }


def test_a_damaged_file_of_any_kind_is_found_and_no_other_is_blamed(copied):
    kinds = artifact_kinds(copied.path / "results")
    assert len(kinds) > 25
    assert copied.popu("check").returncode == 0
    for kind, path in kinds.items():
        whole = path.read_bytes()
        rows = rows_of(path)
        for damage in ("flip", "cut"):
            path.write_bytes(flipped(whole, path) if damage == "flip" else whole[: len(whole) * 2 // 3])
            if not checked(copied.path / "results", path):  # a bit of a header that no reader looks at
                assert damage == "flip" and rows is not None and rows_of(path) == rows, (damage, kind)
        path.write_bytes(whole)
    assert copied.popu("check").returncode == 0


def rows_of(path: Path) -> list[dict] | None:
    if path.suffix != ".parquet":
        return None
    return pq.read_table(path).to_pylist()


def flipped(content: bytes, path: Path) -> bytes:
    """One bit of a hash or number in JSON, one in the middle of other files."""
    at = len(content) // 2
    if path.name == "run.json":
        at = content.index(b'"learning_rate": 0.') + len(b'"learning_rate": 0.')
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def checked(results: Path, path: Path) -> int:
    """The number of faults, each of which must name the file; a manifest may say something wrong of another."""
    from popu.stages.integrity import check

    try:
        _, faults = check(results)
    except artifacts.ArtifactError as error:
        faults = [str(error)]
    if path.name != "run.json":  # whose hash every manifest holds
        assert path.stem in (*STAGES, "manifest") or all(path.name in fault for fault in faults), faults
    return len(faults)


def test_a_file_of_another_version_is_refused_with_the_way_forward(copied):
    run = copied.run_directory()
    manifest = run / "step00002" / "evolve.json"
    value = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**value, "schema_version": 1}))
    bundle = run / "checkpoints" / "step00002" / "manifest.json"
    bundle.write_text(json.dumps({**json.loads(bundle.read_text()), "schema_version": 1}))
    for command in (
        ["stage", "propose", "--run", str(run), "--step", "3"],
        ["export", "s0", "--run", str(run), "--out", str(copied.path / "out")],
        ["check"],
    ):
        result = copied.popu(*command)
        assert result.returncode == 2, (command, result.stderr)
        assert "expected schema version 2, found 1; go on with the version of popu that began this run" in result.stderr


def test_two_experiments_share_one_worker(finished, tmp_path):
    """Side by side, with other names: each has the artifacts that it has alone."""
    first = Workspace(tmp_path, TINY)
    second = Workspace(tmp_path / "second", TINY | {"experiment": "other"})
    second.environment = first.environment  # type: ignore[method-assign]
    results: list[subprocess.CompletedProcess] = []
    threads = [threading.Thread(target=lambda w=w: results.append(w.run("train_all"))) for w in (first, second)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert [result.returncode for result in results] == [0, 0], [result.stderr[-2000:] for result in results]
    expected = finished.digests()
    for workspace, name in ((first, "tiny"), (second, "other")):
        found = {path.replace(f"/{name}/", "/tiny/"): digest for path, digest in workspace.digests().items()}
        same = [path for path in expected if "seed1" in path]
        assert {path: found.get(path) for path in same} == {path: expected[path] for path in same}
    first.popu("worker", "stop")


def test_a_stale_socket_and_a_worker_of_another_version_are_no_obstacle(workspace, tmp_path):
    socket_path = Path(json.loads(workspace.popu("worker", "status").stdout)["socket"])
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as stale:
        stale.bind(str(socket_path))  # bound and closed: a file that nobody answers
    changed = tmp_path / "changed"
    shutil.copytree(REPOSITORY / "src" / "popu", changed / "popu")
    (changed / "popu" / "seeds.py").open("a").write("\n# another version\n")
    environment = workspace.environment() | {"PYTHONPATH": str(changed)}
    command = [sys.executable, "-m", "popu", "worker", "serve"]
    with subprocess.Popen(command, env=environment, cwd=tmp_path) as other:
        settings, run = settings_text(), str(tmp_path / "results" / "tiny" / "pair")
        made = workspace.popu("stage", "init", "--run", run, "--step", "0", "--settings", settings)
        assert made.returncode == 0, made.stderr
        assert json.loads(workspace.popu("worker", "status").stdout)["running"]
        assert other.poll() is None
        subprocess.run([*command[:-1], "stop"], env=environment, cwd=tmp_path, check=True)


def settings_text() -> str:
    """The settings of the tiny run, as the workflow passes them."""
    from popu.base import expected_identity
    from popu.config import Run, arm_training, load_config

    config = load_config(TINY)
    return Run(
        arm="pair",
        seed=1,
        training=arm_training(config, "pair"),
        base=config.base,
        base_sha256=expected_identity(config.base),
        engine=config.engine,
    ).model_dump_json()
