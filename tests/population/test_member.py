import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popu.population.member import Member, Population, founder, founders

CHILD = Member("s3.g2", "s3", "student", 2, 57, 24.5, 1.25, ("s0.g0", "s1.g4"), "layer_wise", "s3.g2@00057")


def test_roles_of_founders():
    population = founders(2, 3)
    assert [m.slot for m in population.members] == ["t0", "t1", "s0", "s1", "s2"]
    assert [m.id for m in population.teachers] == ["t0.g0", "t1.g0"]
    assert [m.version for m in population.students] == ["s0.g0@00000", "s1.g0@00000", "s2.g0@00000"]
    assert all((m.mu, m.sigma, m.parents, m.operator) == (25.0, 25 / 3, (), None) for m in population.members)


def test_single_agent_is_teacher_and_student():
    population = founders(0, 0)
    assert population.teachers == population.students == (founder("a0"),)
    assert population.members[0].role == "both"


@pytest.mark.parametrize("sizes", [(3, 2), (0, 2), (1, 0), (-1, 2)])
def test_sizes(sizes):
    with pytest.raises(ValueError, match="n_teachers"):
        founders(*sizes)


@settings(deadline=None)
@given(
    mu=st.floats(allow_nan=False, allow_infinity=False),
    sigma=st.floats(min_value=1e-9, max_value=1e9),
    step=st.integers(0, 10**6),
)
def test_json_round_trip(mu, sigma, step):
    member = replace(CHILD, mu=mu, sigma=sigma, born_step=step)
    assert Member.from_json(json.loads(json.dumps(member.to_json()))) == member


def test_population_round_trip():
    population = founders(2, 4).with_member(CHILD)
    assert Population.from_json(json.loads(json.dumps(population.to_json()))) == population
    with pytest.raises(ValueError, match="expected one key 'members'"):
        Population.from_json({"member": []})


@pytest.mark.parametrize(
    "change",
    [
        {"mu": "25"},
        {"mu": True},
        {"mu": float("nan")},
        {"sigma": 0.0},
        {"parents": "s0.g0"},
        {"parents": [1]},
        {"parents": []},
        {"operator": None},
        {"generation": 2.0},
        {"generation": -1},
        {"role": "teacher"},
        {"slot": "s03"},
        {"slot": "../s3"},
        {"id": "s3.g1"},
        {"version": "s3.g1@00057"},
        {"version": "s3.g2@x"},
        {"extra": 1},
    ],
)
def test_bad_json(change):
    with pytest.raises(ValueError, match="expected"):
        Member.from_json({**CHILD.to_json(), **change})


def test_missing_key():
    with pytest.raises(ValueError, match="found .*'id'"):
        Member.from_json({"id": "s3.g2"})


def test_slots():
    population = founders(1, 4)
    changed = population.with_member(CHILD)
    assert changed.by_slot("s3") == CHILD and population.by_slot("s3").generation == 0
    with pytest.raises(ValueError, match=r"expected one of \['t0'.*found 's9'"):
        population.by_slot("s9")
    with pytest.raises(ValueError, match="distinct slots"):
        Population((CHILD, CHILD))
