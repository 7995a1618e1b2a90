"""Per-step figures of a run, from its artifacts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from popu.artifacts import read_json
from popu.rundir import RunDirectory


def find_runs(results: Path) -> list[RunDirectory]:
    """The runs below a directory, by path."""
    return [RunDirectory(path.parent) for path in sorted(Path(results).rglob("run.json")) if _is_run(path)]


def _is_run(path: Path) -> bool:
    return "checkpoints" not in path.parts


def step_row(run: RunDirectory, step: int) -> dict[str, Any]:
    """Shares and means of one finished step; None where nothing was valid.

    `solve_rate` is the mean rho of valid problems, `mid_share` the share with 0 < rho < 1, `duplicate_share` and
    `unique_share` (distinct normal forms) are of valid problems, `n_nodes` is over programs that a teacher wrote
    (`code_f` programs come from the buffer and are left out).
    """
    problems = run.table(step, "validate", "problems")
    outcomes = run.table(step, "verify", "outcomes")
    verdicts = run.table(step, "verify", "verdicts")
    valid = [row for row in problems if row["status"] == "ok"]
    rhos = [row["rho"] for row in outcomes if row["rho"] is not None]
    written = [row["n_nodes"] for row in valid if row["problem_type"] != "code_f"]
    return {
        "step": step,
        "n_proposals": len(problems),
        "n_rollouts": len(verdicts),
        "valid_share": _mean([row["status"] == "ok" for row in problems]),
        "solve_rate": _mean(rhos),
        "mid_share": _mean([0 < rho < 1 for rho in rhos]),
        "duplicate_share": _mean([bool(row["duplicate_of"]) for row in valid]),
        "unique_share": len({row["program_key"] for row in valid}) / len(valid) if valid else None,
        "n_nodes": _mean(written),
        "teacher_reward": _mean([row["reward"] for row in outcomes if row["reward"] is not None]),
        "student_reward": _mean([row["reward"] for row in verdicts if row["reward"] is not None]),
    }


def series(run: RunDirectory) -> list[dict[str, Any]]:
    """`step_row` of every finished step."""
    return [step_row(run, step) for step in range(1, (run.last_step() or 0) + 1)]


def step_seconds(run: RunDirectory, step: int) -> float | None:
    """Measured time of a step's stages; None where it was not recorded."""
    path = run.step(step) / "timings.json"
    return sum(value for name, value in read_json(path).items() if name.endswith("_s")) if path.exists() else None


def _mean(values: Sequence[Any]) -> float | None:
    return sum(values) / len(values) if values else None
