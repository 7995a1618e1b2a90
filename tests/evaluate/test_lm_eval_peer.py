"""lm-eval's own task of GSM8K beside ours. What needs lm-eval is skipped where it is not installed."""

import importlib.util

import pytest

from popu.errors import ConfigError
from popu.evaluate.lm_eval_peer import LmEvalWord, compare
from popu.evaluate.math_sets import MATH_SUITES
from popu.evaluate.suite import BenchmarkTask

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
