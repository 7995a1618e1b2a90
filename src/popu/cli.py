"""The command `popu`: `popu stage NAME` for every stage of the workflow, and the commands for people (`popu.commands`).

Heavy libraries are imported by the command that needs them. A fault of the input (config, artifact, base) is one
message on stderr and exit code 2.
"""

import argparse
import os
import signal
import sys
import threading
import time

from popu.commands import adapters, bases, benchmarks, doors, experiments, looks, machine, stages
from popu.errors import explained

INPUT_FAULT = 2
KINDS = (stages, experiments, looks, adapters, doors, benchmarks, machine, bases)  # as `popu --help` lists them


def main(argv: list[str] | None = None) -> int:
    """Runs a command line and returns its exit code."""
    arguments = parser().parse_args(argv)
    _watch_parent()
    try:
        arguments.command(arguments)
    except Exception as error:
        message = explained(error)
        if message is None:
            raise
        print(f"popu: {message}", file=sys.stderr)
        return INPUT_FAULT
    return 0


def parser() -> argparse.ArgumentParser:
    """Of whole command lines."""
    found = argparse.ArgumentParser(prog="popu", description="PopuLoRA: co-evolving populations of LoRA adapters")
    commands = found.add_subparsers(metavar="COMMAND", required=True)
    for kind in KINDS:
        kind.add(commands)
    return found


def _watch_parent() -> None:
    """Where the workflow asks for it, ends this process when its parent dies: no orphan keeps writing."""
    if not os.environ.get("POPU_WATCH_PARENT"):
        return
    parent = os.getppid()

    def watch() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the main thread's
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
