"""Stages of a step, as the workflow calls them."""

import argparse
import os
import signal
import sys
import time
from typing import Any

from popu.commands.common import Commands, add_command, open_backend, run_arguments
from popu.stages.call import STAGES, StageCall

TERMINATED = 128 + signal.SIGTERM


def add(commands: Commands) -> None:
    stages = commands.add_parser("stage", help="one stage of a step").add_subparsers(metavar="STAGE", required=True)
    for stage in STAGES:
        command = add_command(stages, stage, _stage, f"stage {stage} of a step (see docs/architecture.md)")
        command.set_defaults(stage=stage)
        run_arguments(command)
        if stage == "init":
            command.add_argument("--settings", required=True, help="the run's resolved config as JSON")
        if stage == "heldout":
            command.add_argument("--tasks-per-level", type=int, required=True)
            command.add_argument("--samples", type=int, required=True)
    block = add_command(commands, "block", _block, "all stages of some steps in one process")
    run_arguments(block, "--last")
    block.add_argument("--first", type=int, required=True)


def _stage(arguments: argparse.Namespace) -> None:
    options: dict[str, Any] = {}
    if arguments.stage == "heldout":
        from popu.config import Heldout, parse_section

        lines = {"tasks_per_level": arguments.tasks_per_level, "samples": arguments.samples}
        options = parse_section(Heldout, lines).model_dump()
    call = StageCall(arguments.stage, str(arguments.run), arguments.step, options)
    if arguments.stage == "init":
        from popu.rundir import RunDirectory, settings_from_json

        arguments.run.mkdir(parents=True, exist_ok=True)
        RunDirectory(arguments.run).create(settings_from_json(arguments.settings))
    started = time.monotonic()
    if not _in_worker(call):
        from popu.stages.run import run_stage

        with open_backend() as backend:
            run_stage(call, backend)
    print(f"{call.stage} of step {call.step} in {call.run}: {time.monotonic() - started:.1f} s")


def _in_worker(call: StageCall) -> bool:
    """Whether the worker ran the stage; False where it is switched off or not to be had."""
    if os.environ.get("POPU_WORKER") == "0":
        return False
    from popu.worker import WorkerUnavailable, run_in_worker

    try:
        run_in_worker(call, lambda text: print(text, file=sys.stderr))
    except WorkerUnavailable as error:
        print(f"running in this process: {error}", file=sys.stderr)
        return False
    return True


def _block(arguments: argparse.Namespace) -> None:
    """SIGTERM stays blocked, here and in all processes that are started, and is looked for between stages."""
    from popu.stages.run import Stopped, run_block

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def is_told_to_stop() -> bool:
        return signal.SIGTERM in signal.sigpending()

    try:
        with open_backend() as backend:
            run_block(str(arguments.run), arguments.first, arguments.last, backend, _say, is_told_to_stop)
    except Stopped as stop:
        print(f"popu: {stop}", file=sys.stderr)
        sys.exit(TERMINATED)


def _say(text: str) -> None:
    print(text, flush=True)
