"""What the benchmarks of the engine share: the embedded base, adapters with an effect, real
steps, and timings in turns."""

import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from popu.artifacts import read_json
from popu.base import expected_identity
from popu.config import Base, Engine, Run, Training
from popu.engine.base import TransformersEngine
from popu.population.adapter import Adapter, LoraConfig, new_adapter
from popu.rundir import RunDirectory
from popu.stages.backend import Backend
from popu.stages.call import StageCall
from popu.stages.run import run_block, run_stage

BASE = Path(__file__).parents[3] / "resources" / "nano"
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
RANK = 8
FIRST_TOKEN = 3  # below are padding, EOS and unknown


def load_engine(threads: int, path: Path = BASE) -> TransformersEngine:
    """The engine on the embedded base."""
    return TransformersEngine(Base(path=str(path)), Engine(threads=threads), TARGETS)


def trained_adapter(engine: TransformersEngine, seed: int) -> Adapter:
    """A fresh adapter whose B is small and not zero."""
    generator = torch.Generator().manual_seed(seed)
    fresh = new_adapter(engine.lora.shapes, LoraConfig(RANK, 2.0 * RANK, TARGETS), generator)
    factors = {name: (a, torch.randn(b.shape, generator=generator) * 0.01) for name, (a, b) in fresh.factors.items()}
    return Adapter(fresh.config, factors)


def random_tokens(engine: TransformersEngine, n: int, generator: torch.Generator) -> tuple[int, ...]:
    """`n` ordinary tokens."""
    high = int(engine.model.config.vocab_size)
    return tuple(torch.randint(FIRST_TOKEN, high, (n,), generator=generator).tolist())


def alternating_s(methods: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Wall seconds of every method in every round; each runs once before, uncounted, and in turns after."""
    for method in methods.values():
        method()
    times: dict[str, list[float]] = {name: [] for name in methods}
    for _ in range(rounds):
        for name, method in methods.items():
            started = time.perf_counter()
            method()
            times[name].append(time.perf_counter() - started)
    return times


def ratio(times: Mapping[str, list[float]], slow: str, fast: str) -> float:
    """Median over rounds of how many times longer `slow` took than `fast`."""
    return round(statistics.median(s / f for s, f in zip(times[slow], times[fast], strict=True)), 2)


def matmul_flops_per_s(width: int, n_rows: int = 1024, n_columns: int = 384) -> float:
    """The rate of float32 products of the base's size, as torch reaches it here."""
    x, w = torch.randn(n_rows, width), torch.randn(n_columns, width)
    times = alternating_s({"product": lambda: [torch.nn.functional.linear(x, w) for _ in range(50)]}, 5)
    return 50 * 2 * n_rows * width * n_columns / min(times["product"])


def run_steps(
    directory: Path, training: Mapping[str, Any], threads: int = 2, report: Callable[[str], None] = lambda _: None
) -> list[float]:
    """Seconds inside the stages of every step of a real run on the embedded base, in this process.

    `report` is called after every step.
    """
    base = Base(path=str(BASE))
    settings = Run(
        arm="bench",
        seed=1,
        training=Training.model_validate(training),
        base=base,
        base_sha256=expected_identity(base),
        engine=Engine(threads=threads),
    )
    run = RunDirectory(directory)
    run.create(settings)
    steps = settings.training.steps
    with closing(Backend()) as backend:
        run_stage(StageCall("init", str(directory), 0), backend)
        run_block(str(directory), 1, steps, backend, report)
    timings = [read_json(run.step(step) / "timings.json") for step in range(1, steps + 1)]
    return [sum(value for name, value in timing.items() if name.endswith("_s")) for timing in timings]
