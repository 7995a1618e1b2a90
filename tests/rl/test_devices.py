"""Members spread over devices: everyone once, evenly, and with the results of one device."""

import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from popu.config import Update
from popu.engine.llama import LlamaForward
from popu.engine.multilora import MultiLora
from popu.population.adapter import LoraConfig, new_adapter
from popu.rl.devices import run_spread, spread
from popu.rl.update import TrainSequence, update_adapter

TARGETS = ("q_proj", "up_proj")


@given(st.lists(st.integers(0, 1000), max_size=20), st.integers(1, 5))
def test_no_device_has_more_than_the_others_by_more_than_one_job(costs, n_devices):
    owners = spread(costs, n_devices)
    loads = [sum(c for c, owner in zip(costs, owners, strict=True) if owner == d) for d in range(n_devices)]
    assert len(owners) == len(costs) and sum(loads) == sum(costs)
    assert max(loads) - min(loads) <= max(costs, default=0)


def test_eight_equal_members_on_four_devices_are_two_each():
    assert sorted(spread([5.0] * 8, 4)) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert spread([1, 8, 1, 4], 2) == [1, 0, 1, 1]
    with pytest.raises(ValueError, match="n_devices: expected at least 1, found 0"):
        spread([1], 0)


def test_devices_work_side_by_side_and_results_keep_the_order():
    both = threading.Barrier(2, timeout=20)  # passes only if two devices are at work at once

    def work(device, job):
        both.wait()
        return f"{job}@{device}"

    assert run_spread(["a", "b"], [1, 2, 3, 4], [1, 1, 1, 1], work) == ["1@a", "2@b", "3@a", "4@b"]


def test_a_fault_on_a_device_is_raised():
    def work(device, job):
        if device == "b":
            raise OSError("b is lost")

    with pytest.raises(OSError, match="b is lost"):
        run_spread(["a", "b"], [1, 2], [1, 1], work)


def copy_of_the_base():
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2
    )
    return LlamaForCausalLM(config).requires_grad_(False).eval()


def test_members_on_two_copies_of_the_base_come_out_as_on_one():
    """Copies on the CPU stand in for devices."""
    copies = [copy_of_the_base() for _ in range(2)]
    shapes = MultiLora(copies[0], TARGETS).shapes
    adapters = [new_adapter(shapes, LoraConfig(2, 4.0, TARGETS), torch.Generator().manual_seed(i)) for i in range(3)]
    rows = [
        [TrainSequence((2, 3), (4 + k, 5), (-1.0, -1.0), 1.0, 0.5 - k, ("student", "code_o")) for k in range(n)]
        for n in (2, 3, 4)
    ]

    def train(forward, i):
        return update_adapter(forward, adapters[i], {}, rows[i], Update(learning_rate=1e-2), 1.0)

    forwards = [LlamaForward(copy) for copy in copies]
    one = run_spread(forwards[:1], range(3), [4, 6, 8], train)
    two = run_spread(forwards, range(3), [4, 6, 8], train)
    for alone, beside in zip(one, two, strict=True):
        assert alone.metrics == beside.metrics
        for name, factors in alone.adapter.factors.items():
            assert all(torch.equal(x, y) for x, y in zip(factors, beside.adapter.factors[name], strict=True))
