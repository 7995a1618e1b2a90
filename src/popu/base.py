"""The frozen base model on disk and its identity, and that of founders, without loading them."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from popu.artifacts import sha256
from popu.config import Base
from popu.errors import ArtifactError

CARD = "card.json"


def expected_identity(base: Base) -> str:
    """The identity that the config or the base's card states; without either it is measured.

    Raises ArtifactError where it is not stated and the base is missing.
    """
    return base.sha256 or str(read_card(Path(base.path)).get("sha256") or measure_identity(base))


def check_identity(base: Base, expected: str) -> None:
    """Compares the weights on disk with the identity. Raises ArtifactError."""
    found = measure_identity(base)
    if found != expected:
        raise ArtifactError(
            f"base.path: expected weights of sha256 {expected[:16]}... in {base.path}, found {found[:16]}..."
        )


def measure_identity(base: Base) -> str:
    """sha256 of the weights; of several shards, the sha256 of their names and digests.

    Raises ArtifactError where there are none.
    """
    files = sorted(Path(base.path).glob("*.safetensors"))
    if not files:
        raise ArtifactError(f"base.path: expected a model directory with *.safetensors, found none in {base.path}")
    if len(files) == 1:
        return sha256(files[0])
    return hashlib.sha256("".join(f"{file.name} {sha256(file)}\n" for file in files).encode()).hexdigest()


def founder_identities(directories: Mapping[str, str]) -> dict[str, str]:
    """sha256 of config and weights of every slot's adapter in PEFT's format. Raises ArtifactError."""
    return {slot: _adapter_identity(slot, Path(directory)) for slot, directory in directories.items()}


def _adapter_identity(slot: str, directory: Path) -> str:
    files = [directory / "adapter_config.json", directory / "adapter_model.safetensors"]
    for path in files:
        if not path.is_file():
            raise ArtifactError(
                f"training.population.founders.{slot}: expected an adapter in {directory}, no {path.name}"
            )
    return hashlib.sha256("".join(map(sha256, files)).encode()).hexdigest()


def read_card(directory: Path) -> dict[str, Any]:
    """A base's card.json, empty where it has none. Raises ArtifactError for one that is no JSON."""
    path = directory / CARD
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text())
    except ValueError as error:
        raise ArtifactError(f"{path}: expected JSON, found: {error}") from error
    return value if isinstance(value, dict) else {}
