"""Kills at random moments, the same command again: equal artifacts. `popu torture --kills 100` is the long one."""

import pytest

from popu.endurance.torture import torture, unequal
from popu.errors import ConfigError

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("granularity", ["stage", "block"])
def test_killed_at_random_moments_the_artifacts_are_equal(granularity):
    result = torture(5, granularity, seed=0)
    assert result["faults"] == [] and result["kills"] == 5 and result["starts"] >= 2


def test_no_kill_is_refused():
    with pytest.raises(ConfigError, match="--kills: expected at least 1"):
        torture(0, "stage", seed=0)


def test_a_byte_that_differs_and_a_file_too_many_or_too_few_are_faults():
    found = unequal({"same": "0", "other": "0", "lost": "0"}, {"same": "0", "other": "1", "new": "0"})
    assert found == ["differs: other", "missing: lost", "not in the undisturbed experiment: new"]
