"""verify: judge every rollout, pay students and teachers, and add the new problems to the buffer.

Reads rollouts, problems, matches and the buffer's index of the step before; writes verdicts.parquet (a row a rollout),
outcomes.parquet (a row a proposal: rho and the teacher's reward), buffer.parquet (the new problems) and
buffer_index.parquet. With `rewards.flip_share` flips.parquet too: a row an attempt whose verdict was told otherwise to
training; all that is measured stays true.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from popu import artifacts
from popu.config import Run
from popu.domains.domain import domain_of
from popu.problems.types import Attempt, problem_of
from popu.rl.rewards import Taught, pay_student, pay_teacher, solve_fraction, told_verdict
from popu.rundir import RunDirectory
from popu.sandbox.executor import Executor
from popu.seeds import derive_rng
from popu.stages.backend import Backend
from popu.stages.buffer import read_buffer, write_buffer

Row = Mapping[str, Any]


def verify(run: RunDirectory, step: int, backend: Backend) -> None:
    """See the module."""
    settings = run.settings
    problems = run.table(step, "validate", "problems")
    rollouts = run.table(step, "solve", "rollouts")
    opponents = {row["teacher"]: row["student"] for row in run.json(step, "propose", "matches.json")}
    rng = derive_rng(settings.seed, step, "rewards")
    verdicts = verdict_rows(settings, problems, rollouts, backend.executor(settings), rng)
    tables = {"verdicts": verdicts, "outcomes": outcome_rows(settings, problems, verdicts, opponents, rng)}
    if settings.training.rewards.flip_share:
        tables["flips"] = flip_rows(settings, verdicts)
    paths = [run.step(step) / f"{name}.parquet" for name in tables]
    for path, rows in zip(paths, tables.values(), strict=True):
        artifacts.write_table(path, path.stem, rows)
    new = buffer_rows(problems, tables["outcomes"], step)
    run.finish(step, "verify", [*paths, *write_buffer(run, step, read_buffer(run, step - 1), new)])


def verdict_rows(
    settings: Run, problems: Sequence[Row], rollouts: Sequence[Row], executor: Executor, rng: random.Random
) -> list[dict[str, Any]]:
    """The verdict and the student's reward of every rollout, all judged in one call."""
    by_id = {row["problem_id"]: problem_of(row) for row in problems if row["problem_id"]}
    attempts = [
        Attempt(by_id[row["problem_id"]], row["completion"], row["finish_reason"] == "length") for row in rollouts
    ]
    judged = domain_of(settings.training).judge(attempts, executor)
    rows = [
        {
            **{name: row[name] for name in ("problem_id", "slot", "attempt")},
            "verdict": str(result.verdict),
            "reason": result.reason,
        }
        for row, result in zip(rollouts, judged, strict=True)
    ]
    rewards = settings.training.rewards
    return [
        {**row, "reward": pay_student(rewards, attempt, _told(settings, row), rng)}
        for row, attempt in zip(rows, attempts, strict=True)
    ]


def flip_rows(settings: Run, verdicts: Sequence[Row]) -> list[dict[str, Any]]:
    """The attempts that were paid by another verdict than theirs."""
    rows = [
        {**{name: row[name] for name in ("problem_id", "slot", "attempt", "verdict")}, "told": _told(settings, row)}
        for row in verdicts
    ]
    return [row for row in rows if row["told"] != row["verdict"]]


def _told(settings: Run, row: Row) -> str:
    share = settings.training.rewards.flip_share
    return told_verdict(settings.seed, share, row["problem_id"], row["attempt"], row["verdict"])


def outcome_rows(
    settings: Run, problems: Sequence[Row], verdicts: Sequence[Row], opponents: Mapping[str, str], rng: random.Random
) -> list[dict[str, Any]]:
    """rho and the teacher's reward of every proposal; None where the infrastructure failed.

    rho is of the verdicts, the reward of the rho that the verifier was told to tell.
    """
    by_problem: dict[str, list[Row]] = {}
    for row in verdicts:
        by_problem.setdefault(row["problem_id"], []).append(row)
    rows = []
    for problem in problems:
        status, tried = problem["status"], by_problem.get(problem["problem_id"])
        rho = told = None
        if status == "ok" and tried is None:
            status = "too_large"
        elif status == "ok":
            rho = solve_fraction([row["verdict"] for row in tried or ()])
            told = solve_fraction([_told(settings, row) for row in tried or ()])
            status = "infrastructure" if rho is None else status
        valid = problem_of(problem) if status == "ok" else None
        taught = Taught(valid, status, told, bool(problem["duplicate_of"]))
        rows.append(
            {
                **{name: problem[name] for name in ("proposal_id", "problem_id", "slot")},
                "student_slot": opponents[problem["slot"]],
                "status": status,
                "rho": rho,
                "reward": pay_teacher(settings.training.rewards, taught, rng),
            }
        )
    return rows


def buffer_rows(problems: Sequence[Row], outcomes: Sequence[Row], step: int) -> list[dict[str, Any]]:
    """New entries of the buffer: valid problems that duplicate nothing; one that no one solved is marked."""
    return [
        {
            **{name: problem[name] for name in ("problem_id", "problem_type", "program", "problem_key", "program_key")},
            "step": step,
            "input": problem["inputs"][0] if problem["inputs"] else "",
            "solved": bool(outcome["rho"]),
        }
        for problem, outcome in zip(problems, outcomes, strict=True)
        if problem["status"] == "ok" and not problem["duplicate_of"]
    ]
