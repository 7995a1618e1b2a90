"""The names of the stages, and one call of one of them."""

from dataclasses import dataclass, field

STEP_STAGES = ("propose", "validate", "solve", "verify", "update", "evolve")
STAGES = ("init", *STEP_STAGES, "checkpoint", "heldout", "dynamics")


@dataclass(frozen=True)
class StageCall:
    """One stage of one step of one run, by the run's directory; `options` are arguments of the stage's own."""

    stage: str
    run: str
    step: int
    options: dict[str, int] = field(default_factory=dict)
