"""Members and adapters on public benchmarks."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from popu.commands.common import Commands, add_command, open_backend

if TYPE_CHECKING:
    from popu.evaluate.benchmark import Benchmark


def add(commands: Commands) -> None:
    evaluate = add_command(commands, "evaluate", _evaluate, "score one adapter, or a bare base, on a benchmark")
    evaluate.add_argument("--base", required=True, help="model directory")
    evaluate.add_argument("--adapter", type=Path, help="PEFT directory; without it the bare base alone")
    evaluate.add_argument("--threads", type=int, default=2)
    evaluate.add_argument("--shards", type=int, default=8, help="parts; a kill repeats at most one")
    _benchmark_arguments(evaluate)
    stages = commands.add_parser("benchmark", help="a benchmark of a checkpoint's members (rules/benchmarks.smk)")
    parts = stages.add_subparsers(metavar="PART", required=True)
    complete = add_command(parts, "complete", _benchmark_complete, "completions of a shard of tasks by all members")
    complete.add_argument("--bundle", type=Path, required=True, help="a checkpoint's directory")
    complete.add_argument("--shard", type=int, required=True, help="from 0")
    complete.add_argument("--shards", type=int, required=True, help="of so many")
    score = add_command(parts, "score", _benchmark_score, "judge the completions of all shards")
    score.add_argument("--generations", type=Path, nargs="+", required=True)
    score.add_argument("--threads", type=int, default=2)
    peer = add_command(parts, "peer", _benchmark_peer, "our word on completions beside EvalPlus's or lm-eval's")
    peer.add_argument("--generations", type=Path, nargs="+", required=True)
    peer.add_argument("--threads", type=int, default=2)
    for command in (complete, score):
        _benchmark_arguments(command)
    _benchmark_arguments(peer, out=False)


def _benchmark_arguments(command: argparse.ArgumentParser, out: bool = True) -> None:
    command.add_argument("--suite", required=True, help="name, or name@samples; an unknown one lists all")
    command.add_argument("--limit", type=int, help="the first tasks alone")
    command.add_argument("--max-new-tokens", type=int, help="in place of the suite's own")
    command.add_argument("--temperature", type=float, default=0.6, help="of name@samples")
    command.add_argument("--data-dir", help="where the data files lie; else they are downloaded once")
    if out:
        command.add_argument("--out", type=Path, required=True)


def _benchmark(arguments: argparse.Namespace) -> "Benchmark":
    from popu.config import Evaluation, parse_section
    from popu.evaluate.benchmark import benchmark

    section = parse_section(
        Evaluation,
        {
            "suites": [arguments.suite],
            **{name: getattr(arguments, name) for name in ("limit", "max_new_tokens", "temperature", "data_dir")},
        },
    )
    return benchmark(section.suites[0], section)


def _evaluate(arguments: argparse.Namespace) -> None:
    from popu.report.benchmarks import print_scores
    from popu.stages.benchmark import evaluate_adapter

    with open_backend() as backend:
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
    with open_backend() as backend:
        generate_shard(settings, members, item, k, n, arguments.data_dir, backend, arguments.out)


def _benchmark_score(arguments: argparse.Namespace) -> None:
    from popu.stages.benchmark import score_generations

    item = _benchmark(arguments)
    score_generations(item, arguments.generations, arguments.data_dir, arguments.threads, arguments.out)


def _benchmark_peer(arguments: argparse.Namespace) -> None:
    from popu.report.benchmarks import print_comparisons
    from popu.stages.benchmark import compare_generations

    item = _benchmark(arguments)
    print_comparisons(compare_generations(item, arguments.generations, arguments.data_dir, arguments.threads))
