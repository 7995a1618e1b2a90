"""Metrics of a step on small known frames, and the archive's cells."""

import numpy as np
import pandas as pd
import pytest

from popu.diagnostics.coverage import CENTRES, N_CELLS, RANGES, cells
from popu.diagnostics.dynamics import Step, step_metrics
from popu.domains.code import CODE
from popu.problems.complexity import MEASURES, complexity

PLAIN = "def f(x):\n    return x + 1"
LOOP = "def f(x):\n    y = 0\n    for i in x:\n        if i > 2:\n            y = y + i\n    return y"


def problems(*rows):
    """(status, type, program key, duplicate) a row."""
    measures = complexity(PLAIN)
    return pd.DataFrame(
        [
            {"status": s, "problem_type": t, "program_key": k, "duplicate_of": d, "slot": "t0", **measures}
            for s, t, k, d in rows
        ]
    )


def step(rows=(("ok", "code_o", "a", ""), ("ok", "code_i", "a", "reference"), ("ok", "code_f", "b", ""))):
    made = problems(*rows, ("bad_format", "code_o", "", ""))
    proposals = pd.DataFrame({"n_tokens": [10, 20, 30, 40], "finish_reason": ["stop", "stop", "stop", "length"]})
    outcomes = pd.DataFrame({"rho": [0.0, 0.5, 1.0, None], "reward": [0.0, 0.5, 0.0, -1.0], "group": [0, 0, 1, 1]})
    rollouts = pd.DataFrame(
        {
            "verdict": ["correct", "correct", "wrong", "bad_format"],
            "n_tokens": [2, 4, 8, 16],
            "reward": [1.0, 1.0, -0.5, -1.0],
            "finish_reason": ["stop", "stop", "stop", "length"],
        }
    )
    updates = pd.DataFrame(
        {
            "slot": ["t0", "s0", "s0"],
            "role": ["teacher", "student", "student"],
            "n_tokens": [100, 10, 30],
            "entropy": [1.0, 0.2, 0.6],
            "kl_to_base": [None, 0.1, None],
            "gradient_norm": [2.0, 4.0, 4.0],
            "clip_share": [0.0, 0.1, 0.1],
            "engine_mismatch": [None, 1e-6, 3e-6],
        }
    )
    for frame, n in ((proposals, 4), (outcomes, 4), (rollouts, 4)):
        frame["problem_type"] = ["code_o", "code_i", "code_f", "code_o"][:n]
    updates["problem_type"] = "code_o"
    return Step(proposals, made, outcomes, rollouts, updates)


def test_the_metrics_of_a_step():
    got = step_metrics(step(), CODE.borrowing)
    assert got["valid_share"] == 0.75 and got["solve_rate"] == 0.5 and got["mid_share"] == pytest.approx(1 / 3)
    assert got["solve_rate_error"] == pytest.approx(1 / 3), "two prompts, half a point below and above the mean in sum"
    assert got["unique_share"] == pytest.approx(2 / 3) and got["top_share"] == 1.0
    assert got["duplicate_share"] == pytest.approx(1 / 3)
    assert got["teacher_reward"] == -0.125 and got["student_reward"] == 0.125
    assert got["n_nodes"] == complexity(PLAIN)["n_nodes"]
    assert (got["student_tokens_correct"], got["student_tokens_wrong"], got["student_tokens_bad_format"]) == (3, 8, 16)
    assert got["teacher_cut_share"] == got["student_cut_share"] == 0.25
    assert got["gradient_tokens"] == 140 and got["student_entropy"] == pytest.approx(0.5)
    assert got["student_kl"] == pytest.approx(0.1) and "teacher_kl" not in got
    assert got["gradient_norm"] == 3.0 and got["engine_mismatch"] == pytest.approx(2e-6)


def test_what_was_not_there_has_no_value():
    got = step_metrics(step(()).of_type("code_i"), CODE.borrowing)
    assert got["n_proposals"] == 0 and "valid_share" not in got and "top_share" not in got


def test_cells_are_fixed_and_tell_programs_apart():
    plain, loop = complexity(PLAIN), complexity(LOOP)
    first, second, again = cells([plain, loop, plain])
    assert first == again != second and min(first, second) >= 0 and max(first, second) < N_CELLS
    huge = dict.fromkeys(MEASURES, 10000)
    assert 0 <= cells([huge])[0] < N_CELLS
    assert len(cells([])) == 0


def test_centres_lie_in_the_ranges_apart_from_each_other():
    centres = np.load(CENTRES)
    low, high = np.log(np.array(list(RANGES.values()))).T
    assert centres.shape == (N_CELLS, len(RANGES)) and (centres >= low).all() and (centres <= high).all()
    assert len(np.unique(centres, axis=0)) == N_CELLS
