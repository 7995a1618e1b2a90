"""A block that is told to stop ends between two stages, and the same command finishes its work."""

import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.slow


def start_block(workspace, run: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "popu", "block", "--run", str(run), "--first", "1", "--last", "2"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=workspace.path, env=workspace.environment(), text=True, **pipes)


def tell_to_stop(process: subprocess.Popen) -> None:
    """SIGTERM to the block and all its children, as a batch system sends it."""
    block = psutil.Process(process.pid)
    for child in [block, *block.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            child.send_signal(signal.SIGTERM)


def stopped_in(workspace, run: Path, before: str, stage: str) -> None:
    """Starts the block, tells it to stop once `before` is finished, and finds it stopped after that or `stage`."""
    process = start_block(workspace, run)
    while not (run / "step00001" / f"{before}.json").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    for _ in range(20):  # so that the verifier's processes get it as they start and as they work
        if process.poll() is None:
            tell_to_stop(process)
            time.sleep(0.01)
    _, told = process.communicate(timeout=300)
    after = before if f"after {before} " in told else stage
    assert process.returncode == 128 + signal.SIGTERM
    assert f"popu: stopped after {after} of step 1; the same command continues" in told.splitlines()


def test_sigterm_ends_a_block_between_stages(finished, workspace):
    """It comes in the stages that run programs, whose verdicts are those of an undisturbed run."""
    source = finished.run_directory()
    run = workspace.path / source.relative_to(finished.path)
    settings = json.dumps(json.loads((source / "run.json").read_text()))
    assert workspace.popu("stage", "init", "--run", str(run), "--step", "0", "--settings", settings).returncode == 0
    stopped_in(workspace, run, "propose", "validate")
    assert not (run / "step00001" / "solve.json").exists()
    stopped_in(workspace, run, "solve", "verify")
    assert not (run / "step00001" / "update.json").exists()
    process = start_block(workspace, run)
    _, told = process.communicate(timeout=300)
    assert process.returncode == 0, told
    for step in ("step00001", "step00002"):
        for path in (source / step).glob("*.json"):
            if path.name != "timings.json":
                assert path.read_bytes() == (run / step / path.name).read_bytes()
