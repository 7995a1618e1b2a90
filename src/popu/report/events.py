"""The metrics of an experiment as TensorBoard event files: `tensorboard --logdir <directory>` shows them."""

from collections.abc import Iterator
from pathlib import Path

from popu.diagnostics.dynamics import ALL
from popu.errors import ArtifactError, ConfigError
from popu.report.series import dynamics_rows, find_runs
from popu.rundir import RunDirectory

Scalar = tuple[str, float, int]
"""Tag, value, step."""


def scalars(run: RunDirectory) -> Iterator[Scalar]:
    """The run's tables of dynamics (docs/metrics.md): `steps/<metric>`, `<problem type>/<metric>`,
    `members/<metric>/<slot>` and `weights/<measure>/<slot>`."""
    for row in dynamics_rows(run, "dynamics"):
        group = "steps" if row["problem_type"] == ALL else row["problem_type"]
        yield f"{group}/{row['metric']}", row["value"], row["step"]
    for row in dynamics_rows(run, "member_dynamics"):
        yield f"members/{row['metric']}/{row['slot']}", row["value"], row["step"]
    for row in dynamics_rows(run, "weights"):
        for name in ("norm", "distance", "effective_rank"):
            if row[name] is not None:
                yield f"weights/{name}/{row['slot']}", row[name], row["step"]


def write_events(experiment: Path, out: Path) -> int:
    """A directory a run, `<arm>-<hash>/seed<k>`; returns the number of scalars.

    Raises ArtifactError where no run has tables of dynamics, ConfigError where `out` holds event files: a second set
    would be drawn over the first.
    """
    from tensorboardX import SummaryWriter

    if any(out.rglob("events.out.tfevents.*")):
        raise ConfigError(f"--out: expected a directory without event files, found some in {out}")
    n = 0
    for run in find_runs(experiment):
        with SummaryWriter(str(out / run.path.relative_to(experiment))) as writer:
            for tag, value, step in scalars(run):
                writer.add_scalar(tag, value, step)
                n += 1
    if not n:
        raise ArtifactError(f"--experiment: expected runs with tables of dynamics, found none in {experiment}")
    return n
