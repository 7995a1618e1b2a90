"""The training profile on real programs: CRUXEval's golds as answers. Skipped where the data is absent."""

import json
from pathlib import Path

import pytest

from popu.problems.check import Answer, judge
from popu.sandbox.executor import Executor
from popu.sandbox.verdicts import Verdict

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "benchmarks" / "cruxeval" / "test.jsonl"
NOT_LITERALS = {152, 239, 258, 344, 364, 378, 459, 522, 694, 720, 760, 770}  # golds that call or compute something

pytestmark = pytest.mark.skipif(not DATA.is_file(), reason=f"no benchmark data at {DATA}")


def test_every_literal_gold_is_accepted_as_an_input_and_no_other():
    rows = [json.loads(line) for line in DATA.read_text().splitlines()]
    answers = [
        Answer("code_i", f"```input\n{row['input']}\n```\n", False, row["code"], None, row["output"], ())
        for row in rows
    ]
    with Executor() as executor:
        verdicts = [judged.verdict for judged in judge(answers, executor)]
    assert len(rows) == 800
    assert {i for i, verdict in enumerate(verdicts) if verdict is not Verdict.CORRECT} == NOT_LITERALS
    assert {verdicts[i] for i in NOT_LITERALS} == {Verdict.BAD_FORMAT}


def test_every_gold_output_is_a_value():
    rows = [json.loads(line) for line in DATA.read_text().splitlines()]
    answers = [Answer("code_o", f"```output\n{r['output']}\n```\n", False, None, None, r["output"], ()) for r in rows]
    with Executor() as executor:
        assert {judged.verdict for judged in judge(answers, executor)} == {Verdict.CORRECT}
