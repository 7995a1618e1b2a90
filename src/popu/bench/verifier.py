"""The verifier's throughput per core beside other ways to run a snippet, in one run on one machine.

Work is counted in seconds of CPU, of this process and all that it starts, so that other load on the machine matters
little. Every round measures all methods one after the other; figures are medians over rounds, ratios medians of the
rounds' ratios. The snippet is trivial: what is measured is the way there and back.

The methods that fork their caller pay for its size. The main figures are taken with PyTorch loaded, as it is wherever
rewards are computed; `small_caller` has the ratios to those methods from a process without it.
"""

import importlib
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psutil

from popu.sandbox.executor import Executor, Job
from popu.sandbox.fork_server import Zygote

ROUNDS = 5
N_SINGLE = 400
N_BATCHED = 100
BATCH = 8  # inputs of a batched job
N_SLOW = 40  # snippets a round of the other methods
FORKING = ("multiprocessing", "untrusted_check")

Counts = dict[str, Callable[[int], int]]  # method -> (round -> snippets run)


def bench_verifier() -> dict[str, Any]:
    """Per-core rates, their ratios, the layers' overhead (a fraction), and the machine's load.

    A ratio is how many times more snippets a second of CPU the verifier runs than the other method; None where that is
    not installed.
    """
    with Executor() as executor, Executor() as bare:
        zygotes = [
            zygote for server in (executor, bare) for slot in server.slots for zygote in (slot.first, slot.second)
        ]
        for zygote in zygotes[2:]:
            zygote.bare = True
        methods: Counts = {
            "single": lambda i: _single(executor, i),
            "bare": lambda i: _single(bare, i),
            "batched": lambda i: _batched(executor, i),
            "subprocess": _subprocesses,
            "multiprocessing": _multiprocesses,
            **_untrusted_check(),
        }
        small = _rounds({name: methods[name] for name in ("single", *FORKING) if name in methods}, zygotes, 0)
        importlib.import_module("torch")
        rates = _rounds(methods, zygotes, ROUNDS + 1)
    load = os.getloadavg()[0]
    return {
        "single_per_s_core": _median(rates, "single"),
        "batched_per_s_core": _median(rates, "batched"),
        "subprocess_per_s_core": _median(rates, "subprocess"),
        "multiprocessing_per_s_core": _median(rates, "multiprocessing"),
        "untrusted_check_per_s_core": _median(rates, "untrusted_check"),
        "ratio_subprocess": _ratio(rates, "subprocess"),
        "ratio_multiprocessing": _ratio(rates, "multiprocessing"),
        "ratio_untrusted_check": _ratio(rates, "untrusted_check"),
        "layer_overhead": round(statistics.median(r["bare"] / r["single"] for r in rates) - 1, 3),
        "caller_mb": round(psutil.Process().memory_info().rss / 2**20),
        "small_caller": {f"ratio_{name}": _ratio(small, name) for name in FORKING},
        "rounds": ROUNDS,
        "python": platform.python_version(),
        "layers": executor.layers,
        "load_average": round(load, 2),
    }


def _rounds(methods: Counts, zygotes: list[Zygote], first: int) -> list[dict[str, float]]:
    """The rates of every round; `first` keeps the programs apart from those that ran before."""
    for count in methods.values():
        count(first)  # what is loaded and cached at first
    rounds = range(first + 1, first + 1 + ROUNDS)
    return [{name: _rate(count, i, zygotes) for name, count in methods.items()} for i in rounds]


def _rate(count: Callable[[int], int], index: int, zygotes: list[Zygote]) -> float:
    """Snippets a second of CPU."""
    before = _cpu_s(zygotes)
    n = count(index)
    return n / (_cpu_s(zygotes) - before)


def _cpu_s(zygotes: list[Zygote]) -> float:
    """CPU seconds of this process, its reaped children, the zygotes and theirs."""
    own = os.times()
    total = own.user + own.system + own.children_user + own.children_system
    for zygote in zygotes:
        assert zygote.process is not None
        spent = psutil.Process(zygote.process.pid).cpu_times()
        total += spent.user + spent.system + spent.children_user + spent.children_system
    return total


def _median(rates: list[dict[str, float]], name: str) -> float | None:
    return round(statistics.median(r[name] for r in rates), 1) if name in rates[0] else None


def _ratio(rates: list[dict[str, float]], name: str) -> float | None:
    return round(statistics.median(r["single"] / r[name] for r in rates), 2) if name in rates[0] else None


def _program(index: int, n: int) -> str:
    """A program of its own for every snippet: equal ones would run once."""
    return f"def f(x):\n    return x + {index * 1_000_000 + n}\n"


def _single(executor: Executor, index: int) -> int:
    executor.run([Job(_program(index, n), ("1",)) for n in range(N_SINGLE)])
    return N_SINGLE


def _batched(executor: Executor, index: int) -> int:
    """Several inputs a fork, order-swapped run included."""
    inputs = tuple(str(i) for i in range(BATCH))
    executor.run([Job(_program(index, N_SINGLE + n), inputs) for n in range(N_BATCHED)])
    return N_BATCHED * BATCH


def _subprocesses(index: int) -> int:
    for n in range(N_SLOW):
        command = [sys.executable, "-I", "-S", "-c", f"{_program(index, n)}print(f(1))"]
        subprocess.run(command, check=True, capture_output=True)
    return N_SLOW


def _multiprocesses(index: int) -> int:
    context = multiprocessing.get_context("fork")
    for n in range(N_SLOW):
        reader, writer = context.Pipe(duplex=False)
        process = context.Process(target=_send_result, args=(_program(index, n), writer))
        process.start()
        reader.recv()
        process.join()
    return N_SLOW


def _send_result(program: str, writer: Any) -> None:
    namespace: dict[str, Any] = {}
    exec(program, namespace)  # `_program`'s, never a model's
    writer.send(namespace["f"](1))


def _untrusted_check() -> Counts:
    """EvalPlus's checker where it is installed."""
    try:
        from evalplus.eval import untrusted_check
    except ImportError:
        return {}

    def check(index: int) -> int:
        for n in range(N_SLOW):
            expected = [1 + index * 1_000_000 + n]
            untrusted_check("humaneval", _program(index, n), [[1]], "f", expected, 0, [0.1], fast_check=True)
        return N_SLOW

    return {"untrusted_check": check}
