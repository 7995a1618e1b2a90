"""Operators on adapter directories in PEFT's format."""

from collections.abc import Sequence
from pathlib import Path

import torch

from popu.artifacts import sha256
from popu.errors import ArtifactError, ConfigError
from popu.evolution.registry import get_operator
from popu.population.adapter import WEIGHTS_FILE, read_adapter, read_base_name, write_adapter


def evolve_adapter(operator_name: str, parents: Sequence[Path], out: Path, seed: int) -> None:
    """Write the child that an operator makes of the adapters in `parents` to the new directory `out`.

    Its card records parents (name and sha256 of the weights), operator, constants and seed.

    Raises:
        ConfigError: an unknown operator, another number of parents, parents that do not fit each other or have other
            bases; `out` is not new or empty.
        ArtifactError: a parent that cannot be read.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out: expected a new or an empty directory, found {out}")
    try:
        operator = get_operator(operator_name)
    except ValueError as error:
        raise ConfigError(f"--operator: {error}") from error
    try:
        bases = [read_base_name(parent) for parent in parents]
        adapters = [read_adapter(parent) for parent in parents]
    except ValueError as error:
        raise ArtifactError(str(error)) from error
    if len(set(filter(None, bases))) > 1:
        raise ConfigError(f"--parents: expected adapters of one base, found {bases[0]!r} and {bases[1]!r}")
    try:
        child = operator.apply(adapters, torch.Generator().manual_seed(seed))
    except ValueError as error:
        raise ConfigError(f"--parents: {operator_name}: {error}") from error
    card = {
        "parents": [{"name": parent.resolve().name, "sha256": sha256(parent / WEIGHTS_FILE)} for parent in parents],
        "operator": operator.name,
        "operator_constants": dict(operator.constants),
        "operator_reference": operator.reference,
        "operator_seed": seed,
    }
    write_adapter(out, child, next(filter(None, bases), ""), card)
