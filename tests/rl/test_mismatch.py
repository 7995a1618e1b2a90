"""The distance between engine and trainer, and the weights that make up for it."""

import math

import pytest
import torch

from popu.rl.loss import policy_loss
from popu.rl.mismatch import mismatch, truncated_weights

P = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)  # the trainer's
Q = torch.tensor([0.4, 0.25, 0.05, 0.3], dtype=torch.float64)  # the engine's: ratios 1.25, 1.2, 3, 1/6


def expected_gradient(cap):
    """Of the loss on one token drawn from Q, over all that may be drawn, by the logits of P."""
    logits = P.log().requires_grad_()
    advantage = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for token in range(len(P)):
        logp = torch.log_softmax(logits, 0)[token][None]
        weights = truncated_weights(logp.detach(), Q[token].log()[None], cap)
        total = total + Q[token] * policy_loss(logp, logp.detach(), advantage[token][None], 1, weights=weights).loss
    total.backward()
    on_policy = P * (advantage - (P * advantage).sum())  # gradient of E_P[A] by the logits
    return -logits.grad, on_policy


def test_without_a_bound_the_gradient_is_that_on_the_trainers_own_tokens():
    found, on_policy = expected_gradient(math.inf)
    torch.testing.assert_close(found, on_policy)


def test_without_weights_it_is_not():
    found, on_policy = expected_gradient(None)
    assert (found - on_policy).abs().max() > 0.1


def test_weights_are_ratios_up_to_the_cap():
    found = truncated_weights(P.log(), Q.log(), 2.0)
    torch.testing.assert_close(found, torch.tensor([1.25, 1.2, 2.0, 1 / 6], dtype=torch.float64))
    assert not truncated_weights(P.log().requires_grad_(), Q.log(), 2.0).requires_grad
    assert truncated_weights(P.log(), Q.log(), None) is None
    with pytest.raises(ValueError, match=r"engine: expected shape \(4,\), found \(3,\)"):
        truncated_weights(P.log(), Q.log()[:3], 2.0)


def test_mismatch_of_tokens_drawn_in_the_engines_proportions():
    counts = (20 * Q).round().long()
    differences = torch.repeat_interleave((P / Q).log(), counts)
    found = mismatch(differences, 2.0)
    assert found["n_tokens"] == 20
    assert found["kl"] == pytest.approx(float((Q * (Q / P).log()).sum()))  # exactly, since the ratios' mean is 1
    assert found["mean_abs"] == pytest.approx(float((Q * (P / Q).log().abs()).sum()))
    assert found["max_abs"] == pytest.approx(math.log(6))
    assert found["effective_share"] == pytest.approx(1 / float((P * P / Q).sum()))
    assert found["cut_share"] == 0.05


def test_equal_engines_have_no_mismatch():
    found = mismatch(torch.zeros(5), None)
    assert found == {
        "n_tokens": 5,
        "mean_abs": 0,
        "max_abs": 0,
        "kl": 0,
        "effective_share": 1,
        "cut_share": None,
    }
