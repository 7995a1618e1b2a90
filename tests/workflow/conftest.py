"""The real workflow at small size, in a directory of its own."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

REPO = Path(__file__).resolve().parents[2]

TINY = {
    "experiment": "tiny",
    "seeds": [1],
    "base": {"path": str(REPO / "resources" / "nano")},
    "engine": {"threads": 1},
    "training": {
        "steps": 2,
        "checkpoint_every": 2,
        "population": {"n_teachers": 2, "n_students": 2},
        "proposals": {"prompts_per_type": 1, "proposals_per_prompt": 3},
        "rollouts": {"per_problem": 3},
        "evolution": {"every": 2},
        "seed_problems": {"count": 12},
    },
    "heldout": {"tasks_per_level": 1, "samples": 2},
    "crossplay": {"problems": 3, "samples": 2, "times": 1},
    "arms": {"pair": {}},
}


MEASURED = ("timings.json", ".lock", "index.html", "cost.csv", "cost.md", "cost.tex")  # they hold seconds


class Workspace:
    """A directory with a config, in which Snakemake runs."""

    def __init__(self, path: Path, config: dict) -> None:
        self.path = path
        self.write(config)

    def write(self, config: dict) -> None:
        (self.path / "config.yaml").write_text(yaml.safe_dump(config))

    def command(self, *arguments: str) -> list[str]:
        where = ("-s", str(REPO / "Snakefile"), "--directory", str(self.path))
        return [sys.executable, "-m", "snakemake", *arguments, *where, "--cores", "2", "--configfile", "config.yaml"]

    def environment(self) -> dict[str, str]:
        bin_directory = str(Path(sys.executable).parent)
        return {
            **os.environ,
            "PATH": f"{bin_directory}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPO / "src"),
            "XDG_RUNTIME_DIR": str(self.path),
        }

    def start(self, *arguments: str) -> subprocess.Popen:
        with open(self.path / "snakemake.log", "ab") as log:
            return subprocess.Popen(
                self.command(*arguments),
                cwd=self.path,
                env=self.environment(),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            self.command(*arguments), cwd=self.path, env=self.environment(), capture_output=True, text=True, timeout=600
        )

    def popu(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-m", "popu", *arguments],
            cwd=self.path,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=300,
        )

    def run_directory(self, arm: str = "pair") -> Path:
        (path,) = (self.path / "results" / "tiny").glob(f"{arm}-*/seed1")
        return path

    def digests(self) -> dict[str, str]:
        """sha256 of every artifact; what is measured or written for people only is left out."""
        files = sorted(path for path in (self.path / "results").rglob("*") if path.is_file())
        return {
            str(path.relative_to(self.path)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
            if path.name not in MEASURED and "logs" not in path.parts
        }


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
