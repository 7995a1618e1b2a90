"""What stages run on: the loaded engine and the verifier, kept between stages by a worker or a block."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from popu.base import check_identity
from popu.config import Run
from popu.devices import take_devices
from popu.errors import ConfigError
from popu.sandbox.executor import Executor, Limits

if TYPE_CHECKING:
    from popu.engine.base import TransformersEngine


class Backend:
    """Loads the base on first use and keeps it for runs of the same base and engine settings.

    `check` is called often during device work and may raise to cancel it.
    """

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        self.check = check
        self._engine: TransformersEngine | None = None
        self._engine_key: tuple[object, ...] = ()
        self._executors: dict[tuple[Limits, int], Executor] = {}

    def engine(self, settings: Run) -> "TransformersEngine":
        """The engine of a run, on devices that are taken by then (`POPU_GPUS` of them, set by the workflow).

        Raises ArtifactError where the base is missing or not the run's, ConfigError where its context is too short.
        """
        targets, rank = settings.training.lora.targets, settings.training.lora.rank
        path = str(Path(settings.base.path).resolve())
        is_vllm = settings.engine.kind == "vllm"
        key = (path, settings.base_sha256, settings.engine, settings.base, targets, rank if is_vllm else None)
        if self._engine is None or key != self._engine_key:
            check_identity(settings.base, settings.base_sha256)
            self._close_engine()
            take_devices(int(os.environ.get("POPU_GPUS", "0")))
            if is_vllm:
                from popu.engine.vllm_engine import VllmEngine

                self._engine = VllmEngine(settings.base, settings.engine, targets, rank)
            else:
                from popu.engine.base import TransformersEngine

                self._engine = TransformersEngine(settings.base, settings.engine, targets)
            self._engine_key = key
        limit, context = self._engine.model.config.max_position_embeddings, settings.training.sampling.context
        if context > limit:
            raise ConfigError(
                f"training.sampling.context: expected at most the base's {limit} positions, found {context}"
            )
        room = settings.engine.vllm.context
        if is_vllm and room is not None and context > room:
            raise ConfigError(
                f"training.sampling.context: expected at most engine.vllm.context {room}, found {context}"
            )
        return self._engine

    def executor(self, settings: Run) -> Executor:
        """The running verifier with the run's limits, as many programs at a time as the engine has threads."""
        verifier = settings.training.verifier
        limits = Limits(verifier.cpu_s, verifier.wall_s, verifier.memory_mb, verifier.value_bytes, verifier.unsafe)
        key = (limits, settings.engine.threads)
        if key not in self._executors:
            executor = Executor(limits, slots=settings.engine.threads)
            executor.__enter__()
            self._executors[key] = executor
        return self._executors[key]

    def _close_engine(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def close(self) -> None:
        """Ends the processes of the engine and the verifier."""
        self._close_engine()
        for executor in self._executors.values():
            executor.__exit__(None, None, None)
        self._executors.clear()
