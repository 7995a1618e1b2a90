import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from popu.evolution.factors import delta, from_svd, recompress, thin_svd


def random_factors(seed: int, d_out: int, d_in: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rank, d_in, generator=generator), torch.randn(d_out, rank, generator=generator)


dimensions = st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 8))


@settings(deadline=None, max_examples=60)
@given(dimensions, st.integers(0, 10**6), st.sampled_from([0.25, 1.0, 2.0]))
def test_thin_svd_and_back(sizes, seed, scale):
    d_out, d_in, rank = sizes
    a, b = random_factors(seed, d_out, d_in, rank)
    u, s, vh = thin_svd(a, b, scale)
    assert (u.shape, s.shape, vh.shape) == ((d_out, rank), (rank,), (rank, d_in))
    dense = delta(a, b, scale)
    torch.testing.assert_close(u @ torch.diag(s) @ vh, dense, rtol=1e-4, atol=1e-4)
    k = min(d_out, d_in, rank)
    golden = torch.linalg.svdvals(dense.double())[:k].float()
    torch.testing.assert_close(s[:k], golden, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(u[:, :k].T @ u[:, :k], torch.eye(k), rtol=0, atol=1e-5)
    torch.testing.assert_close(vh[:k] @ vh[:k].T, torch.eye(k), rtol=0, atol=1e-5)
    assert not s[k:].any() and (s.diff() <= 0).all() and (s >= 0).all()
    new_a, new_b = from_svd(u, s, vh, scale, rank, keep_a=a)
    torch.testing.assert_close(delta(new_a, new_b, scale), dense, rtol=1e-4, atol=1e-4)
    assert (new_a.norm(dim=1) > 0).all()


def test_balanced():
    a, b = random_factors(0, 12, 9, 4)
    u, s, vh = thin_svd(100 * a, b, 2.0)
    new_a, new_b = from_svd(u, s, vh, 2.0, 4, a)
    torch.testing.assert_close(new_a.norm(dim=1), (s / 2.0).sqrt())
    torch.testing.assert_close(new_b.norm(dim=0), (s / 2.0).sqrt())


def test_independent_of_the_factors_basis():
    a, b = random_factors(1, 12, 9, 4)
    mix = torch.randn(4, 4, generator=torch.Generator().manual_seed(2))
    _, s, _ = thin_svd(a, b, 1.0)
    _, s_mixed, _ = thin_svd(torch.linalg.inv(mix) @ a, b @ mix, 1.0)
    torch.testing.assert_close(s, s_mixed, rtol=1e-4, atol=1e-4)


def test_fresh_adapter_keeps_a_and_can_learn():
    a, _ = random_factors(0, 12, 9, 4)
    new_a, new_b = from_svd(*thin_svd(a, torch.zeros(12, 4), 2.0), scale=2.0, rank=4, keep_a=a)
    assert torch.equal(new_a, a) and not new_b.any()
    assert new_a.data_ptr() != a.data_ptr()
    new_b.requires_grad_()
    (delta(new_a, new_b, 2.0) * torch.ones(12, 9)).sum().backward()
    assert new_b.grad is not None and (new_b.grad.abs().sum(dim=0) > 0).all()


def test_dead_components_anywhere_are_reseeded():
    a, b = random_factors(3, 12, 9, 4)
    u, s, vh = thin_svd(a, b, 2.0)
    masked = s * torch.tensor([1.0, 0.0, 1.0, 1e-8])
    seed_a = torch.arange(36.0).view(4, 9)
    new_a, new_b = from_svd(u, masked, vh, 2.0, 4, seed_a)
    assert torch.equal(new_a[[1, 3]], seed_a[[1, 3]]) and not new_b[:, [1, 3]].any()
    torch.testing.assert_close(delta(new_a, new_b, 2.0), u[:, [0, 2]] * s[[0, 2]] @ vh[[0, 2]])


def test_fewer_and_more_components_than_rank():
    a, b = random_factors(4, 12, 9, 6)
    u, s, vh = thin_svd(a, b, 1.0)
    keep = torch.ones(4, 9)
    short_a, short_b = from_svd(u[:, :2], s[:2], vh[:2], 1.0, 4, keep)
    assert torch.equal(short_a[2:], keep[2:]) and not short_b[:, 2:].any()
    cut_a, cut_b = from_svd(u, s, vh, 1.0, 4, keep)
    torch.testing.assert_close(delta(cut_a, cut_b, 1.0), u[:, :4] * s[:4] @ vh[:4])
    none_a, none_b = from_svd(u[:, :0], s[:0], vh[:0], 1.0, 4, keep)
    assert torch.equal(none_a, keep) and none_b.shape == (12, 4)


@settings(deadline=None, max_examples=40)
@given(dimensions, st.integers(0, 10**6), st.lists(st.floats(-2, 2), min_size=1, max_size=3))
def test_recompress_is_the_best_truncation(sizes, seed, coefs):
    d_out, d_in, rank = sizes
    terms = [(coef, *random_factors(seed + i, d_out, d_in, rank)) for i, coef in enumerate(coefs)]
    a, b = recompress(terms, rank, keep_a=terms[0][1])
    dense = sum(coef * (b_i @ a_i).double() for coef, a_i, b_i in terms)
    u, s, vh = torch.linalg.svd(dense, full_matrices=False)
    best = (u[:, :rank] * s[:rank] @ vh[:rank]).float()
    error = (dense.float() - delta(a, b, 1.0)).norm()  # compared by error: near ties make the subspace ambiguous
    assert error <= (dense.float() - best).norm() + 1e-4 * (1 + dense.norm())
    assert (a.norm(dim=1) > 0).all()


def test_cancelling_terms_leave_a_fresh_adapter():
    a, b = random_factors(5, 12, 9, 4)
    new_a, new_b = recompress([(1.0, a, b), (1.0, a, torch.zeros_like(b))], 4, a)
    torch.testing.assert_close(new_b @ new_a, b @ a)
    zero_a, zero_b = recompress([(0.0, a, b)], 4, a)
    assert torch.equal(zero_a, a) and not zero_b.any()


def test_errors():
    a, b = random_factors(6, 12, 9, 4)
    with pytest.raises(ValueError, match=r"found \(3, 9\) and \(12, 4\)"):
        thin_svd(a[:3], b, 1.0)
    with pytest.raises(ValueError, match=r"keep_a: expected shape \(4, 9\), found \(3, 9\)"):
        from_svd(*thin_svd(a, b, 1.0), scale=1.0, rank=4, keep_a=a[:3])
    with pytest.raises(ValueError, match="terms"):
        recompress([], 4, a)
