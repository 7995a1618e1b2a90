"""Whether a long run stays as it began: memory, descriptors, leftovers and time of a step; and the verifier by itself.

The run is a real one of tiny steps on the embedded base, in this process, as a block has it. What is measured is this
process with its fork servers. Growth compares the last fifth of the samples with the second fifth, since the first is
warming up.
"""

import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from popu.bench.workload import run_steps
from popu.sandbox.executor import Executor, Job

STEPS = 2_000
BATCHES = 10_000
PROGRAMS = 4  # of a batch; each is new, with two inputs
SAMPLES = 50
TRAINING: dict[str, Any] = {
    "checkpoint_every": 500,
    "population": {"n_teachers": 2, "n_students": 2},
    "proposals": {"prompts_per_type": 1, "proposals_per_prompt": 2},
    "rollouts": {"per_problem": 2},
    "evolution": {"every": 10},
    "seed_problems": {"count": 12},
}
TARGETS = {"memory": 0.05, "verifier_memory": 0.05, "step_s": 0.15, "descriptors": 0, "temporary": 0, "processes": 0}


def bench_soak() -> dict[str, Any]:
    """Growth as shares, and counts of what is left at the end; `short` names what is above its target.

    `memory_mb` and `open_descriptors` are those of the samples, `files_a_step` what a step adds to the run's directory.
    """
    before = _footprint()
    with tempfile.TemporaryDirectory() as directory:
        samples: list[dict[str, int]] = []
        seconds = run_steps(Path(directory), {**TRAINING, "steps": STEPS}, threads=1, report=_sampler(STEPS, samples))
        files = [path for path in Path(directory).rglob("*") if path.is_file()]
    verifier = list(_verifier_samples())
    after = _footprint()
    growth = {
        "memory": _growth([sample["memory_mb"] for sample in samples]),
        "verifier_memory": _growth([sample["memory_mb"] for sample in verifier]),
        "step_s": _growth(seconds),
        "temporary": sum(".tmp" in path.name for path in files),
        **{name: after[name] - before[name] for name in ("descriptors", "processes")},
    }
    return {
        **growth,
        "steps": STEPS,
        "batches": BATCHES,
        "memory_mb": [sample["memory_mb"] for sample in samples],
        "verifier_memory_mb": [sample["memory_mb"] for sample in verifier],
        "open_descriptors": [sample["descriptors"] for sample in samples],
        "files_a_step": round(len(files) / STEPS, 1),
        "targets": TARGETS,
        "short": [name for name, target in TARGETS.items() if growth[name] > target],
        "load_average": round(os.getloadavg()[0], 2),
    }


def _footprint() -> dict[str, int]:
    """Memory (RSS in MiB) and open descriptors of this process and those that it started."""
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return {
        "memory_mb": sum(one.memory_info().rss for one in family) >> 20,
        "descriptors": sum(one.num_fds() for one in family),
        "processes": len(family),
    }


def _sampler(n: int, samples: list[dict[str, int]]) -> Any:
    """A function to be called `n` times, that appends a footprint at about `SAMPLES` of them."""
    calls = iter(range(n))

    def sample(_text: str) -> None:
        if next(calls) % max(1, n // SAMPLES) == 0:
            samples.append(_footprint())

    return sample


def _verifier_samples() -> Iterator[dict[str, int]]:
    with Executor() as executor:
        for batch in range(BATCHES):
            programs = [f"def f(x):\n    return x * {batch} + {i}" for i in range(PROGRAMS)]
            executor.run([Job(program, ("1", "2")) for program in programs])
            if batch % max(1, BATCHES // SAMPLES) == 0:
                yield _footprint()


def _growth(values: Sequence[float]) -> float:
    """The median of the last fifth over that of the second fifth, less one."""
    fifth = max(1, len(values) // 5)
    early, late = values[fifth : 2 * fifth], values[-fifth:]
    return round(statistics.median(late) / statistics.median(early) - 1, 3)
