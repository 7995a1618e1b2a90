"""A warm start on a second domain, and a run of that domain which begins with it."""

import re
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from popu.base import expected_identity, founder_identities
from popu.cli import main
from popu.config import Base, Engine, Run, Training
from popu.population.adapter import read_adapter
from popu.rundir import RunDirectory
from popu.stages.backend import Backend
from popu.stages.call import StageCall
from popu.stages.run import run_block, run_stage
from popu.stages.warm_start import warm_start

NANO = Path(__file__).resolve().parents[2] / "resources" / "nano"
BASE = Base(path=str(NANO))
pytestmark = pytest.mark.slow


def settings(**training):
    made = Training.model_validate({"problem_types": ["arith_v", "arith_x"], **training})
    founders = founder_identities(made.population.founders)
    return Run(
        arm="a",
        seed=1,
        training=made,
        base=BASE,
        base_sha256=expected_identity(BASE),
        engine=Engine(threads=1),
        founders=founders,
    )


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """A few steps, and what they reported."""
    path, said = tmp_path_factory.mktemp("warm") / "adapter", []
    with closing(Backend()) as backend:
        warm_start(settings(), 8, 16, 3e-3, path, backend, said.append)
    return path, said


def test_the_gold_texts_become_likelier(warm):
    nats = [[float(value) for value in re.findall(r"arith_\w (\S+?)(?:,|$)", line)] for line in warm[1]]
    assert len(nats) == 8 and sum(nats[-1]) < 0.8 * sum(nats[0])


def test_a_killed_one_goes_on_and_ends_with_the_same_files(warm, tmp_path):
    """Ended after 3 of 8 steps; what is left of one with other arguments is not gone on with."""
    path, partial = tmp_path / "adapter", tmp_path / "adapter.partial"
    said: list[str] = []

    def end_after_three(text: str) -> None:
        said.append(text)
        if len(said) == 3:
            raise KeyboardInterrupt

    with closing(Backend()) as backend:
        with pytest.raises(KeyboardInterrupt):
            warm_start(settings(), 8, 16, 3e-3, path, backend, end_after_three)
        kept = partial.read_bytes()
        warm_start(settings(), 2, 16, 3e-3, path, backend, said.append)
        assert said[3].startswith("step 1/2") and not partial.exists()
        shutil.rmtree(path)
        partial.write_bytes(kept)
        (tmp_path / "adapter.new").mkdir()  # of a kill while it was written
        warm_start(settings(), 8, 16, 3e-3, path, backend, said.append)
    assert said[5].startswith("step 3/8: found in") and said[6:] == warm[1][3:]
    assert list(tmp_path.iterdir()) == [path]
    assert {file.name: file.read_bytes() for file in path.iterdir()} == {
        file.name: file.read_bytes() for file in warm[0].iterdir()
    }


def test_equal_arguments_give_equal_files(warm, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(
        f"base: {{path: {NANO}}}\nengine: {{threads: 1}}\ntraining: {{problem_types: [arith_v, arith_x]}}\n"
    )
    arguments = ["--config", str(config), "--steps", "8", "--batch", "16", "--out", str(tmp_path / "again")]
    assert main(["warm-start", *arguments]) == 0
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (warm[0] / name).read_bytes()
    assert main(["warm-start", *arguments]) == 2, "what is there is not overwritten"


def test_a_run_of_the_domain_begins_with_it(warm, tmp_path):
    small = {
        "population": {"n_teachers": 2, "n_students": 2, "founders": {"t0": str(warm[0]), "s0": str(warm[0])}},
        "proposals": {"prompts_per_type": 1, "proposals_per_prompt": 4, "source": "grammar"},
        "rollouts": {"per_problem": 2},
        "update": {"roles": ["student"]},
        "evolution": {"every": 1, "roles": ["student"]},
        "seed_problems": {"source": "grammar", "count": 10},
    }
    run = RunDirectory(tmp_path)
    run.create(settings(**small))
    with closing(Backend()) as backend:
        run_stage(StageCall("init", str(tmp_path), 0), backend)
        first = read_adapter(run.step(0) / "adapters" / "s0").factors
        assert all(factors[1].equal(first[name][1]) for name, factors in read_adapter(warm[0]).factors.items())
        run_block(str(tmp_path), 1, 1, backend, lambda _: None)
        run_stage(StageCall("checkpoint", str(tmp_path), 1), backend)
        run_stage(StageCall("heldout", str(tmp_path), 1, {"tasks_per_level": 1, "samples": 2}), backend)
        run_stage(StageCall("dynamics", str(tmp_path), 1), backend)
    problems = run.table(1, "validate", "problems")
    assert len(problems) == 16 and {row["status"] for row in problems} == {"ok"}
    assert {row["problem_type"] for row in problems} == {"arith_v", "arith_x"}
    assert len(run.table(1, "verify", "verdicts")) == 32 and run.last_step() == 1
    assert {row["problem_type"] for row in run.table(0, "init", "buffer")} == {"arith_v"}
