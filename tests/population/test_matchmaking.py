import random
from collections import Counter
from dataclasses import replace

import pytest

from popu import plugins
from popu.population.matchmaking import Match, match, pfsp_weight
from popu.population.member import Population, founders
from popu.population.ratings import win_probability

METHODS = list(plugins.BUILT_IN["matchers"])


def spread_out() -> Population:
    """Four teachers and five students of growing skill, all sure of it."""
    population = founders(4, 5)
    for index, member in enumerate(population.members):
        population = population.with_member(replace(member, mu=10.0 + 4 * (index % 5), sigma=1.0))
    return population


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(20))
def test_every_teacher_once_no_student_twice(method, seed):
    population = spread_out()
    matches = match(population, random.Random(seed), method)
    assert [m.teacher_slot for m in matches] == ["t0", "t1", "t2", "t3"]
    assert len({m.student_slot for m in matches}) == 4
    for m in matches:
        assert m.p == win_probability(population.by_slot(m.student_slot), population.by_slot(m.teacher_slot))
    assert matches == match(population, random.Random(seed), method)


@pytest.mark.parametrize("method", METHODS)
def test_single_agent_plays_itself(method):
    assert match(founders(0, 0), random.Random(0), method) == [Match("a0", "a0", 0.5)]


def test_first_draw_follows_the_weights():
    population = Population((spread_out().teachers[0], *spread_out().students))
    rng = random.Random(1)
    n = 4000
    drawn = Counter(match(population, rng)[0].student_slot for _ in range(n))
    weights = {s.slot: pfsp_weight(win_probability(s, population.teachers[0])) for s in population.students}
    for slot, weight in weights.items():
        assert drawn[slot] / n == pytest.approx(weight / sum(weights.values()), abs=0.03)
    assert max(weights, key=weights.__getitem__) == "s1"  # mu 10 like the teacher's: the balanced pair


def test_uniform_ignores_skill_and_teacher_order_is_random():
    rng = random.Random(2)
    drawn = Counter(match(spread_out(), rng, "uniform")[3].student_slot for _ in range(4000))
    assert all(drawn[f"s{i}"] / 4000 == pytest.approx(0.2, abs=0.03) for i in range(5))


def test_no_teacher_has_first_choice():
    """With equal ratings but one outlying student, each teacher is left with it equally often."""
    population = founders(4, 4)
    population = population.with_member(replace(population.by_slot("s0"), mu=60.0, sigma=1.0))
    rng = random.Random(3)
    unlucky = Counter(m.teacher_slot for _ in range(4000) for m in match(population, rng) if m.student_slot == "s0")
    assert all(unlucky[f"t{i}"] / 4000 == pytest.approx(0.25, abs=0.03) for i in range(4))


def test_fixed_pairs_by_order_without_drawing():
    rng = random.Random(4)
    state = rng.getstate()
    assert [m.student_slot for m in match(spread_out(), rng, "fixed")] == ["s0", "s1", "s2", "s3"]
    assert rng.getstate() == state


def test_weight():
    assert pfsp_weight(0.5) == 0.25 and pfsp_weight(0.0) == pfsp_weight(1.0) == 0.02


def test_errors():
    with pytest.raises(ValueError, match="did you mean 'uniform'"):
        match(founders(1, 1), random.Random(0), "unifrom")
    crowded = Population((*founders(2, 2).teachers, founders(1, 1).by_slot("s0")))
    with pytest.raises(ValueError, match="found 2 > 1"):
        match(crowded, random.Random(0))
