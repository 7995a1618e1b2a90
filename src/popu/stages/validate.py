"""validate: check every proposal, programs in the sandbox; what is valid becomes a problem, duplicates are named.

Reads proposals and the buffer after the step before; writes problems.parquet: a row a proposal.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from popu import artifacts
from popu.domains.domain import Domain, domain_of
from popu.problems.complexity import NO_PROGRAM
from popu.problems.types import Proposal, Validated
from popu.rundir import RunDirectory
from popu.sandbox.verdicts import Status
from popu.stages.backend import Backend
from popu.stages.buffer import read_buffer

IdsByKey = Callable[[Iterable[str]], Mapping[str, str]]


def validate_stage(run: RunDirectory, step: int, backend: Backend) -> None:
    """See the module."""
    proposals = run.table(step, "propose", "proposals")
    buffer = read_buffer(run, step - 1)
    domain = domain_of(run.settings.training)
    results = domain.validate([proposal_of(domain, row) for row in proposals], backend.executor(run.settings))
    path = run.step(step) / "problems.parquet"
    artifacts.write_table(path, "problems", problem_rows(domain, proposals, results, buffer.ids_by_key))
    run.finish(step, "validate", [path])


def proposal_of(domain: Domain, row: Mapping[str, Any]) -> Proposal:
    """What the checks need of a row of proposals."""
    program = row["reference_programs"][0] if row["problem_type"] in domain.borrowing else None
    return Proposal(row["problem_type"], row["completion"], program, row["finish_reason"] == "length")


def problem_rows(
    domain: Domain, proposals: Sequence[Mapping[str, Any]], results: Sequence[Validated], ids_by_key: IdsByKey
) -> list[dict[str, Any]]:
    """A row a proposal; `ids_by_key` gives the ids of the buffer's problems of some keys.

    `duplicate_of` is the first problem of the same normal form: "buffer:<id>", "reference" or the id of a proposal of
    the same step; empty where there is none.
    """
    keys = [domain.problem_key(one.program, one.inputs) if one.status is Status.OK else "" for one in results]
    known = {key: f"buffer:{name}" for key, name in ids_by_key(filter(None, keys)).items()}
    rows = []
    for proposal, result, key in zip(proposals, results, keys, strict=True):
        ok = result.status is Status.OK
        references = zip(proposal["reference_programs"], proposal["reference_inputs"], strict=True)
        is_reference = (
            ok
            and proposal["problem_type"] not in domain.borrowing
            and any(domain.problem_key(program, (given,) if given else ()) == key for program, given in references)
        )
        rows.append(
            {
                **{name: proposal[name] for name in ("proposal_id", "slot", "member", "problem_type", "group")},
                "problem_id": proposal["proposal_id"].replace("-p", "-q") if ok else "",
                "status": str(result.status),
                "reason": result.reason,
                "program": result.program,
                "inputs": list(result.inputs),
                "outputs": list(result.outputs),
                "message": result.message,
                "problem_key": key,
                "program_key": domain.program_key(result.program) if ok else "",
                "duplicate_of": ("reference" if is_reference else known.get(key, "")) if ok else "",
                **(domain.measures(result.program) if ok else NO_PROGRAM),
            }
        )
        if ok:
            known.setdefault(key, proposal["proposal_id"])
    return rows
