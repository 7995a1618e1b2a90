"""The confirmed experiment in docs/evidence: its tables follow from the rows of its runs that are kept there."""

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
    made = {path.name: path.read_text() for path in (tmp_path / "report" / "tables").iterdir()}
    kept = {path.name: path.read_text() for path in (KEPT / "tables").iterdir()}
    assert len(kept) > 20 and made == kept
