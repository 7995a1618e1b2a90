import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from popu.rl.advantages import advantages

REWARDS = [-1.0, -0.5, 0.0, 1.0, 1 / 3, 2 / 3, 0.875, 0.1]
rows = st.lists(st.tuples(st.sampled_from(REWARDS), st.integers(0, 5)), max_size=40)


def readable(rewards: list[float], groups: list[int], blocks: list[int]) -> list[float]:
    """The definition, in loops."""
    centred = []
    for reward, group in zip(rewards, groups, strict=True):
        peers = [r for r, g in zip(rewards, groups, strict=True) if g == group]
        centred.append(reward - math.fsum(peers) / len(peers))
    result = []
    for value, block in zip(centred, blocks, strict=True):
        peers = [c for c, b in zip(centred, blocks, strict=True) if b == block]
        deviation = math.sqrt(math.fsum(c * c for c in peers) / len(peers))
        result.append(value / deviation if deviation > 1e-12 else 0.0)
    return result


@settings(deadline=None)
@given(rows)
def test_equals_the_definition(data):
    rewards, groups = [r for r, _ in data], [g for _, g in data]
    blocks = [g % 2 for g in groups]
    ids, block_ids = torch.tensor(groups, dtype=torch.long), torch.tensor(blocks, dtype=torch.long)
    found = advantages(torch.tensor(rewards), ids, block_ids)
    assert found.dtype == torch.float32 and found.shape == (len(data),)
    torch.testing.assert_close(found, torch.tensor(readable(rewards, groups, blocks)), rtol=1e-5, atol=1e-6)
    together = advantages(torch.tensor(rewards), ids)
    torch.testing.assert_close(together, torch.tensor(readable(rewards, groups, [0] * len(data))), rtol=1e-5, atol=1e-6)


@settings(deadline=None)
@given(st.floats(-1e6, 1e6), st.integers(1, 9))
def test_equal_rewards_give_exact_zeros(reward, n):
    found = advantages(torch.full((n,), reward, dtype=torch.float64), torch.zeros(n, dtype=torch.long))
    assert torch.equal(found, torch.zeros(n))


def test_equal_groups_stay_exactly_zero_beside_others():
    rewards = torch.tensor([1 / 3] * 3 + [1.0, -1.0] + [0.7])
    found = advantages(rewards, torch.tensor([7, 7, 7, -2, -2, 9]))
    assert torch.equal(found[[0, 1, 2, 5]], torch.zeros(4))
    assert found[3].item() == pytest.approx(math.sqrt(6 / 2)) and found[4] == -found[3]


def test_whiten_groups_do_not_mix_scales():
    rewards = torch.tensor([1.0, -1.0, 0.01, -0.01])
    found = advantages(rewards, torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 1, 1]))
    torch.testing.assert_close(found, torch.tensor([1.0, -1.0, 1.0, -1.0]))


@settings(deadline=None)
@given(rows.filter(len), st.randoms(use_true_random=False), st.floats(0.1, 10), st.floats(-5, 5))
def test_permutation_and_affine_invariance(data, rng, factor, shift):
    order = list(range(len(data)))
    rng.shuffle(order)
    rewards, groups = torch.tensor([r for r, _ in data]).double(), torch.tensor([g for _, g in data])
    found = advantages(rewards, groups)
    torch.testing.assert_close(advantages(rewards[order], groups[order]), found[order])
    torch.testing.assert_close(advantages(rewards * factor + shift, groups), found, rtol=1e-4, atol=1e-5)
    if found.any():
        assert found.square().mean().item() == pytest.approx(1.0, rel=1e-4)
        assert found.mean().item() == pytest.approx(0.0, abs=1e-5)


def test_empty():
    assert advantages(torch.zeros(0), torch.zeros(0, dtype=torch.long)).shape == (0,)


def test_errors():
    two = torch.zeros(2, dtype=torch.long)
    with pytest.raises(ValueError, match=r"groups: expected integers of shape \(3,\), found torch.int64 \(2,\)"):
        advantages(torch.zeros(3), two)
    with pytest.raises(ValueError, match="groups: expected integers"):
        advantages(torch.zeros(2), torch.zeros(2))
    with pytest.raises(ValueError, match="whiten_by: expected integers"):
        advantages(torch.zeros(2), two, torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match="rewards: expected finite"):
        advantages(torch.tensor([0.0, math.nan]), two)
    with pytest.raises(ValueError, match="every group within one whiten group"):
        advantages(torch.zeros(2), two, torch.tensor([0, 1]))
