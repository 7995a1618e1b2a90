"""The confirmed experiment in docs/evidence: its tables follow from the rows of its runs that are kept there."""

import re
import tarfile
from pathlib import Path

import pytest

from popu.errors import ArtifactError, ConfigError
from popu.report.compare import compare
from popu.report.page import write_report

KEPT = Path(__file__).parents[2] / "docs" / "evidence"


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    directory = tmp_path_factory.mktemp("kept")
    with tarfile.open(KEPT / "runs.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return directory / "results" / "evidence"


@pytest.mark.slow
def test_arms_are_compared_on_the_seeds_that_both_have(experiment):
    team, calm = (next(experiment.glob(f"{name}-*")) for name in ("4t4s", "no_evolution"))
    found = compare(team, calm)
    assert found["settings"] == {"arm": ("4t4s", "no_evolution"), "training.evolution.every": (10, 0)}
    ours, _, difference = found["heldout"]["all"]
    assert (ours.n_runs, difference.n_runs) == (3, 3), "4t4s has five seeds"
    assert f"{difference.value:.1f} ({difference.low:.1f} to {difference.high:.1f})" == "0.2 (-0.7 to 1.0)"  # claim f3
    one = compare(team / "seed11", team / "seed12")
    assert one["settings"] == {"seed": (11, 12)} and one["heldout"]["all"][2].n_runs == 1
    with pytest.raises(ConfigError, match="one of each"):
        compare(team, calm / "seed11")
    with pytest.raises(ArtifactError, match=r"run\.json"):
        compare(team / "nowhere", calm / "nowhere")


@pytest.mark.slow
def test_the_tables_are_those_of_the_kept_rows(experiment, tmp_path):
    write_report(experiment, tmp_path / "report")
    made, kept = tables(tmp_path / "report" / "tables"), tables(KEPT / "tables")
    assert len(kept) > 20 and made == kept


def tables(directory: Path) -> dict[str, str]:
    """Texts by name, numbers to 9 digits: the last ones differ between processors."""
    return {
        path.name: re.sub(r"-?\d+\.\d{7,}(e-?\d+)?", lambda found: f"{float(found[0]):.9g}", path.read_text())
        for path in directory.iterdir()
    }
