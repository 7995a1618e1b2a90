"""The plan for people."""

from collections.abc import Iterable
from dataclasses import asdict

from popu.plan.memory import GB, Memory
from popu.plan.report import ArmPlan, Plan


def as_text(found: Plan) -> str:
    """What is taken as given first, then every arm, then the totals."""
    devices = found.hardware
    where = (
        f"{devices.n_devices} x {devices.memory_gb:.0f} GB, a run on {found.devices_a_run}"
        if devices.n_devices
        else "no device"
    )
    lines = [
        f"{found.experiment}: base {found.base}, {found.base_parameters:,} parameters; {where}",
        "",
        "taken as given (--assume NAME=VALUE)",
        *(f"  {name:18}{_number(value):>12}  {found.sources[name]}" for name, value in asdict(found.given).items()),
    ]
    for arm in found.arms:
        lines += ["", *_work(arm), *_disk(arm), *_memory(arm.memory)]
    total = f"{sum(arm.n_runs for arm in found.arms)} runs: {_number(found.seconds / 3600)} hours"
    sandbox = f"{_number(found.sandbox_core_hours)} core-hours of the sandbox"
    return "\n".join([*lines, "", f"{total}, {_bytes(found.disk_bytes)} on disk, {sandbox}"])


def _work(arm: ArmPlan) -> Iterable[str]:
    expected, most, steps = arm.expected, arm.most, arm.steps
    yield f"{arm.arm}: {arm.n_members} adapters, {steps} steps, {arm.n_runs} runs"
    yield f"  {'':26}{'a step':>14}{'a run':>14}{'a run at most':>16}"
    rows = (
        ("proposals", expected.proposals, most.proposals),
        ("problems", expected.problems, most.problems),
        ("rollouts", expected.rollouts, most.rollouts),
        ("tokens of prompts read", expected.tokens_read, most.tokens_read),
        ("tokens written", expected.tokens_written, most.tokens_written),
        ("tokens in updates", expected.tokens_updated, most.tokens_updated),
        ("programs run", expected.forks, most.forks),
        ("sandbox, core-hours", expected.sandbox_core_s / 3600, most.sandbox_core_s / 3600),
        ("hours", expected.seconds / 3600, most.seconds / 3600),
    )
    for name, mean, bound in rows:
        yield f"  {name:26}{_number(mean):>14}{_number(steps * mean):>14}{_number(steps * bound):>16}"
    hours = _number(arm.run_seconds / 3600)
    yield f"  a run and its {arm.heldout_completions:,} held-out completions: {hours} hours"


def _disk(arm: ArmPlan) -> Iterable[str]:
    yield f"  an adapter {_bytes(arm.adapter_bytes)}, its optimizer state {_bytes(arm.optimizer_bytes)}"
    for at in arm.disk:
        parts = f"tables {_bytes(at.tables)}, last steps {_bytes(at.heavy)}, parents {_bytes(at.parents)}"
        yield f"  disk after step {at.step}: {_bytes(at.total)} ({parts}, checkpoints {_bytes(at.checkpoints)})"
    yield f"  disk at most, every text at the limit: {_bytes(arm.disk_at_most)}"


def _memory(memory: Memory) -> Iterable[str]:
    if not memory.peak:
        yield "  nothing on a device: the transformers engine and an update with device cpu take the machine's memory"
        return
    base = f"weights {_bytes(memory.weights)}, adapters {_bytes(memory.adapters)}"
    yield f"  device memory at most {_bytes(memory.peak)}: {base}"
    own = f"weights {_bytes(memory.engine_weights)}, adapters {_bytes(memory.slots)}, " if memory.engine_weights else ""
    reading = f"reading prompts {_bytes(memory.reading)} or sampling {_bytes(memory.sampling)}"
    if memory.generate:
        yield f"    and to generate {_bytes(memory.generate)}: {own}cache {_bytes(memory.cache)}, {reading}"
    backward = f"activations {_bytes(memory.activations)}, attention {_bytes(memory.scores)}"
    parts = f"{backward}, logits {_bytes(memory.logits)}; or {_bytes(memory.drift)} for the KL to the base"
    if memory.update:
        beside = "or" if memory.released and memory.generate else "and"
        yield f"    {beside} to update {_bytes(memory.update)}: states {_bytes(memory.states)}, {parts}"


def _number(value: float) -> str:
    """Whole from 100 on, three digits below."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _bytes(value: float) -> str:
    return f"{value / GB:,.1f} GB" if value >= 0.1 * GB else f"{value / 1e6:,.1f} MB"
