"""Tables of the benchmarks: arm and members by suite, pass@k, and how the answers came about."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from popu.artifacts import read_table
from popu.errors import ConfigError
from popu.evaluate import suites
from popu.evaluate.peers import Comparison
from popu.report.evidence import GROUPS, Arm, group_scores, scores
from popu.report.statistics import Scores, mean
from popu.report.summary import SOLVERS
from popu.report.tables import Cell, Table
from popu.rundir import RunDirectory

FLOOR_TASKS = 3  # a column in which no arm's students solve as many tells arms not apart
Rows = Sequence[Mapping[str, Any]]


def benchmark_tables(arms: Mapping[str, Arm]) -> list[Table]:
    """None where no run was scored on a benchmark."""
    found = {name: {seed: _score_tables(run) for seed, run in arm.runs.items()} for name, arm in arms.items()}
    labels = sorted({label for runs in found.values() for tables in runs.values() for label in tables})
    if not labels:
        return []
    by_label = {
        label: {name: {seed: t[label] for seed, t in runs.items() if label in t} for name, runs in found.items()}
        for label in labels
    }
    sampled = {label: runs for label, runs in by_label.items() if _n_samples(runs) > 1}
    return [_main(by_label), _answers(by_label), *([_pass_at_k(sampled)] if sampled else [])]


def ablation_table(arms: Mapping[str, Arm]) -> Table:
    """Arm by kind of suite: students' mean over the benchmarks of a kind, each of equal weight, and held-out.

    Benchmarks of several samples are left out: they repeat suites.
    """
    found = {name: {seed: _score_tables(run) for seed, run in arm.runs.items()} for name, arm in arms.items()}
    labels = {label for runs in found.values() for tables in runs.values() for label in tables}
    kinds = {label: _kind(label) for label in sorted(labels) if "-avg" not in label}
    columns = [kind for kind in ("code", "math", "reasoning", "other") if kind in kinds.values()]
    rows: list[list[Cell]] = []
    for name, arm in arms.items():
        of_kinds = [_macro(found[name], [label for label in kinds if kinds[label] == kind]) for kind in columns]
        own = [*of_kinds, scores(arm, "all", "students"), scores(arm, "unseen levels", "students")]
        if any(own):
            rows.append([name, *(mean(values) if values else None for values in own)])
    note = (
        "Students' accuracy in % (95 % interval; runs x tasks). code, math, reasoning: mean over those benchmarks, "
        "each of equal weight; held-out: grammar problems; unseen levels: those that pretraining never saw."
    )
    return Table("ablations", "Ablations", note, ["arm", *columns, "held-out", "unseen levels"], rows)


def _kind(label: str) -> str:
    try:
        return suites.suite(label.partition("-")[0]).kind
    except ConfigError:  # of a distribution that is no longer installed
        return "other"


def _macro(runs: Mapping[int, Mapping[str, Rows]], labels: Sequence[str]) -> Scores:
    """Seed -> scores of all tasks, scaled so that their mean is the mean over benchmarks; others left out."""
    found = {}
    for seed, tables in runs.items():
        own = [group_scores(by_task(tables[label]), "students", _share) for label in labels if label in tables]
        parts = [part for part in own if part is not None]
        if labels and len(parts) == len(labels):
            n = sum(map(len, parts))
            found[seed] = np.concatenate([part * n / (len(parts) * len(part)) for part in parts])
    return found


def _score_tables(run: RunDirectory) -> dict[str, Rows]:
    """Label -> rows of `scores` of the run's last step."""
    directory = run.path / "benchmarks" / f"step{run.last_step() or 0:05d}"
    return {path.parent.name: read_table(path, "scores") for path in sorted(directory.glob("*/scores.parquet"))}


def by_task(rows: Rows) -> list[dict[str, Any]]:
    """A row a member and task: `samples`, and how many passed."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        key = {name: row[name] for name in ("member", "slot", "task_id")}
        own = found.setdefault((row["member"], row["task_id"]), {**key, "samples": 0, "n_correct": 0})
        own["samples"] += 1
        own["n_correct"] += row["passed"]
    return list(found.values())


def pass_at_k(n: int, n_correct: int, k: int) -> float:
    """Chance that one of `k` of `n` samples is right: 1 - C(n - c, k) / C(n, k) (Chen et al. 2021).

    Raises ValueError unless 0 <= n_correct <= n and 1 <= k <= n.
    """
    if not (0 <= n_correct <= n and 1 <= k <= n):
        raise ValueError(f"pass@k: expected 0 <= n_correct <= n and 1 <= k <= n, found {n=}, {n_correct=}, {k=}")
    return 1 - math.comb(n - n_correct, k) / math.comb(n, k)


def _share(row: Mapping[str, Any]) -> float:
    return 100.0 * float(row["n_correct"]) / float(row["samples"])


def _scores(runs: Mapping[int, Rows], group: str) -> Scores:
    found = {seed: group_scores(by_task(rows), group, _share) for seed, rows in runs.items()}
    return {seed: own for seed, own in found.items() if own is not None}


def _main(by_label: Mapping[str, Mapping[str, Mapping[int, Rows]]]) -> Table:
    names = list(dict.fromkeys(name for runs in by_label.values() for name in runs))
    rows: list[list[Cell]] = []
    for name in names:
        for group in GROUPS:
            found = [_scores(by_label[label].get(name, {}), group) for label in by_label]
            if any(found) and (group != "base" or name == names[0]):
                cells: list[Cell] = [mean(own) if own else None for own in found]
                rows.append(["bare base" if group == "base" else name, "" if group == "base" else group, *cells])
    columns = [f"{label} (floor)" if _at_floor(by_label[label]) else label for label in by_label]
    note = (
        "Tasks solved in % (95 % interval; runs x tasks). Greedy, one answer, but for avg: mean of so many samples. "
        f"A name says what departs from the suite's protocol. floor: no arm's students solve {FLOOR_TASKS} tasks, so "
        "that the column tells nothing apart. weakest and best: chosen on half of the tasks, scored on the other half; "
        "best is selected on test data of the same suite."
    )
    return Table("benchmarks", "Benchmarks", note, ["arm", "members", *columns], rows)


def _at_floor(runs_of: Mapping[str, Mapping[int, Rows]]) -> bool:
    means = [own.mean() * len(own) / 100 for runs in runs_of.values() for own in _scores(runs, "students").values()]
    return max(means, default=0.0) < FLOOR_TASKS


def _answers(by_label: Mapping[str, Mapping[str, Mapping[int, Rows]]]) -> Table:
    """How answers were asked for and how they ended, base and members apart."""
    rows: list[list[Cell]] = []
    for label, runs_of in by_label.items():
        for name, runs in runs_of.items():
            for who, slots in (("bare base", ("",)), ("members", (*SOLVERS, "t"))):
                own = [row for table in runs.values() for row in table if row["slot"][:1] in slots]
                if own:
                    paths = " ".join(sorted({row["prompt_path"] for row in own}))
                    cut = f"{100 * np.mean([row['cut'] for row in own]):.1f}"
                    rows.append([label, name, who, paths, len(own), cut, _reasons(own)])
    note = (
        "prompt: chat where the tokenizer has a chat template, else direct; it moves scores by tens of points. "
        "cut: answers in % that hit the limit of tokens. reasons: the commonest of those that did not pass."
    )
    columns = ["benchmark", "arm", "of", "prompt", "answers", "cut", "reasons"]
    return Table("benchmark-answers", "How the answers came about", note, columns, rows)


def _reasons(rows: Rows, n: int = 3) -> str:
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        if not row["passed"]:
            counts[row["reason"].partition(":")[0]] += 1
    commonest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:n]
    return ", ".join(f"{reason} {count}" for reason, count in commonest) or "-"


def _n_samples(runs_of: Mapping[str, Mapping[int, Rows]]) -> int:
    return max((row["sample"] + 1 for runs in runs_of.values() for rows in runs.values() for row in rows), default=0)


def _pass_at_k(by_label: Mapping[str, Mapping[str, Mapping[int, Rows]]]) -> Table:
    ks = list(_powers(max(map(_n_samples, by_label.values()))))
    rows: list[list[Cell]] = []
    for label, runs_of in by_label.items():
        for name, runs in runs_of.items():
            cells: list[Cell] = []
            for k in ks:
                own = {seed: group_scores(by_task(t), "students", _pass_at(k)) for seed, t in runs.items()}
                known = {seed: s for seed, s in own.items() if s is not None and np.isfinite(s).any()}
                cells.append(mean(known) if known else None)
            rows.append([label, name, *cells])
    note = "pass@k in % of the students, 1 - C(n - c, k) / C(n, k) a task (95 % interval; runs x tasks)."
    return Table("pass-at-k", "pass@k", note, ["benchmark", "arm", *(f"pass@{k}" for k in ks)], rows)


def _pass_at(k: int) -> Any:
    def value(row: Mapping[str, Any]) -> float:
        enough = row["samples"] >= k
        return 100.0 * pass_at_k(row["samples"], row["n_correct"], k) if enough else float("nan")

    return value


def _powers(n: int) -> Iterable[int]:
    k = 1
    while k <= n:
        yield k
        k *= 2


def print_scores(path: Path) -> None:
    """A line a member: solved of all, share with its 95 % interval (Wilson), cut answers."""
    from scipy.stats import binomtest

    rows = read_table(path, "scores")
    for member in dict.fromkeys(row["member"] for row in rows):
        own = [row for row in rows if row["member"] == member]
        n, passed = len(own), sum(row["passed"] for row in own)
        low, high = binomtest(passed, n).proportion_ci(method="wilson")
        cut = sum(row["cut"] for row in own)
        print(
            f"{member}: {passed} of {n}, {100 * passed / n:.1f} % ({100 * low:.1f} to {100 * high:.1f}), "
            f"prompt {own[0]['prompt_path']}, {cut} cut"
        )
    print(f"written to {path}")


def print_comparisons(comparisons: Mapping[str, Sequence[Comparison]]) -> None:
    """A line a member: how many of its completions each scorer passes; and a line for each on which they differ."""
    for member, found in comparisons.items():
        ours, peer = sum(one.ours.passed for one in found), sum(one.peer.passed for one in found)
        differ = [one.disagreement for one in found if one.disagreement]
        print(f"{member}: {len(found)} completions, ours passes {ours}, the other {peer}; they differ on {len(differ)}")
        for line in differ:
            print(f"  {line}")
