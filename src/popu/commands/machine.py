"""What this machine offers, how fast it is, what survives on it."""

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path

from popu.commands.common import Commands, add_command
from popu.errors import ConfigError

BENCHMARKS = ("verifier", "operators", "rollouts", "smollm2", "update", "workflow", "population", "growth", "soak")


def add(commands: Commands) -> None:
    doctor = add_command(commands, "doctor", _doctor, "what this machine offers, and what is missing")
    doctor.add_argument("--results", type=Path, default=Path("results"))
    doctor.add_argument("--json", action="store_true")
    bench = add_command(commands, "bench", _bench, "measure this machine")
    bench.add_argument("what", choices=BENCHMARKS)
    bench.add_argument("--json", action="store_true", help="one JSON object as the last line")
    torture = add_command(commands, "torture", _torture, "kill a small experiment at random moments")
    torture.add_argument("--kills", type=int, default=10, metavar="N", help="how many (10)")
    torture.add_argument("--granularity", choices=("stage", "block"), default="stage")
    torture.add_argument("--seed", type=int, default=0, help="of moments, targets and signals")
    torture.add_argument("--json", action="store_true", help="one JSON object as the last line")
    worker = add_command(commands, "worker", _worker, "the process that keeps the base loaded")
    worker.add_argument("action", choices=("serve", "status", "stop"))


def _doctor(arguments: argparse.Namespace) -> None:
    from popu.doctor import findings, report

    rows = findings(arguments.results)
    result = report(rows)
    if arguments.json:
        print(json.dumps(result, indent=1))
    else:
        marks = {True: "ok", False: "MISSING", None: ""}
        for row in rows:
            print(f"{row.name:24}{marks[row.ok]:9}{row.found}")
    if not result["ok"]:
        raise ConfigError("doctor: something is missing, see above")


def _bench(arguments: argparse.Namespace) -> None:
    module = import_module(f"popu.bench.{arguments.what}")
    result = getattr(module, f"bench_{arguments.what}")()
    if arguments.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:32}{'not installed' if value is None else value}")
    if result.get("short"):
        print(f"popu: short of the target: {', '.join(result['short'])}", file=sys.stderr)
        sys.exit(1)


def _torture(arguments: argparse.Namespace) -> None:
    from popu.endurance.torture import torture

    result = torture(arguments.kills, arguments.granularity, arguments.seed, lambda text: print(text, flush=True))
    if arguments.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:16}{value}")
    if result["faults"]:
        print("popu: the experiment did not survive", file=sys.stderr)
        sys.exit(1)


def _worker(arguments: argparse.Namespace) -> None:
    from popu import worker

    if arguments.action == "serve":
        worker.serve()
    elif arguments.action == "stop":
        print("stopped" if worker.stop() else "no worker was running")
    else:
        print(json.dumps(worker.status(), indent=1))
