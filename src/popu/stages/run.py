"""Runs one stage, or a block of steps, on a run's directory: the same functions, the same files."""

import os
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from popu.artifacts import read_json, write_json
from popu.config import Run
from popu.devices import VISIBLE
from popu.errors import ConfigError
from popu.rundir import RunDirectory
from popu.stages.backend import Backend
from popu.stages.call import STAGES, STEP_STAGES, StageCall

VERIFYING = ("validate", "verify")  # the stages that run programs


class Stopped(Exception):
    """A block was told to stop before its last stage; the message says where."""


def run_stage(call: StageCall, backend: Backend) -> None:
    """Runs the stage unless it is finished; a finished one is never redone.

    Raises ConfigError or ArtifactError with a message for the user.
    """
    run = RunDirectory(Path(call.run))
    with run.locked():
        if run.is_done(call.step, call.stage):
            return
        check_plugins(run.settings)
        started = time.monotonic()
        stage_function(call.stage)(run, call.step, backend, **call.options)
        measured: dict[str, Any] = {f"{call.stage}_s": round(time.monotonic() - started, 3)}
        if call.stage in VERIFYING:
            measured["verifier"] = backend.executor(run.settings).layers
        if devices := os.environ.get(VISIBLE):
            measured["devices"] = devices
        _record(run, call, measured)


def check_plugins(settings: Run) -> None:
    """Raises ConfigError where what is installed is not what the run was made with: results would mix silently."""
    found = settings.training.used_plugins()
    if found != settings.plugins:
        raise ConfigError(f"plug-ins of the run: expected {_named(settings.plugins)}, found {_named(found)}")


def _named(plugins: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {state}" for name, state in plugins.items()) or "none"


def run_block(
    run_path: str,
    first: int,
    last: int,
    backend: Backend,
    report: Callable[[str], None],
    told_to_stop: Callable[[], bool] = lambda: False,
) -> None:
    """All stages of steps `first`..`last` in this process. Raises Stopped between two stages when told to stop."""
    for step in range(first, last + 1):
        started = time.monotonic()
        for stage in STEP_STAGES:
            run_stage(StageCall(stage, run_path, step), backend)
            if told_to_stop() and (stage, step) != (STEP_STAGES[-1], last):
                raise Stopped(f"stopped after {stage} of step {step}; the same command continues")
        report(f"step {step}/{last} {time.monotonic() - started:.1f} s")


def stage_function(stage: str) -> Callable[..., None]:
    """The function of a stage; imports only what that stage needs. Raises ConfigError for another name."""
    if stage not in STAGES:
        raise ConfigError(f"stage: expected one of {', '.join(STAGES)}, found {stage!r}")
    module = import_module(f"popu.stages.{stage}")
    name = "validate_stage" if stage == "validate" else stage
    function: Callable[..., None] = getattr(module, name)
    return function


def _record(run: RunDirectory, call: StageCall, measured: dict[str, Any]) -> None:
    """`timings.json` of a step: measured, neither compared nor read by any decision."""
    path = run.step(call.step) / "timings.json"
    write_json(path, {**(read_json(path) if path.exists() else {}), **measured})
