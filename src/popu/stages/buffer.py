"""The buffer: every distinct valid problem of a run, oldest first.

A step's `buffer.parquet` holds its new problems alone; `buffer_index.parquet` has one short row for every problem so
far. So a step reads the index and the few problems that it uses, however long the run is.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from popu import artifacts
from popu.domains.domain import domain_of
from popu.problems.types import Reference
from popu.rundir import RunDirectory

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Buffer:
    """The buffer after a step; `index` has the columns of table `buffer_index`."""

    run: RunDirectory
    index: Mapping[str, np.ndarray]
    read_steps: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.index["step"])

    @cached_property
    def _drawable(self) -> np.ndarray:
        """Positions of the problems that are drawn."""
        return np.flatnonzero(self.index["drawable"])

    def row(self, position: int) -> dict[str, Any]:
        """A problem by its position. Raises ArtifactError."""
        step = int(self.index["step"][position])
        if step not in self.read_steps:
            self.read_steps[step] = buffer_of_step(self.run, step)
        return self.read_steps[step][int(self.index["row"][position])]

    def ids_by_key(self, keys: Iterable[str]) -> dict[str, str]:
        """The problem ids of those keys that the buffer has. Raises ArtifactError."""
        wanted = np.array([int(key, 16) for key in keys], np.uint64)
        found = np.flatnonzero(np.isin(self.index["problem_key"], wanted))
        rows = [self.row(position) for position in found.tolist()]
        return {row["problem_key"]: row["problem_id"] for row in rows}

    def references(self, n: int, since_step: int, recent_share: float, rng: random.Random) -> list[Reference]:
        """`n` distinct references, each from `since_step` on with chance `recent_share` (see `draw`).

        Problems of types that borrow their program (`code_f`) are not drawn. Raises ArtifactError.
        """
        first_recent = int(np.searchsorted(self.index["step"][self._drawable], since_step))
        positions = draw(len(self._drawable), first_recent, n, recent_share, rng)
        rows = [self.row(int(self._drawable[i])) for i in positions]
        return [Reference(row["program"], row["input"]) for row in rows]


def read_buffer(run: RunDirectory, step: int) -> Buffer:
    """The buffer after a finished step. Raises ArtifactError."""
    path = artifacts.verified(run.step(step), _stage(step), "buffer_index.parquet")
    return Buffer(run, artifacts.read_columns(path, "buffer_index"))


def buffer_of_step(run: RunDirectory, step: int) -> list[dict[str, Any]]:
    """The new problems of a finished step. Raises ArtifactError."""
    return run.table(step, _stage(step), "buffer")


def write_buffer(run: RunDirectory, step: int, before: Buffer | None, rows: Sequence[Row]) -> list[Path]:
    """Writes a step's new problems and the index with them; returns the files."""
    borrowing = domain_of(run.settings.training).borrowing
    new = {
        "step": np.full(len(rows), step, np.int64),
        "row": np.arange(len(rows), dtype=np.int64),
        "problem_key": np.array([int(row["problem_key"], 16) for row in rows], np.uint64),
        "drawable": np.array([row["problem_type"] not in borrowing for row in rows], np.bool_),
    }
    index = {name: np.concatenate([before.index[name], column]) if before else column for name, column in new.items()}
    paths = [run.step(step) / "buffer.parquet", run.step(step) / "buffer_index.parquet"]
    artifacts.write_table(paths[0], "buffer", rows)
    artifacts.write_columns(paths[1], "buffer_index", index)
    return paths


def draw(n_rows: int, first_recent: int, n: int, recent_share: float, rng: random.Random) -> list[int]:
    """`n` distinct positions in 0..n_rows-1 (all, where there are fewer), each uniform over those not drawn yet.

    With chance `recent_share` a position is drawn from `first_recent` on, while any is left there.
    """
    chosen: list[int] = []
    for _ in range(min(n, n_rows)):
        low = first_recent if first_recent < n_rows and rng.random() < recent_share else 0
        taken = sorted(position for position in chosen if position >= low)
        if len(taken) == n_rows - low:
            low, taken = 0, sorted(chosen)
        position = low + rng.randrange(n_rows - low - len(taken))
        for other in taken:
            position += other <= position
        chosen.append(position)
    return chosen


def _stage(step: int) -> str:
    return "verify" if step else "init"
