"""What became of one proposal, one attempt or one member: plain text for a terminal.

Text that a model wrote is printed with its control characters escaped, so that it cannot write to the terminal.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from popu.errors import ConfigError
from popu.population.member import Population
from popu.population.ratings import lower_bound
from popu.problems.types import pair_lines
from popu.report.lineage import lineage_of
from popu.rundir import RunDirectory

ID = re.compile(r"(\d{5})-[pq](\d{4})\.(\d+)(?:/(\d+))?")
Row = Mapping[str, Any]


def show_problem(run: RunDirectory, name: str) -> str:
    """A proposal by its own or its problem's id: what was asked, written, decided, paid, and how the student fared.

    Raises ConfigError where there is none, ArtifactError for a damaged file.
    """
    step, proposal_id, _ = _parse(name, attempt=False)
    proposal = _one(run.table(step, "propose", "proposals"), "proposal_id", proposal_id, name)
    problem = _one(run.table(step, "validate", "problems"), "proposal_id", proposal_id, name)
    outcome = _one(run.table(step, "verify", "outcomes"), "proposal_id", proposal_id, name)
    attempts = _attempts(run, step, problem["problem_id"])
    lines = [
        f"{problem['problem_type']} of {proposal['member']} at step {step}, for {outcome['student_slot']}",
        f"status   {outcome['status']}{': ' + problem['reason'] if problem['reason'] else ''}",
        f"rho      {_number(outcome['rho'])}",
        f"reward   {_number(outcome['reward'])}",
        f"duplicate of {problem['duplicate_of']}" if problem["duplicate_of"] else "no duplicate",
    ]
    if problem["problem_id"]:
        lines += _block("program", problem["program"])
        lines += [f"  {line}" for line in pair_lines(problem)]
        lines += _block("message", problem["message"]) if problem["message"] else []
        lines += [f"attempts of {outcome['student_slot']}"]
        lines += [f"  {problem['problem_id']}/{row['attempt']}  {_verdict(row)}" for row in attempts]
    else:
        lines += _block("written", proposal["completion"])
    return _printable("\n".join(lines))


def show_rollout(run: RunDirectory, name: str) -> str:
    """An attempt by `<problem>/<attempt>`: what the student answered and what was decided. Raises as `show_problem`."""
    step, proposal_id, attempt = _parse(name, attempt=True)
    problem = _one(run.table(step, "validate", "problems"), "proposal_id", proposal_id, name)
    row = _one(_attempts(run, step, problem["problem_id"]), "attempt", attempt, name)
    lines = [
        f"{row['problem_type']}, attempt {attempt} of {row['member']} at step {step}",
        f"verdict  {_verdict(row)}",
        f"reward   {_number(row['reward'])}",
        f"tokens   {len(row['tokens'])}, finished by {row['finish_reason']}",
        *_block("answer", row["completion"]),
    ]
    return _printable("\n".join(lines))


def show_member(run: RunDirectory, name: str) -> str:
    """A member by its id: birth, parents, ratings, death. Raises as `show_problem`."""
    rows = {row["member"]: row for row in lineage_of(run.path)["members"]}
    if name not in rows:
        raise ConfigError(f"member: expected one of {', '.join(rows)}, found {name!r}")
    row = rows[name]
    lines = [f"{key:12} {_value(value)}" for key, value in row.items()]
    last = run.last_step() or 0
    living = {member.id: member for member in Population.from_json(run.state(last).members).members}
    if name in living:
        lines.append(f"{'bound':12} {lower_bound(living[name]):.2f} after step {last}")
    return _printable("\n".join(lines))


def _parse(name: str, attempt: bool) -> tuple[int, str, int]:
    """Step, proposal id and attempt of an id."""
    found = ID.fullmatch(name)
    if found is None or bool(found[4]) != attempt:
        wanted = "00012-q0003.1/0" if attempt else "00012-q0003.1 or 00012-p0003.1"
        raise ConfigError(f"id: expected one like {wanted}, found {name!r}")
    return int(found[1]), f"{found[1]}-p{found[2]}.{found[3]}", int(found[4] or 0)


def _one(rows: list[dict[str, Any]], key: str, value: Any, name: str) -> dict[str, Any]:
    for row in rows:
        if row[key] == value:
            return row
    raise ConfigError(f"id: expected one of the run, found {name!r}")


def _attempts(run: RunDirectory, step: int, problem_id: str) -> list[dict[str, Any]]:
    """The rollouts on a problem with their verdicts."""
    if not problem_id:
        return []
    pairs = zip(run.table(step, "solve", "rollouts"), run.table(step, "verify", "verdicts"), strict=True)
    return [{**rollout, **verdict} for rollout, verdict in pairs if rollout["problem_id"] == problem_id]


def _block(title: str, text: str) -> Iterator[str]:
    yield title
    yield from (f"  {line}" for line in text.splitlines())


def _verdict(row: Row) -> str:
    return f"{row['verdict']}{': ' + row['reason'] if row['reason'] else ''}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    return "-" if value in (None, [], ()) else ", ".join(value) if isinstance(value, list | tuple) else str(value)


def _printable(text: str) -> str:
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)
