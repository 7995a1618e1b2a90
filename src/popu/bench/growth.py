"""How the cost of a step grows with pairs, with problems, with the steps before it, and with the buffer.

Real steps on the embedded base; the buffer by its own functions at synthetic sizes. `growth` is the exponent of the
cost between the two largest sizes: 1 is linear, 0 constant. Draws all four into growth.png where it is run.
"""

import math
import os
import random
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from popu.artifacts import sha256
from popu.bench.workload import run_steps
from popu.config import Base, Engine, Run, Training
from popu.rundir import RunDirectory
from popu.stages.buffer import read_buffer, write_buffer

PAIRS = (1, 2, 4, 8, 16)
PROBLEMS = (16, 64, 256, 1024)  # proposals a step
STEPS = (10, 30, 100, 300, 1000)
BUFFER = (1_000, 10_000, 100_000, 200_000)
DRAWS = 48  # prompts of a step that take references
DUPLICATES = 115  # of a step's 192 proposals, 60 %, repeat a problem of the buffer, each of another step
TARGETS = {"pairs": 1.1, "problems": 1.1, "step": 0.1, "buffer": 1.0}
FIGURE = "growth.png"


def bench_growth() -> dict[str, Any]:
    """Seconds by size of every curve and their exponents; `short` names the targets that are missed."""
    with tempfile.TemporaryDirectory() as directory:
        workspace = Path(directory)
        curves = {
            "pairs": {n: _step_s(workspace / f"pairs{n}", n, 1) for n in PAIRS},
            "problems": {n: _step_s(workspace / f"problems{n}", 1, max(1, n // 12)) for n in PROBLEMS},
            "step": _late_steps(workspace / "steps", STEPS),
            "buffer": {n: _buffer_s(workspace / f"buffer{n}", n) for n in BUFFER},
        }
    exponents = {name: _exponent(curve) for name, curve in curves.items()}
    _draw(curves, Path(FIGURE))
    return {
        "curves_s": curves,
        "growth": exponents,
        "targets": TARGETS,
        "short": [name for name, target in TARGETS.items() if exponents[name] > target],
        "figure": f"{FIGURE} {sha256(Path(FIGURE))[:12]}",
        "load_average": round(os.getloadavg()[0], 2),
    }


def _training(n_pairs: int, prompts: int, steps: int) -> dict[str, Any]:
    return {
        "steps": steps,
        "checkpoint_every": steps,
        "population": {"n_teachers": n_pairs, "n_students": n_pairs},
        "proposals": {"prompts_per_type": prompts, "proposals_per_prompt": 4},
        "rollouts": {"per_problem": 4},
        "evolution": {"every": 0},
        "seed_problems": {"count": 12},
    }


def _step_s(directory: Path, n_pairs: int, prompts: int) -> float:
    """Median seconds of a step after the first."""
    return round(statistics.median(run_steps(directory, _training(n_pairs, prompts, 3))[1:]), 3)


def _late_steps(directory: Path, numbers: tuple[int, ...]) -> dict[int, float]:
    """Median seconds of the ten steps up to each number, in one long run."""
    seconds = run_steps(directory, {**_training(1, 1, max(numbers)), "rollouts": {"per_problem": 2}})
    return {n: round(statistics.median(seconds[max(0, n - 10) : n]), 3) for n in numbers}


def _buffer_s(directory: Path, n: int) -> float:
    """What a step does with a buffer of `n` problems: reading, drawing references, looking keys up, writing."""
    run = RunDirectory(directory)
    run.create(Run(arm="a", seed=1, training=Training(), base=Base(path="b"), base_sha256="0" * 64, engine=Engine()))
    keys = random.Random(0)
    rows = [_row(i, keys.getrandbits(64)) for i in range(n)]
    size = 200  # new problems a step
    parts = [rows[start : start + size] for start in range(0, n, size)]
    run.finish(0, "init", write_buffer(run, 0, None, parts[0]))
    for step, part in enumerate(parts[1:], start=1):
        run.finish(step, "verify", write_buffer(run, step, read_buffer(run, step - 1), part))
    last = len(parts) - 1
    started = time.perf_counter()
    buffer = read_buffer(run, last)
    for i in range(DRAWS):
        buffer.references(2, last - 10, 0.5, random.Random(i))
    read_buffer(run, last).ids_by_key([row["problem_key"] for row in rows[:: max(1, n // DUPLICATES)]])
    write_buffer(run, last + 1, read_buffer(run, last), parts[0])
    return round(time.perf_counter() - started, 3)


def _row(i: int, key: int) -> dict[str, Any]:
    return {
        "problem_id": str(i),
        "step": 0,
        "problem_type": "code_o",
        "program": f"def f(x):\n    return x + {i}",
        "input": str(i),
        "problem_key": f"{key:016x}",
        "program_key": "0",
        "solved": True,
    }


def _exponent(curve: Mapping[int, float]) -> float:
    (n, low), (m, high) = list(curve.items())[-2:]
    return round(math.log(high / low) / math.log(m / n), 2)


def _draw(curves: Mapping[str, Mapping[int, float]], path: Path) -> None:
    """Four panels, both axes logarithmic, with the line of linear growth through the first point."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    titles = {
        "pairs": "pairs of a teacher and a student",
        "problems": "proposals a step",
        "step": "number of the step",
        "buffer": "problems in the buffer (reading and writing it)",
    }
    figure, axes = plt.subplots(1, 4, figsize=(14, 3.2), constrained_layout=True)
    for axis, (name, curve) in zip(axes, curves.items(), strict=True):
        sizes, seconds = list(curve), list(curve.values())
        axis.loglog(sizes, seconds, "o-")
        axis.loglog(sizes, [seconds[0] * size / sizes[0] for size in sizes], "--", color="grey", linewidth=1)
        axis.set_xlabel(titles[name])
    axes[0].set_ylabel("seconds a step (dashed: linear)")
    figure.savefig(path, dpi=110)
    plt.close(figure)
