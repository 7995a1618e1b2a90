"""verify: judge every rollout, pay students and teachers, and add the new problems to the buffer.

Reads rollouts, problems, matches and the buffer's index of the step before; writes verdicts.parquet (a row a rollout),
outcomes.parquet (a row a proposal: rho and the teacher's reward) buffer.parquet (the
new problems) and buffer_index.parquet.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from popu import artifacts
from popu.config import Rewards
from popu.problems.check import answer_of, judge
from popu.problems.types import problem_of
from popu.rl.rewards import pay_student, pay_teacher, solve_fraction
from popu.rundir import RunDirectory
from popu.sandbox.executor import Executor
from popu.seeds import derive_rng
from popu.stages.backend import Backend
from popu.stages.buffer import read_buffer, write_buffer


def verify(run: RunDirectory, step: int, backend: Backend) -> None:
    """See the module."""
    problems = run.table(step, "validate", "problems")
    rollouts = run.table(step, "solve", "rollouts")
    opponents = {row["teacher"]: row["student"] for row in run.json(step, "propose", "matches.json")}
    rewards = run.settings.training.rewards
    rng = derive_rng(run.settings.seed, step, "rewards")
    verdicts = verdict_rows(problems, rollouts, backend.executor(run.settings), rewards, rng)
    outcomes = outcome_rows(problems, verdicts, opponents, rewards, rng)
    paths = [run.step(step) / f"{name}.parquet" for name in ("verdicts", "outcomes")]
    for path, rows in zip(paths, (verdicts, outcomes), strict=True):
        artifacts.write_table(path, path.stem, rows)
    new = buffer_rows(problems, outcomes, step)
    run.finish(step, "verify", [*paths, *write_buffer(run, step, read_buffer(run, step - 1), new)])


def verdict_rows(
    problems: Sequence[Mapping[str, Any]],
    rollouts: Sequence[Mapping[str, Any]],
    executor: Executor,
    rewards: Rewards,
    rng: random.Random,
) -> list[dict[str, Any]]:
    """The verdict and the student's reward of every rollout, all judged in one call."""
    by_id = {row["problem_id"]: row for row in problems if row["problem_id"]}
    answers = [
        answer_of(problem_of(by_id[row["problem_id"]]), row["completion"], row["finish_reason"] == "length")
        for row in rollouts
    ]
    return [
        {
            **{name: row[name] for name in ("problem_id", "slot", "attempt")},
            "verdict": str(result.verdict),
            "reason": result.reason,
            "reward": pay_student(rewards, str(result.verdict), rng),
        }
        for row, result in zip(rollouts, judge(answers, executor), strict=True)
    ]


def outcome_rows(
    problems: Sequence[Mapping[str, Any]],
    verdicts: Sequence[Mapping[str, Any]],
    opponents: Mapping[str, str],
    rewards: Rewards,
    rng: random.Random,
) -> list[dict[str, Any]]:
    """rho and the teacher's reward of every proposal; None where the infrastructure failed."""
    by_problem: dict[str, list[str]] = {}
    for row in verdicts:
        by_problem.setdefault(row["problem_id"], []).append(row["verdict"])
    rows = []
    for problem in problems:
        status, rho = problem["status"], None
        if status == "ok":
            tried = by_problem.get(problem["problem_id"])
            status, rho = ("too_large", None) if tried is None else (status, solve_fraction(tried))
        if status == "ok" and rho is None:
            status = "infrastructure"
        reward = pay_teacher(rewards, status, rho, bool(problem["duplicate_of"]), rng)
        rows.append(
            {
                **{name: problem[name] for name in ("proposal_id", "problem_id", "slot")},
                "student_slot": opponents[problem["slot"]],
                "status": status,
                "rho": rho,
                "reward": reward,
            }
        )
    return rows


def buffer_rows(
    problems: Sequence[Mapping[str, Any]], outcomes: Sequence[Mapping[str, Any]], step: int
) -> list[dict[str, Any]]:
    """New entries of the buffer: valid problems that duplicate nothing; one that no one solved is marked."""
    return [
        {
            **{name: problem[name] for name in ("problem_id", "problem_type", "program", "problem_key", "program_key")},
            "step": step,
            "input": problem["inputs"][0],
            "solved": bool(outcome["rho"]),
        }
        for problem, outcome in zip(problems, outcomes, strict=True)
        if problem["status"] == "ok" and not problem["duplicate_of"]
    ]
