"""The benchmark runs on a small adapter and says what it must; how fast the machine is, is not asserted."""

import pytest
import torch

from popu.bench import operators
from popu.evolution.registry import OPERATORS


@pytest.mark.slow
def test_every_operator_has_its_figures(monkeypatch):
    small = {name: (d_out // 16, d_in // 16) for name, (d_out, d_in) in operators.MODULES.items()}
    monkeypatch.setattr(operators, "MODULES", small)
    threads = torch.get_num_threads()
    try:
        result = operators.bench_operators(n_layers=1)
    finally:
        torch.set_num_threads(threads)
    assert set(result["operators"]) == set(OPERATORS)
    for row in result["operators"].values():
        assert row["cpu_s"] > 0 and row["peak_mib"] >= 0 and {"peer", "peer_ratio"} <= set(row)
    assert {name for name, row in result["operators"].items() if "peft_ratio_on_k_proj" in row} == set(operators.PEFT)
