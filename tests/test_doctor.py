import json

from popu.cli import main
from popu.doctor import OPTIONAL, REQUIRED, Finding, report


def test_the_doctor_reports_this_machine(tmp_path, capsys):
    assert main(["doctor", "--results", str(tmp_path / "not" / "made"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    found = {row["name"]: row for row in result["findings"]}
    assert result["ok"] and set(REQUIRED) | set(OPTIONAL) <= set(found)
    assert found["verifier: system calls"]["ok"] and "GB free" in found["disk"]["found"]
    assert not (tmp_path / "not").exists()


def test_something_missing_is_a_fault(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("popu.doctor.REQUIRED", ("no-such-package",))
    assert main(["doctor", "--results", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert "no-such-package         MISSING" in said.out and "doctor: something is missing" in said.err
    assert report([Finding("x", None, "y")])["ok"]
