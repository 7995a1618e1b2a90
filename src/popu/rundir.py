"""A run's directory: `<results>/<experiment>/<arm>-<hash>/seed<k>`, its settings, steps and state.

A step's directory holds each stage's files and manifest. The state after step n is `population.json` of step n: the
members, and where the adapter and the optimizer state of every slot lie.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from popu import artifacts
from popu.config import Run, run_id
from popu.errors import ArtifactError, ConfigError

SETTINGS = "run.json"
STATE = "population.json"


@dataclass(frozen=True)
class State:
    """The population after a step: members as JSON (see `population.member`), files relative to the run directory."""

    members: dict[str, Any]
    adapters: dict[str, str]
    optimizers: dict[str, str | None]


@dataclass(frozen=True)
class RunDirectory:
    """Paths and checked access to the files of one run."""

    path: Path

    @cached_property
    def settings(self) -> Run:
        """The run's resolved config. Raises ArtifactError or ConfigError."""
        try:
            return Run.model_validate(artifacts.read_json(self.path / SETTINGS))
        except ArtifactError:
            raise
        except ValueError as error:
            raise ConfigError(f"{self.path / SETTINGS}: expected the settings of a run, found: {error}") from error

    @cached_property
    def run_hash(self) -> str:
        return run_id(self.settings)

    def create(self, settings: Run) -> None:
        """Stores the settings; a directory that was made with others is refused.

        Run length and checkpoint spacing may grow: they change no byte of a step. Raises ConfigError.
        """
        path = self.path / SETTINGS
        if path.exists():
            stored = Run.model_validate(artifacts.read_json(path))
            if run_id(stored) != run_id(settings) or stored.seed != settings.seed:
                raise ConfigError(f"{path}: expected the settings of run {run_id(settings)}, found {run_id(stored)}")
            if stored == settings:
                return
        artifacts.write_json(path, settings.model_dump(mode="json"))

    def step(self, number: int) -> Path:
        return self.path / f"step{number:05d}"

    def is_done(self, number: int, stage: str) -> bool:
        """Whether the stage is finished; a manifest of another run raises ArtifactError."""
        if not artifacts.manifest_path(self.step(number), stage).exists():
            return False
        found = artifacts.read_manifest(self.step(number), stage).get("run")
        if found != self.run_hash:
            path = artifacts.manifest_path(self.step(number), stage)
            raise ArtifactError(f"{path}: expected a stage of run {self.run_hash}, found one of {found}")
        return True

    def finish(self, number: int, stage: str, outputs: Sequence[Path]) -> None:
        """Writes the stage's manifest: from now on it is finished."""
        artifacts.write_manifest(self.step(number), stage, self.run_hash, outputs)

    def table(self, number: int, stage: str, name: str) -> list[dict[str, Any]]:
        """Rows of a table that a finished stage wrote. Raises ArtifactError."""
        return artifacts.read_table(artifacts.verified(self.step(number), stage, f"{name}.parquet"), name)

    def json(self, number: int, stage: str, name: str) -> Any:
        """A JSON file that a finished stage wrote. Raises ArtifactError."""
        return artifacts.read_json(artifacts.verified(self.step(number), stage, name))

    def state(self, number: int) -> State:
        """The state after a step. Raises ArtifactError."""
        stage = "evolve" if number else "init"
        value = self.json(number, stage, STATE)
        try:
            return State(value["population"], value["adapters"], value["optimizers"])
        except (KeyError, TypeError) as error:
            path = self.step(number) / STATE
            raise ArtifactError(f"{path}: expected population, adapters and optimizers, found {error}") from error

    def write_state(self, number: int, state: State) -> Path:
        path = self.step(number) / STATE
        value = {"population": state.members, "adapters": state.adapters, "optimizers": state.optimizers}
        artifacts.write_json(path, value)
        return path

    def verified_file(self, relative: str) -> Path:
        """A file of the run that some stage's manifest lists, compared with it. Raises ArtifactError."""
        directory, _, name = relative.partition("/")
        number = int(directory.removeprefix("step"))
        stages = ("init",) if number == 0 else ("update", "evolve")
        for stage in stages:
            if artifacts.manifest_path(self.step(number), stage).exists():
                manifest = artifacts.read_manifest(self.step(number), stage)
                if name in manifest["outputs"]:
                    return artifacts.verified(self.step(number), stage, name)
        raise ArtifactError(f"{self.path / relative}: expected a file of a finished stage, found none")

    def heldout_path(self, number: int) -> Path:
        """The held-out table of the members after a step."""
        return self.path / "heldout" / f"step{number:05d}.parquet"

    def dynamics_path(self, number: int) -> Path:
        """The directory of the metrics of the steps up to this one."""
        return self.path / "dynamics" / f"step{number:05d}"

    def last_step(self) -> int | None:
        """The last finished step, None before `init` is."""
        done = [int(p.parent.name.removeprefix("step")) for p in self.path.glob("step*/evolve.json")]
        if done:
            return max(done)
        return 0 if artifacts.manifest_path(self.step(0), "init").exists() else None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the run's lock, which dies with its holder; waits where another stage of the run is at work."""
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def settings_from_json(text: str) -> Run:
    """The settings that the workflow passes on a command line. Raises ConfigError."""
    try:
        return Run.model_validate(json.loads(text))
    except ValueError as error:
        raise ConfigError(f"--settings: expected the settings of a run as JSON, found: {error}") from error
