"""Problems of every arm and time against students of every arm and time: progress, or going round in circles?

The problems are those that the run's teachers wrote in a step, a sample of the valid ones; the students are those of
the checkpoint after a step. Only runs of one seed meet. Students of a checkpoint share the problems among them, so that
all of them are met at the cost of one; those of the problems' own run and step all try every problem, a round robin.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from popu.config import Run
from popu.domains.domain import domain_of
from popu.engine.base import TransformersEngine
from popu.engine.protocol import Request
from popu.population.adapter import Adapter
from popu.population.member import Member
from popu.problems.types import Attempt, Problem
from popu.sandbox.executor import Executor
from popu.sandbox.verdicts import Verdict
from popu.seeds import derive_seed


@dataclass(frozen=True)
class Time:
    """A run at a step: a sample of its problems with the members that wrote them, and its students with adapters."""

    arm: str
    seed: int
    step: int
    problems: Sequence[tuple[str, Problem]]
    students: Sequence[tuple[Member, Adapter]]


def cross_play(
    engine: TransformersEngine,
    executor: Executor,
    settings: Run,
    times: Sequence[Time],
    samples: int,
    check: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """A row a teacher, student and pair of times: attempts and how many of them were correct.

    Problems whose prompt leaves no room for an answer are left out.
    """
    domain, sampling = domain_of(settings.training), settings.training.sampling
    prompts = {
        (time.arm, time.seed, time.step, i): engine.encode(domain.solve_prompt(problem, settings.base.prompt_style))
        for time in times
        for i, (_, problem) in enumerate(time.problems)
    }
    rows = []
    for solving in times:
        planned = [
            (posing, i, student)
            for posing, i, student in _plan(solving, [time for time in times if time.seed == solving.seed])
            if len(prompts[posing.arm, posing.seed, posing.step, i]) < sampling.context
        ]
        adapters = {member.id: adapter for member, adapter in solving.students}
        seed = derive_seed("crossplay", solving.seed)
        requests = []
        for posing, i, student in planned:
            prompt = prompts[posing.arm, posing.seed, posing.step, i]
            budget = min(sampling.max_new_tokens, sampling.context - len(prompt))
            name = f"{posing.arm}/{posing.step}/{i}"
            requests.append(Request(name, prompt, student, samples, budget, sampling.temperature, seed))
        groups = engine.generate(requests, adapters, check)
        attempts = [
            Attempt(posing.problems[i][1], engine.decode(c.tokens), c.finish_reason == "length")
            for (posing, i, _), group in zip(planned, groups, strict=True)
            for c in group
        ]
        judged = iter(domain.judge(attempts, executor))
        tried: Counter[tuple[str, int, str, str]] = Counter()
        correct: Counter[tuple[str, int, str, str]] = Counter()
        for posing, i, student in planned:
            key = (posing.arm, posing.step, posing.problems[i][0], student)
            tried[key] += samples
            correct[key] += sum(next(judged).verdict is Verdict.CORRECT for _ in range(samples))
        rows += [
            {
                "seed": solving.seed,
                "teacher_arm": arm,
                "teacher_step": step,
                "teacher": teacher,
                "student_arm": solving.arm,
                "student_step": solving.step,
                "student": student,
                "n_attempts": n,
                "n_correct": correct[arm, step, teacher, student],
            }
            for (arm, step, teacher, student), n in tried.items()
        ]
    return rows


def _plan(solving: Time, posing: Sequence[Time]) -> Iterator[tuple[Time, int, str]]:
    """Which student tries which problem."""
    names = [member.id for member, _ in solving.students]
    for time in posing:
        own = (time.arm, time.step) == (solving.arm, solving.step)
        for i in range(len(time.problems)):
            yield from ((time, i, name) for name in (names if own else [names[i % len(names)]]))
