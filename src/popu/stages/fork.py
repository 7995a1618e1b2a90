"""A new run that begins where another one stood at a checkpoint, under other settings.

Everything up to that step is copied: tables, ratings, lineage, buffer. Adapters come from the bundle; optimizer states
are fresh, as a bundle has none. The cheapest causal test: the same population with evolution on and off.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from popu import artifacts
from popu.config import Run, Training, parse_training, run_id
from popu.errors import ArtifactError, ConfigError
from popu.rundir import STATE, RunDirectory
from popu.stages.call import STEP_STAGES
from popu.stages.checkpoint import MANIFEST, bundle_path, check_bundle

FIXED = ("population", "lora", "seed_problems", "problem_types")  # what the copied state was made with
FORKED = "forked"  # where the copied adapters lie in the step's directory


def fork(source: RunDirectory, step: int, arm: str, changes: Sequence[str]) -> tuple[RunDirectory, dict[str, Any]]:
    """Makes the run beside its source's arm; returns it, and the arm's lines for a config.

    `changes` are `key=value` below `training`, values in YAML. Raises ConfigError for a wrong change, a step without a
    checkpoint or a run that exists, ArtifactError for a damaged checkpoint.
    """
    bundle = bundle_path(source, step)
    if not (bundle / MANIFEST).is_file():
        found = ", ".join(sorted(path.name for path in bundle.parent.glob("step*"))) or "none"
        raise ConfigError(f"--at: expected a checkpoint of {source.path}, found no step {step} among {found}")
    state = check_bundle(bundle)
    lines = _lines(changes)
    settings = _changed(source.settings, arm, lines)
    target = RunDirectory(source.path.parents[1] / run_id(settings) / source.path.name)
    if target.path.exists():
        raise ConfigError(f"--arm: expected a new run, found {target.path}")
    temporary = target.path.with_name(f".{target.path.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    made = RunDirectory(temporary)
    made.create(settings)
    for number in range(step + 1):
        _copy_step(source, made, number)
    _enter(made, step, bundle, state)
    temporary.rename(target.path)
    return target, lines


def _lines(changes: Sequence[str]) -> dict[str, Any]:
    """`["a.b=1"]` as `{"a": {"b": 1}}`."""
    lines: dict[str, Any] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set: expected key=value, found {change!r}")
        *parents, last = key.removeprefix("training.").split(".")
        place = lines
        for name in parents:
            place = place.setdefault(name, {})
        try:
            place[last] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ConfigError(f"--set: expected a value in YAML, found {value!r}: {error}") from error
    return lines


def _changed(settings: Run, arm: str, lines: Mapping[str, Any]) -> Run:
    training: Training = parse_training(settings.training, lines, "--set ")
    for name in FIXED:
        if getattr(training, name) != getattr(settings.training, name):
            raise ConfigError(f"--set: expected settings that the checkpoint allows, found another {name}")
    if not arm or not all(c.isalnum() or c == "_" for c in arm):
        raise ConfigError(f"--arm: expected a name of letters, digits and _, found {arm!r}")
    return settings.model_copy(update={"arm": arm, "training": training, "plugins": training.used_plugins()})


def _copy_step(source: RunDirectory, target: RunDirectory, number: int) -> None:
    """Tables and JSON files of a step; its manifests name the new run."""
    target.step(number).mkdir(parents=True)
    for path in sorted(source.step(number).iterdir()):
        if path.is_file() and not path.name.startswith("."):
            shutil.copy2(path, target.step(number) / path.name)
    for stage in STEP_STAGES if number else ("init",):
        path = artifacts.manifest_path(target.step(number), stage)
        if not path.exists():
            raise ArtifactError(f"{source.step(number)}: expected a finished step, found no {stage}.json")
        artifacts.write_json(path, {**artifacts.read_manifest(target.step(number), stage), "run": target.run_hash})


def _enter(run: RunDirectory, step: int, bundle: Path, state: Mapping[str, Any]) -> None:
    """The bundle's adapters as the state after `step`."""
    directory = run.step(step)
    shutil.copytree(bundle / "adapters", directory / FORKED)
    slots = list(state["adapters"])
    adapters = {slot: f"{directory.name}/{FORKED}/{slot}" for slot in slots}
    value = {"population": state["population"], "adapters": adapters, "optimizers": dict.fromkeys(slots)}
    artifacts.write_json(directory / STATE, value)
    kept = [directory / STATE, *(path for path in (directory / FORKED).rglob("*") if path.is_file())]
    lineage = directory / "lineage.parquet"
    run.finish(step, "evolve" if step else "init", [*kept, *([lineage] if lineage.exists() else [])])


def config_lines(arm: str, lines: Mapping[str, Any]) -> str:
    """What a config needs to go on with the run."""
    return f"arms: {json.dumps({arm: lines})}"
