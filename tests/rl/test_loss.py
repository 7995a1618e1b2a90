import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from popu.rl.loss import policy_loss, reference_loss, token_log_probs


def batch(seed: int, lengths: list[int], drift: float) -> tuple[list, list, list, list]:
    """Per sequence: logits (t_i, 7), ids, old log-probabilities `drift` from the new ones, an advantage."""
    generator = torch.Generator().manual_seed(seed)
    logits = [torch.randn(t, 7, generator=generator).requires_grad_() for t in lengths]
    ids = [torch.randint(7, (t,), generator=generator) for t in lengths]
    old = []
    for rows, tokens in zip(logits, ids, strict=True):
        now = token_log_probs(rows.detach()[None], tokens[None])[0]
        old.append(now + drift * torch.randn(now.shape, generator=generator))
    return logits, ids, old, torch.randn(len(lengths), generator=generator).tolist()


def flat_loss(logits, ids, old, advantage, n_tokens_total):
    logp = torch.cat([token_log_probs(rows[None], tokens[None])[0] for rows, tokens in zip(logits, ids, strict=True)])
    repeated = torch.cat([torch.full((len(t),), a) for t, a in zip(ids, advantage, strict=True)])
    return policy_loss(logp, torch.cat(old), repeated, n_tokens_total)


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    drift=st.sampled_from([0.0, 0.1, 1.0]),
)
def test_equals_the_reference(seed, lengths, drift):
    logits, ids, old, advantage = batch(seed, lengths, drift)
    fast = flat_loss(logits, ids, old, advantage, sum(lengths)).loss
    slow = reference_loss(logits, [t.tolist() for t in ids], [o.tolist() for o in old], advantage)
    torch.testing.assert_close(fast, slow, rtol=1e-4, atol=1e-6)
    # in the reference a sequence whose every token is clipped is not in the graph
    fast_grads = torch.autograd.grad(fast, logits, retain_graph=True)
    if slow.requires_grad:
        slow_grads = torch.autograd.grad(slow, logits, allow_unused=True)
        for one, two in zip(fast_grads, slow_grads, strict=True):
            torch.testing.assert_close(one, torch.zeros_like(one) if two is None else two, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("cuts", [[1], [2, 3], [1, 2, 3, 4], [0, 5]])
def test_micro_batches_add_up(cuts):
    logits, ids, old, advantage = batch(1, [3, 5, 1, 6, 2], 0.3)
    whole = flat_loss(logits, ids, old, advantage, 17)
    whole_grads = torch.autograd.grad(whole.loss, logits)
    edges = [0, *cuts, 5]
    parts = []
    for start, end in zip(edges, edges[1:], strict=False):
        if start < end:
            parts.append(flat_loss(*(x[start:end] for x in (logits, ids, old, advantage)), 17))
    torch.testing.assert_close(sum(p.loss for p in parts), whole.loss)
    grads = torch.autograd.grad(sum(p.loss for p in parts), logits)
    for one, two in zip(grads, whole_grads, strict=True):
        torch.testing.assert_close(one, two)
    assert sum(p.n_tokens for p in parts) == whole.n_tokens == 17
    assert sum(p.clip_fraction * p.n_tokens for p in parts) / 17 == pytest.approx(whole.clip_fraction)
    assert sum(p.ratio_mean * p.n_tokens for p in parts) / 17 == pytest.approx(whole.ratio_mean, rel=1e-5)


def test_first_update_is_plain_reinforce():
    logits, ids, _, advantage = batch(2, [4, 2], 0.0)
    logp = torch.cat([token_log_probs(rows[None], tokens[None])[0] for rows, tokens in zip(logits, ids, strict=True)])
    repeated = torch.tensor([advantage[0]] * 4 + [advantage[1]] * 2)
    stats = policy_loss(logp, logp.detach(), repeated, 6)
    grads = torch.autograd.grad(stats.loss, logits, retain_graph=True)
    expected = torch.autograd.grad(-(logp * repeated).sum() / 6, logits)
    for one, two in zip(grads, expected, strict=True):
        torch.testing.assert_close(one, two)
    assert (stats.ratio_mean, stats.clip_fraction, stats.n_tokens) == (1.0, 0.0, 6)
    torch.testing.assert_close(stats.loss, -repeated.mean())


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope", "clipped"),
    [
        (1.2, 1.0, -1.2, -1.2, False),
        (1.3, 1.0, -1.28, 0.0, True),
        (0.5, 1.0, -0.5, -0.5, False),
        (0.5, -1.0, 0.8, 0.0, True),
        (0.9, -1.0, 0.9, 0.9, False),
        (2.0, -1.0, 2.0, 2.0, False),
        (2.0, 0.0, 0.0, 0.0, False),
    ],
)
def test_clip(ratio, advantage, loss, slope, clipped):
    logp = torch.tensor([math.log(ratio)], requires_grad=True)
    stats = policy_loss(logp, torch.zeros(1), torch.tensor([advantage]), 1)
    stats.loss.backward()
    assert stats.loss.item() == pytest.approx(loss) and logp.grad.item() == pytest.approx(slope, abs=1e-6)
    assert stats.clip_fraction == clipped and stats.ratio_mean == pytest.approx(ratio)


def test_a_step_against_the_gradient_raises_good_and_lowers_bad_tokens():
    logits = torch.zeros(1, 2, 5, requires_grad=True)
    ids = torch.tensor([[1, 3]])
    logp = token_log_probs(logits, ids)[0]
    policy_loss(logp, logp.detach(), torch.tensor([1.0, -1.0]), 2).loss.backward()
    after = token_log_probs(logits - 0.1 * logits.grad, ids)[0]
    assert after[0] > logp[0] and after[1] < logp[1]


def test_no_gradient_into_old_and_advantage():
    logp, old, advantage = (torch.zeros(3, requires_grad=True) for _ in range(3))
    policy_loss(logp, old, advantage, 3).loss.backward()
    assert old.grad is None and advantage.grad is None


def test_empty_micro_batch():
    logp = torch.zeros(0, requires_grad=True)
    stats = policy_loss(logp, torch.zeros(0), torch.zeros(0), 5)
    stats.loss.backward()
    assert (stats.loss.item(), stats.clip_fraction, stats.ratio_mean, stats.n_tokens) == (0.0, 0.0, 1.0, 0)


def test_token_log_probs_against_log_softmax():
    logits = 5 * torch.randn(2, 3, 11, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[0, 10, 4], [1, 1, 7]])
    expected = torch.log_softmax(logits, -1).gather(-1, ids[..., None])[..., 0]
    torch.testing.assert_close(token_log_probs(logits, ids), expected)
    half = token_log_probs(logits.bfloat16(), ids)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, token_log_probs(logits.bfloat16().float(), ids))


def test_errors():
    with pytest.raises(ValueError, match=r"ids: expected shape \(2, 3\), found \(2, 4\)"):
        token_log_probs(torch.zeros(2, 3, 5), torch.zeros(2, 4, dtype=torch.long))
    with pytest.raises(ValueError, match="expected one shape"):
        policy_loss(torch.zeros(3), torch.zeros(2), torch.zeros(3), 3)
    with pytest.raises(ValueError, match="n_tokens_total: expected >= 3, found 2"):
        policy_loss(torch.zeros(3), torch.zeros(3), torch.zeros(3), 2)
