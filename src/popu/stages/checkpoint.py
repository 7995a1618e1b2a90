"""checkpoint: a bundle of everything that a step's population is.

A bundle under checkpoints/step<n>/ holds adapters/<slot>/, population.json, lineage.parquet of the whole run,
run.json, versions.json and manifest.json with every file's sha256.
"""

import platform
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

from popu import artifacts
from popu.errors import ArtifactError
from popu.population.adapter import Adapter, read_adapter
from popu.population.member import Member, Population
from popu.report.lineage import births
from popu.rundir import SETTINGS, STATE, RunDirectory
from popu.stages.backend import Backend
from popu.stages.common import adapter_files

MANIFEST = "manifest.json"
PACKAGES = (
    "populora-workflow",
    "torch",
    "transformers",
    "peft",
    "trueskill",
    "safetensors",
    "pyarrow",
    "snakemake",
)


def checkpoint(run: RunDirectory, step: int, backend: Backend) -> None:
    """See the module. The bundle appears whole: it is made beside its place and renamed."""
    bundle = bundle_path(run, step)
    if not (bundle / MANIFEST).exists():
        temporary = bundle.with_name(f".{bundle.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        _fill(run, step, temporary)
        shutil.rmtree(bundle, ignore_errors=True)
        temporary.rename(bundle)


def bundle_path(run: RunDirectory, step: int) -> Path:
    return run.path / "checkpoints" / f"step{step:05d}"


def bundle_steps(run: RunDirectory) -> list[int]:
    """The steps that have a bundle, ascending."""
    return sorted(int(path.parent.name.removeprefix("step")) for path in run.path.glob(f"checkpoints/step*/{MANIFEST}"))


def read_students(run: RunDirectory, step: int) -> list[tuple[Member, Adapter]]:
    """The students of a bundle with their adapters, the single agent included. Raises ArtifactError."""
    bundle = bundle_path(run, step)
    state = check_bundle(bundle)
    students = Population.from_json(state["population"]).students
    return [(member, read_adapter(bundle / state["adapters"][member.slot])) for member in students]


def _fill(run: RunDirectory, step: int, target: Path) -> None:
    state = run.state(step)
    target.mkdir(parents=True)
    for slot, relative in state.adapters.items():
        for path in adapter_files(run.path / relative):
            source = run.verified_file(f"{relative}/{path.name}")
            (target / "adapters" / slot).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target / "adapters" / slot / path.name)
    members = {"population": state.members, "adapters": {slot: f"adapters/{slot}" for slot in state.adapters}}
    artifacts.write_json(target / STATE, members)
    artifacts.write_table(target / "lineage.parquet", "lineage", births(run, step))
    artifacts.write_json(target / SETTINGS, run.settings.model_dump(mode="json"))
    packages = (*PACKAGES, *run.settings.plugins)
    versions = {name: _version(name) for name in packages} | {"python": platform.python_version()}
    if run.settings.engine.kind == "vllm":
        from popu.engine.vllm_settings import installed_version

        versions["vllm"] = installed_version(run.settings.engine)
    artifacts.write_json(target / "versions.json", versions)
    files = sorted(path for path in target.rglob("*") if path.is_file())
    digests = {str(path.relative_to(target)): artifacts.sha256(path) for path in files}
    value = {"step": step, "run": run.run_hash, "schema_version": artifacts.SCHEMA_VERSION, "files": digests}
    artifacts.write_json(target / MANIFEST, value)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except ModuleNotFoundError:
        return None


def read_bundle_manifest(bundle: Path) -> dict[str, Any]:
    """The manifest of a bundle. Raises ArtifactError for another file, or one of another schema version."""
    path = bundle / MANIFEST
    manifest = artifacts.read_json(path)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise ArtifactError(f"{path}: expected the manifest of a bundle, found another file")
    artifacts.check_version(path, manifest.get("schema_version"))
    return manifest


def check_bundle(bundle: Path) -> dict[str, Any]:
    """A bundle's population.json after comparing every file with the manifest. Raises ArtifactError."""
    manifest = read_bundle_manifest(bundle)
    for name, digest in manifest["files"].items():
        path = bundle / name
        if not path.is_file():
            raise ArtifactError(f"{path}: expected a file of the bundle, found none")
        if artifacts.sha256(path) != digest:
            raise ArtifactError(f"{path}: expected sha256 {digest[:12]}..., found another content")
    value: dict[str, Any] = artifacts.read_json(bundle / STATE)
    return value
