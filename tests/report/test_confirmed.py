"""The confirmed experiment in docs/evidence: its tables follow from the rows of its runs that are kept there."""

import re
import tarfile
from pathlib import Path

import pytest

from popu.report.page import write_report

KEPT = Path(__file__).parents[2] / "docs" / "evidence"


@pytest.mark.slow
def test_the_tables_are_those_of_the_kept_rows(tmp_path):
    with tarfile.open(KEPT / "runs.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    write_report(tmp_path / "results" / "evidence", tmp_path / "report")
    made, kept = tables(tmp_path / "report" / "tables"), tables(KEPT / "tables")
    assert len(kept) > 20 and made == kept


def tables(directory: Path) -> dict[str, str]:
    """Texts by name, numbers to 9 digits: the last ones differ between processors."""
    return {
        path.name: re.sub(r"-?\d+\.\d{7,}(e-?\d+)?", lambda found: f"{float(found[0]):.9g}", path.read_text())
        for path in directory.iterdir()
    }
