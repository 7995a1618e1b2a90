"""What several stages share: members and adapters of a state, references from the buffer, requests to the engine."""

from collections.abc import Sequence
from typing import Any

from popu.config import Run
from popu.domains.domain import Domain
from popu.engine.protocol import Request
from popu.errors import ArtifactError, ConfigError
from popu.evolution.selection import SelectionConfig, check_survivors
from popu.population.adapter import Adapter, LoraConfig, read_adapter
from popu.population.member import Member, Population
from popu.problems.types import Reference
from popu.rundir import RunDirectory, State
from popu.seeds import derive_seed


def population_of(state: State) -> Population:
    return Population.from_json(state.members)


def lora_config(settings: Run) -> LoraConfig:
    lora = settings.training.lora
    return LoraConfig(lora.rank, lora.alpha, lora.targets)


def read_member_adapter(run: RunDirectory, state: State, slot: str) -> Adapter:
    """The adapter of a slot, compared with the manifest of the stage that wrote it. Raises ArtifactError."""
    directory = state.adapters[slot]
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        run.verified_file(f"{directory}/{name}")
    try:
        return read_adapter(run.path / directory)
    except ValueError as error:
        raise ArtifactError(str(error)) from error


def adapter_files(directory: Any) -> list[Any]:
    """The files of a PEFT directory."""
    return sorted(path for path in directory.iterdir() if path.is_file() and not path.name.startswith("."))


def fitting_prompt(
    engine: Any, domain: Domain, problem_type: str, references: Sequence[Reference], settings: Run
) -> tuple[tuple[int, ...], Sequence[Reference]]:
    """The proposer's prompt as token ids; references are dropped from the end until it leaves room to answer."""
    room = settings.training.sampling.context - settings.training.sampling.max_new_tokens
    while True:
        prompt = engine.encode(domain.propose_prompt(problem_type, references, settings.base.prompt_style))
        if len(prompt) <= max(room, 1) or len(references) <= 1:
            return prompt, references
        references = references[:-1]


def request(
    settings: Run, request_id: str, prompt: tuple[int, ...], adapter: str | None, n: int, *stage: int | str
) -> Request | None:
    """A sampling request within the context; None where the prompt leaves no room for a token."""
    sampling = settings.training.sampling
    budget = min(sampling.max_new_tokens, sampling.context - len(prompt))
    if budget < 1:
        return None
    seed = derive_seed(settings.seed, *stage)
    return Request(request_id, prompt, adapter, n, budget, sampling.temperature, seed)


def member_card(member: Member, step: int, run_hash: str, seed: int) -> dict[str, object]:
    """What an adapter's model card says of where it comes from."""
    return {
        "member": member.id,
        "role": member.role,
        "step": step,
        "run": run_hash,
        "seed": seed,
        "parents": list(member.parents),
        "operator": member.operator,
    }


def selection_config(settings: Run) -> SelectionConfig:
    """The constants of selection. Raises ConfigError, for an operator that does not exist among others."""
    evolution, population = settings.training.evolution, settings.training.population
    try:
        config = SelectionConfig(
            fraction=evolution.fraction,
            bound_sigmas=evolution.bound_sigmas,
            grace_steps=evolution.grace_steps,
            child_rating=evolution.child_rating,
            sigma_inflation=evolution.sigma_inflation,
            parent_selection=evolution.parent_selection,
            tournament_size=evolution.tournament_size,
            crossover_probability=evolution.crossover_probability,
            operators=evolution.operators,
            roles=evolution.roles,
            survivors=evolution.survivors,
        )
        if evolution.every and population.kind == "teams":
            check_survivors(config, {"teacher": population.n_teachers, "student": population.n_students})
        return config
    except ValueError as error:
        raise ConfigError(f"training.evolution.{error}") from error
