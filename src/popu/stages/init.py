"""init: the founders with newborn adapters, and the seed problems that fill the first buffer.

Writes population.json, adapters/<slot>/, buffer.parquet and buffer_index.parquet of step 0.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from popu.errors import ConfigError
from popu.grammar.examples import reference_of, sample_examples
from popu.grammar.levels import PRETRAINING_LEVELS
from popu.population.adapter import new_adapter, write_adapter
from popu.population.member import founders
from popu.problems.check import Proposal, Validated, validate
from popu.problems.duplicates import program_key
from popu.problems.prompts import fence
from popu.problems.types import IDENTITY, PROBLEM_TYPES, ProblemType, Reference
from popu.rundir import RunDirectory, State
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
from popu.stages.validate import key_of

SEED_TYPES: tuple[ProblemType, ...] = tuple(t for t in PROBLEM_TYPES if t != "code_f")
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
        adapter = new_adapter(shapes, lora_config(settings), generator)
        write_adapter(directory, adapter, settings.base.path, member_card(member, 0, run.run_hash, settings.seed))
        outputs += adapter_files(directory)
    outputs += write_buffer(run, 0, None, seed_buffer(run, backend))
    slots = [member.slot for member in population.members]
    adapters = {slot: f"step00000/adapters/{slot}" for slot in slots}
    state_path = run.write_state(0, State(population.to_json(), adapters, dict.fromkeys(slots)))
    run.finish(0, "init", [*outputs, state_path])


def seed_buffer(run: RunDirectory, backend: Backend) -> list[dict[str, Any]]:
    """Distinct valid seed problems, at most `seed_problems.count`, the identity program first."""
    settings = run.settings
    executor = backend.executor(settings)
    seeds = settings.training.seed_problems
    rows = _new_rows([IDENTITY], validate([_proposal("code_o", IDENTITY)], executor), [])
    if seeds.source == "identity":
        return _fill_by_base(run, backend, rows)
    references = _grammar(run) if seeds.source == "grammar" else _read(seeds.file)
    proposals = [_proposal("code_o", reference) for reference in references]
    rows += _new_rows(references, validate(proposals, executor), rows)
    return rows[: seeds.count]


def _fill_by_base(run: RunDirectory, backend: Backend, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The bare base continues from references drawn from the buffer as it grows (AZR)."""
    settings = run.settings
    engine = backend.engine(settings)
    wanted = settings.training.seed_problems.count
    for attempt in range(MAX_ROUNDS):
        missing = wanted - len(rows)
        if missing <= 0:
            break
        requests, types = [], []
        for i in range(missing):
            rng = derive_rng(settings.seed, "seed-references", attempt, i)
            n = settings.training.proposals.n_references
            problem_type = SEED_TYPES[i % len(SEED_TYPES)]
            drawn = [Reference(rows[i]["program"], rows[i]["input"]) for i in draw(len(rows), len(rows), n, 0.0, rng)]
            prompt, _ = fitting_prompt(engine, problem_type, drawn, settings)
            planned = request(settings, f"{attempt}/{i}", prompt, None, 1, 0, "seed")
            if planned is not None:
                requests.append(planned)
                types.append(problem_type)
        completions = [group[0] for group in engine.generate(requests, {}, backend.check)]
        proposals = [
            Proposal(problem_type, engine.decode(completion.tokens), None, completion.finish_reason == "length")
            for problem_type, completion in zip(types, completions, strict=True)
        ]
        results = validate(proposals, backend.executor(settings))
        rows = rows + _new_rows(types, results, rows)
    return rows[:wanted]


def _new_rows(sources: Any, results: list[Validated], known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Buffer rows of the valid results that are no duplicates of each other or of `known`."""
    keys = {row["problem_key"] for row in known}
    rows: list[dict[str, Any]] = []
    for source, result in zip(sources, results, strict=True):
        if result.status is not Status.OK:
            continue
        key = key_of(result.program, result.inputs)
        if key in keys:
            continue
        keys.add(key)
        rows.append(
            {
                "problem_id": f"00000-q{len(known) + len(rows):04d}",
                "step": 0,
                "problem_type": source if isinstance(source, str) else "code_o",
                "program": result.program,
                "input": result.inputs[0],
                "problem_key": key,
                "program_key": program_key(result.program),
                "solved": False,
            }
        )
    return rows


def _proposal(problem_type: ProblemType, reference: Reference) -> Proposal:
    text = fence("python", reference.program) + fence("input", reference.input)
    return Proposal(problem_type, text, None, False)


def _grammar(run: RunDirectory) -> list[Reference]:
    settings = run.settings
    rng = derive_rng(settings.seed, "seed-grammar")
    examples: Iterator[Any] = sample_examples(PRETRAINING_LEVELS, "pretraining", rng)
    return [reference_of(example) for example in itertools.islice(examples, settings.training.seed_problems.count)]


def _read(path: str | None) -> list[Reference]:
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
