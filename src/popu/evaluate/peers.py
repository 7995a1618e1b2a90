"""Our word on a completion beside that of another scorer: EvalPlus (`evalplus_peer`) or lm-eval (`lm_eval_peer`)."""

from dataclasses import dataclass
from typing import Protocol

from popu.evaluate.suite import TaskScore


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
