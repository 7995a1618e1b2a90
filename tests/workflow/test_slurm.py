"""`profiles/slurm` on a real Slurm of one node with two devices that stand in for GPUs.

Skipped where Slurm is not installed (`.ci/run` tries to install it), where the user is not root, or without the start
script of the place where this project is developed.
"""

import copy
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from .conftest import REPO, TINY, Workspace

START = REPO.parent / "shared" / "tools" / "slurm_up.sh"
DAEMONS = ("slurmd", "slurmctld", "munged")
PROFILE = ("--workflow-profile", str(REPO / "profiles" / "slurm"))
# No accounting here; and a job is looked at as soon as the plugin can.
HERE = ("--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "2")
SCRIPT = REPO / "profiles" / "slurm" / "allocation.sh"
CONFIG = {**TINY, "seeds": [1, 2], "granularity": "block", "gpus": 1, "crossplay": {"problems": 0}}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("slurmctld") is None, reason="Slurm is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may start a Slurm"),
    pytest.mark.skipif(not START.is_file(), reason="no ../shared/tools/slurm_up.sh"),
    pytest.mark.skipif(find_spec("snakemake_executor_plugin_slurm") is None, reason="envs/slurm.txt is not installed"),
]


def daemons() -> set[psutil.Process]:
    return {process for process in psutil.process_iter(["name"]) if process.info["name"] in DAEMONS}


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.fixture(scope="module")
def slurm() -> Iterator[None]:
    """A Slurm of one node; what was started for it ends with the module."""
    before = daemons()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}  # nproc obeys them
    subprocess.run(["bash", str(START)], check=True, timeout=120, stdout=subprocess.DEVNULL, env=environment)
    yield
    started = daemons() - before
    for process in started:
        process.terminate()
    for process in psutil.wait_procs(started, timeout=20)[1]:
        process.kill()


@pytest.fixture()
def cluster(slurm, tmp_path) -> Iterator[Workspace]:
    """A directory whose Snakemake submits; jobs that are left over are cancelled."""
    workspace = Workspace(tmp_path, CONFIG)
    yield workspace
    names = output_of("squeue", "-h", "-o", "%i %Z").splitlines()
    for job, directory in (line.split(maxsplit=1) for line in names):
        if directory == str(tmp_path):
            output_of("scancel", job)


def job_of(rule: str, seed: int) -> str:
    """The number of the running job of a rule and seed: the plugin writes both into the comment."""
    for line in output_of("squeue", "-h", "-t", "RUNNING", "-o", "%i %k").splitlines():
        job, _, comment = line.partition(" ")
        if comment.startswith(f"rule_{rule}_") and f"_{seed}_" in comment:
            return job
    raise AssertionError(output_of("squeue"))


def seed_directory(workspace: Workspace, seed: int) -> Path:
    (path,) = (workspace.path / "results" / "tiny").glob(f"pair-*/seed{seed}")
    return path


def devices(workspace: Workspace, seed: int, step: int) -> str:
    return json.loads((seed_directory(workspace, seed) / f"step{step:05d}" / "timings.json").read_text())["devices"]


def wait_for_first_stage(workspace: Workspace, seeds: set[int], runs: Callable[[], bool]) -> None:
    """Until these seeds have finished one; `runs` says whether what makes them is still there."""
    deadline = time.monotonic() + 300
    wanted = {f"seed{seed}" for seed in seeds}
    while wanted - {path.parts[-3] for path in workspace.path.glob("results/tiny/*/*/step00001/propose.json")}:
        assert runs() and time.monotonic() < deadline, (workspace.path / "snakemake.log").read_text()
        time.sleep(0.1)


def test_two_seeds_side_by_side_one_cancelled_and_resumed(cluster, tmp_path_factory):
    """Distinct devices; a cancelled block says where it stopped; the same command ends as a run without a cluster."""
    process = cluster.start(*PROFILE, *HERE, "--until", "block")
    wait_for_first_stage(cluster, {1}, lambda: process.poll() is None)
    output_of("scancel", job_of("block", 1))  # which kills after 30 s: the stage that comes is a short one
    assert process.wait(timeout=300) == 1
    log = (cluster.path / "snakemake.log").read_text()
    assert "of step 1; the same command continues" in log, "the failed job's log is shown"
    assert {devices(cluster, seed, 1) for seed in (1, 2)} == {"0", "1"}
    assert not (seed_directory(cluster, 1) / "step00002" / "evolve.json").exists()
    assert (seed_directory(cluster, 2) / "step00002" / "evolve.json").exists(), "independent runs go on"

    local = Workspace(tmp_path_factory.mktemp("local"), copy.deepcopy({**CONFIG, "gpus": 0}))
    beside = local.start("train_all")
    result = cluster.run(*PROFILE, *HERE, "train_all")
    assert result.returncode == 0, result.stderr[-3000:]
    for rule in ("heldout", "dynamics"):
        assert result.stderr.count(f"rule_{rule}/") == 2, "evaluation is a job a run"
    assert beside.wait(timeout=600) == 0, (local.path / "snakemake.log").read_text()[-3000:]
    assert cluster.digests() == local.digests()


def test_one_allocation_holds_the_workflow(cluster):
    """Its blocks have devices of their own, and end after their stage when the job is told to stop."""
    resources = ("-c", "2", "--gpus=2", "-D", str(cluster.path), "-o", "snakemake.log")
    command = ["sbatch", "--parsable", *resources, str(SCRIPT), *cluster.command("--until", "block")[3:]]
    environment = cluster.environment()
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    job = found.stdout.strip()
    wait_for_first_stage(cluster, {1, 2}, lambda: state_of(job) in ("PENDING", "RUNNING"))
    output_of("scancel", "--signal=TERM", job)
    while (state := state_of(job)) in ("RUNNING", "COMPLETING"):
        time.sleep(0.5)
    log = (cluster.path / "snakemake.log").read_text()
    assert state == "FAILED" and log.count("of step 1; the same command continues") == 2, log
    assert {devices(cluster, seed, 1) for seed in (1, 2)} == {"0", "1"}


def state_of(job: str) -> str:
    return output_of("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()
