"""Members in weight space: against the dense dW, and on adapters whose answers are known."""

import math

import pytest
import torch

from popu.evolution.factors import dense
from popu.evolution.family import Delta
from popu.evolution.weights import effective_rank, measure_weights
from popu.population.adapter import Adapter, LoraConfig, new_adapter
from popu.population.member import founders

SHAPES = {"layers.0.q_proj": (6, 5), "layers.0.v_proj": (4, 5)}
CONFIG = LoraConfig(3, 6.0, ("q_proj", "v_proj"))


def drawn(seed):
    generator = torch.Generator().manual_seed(seed)
    fresh = new_adapter(SHAPES, CONFIG, generator)
    factors = {m: (a, torch.randn(b.shape, generator=generator)) for m, (a, b) in fresh.factors.items()}
    return Adapter(CONFIG, factors)


def whole(adapter):
    parts = [dense(Delta(a, b, adapter.config.scale)).double().flatten() for a, b in adapter.factors.values()]
    return torch.cat(parts)


def test_norm_and_distance_are_those_of_the_dense_dw():
    adapters = {f"t{i}": drawn(i) for i in range(3)} | {"s0": drawn(7), "s1": drawn(8), "s2": drawn(9)}
    rows = {row["slot"]: row for row in measure_weights(5, founders(3, 3).members, adapters)}
    w = {slot: whole(adapter) for slot, adapter in adapters.items()}
    assert rows["t1"]["norm"] == pytest.approx(float(w["t1"].norm()), rel=1e-5)
    expected = (float((w["t1"] - w["t0"]).norm()) + float((w["t1"] - w["t2"]).norm())) / 2
    assert rows["t1"]["distance"] == pytest.approx(expected, rel=1e-5)
    assert (rows["t1"]["step"], rows["t1"]["member"], rows["t1"]["role"]) == (5, "t1.g0", "teacher")


def test_equal_dw_of_rotated_factors_lies_at_distance_zero():
    one, q = drawn(1), torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(0))).Q
    other = Adapter(CONFIG, {m: (q.T @ a, b @ q) for m, (a, b) in one.factors.items()})
    rows = measure_weights(1, founders(1, 2).members, {"t0": one, "s0": one, "s1": other})
    assert rows[1]["distance"] == pytest.approx(0.0, abs=1e-3 * rows[1]["norm"])
    assert rows[0]["distance"] is None, "the only teacher"


def test_effective_rank_of_known_singular_values():
    a, b = torch.zeros(3, 5), torch.zeros(6, 3)
    for i, s in enumerate((2.0, 2.0, 0.0)):
        a[i, i], b[i, i] = 1.0, s
    v = (torch.eye(3, 5), torch.zeros(4, 3))  # dW = 0: left out
    assert effective_rank(Adapter(CONFIG, {"x.q_proj": (a, b), "x.v_proj": v})) == pytest.approx(2.0)
    b[1, 1] = 6.0  # singular values in the ratio 1 to 3
    expected = math.exp(-0.25 * math.log(0.25) - 0.75 * math.log(0.75))
    assert effective_rank(Adapter(CONFIG, {"x.q_proj": (a, b), "x.v_proj": v})) == pytest.approx(expected)


def test_a_fresh_adapter_has_norm_zero_and_no_rank():
    fresh = new_adapter(SHAPES, CONFIG, torch.Generator().manual_seed(0))
    (row,) = measure_weights(1, founders(0, 0).members, {"a0": fresh})
    assert (row["norm"], row["effective_rank"], row["distance"], row["role"]) == (0.0, None, None, "both")
