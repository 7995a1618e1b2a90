"""Whether a run fits on a device, and if not, which key of the config is to change."""

from collections.abc import Callable
from typing import Any

from popu.config import Engine, Training
from popu.errors import ConfigError
from popu.plan.memory import GB, Memory, memory
from popu.plan.shape import Shape

Change = Callable[[int], tuple[Training, Engine]]


def check_fits(shape: Shape, training: Training, engine: Engine, arm: str, device_gb: float, reserve_gb: float) -> None:
    """Raises ConfigError where a run needs more than a device without the reserve has: a key and a value that fits."""

    def needs(training: Training, engine: Engine) -> Memory:
        return memory(shape, training, engine, device_gb)

    def fits(training: Training, engine: Engine) -> bool:
        found = needs(training, engine)
        return found.peak <= (device_gb - reserve_gb) * GB and found.cache >= found.sequence

    if fits(training, engine):
        return
    found = needs(training, engine)
    where = f"for arm {arm} in {device_gb - reserve_gb:.1f} GB a device"
    fixed = (found.weights + found.adapters + found.engine_weights + found.slots + found.states) / GB
    if fixed > device_gb - reserve_gb:
        raise ConfigError(f"base.path: expected weights, adapters and states {where}, found {fixed:.1f} GB")
    base = (found.weights + found.adapters) / GB
    needed = f"{base:.1f} GB and {found.generate / GB:.1f} to generate or {found.update / GB:.1f} to update"
    if engine.kind == "vllm":
        share = _share(found, training, engine, fits)
        if share is not None:
            key, expected, value = share
            needed = f"{needed}; the longest text's cache {found.sequence / GB:.1f}"
            raise ConfigError(f"engine.vllm.{key}: expected {expected} {where}, found {value} ({needed})")
    raise ConfigError(_too_much(training, engine, fits, where, needed))


def _share(
    found: Memory, training: Training, engine: Engine, fits: Callable[[Training, Engine], bool]
) -> tuple[str, str, str] | None:
    """The key for vLLM's part of the device, what is expected and what is found, where that or `sleep` alone helps."""
    settings = engine.vllm
    key, unit = ("memory_fraction", 100) if settings.cache_gb is None else ("cache_gb", 1)
    value = settings.memory_fraction if settings.cache_gb is None else settings.cache_gb

    def fits_with(**values: Any) -> bool:
        return fits(training, engine.model_copy(update={"vllm": settings.model_copy(update=values)}))

    most = 100 if settings.cache_gb is None else 10_000
    fitting = [n / unit for n in range(1, most + 1) if fits_with(**{key: n / unit})]
    if fitting and found.cache < found.sequence:
        return key, f"at least {min(fitting):g}", f"{value:g}"
    if not settings.sleep and fits_with(sleep=True):
        return "sleep", "true", "false"
    return (key, f"at most {max(fitting):g}", f"{value:g}") if fitting else None


def _too_much(
    training: Training, engine: Engine, fits: Callable[[Training, Engine], bool], where: str, needed: str
) -> str:
    """Names the first key whose reduction alone helps; where none does, the context."""
    candidates: list[tuple[str, int, int, Change]] = [
        (
            "engine.max_batch_rows",
            1,
            engine.max_batch_rows,
            lambda n: (training, engine.model_copy(update={"max_batch_rows": n})),
        ),
        (
            "training.update.micro_batch_tokens",
            64,
            training.update.micro_batch_tokens,
            lambda n: (_changed(training, "update", micro_batch_tokens=n), engine),
        ),
        (
            "training.sampling.max_new_tokens",
            1,
            training.sampling.max_new_tokens,
            lambda n: (_shorter(training, n), engine),
        ),
    ]
    for key, least, value, changed in candidates:
        fitting = largest(value, lambda n, changed=changed: fits(*changed(n)))  # type: ignore[misc]
        if fitting >= least:
            return f"{key}: expected at most {fitting} {where}, found {value} ({needed})"
    return f"training.sampling.context: expected less {where}, found {training.sampling.context} ({needed})"


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
