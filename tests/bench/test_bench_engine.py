"""Benchmarks of engine and runs at small size: they say what they must; the machine's speed is not asserted."""

import json

import pytest
import torch

from popu import cli
from popu.bench import growth, population, rollouts, soak, update

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_rollouts_do_equal_work_as_the_peer(monkeypatch):
    monkeypatch.setattr(rollouts, "N_SEQUENCES", 16)
    monkeypatch.setattr(rollouts, "NEW_TOKENS", 5)
    result = rollouts.bench_rollouts(threads=1, rounds=1)
    assert all(value > 0 for name, value in result.items() if name.endswith("_tokens_per_s"))
    assert result["ratio"] > 0 and result["mixed_over_one"] > 0 and 0 < result["matmul_share"] < 1.5
    assert set(result["short"]) <= {"ratio", "mixed_over_one"}


def test_update_has_a_ratio_where_the_peer_is_installed(monkeypatch):
    monkeypatch.setattr(update, "N_PROMPTS", 8)
    result = update.bench_update(threads=1, rounds=1)
    assert result["completion_tokens"] > 8 * 8 * 4 and result["members_over_one"] > 0
    assert (result["ratio"] is None) == (result["peer"] is None)


def test_population_has_both_ratios(monkeypatch):
    monkeypatch.setattr(population, "STEPS", 2)
    monkeypatch.setattr(population, "PROMPTS", 1)
    monkeypatch.setattr(population, "TEAMS", {"n_teachers": 1, "n_students": 1})
    result = population.bench_population(rounds=1)
    assert result["ratio_whole"] > 0 and result["ratio_equal"] > 0


def test_growth_draws_its_curves(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    for name, sizes in {"PAIRS": (1, 2), "PROBLEMS": (12, 24), "STEPS": (2, 3), "BUFFER": (200, 400)}.items():
        monkeypatch.setattr(growth, name, sizes)
    monkeypatch.setattr(growth, "TARGETS", dict.fromkeys(growth.TARGETS, -99.0))
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "growth", "--json"])
    assert ended.value.code == 1  # short of the target
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(result["short"]) == set(result["growth"]) == {"pairs", "problems", "step", "buffer"}
    assert (tmp_path / "growth.png").stat().st_size > 10_000


def test_soak_finds_no_leak_in_a_short_run(monkeypatch):
    for name, size in {"STEPS": 10, "BATCHES": 10, "SAMPLES": 10}.items():
        monkeypatch.setattr(soak, name, size)
    result = soak.bench_soak()
    assert result["descriptors"] == result["processes"] == result["temporary"] == 0
    assert len(result["memory_mb"]) == len(result["verifier_memory_mb"]) == 10 and min(result["memory_mb"]) > 100
    assert result["files_a_step"] > 10


def test_soak_names_a_leak():
    assert soak._growth([100.0] * 20 + [130.0] * 5) == 0.3
