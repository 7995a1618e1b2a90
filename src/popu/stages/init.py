"""init: the founders with newborn adapters or ones from elsewhere, and the seed problems that fill the first buffer.

Writes population.json, adapters/<slot>/, buffer.parquet and buffer_index.parquet of step 0.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from popu.base import founder_identities, measure_identity
from popu.config import Base, Run
from popu.domains.domain import Domain, as_reference, domain_of
from popu.errors import ConfigError
from popu.population.adapter import Adapter, new_adapter, read_base_name, write_adapter
from popu.population.imported import imported
from popu.population.member import founders
from popu.problems.types import Proposal, Reference, Validated
from popu.rundir import RunDirectory, State
from popu.sandbox.executor import Executor
from popu.sandbox.verdicts import Status
from popu.seeds import derive_rng, derive_seed
from popu.stages.backend import Backend
from popu.stages.buffer import draw, write_buffer
from popu.stages.common import (
    adapter_files,
    fitting_prompt,
    lora_config,
    member_card,
    request,
    selection_config,
)

MAX_ROUNDS = 4  # of filling the buffer by the base; a base whose proposals are rarely valid starts with fewer


def init(run: RunDirectory, step: int, backend: Backend) -> None:
    """See the module; `step` is 0."""
    settings = run.settings
    selection_config(settings)  # a wrong operator's name is to fail here, not at the first evolution
    wanted = settings.training.population
    counts = (0, 0) if wanted.kind == "single" else (wanted.n_teachers, wanted.n_students)
    population = founders(*counts)
    shapes = backend.engine(settings).lora.shapes
    outputs: list[Path] = []
    for member in population.members:
        generator = torch.Generator().manual_seed(derive_seed(settings.seed, "founder", member.slot))
        directory = run.step(0) / "adapters" / member.slot
        adapter = _founder(settings, member.slot, new_adapter(shapes, lora_config(settings), generator))
        write_adapter(directory, adapter, settings.base.path, member_card(member, 0, run.run_hash, settings.seed))
        outputs += adapter_files(directory)
    outputs += write_buffer(run, 0, None, seed_buffer(run, backend))
    slots = [member.slot for member in population.members]
    adapters = {slot: f"step00000/adapters/{slot}" for slot in slots}
    state_path = run.write_state(0, State(population.to_json(), adapters, dict.fromkeys(slots)))
    run.finish(0, "init", [*outputs, state_path])


def _founder(settings: Run, slot: str, fresh: Adapter) -> Adapter:
    """The adapter that a slot begins with: from elsewhere where the config says so. Raises ConfigError."""
    directories = settings.training.population.founders
    if slot not in directories:
        return fresh
    key, directory = f"training.population.founders.{slot}", Path(directories[slot])
    found = founder_identities({slot: directories[slot]})[slot]
    if found != settings.founders.get(slot):
        raise ConfigError(f"{key}: expected the adapter that the run was made with, found another in {directory}")
    try:
        adapter, base = imported(directory, fresh), Path(read_base_name(directory) or "-")
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from error
    if any(base.glob("*.safetensors")) and measure_identity(Base(path=str(base))) != settings.base_sha256:
        raise ConfigError(f"{key}: expected an adapter of the run's base, found one of {base}, which has other weights")
    return adapter


def seed_buffer(run: RunDirectory, backend: Backend) -> list[dict[str, Any]]:
    """Distinct valid seed problems, at most `seed_problems.count`, the domain's first one first."""
    settings = run.settings
    domain, executor = domain_of(settings.training), backend.executor(settings)
    seeds = settings.training.seed_problems
    rows = _checked(domain, [domain.seed_proposal(domain.first)], executor, [])
    if seeds.source == "identity":
        return _fill_by_base(run, domain, backend, rows)
    references = _grammar(run, domain) if seeds.source == "grammar" else read_seed_problems(seeds.file)
    rows += _checked(domain, [domain.seed_proposal(reference) for reference in references], executor, rows)
    return rows[: seeds.count]


def _fill_by_base(
    run: RunDirectory, domain: Domain, backend: Backend, rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The bare base continues from references drawn from the buffer as it grows (AZR)."""
    settings = run.settings
    engine = backend.engine(settings)
    wanted = settings.training.seed_problems.count
    seed_types = [name for name in settings.training.problem_types if name not in domain.borrowing]
    for attempt in range(MAX_ROUNDS):
        missing = wanted - len(rows)
        if missing <= 0:
            break
        requests, types = [], []
        for i in range(missing):
            rng = derive_rng(settings.seed, "seed-references", attempt, i)
            n = settings.training.proposals.n_references
            problem_type = seed_types[i % len(seed_types)]
            drawn = [Reference(rows[i]["program"], rows[i]["input"]) for i in draw(len(rows), len(rows), n, 0.0, rng)]
            prompt, _ = fitting_prompt(engine, domain, problem_type, drawn, settings)
            planned = request(settings, f"{attempt}/{i}", prompt, None, 1, 0, "seed")
            if planned is not None:
                requests.append(planned)
                types.append(problem_type)
        completions = [group[0] for group in engine.generate(requests, {}, backend.check)]
        proposals = [
            Proposal(problem_type, engine.decode(completion.tokens), None, completion.finish_reason == "length")
            for problem_type, completion in zip(types, completions, strict=True)
        ]
        rows = rows + _checked(domain, proposals, backend.executor(settings), rows)
    return rows[:wanted]


def _checked(
    domain: Domain, proposals: Sequence[Proposal], executor: Executor, known: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Buffer rows of the valid proposals that are no duplicates of each other or of `known`."""
    results: list[Validated] = domain.validate(proposals, executor)
    keys = {row["problem_key"] for row in known}
    rows: list[dict[str, Any]] = []
    for proposal, result in zip(proposals, results, strict=True):
        if result.status is not Status.OK:
            continue
        key = domain.problem_key(result.program, result.inputs)
        if key in keys:
            continue
        keys.add(key)
        rows.append(
            {
                "problem_id": f"00000-q{len(known) + len(rows):04d}",
                "step": 0,
                "problem_type": proposal.problem_type,
                "program": result.program,
                "input": result.inputs[0] if result.inputs else "",
                "problem_key": key,
                "program_key": domain.program_key(result.program),
                "solved": False,
            }
        )
    return rows


def _grammar(run: RunDirectory, domain: Domain) -> list[Reference]:
    settings = run.settings
    rng = derive_rng(settings.seed, "seed-grammar")
    n = settings.training.seed_problems.count
    return [as_reference(domain.sampled(domain.types[0], rng)) for _ in range(n)]


def read_seed_problems(path: str | None) -> list[Reference]:
    """Seed problems from JSON lines. Raises ConfigError naming file and line."""
    if path is None:
        raise ConfigError("training.seed_problems.file: expected a path for source: file, found null")
    try:
        lines = Path(path).read_text().splitlines()
    except OSError as error:
        raise ConfigError(f"training.seed_problems.file: expected a readable file, found: {error}") from error
    references = []
    for number, line in enumerate(lines, start=1):
        try:
            value = json.loads(line)
            references.append(Reference(str(value["program"]), str(value["input"])))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f'{path}:{number}: expected {{"program", "input"}}, found {line[:80]!r}') from error
    return references
