"""Kill -9 the whole process tree at random moments, the same command again each time: equal artifacts.

`POPU_KILLS` sets the number of kills (default 3). The full test:
POPU_KILLS=10 python -m pytest tests/workflow/test_kill.py
"""

import os
import random
import time

import psutil
import pytest

pytestmark = pytest.mark.slow


def kill_tree(pid: int) -> None:
    """SIGKILL to Snakemake, its stages, the worker and the zygotes."""
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        family = []
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, timeout=10)


def kill_worker(workspace) -> None:
    for process in psutil.process_iter(["environ", "cmdline"]):
        environment = process.info["environ"] or {}
        if environment.get("XDG_RUNTIME_DIR") == str(workspace.path) and process.pid != os.getpid():
            kill_tree(process.pid)


def test_killed_at_random_moments_the_artifacts_are_equal(finished, workspace):
    n_kills = int(os.environ.get("POPU_KILLS", "3"))
    rng = random.Random(os.environ.get("POPU_KILL_SEED", "0"))
    done = 0
    while done < n_kills:
        process = workspace.start("train_all")
        try:
            process.wait(timeout=rng.uniform(3.5, 9))
        except Exception:
            done += 1
        else:
            break  # it finished before its moment came
        kill_tree(process.pid)
        if rng.random() < 0.7:
            kill_worker(workspace)
    assert done > 0
    start = time.monotonic()
    result = workspace.run("train_all")
    assert result.returncode == 0, result.stderr[-3000:]
    assert time.monotonic() - start < 300
    assert workspace.digests() == finished.digests()
