"""PopuLoRA: populations of teacher and student LoRA adapters that co-evolve on one frozen base."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from popu.frames import load_run

__all__ = ["load_run"]


def __getattr__(name: str) -> Any:
    """`popu.load_run`, imported when it is used: stages do without pandas."""
    if name == "load_run":
        from popu.frames import load_run

        return load_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
