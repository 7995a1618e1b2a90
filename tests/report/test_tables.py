"""Tables on small known cells."""

import csv
import io

from popu.report.statistics import Estimate
from popu.report.tables import Table, comma_separated, escaped, latex, markdown, shown, write_tables

ESTIMATE = Estimate(12.34, 10.0, 14.5, 5, 360, 0.01)
TABLE = Table("t", "A & B", "Note 100 %.", ["arm", "score"], [["4t4s_x", ESTIMATE], ["a|b", None]])


def test_cells_as_text():
    assert shown(ESTIMATE) == "12.3 (10.0 to 14.5; 5 x 360)"
    assert shown(Estimate(1.0, None, None, 1, 9)) == "1.0 (1 x 9)"
    assert [shown(cell) for cell in (None, 2.25, 3, "x")] == ["-", "2.2", "3", "x"]


def test_markdown_escapes_bars():
    text = markdown(TABLE)
    assert (
        "| 4t4s_x | 12.3 (10.0 to 14.5; 5 x 360) |" in text
        and "| a\\|b | - |" in text
        and text.endswith("Note 100 %.\n")
    )


def test_latex_escapes_its_characters():
    text = latex(TABLE)
    assert r"4t4s\_x & 12.3" in text and r"\caption{A \& B. Note 100 \%.}" in text
    assert escaped("\\~^{}") == r"\textbackslash{}\textasciitilde{}\textasciicircum{}\{\}"


def test_csv_has_every_number_of_an_estimate():
    (row,) = csv.DictReader(io.StringIO(comma_separated(TABLE)))
    assert row == {
        "arm": "4t4s_x",
        "column": "score",
        "value": "12.34",
        "low": "10.0",
        "high": "14.5",
        "n_runs": "5",
        "n_tasks": "360",
        "p": "0.01",
    }
    plain = Table("p", "P", "", ["arm", "n"], [["a", 3], ["b", None]])
    assert comma_separated(plain) == "arm,n\na,3\nb,\n"


def test_files(tmp_path):
    assert sorted(path.name for path in write_tables(tmp_path, [TABLE])) == ["t.csv", "t.md", "t.tex"]
