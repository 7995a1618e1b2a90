"""Bases: the embedded one, others from GGUF files."""

import argparse
from pathlib import Path

from popu.commands.common import Commands, add_command


def add(commands: Commands) -> None:
    _add_nano(commands)
    _add_base(commands)


def _add_nano(commands: Commands) -> None:
    nano = commands.add_parser("nano", help="make the embedded base").add_subparsers(metavar="STEP", required=True)
    tokenizer = add_command(nano, "tokenizer", _nano_tokenizer, "train the tokenizer on grammar rows")
    tokenizer.add_argument("--out", type=Path, required=True)
    corpus = add_command(nano, "corpus", _nano_corpus, "sample and encode pretraining rows")
    corpus.add_argument("--tokenizer", type=Path, required=True)
    corpus.add_argument("--out", type=Path, required=True)
    corpus.add_argument("--phase", choices=("trunk", "branch"), required=True)
    corpus.add_argument("--rows", type=int, required=True)
    corpus.add_argument("--slip-share", type=float, required=True)
    corpus.add_argument("--seed", type=int, required=True)
    pretrain = add_command(nano, "pretrain", _nano_pretrain, "one phase of pretraining, resumable")
    pretrain.add_argument("--tokenizer", type=Path, required=True)
    pretrain.add_argument("--corpus", type=Path, nargs="+", required=True)
    pretrain.add_argument("--init", type=Path, help="model directory to continue from; without it a fresh model")
    pretrain.add_argument("--phase", choices=("trunk", "branch"), required=True)
    pretrain.add_argument("--steps", type=int, required=True)
    pretrain.add_argument("--threads", type=int, required=True)
    pretrain.add_argument("--out", type=Path, required=True)
    card = add_command(nano, "card", _nano_card, "score the base per level and write it with its card")
    card.add_argument("--model", type=Path, required=True)
    card.add_argument("--clean", type=Path, help="the same model on clean answers, scored for comparison")
    card.add_argument("--slip-share", type=float, required=True)
    card.add_argument("--out", type=Path, required=True)


def _add_base(commands: Commands) -> None:
    base = commands.add_parser("base", help="prepare a base model").add_subparsers(metavar="ACTION", required=True)
    convert = add_command(base, "from-gguf", _base_from_gguf, "dequantize a GGUF file into a safetensors directory")
    where = convert.add_mutually_exclusive_group(required=True)
    where.add_argument("--gguf", type=Path)
    where.add_argument("--package", help="take the one GGUF file of an installed Python package")
    convert.add_argument("--out", type=Path, required=True)


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


def _base_from_gguf(arguments: argparse.Namespace) -> None:
    from popu.engine.gguf import convert, file_of_package

    path = arguments.gguf or file_of_package(arguments.package)
    print(f"sha256 {convert(path, arguments.out)}")
