"""solve: every matched student tries its teacher's valid problems, all students in one call.

Reads problems, matches and the students' adapters; writes rollouts.parquet: a row an attempt. A problem whose prompt
leaves no room for an answer gets no rollouts; `verify` calls it too large.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from popu import artifacts
from popu.domains.domain import domain_of
from popu.engine.protocol import Request
from popu.population.adapter import Adapter
from popu.problems.types import problem_of
from popu.rundir import RunDirectory
from popu.stages.backend import Backend
from popu.stages.common import population_of, read_member_adapter, request

if TYPE_CHECKING:
    from popu.engine.base import TransformersEngine

Planned = tuple[Mapping[str, Any], str, str, Request]
"""A row of problems, the slot and the id of who tries it, and the request."""


def solve(run: RunDirectory, step: int, backend: Backend) -> None:
    """See the module."""
    settings = run.settings
    state = run.state(step - 1)
    population = population_of(state)
    opponents = {row["teacher"]: row["student"] for row in run.json(step, "propose", "matches.json")}
    problems = [row for row in run.table(step, "validate", "problems") if row["status"] == "ok"]
    engine, domain = backend.engine(settings), domain_of(settings.training)
    n = settings.training.rollouts.per_problem
    planned = []
    for row in problems:
        student = population.by_slot(opponents[row["slot"]])
        prompt = engine.encode(domain.solve_prompt(problem_of(row), settings.base.prompt_style))
        wanted = request(settings, row["problem_id"], prompt, student.version, n, step, "solve")
        if wanted is not None:
            planned.append((row, student.slot, student.id, wanted))
    adapters = {m.version: read_member_adapter(run, state, m.slot) for m in population.students}
    path = run.step(step) / "rollouts.parquet"
    artifacts.write_table(path, "rollouts", rollout_rows(engine, planned, adapters, backend.check))
    run.finish(step, "solve", [path])


def rollout_rows(
    engine: "TransformersEngine", planned: Sequence[Planned], adapters: Mapping[str, Adapter], check: Callable[[], None]
) -> list[dict[str, Any]]:
    """A row an attempt, in the order of the plan; all are generated in one call."""
    completions = engine.generate([wanted for *_, wanted in planned], adapters, check)
    return [
        {
            "problem_id": row["problem_id"],
            "problem_type": row["problem_type"],
            "teacher_slot": row["slot"],
            "slot": slot,
            "member": member,
            "attempt": i,
            "completion": engine.decode(completion.tokens),
            "prompt_tokens": list(wanted.prompt),
            "tokens": list(completion.tokens),
            "log_probs": list(completion.log_probs),
            "finish_reason": completion.finish_reason,
        }
        for (row, slot, member, wanted), group in zip(planned, completions, strict=True)
        for i, completion in enumerate(group)
    ]
