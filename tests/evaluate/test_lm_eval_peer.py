"""lm-eval's own task of GSM8K beside ours. What needs lm-eval is skipped where it is not installed."""

import importlib.util
from pathlib import Path

import pytest

from popu.artifacts import write_table
from popu.cli import main
from popu.errors import ConfigError
from popu.evaluate import suites
from popu.evaluate.lm_eval_peer import LmEvalWord, compare
from popu.evaluate.math_sets import MATH_SUITES
from popu.evaluate.suite import BenchmarkTask

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "benchmarks"
HAVE_LM_EVAL = importlib.util.find_spec("lm_eval") is not None


@pytest.mark.skipif(HAVE_LM_EVAL, reason="lm-eval is installed")
def test_without_lm_eval_it_is_one_message():
    with pytest.raises(ConfigError, match=r"lm-eval: expected 0\.4\.13"):
        compare([], [], [])


@pytest.mark.slow
@pytest.mark.skipif(not HAVE_LM_EVAL, reason="lm-eval is not installed: envs/evaluate.txt")
def test_each_scorer_reads_the_answer_where_it_looks_for_it():
    """One completion a task, the gold being 18 (the last: 1,200)."""
    said = {
        "so \\boxed{18}": (True, LmEvalWord(False, True, "18")),
        "#### 18": (True, LmEvalWord(True, True, "18")),
        "\\boxed{18} eggs, which is 9 * 2": (True, LmEvalWord(False, False, "2")),
        "that makes 18": (False, LmEvalWord(False, True, "18")),
        "\\boxed{17}": (False, LmEvalWord(False, False, "17")),
        "#### 17, or #### 18": (True, LmEvalWord(False, True, "18")),
        "I do not know": (False, LmEvalWord(False, False, "[invalid]")),
        "\\boxed{1,200}": (True, LmEvalWord(False, True, "1,200")),
    }
    golds = ["18"] * 7 + ["1,200"]
    tasks = [BenchmarkTask(f"gsm8k/{i}", "?", {"gold": gold, "tolerance": None}) for i, gold in enumerate(golds)]
    scores = MATH_SUITES["gsm8k"].score(tasks, list(said), None)  # type: ignore[arg-type]
    both = compare(tasks, list(said), scores)
    assert {text: (one.ours.passed, one.peer) for text, one in zip(said, both, strict=True)} == said
    assert [bool(one.disagreement) for one in both] == [False, False, True, True, False, False, False, False]
    assert both[3].disagreement == "gsm8k/3: ours: no_answer; lm-eval: strict wrong, flexible right ('18')"


@pytest.mark.slow
@pytest.mark.skipif(not (HAVE_LM_EVAL and DATA.is_dir()), reason="no lm-eval, or no benchmark data")
def test_the_command_names_each_answer_on_which_they_differ(tmp_path, capsys):
    tasks = suites.tasks("gsm8k", DATA, 2)
    said = [f"\\boxed{{{tasks[0].reference['gold']}}}", f"it is {tasks[1].reference['gold']}"]
    common = {
        "member": "s0.g0",
        "slot": "s0",
        "sample": 0,
        "prompt_path": "chat",
        "n_tokens": 1,
        "finish_reason": "stop",
    }
    rows = [{**common, "task_id": of.task_id, "completion": text} for of, text in zip(tasks, said, strict=True)]
    write_table(tmp_path / "g.parquet", "generations", rows)
    command = ["benchmark", "peer", "--generations", str(tmp_path / "g.parquet"), "--data-dir", str(DATA), "--suite"]
    assert main([*command, "gsm8k"]) == 0
    out = capsys.readouterr().out
    assert "s0.g0: 2 completions, ours passes 1, the other 2; they differ on 1" in out
    assert f"  {tasks[1].task_id}: ours: no_answer; lm-eval: strict wrong, flexible right" in out
    assert main([*command, "aime24"]) == 2
    assert (
        "expected one with another scorer (humaneval_plus, mbpp_plus, gsm8k), found aime24" in capsys.readouterr().err
    )
