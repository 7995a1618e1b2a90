"""The command `popu`: `popu stage NAME` for every stage of the workflow, and the commands for people.

Heavy libraries are imported by the command that needs them. A fault of the input (config, artifact, base) is one
message on stderr and exit code 2.
"""

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from popu.errors import USER_FAULTS, ConfigError
from popu.stages.call import STAGES, StageCall

if TYPE_CHECKING:
    from popu.evaluate.benchmark import Benchmark
    from popu.plan.report import Hardware
    from popu.stages.backend import Backend
    from popu.verify import Executors, Response

Commands = Any  # argparse's sub-parsers have no public type
INPUT_FAULT = 2
BENCHMARKS = ("verifier", "operators", "rollouts", "smollm2", "update", "workflow", "population", "growth")


def main(argv: list[str] | None = None) -> int:
    """Runs a command line and returns its exit code."""
    arguments = _parser().parse_args(argv)
    _watch_parent()
    try:
        arguments.command(arguments)
    except USER_FAULTS as error:
        print(f"popu: {error}", file=sys.stderr)
        return INPUT_FAULT
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="popu", description="PopuLoRA: co-evolving populations of LoRA adapters")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    stages = commands.add_parser("stage", help="one stage of a step").add_subparsers(metavar="STAGE", required=True)
    for stage in STAGES:
        command = _command(stages, stage, _stage, f"stage {stage} of a step (see docs/architecture.md)")
        command.set_defaults(stage=stage)
        _run_arguments(command)
        if stage == "init":
            command.add_argument("--settings", required=True, help="the run's resolved config as JSON")
        if stage == "heldout":
            command.add_argument("--tasks-per-level", type=int, required=True)
            command.add_argument("--samples", type=int, required=True)
    block = _command(commands, "block", _block, "all stages of some steps in one process")
    _run_arguments(block, "--last")
    block.add_argument("--first", type=int, required=True)
    _command_summary(commands)
    export = _command(commands, "export", _export, "write a member as a PEFT directory")
    export.add_argument("member", help="slot (s0) or member id (s0.g1)")
    export.add_argument("--run", type=Path, required=True, help="a run's seed directory or a checkpoint bundle")
    export.add_argument("--out", type=Path, required=True)
    evolve = _command(
        commands, "evolve-adapter", _evolve_adapter, "make a child of one or two LoRA adapters (docs/operators.md)"
    )
    evolve.add_argument("--operator", required=True, help="name; an unknown one lists all")
    evolve.add_argument("--parents", type=Path, nargs="+", required=True, metavar="DIR", help="PEFT directories")
    evolve.add_argument("--out", type=Path, required=True, help="a new directory")
    evolve.add_argument("--seed", type=int, default=0)
    lineage = _command(commands, "lineage", _lineage, "ancestry, ages and operators of a run")
    lineage.add_argument("--run", type=Path, required=True, help="a run's seed directory")
    lineage.add_argument("--json", action="store_true")
    show = _command(commands, "show", _show, "what became of a proposal, an attempt or a member")
    show.add_argument("what", choices=("problem", "rollout", "member"))
    show.add_argument("id", help="00012-q0003.1 or 00012-p0003.1, 00012-q0003.1/0, s0.g1")
    show.add_argument("--run", type=Path, required=True, help="a run's seed directory")
    cross = _command(commands, "crossplay", _crossplay, "problems of every arm and time against students of every one")
    cross.add_argument("--experiment", type=Path, required=True, help="the experiment's directory")
    for name in ("problems", "samples", "times"):
        cross.add_argument(f"--{name}", type=int, required=True, help="see config/README.md")
    study = _command(commands, "operator-study", _operator_study, "children of every operator, trained side by side")
    study.add_argument("--run", type=Path, required=True, help="a run's seed directory")
    study.add_argument("--step", type=int, required=True, help="a step with a checkpoint")
    study.add_argument("--repeat", type=int, default=0, help="other random numbers and problems")
    study.add_argument("--settings", default="{}", help="keys of operator_study as JSON (config/README.md)")
    study.add_argument("--out", type=Path, required=True)
    studied = _command(commands, "operator-report", _operator_report, "tables and figure of an operator study")
    studied.add_argument("--study", type=Path, required=True, help="the directory that holds seed<k>-repeat<r>")
    forking = _command(commands, "fork", _fork, "a new arm that begins at a checkpoint of a run")
    forking.add_argument("run", type=Path, metavar="RUN", help="a seed directory")
    forking.add_argument("--at", type=int, required=True, metavar="STEP", help="a step with a checkpoint")
    forking.add_argument("--arm", required=True, help="the new arm's name")
    forking.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key below training")
    comparison = _command(commands, "compare", _compare, "two runs: settings that differ, metrics, held-out scores")
    comparison.add_argument("runs", type=Path, nargs=2, metavar="RUN", help="seed directories")
    status = _command(commands, "status", _status, "step, time left, solve rate and ratings of every run")
    status.add_argument("--results", type=Path, default=Path("results"))
    status.add_argument("--json", action="store_true")
    planning = _command(commands, "plan", _plan, "what a config takes: work, time, disk, memory")
    planning.add_argument("--config", type=Path, required=True, help="a config file, taken alone")
    planning.add_argument("--gpu-memory", type=float, metavar="GB", help="of a device; without it, what torch finds")
    planning.add_argument("--devices", type=int, metavar="N", help="how many (1)")
    planning.add_argument("--assume", action="append", default=[], metavar="NAME=VALUE", help="a length or throughput")
    planning.add_argument("--json", action="store_true")
    verify = _command(
        commands, "verify", _verify, "check proposals, judge answers, run programs: JSON lines in and out"
    )
    verify.add_argument("--in", dest="requests", type=Path, required=True, help="requests (docs/verifier.md)")
    verify.add_argument("--out", type=Path, required=True)
    scoring = _command(commands, "score", _score, "judge completions of a benchmark: JSON lines in and out")
    scoring.add_argument("--suite", required=True, help="name; an unknown one lists all")
    scoring.add_argument("--in", dest="answers", type=Path, required=True, help="completions (docs/benchmarks.md)")
    scoring.add_argument("--out", type=Path, required=True)
    scoring.add_argument("--data-dir", type=Path, help="the benchmarks' files; without it they are downloaded")
    doctor = _command(commands, "doctor", _doctor, "what this machine offers, and what is missing")
    doctor.add_argument("--results", type=Path, default=Path("results"))
    doctor.add_argument("--json", action="store_true")
    _command_evaluate(commands)
    bench = _command(commands, "bench", _bench, "measure this machine")
    bench.add_argument("what", choices=BENCHMARKS)
    bench.add_argument("--json", action="store_true", help="one JSON object as the last line")
    worker = _command(commands, "worker", _worker, "the process that keeps the base loaded")
    worker.add_argument("action", choices=("serve", "status", "stop"))
    _command_nano(commands)
    _command_base(commands)
    return parser


def _command(
    commands: Commands, name: str, function: Callable[[argparse.Namespace], None], text: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text)
    command.set_defaults(command=function)
    return command


def _run_arguments(command: argparse.ArgumentParser, step: str = "--step") -> None:
    command.add_argument("--run", type=Path, required=True, help="a run's seed directory")
    command.add_argument(step, type=int, required=True)


# --- stages ----------------------------------------------------------------------------------------------------


def _stage(arguments: argparse.Namespace) -> None:
    options = {name: getattr(arguments, name) for name in ("tasks_per_level", "samples") if name in arguments}
    call = StageCall(arguments.stage, str(arguments.run), arguments.step, options)
    if arguments.stage == "init":
        from popu.rundir import RunDirectory, settings_from_json

        arguments.run.mkdir(parents=True, exist_ok=True)
        RunDirectory(arguments.run).create(settings_from_json(arguments.settings))
    started = time.monotonic()
    if not _in_worker(call):
        from popu.stages.run import run_stage

        with _backend() as backend:
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


def _backend() -> "closing[Backend]":
    from popu.stages.backend import Backend

    return closing(Backend())


def _block(arguments: argparse.Namespace) -> None:
    from popu.stages.run import run_block

    with _backend() as backend:
        run_block(str(arguments.run), arguments.first, arguments.last, backend, lambda text: print(text, flush=True))


def _watch_parent() -> None:
    """Where the workflow asks for it, ends this process when its parent dies: no orphan keeps writing."""
    if not os.environ.get("POPU_WATCH_PARENT"):
        return
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# --- for people ------------------------------------------------------------------------------------------------


def _command_summary(commands: Commands) -> None:
    summary = _command(commands, "summary", _summary, "learning and dynamics of an experiment: JSON, Markdown, figure")
    summary.add_argument("--experiment", type=Path, required=True, help="the experiment's directory")
    report = _command(commands, "report", _report, "tables, figures and one page of an experiment")
    report.add_argument("--experiment", type=Path, required=True, help="the experiment's directory")
    report.add_argument("--out", type=Path, required=True, help="a directory")

    phase = _command(commands, "phase", _phase, "what the runs of experiments came to, by base and learning rate")
    phase.add_argument("--experiment", type=Path, nargs="+", required=True, metavar="DIR")
    phase.add_argument("--out", type=Path, required=True, help="a directory")
    board = _command(commands, "tensorboard", _tensorboard, "the metrics of an experiment as TensorBoard event files")
    board.add_argument("--experiment", type=Path, required=True, help="the experiment's directory")
    board.add_argument("--out", type=Path, required=True, help="a directory that has no event files")


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


def _export(arguments: argparse.Namespace) -> None:
    from popu.stages.export import export

    member = export(arguments.member, arguments.run, arguments.out)
    print(f"{member} written to {arguments.out}")


def _evolve_adapter(arguments: argparse.Namespace) -> None:
    from popu.evolution.files import evolve_adapter

    evolve_adapter(arguments.operator, arguments.parents, arguments.out, arguments.seed)
    print(f"written to {arguments.out}")


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


def _crossplay(arguments: argparse.Namespace) -> None:
    from popu.stages.crossplay import crossplay

    with _backend() as backend:
        path = crossplay(arguments.experiment, backend, arguments.problems, arguments.samples, arguments.times)
    print(f"written to {path}")


def _operator_study(arguments: argparse.Namespace) -> None:
    from popu.config import study_from_json
    from popu.rundir import RunDirectory
    from popu.stages.operator_study import operator_study

    run, study = RunDirectory(arguments.run), study_from_json(arguments.settings)
    with _backend() as backend:
        operator_study(run, arguments.step, arguments.repeat, study, arguments.out, backend)


def _operator_report(arguments: argparse.Namespace) -> None:
    from popu.report.operator_study import write_operator_report

    write_operator_report(arguments.study)


def _fork(arguments: argparse.Namespace) -> None:
    from popu.rundir import RunDirectory
    from popu.stages.fork import config_lines, fork

    run, lines = fork(RunDirectory(arguments.run), arguments.at, arguments.arm, arguments.set)
    print(f"{run.path}: go on with it under this arm\n{config_lines(arguments.arm, lines)}")


def _compare(arguments: argparse.Namespace) -> None:
    from popu.report.compare import as_text, compare
    from popu.rundir import RunDirectory

    print(as_text(compare(*(RunDirectory(path) for path in arguments.runs))))


def _status(arguments: argparse.Namespace) -> None:
    from popu.report.status import print_table, run_statuses

    rows = run_statuses(arguments.results)
    if arguments.json:
        print(json.dumps(rows, indent=1))
    else:
        print_table(rows)


def _verify(arguments: argparse.Namespace) -> None:
    from popu.verify import verify_lines

    _door(arguments.requests, arguments.out, verify_lines)


def _score(arguments: argparse.Namespace) -> None:
    from popu.score import score_lines

    _door(
        arguments.answers,
        arguments.out,
        lambda lines, executor_of: score_lines(lines, arguments.suite, executor_of, arguments.data_dir),
    )


def _door(requests: Path, out: Path, answers: "Callable[[Iterable[str], Executors], Iterator[Response]]") -> None:
    """JSON lines of a file to JSON lines of another, with the verifier at hand."""
    from popu.artifacts import atomic_write
    from popu.sandbox.executor import executors

    try:
        lines = requests.open(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise ConfigError(f"--in: expected a readable file, found: {error}") from error
    with lines, executors() as executor_of, atomic_write(out) as path, path.open("w") as file:
        for answer in answers(lines, executor_of):
            file.write(json.dumps(answer) + "\n")


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


def _worker(arguments: argparse.Namespace) -> None:
    from popu import worker

    if arguments.action == "serve":
        worker.serve()
    elif arguments.action == "stop":
        print("stopped" if worker.stop() else "no worker was running")
    else:
        print(json.dumps(worker.status(), indent=1))


# --- benchmarks -------------------------------------------------------------------------------------------------


def _command_evaluate(commands: Commands) -> None:
    evaluate = _command(commands, "evaluate", _evaluate, "score one adapter, or a bare base, on a benchmark")
    evaluate.add_argument("--base", required=True, help="model directory")
    evaluate.add_argument("--adapter", type=Path, help="PEFT directory; without it the bare base alone")
    evaluate.add_argument("--threads", type=int, default=2)
    evaluate.add_argument("--shards", type=int, default=8, help="parts; a kill repeats at most one")
    _benchmark_arguments(evaluate)
    stages = commands.add_parser("benchmark", help="a benchmark of a checkpoint's members (rules/benchmarks.smk)")
    parts = stages.add_subparsers(metavar="PART", required=True)
    complete = _command(parts, "complete", _benchmark_complete, "completions of a shard of tasks by all members")
    complete.add_argument("--bundle", type=Path, required=True, help="a checkpoint's directory")
    complete.add_argument("--shard", type=int, required=True, help="from 0")
    complete.add_argument("--shards", type=int, required=True, help="of so many")
    score = _command(parts, "score", _benchmark_score, "judge the completions of all shards")
    score.add_argument("--generations", type=Path, nargs="+", required=True)
    score.add_argument("--threads", type=int, default=2)
    for command in (complete, score):
        _benchmark_arguments(command)


def _benchmark_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--suite", required=True, help="name, or name@samples; an unknown one lists all")
    command.add_argument("--limit", type=int, help="the first tasks alone")
    command.add_argument("--max-new-tokens", type=int, help="in place of the suite's own")
    command.add_argument("--temperature", type=float, default=0.6, help="of name@samples")
    command.add_argument("--data-dir", help="where the data files lie; else they are downloaded once")
    command.add_argument("--out", type=Path, required=True)


def _benchmark(arguments: argparse.Namespace) -> "Benchmark":
    from popu.config import parse_evaluation
    from popu.evaluate.benchmark import benchmark

    section = parse_evaluation(
        {
            "suites": [arguments.suite],
            **{name: getattr(arguments, name) for name in ("limit", "max_new_tokens", "temperature", "data_dir")},
        }
    )
    return benchmark(section.suites[0], section)


def _evaluate(arguments: argparse.Namespace) -> None:
    from popu.report.benchmarks import print_scores
    from popu.stages.benchmark import evaluate_adapter

    with _backend() as backend:
        path = evaluate_adapter(
            arguments.base,
            arguments.adapter,
            _benchmark(arguments),
            arguments.shards,
            arguments.data_dir,
            arguments.threads,
            arguments.out,
            backend,
            lambda text: print(text, file=sys.stderr, flush=True),
        )
    print_scores(path)


def _benchmark_complete(arguments: argparse.Namespace) -> None:
    from popu.stages.benchmark import generate_shard, members_of

    settings, members = members_of(arguments.bundle)
    item, k, n = _benchmark(arguments), arguments.shard, arguments.shards
    with _backend() as backend:
        generate_shard(settings, members, item, k, n, arguments.data_dir, backend, arguments.out)


def _benchmark_score(arguments: argparse.Namespace) -> None:
    from popu.stages.benchmark import score_generations

    item = _benchmark(arguments)
    score_generations(item, arguments.generations, arguments.data_dir, arguments.threads, arguments.out)


# --- bases -----------------------------------------------------------------------------------------------------


def _command_nano(commands: Commands) -> None:
    nano = commands.add_parser("nano", help="make the embedded base").add_subparsers(metavar="STEP", required=True)
    tokenizer = _command(nano, "tokenizer", _nano_tokenizer, "train the tokenizer on grammar rows")
    tokenizer.add_argument("--out", type=Path, required=True)
    corpus = _command(nano, "corpus", _nano_corpus, "sample and encode pretraining rows")
    corpus.add_argument("--tokenizer", type=Path, required=True)
    corpus.add_argument("--out", type=Path, required=True)
    corpus.add_argument("--phase", choices=("trunk", "branch"), required=True)
    corpus.add_argument("--rows", type=int, required=True)
    corpus.add_argument("--slip-share", type=float, required=True)
    corpus.add_argument("--seed", type=int, required=True)
    pretrain = _command(nano, "pretrain", _nano_pretrain, "one phase of pretraining, resumable")
    pretrain.add_argument("--tokenizer", type=Path, required=True)
    pretrain.add_argument("--corpus", type=Path, nargs="+", required=True)
    pretrain.add_argument("--init", type=Path, help="model directory to continue from; without it a fresh model")
    pretrain.add_argument("--phase", choices=("trunk", "branch"), required=True)
    pretrain.add_argument("--steps", type=int, required=True)
    pretrain.add_argument("--threads", type=int, required=True)
    pretrain.add_argument("--out", type=Path, required=True)
    card = _command(nano, "card", _nano_card, "score the base per level and write it with its card")
    card.add_argument("--model", type=Path, required=True)
    card.add_argument("--clean", type=Path, required=True, help="the same model on clean answers")
    card.add_argument("--slip-share", type=float, required=True)
    card.add_argument("--out", type=Path, required=True)


def _nano_tokenizer(arguments: argparse.Namespace) -> None:
    from popu.nano.build import make_tokenizer

    make_tokenizer(arguments.out)


def _nano_corpus(arguments: argparse.Namespace) -> None:
    from popu.nano.build import make_corpus

    make_corpus(
        arguments.tokenizer, arguments.out, arguments.phase, arguments.rows, arguments.slip_share, arguments.seed
    )


def _nano_pretrain(arguments: argparse.Namespace) -> None:
    from popu.nano.build import run_phase
    from popu.nano.pretrain import phase

    chosen = phase(arguments.phase, arguments.steps)
    run_phase(arguments.tokenizer, arguments.corpus, arguments.init, chosen, arguments.threads, arguments.out)


def _nano_card(arguments: argparse.Namespace) -> None:
    from popu.nano.build import write_base

    write_base(arguments.model, arguments.clean, arguments.slip_share, arguments.out)


def _command_base(commands: Commands) -> None:
    base = commands.add_parser("base", help="prepare a base model").add_subparsers(metavar="ACTION", required=True)
    convert = _command(base, "from-gguf", _base_from_gguf, "dequantize a GGUF file into a safetensors directory")
    where = convert.add_mutually_exclusive_group(required=True)
    where.add_argument("--gguf", type=Path)
    where.add_argument("--package", help="take the one GGUF file of an installed Python package")
    convert.add_argument("--out", type=Path, required=True)


def _base_from_gguf(arguments: argparse.Namespace) -> None:
    from popu.engine.gguf import convert, file_of_package

    path = arguments.gguf or file_of_package(arguments.package)
    print(f"sha256 {convert(path, arguments.out)}")
