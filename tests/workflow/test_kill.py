"""Kills at random moments, the same command again: equal artifacts. `popu torture --kills 100` is the long one."""

import base64
import shutil

import pytest

from popu.endurance.torture import TINY, torture, unequal
from popu.errors import ConfigError

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("granularity", ["stage", "block"])
def test_killed_at_random_moments_the_artifacts_are_equal(granularity):
    result = torture(5, granularity, seed=0)
    assert result["faults"] == [] and result["kills"] == 5 and result["starts"] >= 2


def test_a_kill_between_the_last_file_of_a_job_and_its_end_leaves_nothing_undone(copied):
    """Snakemake notes what a job has begun, and forgets it when the job ends: here the note is still there."""
    run = copied.run_directory()
    shutil.rmtree(run / "checkpoints")
    begun = str((run / "step00002" / "evolve.json").relative_to(copied.path))
    note = copied.path / ".snakemake" / "incomplete" / base64.b64encode(begun.encode()).decode()
    note.parent.mkdir(parents=True)
    note.touch()
    planned = copied.run("train_all", "--dry-run")
    assert planned.returncode == 0 and "rule checkpoint:" in planned.stdout and "rule evolve:" not in planned.stdout
    copied.write({**TINY, "granularity": "block"})
    planned = copied.run("train_all", "--dry-run")
    assert planned.returncode == 0 and "rule checkpoint:" in planned.stdout and "rule block:" not in planned.stdout


def test_no_kill_is_refused():
    with pytest.raises(ConfigError, match="--kills: expected at least 1"):
        torture(0, "stage", seed=0)


def test_a_byte_that_differs_and_a_file_too_many_or_too_few_are_faults():
    found = unequal({"same": "0", "other": "0", "lost": "0"}, {"same": "0", "other": "1", "new": "0"})
    assert found == ["differs: other", "missing: lost", "not in the undisturbed experiment: new"]
