"""EvalPlus 0.3.1's own word beside ours on the same programs, task by task.

EvalPlus runs as its users run it (`python -m evalplus.evaluate`), in an environment that has it, with what is known to
make its word wrong put right from outside:

- time limits of at least 10 s and 8 times the solution's, since its own fail right programs on a busy machine;
- `EVALPLUS_MAX_MEMORY_BYTES=-1`, since its cap counts inherited memory (Mbpp/255), and a cap on every process instead;
- `EVALPLUS_TIMEOUT_PER_TASK` unset, since it raises a TypeError where it is set;
- a fresh directory, since it takes the results of other samples that lie there for these;
- the data by `*_OVERRIDE_PATH`, so that nothing is downloaded, with the tasks that are asked about and no others;
- its ground truth in that directory too: up to 800 MB, worked out every time;
- pass@k from its results, since it prints that and does not write it;
- HumanEval/32, whose own solution fails there: counted by our word, both being listed.

It is no sandbox, and passes an object that equals everything. What our verifier denied it is not asked to run; for
everything else use a container where the programs are not trusted.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from popu.errors import ArtifactError, ConfigError
from popu.evaluate.peers import Comparison
from popu.evaluate.suite import BenchmarkTask, TaskScore
from popu.sandbox.verdicts import Status

DATASETS = {"humaneval_plus": "humaneval", "mbpp_plus": "mbpp"}
RESCORED = frozenset({"HumanEval/32"})
MIN_TIME_LIMIT_S = 10
TIME_LIMIT_FACTOR = 8
ADDRESS_SPACE_BYTES = 16 * 2**30  # of every process; EvalPlus inherits some gigabytes of it


class EvalPlusWord(NamedTuple):
    """EvalPlus's statuses (`pass`, `fail`, `timeout`) on a task's own tests, and on those that EvalPlus added."""

    base: str
    plus: str

    @property
    def passed(self) -> bool:
        return self.base == self.plus == "pass"

    def __str__(self) -> str:
        return f"EvalPlus: base {self.base}, plus {self.plus}"


def counted(both: Comparison) -> bool:
    """EvalPlus's word where it can be relied on, else ours."""
    return both.ours.passed if both.task_id in RESCORED else both.peer.passed


def compare(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    tasks: Sequence[BenchmarkTask],
    scores: Sequence[TaskScore],
    parallel: int | None = None,
) -> list[Comparison]:
    """Our scores of the suite `name` beside EvalPlus's of the same programs, in their order.

    `rows` are those of the suite's data, `parallel` the programs that EvalPlus runs at a time (its own default: half
    the cores). Raises ConfigError where there is no EvalPlus, ArtifactError where it fails.
    """
    programs = [_lent(score) for score in scores]
    words = evaluate(name, rows, [task.task_id for task in tasks], programs, parallel)
    return [Comparison(task.task_id, ours, peer) for task, ours, peer in zip(tasks, scores, words, strict=True)]


def _lent(score: TaskScore) -> str:
    """The program, or an empty one where there is none or our walls stopped it."""
    return "" if score.extracted is None or score.reason.startswith(f"{Status.DENIED}:") else score.extracted


def evaluate(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    task_ids: Sequence[str],
    programs: Sequence[str],
    parallel: int | None = None,
) -> list[EvalPlusWord]:
    """EvalPlus's word on every program, in their order; a task may have several. Raises as `compare`."""
    if find_spec("evalplus") is None:
        raise ConfigError("evalplus: expected 0.3.1 in this environment (envs/evaluate.txt), found none")
    dataset = DATASETS[name]
    with tempfile.TemporaryDirectory(prefix="popu-evalplus-") as temporary:
        directory = Path(temporary)
        asked = set(task_ids)
        _write_lines(directory / "data.jsonl", [row for row in rows if row["task_id"] in asked])
        samples = [{"task_id": of, "solution": program} for of, program in zip(task_ids, programs, strict=True)]
        _write_lines(directory / "samples.jsonl", samples)
        _run(dataset, directory, parallel)
        results = json.loads((directory / "samples_eval_results.json").read_text())["eval"]
    words = {of: iter([EvalPlusWord(one["base_status"], one["plus_status"]) for one in results[of]]) for of in asked}
    return [next(words[of]) for of in task_ids]


def _write_lines(path: Path, values: Sequence[Any]) -> None:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


def _run(dataset: str, directory: Path, parallel: int | None) -> None:
    command = [sys.executable, "-m", "evalplus.evaluate", "--dataset", dataset]
    command += ["--samples", str(directory / "samples.jsonl"), f"--min_time_limit={MIN_TIME_LIMIT_S}"]
    command += [f"--gt_time_limit_factor={TIME_LIMIT_FACTOR}"]
    command += [] if parallel is None else [f"--parallel={parallel}"]
    environment = {key: value for key, value in os.environ.items() if key != "EVALPLUS_TIMEOUT_PER_TASK"}
    environment |= {
        f"{dataset.upper()}_OVERRIDE_PATH": str(directory / "data.jsonl"),
        "EVALPLUS_MAX_MEMORY_BYTES": "-1",
        "XDG_CACHE_HOME": str(directory / "cache"),
    }
    ended = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES)),
    )
    if ended.returncode:
        raise ArtifactError(
            f"evalplus: expected it to end well, found {ended.returncode}: {ended.stderr[-500:].strip()}"
        )
