"""The benchmark runs and says what it must; how fast the machine is, is not asserted."""

import json

import pytest

from popu.bench import verifier
from popu.cli import main

REQUIRED = ("single_per_s_core", "batched_per_s_core", "ratio_untrusted_check", "ratio_subprocess", "layer_overhead")


@pytest.mark.slow
def test_the_last_line_is_one_object_with_every_figure(capsys, monkeypatch):
    for name in ("N_SINGLE", "N_BATCHED", "N_SLOW"):
        monkeypatch.setattr(verifier, name, 20)
    monkeypatch.setattr(verifier, "ROUNDS", 1)
    assert main(["bench", "verifier", "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(REQUIRED) <= set(result)
    assert result["single_per_s_core"] > 0 and result["batched_per_s_core"] > 0 and result["ratio_subprocess"] > 0
    assert isinstance(result["layer_overhead"], float)
    assert result["caller_mb"] > 100 and result["small_caller"]["ratio_multiprocessing"] > 0
