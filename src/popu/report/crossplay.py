"""What cross-play and the matches of training say of ratings: do they rank the members well, and cull the worst?"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from popu.population.member import Population
from popu.population.ratings import lower_bound
from popu.report.evidence import Arm
from popu.report.offspring import Cull, robin_culls, robin_skills, trained_culls
from popu.report.statistics import difference, mean, verdict
from popu.report.tables import Cell, Table
from popu.rundir import RunDirectory

Row = Mapping[str, Any]


def solve_rates(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int, str, int], float]:
    """(teacher arm, step, student arm, step) -> share of attempts that were correct, over members and seeds.

    Where the students of a time tried every problem, they count with as many attempts each.
    """
    attempts: Counter[tuple[str, int, str, int]] = Counter()
    correct: Counter[tuple[str, int, str, int]] = Counter()
    for row in rows:
        key = (row["teacher_arm"], row["teacher_step"], row["student_arm"], row["student_step"])
        attempts[key] += row["n_attempts"]
        correct[key] += row["n_correct"]
    return {key: correct[key] / n for key, n in attempts.items()}


def round_robin_table(arms: Mapping[str, Arm], rows: Sequence[Row]) -> Table:
    """Whether ratings rank the members as a round robin does: Spearman's correlation within a run and step.

    `rows` of crossplay. A student's skill is its share of correct attempts, a teacher's the share that fails.
    """
    found: list[list[Cell]] = []
    for arm in arms.values():
        for role in ("teacher", "student"):
            by_seed: dict[int, list[float]] = {}
            for seed, run in arm.runs.items():
                own = [r for r in rows if r["seed"] == seed and r["teacher_arm"] == r["student_arm"] == arm.name]
                for step in sorted({r["teacher_step"] for r in own}):
                    same = [r for r in own if r["teacher_step"] == r["student_step"] == step]
                    by_seed.setdefault(seed, []).append(_rank_correlation(run, step, role, same))
            known = {seed: np.array(values) for seed, values in by_seed.items() if np.isfinite(values).any()}
            if known:
                found.append([arm.name, role, mean(known)])
    note = (
        "Spearman's correlation of the rating's lower bound with the round robin, within a run and step: mean (95 % "
        "interval; runs x steps). With four members chance alone gives anything between -1 and 1 at one step."
    )
    return Table("round-robin", "Ratings against a round robin", note, ["arm", "role", "correlation"], found, digits=2)


def _rank_correlation(run: RunDirectory, step: int, role: str, rows: Sequence[Row]) -> float:
    """NaN where fewer than three members can be ranked."""
    bounds = {m.id: lower_bound(m) for m in Population.from_json(run.state(step).members).members if m.role == role}
    skills = {name: skill for name, skill in robin_skills(rows, role).items() if name in bounds}
    if len(skills) < 3 or len({*skills.values()}) < 2:
        return float("nan")
    return float(pd.Series(skills).corr(pd.Series({name: bounds[name] for name in skills}), method="spearman"))


def culls_table(arms: Mapping[str, Arm], rows: Sequence[Row]) -> Table:
    """How often the replaced member was the worst of its role, against chance; `rows` of crossplay, none without it."""
    found: list[list[Cell]] = []
    for arm in arms.values():
        for evidence in ("round robin", "training matches"):
            by_seed = {seed: _culls(arm, seed, evidence, rows) for seed in arm.births}
            for role in ("teacher", "student"):
                culls = {s: own for s, all_ in by_seed.items() if (own := [c for c in all_ if c.role == role])}
                if culls:
                    found.append([arm.name, role, evidence, *_against_chance(culls)])
    note = (
        "Share of replacements that hit the worst of the role, in %, and the share that a draw among all of the role "
        "would hit (95 % intervals; runs x replacements). Round robin: all students of the checkpoint on the step's "
        "problems, for teachers only (a replaced student has left). Training matches: solve rates since the last "
        "evolution, teacher and student effects fitted together; ratings are made of the same matches. A child within "
        "its grace cannot be replaced even where it is the worst."
    )
    columns = ["arm", "role", "evidence", "worst", "by chance", "difference", "p", "verdict"]
    return Table("culls", "Was the replaced member the worst?", note, columns, found)


def _culls(arm: Arm, seed: int, evidence: str, rows: Sequence[Row]) -> list[Cull]:
    if evidence == "training matches":
        return trained_culls(arm.births[seed], arm.pairs.get(seed, []), arm.evolved_every(seed))
    own = [r for r in rows if r["seed"] == seed and r["teacher_arm"] == r["student_arm"] == arm.name]
    return robin_culls(arm.births[seed], own)


def _against_chance(culls: Mapping[int, Sequence[Cull]]) -> list[Cell]:
    """Share of the worst, chance, their difference with p and verdict."""
    worst = {seed: np.array([100 * cull.worst for cull in own]) for seed, own in culls.items()}
    chance = {seed: np.array([100 * cull.chance for cull in own]) for seed, own in culls.items()}
    gap = difference(worst, chance)
    words = {"holds": "more often than by chance", "does not hold": "less often"}
    found = verdict(gap, gap.p if gap else None)
    p = None if gap is None or gap.p is None else f"{gap.p:.3f}"
    return [mean(worst), mean(chance).value, gap, p, words.get(found, found)]
