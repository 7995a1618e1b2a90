"""From or to a PEFT directory."""

import argparse
import sys
from pathlib import Path

from popu.commands.common import Commands, add_command, open_backend
from popu.errors import ConfigError


def add(commands: Commands) -> None:
    export = add_command(commands, "export", _export, "write a member as a PEFT directory")
    export.add_argument("member", help="slot (s0) or member id (s0.g1)")
    export.add_argument("--run", type=Path, required=True, help="a run's seed directory or a checkpoint bundle")
    export.add_argument("--out", type=Path, required=True)
    evolve = add_command(
        commands, "evolve-adapter", _evolve_adapter, "make a child of one or two LoRA adapters (docs/operators.md)"
    )
    evolve.add_argument("--operator", required=True, help="name; an unknown one lists all")
    evolve.add_argument("--parents", type=Path, nargs="+", required=True, metavar="DIR", help="PEFT directories")
    evolve.add_argument("--out", type=Path, required=True, help="a new directory")
    evolve.add_argument("--seed", type=int, default=0)
    warm = add_command(
        commands, "warm-start", _warm_start, "teach a LoRA adapter a domain's formats, to begin a run with"
    )
    warm.add_argument(
        "--config", type=Path, required=True, help="a config file, taken alone: base, lora, problem_types"
    )
    warm.add_argument("--steps", type=int, default=600)
    warm.add_argument("--batch", type=int, default=64, help="gold completions a step")
    warm.add_argument("--learning-rate", type=float, default=3e-3, help="of the first step; falls to 0")
    warm.add_argument("--seed", type=int, default=1)
    warm.add_argument("--out", type=Path, required=True, help="a new directory, in PEFT's format")


def _export(arguments: argparse.Namespace) -> None:
    from popu.stages.export import export

    member = export(arguments.member, arguments.run, arguments.out)
    print(f"{member} written to {arguments.out}")


def _evolve_adapter(arguments: argparse.Namespace) -> None:
    from popu.evolution.files import evolve_adapter

    evolve_adapter(arguments.operator, arguments.parents, arguments.out, arguments.seed)
    print(f"written to {arguments.out}")


def _warm_start(arguments: argparse.Namespace) -> None:
    from popu.base import expected_identity
    from popu.config import Run, read_config
    from popu.stages.warm_start import warm_start

    config = read_config(arguments.config)
    for name in ("steps", "batch", "learning_rate"):
        if not getattr(arguments, name) > 0:
            raise ConfigError(f"--{name.replace('_', '-')}: expected a number > 0, found {getattr(arguments, name)}")
    settings = Run(
        arm="warm_start",
        seed=arguments.seed,
        training=config.training,
        base=config.base,
        base_sha256=expected_identity(config.base),
        engine=config.engine,
    )
    with open_backend() as backend:
        warm_start(
            settings,
            arguments.steps,
            arguments.batch,
            arguments.learning_rate,
            arguments.out,
            backend,
            lambda text: print(text, file=sys.stderr, flush=True),
        )
    print(f"written to {arguments.out}")
