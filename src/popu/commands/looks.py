"""What a person looks at of runs and experiments."""

import argparse
import json
from pathlib import Path

from popu.commands.common import Commands, add_command
from popu.errors import ArtifactError


def add(commands: Commands) -> None:
    _add_looks_at_runs(commands)
    _add_looks_at_experiments(commands)


def _add_looks_at_runs(commands: Commands) -> None:
    comparison = add_command(commands, "compare", _compare, "two runs or arms: settings that differ, scores")
    comparison.add_argument("runs", type=Path, nargs=2, metavar="RUN", help="seed directories, or arms' ones")
    status = add_command(commands, "status", _status, "step, time left, solve rate and ratings of every run")
    status.add_argument("--results", type=Path, default=Path("results"))
    status.add_argument("--json", action="store_true")
    checking = add_command(commands, "check", _check, "compare every file of runs with what was written")
    checking.add_argument("directory", type=Path, nargs="?", default=Path("results"), help="a run or what holds runs")
    lineage = add_command(commands, "lineage", _lineage, "ancestry, ages and operators of a run")
    lineage.add_argument("--run", type=Path, required=True, help="a run's seed directory")
    lineage.add_argument("--json", action="store_true")
    show = add_command(commands, "show", _show, "what became of a proposal, an attempt or a member")
    show.add_argument("what", choices=("problem", "rollout", "member"))
    show.add_argument("id", help="00012-q0003.1 or 00012-p0003.1, 00012-q0003.1/0, s0.g1")
    show.add_argument("--run", type=Path, required=True, help="a run's seed directory")


def _add_looks_at_experiments(commands: Commands) -> None:
    summary = add_command(
        commands, "summary", _summary, "learning and dynamics of an experiment: JSON, Markdown, figure"
    )
    summary.add_argument("--experiment", type=Path, required=True, help="the experiment's directory")
    report = add_command(commands, "report", _report, "tables, figures and one page of an experiment")
    report.add_argument("--experiment", type=Path, required=True, help="the experiment's directory")
    report.add_argument("--out", type=Path, required=True, help="a directory")

    phase = add_command(commands, "phase", _phase, "what the runs of experiments came to, by base and learning rate")
    phase.add_argument("--experiment", type=Path, nargs="+", required=True, metavar="DIR")
    phase.add_argument("--out", type=Path, required=True, help="a directory")
    board = add_command(
        commands, "tensorboard", _tensorboard, "the metrics of an experiment as TensorBoard event files"
    )
    board.add_argument("--experiment", type=Path, required=True, help="the experiment's directory")
    board.add_argument("--out", type=Path, required=True, help="a directory that has no event files")


def _compare(arguments: argparse.Namespace) -> None:
    from popu.report.compare import as_text, compare

    print(as_text(compare(*arguments.runs)))


def _status(arguments: argparse.Namespace) -> None:
    from popu.report.status import print_table, run_statuses

    rows = run_statuses(arguments.results)
    if arguments.json:
        print(json.dumps(rows, indent=1))
    else:
        print_table(rows)


def _check(arguments: argparse.Namespace) -> None:
    from popu.stages.integrity import check

    n_files, faults = check(arguments.directory)
    if faults:
        raise ArtifactError("\n".join([*faults, f"{len(faults)} of {n_files} files are not as they were written"]))
    print(f"{n_files} files are as they were written")


def _lineage(arguments: argparse.Namespace) -> None:
    from popu.report.lineage import lineage_of, print_lineage

    result = lineage_of(arguments.run)
    if arguments.json:
        print(json.dumps(result, indent=1))
    else:
        print_lineage(result)


def _show(arguments: argparse.Namespace) -> None:
    from popu.report import show
    from popu.rundir import RunDirectory

    run = RunDirectory(arguments.run)
    _ = run.settings  # names what is missing where this is no run
    functions = {"problem": show.show_problem, "rollout": show.show_rollout, "member": show.show_member}
    print(functions[arguments.what](run, arguments.id))


def _summary(arguments: argparse.Namespace) -> None:
    from popu.report.summary import write_summary

    write_summary(arguments.experiment)


def _report(arguments: argparse.Namespace) -> None:
    from popu.report.page import write_report

    write_report(arguments.experiment, arguments.out)


def _phase(arguments: argparse.Namespace) -> None:
    from popu.report.phase import write_phase

    for row in write_phase(arguments.experiment, arguments.out):
        print(f"{row['arm']} seed {row['seed']} on {row['base']}: {row['outcome']}")


def _tensorboard(arguments: argparse.Namespace) -> None:
    from popu.report.events import write_events

    print(f"{write_events(arguments.experiment, arguments.out)} scalars written to {arguments.out}")
