"""What a population costs beside the single agent, in two ratios that are not to be mixed.

`ratio_whole`: a step of 4 teachers and 4 students, four times the problems and rollouts, over a step of the single
agent (the paper states 1.31 on its accelerators, where one agent leaves the machine idle; on a CPU it is near 4).
`ratio_equal`: the same population on as many problems and rollouts as the single agent has. Real steps on the embedded
base, in turns; the first step of each run warms it up and is not counted.
"""

import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from popu.bench.workload import run_steps

STEPS = 4
PROMPTS = 4  # a teacher, of each type
TEAMS = {"n_teachers": 4, "n_students": 4}
TARGET_EQUAL = 1.15


def bench_population(rounds: int = 3) -> dict[str, Any]:
    """Median seconds of a step of each, and the ratios; `short` names the target that is missed."""
    arms: dict[str, dict[str, Any]] = {
        "single": {"population": {"kind": "single"}, "proposals": {"prompts_per_type": PROMPTS}},
        "whole": {"population": TEAMS, "proposals": {"prompts_per_type": PROMPTS}},
        "equal": {"population": TEAMS, "proposals": {"prompts_per_type": PROMPTS // TEAMS["n_teachers"]}},
    }
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    with tempfile.TemporaryDirectory() as directory:
        for i in range(rounds):
            for name, arm in arms.items():
                training = {**arm, "steps": STEPS, "checkpoint_every": STEPS, "evolution": {"every": STEPS}}
                steps = run_steps(Path(directory) / f"{name}{i}", training)
                seconds[name].append(statistics.median(steps[1:]))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    equal = round(statistics.median(e / s for e, s in zip(seconds["equal"], seconds["single"], strict=True)), 2)
    return {
        **{f"{name}_step_s": round(value, 2) for name, value in medians.items()},
        "ratio_whole": round(medians["whole"] / medians["single"], 2),
        "ratio_equal": equal,
        "target": TARGET_EQUAL,
        "short": ["ratio_equal"] if equal > TARGET_EQUAL else [],
        "rounds": rounds,
        "load_average": round(os.getloadavg()[0], 2),
    }
