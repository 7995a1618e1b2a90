"""`evaluate_all` end to end on the embedded base: what is made, what a repetition does, what a wrong suite says."""

import contextlib
import random
import re
import subprocess

import psutil
import pytest

from popu.artifacts import read_table

from .conftest import REPO, TINY

DATA = REPO.parent / "shared" / "data" / "benchmarks"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason="no benchmark data beside the repository"),
]
EVALUATION = {
    "suites": ["cruxeval_o", "cruxeval_i@2"],
    "limit": 3,
    "max_new_tokens": 12,
    "shards": 2,
    "data_dir": str(DATA),
}
AT_WORK = 2  # jobs at a time: --cores 2, one thread each
LABELS = ("cruxeval_o-limit3-tokens12", "cruxeval_i-avg2-temperature0.6-limit3-tokens12")


@pytest.fixture(scope="module")
def evaluated(finished, tmp_path_factory):
    """A copy of the finished run, scored."""
    import shutil

    from .conftest import Workspace

    path = tmp_path_factory.mktemp("evaluated")
    shutil.copytree(finished.path / "results", path / "results")
    workspace = Workspace(path, {**TINY, "evaluation": EVALUATION})
    result = workspace.run("evaluate_all")
    assert result.returncode == 0, result.stderr[-3000:]
    yield workspace
    workspace.popu("worker", "stop")


def test_every_member_and_the_base_has_a_score_a_task_and_sample(evaluated):
    directory = evaluated.run_directory() / "benchmarks" / "step00002"
    for label, samples in zip(LABELS, (1, 2), strict=True):
        rows = read_table(directory / label / "scores.parquet", "scores")
        slots = ["", "t0", "t1", "s0", "s1"]
        assert sorted((row["slot"], row["sample"]) for row in rows) == sorted(
            (slot, k) for slot in slots for k in range(samples) for _ in range(3)
        )
        assert {row["prompt_path"] for row in rows} == {"direct"}
    page = (evaluated.path / "results" / "tiny" / "report" / "index.html").read_text()
    assert "How the answers came about" in page and LABELS[0] in page and "pass@2" in page


def test_a_repetition_makes_only_what_is_missing(evaluated):
    directory = evaluated.run_directory() / "benchmarks" / "step00002" / LABELS[0]
    before = evaluated.digests()
    (directory / "generations" / "1-of-2.parquet").unlink()
    (directory / "scores.parquet").unlink()
    result = evaluated.run("evaluate_all")
    done = re.findall(r"rule (benchmark_\w+):", result.stdout + result.stderr)
    assert sorted(done) == ["benchmark_complete", "benchmark_score"], result.stderr[-3000:]
    assert evaluated.digests() == before


def test_an_unknown_suite_is_one_message(workspace):
    workspace.write({**TINY, "evaluation": {"suites": ["human_eval"]}})
    result = workspace.run("evaluate_all")
    assert result.returncode == 2 and "evaluation.suites: expected one of humaneval_plus" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_data_file_names_itself(evaluated, tmp_path):
    result = evaluated.popu(
        *(
            "evaluate",
            "--base",
            TINY["base"]["path"],
            "--suite",
            "cruxeval_o",
            "--limit",
            "2",
            "--data-dir",
            str(tmp_path),
        ),
        *("--out", str(tmp_path / "out")),
    )
    assert result.returncode == 2 and str(tmp_path / "cruxeval") in result.stderr
    assert "Traceback" not in result.stderr


def test_one_adapter_from_anywhere_is_scored_and_taken_up_again(evaluated, tmp_path):
    run = evaluated.run_directory()
    assert evaluated.popu("export", "s0", "--run", str(run), "--out", str(tmp_path / "s0")).returncode == 0
    command = (
        *("evaluate", "--base", TINY["base"]["path"], "--adapter", str(tmp_path / "s0"), "--suite", "cruxeval_o"),
        *("--limit", "3", "--max-new-tokens", "12", "--data-dir", str(DATA), "--threads", "1", "--shards", "2"),
        *("--out", str(tmp_path / "out")),
    )
    first = evaluated.popu(*command)
    assert first.returncode == 0 and "adapter: " in first.stdout and "base: " in first.stdout, first.stderr
    rows = read_table(tmp_path / "out" / LABELS[0] / "scores.parquet", "scores")
    ours = [row["passed"] for row in rows if row["member"] == "adapter"]
    scored = read_table(run / "benchmarks" / "step00002" / LABELS[0] / "scores.parquet", "scores")
    assert ours == [row["passed"] for row in scored if row["slot"] == "s0"], "alone as in the batch of all members"
    assert evaluated.popu(*command).stdout == first.stdout


def test_killed_at_random_moments_it_repeats_at_most_the_shards_at_work(evaluated, copied):
    """`kill -9` of the whole tree. Two jobs work at a time, each on a shard; one that was just written counts."""
    copied.write({**TINY, "evaluation": EVALUATION})
    generations = copied.run_directory() / "benchmarks" / "step00002"
    rng = random.Random(0)
    times: dict[str, int] = {}
    for _ in range(3):
        process = copied.start("evaluate_all")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=rng.uniform(5, 15))
        for one in copied.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()
        found = {str(path): path.stat().st_mtime_ns for path in generations.glob("*/generations/*.parquet")}
        assert sum(found.get(path) != before for path, before in times.items()) <= AT_WORK
        times = found
    result = copied.run("evaluate_all")
    assert result.returncode == 0, result.stderr[-3000:]
    made = re.findall(r"rule benchmark_complete:", (copied.path / "snakemake.log").read_text() + result.stderr)
    assert 4 <= len(made) <= 4 + 3 * AT_WORK
    assert copied.digests() == evaluated.digests()
