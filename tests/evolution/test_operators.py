"""What holds for every registered operator, then what holds for each one."""

import copy
from dataclasses import replace

import pytest
import torch

from popu.evolution.crossovers import layer_wise, linear_0_5
from popu.evolution.factors import delta
from popu.evolution.mutations import copy_parent, full_gaussian
from popu.evolution.registry import OPERATORS, get_operator
from popu.population.adapter import Adapter

Q0 = "layers.0.q_proj"
operators = pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def deltas(adapter: Adapter) -> dict[str, torch.Tensor]:
    return {module: delta(a, b, adapter.config.scale) for module, (a, b) in adapter.factors.items()}


def flat(adapter: Adapter) -> torch.Tensor:
    return torch.cat([factor.flatten() for module in sorted(adapter.factors) for factor in adapter.factors[module]])


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
def test_depends_on_the_generator_only(operator, trained):
    parents = [trained(i) for i in range(operator.arity)]
    backwards = [Adapter(p.config, dict(reversed(p.factors.items()))) for p in parents]
    torch.manual_seed(1)
    one = operator.apply(parents, rng(5))
    torch.manual_seed(2)
    assert torch.equal(flat(one), flat(operator.apply(backwards, rng(5))))


@operators
def test_child_of_fresh_parents_can_learn(operator, fresh):
    child = operator.apply([fresh(i) for i in range(operator.arity)], rng())
    for a, b in child.factors.values():
        assert not b.any() and (a.norm(dim=1) > 0).all()
        b.requires_grad_()
        x = torch.randn(3, a.shape[1], generator=rng(1))
        (x @ a.T @ b.T).sum().backward()
        assert b.grad is not None and (b.grad.abs().sum(dim=0) > 0).all()


@operators
def test_another_number_of_parents(operator, trained):
    with pytest.raises(ValueError, match=f"parents: expected {operator.arity}, found 3"):
        operator.apply([trained(i) for i in range(3)], rng())
    with pytest.raises(ValueError, match="found 0"):
        operator.apply([], rng())


@pytest.mark.parametrize("operator", [o for o in OPERATORS.values() if o.arity == 2], ids=lambda o: o.name)
def test_parents_that_do_not_fit(operator, trained, config):
    first, second = trained(0), trained(1)

    def with_factors(**factors) -> Adapter:
        return Adapter(config, {**second.factors, **factors})

    wider = with_factors(**{Q0: (torch.ones(4, 17), torch.ones(24, 4))})
    with pytest.raises(ValueError, match=r"module layers.0.q_proj: expected factor shapes .*\(4, 17\)"):
        operator.apply([first, wider], rng())
    more = with_factors(**{"layers.2.q_proj": (torch.ones(4, 16), torch.ones(24, 4))})
    with pytest.raises(ValueError, match="module layers.2.q_proj: expected in every parent"):
        operator.apply([first, more], rng())
    factors = {m: (a[:3], b[:, :3]) for m, (a, b) in second.factors.items()}
    with pytest.raises(ValueError, match="module layers.0.down_proj: expected factor shapes"):
        operator.apply([first, Adapter(replace(config, rank=3), factors)], rng())
    with pytest.raises(ValueError, match="parents' alpha: expected 6.0, found 7.0"):
        operator.apply([first, Adapter(replace(config, alpha=7), second.factors)], rng())
    with pytest.raises(ValueError, match="parents' rslora"):
        operator.apply([first, Adapter(replace(config, rslora=True), second.factors)], rng())


def test_registry():
    assert set(OPERATORS) == {"full_gaussian", "layer_wise", "copy_parent", "linear_0_5"}
    assert all(name == operator.name for name, operator in OPERATORS.items())
    assert get_operator("full_gaussian").constants == {"eps": 0.15}
    for wrong, nearest in [("full_gausian", "full_gaussian"), ("linear", "linear_0_5")]:
        with pytest.raises(ValueError, match=f"did you mean '{nearest}'"):
            get_operator(wrong)


def test_copy_is_exact(trained):
    assert torch.equal(flat(copy_parent([trained(0)], rng())), flat(trained(0)))


def test_full_gaussian_noise_is_eps_std_of_each_factor(config):
    wide = replace(config, targets=("q_proj",), rank=64)
    a, b = 3.0 * torch.randn(64, 500, generator=rng(1)), 0.01 * torch.randn(500, 64, generator=rng(2))
    child = full_gaussian([Adapter(wide, {"q_proj": (a, b)})], rng(3))
    new_a, new_b = child.factors["q_proj"]
    assert (new_a - a).std().item() == pytest.approx(0.15 * 3.0, rel=0.03)
    assert (new_b - b).std().item() == pytest.approx(0.15 * 0.01, rel=0.03)
    change = (new_b @ new_a - b @ a).norm() / (b @ a).norm()
    assert change.item() == pytest.approx((2 * 0.15**2 + 0.15**4) ** 0.5, rel=0.05)


def test_full_gaussian_does_not_depend_on_the_split_of_the_norm(trained, config):
    parent = trained(0)
    split = Adapter(config, {m: (8 * a, b / 8) for m, (a, b) in parent.factors.items()})
    one, two = deltas(full_gaussian([parent], rng(1))), deltas(full_gaussian([split], rng(1)))
    for module in one:
        torch.testing.assert_close(one[module], two[module])


def test_linear_of_equal_deltas_in_rotated_factors(trained, config):
    parent = trained(0)
    q, _ = torch.linalg.qr(torch.randn(4, 4, generator=rng(1)))
    rotated = Adapter(config, {m: (q.T @ a, b @ q) for m, (a, b) in parent.factors.items()})
    child = linear_0_5([parent, rotated], rng())
    for module, dense in deltas(child).items():
        torch.testing.assert_close(dense, deltas(parent)[module], rtol=1e-4, atol=1e-4)
        a, b = (torch.stack(pair).mean(0) for pair in zip(parent.factors[module], rotated.factors[module], strict=True))
        assert (delta(a, b, config.scale) - dense).norm() > 0.1 * dense.norm()  # what averaging the factors gives


def test_linear_is_the_best_rank_r_mean_and_symmetric(trained):
    one, two = trained(0), trained(1)
    forward, backward = deltas(linear_0_5([one, two], rng())), deltas(linear_0_5([two, one], rng()))
    for module, dense in forward.items():
        mean = (deltas(one)[module] + deltas(two)[module]) / 2
        u, s, vh = torch.linalg.svd(mean, full_matrices=False)
        torch.testing.assert_close(dense, u[:, :4] * s[:4] @ vh[:4], rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(dense, backward[module], rtol=1e-3, atol=1e-3)


def test_linear_with_a_fresh_parent_halves(trained, fresh):
    for module, dense in deltas(linear_0_5([fresh(5), trained(0)], rng())).items():
        torch.testing.assert_close(dense, deltas(trained(0))[module] / 2, rtol=1e-4, atol=1e-4)


def test_layer_wise_takes_whole_modules_from_both(trained):
    one, two = trained(0), trained(1)
    counts = dict.fromkeys(one.factors, 0)
    for seed in range(200):
        child = layer_wise([one, two], rng(seed))
        for module, (a, b) in child.factors.items():
            sources = [p for p in (one, two) if torch.equal(a, p.factors[module][0])]
            assert len(sources) == 1 and torch.equal(b, sources[0].factors[module][1])
            counts[module] += sources[0] is two
    assert all(60 <= count <= 140 for count in counts.values())
