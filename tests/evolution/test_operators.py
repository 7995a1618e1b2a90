"""What holds for every registered operator, then what holds for each one."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from adapters import SHAPES, deltas, flat, random_b, rng, rotated

from popu.evolution.factors import Scratch
from popu.evolution.family import Family
from popu.evolution.operators.dare import mean_of_dropped
from popu.evolution.registry import OPERATORS, get_operator
from popu.population.adapter import Adapter, LoraConfig, kaiming_a, new_adapter

Q0 = "layers.0.q_proj"
CROSSOVERS = [operator for operator in OPERATORS.values() if operator.arity == 2]
MUTATIONS = [operator for operator in OPERATORS.values() if operator.arity == 1]
operators = pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
crossovers = pytest.mark.parametrize("operator", CROSSOVERS, ids=lambda operator: operator.name)


def make(name: str, parents: list[Adapter], seed: int = 0) -> Adapter:
    return get_operator(name).apply(parents, rng(seed))


def with_constants(name: str, **constants: float):
    return replace(get_operator(name), constants=constants)


def test_registry():
    assert set(OPERATORS) == {
        *("svd_structured", "layer_selective_gaussian", "component_masking", "full_gaussian"),
        *("dare", "layer_wise", "svd_subspace", "extrapolative", "ties"),
        *("copy_parent", "copy_parent_refactored", "linear_0_5"),
    }
    assert all(name == operator.name and operator.reference for name, operator in OPERATORS.items())
    assert {name: dict(operator.constants) for name, operator in OPERATORS.items() if operator.constants} == {
        "svd_structured": {"eps": 0.1},
        "layer_selective_gaussian": {"eps": 0.1, "fraction": 0.33},
        "component_masking": {"rho": 0.3},
        "full_gaussian": {"eps": 0.15},
        "dare": {"p": 0.7},
        "extrapolative": {"eta_min": 1.0, "eta_max": 1.5},
        "ties": {"density": 0.5},
        "linear_0_5": {"weight": 0.5},
    }
    for wrong, nearest in [("full_gausian", "full_gaussian"), ("linear", "linear_0_5")]:
        with pytest.raises(ValueError, match=f"did you mean '{nearest}'"):
            get_operator(wrong)


# --- every operator --------------------------------------------------------------------------------------------


@operators
def test_rank_kept_parents_untouched_memory_own(operator, trained):
    parents = [trained(i) for i in range(operator.arity)]
    before = copy.deepcopy([p.factors for p in parents])
    child = operator.apply(parents, rng())
    assert child.config == parents[0].config and child.shapes == parents[0].shapes
    assert torch.isfinite(flat(child)).all()
    owned = {f.untyped_storage().data_ptr() for p in parents for pair in p.factors.values() for f in pair}
    for pair in child.factors.values():
        for factor in pair:
            factor.zero_()
            assert factor.untyped_storage().data_ptr() not in owned and not factor.requires_grad
    for parent, factors in zip(parents, before, strict=True):
        for module, (a, b) in factors.items():
            assert torch.equal(parent.factors[module][0], a) and torch.equal(parent.factors[module][1], b)


@operators
def test_the_child_depends_on_the_generator_only(operator, trained):
    parents = [trained(i) for i in range(operator.arity)]
    backwards = [Adapter(p.config, dict(reversed(p.factors.items()))) for p in parents]
    torch.manual_seed(1)
    one = operator.apply(parents, rng(5))
    torch.manual_seed(2)
    assert torch.equal(flat(one), flat(operator.apply(backwards, rng(5))))
    other = operator.apply(parents, rng(6))
    deterministic = operator.name in ("copy_parent", "copy_parent_refactored", "linear_0_5")
    assert torch.equal(flat(one), flat(other)) == deterministic


@operators
@pytest.mark.parametrize("kind", ["fresh", "trained", "one of each"])
@pytest.mark.parametrize("rank", [4, 8])
def test_a_child_learns_and_has_no_dead_rank(operator, kind, rank):
    config = LoraConfig(rank=rank, alpha=2 * rank, targets=("q_proj", "down_proj"))
    parents = [new_adapter(SHAPES, config, rng(i)) for i in range(operator.arity)]
    for i in range(operator.arity):
        if kind == "trained" or (kind == "one of each" and i == 0):
            parents[i] = random_b(parents[i], i)
    child = operator.apply(parents, rng())
    for module, (a, b) in child.factors.items():
        if kind == "fresh":
            assert not b.any()
        x, target = torch.randn(64, a.shape[1], generator=rng(1)), torch.randn(64, b.shape[0], generator=rng(2))
        scale = child.config.scale_of(module)

        def loss(a: torch.Tensor, b: torch.Tensor, x=x, target=target, scale=scale) -> torch.Tensor:
            return (scale * x @ a.T @ b.T - target).square().mean()

        a, b = a.requires_grad_(), b.requires_grad_()
        before = loss(a, b)
        grad_a, grad_b = torch.autograd.grad(before, (a, b))
        alive = (grad_a.abs().sum(dim=1) > 0) | (grad_b.abs().sum(dim=0) > 0)
        assert alive.all()
        assert loss(a - 1e-3 * grad_a, b - 1e-3 * grad_b) < before


@operators
def test_another_number_of_parents(operator, trained):
    with pytest.raises(ValueError, match=f"parents: expected {operator.arity}, found 3"):
        operator.apply([trained(i) for i in range(3)], rng())
    with pytest.raises(ValueError, match="found 0"):
        operator.apply([], rng())


@pytest.mark.parametrize("multiple", [1.0, 2.0, 0.5])
@operators
def test_alpha_counts_once(operator, multiple, fresh, config):
    """Parents of equal factors and another alpha have a child of equal dW times that."""
    parents = [random_b(fresh(i), i) for i in range(operator.arity)]
    scaled = [Adapter(replace(config, alpha=multiple * config.rank), p.factors) for p in parents]
    unscaled = [Adapter(replace(config, alpha=config.rank), p.factors) for p in parents]
    one, other = (deltas(operator.apply(p, rng(1))) for p in (scaled, unscaled))
    for module in one:
        torch.testing.assert_close(one[module], multiple * other[module], rtol=1e-3, atol=1e-3)


# --- parents that differ ---------------------------------------------------------------------------------------


@crossovers
def test_parents_that_do_not_fit(operator, trained, config):
    first, second = trained(0), trained(1)
    wider = Adapter(config, {**second.factors, Q0: (torch.ones(4, 17), torch.ones(24, 4))})
    with pytest.raises(ValueError, match=r"module layers.0.q_proj: expected \(d_out, d_in\) \(24, 16\) .*\(24, 17\)"):
        operator.apply([first, wider], rng())
    narrow = {m: (a[:3], b[:, :3]) for m, (a, b) in second.factors.items()}
    with pytest.raises(ValueError, match="module layers.0.down_proj: expected rank 4 in both parents, found 3"):
        operator.apply([first, Adapter(replace(config, rank=3), narrow)], rng())
    only_q = {m: f for m, f in second.factors.items() if m.endswith("q_proj")}
    with pytest.raises(
        ValueError, match="parents' targets: expected .*'down_proj', 'q_proj'.* found .'q_proj'. in one"
    ):
        operator.apply([first, Adapter(replace(config, targets=("q_proj",)), only_q)], rng())


@crossovers
@pytest.mark.parametrize("changes", [{"alpha": 48.0}, {"rslora": True}])
def test_parents_of_equal_deltas_and_other_scales(operator, changes, trained, config):
    """The second parent's dW is the first's, written with another alpha: the child is as of two equal parents."""
    first = trained(0)
    other_config = replace(config, **changes)
    ratio = config.scale / other_config.scale
    second = Adapter(other_config, {m: (a, ratio * b) for m, (a, b) in first.factors.items()})
    one = deltas(operator.apply([first, second], rng(3)))
    two = deltas(operator.apply([first, first], rng(3)))
    for module in one:
        torch.testing.assert_close(one[module], two[module], rtol=1e-3, atol=1e-3)


@crossovers
def test_a_module_of_one_parent_only_is_zero_in_the_other(operator, trained, config):
    first, second = trained(0), trained(1)
    fewer = Adapter(config, {m: f for m, f in first.factors.items() if m != Q0})
    zero = Adapter(config, {**first.factors, Q0: (second.factors[Q0][0], torch.zeros(24, 4))})
    child = operator.apply([fewer, second], rng(2))
    assert child.config.targets == tuple(sorted(SHAPES)) and child.shapes == SHAPES
    expected = deltas(operator.apply([zero, second], rng(2)))
    for module, full in deltas(child).items():
        torch.testing.assert_close(full, expected[module], rtol=1e-3, atol=1e-3)
    assert operator.apply([second, fewer], rng(2)).config == config


@operators
def test_modules_with_ranks_and_alphas_of_their_own(operator, config):
    patterned = replace(config, rank_pattern={Q0: 2}, alpha_pattern={Q0: 32.0})
    parents = [
        random_b(
            Adapter(
                patterned,
                {m: (kaiming_a(patterned.rank_of(m), i, rng(k)), torch.zeros(o, patterned.rank_of(m)))
                 for m, (o, i) in SHAPES.items()},
            ),
            k,
        )
        for k in range(operator.arity)
    ]  # fmt: skip
    child = operator.apply(parents, rng())
    assert child.config == patterned and child.factors[Q0][0].shape == (2, 16)
    if operator.name in ("copy_parent", "copy_parent_refactored"):
        for module, full in deltas(child).items():
            torch.testing.assert_close(full, deltas(parents[0])[module], rtol=1e-4, atol=1e-4)


# --- equal, rotated and swapped parents ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operator",
    [
        *(get_operator(name) for name in ("linear_0_5", "extrapolative", "layer_wise", "svd_subspace")),
        with_constants("ties", density=1.0),
    ],
    ids=lambda operator: operator.name,
)
def test_equal_deltas_in_rotated_factors_are_kept(operator, trained):
    parent = trained(0)
    child = operator.apply([parent, rotated(parent, 1)], rng(4))
    for module, full in deltas(child).items():
        torch.testing.assert_close(full, deltas(parent)[module], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["svd_structured", "component_masking", "dare", "ties", "svd_subspace"])
def test_only_the_delta_matters(name, trained):
    parents = [trained(i) for i in range(get_operator(name).arity)]
    one = deltas(make(name, parents, 3))
    other = deltas(make(name, [rotated(parent, i) for i, parent in enumerate(parents)], 3))
    for module in one:
        torch.testing.assert_close(one[module], other[module], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["linear_0_5", "ties"])
def test_symmetric(name, trained):
    one, two = trained(0), trained(1)
    forward, backward = deltas(make(name, [one, two])), deltas(make(name, [two, one]))
    for module in forward:
        torch.testing.assert_close(forward[module], backward[module], rtol=1e-3, atol=1e-3)


# --- against a dense reference in float64 ----------------------------------------------------------------------


def components(full: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """U (columns of non-negative sum), S, Vh in float64."""
    u, s, vh = torch.linalg.svd(full.double(), full_matrices=False)
    sign = torch.where(u.sum(dim=0) < 0, -1.0, 1.0).double()
    return u * sign, s, vh * sign[:, None]


def assert_golden(child: Adapter, expected: dict[str, torch.Tensor]) -> None:
    for module, full in deltas(child).items():
        assert (full.double() - expected[module]).norm() <= 1e-5 * expected[module].norm(), module


def assert_optimal(child: Adapter, expected: dict[str, torch.Tensor]) -> None:
    """The child's dW approximates the expected dense one as well as its rank allows."""
    for module, full in deltas(child).items():
        optimal = torch.linalg.svdvals(expected[module])[child.config.rank :].norm()
        assert (full.double() - expected[module]).norm() <= 1.02 * optimal + 1e-5 * expected[module].norm(), module


def golden_deltas(adapter: Adapter) -> dict[str, torch.Tensor]:
    """dW in float64 in the sorted order of modules."""
    scale = adapter.config.alpha / adapter.config.rank
    return {m: scale * b.double() @ a.double() for m, (a, b) in sorted(adapter.factors.items())}


def test_copies(trained):
    parent = trained(0)
    assert torch.equal(flat(make("copy_parent", [parent])), flat(parent))
    child = make("copy_parent_refactored", [parent])
    assert_golden(child, golden_deltas(parent))
    for a, b in child.factors.values():
        torch.testing.assert_close(a.norm(dim=1), b.norm(dim=0))
    assert not torch.allclose(flat(child), flat(parent), atol=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_svd_structured_is_what_it_says(seed, trained):
    parent, generator = trained(0), rng(seed)
    expected = {}
    for module, full in golden_deltas(parent).items():
        u, s, vh = (part[..., :4] if i < 2 else part[:4] for i, part in enumerate(components(full)))
        z = torch.randn(4, generator=generator).double()
        upper = [torch.randn(4, 4, generator=generator).double().triu(1) for _ in range(2)]
        left, right = (torch.matrix_exp(0.1 / 2 * (k - k.T)) for k in upper)
        expected[module] = (u @ left) * (s * torch.exp(0.1 * z)) @ (vh.T @ right).T
    assert_golden(make("svd_structured", [parent], seed), expected)


def test_gaussians_are_what_they_say(trained):
    parent = trained(0)
    child, generator = make("full_gaussian", [parent], 7), rng(7)
    for module in sorted(parent.factors):
        for before, after in zip(parent.factors[module], child.factors[module], strict=True):
            noise = torch.randn(before.shape, generator=generator).double()
            wanted = before.double() + 0.15 * before.double().std(correction=0) * noise
            assert (after.double() - wanted).norm() <= 1e-5 * wanted.norm()
    child = make("layer_selective_gaussian", [parent], 7)
    changed = [m for m in parent.factors if not torch.equal(parent.factors[m][0], child.factors[m][0])]
    assert len(changed) == 1  # floor(0.33 * 4)
    a, b = child.factors[changed[0]]
    old_a, old_b = parent.factors[changed[0]]
    for after, before in ((a, old_a), (b, old_b)):
        relative = (after - before).std(correction=0) / before.std(correction=0)
        assert relative.item() == pytest.approx(0.1, rel=0.2)


def test_the_noisy_modules_are_drawn_evenly(trained):
    parent = trained(0)
    counts = dict.fromkeys(parent.factors, 0)
    for seed in range(400):
        child = make("layer_selective_gaussian", [parent], seed)
        for module in counts:
            counts[module] += not torch.equal(parent.factors[module][1], child.factors[module][1])
    assert sum(counts.values()) == 400 and all(70 <= count <= 130 for count in counts.values())


def test_component_masking_is_what_it_says(trained):
    parent, generator = trained(0), rng(3)
    child, expected = make("component_masking", [parent], 3), {}
    for module, full in golden_deltas(parent).items():
        u, s, vh = components(full)
        dropped = torch.randperm(4, generator=generator)[:2]  # ceil(0.3 * 4)
        kaiming_a(2, full.shape[1], generator)
        s[dropped] = 0
        expected[module] = u * s @ vh
        a, b = child.factors[module]
        assert not b[:, dropped].any() and (a[dropped].abs() > 0).all()
        assert a[dropped].abs().max() <= 1 / math.sqrt(full.shape[1])
    assert_golden(child, expected)


def test_layer_wise_takes_whole_modules_from_both(trained):
    one, two = trained(0), trained(1)
    counts = dict.fromkeys(one.factors, 0)
    for seed in range(200):
        child = make("layer_wise", [one, two], seed)
        for module, (a, b) in child.factors.items():
            sources = [p for p in (one, two) if torch.equal(a, p.factors[module][0])]
            assert len(sources) == 1 and torch.equal(b, sources[0].factors[module][1])
            counts[module] += sources[0] is two
    assert all(60 <= count <= 140 for count in counts.values())


@pytest.mark.parametrize("seed", range(5))
def test_svd_subspace_is_what_it_says(seed, trained):
    one, two, generator = trained(0), trained(1), rng(seed)
    expected = {}
    for module, full in golden_deltas(one).items():
        k = int(torch.randint(1, 4, (), generator=generator))
        (u1, s1, vh1), (u2, s2, vh2) = components(full), components(golden_deltas(two)[module])
        expected[module] = u1[:, :k] * s1[:k] @ vh1[:k] + u2[:, k:4] * s2[k:4] @ vh2[k:4]
    assert_golden(make("svd_subspace", [one, two], seed), expected)


def test_svd_subspace_at_rank_one_takes_whole_modules():
    config = LoraConfig(1, 1, ("q_proj", "down_proj"))
    one, two = (random_b(new_adapter(SHAPES, config, rng(i)), i) for i in range(2))
    seen = set()
    for seed in range(20):
        for module, full in deltas(make("svd_subspace", [one, two], seed)).items():
            sources = [torch.allclose(full, deltas(p)[module], atol=1e-5) for p in (one, two)]
            assert sum(sources) == 1
            seen.add(sources.index(True))
    assert seen == {0, 1}


@pytest.mark.parametrize("seed", range(3))
def test_extrapolative_goes_past_the_first_parent(seed, trained):
    fitter, other = trained(0), trained(1)
    eta = 1.0 + 0.5 * torch.rand((), generator=rng(seed), dtype=torch.float64).item()
    expected = {m: w + eta * (golden_deltas(fitter)[m] - w) for m, w in golden_deltas(other).items()}
    assert_optimal(make("extrapolative", [fitter, other], seed), expected)
    nearby = Adapter(other.config, {m: (a, b + 0.01 * fitter.factors[m][1]) for m, (a, b) in other.factors.items()})
    expected = {m: w + eta * (golden_deltas(nearby)[m] - w) for m, w in golden_deltas(other).items()}
    assert_golden(make("extrapolative", [nearby, other], seed), expected)  # of rank 4: nothing is cut off


def test_linear_is_the_best_rank_r_mean(trained, fresh):
    one, two = golden_deltas(trained(0)), golden_deltas(trained(1))
    assert_optimal(make("linear_0_5", [trained(0), trained(1)]), {m: (one[m] + two[m]) / 2 for m in one})
    assert_golden(make("linear_0_5", [fresh(5), trained(0)]), {m: one[m] / 2 for m in one})


def test_dare_has_the_parents_mean_as_its_expectation(trained):
    one, two = trained(0), trained(1)
    module = next(iter(Family([one, two], 2)))
    mean = (deltas(one)[module.name] + deltas(two)[module.name]) / 2
    n, generator = 2000, rng(11)
    draws = torch.stack([mean_of_dropped(module, generator, 0.7, Scratch()) for _ in range(n)]).double()
    z = (draws.mean(dim=0) - mean) / (draws.std(dim=0) / math.sqrt(n))
    assert z.square().mean().item() == pytest.approx(1.0, abs=0.2) and z.abs().max() < 5
    kept_by_both = 0.3 * 0.3 + 0.3 * 0.7 * 2  # an entry of the mean is zero if both parents' are dropped
    assert (draws != 0).double().mean().item() == pytest.approx(kept_by_both, abs=0.005)
    variance = 0.7 / 0.3 * (deltas(one)[module.name] ** 2 + deltas(two)[module.name] ** 2) / 4
    assert (draws.var(dim=0) / variance).mean().item() == pytest.approx(1.0, abs=0.03)


def test_dare_truncates_well(trained):
    one, two = trained(0), trained(1)
    generator, expected = rng(5), {}
    for module in Family([one, two], 2):
        expected[module.name] = mean_of_dropped(module, generator, 0.7, Scratch()).double()
        shape = expected[module.name].shape
        torch.randn(shape[1], 10, generator=generator)  # of the sketch
    assert_optimal(make("dare", [one, two], 5), expected)


@pytest.mark.parametrize("density", [0.2, 0.5, 1.0])
def test_ties_is_what_it_says(density, trained):
    one, two = trained(0), trained(1)
    expected = {}
    for module in one.factors:
        trimmed = []
        for full in (golden_deltas(one)[module], golden_deltas(two)[module]):
            cut = full.abs().flatten().sort(descending=True).values[round(density * full.numel()) - 1]
            trimmed.append(torch.where(full.abs() >= cut * (1 - 1e-6), full, 0.0))
        stack = torch.stack(trimmed)
        elected = stack.sum(dim=0).sign()
        agreeing = (stack.sign() == elected) & (stack != 0)
        expected[module] = (stack * agreeing).sum(dim=0) / agreeing.sum(dim=0).clamp(min=1)
    child = with_constants("ties", density=density).apply([one, two], rng())
    assert_optimal(child, expected)


@pytest.mark.parametrize("rank", [4, 8, 32])
@pytest.mark.parametrize("name", [operator.name for operator in MUTATIONS])
def test_a_mutation_changes_as_much_as_its_constants_say(name, rank):
    """||child - parent|| / ||parent|| over modules of equal norm, averaged over seeds."""
    shapes = {f"layers.{i}.q_proj": (96, 80) for i in range(6)}
    parent = random_b(new_adapter(shapes, LoraConfig(rank, 2 * rank, ("q_proj",)), rng(0)), 0)
    before = deltas(parent)
    squares = []
    for seed in range(30):
        child = deltas(make(name, [parent], seed))
        change = sum((child[m] - before[m]).square().sum() for m in before)
        squares.append(float(change / sum(w.square().sum() for w in before.values())))
    expected = {
        "copy_parent": 0.0,
        "copy_parent_refactored": 0.0,
        "full_gaussian": math.sqrt(2 * 0.15**2 + 0.15**4),
        "layer_selective_gaussian": math.sqrt(1 / 6 * (2 * 0.1**2 + 0.1**4)),  # floor(0.33 * 6) = 1 of 6
        "component_masking": math.sqrt(math.ceil(0.3 * rank) / rank),
        "svd_structured": 0.1 * math.sqrt(1 + 2 * (rank - 1) / rank),
    }[name]
    assert math.sqrt(sum(squares) / len(squares)) == pytest.approx(expected, rel=0.08, abs=1e-5)


def test_the_change_by_noise_does_not_depend_on_the_split_of_the_norm(trained, config):
    parent = trained(0)
    split = Adapter(config, {m: (8 * a, b / 8) for m, (a, b) in parent.factors.items()})
    one, two = deltas(make("full_gaussian", [parent], 1)), deltas(make("full_gaussian", [split], 1))
    for module in one:
        torch.testing.assert_close(one[module], two[module])
