"""The names of the stages, and one call of one of them."""

from dataclasses import dataclass

STAGES = ("init", "propose", "validate", "solve", "verify", "update", "evolve", "checkpoint")
STEP_STAGES = STAGES[1:7]
DEVICE_STAGES = frozenset({"init", "propose", "solve", "update"})


@dataclass(frozen=True)
class StageCall:
    """One stage of one step of one run, by the run's directory."""

    stage: str
    run: str
    step: int
