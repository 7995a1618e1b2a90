"""Sizes and distances of dW from the factors."""

import pytest
import torch
from adapters import deltas, rotated

from popu.evolution.distance import distance, size
from popu.population.adapter import LoraConfig, new_adapter


def dense_norm(first, other=None):
    theirs = deltas(other) if other else {}
    return torch.cat([(dw - theirs.get(m, torch.zeros(()))).flatten() for m, dw in deltas(first).items()]).norm().item()


def test_they_are_the_norms_of_the_dense_matrices(trained):
    first, other = trained(0), trained(1)
    assert size(first) == pytest.approx(dense_norm(first), rel=1e-6)
    assert distance(first, other) == pytest.approx(dense_norm(first, other), rel=1e-6)
    assert distance(first, other) == pytest.approx(distance(other, first), rel=1e-12)


def test_another_alpha_counts(trained):
    """The same factors under twice the scale are twice the model."""
    first = trained(0)
    larger = type(first)(LoraConfig(first.config.rank, 2 * first.config.alpha, first.config.targets), first.factors)
    assert distance(first, larger) == pytest.approx(size(first), rel=1e-6)


def test_a_rotation_of_the_factors_is_no_distance(trained):
    first = trained(0)
    assert distance(first, first) <= 1e-7 * size(first)
    assert distance(first, rotated(first, 5)) <= 1e-6 * size(first)


def test_a_fresh_adapter_has_no_size(fresh):
    assert size(fresh(0)) == 0.0


def test_adapters_of_other_shapes_are_refused(fresh):
    other = new_adapter({"layers.0.q_proj": (8, 8)}, LoraConfig(4, 6, ("q_proj",)), torch.Generator())
    with pytest.raises(ValueError, match="targets"):
        distance(fresh(0), other)
