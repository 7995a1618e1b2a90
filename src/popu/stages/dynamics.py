"""dynamics: the metrics of all steps up to this one, from the tables of the steps and the bundles of its checkpoints.

Writes dynamics/step<n>/dynamics.parquet, member_dynamics.parquet, pairs.parquet and weights.parquet. Needs neither base
nor verifier.
"""

from typing import Any

from popu import artifacts
from popu.diagnostics.dynamics import measure_run
from popu.evolution.weights import measure_weights
from popu.population.adapter import read_adapter
from popu.population.member import Population
from popu.rundir import RunDirectory
from popu.stages.backend import Backend
from popu.stages.checkpoint import bundle_path, bundle_steps, check_bundle


def dynamics(run: RunDirectory, step: int, backend: Backend) -> None:
    """See the module."""
    made = measure_run(run, step, backend.check)
    weights = [row for number in bundle_steps(run) if number <= step for row in _weights(run, number, backend)]
    directory = run.dynamics_path(step)
    artifacts.write_table(directory / "weights.parquet", "weights", weights)
    artifacts.write_table(directory / "pairs.parquet", "pairs", made.pairs)
    artifacts.write_table(directory / "member_dynamics.parquet", "member_dynamics", made.members)
    artifacts.write_table(directory / "dynamics.parquet", "dynamics", made.steps)


def _weights(run: RunDirectory, step: int, backend: Backend) -> list[dict[str, Any]]:
    """Of the members of one bundle. Raises ArtifactError for a damaged one."""
    backend.check()
    bundle = bundle_path(run, step)
    state = check_bundle(bundle)
    adapters = {slot: read_adapter(bundle / relative) for slot, relative in state["adapters"].items()}
    return measure_weights(step, Population.from_json(state["population"]).members, adapters)
