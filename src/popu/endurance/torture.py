"""`popu torture`: a small experiment is killed at random moments and given the same command; artifacts must be equal.

Every kill has a random moment, target and signal. An experiment that ends whole is compared with one that nobody
disturbed, byte for byte, and the next one begins, until all kills are done.
"""

import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from popu.endurance.workspace import REPOSITORY, Workspace
from popu.errors import ConfigError

TARGETS = ("snakemake", "stage", "worker", "zygote", "tree")
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")
MOMENT = (0.01, 0.6)  # after the last start or kill, as a share of the undisturbed experiment's time
END_S = 120.0  # a Snakemake that was told to end and still runs is stuck
WHOLE_S = 900.0  # so is an experiment left alone for so long
TINY: dict[str, Any] = {
    "experiment": "tiny",
    "seeds": [1],
    "base": {"path": str(REPOSITORY / "resources" / "nano")},
    "engine": {"threads": 1},
    "training": {
        "steps": 2,
        "checkpoint_every": 2,
        "population": {"n_teachers": 2, "n_students": 2},
        "proposals": {"prompts_per_type": 1, "proposals_per_prompt": 3},
        "rollouts": {"per_problem": 3},
        "evolution": {"every": 2},
        "seed_problems": {"count": 12},
    },
    "heldout": {"tasks_per_level": 1, "samples": 2},
    "crossplay": {"problems": 3, "samples": 2, "times": 1},
    "arms": {"pair": {}},
}


@dataclass(frozen=True)
class Kill:
    """One kill: what was hit with what, which stages were at work, and how long after the command was given."""

    target: str
    signal: str
    at_work: str
    after_s: float


def torture(
    n_kills: int, granularity: str, seed: int, report: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Kills by target and signal, restarts, experiments that ended, and `faults`: what should not have happened.

    A fault is an experiment whose artifacts differ, one that fails or does not end though nobody touched it, and a
    process that is left when all is over. Raises ConfigError outside a checkout, or for less than one kill.
    """
    if n_kills < 1:
        raise ConfigError(f"--kills: expected at least 1, found {n_kills}")
    rng = random.Random(seed)
    config = {**TINY, "granularity": granularity}
    result: dict[str, Any] = {"granularity": granularity, "experiments": 0, "starts": 0, "faults": []}
    kills: list[Kill] = []
    with tempfile.TemporaryDirectory() as directory:
        undisturbed = Workspace(Path(directory) / "undisturbed", config)
        started = time.monotonic()
        done = undisturbed.run("train_all")
        longest = time.monotonic() - started
        if done.returncode:
            raise RuntimeError(f"the undisturbed experiment ended with {done.returncode}: {done.stderr[-2000:]}")
        undisturbed.popu("worker", "stop")
        expected = undisturbed.digests()
        while len(kills) < n_kills and not result["faults"]:
            workspace = Workspace(Path(directory) / f"experiment{result['experiments']}", config)
            result["starts"] += _experiment(workspace, n_kills, kills, rng, longest, report)
            result["faults"] += unequal(expected, workspace.digests())
            result["experiments"] += 1
            workspace.popu("worker", "stop")
            result["faults"] += [f"left running: {' '.join(words)}" for words in _still_running(workspace)]
            report(f"experiment {result['experiments']} ended whole, {len(kills)} of {n_kills} kills")
    return result | _counts(kills)


def _experiment(
    workspace: Workspace,
    n_kills: int,
    kills: list[Kill],
    rng: random.Random,
    whole_s: float,
    report: Callable[[str], None],
) -> int:
    """Runs one experiment to its end, adding to `kills`; returns how often the command was given.

    Raises RuntimeError where the command fails though nothing was killed since it was given, or does not end.
    """
    starts = 0
    while True:
        process, touched = workspace.start("train_all"), False
        starts += 1
        while _runs_for(process, whole_s * rng.uniform(*MOMENT) if len(kills) < n_kills else WHOLE_S):
            if len(kills) == n_kills:
                raise RuntimeError(f"{workspace.path}: still at work {WHOLE_S:.0f} s after the last kill")
            kill = _kill(workspace, process, rng)
            if kill is None:
                continue
            touched = True
            kills.append(kill)
            report(f"{len(kills):4} {kill.signal:8} {kill.target:10} after {kill.after_s:.1f} s, in {kill.at_work}")
            if kill.target in ("snakemake", "tree") and _runs_for(process, END_S):
                raise RuntimeError(f"{workspace.path}: Snakemake did not end within {END_S:.0f} s of {kill.signal}")
        if process.returncode == 0:
            return starts
        if not touched:
            log = (workspace.path / "snakemake.log").read_text()
            raise RuntimeError(f"the command ended with {process.returncode} though nobody disturbed it: {log[-2000:]}")


def _runs_for(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Waits; whether the process still runs after it."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def _kill(workspace: Workspace, process: subprocess.Popen[bytes], rng: random.Random) -> Kill | None:
    """Sends a signal to a target that is there; None where the experiment ended meanwhile."""
    started = psutil.Process(process.pid).create_time()
    running = {one: _kind(one) for one in workspace.processes()}
    stages = [one for one, kind in running.items() if kind == "stage"]
    at_work = "+".join(sorted(filter(None, map(_stage_of, stages)))) or "Snakemake alone"
    there = {kind for kind in running.values() if kind} | {"tree"}
    target = rng.choice([name for name in TARGETS if name in there])
    name = rng.choice(SIGNALS)
    hit = list(running) if target == "tree" else [rng.choice([o for o, kind in running.items() if kind == target])]
    if process.poll() is not None:
        return None
    for one in hit:
        try:
            one.send_signal(getattr(signal, name))
        except psutil.NoSuchProcess:
            continue
    return Kill(target, name, at_work, time.time() - started)


def _kind(process: psutil.Process) -> str | None:
    """The target that a process is; None for what belongs to one, as the fork of a zygote does."""
    words = _words(process)
    if any(word.endswith("zygote.py") for word in words):
        parent = process.parent()
        return None if parent and any(word.endswith("zygote.py") for word in _words(parent)) else "zygote"
    if "snakemake" in words:
        return "snakemake"
    if "popu" in words:
        return "worker" if "worker" in words else "stage"
    return None


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _stage_of(process: psutil.Process) -> str:
    words = _words(process)[3:]  # python -m popu ...
    return " ".join(words[1:2] if words[:1] == ["stage"] else words[:1])


def _still_running(workspace: Workspace, patience_s: float = 30.0) -> list[list[str]]:
    """Command lines of the workspace's processes that have not ended within some seconds of its end.

    A process that has ended and waits for init to take note of it has none.
    """
    _, alive = psutil.wait_procs(workspace.processes(), timeout=patience_s)
    return list(filter(None, map(_words, alive)))


def unequal(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """What differs between the digests of two experiments, a line a file."""
    missing = [f"missing: {path}" for path in expected.keys() - found.keys()]
    strange = [f"not in the undisturbed experiment: {path}" for path in found.keys() - expected.keys()]
    other = [f"differs: {path}" for path in expected.keys() & found.keys() if expected[path] != found[path]]
    return sorted(missing + strange + other)


def _counts(kills: list[Kill]) -> dict[str, Any]:
    return {
        "kills": len(kills),
        "by_target": dict(sorted(Counter(kill.target for kill in kills).items())),
        "by_signal": dict(sorted(Counter(kill.signal for kill in kills).items())),
        "by_stage": dict(Counter(stage for kill in kills for stage in kill.at_work.split("+")).most_common()),
    }
