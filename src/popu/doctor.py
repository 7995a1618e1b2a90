"""What this machine offers a run: versions, plug-ins, devices, disk, the verifier's layers, with what is missing."""

import importlib.metadata
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from popu import plugins
from popu.errors import ConfigError, SandboxUnavailable
from popu.sandbox.executor import Executor

REQUIRED = ("torch", "transformers", "peft", "safetensors", "snakemake", "trueskill", "pyarrow", "pandas", "radon")
OPTIONAL = {"vllm": "the vLLM engine", "gguf": "conversion of GGUF bases"}
ENOUGH_DISK_GB = 2.0  # a quick experiment takes a tenth


@dataclass(frozen=True)
class Finding:
    """One line of the report; `ok` is None where nothing depends on it."""

    name: str
    ok: bool | None
    found: str


def findings(directory: Path) -> list[Finding]:
    """The report; `directory` is where results go."""
    return [_python(), _machine(), _disk(directory), *_packages(), *_plugins(), _device(), *_sandbox()]


def report(rows: list[Finding]) -> dict[str, Any]:
    """The report for programs."""
    return {"ok": all(row.ok is not False for row in rows), "findings": [asdict(row) for row in rows]}


def _python() -> Finding:
    return Finding("python", None, platform.python_version())


def _machine() -> Finding:
    return Finding("machine", None, f"{platform.system()} {platform.machine()}, {len(os.sched_getaffinity(0))} cores")


def _disk(directory: Path) -> Finding:
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    free_gb = shutil.disk_usage(existing).free / 1e9
    return Finding("disk", free_gb >= ENOUGH_DISK_GB, f"{free_gb:.1f} GB free, {ENOUGH_DISK_GB:.0f} GB are enough")


def _packages() -> list[Finding]:
    rows = []
    for name in REQUIRED:
        version = _version(name)
        rows.append(Finding(name, version is not None, version or "missing: make install"))
    for name, purpose in OPTIONAL.items():
        version = _version(name)
        rows.append(Finding(name, None, version or f"not installed; only needed for {purpose}"))
    return rows


def _plugins() -> list[Finding]:
    """Every installed part by kind and name; one that cannot be used counts as missing."""
    rows = []
    for kind in plugins.BUILT_IN:
        for name in plugins.names(kind):
            try:
                states = plugins.distributions([(kind, name)])
                found = [Finding(f"{kind}: {name}", True, f"{origin} {state}") for origin, state in states.items()]
            except ConfigError as error:
                found = [Finding(f"{kind}: {name}", False, str(error))]
            rows += found
    return rows


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _device() -> Finding:
    try:
        import torch
    except ImportError:
        return Finding("device", False, "torch cannot be imported")
    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        return Finding("device", None, f"{names}; the transformers engine runs on the CPU")
    return Finding("device", None, f"CPU, {torch.get_num_threads()} threads by default")


def _sandbox() -> list[Finding]:
    try:
        with Executor() as executor:
            layers = executor.layers
    except SandboxUnavailable as error:
        return [Finding("verifier", False, str(error))]
    return [Finding(f"verifier: {name}", ok, found) for name, ok, found in _layers(layers)]


def _layers(layers: Mapping[str, Any]) -> list[tuple[str, bool | None, str]]:
    abi = layers["landlock"]
    account = "a child becomes nobody" if os.geteuid() == 0 else "a child has your account"
    return [
        ("system calls", True, f"filtered ({layers['machine']}), canaries died"),
        ("landlock", None, f"ABI {abi}" if abi else "none in this kernel; the filter forbids the same calls"),
        ("account", None, account),
    ]
