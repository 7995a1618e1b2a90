"""Runs programs for a trusted process: jobs in, outcomes out.

Each slot keeps two zygotes that differ in their hash seed. A job with `check_determinism` must give the same
values when every call is made twice in a fork of the first, and again in a fork of the second with the
inputs in reverse. Without it, the inputs share a fork only where a fresh copy of the program agrees on them
in reverse; where that fails for whatever reason, each input gets a fork of its own, up to the first that
fails.

What a child sends is believed to be "the value I returned" and no more: it is read by the canonical parser.
The child learns the program and its inputs, never an expected value.
"""

from __future__ import annotations

import marshal
import signal
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from popu.errors import SandboxUnavailable
from popu.problems.values import (
    ValueRejected,
    ValueTooLarge,
    contains_nan,
    is_canonical,
    parse_arguments,
    parse_value,
)
from popu.sandbox.fork_server import Report, Request, Zygote, ZygoteDied
from popu.sandbox.verdicts import Status

HASH_SEEDS = (1, 2)  # of the two zygotes of a slot
ATTEMPTS = 3  # a failure of the infrastructure is retried twice
CACHED_OUTCOMES = 4096
CACHED_BYTES = 512 * 2**20
OVER_CPU, OVER_WALL = "over the cpu limit", "over the wall limit"
MAX_FRAME_BYTES = 64 * 2**20  # of an answer, which the zygote and this process hold at once


# What a child may say of itself; the rest is for others to say.
CHILD_STATUSES = frozenset(
    {
        Status.OK,
        Status.RAISED,
        Status.MEMORY,
        Status.TOO_LARGE,
        Status.UNSUPPORTED_VALUE,
        Status.NONDETERMINISTIC,
        Status.DENIED,
    }
)


class Profile(StrEnum):
    """What programs may use: TRAINING for what models write in self-play, EVALUATION for code benchmarks."""

    TRAINING = "training"
    EVALUATION = "evaluation"


# Of a program and its inputs together: LiveCodeBench has megabytes on standard input.
MAX_REQUEST_BYTES = {Profile.TRAINING: 4 * 2**20, Profile.EVALUATION: 32 * 2**20}


@dataclass(frozen=True)
class Limits:
    """What one fork may use for all its inputs together; one that makes every call twice has twice the time.

    `memory_mb` comes on top of what the zygote itself holds. `wall_s` only catches programs that wait.
    """

    cpu_s: float = 2.0
    wall_s: float = 10.0
    memory_mb: int = 256
    value_bytes: int = 65_536
    unsafe: bool = False
    """Run without the filter of system calls where the machine has none. Only for code that is trusted."""

    def __post_init__(self) -> None:
        for name in ("cpu_s", "wall_s", "memory_mb", "value_bytes"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: expected a positive number, got {getattr(self, name)}")


LIMITS = {
    Profile.TRAINING: Limits(),
    Profile.EVALUATION: Limits(cpu_s=20.0, wall_s=90.0, memory_mb=4096, value_bytes=16 * 2**20),
}


@dataclass(frozen=True)
class Job:
    """A program whose function `entry` is called on each of `inputs`, texts of argument lists.

    In the profile of evaluation arguments may be any expressions, and a program without `entry` is a script: its inputs
    are texts on standard input, its outputs the texts that it prints. `cpu_s` stands in for that of the limits.
    """

    program: str
    inputs: tuple[str, ...]
    check_determinism: bool = False
    entry: str | None = "f"
    cpu_s: float | None = None


@dataclass(frozen=True)
class Outcome:
    """How a job ended: OK with one canonical output per input, or the status of the first failing input."""

    status: Status
    outputs: tuple[str, ...] = ()
    reason: str = ""


class Executor:
    """A context manager that owns `slots` pairs of zygotes and runs up to `slots` jobs at a time.

    Entering it raises SandboxUnavailable where no zygote starts, or where one does not stop what it must.
    Not for use from several threads at once.
    """

    def __init__(self, limits: Limits | None = None, slots: int = 1, profile: Profile = Profile.TRAINING) -> None:
        if slots < 1:
            raise ValueError(f"slots: expected at least 1, got {slots}")
        limits = limits or LIMITS[profile]
        self.limits = limits
        self.slots = [Slot(limits, profile) for _ in range(slots)]
        self.cache: OrderedDict[Job, Outcome] = OrderedDict()
        self.cached_bytes = 0

    def __enter__(self) -> Executor:
        try:
            for slot in self.slots:
                slot.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for slot in self.slots:
            slot.close()

    @property
    def layers(self) -> dict[str, Any]:
        """What confines programs here: machine, whether system calls are filtered, Landlock ABI (0: none)."""
        return self.slots[0].first.layers

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Return the outcomes in the order of `jobs`.

        Equal jobs run once, also over several calls, unless the outcome says more of the machine than of the
        program. Raises ValueError for a job without inputs.
        """
        todo = list(dict.fromkeys(job for job in jobs if job not in self.cache))
        done = {job: self.cache[job] for job in jobs if job in self.cache}
        done |= dict(zip(todo, self._run_all(todo), strict=True))
        for job, outcome in done.items():
            if outcome.status is not Status.INFRASTRUCTURE and outcome.reason != OVER_WALL:
                self.cached_bytes += 0 if job in self.cache else _bytes_of(job, outcome)
                self.cache[job] = outcome
                self.cache.move_to_end(job)
        while len(self.cache) > CACHED_OUTCOMES or self.cached_bytes > CACHED_BYTES:
            self.cached_bytes -= _bytes_of(*self.cache.popitem(last=False))
        return [done[job] for job in jobs]

    def _run_all(self, jobs: list[Job]) -> list[Outcome]:
        if len(self.slots) == 1 or len(jobs) < 2:
            return [self.slots[0].run(job) for job in jobs]
        free: SimpleQueue[Slot] = SimpleQueue()
        for slot in self.slots:
            free.put(slot)

        def run_in_free_slot(job: Job) -> Outcome:
            slot = free.get()
            try:
                return slot.run(job)
            finally:
                free.put(slot)

        with ThreadPoolExecutor(len(self.slots)) as pool:
            return list(pool.map(run_in_free_slot, jobs))


@contextmanager
def executors() -> Iterator[Callable[[Profile], Executor]]:
    """Give the executor of a profile with its limits, started when it is first asked for."""
    running: dict[Profile, Executor] = {}
    with ExitStack() as stack:

        def of(profile: Profile) -> Executor:
            if profile not in running:
                running[profile] = stack.enter_context(Executor(profile=profile))
            return running[profile]

        yield of


class Slot:
    """Two zygotes of different hash seeds, and what is asked of them for one job."""

    def __init__(self, limits: Limits, profile: Profile = Profile.TRAINING) -> None:
        self.limits = limits
        self.profile = profile
        self.first, self.second = (Zygote(seed, limits.unsafe, profile) for seed in HASH_SEEDS)

    def start(self) -> None:
        self.first.start()
        self.second.start()

    def close(self) -> None:
        self.first.close()
        self.second.close()

    def run(self, job: Job) -> Outcome:
        if not job.inputs:
            raise ValueError("inputs: expected at least one, got none")
        longest = MAX_REQUEST_BYTES[self.profile]
        if len(job.program) + sum(map(len, job.inputs)) > longest:
            return Outcome(Status.TOO_LARGE, (), f"program and inputs longer than {longest} bytes")
        if job.entry is None and self.profile is Profile.TRAINING:
            raise ValueError("entry: scripts run in the profile of evaluation only")
        try:
            inputs = self._inputs(job)
        except ValueTooLarge as error:
            return Outcome(Status.TOO_LARGE, (), error.reason)
        except ValueRejected as error:
            return Outcome(Status.UNSUPPORTED_VALUE, (), error.reason)
        if job.check_determinism:
            return self._run_checked(job, inputs)
        if len(inputs) > 1:
            outcome = self._request(self.first, job, inputs, twice="reversed")
            if outcome.status is Status.OK:
                return outcome
        return self._run_apart(job, inputs)

    def _inputs(self, job: Job) -> Sequence[str | bytes]:
        """What a child gets: the texts, or in training the values they write, so that no child has to read them.

        Raises as `parse_arguments`.
        """
        if self.profile is Profile.EVALUATION:
            return job.inputs
        return [marshal.dumps((a.args, a.kwargs)) for a in map(parse_arguments, job.inputs)]  # type: ignore[arg-type]

    def _run_checked(self, job: Job, inputs: Sequence[str | bytes]) -> Outcome:
        outcome = self._request(self.first, job, inputs, twice="calls")
        if outcome.status is not Status.OK:
            return outcome
        other = self._request(self.second, job, inputs[::-1])
        if other.status not in (Status.OK, Status.RAISED):
            return other
        if outcome.outputs != other.outputs[::-1]:
            return Outcome(Status.NONDETERMINISTIC, (), "another hash seed or order of inputs gave other values")
        cap = self.limits.value_bytes
        if self.profile is Profile.TRAINING and any(_holds_nan(text, cap) for text in outcome.outputs):
            return Outcome(Status.UNSUPPORTED_VALUE, (), "NaN in an output")
        return outcome

    def _run_apart(self, job: Job, inputs: Sequence[str | bytes]) -> Outcome:
        """Run each input in a fork of its own, up to the first that fails."""
        outputs: list[str] = []
        for arguments in inputs:
            outcome = self._request(self.first, job, [arguments])
            if outcome.status is not Status.OK:
                return outcome
            outputs += outcome.outputs
        return Outcome(Status.OK, tuple(outputs))

    def _request(self, zygote: Zygote, job: Job, inputs: Sequence[str | bytes], twice: str = "") -> Outcome:
        """Run one fork's worth, every call once or, by "calls" or "reversed", twice.

        A zygote that dies is replaced and asked again. A program that kills the zygote does so again: two
        deaths during the run are its crash.
        """
        times = 2 if twice else 1
        request = Request(
            memory_mb=self.limits.memory_mb,
            cpu_s=(job.cpu_s or self.limits.cpu_s) * times,
            wall_s=self.limits.wall_s * times,
            frame_bytes=min(MAX_FRAME_BYTES, 4096 + len(inputs) * (1 + self.limits.value_bytes)),
            work=marshal.dumps((job.program, job.entry, tuple(inputs), twice, self.limits.value_bytes)),
        )
        deaths = 0
        for _ in range(ATTEMPTS):
            try:
                return _outcome(*zygote.request(request), len(inputs), twice, self.limits)
            except ZygoteDied as death:
                deaths += death.during_run
                if deaths == 2:
                    return Outcome(Status.CRASHED, (), "the program took its zygote down")
            except SandboxUnavailable:
                continue
        return Outcome(Status.INFRASTRUCTURE, (), f"no zygote answered in {ATTEMPTS} attempts")


def _holds_nan(text: str, cap: int) -> bool:
    return "nan" in text and contains_nan(parse_value(text, cap))


def _bytes_of(job: Job, outcome: Outcome) -> int:
    return len(job.program) + sum(map(len, job.inputs)) + sum(map(len, outcome.outputs))


def _outcome(report: Report, frame: bytes, n_inputs: int, twice: str, limits: Limits) -> Outcome:
    """Return the outcome of one fork from the zygote's report and the child's bytes (not trusted)."""
    if report.ended == "unconfined":
        raise SandboxUnavailable("a child could not be confined")
    complete = len(frame) >= 4 and len(frame) == 4 + int.from_bytes(frame[:4], "big")
    if report.exit == -signal.SIGSYS and not complete:  # how a child ends after its answer is a race with its killer
        return Outcome(Status.DENIED, (), "forbidden system call")
    if report.ended == "wall":
        return Outcome(Status.TIMEOUT, (), OVER_WALL)
    if report.ended == "overflow":
        return Outcome(Status.TOO_LARGE, (), "the child sent too much")
    if report.ended == "cpu" or report.over_cpu or report.exit == -signal.SIGXCPU:
        return Outcome(Status.TIMEOUT, (), OVER_CPU)
    if not complete:
        return Outcome(Status.CRASHED, (), f"no answer, exit code {report.exit}")
    try:
        return _read_answer(frame[4:].decode(), n_inputs, bool(twice), limits)
    except ValueError:
        return Outcome(Status.CRASHED, (), "the answer of the child is malformed")


def _read_answer(answer: str, n_inputs: int, twice: bool, limits: Limits) -> Outcome:
    """Return the outcome that a child states, as `runner.answer` writes it; raise ValueError for anything else."""
    first_line, _, rest = answer.partition("\n")
    status = Status(first_line)
    if status not in CHILD_STATUSES:
        raise ValueError("status")
    if status is Status.NONDETERMINISTIC and not twice:
        raise ValueError("nondeterminism in a single run")
    if status is not Status.OK:
        return Outcome(status, (), rest[:300])
    outputs = rest.split("\n")
    if len(outputs) != n_inputs:
        raise ValueError("number of outputs")
    for text in outputs:
        if not is_canonical(text, limits.value_bytes):
            raise ValueError("not canonical")
    return Outcome(Status.OK, tuple(outputs))
