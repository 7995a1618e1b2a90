"""Claims of small known arms."""

import numpy as np
import pytest
from rows import arm, heldout

from popu.report.claims import CRITERIA, claims, claims_table
from popu.report.evidence import Arm


def test_claims_of_dynamics():
    steps = range(1, 41)
    falling = {
        seed: [{"step": s, "n_nodes": 20 - 0.1 * s, "solve_rate": 0.3 + 0.01 * s, "student_reward": 0.5} for s in steps]
        for seed in (1, 2, 3)
    }
    rising = {
        seed: [{"step": s, "n_nodes": 20 + 0.1 * s, "coverage_net": s, "student_reward": 0.1} for s in steps]
        for seed in (1, 2, 3)
    }
    arms = {"single": Arm("single", {}, falling, {}), "4t4s": Arm("4t4s", {}, rising, {})}
    found = {claim.letter: claim for claim in claims(arms)}
    assert [found[letter].verdict for letter in ("a1", "a2", "b3", "c", "d1")] == ["holds"] * 5
    assert found["a1"].estimate.value == pytest.approx(1.0) and found["a2"].estimate.value == pytest.approx(0.1)
    assert found["a3"].estimate is None and found["a3"].verdict == "undecided"
    assert found["d1"].estimate.value == pytest.approx(0.4) and found["d2"].verdict == "undecided"


def found_of(arms):
    return {claim.letter: claim for claim in claims(arms)}


def test_every_claim_of_the_method_has_a_row_and_a_missing_arm_is_not_run():
    letters = [criterion.letter for criterion in CRITERIA]
    assert {letter[0] for letter in letters} >= set("abcdefghij") and len(set(letters)) == len(letters)
    assert {claim.verdict for claim in claims({})} == {"not run"}
    assert len(claims_table(claims({})).rows) == len(CRITERIA)
    alone = found_of({"single": Arm("single", {}, {}, {})})
    assert alone["a1"].verdict == "undecided" and alone["f1"].verdict == "not run"


def test_a_wave_oscillates_and_noise_does_not():
    rng = np.random.default_rng(0)

    def team(size):
        curves = {seed: 0.5 + size * np.sin(np.arange(100) / 3) + rng.normal(0, 0.05, 100) for seed in range(5)}
        rows = {
            seed: [
                {"step": i, "solve_rate": y, "solve_rate_error": 0.05, "n_nodes": 20 + np.sin(i / 3 - 1)}
                for i, y in enumerate(curve)
            ]
            for seed, curve in curves.items()
        }
        return found_of({"4t4s": Arm("4t4s", {}, rows, {})})

    wave = team(0.1)
    assert wave["b1"].verdict == "holds" and wave["b1"].estimate.n_runs == 5
    assert wave["b2"].verdict == "holds", "complexity follows the solve rate"
    assert team(0.0)["b1"].verdict == "undecided"


def test_children_that_regain_and_members_that_specialise():
    births = [{"step": 10, "slot": "s1", "child": "s1.g1", "parents": ["s0.g0"], "operator": "dare"}]
    rows = [
        {"step": step, "member": member, "slot": member[:2], "role": "student", "metric": "solve_rate", "value": 0.5}
        for member in ("s0.g0", "s1.g1")
        for step in range(11, 31)
    ]
    seeds = (1, 2, 3)
    tables = {seed: heldout((0,) * 4, s0=(8, 8, 0, 0), s1=(0, 0, 8, 8)) for seed in seeds}
    team = Arm("4t4s", dict.fromkeys(seeds), {}, tables, dict.fromkeys(seeds, births), dict.fromkeys(seeds, rows))
    single = arm("single", {seed: heldout((0,) * 4, a0=(8, 8, 0, 0)) for seed in seeds})
    found = found_of({"single": single, "4t4s": team})
    assert [found[letter].verdict for letter in ("i", "j1", "j2")] == ["holds"] * 3
    assert (found["i"].estimate.value, found["j2"].estimate.value) == (50.0, 50.0)
