"""Our word on a completion beside that of another scorer: EvalPlus (`evalplus_peer`) or lm-eval (`lm_eval_peer`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from popu.errors import ConfigError
from popu.evaluate.suite import BenchmarkTask, TaskScore


class PeerWord(Protocol):
    """What another scorer says of a completion; as text it names the scorer."""

    @property
    def passed(self) -> bool: ...

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Comparison:
    """A completion's two words."""

    task_id: str
    ours: TaskScore
    peer: PeerWord

    @property
    def disagreement(self) -> str:
        """What either says, where one passes the completion and the other does not; else empty."""
        if self.ours.passed == self.peer.passed:
            return ""
        return f"{self.task_id}: ours: {self.ours.reason or 'pass'}; {self.peer}"


def compare(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    tasks: Sequence[BenchmarkTask],
    completions: Sequence[str],
    scores: Sequence[TaskScore],
) -> list[Comparison]:
    """Our scores of completions of the suite `name`, one a task, beside its own scorer's; `rows` are the suite's data.

    Raises ConfigError for a suite that has none, or where it is not installed; ArtifactError where it fails.
    """
    from popu.evaluate import evalplus_peer, lm_eval_peer

    if name in evalplus_peer.DATASETS:
        return evalplus_peer.compare(name, rows, tasks, scores)
    if name == lm_eval_peer.SUITE:
        return lm_eval_peer.compare(tasks, completions, scores)
    known = ", ".join([*evalplus_peer.DATASETS, lm_eval_peer.SUITE])
    raise ConfigError(f"--suite: expected one with another scorer ({known}), found {name}")
