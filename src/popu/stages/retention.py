"""Retention: the heavy files of old steps go; tables and manifests stay, so that a finished step is never redone."""

import shutil

from popu.rundir import RunDirectory

KEPT_STEPS = 2  # the last steps whose heavy files are kept
HEAVY = ("adapters", "children", "optimizer")


def apply_retention(run: RunDirectory, step: int) -> None:
    """Called before `step` is finished: deletes the heavy files of the step that leaves the last `KEPT_STEPS`.

    The adapters of a step at which evolution was due are kept: they are the parents. Checkpoint bundles are copies of
    their own.
    """
    number = step - KEPT_STEPS
    if number < 0:
        return
    every = run.settings.training.evolution.every
    keep_parents = every and number and number % every == 0
    for name in HEAVY:
        if not (keep_parents and name == "adapters"):
            shutil.rmtree(run.step(number) / name, ignore_errors=True)
