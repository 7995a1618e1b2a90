import random
from collections import Counter
from dataclasses import replace

import pytest

from popu.evolution.registry import OPERATORS, get_operator
from popu.evolution.selection import SelectionConfig, cullable, plan_replacements
from popu.population.matchmaking import match
from popu.population.member import INITIAL_MU, INITIAL_SIGMA, Member, Population, founders
from popu.population.ratings import PairResult, lower_bound, rate_pairs


def graded(n_teachers: int = 4, n_students: int = 4) -> Population:
    """Members whose mu grows with their place; all sigma 2."""
    population = founders(n_teachers, n_students)
    for index, member in enumerate(population.members):
        population = population.with_member(replace(member, mu=20.0 + index, sigma=2.0))
    return population


def play(population: Population, rng: random.Random) -> Population:
    """One step of matches between members of equal skill: every rollout is solved with chance 1/2."""
    results = []
    for m in match(population, rng):
        solved = sum(rng.random() < 0.5 for _ in range(32))
        results.append(PairResult(m.teacher_slot, m.student_slot, m.p, solved / 32, 32))
    return rate_pairs(population, results)


@pytest.mark.parametrize(
    ("size", "fraction", "culled"),
    [(2, 0.25, 1), (4, 0.25, 1), (8, 0.25, 2), (8, 0.5, 4), (2, 0.99, 1), (10, 0.3, 3)],
)
def test_the_lowest_bounds_go(size, fraction, culled):
    config = SelectionConfig(fraction=fraction, operators=("full_gaussian",))
    plan = plan_replacements(graded(size, size), 10, config, random.Random(0))
    assert [r.slot for r in plan] == [f"t{i}" for i in range(culled)] + [f"s{i}" for i in range(culled)]


def test_uncertainty_counts_against_a_member():
    population = graded()
    population = population.with_member(replace(population.by_slot("s3"), sigma=8.0))
    plan = plan_replacements(population, 10, SelectionConfig(), random.Random(0))
    assert [r.slot for r in plan] == ["t0", "s3"]


@pytest.mark.parametrize("seed", range(30))
def test_child(seed):
    population = graded()
    for replacement in plan_replacements(population, 10, SelectionConfig(), random.Random(seed)):
        child, parents = replacement.child, [population.by_slot(s) for s in replacement.parent_slots]
        assert (child.slot, child.id, child.generation) == (replacement.slot, f"{child.slot}.g1", 1)
        assert (child.born_step, child.version) == (10, f"{child.slot}.g1@00010")
        assert child.parents == tuple(p.id for p in parents) and child.operator == replacement.operator
        assert (child.mu, child.sigma) == (parents[0].mu, 2.0)
        assert len(set(child.parents)) == get_operator(child.operator).arity
        assert all(p.role == child.role and p.slot != child.slot for p in parents)


def test_sigma_is_capped_at_the_initial():
    plan = plan_replacements(founders(2, 2), 10, SelectionConfig(operators=("copy_parent",)), random.Random(0))
    assert [r.child.sigma for r in plan] == [INITIAL_SIGMA, INITIAL_SIGMA]


def born_later(member: Member, step: int) -> Member:
    """A child in the member's slot, with its rating."""
    identity = f"{member.slot}.g1"
    facts = {"id": identity, "generation": 1, "born_step": step, "version": f"{identity}@{step:05d}"}
    return replace(member, parents=("s9.g0",), operator="copy_parent", **facts)


def test_grace_spares_children_not_founders():
    population = graded()
    population = population.with_member(born_later(population.by_slot("s0"), 10))

    def student(step: int) -> str:
        return plan_replacements(population, step, SelectionConfig(), random.Random(0))[1].slot

    assert student(20) == student(29) == "s1"
    assert student(30) == "s0"
    assert cullable(population.students, 20, SelectionConfig()) == (population.by_slot("s1"), population.by_slot("s2"))


def test_nobody_is_replaced_where_grace_protects_all():
    population = founders(1, 3)
    for member in population.students:
        population = population.with_member(born_later(member, 5))
    assert plan_replacements(population, 10, SelectionConfig(), random.Random(0)) == []


def test_alone_is_never_replaced():
    for population in (founders(0, 0), founders(1, 1)):
        assert plan_replacements(population, 10, SelectionConfig(), random.Random(0)) == []


def test_roles():
    config = SelectionConfig(roles=("student",))
    assert [r.slot[0] for r in plan_replacements(graded(), 10, config, random.Random(0))] == ["s"]
    assert plan_replacements(graded(), 10, SelectionConfig(roles=()), random.Random(0)) == []


def test_operators_and_parents_are_drawn_evenly():
    rng = random.Random(0)
    config = SelectionConfig(operators=tuple(OPERATORS))
    births = [r for _ in range(1000) for r in plan_replacements(graded(), 10, config, rng)]
    used = Counter(r.operator for r in births)
    arities = Counter(operator.arity for operator in OPERATORS.values())
    for name, operator in OPERATORS.items():
        assert used[name] / len(births) == pytest.approx(0.5 / arities[operator.arity], abs=0.03)
    parents = Counter(r.parent_slots[0] for r in births)
    assert all(parents[s] / len(births) == pytest.approx(1 / 6, abs=0.03) for s in ("t1", "t2", "t3", "s1", "s2", "s3"))
    crossovers = [r for r in births if len(r.parent_slots) == 2]
    assert len(crossovers) / len(births) == pytest.approx(0.5, abs=0.04)


def test_crossover_probability():
    for probability, arity in ((0.0, 1), (1.0, 2)):
        plan = plan_replacements(graded(), 10, SelectionConfig(crossover_probability=probability), random.Random(0))
        assert [len(r.parent_slots) for r in plan] == [arity, arity]


def test_one_survivor_can_only_mutate():
    plan = plan_replacements(graded(2, 2), 10, SelectionConfig(crossover_probability=1.0), random.Random(0))
    assert [r.operator for r in plan] == ["full_gaussian", "full_gaussian"]
    with pytest.raises(ValueError, match="expected one that takes the 1 survivor as parent, found layer_wise"):
        plan_replacements(graded(2, 2), 10, SelectionConfig(operators=("layer_wise",)), random.Random(0))


def test_ties_are_broken_at_random_and_reproducibly():
    slots = Counter()
    for seed in range(400):
        plan = plan_replacements(founders(4, 4), 10, SelectionConfig(), random.Random(seed))
        assert plan == plan_replacements(founders(4, 4), 10, SelectionConfig(), random.Random(seed))
        slots[plan[1].slot] += 1
    assert all(60 <= slots[f"s{i}"] <= 140 for i in range(4))


@pytest.mark.parametrize(
    "wrong",
    [
        {"fraction": 0.0},
        {"fraction": 1.0},
        {"grace_steps": -1},
        {"sigma_inflation": 0.9},
        {"crossover_probability": 1.5},
        {"operators": ()},
        {"operators": ("layerwise",)},
        {"roles": ("both",)},
    ],
)
def test_config_bounds(wrong):
    with pytest.raises(ValueError, match="expected"):
        SelectionConfig(**wrong)


def test_a_long_run_keeps_its_invariants():
    rng = random.Random(0)
    population, seen = founders(4, 4), set()
    for step in range(1, 201):
        population = play(population, rng)
        if step % 10 == 0:
            for role in (population.teachers, population.students):
                best = max(role, key=lower_bound)
                assert best not in cullable(role, step, SelectionConfig())
            plan = plan_replacements(population, step, SelectionConfig(), rng)
            for replacement in plan:
                replaced = population.by_slot(replacement.slot)
                assert replaced.generation == 0 or step - replaced.born_step >= 20
                assert replacement.child.version not in seen
                seen.add(replacement.child.version)
                population = population.with_member(replacement.child)
    assert 30 <= len(seen) <= 40


def culls_of_the_youngest(config: SelectionConfig, initial_rating: bool, seeds: int = 6) -> tuple[float, float]:
    """Share of culls that hit the youngest of those who could be culled, and the share expected by chance.

    Equal skill, 4T+4S, 200 steps, k = 10. Evolutions at which all who could be culled are of one age do not
    count.
    """
    hits = expected = 0.0
    n_culls = 0
    for seed in range(seeds):
        rng, population = random.Random(seed), founders(4, 4)
        for step in range(1, 201):
            population = play(population, rng)
            if step % 10:
                continue
            plan = plan_replacements(population, step, config, rng)
            for replacement in plan:
                replaced = population.by_slot(replacement.slot)
                peers = [m for m in population.members if m.role == replaced.role]
                births = [m.born_step for m in cullable(peers, step, config)]
                if len(set(births)) > 1:
                    hits += replaced.born_step == max(births)
                    expected += births.count(max(births)) / len(births)
                    n_culls += 1
            for replacement in plan:
                child = replacement.child
                if initial_rating:
                    child = replace(child, mu=INITIAL_MU, sigma=INITIAL_SIGMA)
                population = population.with_member(child)
    return hits / n_culls, expected / n_culls


def test_sigma_is_inflated_by_the_factor():
    config = SelectionConfig(sigma_inflation=1.5, operators=("copy_parent",))
    assert {r.child.sigma for r in plan_replacements(graded(), 10, config, random.Random(0))} == {3.0}


def test_by_default_the_youngest_is_culled_by_chance():
    share, chance = culls_of_the_youngest(SelectionConfig(), False)
    assert share == pytest.approx(chance, abs=0.1)


def test_inflation_leaves_a_bounded_bias_against_the_youngest():
    """Measured over 24 seeds: 0.72 against 0.49 by chance (factor 1.1: 0.63, 1.05: 0.56, 1.0: 0.47).

    After the grace period the inflated sigma has not converged to the others' yet, and the bound takes it
    threefold.
    """
    share, chance = culls_of_the_youngest(SelectionConfig(sigma_inflation=1.2), False)
    assert chance < share < chance + 0.33


def test_with_the_initial_rating_the_newest_child_churns():
    """What inheritance and grace are there to prevent: 99 % of culls hit the newest, one third by chance."""
    share, chance = culls_of_the_youngest(SelectionConfig(grace_steps=0), True)
    assert share > 0.95 and chance < 0.4


def test_the_bound_takes_as_many_sigmas_as_it_is_told():
    population = graded()
    population = population.with_member(replace(population.by_slot("s3"), sigma=8.0))
    plan = plan_replacements(population, 10, SelectionConfig(bound_sigmas=0.0), random.Random(0))
    assert [r.slot for r in plan] == ["t0", "s0"]


def test_a_child_may_start_from_the_initial_rating():
    plan = plan_replacements(graded(), 10, SelectionConfig(child_rating="initial"), random.Random(0))
    assert {(r.child.mu, r.child.sigma) for r in plan} == {(INITIAL_MU, INITIAL_SIGMA)}


def test_tournaments_prefer_the_fitter():
    def first_parents(**options) -> Counter:
        config = SelectionConfig(operators=("copy_parent",), roles=("student",), **options)
        rng = random.Random(0)
        return Counter(plan_replacements(graded(), 10, config, rng)[0].parent_slots[0] for _ in range(900))

    assert all(count == pytest.approx(300, abs=60) for count in first_parents().values())
    pairs = first_parents(parent_selection="tournament")  # s3 wins two of the three pairs, s2 one
    assert pairs["s1"] == 0 and pairs["s3"] == pytest.approx(600, abs=60)
    assert first_parents(parent_selection="tournament", tournament_size=9) == {"s3": 900}
    assert set(first_parents(parent_selection="tournament", tournament_size=1)) == {"s1", "s2", "s3"}


def test_weights_of_operators():
    rng = random.Random(0)
    config = SelectionConfig(operators={"full_gaussian": 3.0, "copy_parent": 1.0, "dare": 0.5})
    births = [r for _ in range(1000) for r in plan_replacements(graded(), 10, config, rng)]
    used = Counter(r.operator for r in births)
    assert used["dare"] / len(births) == pytest.approx(0.5, abs=0.04)
    assert used["full_gaussian"] / used["copy_parent"] == pytest.approx(3.0, rel=0.2)


def test_the_fitter_comes_first_where_the_operator_says_so():
    config = SelectionConfig(operators=("extrapolative",))
    for seed in range(20):
        for replacement in plan_replacements(graded(), 10, config, random.Random(seed)):
            first, second = (graded().by_slot(slot) for slot in replacement.parent_slots)
            assert lower_bound(first) > lower_bound(second)
            assert replacement.child.mu == first.mu


@pytest.mark.parametrize(
    "wrong",
    [
        {"bound_sigmas": -1.0},
        {"child_rating": "none"},
        {"parent_selection": "best"},
        {"tournament_size": 0},
        {"operators": {"dare": 0.0}},
        {"operators": {"dare": float("inf")}},
    ],
)
def test_bounds_of_the_policies(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: expected"):
        SelectionConfig(**wrong)


def test_random_survivors_include_the_weakest_and_the_best_may_go():
    config = SelectionConfig(survivors="random", grace_steps=0)
    culled = Counter(
        r.slot for seed in range(400) for r in plan_replacements(graded(), 10, config, random.Random(seed))
    )
    assert len(culled) == 8 and all(70 < n < 130 for n in culled.values())
