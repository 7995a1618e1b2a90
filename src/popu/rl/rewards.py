"""What a verdict pays. None means excluded: the attempt was lost to the infrastructure and says nothing.

Verdicts and statuses are the strings of the verifier's enums. Source: paper, section on rewards; the map of
the verifier's finer verdicts onto "wrong but well formed" and "invalid" is `docs/verifier.md`.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from popu import plugins
from popu.config import Rewards
from popu.errors import ConfigError
from popu.problems.types import Attempt, Problem
from popu.seeds import derive_rng

INFRASTRUCTURE = "infrastructure"
FAULTS = ("raised", "timeout", "memory", "crashed", "too_large", "unsupported_value", "denied")

STUDENT_REWARDS: Mapping[str, float | None] = {
    "correct": 1.0,
    "wrong": -0.5,
    **dict.fromkeys(FAULTS, -0.5),
    "bad_format": -1.0,
    INFRASTRUCTURE: None,
}
INVALID_STATUSES = ("bad_format", "nondeterministic", *FAULTS)
STATUSES = ("ok", *INVALID_STATUSES, INFRASTRUCTURE)


@dataclass(frozen=True)
class Taught:
    """A proposal and what came of it: `problem` is None unless it was valid, `rho` None where no attempt counted."""

    problem: Problem | None
    status: str
    rho: float | None
    is_duplicate: bool


@dataclass(frozen=True)
class Reward:
    """What training pays; `config` holds the section's keys, and a generator is all that may be drawn from.

    Args:
        student: (config, attempt, verdict, generator) -> the pay of an attempt. Never asked of one that the
            infrastructure lost.
        teacher: (config, taught, generator) -> the pay of a proposal. Never asked where `teacher_reward` is None.
    """

    student: Callable[[Rewards, Attempt, str, random.Random], float]
    teacher: Callable[[Rewards, Taught, random.Random], float]


def pay_student(config: Rewards, attempt: Attempt, verdict: str, rng: random.Random) -> float | None:
    """What an attempt pays under the config's source; None for one that is excluded.

    Raises ConfigError for a source that is unknown or pays no finite number.
    """
    if student_reward(verdict) is None:
        return None
    return _finite(config, plugins.load("rewards", config.source, Reward).student(config, attempt, verdict, rng))


def pay_teacher(config: Rewards, taught: Taught, rng: random.Random) -> float | None:
    """What a proposal pays under the config's source; None for one that is excluded. Raises as `pay_student`."""
    if teacher_reward(taught.status, taught.rho) is None:
        return None
    return _finite(config, plugins.load("rewards", config.source, Reward).teacher(config, taught, rng))


def _finite(config: Rewards, paid: float) -> float:
    if not math.isfinite(paid):
        raise ConfigError(f"training.rewards.source: expected a reward that is finite, found {paid} of {config.source}")
    return float(paid)


def _teacher_by_rho(config: Rewards, taught: Taught, rng: random.Random) -> float:
    """The paper's, but where the config says that a valid duplicate costs or that a band is the target."""
    if taught.status == "ok" and taught.rho is not None:
        if config.duplicate == "invalid" and taught.is_duplicate:
            return -1.0
        if config.target_band is not None:
            low, high = config.target_band
            return float(low <= taught.rho <= high)
    return teacher_reward(taught.status, taught.rho) or 0.0


VERIFIER = Reward(lambda config, attempt, verdict, rng: STUDENT_REWARDS[verdict] or 0.0, _teacher_by_rho)
"""The paper's rewards."""
RANDOM = Reward(lambda config, attempt, verdict, rng: rng.choice((1.0, -0.5)), lambda config, taught, rng: rng.random())
"""A coin for an attempt and an even number in [0, 1) for a proposal, whatever was answered or proposed."""
FORMAT = Reward(
    lambda config, attempt, verdict, rng: -1.0 if verdict == "bad_format" else 1.0,
    lambda config, taught, rng: 1.0 if taught.status == "ok" else -1.0,
)
"""Form alone: +1 for every well-formed answer and every valid problem."""


def student_reward(verdict: str) -> float | None:
    """+1 correct, -0.5 wrong or failing but well formed, -1 bad format, None for infrastructure.

    Raises:
        ValueError: not the verdict of an attempt.
    """
    _check("verdict", verdict, tuple(STUDENT_REWARDS))
    return STUDENT_REWARDS[verdict]


def teacher_reward(status: str, rho: float | None) -> float | None:
    """-1 for an invalid proposal; for a valid one 0 if nobody solved it, else 1 - rho (so always solved gives
    0 too).

    Args:
        rho: `solve_fraction` of the matched student's rollouts on this one problem. None, where no rollout
            counted, excludes a valid problem; ignored for an invalid one.

    Raises:
        ValueError: not the status of a proposal, or rho outside [0, 1].
    """
    _check("status", status, STATUSES)
    if status == INFRASTRUCTURE:
        return None
    if status in INVALID_STATUSES:
        return -1.0
    if rho is None:
        return None
    if not 0.0 <= rho <= 1.0:
        raise ValueError(f"rho: expected in [0, 1], found {rho!r}")
    return 0.0 if rho == 0.0 else 1.0 - rho


def told_verdict(seed: int, share: float, problem_id: str, attempt: int, verdict: str) -> str:
    """What a verifier says that errs in `share` of the well-formed answers: another verdict where it does.

    Right becomes `wrong`, all else that is well formed `correct`; what has no form, or was lost, stays. Whether it errs
    is drawn by run, problem and attempt, so that a smaller share errs in some of the same places.
    """
    if not share or verdict in ("bad_format", INFRASTRUCTURE):
        return verdict
    if derive_rng(seed, "flip", problem_id, attempt).random() >= share:
        return verdict
    return "wrong" if verdict == "correct" else "correct"


def solve_fraction(verdicts: Sequence[str]) -> float | None:
    """rho: correct verdicts over counted ones (infrastructure is not counted); None if none counts."""
    for verdict in verdicts:
        _check("verdict", verdict, tuple(STUDENT_REWARDS))
    counted = [verdict for verdict in verdicts if verdict != INFRASTRUCTURE]
    return sum(verdict == "correct" for verdict in counted) / len(counted) if counted else None


def _check(argument: str, value: str, valid: tuple[str, ...]) -> None:
    if value not in valid:
        nearest = get_close_matches(value, valid, 1, 0.0)[0]
        raise ValueError(f"{argument}: expected one of {valid}, found {value!r}; did you mean {nearest!r}?")
