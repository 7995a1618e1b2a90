"""A directory with a config in which the real workflow runs, and the processes that it has there.

Needs a checkout: Snakefile and rules are not part of the installed package.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import yaml

from popu.errors import ConfigError

REPOSITORY = Path(__file__).parents[3]
MEASURED = ("timings.json", ".lock", "index.html", "cost.csv", "cost.md", "cost.tex")  # they hold seconds


class Workspace:
    """One experiment by itself: its directory is Snakemake's, and its worker is nobody else's.

    Raises ConfigError outside a checkout.
    """

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        if not (REPOSITORY / "Snakefile").is_file():
            raise ConfigError(f"expected a checkout with a Snakefile, found none at {REPOSITORY}")
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.write(config)

    def write(self, config: Mapping[str, Any]) -> None:
        (self.path / "config.yaml").write_text(yaml.safe_dump(dict(config)))

    def command(self, *arguments: str) -> list[str]:
        where = ("-s", str(REPOSITORY / "Snakefile"), "--directory", str(self.path))
        return [sys.executable, "-m", "snakemake", *arguments, *where, "--cores", "2", "--configfile", "config.yaml"]

    def environment(self) -> dict[str, str]:
        """The rules find this interpreter by PATH; the worker's socket lies in the workspace."""
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY / "src"),
            "XDG_RUNTIME_DIR": str(self.path),
        }

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Snakemake as the leader of a process group, its output appended to snakemake.log."""
        with open(self.path / "snakemake.log", "ab") as log:
            return subprocess.Popen(
                self.command(*arguments),
                cwd=self.path,
                env=self.environment(),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._completed(self.command(*arguments))

    def popu(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._completed([sys.executable, "-m", "popu", *arguments])

    def _completed(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.path, env=self.environment(), capture_output=True, text=True, timeout=600
        )

    def digests(self) -> dict[str, str]:
        """sha256 of every artifact by relative path; what is measured or written for people only is left out."""
        files = sorted(path for path in (self.path / "results").rglob("*") if path.is_file())
        return {
            str(path.relative_to(self.path)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
            if path.name not in MEASURED and "logs" not in path.parts
        }

    def processes(self) -> list[psutil.Process]:
        """Snakemake, stages, worker and fork servers of this workspace, and what they started; the caller is left out.

        A fork server has no environment: it is found as a descendant.
        """
        found: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            try:
                if process.environ().get("XDG_RUNTIME_DIR") == str(self.path):
                    found |= {one.pid: one for one in [process, *process.children(recursive=True)]}
            except psutil.Error:
                continue
        found.pop(os.getpid(), None)
        return list(found.values())
