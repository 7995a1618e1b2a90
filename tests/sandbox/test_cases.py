"""Every case on which some verifier has failed, by the black-box door, as this user and as an unprivileged one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cases import CASES, ELSEWHERE

from popu.sandbox.executor import Executor, Limits
from popu.verify import verify_lines

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
N_CASES = 64  # of the numbered list


def lines():
    return [json.dumps({"id": name, **request}) for name, (request, _) in CASES.items()]


@pytest.fixture(scope="module")
def verdicts():
    with Executor(Limits(cpu_s=0.5)) as executor:
        return {answer["id"]: answer for answer in verify_lines(lines(), lambda profile: executor)}


def word(answer):
    return answer.get("status") or answer.get("verdict")


@pytest.mark.parametrize("name", CASES)
def test_case(verdicts, name):
    _, expected = CASES[name]
    answer = verdicts[name]
    assert "error" not in answer
    assert word(answer) in ((expected,) if isinstance(expected, str) else expected), answer["reason"]


def test_the_numbered_list_is_complete():
    numbers = {int(name.split()[0]) for name in (*CASES, *ELSEWHERE) if name[0].isdigit()}
    assert numbers >= set(range(1, N_CASES + 1))
    for place in ELSEWHERE.values():
        file, _, function = place.partition("::")
        assert not function or f"def {function}(" in (ROOT / file).read_text()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests ran without privileges already")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="no setpriv (util-linux) to drop privileges with")
def test_an_unprivileged_user_gets_the_same_verdicts(verdicts, tmp_path):
    tmp_path.chmod(0o777)
    requests, answers = tmp_path / "requests.jsonl", tmp_path / "verdicts.jsonl"
    requests.write_text("\n".join(lines()))
    script = (
        "import sys\nfrom popu.cli import main\n"
        f"sys.exit(main(['verify', '--in', {str(requests)!r}, '--out', {str(answers)!r}]))"
    )
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path]),
        "HOME": str(tmp_path),
    }
    # An interpreter under root's home is out of nobody's reach: the one capability kept is to pass file permissions.
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    drop += ["--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override"]
    subprocess.run([*drop, sys.executable, "-c", script], cwd="/", env=environment, check=True, timeout=300)
    assert answers.stat().st_uid == NOBODY
    got = {answer["id"]: word(answer) for answer in map(json.loads, answers.read_text().splitlines())}
    assert got == {name: word(answer) for name, answer in verdicts.items()}
