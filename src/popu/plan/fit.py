"""Whether a run fits on a device, and if not, which key of the config is to change."""

from collections.abc import Callable
from typing import Any

from popu.config import Engine, Training
from popu.errors import ConfigError
from popu.plan.memory import Memory, memory
from popu.plan.shape import Shape

GB = 1e9


def check_fits(shape: Shape, training: Training, engine: Engine, arm: str, room_gb: float) -> None:
    """Raises ConfigError where a run needs more than `room_gb`: it names a key and the largest value that fits."""
    found = memory(shape, training, engine)
    if found.peak <= room_gb * GB:
        return
    fixed = (found.weights + found.adapters + found.states) / GB
    if fixed > room_gb:
        raise ConfigError(
            f"base.path: expected weights, adapters and states of arm {arm} within {room_gb:.1f} GB a device, found "
            f"{fixed:.1f} GB"
        )
    raise ConfigError(_too_much(shape, training, engine, arm, room_gb, found))


def _too_much(shape: Shape, training: Training, engine: Engine, arm: str, room_gb: float, found: Memory) -> str:
    """Names the first key whose reduction alone helps; where none does, the context."""

    def rows(n: int) -> Memory:
        return memory(shape, training, engine.model_copy(update={"max_batch_rows": n}))

    def micro_batch(n: int) -> Memory:
        return memory(shape, _changed(training, "update", micro_batch_tokens=n), engine)

    def length(n: int) -> Memory:
        return memory(shape, _shorter(training, n), engine)

    base = (found.weights + found.adapters) / GB
    needs = f"{base:.1f} GB and {found.generate / GB:.1f} to generate or {found.update / GB:.1f} to update"
    where = f"for arm {arm} in {room_gb:.1f} GB a device"
    candidates: list[tuple[str, int, int, Callable[[int], Memory]]] = [
        ("engine.max_batch_rows", 1, engine.max_batch_rows, rows),
        ("training.update.micro_batch_tokens", 64, training.update.micro_batch_tokens, micro_batch),
        ("training.sampling.max_new_tokens", 1, training.sampling.max_new_tokens, length),
    ]
    for key, least, value, changed in candidates:
        fitting = largest(value, lambda n, changed=changed: changed(n).peak <= room_gb * GB)  # type: ignore[misc]
        if fitting >= least:
            return f"{key}: expected at most {fitting} {where}, found {value} ({needs})"
    return f"training.sampling.context: expected less {where}, found {training.sampling.context} ({needs})"


def _changed(training: Training, section: str, **values: Any) -> Training:
    return training.model_copy(update={section: getattr(training, section).model_copy(update=values)})


def _shorter(training: Training, new: int) -> Training:
    """Completions of at most `new` tokens behind prompts as long as before."""
    cut = training.sampling.max_new_tokens - new
    return _changed(training, "sampling", max_new_tokens=new, context=training.sampling.context - cut)


def largest(high: int, fits: Callable[[int], bool]) -> int:
    """The largest n in 1..high that fits, where what fits stays so below; 0 for none."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
