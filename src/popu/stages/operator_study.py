"""operator_study: children of every operator and control from the same two parents, trained side by side.

Reads a checkpoint's bundle and the problems that the run's teachers wrote up to it; writes step<n>/scores.parquet (a
row a child and held-out task) and step<n>/changes.parquet (a row a child) for every scored step n of the retraining.

All children solve the same problems in the same order with the same random numbers, each with a fresh optimizer: a
child differs from another in its weights at birth alone, and its results do not depend on who is trained beside it. So
the child of `copy_parent` is the parent itself, trained equally.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError

from popu import artifacts
from popu.config import OperatorStudy, Run
from popu.domains.domain import domain_of
from popu.errors import ArtifactError, ConfigError
from popu.evaluate.heldout import score
from popu.evolution.distance import distance, size
from popu.evolution.registry import OPERATORS, get_operator
from popu.population.adapter import Adapter, read_adapter, write_adapter
from popu.population.member import Member
from popu.population.ratings import lower_bound
from popu.problems.types import Task, problem_of
from popu.rl.rewards import solve_fraction
from popu.rl.update import update_adapter
from popu.rundir import RunDirectory
from popu.sandbox.executor import Executor
from popu.seeds import derive_rng, derive_seed
from popu.stages.backend import Backend
from popu.stages.checkpoint import read_students
from popu.stages.common import request
from popu.stages.run import check_plugins
from popu.stages.solve import Planned, rollout_rows
from popu.stages.update import sequences_by_slot, write_optimizer
from popu.stages.verify import verdict_rows

if TYPE_CHECKING:
    from popu.engine.base import TransformersEngine

Row = Mapping[str, Any]
COPY = "copy_parent"
NAME = "operator study"  # in the seeds
CHANGES = "changes.parquet"  # written last: a scored step that has it is finished
CHILDREN = "children"  # adapters and optimizer states of the last scored step, until the study is finished
OPTIMIZER = "optimizer.safetensors"


@dataclass(frozen=True)
class Child:
    """An adapter on its way, with its optimizer's state and its share of correct attempts since the last score."""

    adapter: Adapter
    optimizer: Mapping[str, torch.Tensor]
    solve_rates: tuple[float, ...] = ()


def operator_study(
    run: RunDirectory, step: int, repeat: int, study: OperatorStudy, out: Path, backend: Backend
) -> None:
    """See the module. What is finished under `out` is kept: a killed study goes on from its last scored step.

    Raises ConfigError for a run with fewer than two students, ArtifactError for a damaged run.
    """
    if (step_directory(out, study.steps) / CHANGES).exists():
        return
    settings = run.settings
    check_plugins(settings)
    engine, executor = backend.engine(settings), backend.executor(settings)
    parents = best_two(read_students(run, step), step)
    problems = study_problems(run, step, repeat, study.steps * study.problems)
    tasks = domain_of(settings.training).heldout(study.tasks_per_level)
    last = last_scored(out)
    children = (
        newborn(studied(settings), [adapter for _, adapter in parents], derive_seed(NAME, settings.seed, repeat))
        if last is None
        else _read_children(step_directory(out, last), studied(settings))
    )
    for now in range(0 if last is None else last + 1, study.steps + 1):
        if now:
            batch = problems[(now - 1) * study.problems : now * study.problems]
            children = retrained(engine, executor, settings, children, batch, (NAME, repeat, now), backend.check)
        if now % study.every == 0 or now == study.steps:
            adapters = {name: child.adapter for name, child in children.items()}
            found = score(engine, executor, settings, tasks, adapters, study.samples, backend.check)
            key = {"seed": settings.seed, "repeat": repeat, "step": now}
            scores = [{**key, **row} for row in score_rows(tasks, study.samples, found)]
            changes = [{**key, **row} for row in change_rows(parents, children)]
            children = {name: Child(child.adapter, child.optimizer) for name, child in children.items()}
            _write(step_directory(out, now), scores, changes, children, settings.base.path)
            _forget_children(out, keep=now if now < study.steps else None)


# --- before ------------------------------------------------------------------------------------------------------


def best_two(students: Sequence[tuple[Member, Adapter]], step: int) -> list[tuple[Member, Adapter]]:
    """The two students of the highest rating bounds, the best first; who was born in this very step, and has not been
    trained, only where there are no others. Raises ConfigError where there are fewer than two."""
    if len(students) < 2:
        raise ConfigError(f"operator_study.arm: expected an arm of two students or more, found {len(students)}")
    return sorted(students, key=lambda pair: (pair[0].born_step == step, -lower_bound(pair[0]), pair[0].slot))[:2]


def study_problems(run: RunDirectory, step: int, repeat: int, n: int) -> list[dict[str, Any]]:
    """`n` distinct problems in random order: rows of the last steps that have so many, duplicates left out; where the
    whole run has too few, random problems of the domain beside them, types even. Raises ArtifactError."""
    rng = derive_rng(NAME, run.settings.seed, repeat)
    domain, types = domain_of(run.settings.training), run.settings.training.problem_types
    pool: list[dict[str, Any]] = []
    for past in range(step, 0, -1):
        if len(pool) < n:
            rows = run.table(past, "validate", "problems")
            pool += [row for row in rows if row["status"] == "ok" and not row["duplicate_of"]]
    chosen = rng.sample(pool, min(n, len(pool)))
    for i in range(n - len(chosen)):
        problem = domain.sampled(types[i % len(types)], rng)
        chosen.append({"problem_id": f"grammar-{i}", "slot": "", **asdict(problem)})
    rng.shuffle(chosen)
    return chosen


def studied(settings: Run) -> list[str]:
    """The names of our operators, and of the installed ones that the run names."""
    return sorted({*OPERATORS, *settings.training.evolution.operators})


def newborn(names: Sequence[str], parents: Sequence[Adapter], seed: int) -> dict[str, Child]:
    """A child of every operator: of both parents, or of the first."""
    operators = {name: get_operator(name) for name in names}
    return {
        name: Child(
            operator.apply(parents[: operator.arity], torch.Generator().manual_seed(derive_seed(seed, name))), {}
        )
        for name, operator in operators.items()
    }


# --- retraining --------------------------------------------------------------------------------------------------


def retrained(
    engine: "TransformersEngine",
    executor: Executor,
    settings: Run,
    children: Mapping[str, Child],
    problems: Sequence[Row],
    seed: tuple[int | str, ...],
    check: Callable[[], None],
) -> dict[str, Child]:
    """Every child after one step of a student on all of the problems. All of them solve in one call."""
    planned: list[Planned] = []
    domain = domain_of(settings.training)
    for row in problems:
        prompt = engine.encode(domain.solve_prompt(problem_of(row), settings.base.prompt_style))
        for name in children:
            n = settings.training.rollouts.per_problem
            wanted = request(settings, row["problem_id"], prompt, name, n, *seed)
            if wanted is not None:
                planned.append((row, name, name, wanted))
    adapters = {name: child.adapter for name, child in children.items()}
    rollouts = rollout_rows(engine, planned, adapters, check)
    rng = derive_rng(settings.seed, *seed, "rewards")
    verdicts = verdict_rows(settings, problems, rollouts, executor, rng)
    after = {}
    for name, child in children.items():
        own = [(row, verdict) for row, verdict in zip(rollouts, verdicts, strict=True) if row["slot"] == name]
        attempts = [("student", row, row["problem_id"], verdict["reward"]) for row, verdict in own]
        result = update_adapter(
            engine.trainers(settings.training.update.device)[0],
            child.adapter,
            child.optimizer,
            sequences_by_slot(attempts, settings.training.update.whiten).get(name, []),
            settings.training.update,
            settings.training.sampling.temperature,
            check,
        )
        solved = solve_fraction([verdict["verdict"] for _, verdict in own])
        rates = child.solve_rates if solved is None else (*child.solve_rates, solved)
        after[name] = Child(result.adapter, result.optimizer, rates)
    return after


# --- scores ------------------------------------------------------------------------------------------------------


def score_rows(
    tasks: Sequence[Task], samples: int, found: Mapping[str, Sequence[tuple[int, bool]]]
) -> list[dict[str, Any]]:
    """A row a child and task of what `evaluate.heldout.score` found."""
    return [
        {
            "operator": name,
            "task_id": task.task_id,
            "problem_type": task.problem.problem_type,
            "level": task.level,
            "samples": samples,
            "n_correct": n_correct,
            "greedy_correct": greedy,
        }
        for name, results in found.items()
        for task, (n_correct, greedy) in zip(tasks, results, strict=True)
    ]


def change_rows(
    parents: Sequence[tuple[Member, Adapter]], children: Mapping[str, Child]
) -> list[dict[str, float | str | None]]:
    """Where every child lies: Frobenius norms of dW and of differences of dW, to the parents as they were at its birth
    and to the child of `copy_parent` as it is now."""
    (first, first_adapter), (second, second_adapter) = parents
    fixed: dict[str, float | str | None] = {
        "first": first.id,
        "second": second.id,
        "first_size": size(first_adapter),
        "parents_apart": distance(first_adapter, second_adapter),
    }
    return [
        {
            "operator": name,
            **fixed,
            "size": size(child.adapter),
            "to_first": distance(child.adapter, first_adapter),
            "to_second": distance(child.adapter, second_adapter),
            "to_copy": distance(child.adapter, children[COPY].adapter),
            "solve_rate": sum(child.solve_rates) / len(child.solve_rates) if child.solve_rates else None,
        }
        for name, child in children.items()
    ]


# --- files -------------------------------------------------------------------------------------------------------


def step_directory(out: Path, step: int) -> Path:
    return out / f"step{step:05d}"


def last_scored(out: Path) -> int | None:
    """The last finished step whose children are there."""
    found = [path.parent for path in out.glob(f"step*/{CHANGES}") if (path.parent / CHILDREN).is_dir()]
    return max((int(path.name.removeprefix("step")) for path in found), default=None)


def _write(
    directory: Path,
    scores: Sequence[Row],
    changes: Sequence[Row],
    children: Mapping[str, Child],
    base: str,
) -> None:
    for name, child in children.items():
        place = directory / CHILDREN / name
        write_adapter(place, child.adapter, base, {"operator": name})
        write_optimizer(place / OPTIMIZER, dict(child.optimizer))
    artifacts.write_table(directory / "scores.parquet", "study_scores", scores)
    artifacts.write_table(directory / CHANGES, "study_changes", changes)


def _forget_children(out: Path, keep: int | None) -> None:
    for directory in out.glob(f"step*/{CHILDREN}"):
        if keep is None or directory.parent != step_directory(out, keep):
            shutil.rmtree(directory)


def _read_children(directory: Path, names: Sequence[str]) -> dict[str, Child]:
    try:
        return {
            name: Child(
                read_adapter(directory / CHILDREN / name),
                artifacts.read_tensors(directory / CHILDREN / name / OPTIMIZER),
            )
            for name in names
        }
    except (ValueError, SafetensorError, OSError) as error:
        raise ArtifactError(
            f"{directory / CHILDREN}: expected the children of a scored step, found: {error}"
        ) from error
