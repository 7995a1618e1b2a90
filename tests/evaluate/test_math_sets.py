"""The seven mathematical suites on their real files: prompts, golds, and lm-eval beside our own scores."""

import importlib.util
import json
from pathlib import Path

import pytest

from popu.evaluate.math_sets import MATH_SUITES, minerva_gold, olympiad_gold, written_gold

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "benchmarks"
ROWS = {
    "aime24": 30,
    "aime25": 30,
    "amc23": 40,
    "math500": 500,
    "minerva_math": 272,
    "gsm8k": 1319,
    "olympiadbench": 675,
}

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the benchmarks' files are not on this machine")


def rows_of(suite: str) -> list[dict]:
    with open(DATA / suite / "test.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def scores(suite: str, tasks, answers):
    return MATH_SUITES[suite].score(tasks, [f"So\n\\[ \\boxed{{{answer}}} \\]" for answer in answers], None)


def test_the_suites():
    assert list(MATH_SUITES) == list(ROWS)
    assert {suite.kind for suite in MATH_SUITES.values()} == {"math"}


@needs_data
@pytest.mark.parametrize("name", ROWS)
def test_every_gold_scores(name):
    tasks = MATH_SUITES[name].tasks(rows_of(name))
    assert len({task.task_id for task in tasks}) == len(tasks) == ROWS[name]
    golds = [task.reference["gold"] for task in tasks]
    assert [
        (gold, score) for gold, score in zip(golds, scores(name, tasks, golds), strict=True) if not score.passed
    ] == []


@needs_data
@pytest.mark.parametrize("name", ROWS)
def test_every_whole_gold_is_wrong_by_one(name):
    """A comparison that ignored digits, units or commas too freely would accept some of these."""
    tasks = [task for task in MATH_SUITES[name].tasks(rows_of(name)) if task.reference["gold"].lstrip("-").isdigit()]
    assert len(tasks) > 30 or name in ("aime24", "aime25")
    near = [f"{int(task.reference['gold']) + 1}" for task in tasks]
    assert [score.reason for score in scores(name, tasks, near)] == ["wrong"] * len(tasks)


@needs_data
def test_a_prompt_as_it_is_sent():
    [task] = MATH_SUITES["aime25"].tasks(rows_of("aime25")[:1])
    assert task.prompt == (
        "Find the sum of all integer bases $b > 9$ for which $17_b$ is a divisor of $97_b$.\n\n"
        "Please reason step by step, and put your final answer within \\boxed{}."
    )


@needs_data
def test_report_23_the_gold_of_minerva_is_the_box_of_its_solution():
    rows = rows_of("minerva_math")
    assert [minerva_gold(row) for row in rows[:2]] == ["1.6", "4.5e33"]


def test_a_minerva_row_without_a_box_is_refused():
    with pytest.raises(ValueError, match="expected a box, found none in row 5"):
        minerva_gold({"idx": 5, "solution": "so it is 4"})


@pytest.mark.parametrize(
    ("row", "gold"),
    [({"answer": "025"}, "025"), ({"answer": 27.0}, "27"), ({"answer": 1625.0}, "1625"), ({"answer": 0.5}, "0.5")],
)
def test_golds_that_are_written_out(row, gold):
    assert written_gold(row) == gold


@needs_data
@pytest.mark.parametrize(
    ("name", "gold", "answer", "passed"),
    [
        ("aime24", "025", "25", True),
        ("amc23", "1625", "1,625", True),
        ("gsm8k", "1,450,000", r"\$1450000.00", True),
        ("olympiadbench", r"4.2\%", "4.25", True),  # the one row with a tolerance, 0.1
        ("olympiadbench", r"4.2\%", "4.35", False),
        ("olympiadbench", r"\frac{41}{12}", r"\frac{41}{12} \text{ km}", True),
        ("olympiadbench", "5,1", "1, 5", True),
        ("olympiadbench", "5,1", "5", False),
    ],
)
def test_forms_of_the_sets(name, gold, answer, passed):
    task = next(task for task in MATH_SUITES[name].tasks(rows_of(name)) if task.reference["gold"] == gold)
    assert scores(name, [task], [answer])[0].passed is passed


def test_several_answers_are_one_list():
    assert olympiad_gold({"final_answer": ["$69$,$84$"], "unit": None}) == "69,84"
    assert olympiad_gold({"final_answer": ["$3$", "4."], "unit": "km"}) == "3, 4"


@needs_data
@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("lm_eval"), reason="lm-eval is not installed: envs/evaluate.txt")
def test_lm_eval_gives_our_scores(tmp_path, monkeypatch):
    """On completions right, wrong and without an answer, its own results equal ours, task by task."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    from popu.evaluate.harness.replay import evaluate

    files, completions, ours = {}, {}, {}
    for name, suite in MATH_SUITES.items():
        rows = rows_of(name)[-30:]
        files[name] = tmp_path / f"{name}.jsonl"
        files[name].write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        tasks = suite.tasks(rows)
        answers = [f"\\boxed{{{task.reference['gold']}}}" if i % 3 else "\\boxed{1}" for i, task in enumerate(tasks)]
        answers[::7] = ["I do not know." for _ in answers[::7]]
        completions |= {task.task_id: answer for task, answer in zip(tasks, answers, strict=True)}
        ours |= {
            task.task_id: score.passed for task, score in zip(tasks, suite.score(tasks, answers, None), strict=True)
        }
    results = evaluate(files, completions, tmp_path / "out")
    theirs = {
        sample["doc"]["task_id"]: bool(sample["passed"])
        for name in MATH_SUITES
        for sample in results["samples"][f"popu_{name}"]
    }
    assert theirs == ours
    [file] = (tmp_path / "out").rglob("results_*.json")
    written = json.loads(file.read_text(encoding="utf-8"))
    for name in MATH_SUITES:
        of_suite = [passed for task, passed in ours.items() if task.startswith(f"{name}/")]
        assert 0 < sum(of_suite) < len(of_suite)
        assert written["results"][f"popu_{name}"]["passed,none"] == pytest.approx(sum(of_suite) / len(of_suite))
