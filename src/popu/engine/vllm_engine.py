"""Generation by vLLM, in processes of their own: of the interpreter that has it, in front of a pipe (`vllm_server`).

Tried on a CPU, one copy and two. A GPU, tensor parallelism and memory that is given back by `sleep` are untested.
"""

import select
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import torch

from popu.config import Base, Engine
from popu.engine import vllm_server
from popu.engine.base import TransformersEngine, check_modules
from popu.engine.protocol import Completion, Request
from popu.engine.vllm_settings import environment, interpreter, llm_arguments
from popu.errors import ArtifactError, ConfigError
from popu.population.adapter import Adapter, LoraConfig, write_adapter
from popu.scratch import scratch_directory
from popu.seeds import derive_seed

BASE = "base"  # the name of the bare base, an adapter of zeros: see `bare`
LOWEST_TEMPERATURE = 0.01  # vLLM samples at no lower one, but greedily
POLL_S = 0.1  # between looks at whether the caller is still there
TAIL = 4  # lines of vLLM's log that a fault quotes


class VllmEngine(TransformersEngine):
    """vLLM generates; tokenizer, module shapes and the update's forward pass are those of transformers, in here.

    Processes start with the first call and stay. Every call loads its adapters from files of its own under names and
    ids that were never used, so nothing that vLLM keeps of an adapter can be taken for another's.
    """

    def __init__(self, base: Base, settings: Engine, targets: Sequence[str], rank: int) -> None:
        super().__init__(base, settings, targets)
        self.settings = settings
        arguments = llm_arguments(base, settings, rank)
        self._hello = {"llm": arguments, "stop": list(self.eos_ids), "sleep": settings.vllm.sleep}
        self._replicas: list[_Replica] = []
        self._numbers = count(1)

    def generate(
        self,
        requests: Sequence[Request],
        adapters: Mapping[str, Adapter],
        check: Callable[[], None] = lambda: None,
    ) -> list[tuple[Completion, ...]]:
        """See `protocol.Engine.generate`; `check` is called ten times a second and may raise to cancel.

        Raises:
            ArtifactError: as `check_modules`, or vLLM refuses an adapter or a prompt.
            ConfigError: vLLM does not start, or would sample at another temperature.
            RuntimeError: vLLM died. The next call starts it anew.
        """
        check_modules(adapters, self.lora.shapes)
        for request in requests:
            if 0 < request.temperature < LOWEST_TEMPERATURE:
                raise ConfigError(
                    f"training.sampling.temperature: vLLM expects 0 or at least {LOWEST_TEMPERATURE}, "
                    f"found {request.temperature}"
                )
        if not requests:
            return []
        used: dict[str | None, Adapter] = {}
        for name in dict.fromkeys(request.adapter for request in requests):
            used[name] = bare(self.lora.shapes) if name is None else adapters[name]
        if not self._replicas:
            self._replicas = start_replicas(self._hello, self.settings)
        try:
            with scratch_directory("popu-vllm-") as directory:
                return self._generate(requests, self._write(used, directory), check)
        except _Died:
            raise RuntimeError(f"vLLM died: {self._bury()}") from None

    def _write(self, adapters: Mapping[str | None, Adapter], directory: Path) -> "Written":
        """Writes the adapters of a call, each under a fresh number."""
        written = {}
        for name, adapter in adapters.items():
            number = next(self._numbers)
            try:
                write_adapter(directory / str(number), adapter, "", {})
            except ValueError as error:
                raise ArtifactError(f"adapter {name}: {error}") from error
            written[name] = (f"{name or BASE}#{number}", number, str(directory / str(number)))
        return written

    def _generate(
        self, requests: Sequence[Request], written: "Written", check: Callable[[], None]
    ) -> list[tuple[Completion, ...]]:
        for replica in self._replicas:
            self._greet(replica, check)
        parts = split(requests, len(self._replicas))
        busy = [(replica, part) for replica, part in zip(self._replicas, parts, strict=True) if part]
        try:
            for replica, part in busy:
                replica.send(_call(part, written))
            answers = [replica.receive(check) for replica, _ in busy]
        except _Died:
            raise
        except BaseException:  # of `check`
            for replica, _ in busy:
                replica.cancel()
            raise
        done: list[tuple[Completion, ...]] = []
        for (_, part), answer in zip(busy, answers, strict=True):
            if "error" in answer:
                raise ArtifactError(f"adapter or prompt: expected one that vLLM takes, found: {answer['error']}")
            made = iter(Completion(tuple(t), tuple(logs), reason) for t, logs, reason in answer["completions"])
            done += [tuple(next(made) for _ in range(request.n)) for request in part]
        return done

    def _greet(self, replica: "_Replica", check: Callable[[], None]) -> None:
        """Waits until the replica has loaded the base."""
        if replica.version is None:
            try:
                replica.version = replica.receive(check)["vllm"]
            except _Died:
                python = interpreter(self.settings)
                raise ConfigError(f"engine.kind: expected {python} to start vLLM, found: {self._bury()}") from None

    def _bury(self) -> str:
        """Ends all processes and returns the end of the first's log that says something."""
        said = [replica.close() for replica in self._replicas]
        self._replicas = []
        return next((text for text in said if text), "no word")

    def close(self) -> None:
        """Ends vLLM's processes."""
        self._bury()


class _Died(Exception):
    """The process at the other end of the pipe is gone."""


class _Replica:
    """A process with one copy of the base. `version` is vLLM's, None until the base is loaded."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], hello: Mapping[str, Any]) -> None:
        self.version: str | None = None
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  closed by `close`
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                env=dict(environment),
                cwd="/",
                start_new_session=True,  # Ctrl-C is this process's; the other ends when its stdin does
            )
        except OSError as error:
            raise ConfigError(f"engine.vllm.python: expected an interpreter, found: {error}") from error
        with suppress(_Died):  # who waits for the answer will see it
            self.send(hello)

    def send(self, value: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            vllm_server.send(self.process.stdin.fileno(), value)
        except OSError as error:
            raise _Died from error

    def receive(self, check: Callable[[], None]) -> dict[str, Any]:
        """The next answer. Raises _Died, and what `check` raises."""
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        while not select.select([descriptor], [], [], POLL_S)[0]:
            check()
        try:
            answer: dict[str, Any] = vllm_server.receive(descriptor)
        except EOFError as error:
            raise _Died from error
        return answer

    def cancel(self) -> None:
        """Ends the call that runs, answered or not."""
        self.send({})
        while "cancelled" not in self.receive(lambda: None):
            pass

    def close(self) -> str:
        """Ends the process and returns the end of its log."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.log.seek(0)
        text = self.log.read().decode(errors="replace").strip()
        self.log.close()
        return "\n".join(text.splitlines()[-TAIL:])


def start_replicas(hello: Mapping[str, Any], settings: Engine) -> "list[_Replica]":
    """`data_parallel` processes that begin to load the base, each on its own devices and share of the threads."""
    command = [interpreter(settings), "-P", vllm_server.__file__]  # -P: modules beside the script are not vLLM's
    return [_Replica(command, environment(settings, i), hello) for i in range(settings.vllm.data_parallel)]


def split(requests: Sequence[Request], n: int) -> list[Sequence[Request]]:
    """`requests` in n stretches of about equal numbers; neighbours, which share adapters, stay together."""
    cuts = [len(requests) * i // n for i in range(n + 1)]
    return [requests[low:high] for low, high in zip(cuts, cuts[1:], strict=False)]


Written = Mapping[str | None, tuple[str, int, str]]
"""Adapter of a request -> the name, id and directory under which vLLM has it."""


def bare(shapes: Mapping[str, tuple[int, int]]) -> Adapter:
    """An adapter of rank 1 that adds 0.

    On a CPU vLLM 0.32.0 gives tokens without an adapter that of its last slot (index -1; vllm-project/vllm#48421), so
    here all have one.
    """
    zeros = {module: (torch.zeros(1, d_in), torch.zeros(d_out, 1)) for module, (d_out, d_in) in shapes.items()}
    return Adapter(LoraConfig(1, 1.0, tuple(sorted(shapes))), zeros)


def _call(requests: Sequence[Request], written: Written) -> dict[str, Any]:
    """The frame of a call, with those of the adapters that its requests name."""
    return {
        "adapters": [written[name] for name in dict.fromkeys(request.adapter for request in requests)],
        "requests": [
            [
                request.prompt,
                written[request.adapter][0],
                request.max_new_tokens,
                request.temperature,
                [derive_seed(request.seed, request.request_id, k) for k in range(request.n)],
            ]
            for request in requests
        ],
    }
