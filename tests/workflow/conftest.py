"""The real workflow at small size, in a directory of its own."""

import os
from pathlib import Path

import pytest

from popu.endurance import workspace as endurance
from popu.endurance.torture import TINY
from popu.endurance.workspace import REPOSITORY as REPO  # noqa: F401  (of the tests beside)


class Workspace(endurance.Workspace):
    """A directory with a config, in which Snakemake runs."""

    @property
    def plugins(self) -> Path:
        """Distributions that lie here are installed."""
        return self.path / "plugins"

    def environment(self) -> dict[str, str]:
        inherited = super().environment()
        return {**inherited, "PYTHONPATH": f"{inherited['PYTHONPATH']}{os.pathsep}{self.plugins}"}

    def run_directory(self, arm: str = "pair") -> Path:
        (path,) = (self.path / "results" / "tiny").glob(f"{arm}-*/seed1")
        return path


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """An uninterrupted run. Tests must not change it."""
    workspace = Workspace(tmp_path_factory.mktemp("finished"), TINY)
    result = workspace.run("train_all")
    assert result.returncode == 0, result.stderr[-3000:]
    yield workspace
    workspace.popu("worker", "stop")


@pytest.fixture()
def workspace(tmp_path):
    """A fresh directory with the tiny config."""
    workspace = Workspace(tmp_path, TINY)
    yield workspace
    workspace.popu("worker", "stop")


@pytest.fixture()
def copied(finished, tmp_path):
    """A copy of the finished run, to be damaged."""
    import shutil

    shutil.copytree(finished.path / "results", tmp_path / "results")
    workspace = Workspace(tmp_path, TINY)
    yield workspace
    workspace.popu("worker", "stop")
