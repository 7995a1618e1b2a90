"""validate: run every proposal in the sandbox; what is valid becomes a problem, duplicates are named.

Reads proposals and the buffer after the step before; writes problems.parquet: a row a proposal.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from popu import artifacts
from popu.diagnostics.complexity import NO_PROGRAM, complexity
from popu.problems.check import Proposal, Validated, validate
from popu.problems.duplicates import problem_key, program_key
from popu.rundir import RunDirectory
from popu.sandbox.verdicts import Status
from popu.stages.backend import Backend
from popu.stages.buffer import read_buffer

IdsByKey = Callable[[Iterable[str]], Mapping[str, str]]


def validate_stage(run: RunDirectory, step: int, backend: Backend) -> None:
    """See the module."""
    proposals = run.table(step, "propose", "proposals")
    buffer = read_buffer(run, step - 1)
    results = validate([proposal_of(row) for row in proposals], backend.executor(run.settings))
    path = run.step(step) / "problems.parquet"
    artifacts.write_table(path, "problems", problem_rows(proposals, results, buffer.ids_by_key))
    run.finish(step, "validate", [path])


def proposal_of(row: Mapping[str, Any]) -> Proposal:
    """What the checks need of a row of proposals."""
    program = row["reference_programs"][0] if row["problem_type"] == "code_f" else None
    return Proposal(row["problem_type"], row["completion"], program, row["finish_reason"] == "length")


def problem_rows(
    proposals: Sequence[Mapping[str, Any]], results: Sequence[Validated], ids_by_key: IdsByKey
) -> list[dict[str, Any]]:
    """A row a proposal; `ids_by_key` gives the ids of the buffer's problems of some keys.

    `duplicate_of` is the first problem of the same normal form: "buffer:<id>", "reference" or the id of a proposal of
    the same step; empty where there is none.
    """
    keys = [key_of(result.program, result.inputs) if result.status is Status.OK else "" for result in results]
    known = {key: f"buffer:{name}" for key, name in ids_by_key(filter(None, keys)).items()}
    rows = []
    for proposal, result, key in zip(proposals, results, keys, strict=True):
        ok = result.status is Status.OK
        references = zip(proposal["reference_programs"], proposal["reference_inputs"], strict=True)
        is_reference = (
            ok
            and proposal["problem_type"] != "code_f"
            and any(problem_key(program, given) == key for program, given in references)
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
                "program_key": program_key(result.program) if ok else "",
                "duplicate_of": ("reference" if is_reference else known.get(key, "")) if ok else "",
                **(complexity(result.program) if ok else NO_PROGRAM),
            }
        )
        if ok:
            known.setdefault(key, proposal["proposal_id"])
    return rows


def key_of(program: str, inputs: Sequence[str]) -> str:
    """The duplicate key of a problem: of its one input, or of the list of all of `code_f`."""
    return problem_key(program, ", ".join(f"({given},)" for given in inputs) if len(inputs) > 1 else inputs[0])
