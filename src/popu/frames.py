"""A run's tables as pandas frames, for analysis: `load_run(directory).frame("outcomes")`."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from popu.artifacts import read_frame, verified
from popu.config import Run
from popu.errors import ArtifactError
from popu.rundir import RunDirectory

STAGE_OF = {
    "proposals": "propose",
    "problems": "validate",
    "rollouts": "solve",
    "verdicts": "verify",
    "flips": "verify",
    "outcomes": "verify",
    "buffer": "verify",
    "update_metrics": "update",
    "mismatch": "update",
    "lineage": "evolve",
}


class RunFrames:
    """Read access to the tables of one run; every file is compared with its stage's manifest."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run

    @property
    def settings(self) -> Run:
        return self.run.settings

    @property
    def steps(self) -> range:
        """The finished steps, from 1."""
        return range(1, (self.run.last_step() or 0) + 1)

    def frame(
        self, table: str, columns: Sequence[str] | None = None, steps: Sequence[int] | None = None
    ) -> pd.DataFrame:
        """A table of all steps, or of some, one under the other, with `step` as its first column.

        Tables: proposals, problems, rollouts, verdicts, flips (where `rewards.flip_share` is not 0), outcomes, buffer,
        update_metrics, mismatch, lineage (docs/metrics.md).
        Raises ArtifactError where a file is missing or damaged, ValueError for another table.
        """
        if table not in STAGE_OF:
            raise ValueError(f"table: expected one of {', '.join(STAGE_OF)}, found {table!r}")
        frames = []
        for step in self.steps if steps is None else steps:
            path = verified(self.run.step(step), STAGE_OF[table], f"{table}.parquet")
            frame = read_frame(path, table, columns)
            frames.append(frame.drop(columns="step", errors="ignore").assign(step=step))
        if not frames:
            raise ArtifactError(f"{self.run.path}: expected a run with a finished step, found none")
        joined = pd.concat(frames, ignore_index=True)
        return joined[["step", *(name for name in joined.columns if name != "step")]]


def load_run(directory: str | Path) -> RunFrames:
    """The run in a seed directory (`<results>/<experiment>/<arm>-<hash>/seed<k>`). Raises ArtifactError."""
    run = RunDirectory(Path(directory))
    if not (run.path / "run.json").exists():
        raise ArtifactError(f"{run.path}: expected a run's seed directory, found no run.json in it")
    return RunFrames(run)
