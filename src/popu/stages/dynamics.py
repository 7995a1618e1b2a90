"""dynamics: the metrics of all steps up to this one, from the tables of the steps.

Writes dynamics/step<n>/dynamics.parquet, member_dynamics.parquet and pairs.parquet. Needs neither base nor verifier.
"""

from popu import artifacts
from popu.diagnostics.dynamics import measure_run
from popu.rundir import RunDirectory
from popu.stages.backend import Backend


def dynamics(run: RunDirectory, step: int, backend: Backend) -> None:
    """See the module."""
    made = measure_run(run, step, backend.check)
    directory = run.dynamics_path(step)
    artifacts.write_table(directory / "pairs.parquet", "pairs", made.pairs)
    artifacts.write_table(directory / "member_dynamics.parquet", "member_dynamics", made.members)
    artifacts.write_table(directory / "dynamics.parquet", "dynamics", made.steps)
