"""Where every run stands: for a table in the terminal and as JSON."""

from pathlib import Path
from typing import Any

from popu.diagnostics.dynamics import read_step, step_metrics
from popu.errors import ArtifactError
from popu.frames import RunFrames
from popu.population.member import Population
from popu.population.ratings import lower_bound
from popu.report.series import find_runs, step_seconds
from popu.rundir import RunDirectory

RECENT_STEPS = 5  # whose times predict the time left


def run_statuses(results: Path) -> list[dict[str, Any]]:
    """One row a run below `results`. Raises ArtifactError where there is none."""
    runs = find_runs(results)
    if not runs:
        raise ArtifactError(f"--results: expected a directory with runs, found none in {results}")
    return [run_status(run) for run in runs]


def run_status(run: RunDirectory) -> dict[str, Any]:
    """Step, steps to go, predicted seconds left, last step's shares, and the ratings by slot."""
    total = run.settings.training.steps
    step = run.last_step()
    row: dict[str, Any] = {
        "run": str(run.path),
        "arm": run.settings.arm,
        "seed": run.settings.seed,
        "step": step,
        "steps": total,
        "steps_to_go": max(0, total - (step or 0)),
    }
    times = [step_seconds(run, n) for n in range(max(1, (step or 0) - RECENT_STEPS + 1), (step or 0) + 1)]
    known = [seconds for seconds in times if seconds is not None]
    row["seconds_left"] = row["steps_to_go"] * sum(known) / len(known) if known else None
    if step:
        last = step_metrics(read_step(RunFrames(run), step), borrowing=())  # of which nothing is shown
        row |= {name: last.get(name) for name in ("solve_rate", "valid_share", "unique_share", "duplicate_share")}
    if step is not None:
        members = Population.from_json(run.state(step).members).members
        row["ratings"] = {
            m.slot: {"member": m.id, "mu": m.mu, "sigma": m.sigma, "lower_bound": lower_bound(m)} for m in members
        }
    return row


def print_table(rows: list[dict[str, Any]]) -> None:
    """The statuses as one table a terminal shows."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("arm", "seed", "step", "left", "solve", "valid", "unique", "members (mu, best bound first)")
    for row in rows:
        ratings = sorted(row.get("ratings", {}).values(), key=lambda item: -item["lower_bound"])
        cells = (
            row["arm"],
            str(row["seed"]),
            f"{row['step'] if row['step'] is not None else '-'}/{row['steps']}",
            _duration(row["seconds_left"]) if row["steps_to_go"] else "done",
            *(_share(row.get(name)) for name in ("solve_rate", "valid_share", "unique_share")),
            " ".join(f"{item['member']} {item['mu']:.1f}" for item in ratings),
        )
        table.add_row(*(Text(cell) for cell in cells))
    Console(width=None).print(table)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
