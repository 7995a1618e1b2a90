"""Beside the chain of steps: what a config takes, what follows finished runs or goes on from them."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from popu.commands.common import Commands, add_command, open_backend
from popu.errors import ConfigError

if TYPE_CHECKING:
    from popu.plan.report import Hardware


def add(commands: Commands) -> None:
    planning = add_command(commands, "plan", _plan, "what a config takes: work, time, disk, memory")
    planning.add_argument("--config", type=Path, required=True, help="a config file, taken alone")
    planning.add_argument("--gpu-memory", type=float, metavar="GB", help="of a device; without it, what torch finds")
    planning.add_argument("--devices", type=int, metavar="N", help="how many (1)")
    planning.add_argument("--assume", action="append", default=[], metavar="NAME=VALUE", help="a length or throughput")
    planning.add_argument("--json", action="store_true")
    cross = add_command(
        commands, "crossplay", _crossplay, "problems of every arm and time against students of every one"
    )
    cross.add_argument("--experiment", type=Path, required=True, help="the experiment's directory")
    for name in ("problems", "samples", "times"):
        cross.add_argument(f"--{name}", type=int, required=True, help="see config/README.md")
    study = add_command(commands, "operator-study", _operator_study, "children of every operator, trained side by side")
    study.add_argument("--run", type=Path, required=True, help="a run's seed directory")
    study.add_argument("--step", type=int, required=True, help="a step with a checkpoint")
    study.add_argument("--repeat", type=int, default=0, help="other random numbers and problems")
    study.add_argument("--settings", default="{}", help="keys of operator_study as JSON (config/README.md)")
    study.add_argument("--out", type=Path, required=True)
    studied = add_command(commands, "operator-report", _operator_report, "tables and figure of an operator study")
    studied.add_argument("--study", type=Path, required=True, help="the directory that holds seed<k>-repeat<r>")
    forking = add_command(commands, "fork", _fork, "a new arm that begins at a checkpoint of a run")
    forking.add_argument("run", type=Path, metavar="RUN", help="a seed directory")
    forking.add_argument("--at", type=int, required=True, metavar="STEP", help="a step with a checkpoint")
    forking.add_argument("--arm", required=True, help="the new arm's name")
    forking.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key below training")


def _plan(arguments: argparse.Namespace) -> None:
    from popu.config import read_config
    from popu.plan import report
    from popu.plan.text import as_text

    config = read_config(arguments.config)
    hardware = _hardware(arguments)
    found = report.plan(config, hardware, report.stated_values(arguments.assume))
    advice = report.recommended(arguments.config.parent, hardware)
    if arguments.json:
        print(json.dumps({**report.as_json(found), "recommended": str(advice)}, indent=1))
    else:
        print(f"{as_text(found)}\nrecommended for this hardware: {advice}")
    report.check(config, found)


def _hardware(arguments: argparse.Namespace) -> "Hardware":
    """The devices that the command line names, else those that are there. Raises ConfigError."""
    from popu.plan.report import Hardware, hardware_here

    memory_gb, devices = arguments.gpu_memory, arguments.devices
    for option, value in (("--gpu-memory", memory_gb), ("--devices", devices)):
        if value is not None and not 0 < value < 1e6:
            raise ConfigError(f"{option}: expected a number > 0, found {value:g}")
    if memory_gb is not None:
        return Hardware(devices or 1, memory_gb)
    found = hardware_here()
    if devices is not None and devices > found.n_devices:
        raise ConfigError(f"--devices: expected at most {found.n_devices} without --gpu-memory, found {devices}")
    return found if devices is None else Hardware(devices, found.memory_gb)


def _crossplay(arguments: argparse.Namespace) -> None:
    from popu.config import Crossplay, parse_section
    from popu.stages.crossplay import crossplay

    lines = {name: getattr(arguments, name) for name in ("problems", "samples", "times")}
    found = parse_section(Crossplay, lines)
    with open_backend() as backend:
        path = crossplay(arguments.experiment, backend, found.problems, found.samples, found.times)
    print(f"written to {path}")


def _operator_study(arguments: argparse.Namespace) -> None:
    from popu.config import study_from_json
    from popu.rundir import RunDirectory
    from popu.stages.operator_study import operator_study

    run, study = RunDirectory(arguments.run), study_from_json(arguments.settings)
    with open_backend() as backend:
        operator_study(run, arguments.step, arguments.repeat, study, arguments.out, backend)


def _operator_report(arguments: argparse.Namespace) -> None:
    from popu.report.operator_study import write_operator_report

    write_operator_report(arguments.study)


def _fork(arguments: argparse.Namespace) -> None:
    from popu.rundir import RunDirectory
    from popu.stages.fork import config_lines, fork

    run, lines = fork(RunDirectory(arguments.run), arguments.at, arguments.arm, arguments.set)
    print(f"{run.path}: go on with it under this arm\n{config_lines(arguments.arm, lines)}")
