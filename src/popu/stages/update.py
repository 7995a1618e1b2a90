"""update: every adapter takes its policy-gradient step, teachers and students jointly, the three types mixed.

Reads proposals, rollouts, verdicts, outcomes, adapters and optimizer states; writes adapters/<slot>/,
optimizer/<slot>.safetensors, update_metrics.parquet and mismatch.parquet.
"""

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from popu import artifacts
from popu.config import Update
from popu.engine.flat import Forward
from popu.errors import ArtifactError
from popu.population.adapter import write_adapter
from popu.population.member import Member, Population
from popu.rl.advantages import advantages
from popu.rl.devices import run_spread
from popu.rl.update import TrainSequence, update_adapter
from popu.rundir import RunDirectory
from popu.stages.backend import Backend
from popu.stages.common import adapter_files, member_card, population_of, read_member_adapter

Row = Mapping[str, Any]


def update(run: RunDirectory, step: int, backend: Backend) -> None:
    """See the module."""
    settings = run.settings
    state = run.state(step - 1)
    population = population_of(state)
    engine = backend.engine(settings)
    sequences = train_sequences(
        population,
        run.table(step, "propose", "proposals"),
        run.table(step, "verify", "outcomes"),
        run.table(step, "solve", "rollouts"),
        run.table(step, "verify", "verdicts"),
        settings.training.update.whiten,
        learning_roles(settings.training.update, step),
    )
    outputs: list[Path] = []
    metrics: list[Row] = []
    mismatches: list[Row] = []

    def train(forward: Forward, member: Member) -> tuple[list[Path], list[Row], list[Row]]:
        result = update_adapter(
            forward,
            read_member_adapter(run, state, member.slot),
            read_optimizer(run, state.optimizers[member.slot]),
            sequences[member.slot],
            settings.training.update,
            settings.training.sampling.temperature,
            backend.check,
        )
        directory = run.step(step) / "adapters" / member.slot
        card = member_card(member, step, run.run_hash, settings.seed)
        write_adapter(directory, result.adapter, settings.base.path, card)
        optimizer = write_optimizer(run.step(step) / "optimizer" / f"{member.slot}.safetensors", result.optimizer)
        whose = {"slot": member.slot, "member": member.id}
        own_metrics: list[Row] = [{**whose, **row} for row in result.metrics]
        own_mismatches: list[Row] = [{**whose, **row} for row in result.mismatch]
        return [*adapter_files(directory), optimizer], own_metrics, own_mismatches

    trainers = engine.trainers(settings.training.update.device)
    costs = [sum(len(s.tokens) for s in sequences[member.slot]) for member in population.members]
    for files, of_metrics, of_mismatches in run_spread(trainers, population.members, costs, train):
        outputs += files
        metrics += of_metrics
        mismatches += of_mismatches
    for name, rows in (("update_metrics", metrics), ("mismatch", mismatches)):
        outputs.append(run.step(step) / f"{name}.parquet")
        artifacts.write_table(outputs[-1], name, rows)
    run.finish(step, "update", outputs)


def learning_roles(config: Update, step: int) -> tuple[str, ...]:
    """Who learns in this step."""
    if config.schedule == "joint":
        return config.roles
    return tuple(role for role in config.roles if role == ("teacher" if step % 2 else "student"))


def write_optimizer(path: Path, tensors: dict[str, torch.Tensor]) -> Path:
    artifacts.write_tensors(path, dict(sorted(tensors.items())))
    return path


def read_optimizer(run: RunDirectory, relative: str | None) -> dict[str, torch.Tensor]:
    """The state of a slot's optimizer; empty for a fresh one. Raises ArtifactError."""
    if relative is None:
        return {}
    path = run.verified_file(relative)
    try:
        return artifacts.read_tensors(path)
    except (SafetensorError, OSError) as error:
        raise ArtifactError(f"{path}: expected an optimizer state, found: {error}") from error


def train_sequences(
    population: Population,
    proposals: Sequence[Row],
    outcomes: Sequence[Row],
    rollouts: Sequence[Row],
    verdicts: Sequence[Row],
    whiten: str,
    roles: Container[str],
) -> dict[str, list[TrainSequence]]:
    """Every slot's sequences with their advantages; rows without a reward (infrastructure) are left out.

    A teacher's group is the proposals of one prompt, invalid ones included; a student's its rollouts on one problem.
    Only `roles` learn.
    """
    teacher_rows = [
        ("teacher", row, f"{row['slot']}/{row['group']}", outcome["reward"])
        for row, outcome in zip(proposals, outcomes, strict=True)
    ]
    student_rows = [
        ("student", row, row["problem_id"], verdict["reward"]) for row, verdict in zip(rollouts, verdicts, strict=True)
    ]
    found = sequences_by_slot([item for item in teacher_rows + student_rows if item[0] in roles], whiten)
    return {member.slot: found.get(member.slot, []) for member in population.members}


def sequences_by_slot(
    attempts: Sequence[tuple[str, Row, str, float | None]], whiten: str
) -> dict[str, list[TrainSequence]]:
    """Sequences with their advantages of (role, row of proposals or rollouts, group, reward); None is left out."""
    rows = [(role, row, group, reward) for role, row, group, reward in attempts if reward is not None]
    blocks = {
        "adapter_role": lambda role, row: f"{row['slot']}/{role}",
        "population": lambda role, row: role,
        "role_type": lambda role, row: f"{role}/{row['problem_type']}",
    }[whiten]
    values = advantages(
        torch.tensor([reward for *_, reward in rows], dtype=torch.float64),
        _numbers([group for _, _, group, _ in rows]),
        _numbers([blocks(role, row) for role, row, _, _ in rows]),
    )
    by_slot: dict[str, list[TrainSequence]] = {}
    for (role, row, _, reward), advantage in zip(rows, values.tolist(), strict=True):
        by_slot.setdefault(row["slot"], []).append(
            TrainSequence(
                tuple(row["prompt_tokens"]),
                tuple(row["tokens"]),
                tuple(row["log_probs"]),
                reward,
                advantage,
                (role, row["problem_type"]),
            )
        )
    return by_slot


def _numbers(names: Sequence[str]) -> torch.Tensor:
    """Names as integers (n,), numbered by first appearance."""
    index: dict[str, int] = {}
    return torch.tensor([index.setdefault(name, len(index)) for name in names], dtype=torch.long)
