"""What Snakemake adds to a run: real workflows of small steps, and dry runs of a large one.

A job's overhead is what is left of the wall time without the stages' own seconds (their `timings.json`, and summary and
report page timed alone) and without Snakemake's start (the wall time of a run with nothing to do), shared among the
jobs. Needs a checkout: Snakefile and rules are not part of the installed package.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import snakemake

from popu.endurance.workspace import REPOSITORY, Workspace

STEPS = 10
SMALL = {
    "steps": STEPS,
    "checkpoint_every": STEPS,
    "population": {"n_teachers": 2, "n_students": 2},
    "evolution": {"every": STEPS},
    "seed_problems": {"count": 12},
}
LARGE = {"steps": 200, "checkpoint_every": 50, "evolution": {"every": 10}}
TARGETS = {
    "block_overhead": 0.05,  # of the wall time
    "stage_job_s": 0.2,
    "dry_stage_s": 60.0,  # 200 steps, 3 arms, 3 seeds
    "dry_block_s": 10.0,
    "nothing_to_do_s": 10.0,
}


def bench_workflow() -> dict[str, Any]:
    """Seconds and shares as in `TARGETS`; `short` names the targets that are missed.

    Raises ConfigError outside a checkout.
    """
    with tempfile.TemporaryDirectory() as directory:
        workspace = Path(directory)
        result = {**_small(workspace / "stage", "stage"), **_small(workspace / "block", "block")}
        for granularity in ("stage", "block"):
            arms = {"a": {}, "b": {"rollouts": {"per_problem": 4}}, "c": {"rollouts": {"per_problem": 16}}}
            config = {"granularity": granularity, "seeds": [1, 2, 3], "training": LARGE, "arms": arms}
            result[f"dry_{granularity}_s"] = round(_run(workspace / f"dry-{granularity}", config, "-n", "--quiet"), 2)
    return {
        **result,
        "targets": TARGETS,
        "short": [name for name, target in TARGETS.items() if result[name] > target],
        "snakemake": snakemake.__version__,
        "load_average": round(os.getloadavg()[0], 2),
    }


def _small(directory: Path, granularity: str) -> dict[str, float]:
    """One run of small steps, and the same command again."""
    config = {"granularity": granularity, "training": SMALL, "arms": {"pair": {}}, "heldout": {"tasks_per_level": 0}}
    wall = _run(directory, config)
    again = _run(directory, config)
    timings = [json.loads(path.read_text()) for path in directory.glob("results/*/*/seed1/step*/timings.json")]
    bodies = sum(value for timing in timings for name, value in timing.items() if name.endswith("_s"))
    started = time.perf_counter()
    experiment = directory / "results" / "bench"
    for what in (["summary"], ["report", "--out", str(experiment / "report")]):
        command = [sys.executable, "-m", "popu", *what, "--experiment", str(experiment)]
        subprocess.run(command, check=True, capture_output=True)
    bodies += time.perf_counter() - started
    shutil.rmtree(directory)
    if granularity == "block":
        return {"block_overhead": round((wall - again - bodies) / (wall - again), 3)}
    n_jobs = 6 * STEPS + 5  # init, bundle, dynamics, summary and page
    return {
        "stage_job_s": round((wall - again - bodies) / n_jobs, 3),
        "stage_overhead": round((wall - again - bodies) / (wall - again), 3),
        "nothing_to_do_s": round(again, 2),
    }


def _run(directory: Path, config: dict[str, Any], *arguments: str) -> float:
    """Wall seconds of one Snakemake on a config, in a directory of its own."""
    base = {"experiment": "bench", "seeds": [1], "base": {"path": str(REPOSITORY / "resources" / "nano")}}
    workspace = Workspace(directory, base | config)
    started = time.perf_counter()
    done = workspace.run("train_all", *arguments)
    if done.returncode:
        raise RuntimeError(f"snakemake ended with {done.returncode}: {done.stderr[-2000:]}")
    return time.perf_counter() - started
