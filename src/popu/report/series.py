"""The runs of an experiment and their figures per step."""

from pathlib import Path
from typing import Any

from popu.artifacts import read_json, read_table
from popu.diagnostics.dynamics import ALL, measure_run
from popu.rundir import RunDirectory
from popu.stages.call import STEP_STAGES


def find_runs(results: Path) -> list[RunDirectory]:
    """The runs below a directory, by path."""
    return [RunDirectory(path.parent) for path in sorted(Path(results).rglob("run.json")) if _is_run(path)]


def _is_run(path: Path) -> bool:
    return "checkpoints" not in path.parts


def metric_rows(run: RunDirectory) -> list[dict[str, Any]]:
    """A row a finished step: `step` and its metrics over all problem types (docs/metrics.md).

    Read from the run's table of dynamics where there is one of its last step, else computed.
    """
    last = run.last_step() or 0
    tidy = dynamics_rows(run, "dynamics") or measure_run(run, last).steps
    rows: dict[int, dict[str, Any]] = {step: {"step": step} for step in range(1, last + 1)}
    for row in tidy:
        if row["problem_type"] == ALL:
            rows[row["step"]][row["metric"]] = row["value"]
    return list(rows.values())


def heldout_rows(run: RunDirectory) -> list[dict[str, Any]]:
    """The held-out table of a run's last step; empty where it was not scored."""
    path = run.heldout_path(run.last_step() or 0)
    return read_table(path, "heldout") if path.exists() else []


def dynamics_rows(run: RunDirectory, table: str) -> list[dict[str, Any]]:
    """`dynamics`, `member_dynamics`, `pairs` or `weights` up to a run's last step; empty where not made."""
    path = run.dynamics_path(run.last_step() or 0) / f"{table}.parquet"
    return read_table(path, table) if path.exists() else []


def step_seconds(run: RunDirectory, step: int) -> float | None:
    """Measured time of a step's stages; None where it was not recorded."""
    path = run.step(step) / "timings.json"
    if not path.exists():
        return None
    timings = read_json(path)
    return float(sum(timings.get(f"{stage}_s", 0.0) for stage in STEP_STAGES))
