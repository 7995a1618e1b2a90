"""Children against their parents, and whether those who were replaced were the worst, from training alone.

A member's level in a step is the share of its attempts that solve (students) or its mean reward (teachers), against
whomever it met.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

WINDOW = 5  # steps of the moving mean that says when a level is regained
LEVELS = {"student": "solve_rate", "teacher": "teacher_reward"}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Childhood:
    """A child against its first parent in the same steps.

    Args:
        gap: the mean of child minus parent over the first WINDOW steps; None where one of them did not live so long.
        steps: after birth until the child's moving mean is no lower than the parent's, at least WINDOW; None where
            that was not seen.
        seen: steps after birth in which both lived.
    """

    child: str
    role: str
    operator: str
    gap: float | None
    steps: int | None
    seen: int


def levels(rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """Member -> step -> level, from rows of `member_dynamics`."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        if LEVELS.get(row["role"]) == row["metric"]:
            found.setdefault(row["member"], {})[row["step"]] = row["value"]
    return found


def childhoods(births: Sequence[Row], levels: Mapping[str, Mapping[int, float]]) -> list[Childhood]:
    """One a birth that has a parent; `births` are rows of `lineage`."""
    found = []
    for birth in births:
        child, parent = levels.get(birth["child"], {}), levels.get(birth["parents"][0], {})
        steps = sorted(step for step in child if step > birth["step"] and step in parent)
        gaps = np.array([child[step] - parent[step] for step in steps])
        moving = np.convolve(gaps, np.ones(WINDOW) / WINDOW, "valid") if len(gaps) >= WINDOW else np.array([])
        regained = np.flatnonzero(moving >= -1e-12)  # equal levels count whatever their rounding
        found.append(
            Childhood(
                child=birth["child"],
                role=_role(birth),
                operator=birth["operator"],
                gap=float(moving[0]) if len(moving) else None,
                steps=steps[regained[0] + WINDOW - 1] - birth["step"] if len(regained) else None,
                seen=len(steps),
            )
        )
    return found


def median_steps(found: Sequence[Childhood]) -> int | None:
    """Steps after which half have regained their parent's level (Kaplan and Meier); None where that is not reached.

    Those that were not seen to regain it count as long as they were seen.
    """
    remaining = 1.0
    for step in sorted({c.steps for c in found if c.steps is not None}):
        at_risk = sum((c.seen if c.steps is None else c.steps) >= step for c in found)
        remaining *= 1 - sum(c.steps == step for c in found) / at_risk
        if remaining <= 0.5:
            return step
    return None


def regained_within(found: Sequence[Childhood], limit: int) -> np.ndarray:
    """1 a child that regained its parent's level within `limit` steps, 0 one that was seen so long and did not."""
    known = [c for c in found if c.steps is not None or c.seen >= limit]
    return np.array([float(c.steps is not None and c.steps <= limit) for c in known])


# --- the replaced ------------------------------------------------------------------------------------------------


def additive_skills(matches: Sequence[Row]) -> dict[str, float]:
    """Member -> skill, from matches (`teacher`, `student`, `solve_rate`): a least-squares fit of teacher plus student.

    A student's skill is its part of the solve rate, a teacher's the opposite of its part. Skills compare members of one
    role. Matches without a solve rate are left out.
    """
    known = [row for row in matches if row["solve_rate"] is not None]
    names = list(dict.fromkeys(row[role] for row in known for role in ("teacher", "student")))
    if not known:
        return {}
    design = np.zeros((len(known), len(names)))
    for i, row in enumerate(known):
        design[i, names.index(row["student"])], design[i, names.index(row["teacher"])] = 1.0, -1.0
    rates = np.array([row["solve_rate"] for row in known])
    skills = np.linalg.lstsq(design, rates - rates.mean(), rcond=None)[0]
    return dict(zip(names, map(float, skills), strict=True))


def robin_skills(rows: Sequence[Row], role: str) -> dict[str, float]:
    """Member of a role -> share of attempts it solves (students) or that fail at its problems (teachers)."""
    attempts: dict[str, int] = {}
    correct: dict[str, int] = {}
    for row in rows:
        attempts[row[role]] = attempts.get(row[role], 0) + row["n_attempts"]
        correct[row[role]] = correct.get(row[role], 0) + row["n_correct"]
    shares = {name: correct[name] / n for name, n in attempts.items() if n}
    return shares if role == "student" else {name: 1 - share for name, share in shares.items()}


def was_worst(replaced: str, skills: Mapping[str, float]) -> float | None:
    """1 where the replaced one is the worst of those with a skill, a share of it where several are, 0 where not.

    None where its skill is not known or there is no other. Minus 1 / len(skills) it is 0 on average for a member
    drawn by chance.
    """
    if replaced not in skills or len(skills) < 2:
        return None
    lowest = min(skills.values()) + 1e-9
    worst = [name for name, skill in skills.items() if skill <= lowest]
    return 1 / len(worst) if replaced in worst else 0.0


@dataclass(frozen=True)
class Cull:
    """A replacement: `worst` as `was_worst` gives it, `chance` that a member drawn evenly among all is the worst."""

    role: str
    worst: float
    chance: float


def trained_culls(births: Sequence[Row], matches: Sequence[Row], window: int) -> list[Cull]:
    """By the matches of the last `window` steps among those who lived at the end of them, adjusted for opponents.

    The ratings saw these matches too: this says whether the bound picks the worst of them, not whether they tell skill.
    """
    found = []
    for birth in births:
        recent = [row for row in matches if birth["step"] - window < row["step"] <= birth["step"]]
        role = _role(birth)
        living = {row[role] for row in recent if row["step"] == birth["step"]}
        skills = {name: skill for name, skill in additive_skills(recent).items() if name in living}
        found += _cull(birth, role, skills)
    return found


def robin_culls(births: Sequence[Row], rows: Sequence[Row]) -> list[Cull]:
    """By the round robin of the step, where there is one; `rows` of `crossplay`, of one run.

    Of teachers only: students are those of the checkpoint, where the replaced one has gone.
    """
    found = []
    for birth in births:
        same = [row for row in rows if row["teacher_step"] == row["student_step"] == birth["step"]]
        found += _cull(birth, _role(birth), robin_skills(same, _role(birth)))
    return found


def _role(birth: Row) -> str:
    return "student" if birth["slot"].startswith("s") else "teacher"


def _cull(birth: Row, role: str, skills: Mapping[str, float]) -> list[Cull]:
    worst = was_worst(birth["replaced"], skills)
    return [] if worst is None else [Cull(role, worst, 1 / len(skills))]
