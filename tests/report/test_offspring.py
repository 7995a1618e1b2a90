"""Children against parents and the replaced against the rest, on curves and matches whose answers are known."""

import numpy as np
import pytest
from rows import round_robin

from popu.config import Base, Engine, Run, Training
from popu.report.crossplay import culls_table
from popu.report.evidence import Arm
from popu.report.members import children_table
from popu.report.offspring import (
    WINDOW,
    Childhood,
    additive_skills,
    childhoods,
    levels,
    median_steps,
    regained_within,
    robin_culls,
    trained_culls,
    was_worst,
)
from popu.rundir import RunDirectory


def birth(step=10, slot="s1", parent="s0.g0", operator="dare"):
    return {"step": step, "slot": slot, "child": f"{slot}.g1", "parents": [parent], "operator": operator} | {
        "replaced": f"{slot}.g0"
    }


def curve(member, values, first=11, metric="solve_rate", role="student"):
    return [
        {"step": first + i, "member": member, "slot": member[:2], "role": role, "metric": metric, "value": v}
        for i, v in enumerate(values)
    ]


def test_levels_are_of_the_role():
    rows = curve("s0.g0", [0.5]) + curve("s0.g0", [0.1], metric="student_reward")
    rows += curve("t0.g0", [0.3], metric="teacher_reward", role="teacher")
    assert levels(rows) == {"s0.g0": {11: 0.5}, "t0.g0": {11: 0.3}}


def test_a_child_that_catches_up():
    rows = curve("s0.g0", [0.5] * 20) + curve("s1.g1", [0.3] * 5 + [0.7] * 15)
    (found,) = childhoods([birth()], levels(rows))
    assert found.gap == pytest.approx(-0.2) and found.seen == 20
    assert found.steps == 8, "three steps at 0.7 outweigh two at 0.3 in a window of five"


def test_equal_levels_are_regained_at_the_first_look():
    rows = curve("s0.g0", [0.1] * 9) + curve("s1.g1", [0.1] * 9)
    (found,) = childhoods([birth()], levels(rows))
    assert (found.gap, found.steps) == (0.0, WINDOW)


def test_a_parent_that_is_replaced_half_way_ends_the_comparison():
    rows = curve("s0.g0", [0.5] * 7) + curve("s1.g1", [0.3] * 7 + [0.9] * 13)
    (found,) = childhoods([birth()], levels(rows))
    assert (found.steps, found.seen) == (None, 7)
    (short,) = childhoods([birth()], levels(curve("s0.g0", [0.5] * 3) + curve("s1.g1", [0.9] * 20)))
    assert (short.gap, short.steps, short.seen) == (None, None, 3)


def child(steps, seen):
    return Childhood("c", "student", "dare", 0.0, steps, seen)


def test_the_median_takes_censored_children_as_far_as_they_were_seen():
    assert median_steps([child(5, 9), child(7, 9), child(20, 30)]) == 7
    assert median_steps([child(5, 9), child(None, 6), child(20, 30)]) == 20, "two of three, then the one still seen"
    assert median_steps([child(None, 9), child(None, 9), child(5, 9)]) is None
    assert median_steps([]) is None


def test_shares_leave_out_who_was_not_seen_long_enough():
    found = [child(5, 30), child(15, 30), child(None, 30), child(None, 4)]
    assert regained_within(found, 10).tolist() == [1.0, 0.0, 0.0] and regained_within(found, 20).mean() == 2 / 3


def test_the_children_table():
    rows = curve("s0.g0", [0.5] * 20) + curve("s1.g1", [0.5] * 20)
    arm = Arm("4t4s", {1: None}, {1: []}, {}, births={1: [birth()]}, members={1: rows})
    total, by_operator = children_table({"4t4s": arm}).rows
    assert total[:4] == ["4t4s", "student", "all", 1] and by_operator[2] == "dare"
    assert total[4].value == 0.0 and total[5].value == 100.0 and total[7] == WINDOW
    assert children_table({"single": Arm("single", {1: None}, {1: []}, {}, births={1: []})}).rows == []


# --- the replaced ------------------------------------------------------------------------------------------------


def match(step, teacher, student, rate):
    return {"step": step, "teacher": teacher, "student": student, "p": 0.5, "solve_rate": rate}


STUDENTS = {"s0.g0": 0.6, "s1.g0": 0.5, "s2.g0": 0.4}
TEACHERS = {"t0.g0": 0.0, "t1.g0": 0.1, "t2.g0": -0.3}


def matches(steps=range(1, 11)):
    """Every step other pairs; a solve rate is the student's part plus the teacher's."""
    pairs = [(t, list(STUDENTS)[(i + step) % 3], step) for step in steps for i, t in enumerate(TEACHERS)]
    return [match(step, t, s, STUDENTS[s] + TEACHERS[t]) for t, s, step in pairs]


def test_skills_are_adjusted_for_opponents():
    skills = additive_skills(matches([1, 2]))  # each student met two of three teachers
    assert skills["s0.g0"] - skills["s2.g0"] == pytest.approx(0.2)
    assert skills["t2.g0"] - skills["t1.g0"] == pytest.approx(0.4), "problems that fewer solve"
    assert additive_skills([match(1, "t0.g0", "s0.g0", None)]) == {}


def test_the_worst_and_ties():
    assert was_worst("a", {"a": 0.1, "b": 0.2}) == 1.0 and was_worst("b", {"a": 0.1, "b": 0.2}) == 0.0
    assert was_worst("a", {"a": 0.2, "b": 0.2, "c": 0.2}) == pytest.approx(1 / 3), "all equal: no better than chance"
    assert was_worst("x", {"a": 0.2, "b": 0.2}) is None and was_worst("a", {"a": 0.2}) is None


def test_culls_by_the_matches_of_training():
    births = [{**birth(slot="s2"), "replaced": "s2.g0"}, {**birth(slot="t2"), "replaced": "t2.g0"}]
    student, teacher = trained_culls(births, matches(), 10)
    assert (student.role, student.worst, student.chance) == ("student", 1.0, 1 / 3)
    assert (teacher.role, teacher.worst) == ("teacher", 0.0), "the hardest problems were culled"


def test_only_who_still_lived_is_ranked():
    gone = [match(5, "t0.g0", "s9.g0", 0.0), match(10, "t0.g0", "s0.g0", 0.9), match(10, "t1.g0", "s1.g0", 0.2)]
    (found,) = trained_culls([birth()], gone, 10)
    assert (found.worst, found.chance) == (1.0, 0.5)


def test_culls_by_a_round_robin_are_of_teachers():
    rows = [round_robin(f"t{i}.g0", f"s{j}.g0", n, step=10) for i, n in enumerate((4, 1)) for j in range(2)]
    births = [birth(slot="t0"), {**birth(slot="s0"), "replaced": "s0.g9"}]
    (found,) = robin_culls(births, rows)
    assert (found.role, found.worst, found.chance) == ("teacher", 1.0, 0.5)
    assert robin_culls([birth(step=20, slot="t0")], rows) == [], "no cross-play at that step"


def test_the_culls_table(tmp_path):
    run = RunDirectory(tmp_path)
    run.create(Run(arm="4t4s", seed=1, training=Training(), base=Base(path="b"), base_sha256="0" * 64, engine=Engine()))
    births = [{**birth(slot="s2"), "replaced": "s2.g0"}]
    arm = Arm("4t4s", {1: run}, {1: []}, {}, births={1: births}, pairs={1: matches()})
    (row,) = culls_table({"4t4s": arm}, []).rows
    assert row[:3] == ["4t4s", "student", "training matches"] and row[3].value == 100.0
    assert row[4] == pytest.approx(100 / 3) and row[7] == "undecided", "one run"
    more = dict.fromkeys(range(5), births)
    arm = Arm("4t4s", dict.fromkeys(more, run), {}, {}, births=more, pairs=dict.fromkeys(more, matches()))
    assert culls_table({"4t4s": arm}, []).rows[0][7] == "more often than by chance"
    assert culls_table({"single": Arm("single", {1: run}, {}, {}, births={1: []})}, []).rows == []


def test_chance_gives_chance():
    """Culls drawn evenly hit the worst of four in a quarter of the cases."""
    rng = np.random.default_rng(0)
    skills = {f"s{i}": i for i in range(4)}
    assert np.mean([was_worst(f"s{rng.integers(4)}", skills) for _ in range(4000)]) == pytest.approx(0.25, abs=0.03)
