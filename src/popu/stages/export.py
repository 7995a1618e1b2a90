"""A member of a run or bundle as a plain PEFT directory with a model card."""

import shutil
from pathlib import Path

from popu import artifacts
from popu.errors import ArtifactError, ConfigError
from popu.population.member import Population
from popu.rundir import SETTINGS
from popu.stages.checkpoint import MANIFEST, check_bundle


def export(name: str, source: Path, out: Path) -> str:
    """Copies the adapter of slot or member `name` out of a bundle, or of a run's last bundle; returns the member's id.

    Raises ConfigError for an unknown member or an `out` that is not empty, ArtifactError for a damaged bundle.
    """
    bundle = source if (source / MANIFEST).is_file() else last_bundle(source)
    state = check_bundle(bundle)
    members = Population.from_json(state["population"]).members
    chosen = [member for member in members if name in (member.slot, member.id)]
    if not chosen:
        known = ", ".join(member.id for member in members)
        raise ConfigError(f"member: expected a slot or id of {known}, found {name!r}")
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"--out: expected a new or empty directory, found files in {out}")
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted((bundle / state["adapters"][chosen[0].slot]).iterdir()):
        with artifacts.atomic_write(out / path.name) as temporary:
            shutil.copyfile(path, temporary)
    return chosen[0].id


def last_bundle(run: Path) -> Path:
    """The newest checkpoint bundle of a run. Raises ArtifactError."""
    bundles = sorted(path.parent for path in run.glob(f"checkpoints/step*/{MANIFEST}"))
    if not bundles:
        expected = f"a run's directory ({SETTINGS}, checkpoints/) or a bundle ({MANIFEST})"
        raise ArtifactError(f"{run}: expected {expected}, found no checkpoint")
    return bundles[-1]
