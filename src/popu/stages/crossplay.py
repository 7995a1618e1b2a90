"""Cross-play of an experiment's runs: reads problems and checkpoints, writes crossplay.parquet beside the runs."""

from collections.abc import Sequence
from pathlib import Path

from popu import artifacts
from popu.config import Run
from popu.errors import ArtifactError
from popu.evaluate.crossplay import Time, cross_play
from popu.problems.types import problem_of
from popu.report.series import find_runs
from popu.rundir import RunDirectory
from popu.seeds import derive_rng
from popu.stages.backend import Backend
from popu.stages.checkpoint import bundle_steps, read_students


def crossplay(experiment: Path, backend: Backend, n_problems: int, samples: int, n_times: int) -> Path:
    """The table of all runs at `n_times` checkpoints each, the last one included. Raises ArtifactError."""
    runs = find_runs(experiment)
    if not runs:
        raise ArtifactError(f"--experiment: expected a directory with runs, found none in {experiment}")
    times = [_time(run, step, n_problems) for run in runs for step in checkpoints(run, n_times)]
    settings: Run = runs[0].settings
    rows = cross_play(backend.engine(settings), backend.executor(settings), settings, times, samples, backend.check)
    path = experiment / "crossplay.parquet"
    artifacts.write_table(path, "crossplay", rows)
    return path


def checkpoints(run: RunDirectory, n: int) -> list[int]:
    """At most `n` steps with a bundle, evenly apart, the last one included."""
    steps = bundle_steps(run)
    return sorted({steps[max(0, round((k + 1) * len(steps) / n) - 1)] for k in range(n)}) if steps else []


def _time(run: RunDirectory, step: int, n_problems: int) -> Time:
    settings = run.settings
    valid: Sequence[dict[str, object]] = [
        row for row in run.table(step, "validate", "problems") if row["status"] == "ok"
    ]
    rng = derive_rng("crossplay", settings.arm, settings.seed, step)
    chosen = rng.sample(valid, min(n_problems, len(valid)))
    return Time(
        settings.arm,
        settings.seed,
        step,
        [(str(row["member"]), problem_of(row)) for row in chosen],
        read_students(run, step),
    )
