import json
from dataclasses import replace

import pytest

from popu.population.lineage import ancestry, histories, lineage_rows, operator_fates
from popu.population.member import Member, Population, founders


def child(slot: str, generation: int, step: int, parents: tuple[str, ...]) -> Member:
    identity = f"{slot}.g{generation}"
    return Member(
        identity,
        slot,
        "student",
        generation,
        step,
        26.0,
        2.0,
        parents,
        "layer_wise",
        f"{identity}@{step:05d}",
    )


def test_one_row_per_birth():
    before = founders(1, 3)
    before = before.with_member(replace(before.by_slot("s1"), mu=20.0, sigma=3.0))
    after = before.with_member(child("s1", 1, 30, ("s0.g0", "s2.g0")))
    after = after.with_member(replace(after.by_slot("s0"), mu=27.0))  # a changed rating is no birth
    (row,) = lineage_rows(30, before, after)
    assert row == {
        "step": 30,
        "slot": "s1",
        "child": "s1.g1",
        "parents": ["s0.g0", "s2.g0"],
        "operator": "layer_wise",
        "mu": 26.0,
        "sigma": 2.0,
        "replaced": "s1.g0",
        "age_at_death": 30,
        "replaced_mu": 20.0,
        "replaced_sigma": 3.0,
    }
    assert json.loads(json.dumps(row)) == row
    assert lineage_rows(31, after, after) == []


def test_founders_replace_nobody():
    rows = lineage_rows(0, Population(()), founders(1, 1))
    assert [(r["child"], r["parents"], r["replaced"], r["age_at_death"]) for r in rows] == [
        ("t0.g0", [], None, None),
        ("s0.g0", [], None, None),
    ]


def test_errors():
    before = founders(1, 2)
    with pytest.raises(ValueError, match=r"found \['s7.g0'\]"):
        lineage_rows(5, before, before.with_member(child("s1", 1, 5, ("s7.g0",))))
    with pytest.raises(ValueError, match=r"found none for \['s1'\]"):
        lineage_rows(5, before, founders(1, 1))


def test_ancestry_through_several_generations():
    now, rows = founders(1, 3), []
    for step, slot, generation, parents in [
        (10, "s0", 1, ("s1.g0", "s2.g0")),
        (20, "s1", 1, ("s0.g1",)),
        (30, "s0", 2, ("s1.g1", "s2.g0")),
    ]:
        after = now.with_member(child(slot, generation, step, parents))
        rows += lineage_rows(step, now, after)
        now = after
    assert ancestry(rows, "s0.g2") == ["s1.g1", "s2.g0", "s0.g1", "s1.g0"]
    assert ancestry(rows, "s0.g1") == ["s1.g0", "s2.g0"]
    assert ancestry(rows, "s2.g0") == []
    with pytest.raises(ValueError, match="found 's9.g9'"):
        ancestry(rows, "s9.g9")


def test_histories_and_fates():
    """s0 and s1 have s2.g1; it has s1.g1 with s0; s2.g1 dies for s2.g2, a copy of s1.g1."""
    states = [founders(1, 3)]
    births = [
        (10, child("s2", 1, 10, ("s0.g0", "s1.g0"))),
        (20, child("s1", 1, 20, ("s2.g1", "s0.g0"))),
        (30, replace(child("s2", 2, 30, ("s1.g1",)), operator="copy_parent")),
    ]
    rows = []
    for step, newborn in births:
        rows += lineage_rows(step, states[-1], states[-1].with_member(newborn))
        states.append(states[-1].with_member(newborn))
    members = {row["member"]: row for row in histories(rows, states[0], 35)}
    assert list(members) == ["t0.g0", "s0.g0", "s1.g0", "s2.g0", "s2.g1", "s1.g1", "s2.g2"]
    assert members["s2.g1"] == {
        "member": "s2.g1",
        "slot": "s2",
        "role": "student",
        "born_step": 10,
        "died_step": 30,
        "age": 20,
        "operator": "layer_wise",
        "parents": ["s0.g0", "s1.g0"],
        "ancestors": ["s0.g0", "s1.g0"],
        "founders": ["s0.g0", "s1.g0"],
        "children": ["s1.g1"],
    }
    last = members["s2.g2"]
    assert last["ancestors"] == ["s1.g1", "s2.g1", "s0.g0", "s1.g0"] and last["founders"] == ["s0.g0", "s1.g0"]
    assert (last["age"], last["died_step"]) == (5, None)
    assert members["s0.g0"]["founders"] == ["s0.g0"] and members["s0.g0"]["children"] == ["s2.g1", "s1.g1"]
    assert members["t0.g0"]["ancestors"] == [] and members["s1.g0"]["died_step"] == 20
    assert operator_fates(members.values()) == [
        {"operator": "copy_parent", "births": 1, "alive": 1, "mean_age_at_death": None, "parents": 0},
        {"operator": "layer_wise", "births": 2, "alive": 1, "mean_age_at_death": 20.0, "parents": 2},
    ]
