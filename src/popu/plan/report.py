"""A config's plan: every arm's figures, the experiment's totals, and what to run on the hardware that is there."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from popu.config import Config, arm_training, read_config
from popu.errors import ConfigError
from popu.plan.fit import check_fits
from popu.plan.memory import GB, Memory, memory
from popu.plan.shape import adapter_bytes, optimizer_bytes, parameters, shape_of
from popu.plan.work import (
    NAMES,
    Assumptions,
    Disk,
    Work,
    assumptions,
    busiest_disk,
    disk,
    expected_work,
    heldout_completions,
    heldout_seconds,
    most_work,
    n_members,
)

LADDER = ("paper", "qwen-3b", "qwen-1.5b", "qwen-0.5b")  # configs for accelerators, the largest base first
FALLBACK = "config"  # runs on any machine
DISK_SHARES = (0.25, 0.5, 0.75, 1.0)  # of the steps, after which the disk is looked at
STATED = "stated on the command line"


@dataclass(frozen=True)
class Hardware:
    """Devices of equal memory; none: the base runs on this machine's cores, and nothing is refused."""

    n_devices: int = 0
    memory_gb: float = 0.0

    def of_a_run(self, config: Config) -> int:
        """Devices that a run takes: `gpus`, at least one where there are any."""
        return max(1, config.gpus) if self.n_devices else 0


@dataclass(frozen=True)
class ArmPlan:
    """One arm: its seeds, a step, a run, and what it holds. Bytes and seconds."""

    arm: str
    n_runs: int
    steps: int
    n_members: int
    expected: Work
    most: Work
    memory: Memory
    adapter_bytes: int
    optimizer_bytes: int
    disk: tuple[Disk, ...]
    disk_at_most: float
    heldout_completions: int
    run_seconds: float


@dataclass(frozen=True)
class Plan:
    """An experiment. `seconds`: its runs side by side on the devices, each on `devices_a_run`."""

    experiment: str
    base: str
    base_parameters: int
    hardware: Hardware
    devices_a_run: int
    given: Assumptions
    sources: Mapping[str, str]
    arms: tuple[ArmPlan, ...]
    seconds: float
    disk_bytes: float
    sandbox_core_hours: float


def plan(config: Config, hardware: Hardware, stated: Mapping[str, float]) -> Plan:
    """The figures of all arms; `stated` are assumptions that replace the defaults. Raises ConfigError."""
    shape = shape_of(Path(config.base.path))
    device_gb, n_devices = hardware.memory_gb, hardware.of_a_run(config)
    given, sources = assumptions(shape, config.training, config.engine, device_gb)
    given, sources = replace(given, **stated), {**sources, **dict.fromkeys(stated, STATED)}
    arms = []
    for arm in config.arms:
        training = arm_training(config, arm)
        expected = expected_work(training, config.engine, given, n_devices)
        checked = sorted({max(1, round(share * training.steps)) for share in DISK_SHARES})
        most = most_work(training, config.engine, given, n_devices)
        scoring_s = heldout_seconds(training, config.engine, config.heldout, given, n_devices)
        arms.append(
            ArmPlan(
                arm=arm,
                n_runs=len(config.arm_seeds.get(arm, config.seeds)),
                steps=training.steps,
                n_members=n_members(training),
                expected=expected,
                most=most,
                memory=memory(shape, training, config.engine, device_gb),
                adapter_bytes=adapter_bytes(shape, training.lora),
                optimizer_bytes=optimizer_bytes(shape, training.lora),
                disk=tuple(disk(shape, training, expected, step) for step in checked),
                disk_at_most=busiest_disk(shape, training, most),
                heldout_completions=heldout_completions(training, config.heldout),
                run_seconds=training.steps * expected.seconds + scoring_s,
            )
        )
    runs = [arm.run_seconds for arm in arms for _ in range(arm.n_runs)]
    return Plan(
        experiment=config.experiment,
        base=config.base.path,
        base_parameters=parameters(shape),
        hardware=hardware,
        devices_a_run=n_devices,
        given=given,
        sources=sources,
        arms=tuple(arms),
        seconds=side_by_side(runs, max(1, hardware.n_devices // max(1, n_devices))),
        disk_bytes=sum(arm.n_runs * arm.disk[-1].total for arm in arms),
        sandbox_core_hours=sum(arm.n_runs * arm.steps * arm.expected.sandbox_core_s for arm in arms) / 3600,
    )


def side_by_side(seconds: Sequence[float], n_places: int) -> float:
    """When the last run ends, the longest begun first, each where a run ends first."""
    ends = [0.0] * n_places
    for duration in sorted(seconds, reverse=True):
        ends[ends.index(min(ends))] += duration
    return max(ends)


def check(config: Config, found: Plan) -> None:
    """Raises ConfigError for the arm that takes the most, where it does not fit; without devices nothing is refused."""
    hardware, n_devices = found.hardware, found.devices_a_run
    if not hardware.n_devices:
        return
    if n_devices > hardware.n_devices:
        raise ConfigError(
            f"gpus: expected at most {hardware.n_devices}, the devices that there are, found {config.gpus}"
        )
    settings = config.engine.vllm
    wanted = settings.tensor_parallel * settings.data_parallel
    if config.engine.kind == "vllm" and wanted > n_devices:
        raise ConfigError(
            f"engine.vllm: expected tensor_parallel times data_parallel to be at most the {n_devices} devices of a run "
            f"(gpus), found {wanted}"
        )
    largest = max(found.arms, key=lambda arm: arm.memory.peak).arm
    training, reserve = arm_training(config, largest), found.given.reserve_gb
    check_fits(shape_of(Path(config.base.path)), training, config.engine, largest, hardware.memory_gb, reserve)


def recommended(directory: Path, hardware: Hardware) -> Path:
    """The config in a directory with the largest base of which every arm fits; without devices the default one."""
    for name in LADDER if hardware.n_devices else ():
        path = directory / f"{name}.yaml"
        if path.is_file() and _fits(read_config(path), hardware):
            return path
    return directory / f"{FALLBACK}.yaml"


def _fits(config: Config, hardware: Hardware) -> bool:
    try:
        check(config, plan(config, hardware, {}))
    except ConfigError:
        return False
    return True


def hardware_here() -> Hardware:
    """The devices that torch finds, of the memory of the smallest."""
    import torch

    sizes = [torch.cuda.get_device_properties(i).total_memory / GB for i in range(torch.cuda.device_count())]
    return Hardware(len(sizes), min(sizes)) if sizes else Hardware()


def stated_values(lines: Sequence[str]) -> dict[str, float]:
    """`NAME=VALUE` lines as numbers by name. Raises ConfigError."""
    stated = {}
    for line in lines:
        name, _, text = line.partition("=")
        if name not in NAMES:
            raise ConfigError(f"--assume: expected one of {', '.join(NAMES)}, found {name!r}")
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        low = 0.0 if name in ("valid_share", "reserve_gb") else 1e-9
        if not low <= value <= (1.0 if name == "valid_share" else 1e18):
            bounds = {"valid_share": "from 0 to 1", "reserve_gb": ">= 0"}.get(name, "> 0")
            raise ConfigError(f"--assume {name}: expected a number {bounds}, found {text!r}")
        stated[name] = value
    return stated


def as_json(found: Plan) -> dict[str, Any]:
    """The plan for programs; sums that are properties are written out."""
    value = asdict(found)
    for row, arm in zip(value["arms"], found.arms, strict=True):
        row["memory"] |= {name: getattr(arm.memory, name) for name in ("generate", "update", "peak")}
        for entry, at in zip(row["disk"], arm.disk, strict=True):
            entry["total"] = at.total
    return value
