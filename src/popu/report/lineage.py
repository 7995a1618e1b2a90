"""Who descends from whom in a run: for a table in the terminal and as JSON."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from popu.population.lineage import histories, operator_fates
from popu.population.member import Population
from popu.rundir import RunDirectory


def births(run: RunDirectory, last: int) -> list[dict[str, Any]]:
    """The births of all steps up to `last`. Raises ArtifactError."""
    return [row for step in range(1, last + 1) for row in run.table(step, "evolve", "lineage")]


def lineage_of(path: Path) -> dict[str, Any]:
    """`run`, `step`, `members` (`histories`) and `operators` (`operator_fates`). Raises ArtifactError for no run."""
    run = RunDirectory(path)
    _ = run.settings  # names what is missing where this is no run
    step = run.last_step() or 0
    founders = Population.from_json(run.state(0).members)
    members = histories(births(run, step), founders, step)
    return {"run": str(path), "step": step, "members": members, "operators": operator_fates(members)}


def last_ratings(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Member -> mu after the last step that it lived, from rows of `member_dynamics` in the order of steps."""
    return {row["member"]: row["value"] for row in rows if row["metric"] == "mu"}


def print_lineage(result: dict[str, Any]) -> None:
    """The lineage as two tables a terminal shows."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    narrow = [Column(name, min_width=len(name)) for name in ("parents", "founders", "children")]
    members = Table("member", "lived", "age", Column("operator", no_wrap=True), *narrow)
    for row in result["members"]:
        cells = (
            row["member"],
            f"{row['born_step']}-{'' if row['died_step'] is None else row['died_step']}",
            *(str(row["age"]), row["operator"] or "-"),
            *(" ".join(row[name]) or "-" for name in ("parents", "founders", "children")),
        )
        members.add_row(*map(Text, cells))
    operators = Table(Column("operator", no_wrap=True), "births", "alive", "mean age at death", "became parents")
    for row in result["operators"]:
        age = "-" if row["mean_age_at_death"] is None else f"{row['mean_age_at_death']:.1f}"
        cells = (row["operator"], str(row["births"]), str(row["alive"]), age, str(row["parents"]))
        operators.add_row(*map(Text, cells))
    console = Console(width=None)
    console.print(members)
    console.print(operators)
