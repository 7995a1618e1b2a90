"""propose: match teachers with students, then every teacher writes its proposals, all types in one call.

With `proposals.source: grammar` no teacher writes: random problems of the domain, a fixed curriculum, take the
proposals' place.

Reads population.json and the buffer of the step before and the teachers' adapters; writes matches.json and
proposals.parquet.
"""

from collections.abc import Sequence
from typing import Any

from popu import artifacts
from popu.config import Run
from popu.domains.domain import Domain, as_reference, domain_of
from popu.engine.base import TransformersEngine
from popu.engine.protocol import Completion, Request
from popu.population.matchmaking import match
from popu.population.member import Population
from popu.rundir import RunDirectory
from popu.seeds import derive_rng
from popu.stages.backend import Backend
from popu.stages.buffer import Buffer, read_buffer
from popu.stages.common import fitting_prompt, population_of, read_member_adapter, request


def propose(run: RunDirectory, step: int, backend: Backend) -> None:
    """See the module."""
    settings = run.settings
    state = run.state(step - 1)
    population = population_of(state)
    rng = derive_rng(settings.seed, step, "match")
    matches = match(population, rng, settings.training.matching.method)
    buffer = read_buffer(run, step - 1)
    engine = backend.engine(settings)
    domain = domain_of(settings.training)
    rows, requests = _plan(settings, domain, step, population, buffer, engine)
    if settings.training.proposals.source == "grammar":
        proposals = _from_grammar(settings, domain, step, rows, engine)
    else:
        adapters = {m.version: read_member_adapter(run, state, m.slot) for m in population.teachers}
        proposals = _rows(engine, rows, engine.generate(requests, adapters, backend.check), step)
    directory = run.step(step)
    matches_path, proposals_path = directory / "matches.json", directory / "proposals.parquet"
    values = [{"teacher": m.teacher_slot, "student": m.student_slot, "p": m.p} for m in matches]
    artifacts.write_json(matches_path, values)
    artifacts.write_table(proposals_path, "proposals", proposals)
    run.finish(step, "propose", [matches_path, proposals_path])


def _plan(
    settings: Run, domain: Domain, step: int, population: Population, buffer: Buffer, engine: TransformersEngine
) -> tuple[list[dict[str, Any]], list[Request]]:
    """One request a prompt, and what its rows will say."""
    wanted = settings.training.proposals
    rows: list[dict[str, Any]] = []
    requests = []
    for teacher in population.teachers:
        for problem_type in settings.training.problem_types:
            for i in range(wanted.prompts_per_type):
                rng = derive_rng(settings.seed, step, "references", teacher.slot, problem_type, i)
                n = 1 if problem_type in domain.borrowing else wanted.n_references
                drawn = buffer.references(n, step - wanted.recent_steps, wanted.recent_share, rng)
                prompt, references = fitting_prompt(engine, domain, problem_type, drawn, settings)
                name = f"{teacher.slot}/{problem_type}/{i}"
                planned = request(settings, name, prompt, teacher.version, wanted.proposals_per_prompt, step, "propose")
                if planned is None:
                    continue
                requests.append(planned)
                rows.append(
                    {
                        "slot": teacher.slot,
                        "member": teacher.id,
                        "problem_type": problem_type,
                        "group": len(rows),
                        "reference_programs": [reference.program for reference in references],
                        "reference_inputs": [reference.input for reference in references],
                        "prompt_tokens": list(prompt),
                    }
                )
    return rows, requests


def _rows(
    engine: TransformersEngine,
    rows: Sequence[dict[str, Any]],
    completions: Sequence[Sequence[Completion]],
    step: int,
) -> list[dict[str, Any]]:
    return [
        {
            **row,
            "proposal_id": proposal_id(step, row["group"], i),
            "completion": engine.decode(completion.tokens),
            "tokens": list(completion.tokens),
            "log_probs": list(completion.log_probs),
            "finish_reason": completion.finish_reason,
        }
        for row, group in zip(rows, completions, strict=True)
        for i, completion in enumerate(group)
    ]


def _from_grammar(
    settings: Run, domain: Domain, step: int, rows: Sequence[dict[str, Any]], engine: TransformersEngine
) -> list[dict[str, Any]]:
    """Proposals that nobody wrote: as many of each type, each a random problem of the domain."""
    proposals = []
    for row in rows:
        for i in range(settings.training.proposals.proposals_per_prompt):
            rng = derive_rng(settings.seed, step, "grammar", row["slot"], row["group"], i)
            problem = domain.sampled(row["problem_type"], rng)
            text = domain.proposal_text(problem)
            shown = [as_reference(problem)] if row["problem_type"] in domain.borrowing else []
            tokens = engine.encode(text)
            proposals.append(
                {
                    **row,
                    "reference_programs": [reference.program for reference in shown],
                    "reference_inputs": [reference.input for reference in shown],
                    "proposal_id": proposal_id(step, row["group"], i),
                    "completion": text,
                    "tokens": list(tokens),
                    "log_probs": [0.0] * len(tokens),
                    "finish_reason": "stop",
                }
            )
    return proposals


def proposal_id(step: int, group: int, i: int) -> str:
    """The name of proposal `i` of a prompt."""
    return f"{step:05d}-p{group:04d}.{i}"
