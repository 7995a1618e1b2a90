"""What happened in a run, step by step, from its artifacts: the metrics of docs/metrics.md in long form.

`dynamics`: a row a step, problem type ("" for all) and metric. `member_dynamics`: a row a member, step and metric.
`pairs`: a row a match. What cannot be said (a mean of nothing) has no row.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from popu.diagnostics.coverage import cells
from popu.domains.domain import Domain, domain_of
from popu.frames import RunFrames
from popu.population.member import Population
from popu.population.ratings import lower_bound
from popu.problems.complexity import MEASURES
from popu.rundir import RunDirectory

ALL = ""  # in place of a problem type
PROPOSAL_COLUMNS = ("proposal_id", "slot", "problem_type", "group", "tokens", "finish_reason")
Row = dict[str, Any]
Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Dynamics:
    """Rows of the three tables."""

    steps: list[Row]
    members: list[Row]
    pairs: list[Row]


@dataclass(frozen=True)
class Step:
    """The frames of one step."""

    proposals: pd.DataFrame
    problems: pd.DataFrame
    outcomes: pd.DataFrame
    rollouts: pd.DataFrame
    updates: pd.DataFrame

    def of_type(self, problem_type: str) -> "Step":
        """The rows of one problem type."""
        return Step(*(frame[frame["problem_type"] == problem_type] for frame in vars(self).values()))


def measure_run(run: RunDirectory, last: int, check: Callable[[], None] = lambda: None) -> Dynamics:
    """All metrics of steps 1 to `last`; `check` is called before each and may raise. Raises ArtifactError."""
    frames = RunFrames(run)
    steps: list[Row] = []
    members: list[Row] = []
    pairs: list[Row] = []
    training = frames.settings.training
    domain = domain_of(training)
    covered = _Coverage(run, domain)
    for step in range(1, last + 1):
        check()
        data = read_step(frames, step)
        for problem_type in (ALL, *training.problem_types):
            part = data if problem_type == ALL else data.of_type(problem_type)
            steps += _rows({"step": step, "problem_type": problem_type}, step_metrics(part, domain.borrowing))
        steps += _rows({"step": step, "problem_type": ALL}, covered.add(_written(data.problems, domain.borrowing)))
        members += _member_rows(run, step, data, domain.borrowing)
        pairs += _pair_rows(run, step, data)
    return Dynamics(steps, members, pairs)


def read_step(frames: RunFrames, step: int) -> Step:
    """The frames of a step, completions by their numbers of tokens; every frame names problem type and slot."""
    proposals = frames.frame("proposals", PROPOSAL_COLUMNS, [step])
    problems = frames.frame("problems", None, [step])
    outcomes = frames.frame("outcomes", None, [step]).merge(proposals[["proposal_id", "problem_type", "group"]])
    columns = ("problem_id", "problem_type", "teacher_slot", "slot", "attempt", "tokens", "finish_reason")
    rollouts = frames.frame("rollouts", columns, [step])
    verdicts = frames.frame("verdicts", ("problem_id", "slot", "attempt", "verdict", "reward"), [step])
    rollouts = rollouts.merge(verdicts, on=["problem_id", "slot", "attempt"], validate="one_to_one")
    for frame in (proposals, rollouts):
        frame["n_tokens"] = frame.pop("tokens").map(len)
    return Step(proposals, problems, outcomes, rollouts, frames.frame("update_metrics", None, [step]))


def step_metrics(data: Step, borrowing: Collection[str]) -> Metrics:
    """The metrics of a step, of all problem types or of the one that `data` holds; `borrowing` types take programs that
    are there."""
    valid = data.problems[data.problems["status"] == "ok"]
    written = _written(data.problems, borrowing)
    rho = data.outcomes["rho"].dropna()
    return _known(
        {
            "n_proposals": len(data.problems),
            "n_rollouts": len(data.rollouts),
            "valid_share": (data.problems["status"] == "ok").mean(),
            "solve_rate": rho.mean(),
            "solve_rate_error": _error_over_prompts(data.outcomes),
            "mid_share": ((rho > 0) & (rho < 1)).mean(),
            "teacher_reward": data.outcomes["reward"].mean(),
            "student_reward": data.rollouts["reward"].mean(),
            "unique_share": valid["program_key"].nunique() / len(valid) if len(valid) else None,
            "top_share": _top_share(written["program_key"]),
            "duplicate_share": (valid["duplicate_of"] != "").mean(),
            **{name: written[name].mean() for name in MEASURES},
            "teacher_tokens": data.proposals["n_tokens"].mean(),
            "teacher_cut_share": (data.proposals["finish_reason"] == "length").mean(),
            "student_cut_share": (data.rollouts["finish_reason"] == "length").mean(),
            **{
                f"student_tokens_{verdict}": data.rollouts.loc[data.rollouts["verdict"] == verdict, "n_tokens"].mean()
                for verdict in ("correct", "wrong", "bad_format")
            },
            **_update_metrics(data.updates),
        }
    )


def _error_over_prompts(outcomes: pd.DataFrame) -> float | None:
    """Standard error of the mean rho, proposals of one prompt taken as a cluster; None for fewer than two prompts."""
    tried = outcomes[outcomes["rho"].notna()]
    sums = (tried["rho"] - tried["rho"].mean()).groupby(tried["group"]).sum()
    n = len(sums)
    return float((n / (n - 1) * (sums**2).sum()) ** 0.5 / len(tried)) if n > 1 else None


def _update_metrics(updates: pd.DataFrame) -> dict[str, float | None]:
    """Means over adapters weighted by tokens, by role; of the norm and the clip over adapters."""
    result: dict[str, float | None] = {"gradient_tokens": updates["n_tokens"].sum()}
    for role in ("teacher", "student"):
        own = updates[updates["role"] == role]
        for name, column in (("entropy", "entropy"), ("kl", "kl_to_base")):
            known = own[own[column].notna()]
            weight = known["n_tokens"].sum()
            result[f"{role}_{name}"] = (known[column] * known["n_tokens"]).sum() / weight if weight else None
    adapters = updates.drop_duplicates("slot")
    result |= {name: adapters[name].mean() for name in ("gradient_norm", "clip_share")}
    result["engine_mismatch"] = updates["engine_mismatch"].mean()
    return result


def _written(problems: pd.DataFrame, borrowing: Collection[str]) -> pd.DataFrame:
    """Valid problems whose program a teacher wrote; those of `borrowing` types (`code_f`) come from the buffer."""
    return problems[(problems["status"] == "ok") & ~problems["problem_type"].isin(list(borrowing))]


def _top_share(keys: pd.Series) -> float | None:
    """Share of the commonest program, names and constants aside."""
    return float(keys.value_counts(normalize=True).iloc[0]) if len(keys) else None


class _Coverage:
    """Cells of the archive reached so far, and those that no seed problem reaches."""

    def __init__(self, run: RunDirectory, domain: Domain) -> None:
        self.seeds = {*cells([domain.measures(row["program"]) for row in run.table(0, "init", "buffer")]).tolist()}
        self.reached: set[int] = set()

    def add(self, written: pd.DataFrame) -> Metrics:
        now = {*cells(written[list(MEASURES)].to_dict("records")).tolist()}
        self.reached |= now
        return {
            "coverage": len(self.reached),
            "coverage_net": len(self.reached - self.seeds),
            "coverage_of_step": len(now),
        }


def _member_rows(run: RunDirectory, step: int, data: Step, borrowing: Collection[str]) -> Iterator[Row]:
    """Metrics of every member as it was trained in the step; ratings are those after it."""
    before = Population.from_json(run.state(step - 1).members)
    after = {member.id: member for member in Population.from_json(run.state(step).members).members}
    for member in before.members:
        problems = data.problems[data.problems["slot"] == member.slot]
        taught = data.outcomes[data.outcomes["slot"] == member.slot]
        tried = data.rollouts[data.rollouts["slot"] == member.slot]
        updates = data.updates[data.updates["slot"] == member.slot]
        rated = after.get(member.id, member)
        metrics = {
            **({} if member.role == "both" else {"mu": rated.mu, "sigma": rated.sigma, "bound": lower_bound(rated)}),
            "valid_share": (problems["status"] == "ok").mean(),
            "taught_solve_rate": taught["rho"].mean(),
            "teacher_reward": taught["reward"].mean(),
            "n_nodes": _written(problems, borrowing)["n_nodes"].mean(),
            "solve_rate": (tried["verdict"] == "correct").mean(),
            "student_reward": tried["reward"].mean(),
            **{name: value for name, value in _update_metrics(updates).items() if len(updates)},
        }
        scope = {"step": step, "slot": member.slot, "member": member.id, "role": member.role}
        yield from _rows(scope, _known(metrics))


def _pair_rows(run: RunDirectory, step: int, data: Step) -> Iterator[Row]:
    members = {member.slot: member.id for member in Population.from_json(run.state(step - 1).members).members}
    for match in run.json(step, "propose", "matches.json"):
        rho = data.outcomes.loc[data.outcomes["slot"] == match["teacher"], "rho"]
        yield {
            "step": step,
            "teacher": members[match["teacher"]],
            "student": members[match["student"]],
            "p": match["p"],
            "solve_rate": None if rho.isna().all() else float(rho.mean()),
        }


def _known(metrics: Mapping[str, Any]) -> Metrics:
    return {name: float(value) for name, value in metrics.items() if value is not None and not pd.isna(value)}


def _rows(scope: Row, metrics: Metrics) -> list[Row]:
    return [{**scope, "metric": name, "value": value} for name, value in metrics.items()]
