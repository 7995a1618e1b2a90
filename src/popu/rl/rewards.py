"""What a verdict pays. None means excluded: the attempt was lost to the infrastructure and says nothing.

Verdicts and statuses are the strings of the verifier's enums. Source: paper, section on rewards; the map of
the verifier's finer verdicts onto "wrong but well formed" and "invalid" is `docs/verifier.md`.
"""

import random
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from popu.config import Rewards

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


def pay_student(config: Rewards, verdict: str, rng: random.Random) -> float | None:
    """What an attempt pays under the config: the paper's `student_reward` by default, in an ablation or null another.

    `random` draws +1 or -0.5 evenly whatever was answered; `format` pays +1 for every well-formed answer.
    """
    paid = student_reward(verdict)
    if paid is None or config.source == "verifier":
        return paid
    if config.source == "random":
        return rng.choice((1.0, -0.5))
    return -1.0 if verdict == "bad_format" else 1.0


def pay_teacher(
    config: Rewards, status: str, rho: float | None, is_duplicate: bool, rng: random.Random
) -> float | None:
    """What a proposal pays under the config: the paper's `teacher_reward` by default.

    `random` draws evenly from [0, 1) whatever was proposed; `format` pays +1 for every valid problem. A target band and
    the price of duplicates count where the verifier pays.
    """
    paid = teacher_reward(status, rho)
    if paid is None:
        return None
    if config.source == "random":
        return rng.random()
    if status in INVALID_STATUSES or rho is None:
        return paid
    if config.source == "format":
        return 1.0
    if config.duplicate == "invalid" and is_duplicate:
        return -1.0
    if config.target_band is not None:
        low, high = config.target_band
        return float(low <= rho <= high)
    return paid


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
