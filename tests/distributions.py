"""Installed distributions made on the spot, as pip leaves them: modules and a dist-info in a directory of the path."""

from collections.abc import Mapping
from pathlib import Path


def install(
    directory: Path,
    name: str,
    entry_points: Mapping[str, Mapping[str, str]],
    files: Mapping[str, str],
    version: str = "1.0",
) -> None:
    """`entry_points` are group -> name -> object, `files` path -> text."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    groups = [
        f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in found.items()) for group, found in entry_points.items()
    ]
    made = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/entry_points.txt": "\n".join(groups) + "\n",
    }
    for path, text in made.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)
