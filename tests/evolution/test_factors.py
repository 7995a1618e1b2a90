import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from popu.evolution.factors import dense, from_svd, recompress, thin_svd, truncate
from popu.evolution.family import Delta


def random_factors(seed: int, d_out: int, d_in: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rank, d_in, generator=generator), torch.randn(d_out, rank, generator=generator)


dimensions = st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 8))


@settings(deadline=None, max_examples=60)
@given(dimensions, st.integers(0, 10**6), st.sampled_from([0.25, 1.0, 2.0]))
def test_thin_svd_and_back(sizes, seed, scale):
    d_out, d_in, rank = sizes
    a, b = random_factors(seed, d_out, d_in, rank)
    svd = thin_svd(a, b, scale)
    u, s, vh = svd.u, svd.s.float(), svd.vh
    assert (u.shape, s.shape, vh.shape) == ((d_out, rank), (rank,), (rank, d_in))
    full = dense(Delta(a, b, scale))
    torch.testing.assert_close(u @ torch.diag(s) @ vh, full, rtol=1e-4, atol=1e-4)
    k = min(d_out, d_in, rank)
    golden = torch.linalg.svdvals(full.double())[:k].float()
    torch.testing.assert_close(s[:k], golden, rtol=1e-4, atol=1e-4)
    live = s > 0
    torch.testing.assert_close(u[:, live].T @ u[:, live], torch.eye(int(live.sum())), rtol=0, atol=1e-4)
    torch.testing.assert_close(vh[live] @ vh[live].T, torch.eye(int(live.sum())), rtol=0, atol=1e-4)
    assert not s[k:].any() and (s.diff() <= 0).all() and (s >= 0).all() and (u.sum(dim=0) >= -1e-4).all()
    new_a, new_b = from_svd(svd, scale, keep_a=a)
    torch.testing.assert_close(dense(Delta(new_a, new_b, scale)), full, rtol=1e-4, atol=1e-4)
    assert (new_a.norm(dim=1) > 0).all()


def test_balanced():
    a, b = random_factors(0, 12, 9, 4)
    svd = thin_svd(100 * a, b, 2.0)
    new_a, new_b = from_svd(svd, 2.0, a)
    torch.testing.assert_close(new_a.norm(dim=1), (svd.s / 2.0).sqrt().float())
    torch.testing.assert_close(new_b.norm(dim=0), (svd.s / 2.0).sqrt().float())


@pytest.mark.parametrize("grading", [1e-3, 1e-6, 1e-9])
def test_factors_of_very_different_columns(grading):
    """Columns of B that are tiny count where their rows of A make up for it."""
    a, b = random_factors(1, 12, 9, 4)
    factor = torch.tensor([1.0, grading, 1.0, grading])
    full = dense(Delta(a, b, 1.0))
    graded = Delta(*from_svd(thin_svd(a / factor[:, None], b * factor, 1.0), 1.0, a), 1.0)
    torch.testing.assert_close(dense(graded), full, rtol=1e-4, atol=1e-4)


def test_independent_of_the_factors_basis():
    a, b = random_factors(1, 12, 9, 4)
    mix = torch.randn(4, 4, generator=torch.Generator().manual_seed(2))
    one, other = thin_svd(a, b, 1.0), thin_svd(torch.linalg.inv(mix) @ a, b @ mix, 1.0)
    torch.testing.assert_close(one.s, other.s, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(one.u, other.u, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(one.vh, other.vh, rtol=1e-3, atol=1e-3)


def test_fresh_adapter_keeps_a_and_can_learn():
    a, _ = random_factors(0, 12, 9, 4)
    new_a, new_b = from_svd(thin_svd(a, torch.zeros(12, 4), 2.0), scale=2.0, keep_a=a)
    assert torch.equal(new_a, a) and not new_b.any()
    assert new_a.data_ptr() != a.data_ptr()
    new_b.requires_grad_()
    (dense(Delta(new_a, new_b, 2.0)) * torch.ones(12, 9)).sum().backward()
    assert new_b.grad is not None and (new_b.grad.abs().sum(dim=0) > 0).all()


def test_dead_components_anywhere_are_reseeded():
    a, b = random_factors(3, 12, 9, 4)
    svd = thin_svd(a, b, 2.0)
    masked = svd._replace(s=svd.s * torch.tensor([1.0, 0.0, 1.0, 0.0]))
    seed_a = torch.arange(36.0).view(4, 9)
    new_a, new_b = from_svd(masked, 2.0, seed_a)
    assert torch.equal(new_a[[1, 3]], seed_a[[1, 3]]) and not new_b[:, [1, 3]].any()
    kept = svd.u[:, [0, 2]] * svd.s[[0, 2]].float() @ svd.vh[[0, 2]]
    torch.testing.assert_close(dense(Delta(new_a, new_b, 2.0)), kept)


def test_rounding_is_dead():
    a, b = random_factors(3, 12, 9, 4)
    b[:, 3] = b[:, 0] + 1e-8 * b[:, 3]
    svd = thin_svd(a, b, 2.0)
    assert (svd.s[:3] > 0).all() and svd.s[3] == 0


def test_fewer_and_more_components_than_rank():
    a, b = random_factors(4, 12, 9, 6)
    svd = thin_svd(a, b, 1.0)
    keep = torch.ones(4, 9)
    short_a, short_b = from_svd(svd.part(slice(2)), 1.0, keep)
    assert torch.equal(short_a[2:], keep[2:]) and not short_b[:, 2:].any()
    cut_a, cut_b = from_svd(svd, 1.0, keep)
    torch.testing.assert_close(cut_b @ cut_a, svd.u[:, :4] * svd.s[:4].float() @ svd.vh[:4])
    none_a, none_b = from_svd(svd.part(slice(0)), 1.0, keep)
    assert torch.equal(none_a, keep) and none_b.shape == (12, 4)


@settings(deadline=None, max_examples=40)
@given(dimensions, st.integers(0, 10**6), st.lists(st.integers(-200, 200), min_size=1, max_size=3))
def test_recompress_is_the_best_truncation(sizes, seed, hundredths):
    """Coefficients in hundredths: below some 1e-38 a factor's norm underflows in float32."""
    d_out, d_in, rank = sizes
    coefs = [n / 100 for n in hundredths]
    terms = [(coef, Delta(*random_factors(seed + i, d_out, d_in, rank), 0.5 + i)) for i, coef in enumerate(coefs)]
    child = Delta(*recompress(terms, 4.0, keep_a=terms[0][1].a), 4.0)
    full = sum(coef * dense(delta).double() for coef, delta in terms)
    error = (full - dense(child)).norm()  # compared by error: near ties make the subspace ambiguous
    assert error <= torch.linalg.svdvals(full)[rank:].norm() + 1e-4 * (1 + full.norm())
    assert (child.a.norm(dim=1) > 0).all()


def test_cancelling_terms_leave_a_fresh_adapter():
    a, b = random_factors(5, 12, 9, 4)
    new_a, new_b = recompress([(1.0, Delta(a, b, 1.0)), (1.0, Delta(a, torch.zeros_like(b), 1.0))], 1.0, a)
    torch.testing.assert_close(new_b @ new_a, b @ a)
    zero_a, zero_b = recompress([(0.0, Delta(a, b, 1.0))], 1.0, a)
    assert torch.equal(zero_a, a) and not zero_b.any()


def spectrum(values: torch.Tensor, d_out: int, d_in: int, seed: int) -> torch.Tensor:
    """A dense matrix of given singular values."""
    generator = torch.Generator().manual_seed(seed)
    u, v = (torch.linalg.qr(torch.randn(d, len(values), generator=generator)).Q for d in (d_out, d_in))
    return u * values @ v.T


@pytest.mark.parametrize("shape", [(60, 40), (40, 60), (300, 200), (200, 1000)])
@pytest.mark.parametrize("rank", [1, 4, 16, 32])
@pytest.mark.parametrize(
    "values",
    [
        lambda n: torch.ones(n),
        lambda n: torch.linspace(1, 0, n),
        lambda n: 0.9 ** torch.arange(n),
        lambda n: 0.5 ** torch.arange(n),
        lambda n: 1.0 / torch.arange(1, n + 1),
        lambda n: torch.cat([torch.full((8,), 3.0), torch.ones(n - 8)]),
    ],
    ids=["flat", "linear", "slow", "steep", "heavy tail", "signal and noise"],
)
def test_the_residual_of_a_truncation_is_within_two_percent_of_the_optimal(values, rank, shape):
    full = spectrum(values(min(shape)), *shape, seed=rank)
    optimal = torch.linalg.svdvals(full.double())[rank:].norm().item()
    for seed in range(3):
        keep = torch.ones(rank, shape[1])
        a, b = truncate(full, 2.0, keep, torch.Generator().manual_seed(seed), guess=keep)
        residual = (full - dense(Delta(a, b, 2.0))).double().norm().item()
        assert residual <= 1.02 * optimal + 1e-5 * full.norm().item()


def test_truncation_of_little():
    keep = torch.ones(4, 9)
    a, b = truncate(torch.zeros(12, 9), 1.0, keep, torch.Generator().manual_seed(0), guess=keep)
    assert torch.equal(a, keep) and not b.any()
    thin = torch.randn(3, 9, generator=torch.Generator().manual_seed(1))
    a, b = truncate(thin, 1.0, keep, torch.Generator().manual_seed(0), guess=keep)
    torch.testing.assert_close(b @ a, thin)
    assert torch.equal(a[3], keep[3]) and not b[:, 3].any()


def test_errors():
    a, b = random_factors(6, 12, 9, 4)
    with pytest.raises(ValueError, match=r"found \(3, 9\) and \(12, 4\)"):
        thin_svd(a[:3], b, 1.0)
    with pytest.raises(ValueError, match=r"keep_a: expected shape \(rank, 9\), found \(4, 8\)"):
        from_svd(thin_svd(a, b, 1.0), scale=1.0, keep_a=a[:, :8])
    with pytest.raises(ValueError, match="terms"):
        recompress([], 1.0, a)
