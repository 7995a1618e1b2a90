"""`popu check`: every file of some runs compared with the manifest that lists it; what no manifest lists is read."""

from collections.abc import Iterator
from pathlib import Path

from popu import artifacts
from popu.errors import ArtifactError, ConfigError
from popu.rundir import SETTINGS, STATE, RunDirectory
from popu.stages.checkpoint import MANIFEST, read_bundle_manifest
from popu.stages.retention import HEAVY

NO_MANIFESTS = (STATE, "matches.json", "timings.json")  # the other JSON files of a step


def check(directory: Path) -> tuple[int, list[str]]:
    """How many files below a directory were looked at, and the faults found, a line each.

    Logs, pages and figures are left out. Raises ConfigError where there is no run.
    """
    runs = sorted(path.parent for path in directory.rglob(SETTINGS) if "checkpoints" not in path.parts)
    if not runs:
        raise ConfigError(f"{directory}: expected a directory with runs ({SETTINGS}), found none")
    faults: list[str] = []
    looked_at: set[Path] = set()
    for run in runs:
        looked_at |= _check_listed(RunDirectory(run), faults)
    for path in sorted({*directory.rglob("*.parquet"), *directory.rglob("*.json")} - looked_at):
        looked_at.add(path)
        try:
            artifacts.check_table(path) if path.suffix == ".parquet" else artifacts.read_json(path)
        except ArtifactError as error:
            faults.append(str(error))
    return len(looked_at), faults


def _check_listed(run: RunDirectory, faults: list[str]) -> set[Path]:
    """Compares the files that the run's manifests list, adding to `faults`; returns them and the manifests."""
    looked_at: set[Path] = set()
    for manifest in [*run.path.glob("step*/*.json"), *run.path.glob(f"checkpoints/step*/{MANIFEST}")]:
        if manifest.name in NO_MANIFESTS:
            continue
        looked_at.add(manifest)
        try:
            listed = dict(_listed(run, manifest))
        except (ArtifactError, ConfigError) as error:
            faults.append(str(error))
            continue
        for path, digest in listed.items():
            looked_at.add(path)
            if not path.is_file():
                faults.append(f"{path}: expected a file that {manifest.name} lists, found none")
            elif artifacts.sha256(path) != digest:
                faults.append(f"{path}: expected sha256 {digest[:12]}..., found another content")
    return looked_at


def _listed(run: RunDirectory, manifest: Path) -> Iterator[tuple[Path, str]]:
    """Paths and digests of a manifest, without what retention let go. Raises ArtifactError, ConfigError."""
    directory = manifest.parent
    if manifest.name == MANIFEST:
        files = read_bundle_manifest(directory)["files"]
    else:
        run.is_done(int(directory.name.removeprefix("step")), manifest.stem)
        files = artifacts.read_manifest(directory, manifest.stem)["outputs"]
    for name, digest in files.items():
        heavy = name.split("/")[0]
        if manifest.name == MANIFEST or heavy not in HEAVY or (directory / heavy).exists():
            yield directory / name, digest
