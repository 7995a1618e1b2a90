"""The server after thousands of hostile requests, and on a busy machine."""

import itertools
import multiprocessing

import psutil
import pytest

from popu.sandbox.executor import Executor, Job, Limits
from popu.sandbox.verdicts import Status

N_REQUESTS = 10_000
N_UNDER_LOAD = 2_000
BUSY_LOOPS = 4
MB = 2**20

ESCAPED = (
    "os = [c.__init__.__globals__ for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close'][0]"
)
BODIES = [
    "return x",
    "return list(range(x))",
    "return 1 / 0",
    "return f(x)",
    "raise KeyboardInterrupt",
    "return 'a' * 100_000",
    "return [0] * 10**9",
    "return lambda: 1",
    "print('a' * 100_000); return x",
    "return open('/etc/passwd').read()",
    "return __import__('os')",
    "y = []; y.append(y); return y",
    f"{ESCAPED}; os['fork']()",
    f"{ESCAPED}; os['kill'](os['getppid'](), 9)",
    f"{ESCAPED}; os['kill'](-1, 9)",
    f"{ESCAPED}; os['abort']()",
    f"{ESCAPED}; os['_exit'](0)",
    f"{ESCAPED}; os['open']('/etc/passwd', 0)",
    f"{ESCAPED}; os['close'](4)",
    f"{ESCAPED}; os['write'](4, b'\\xff' * 10)",
    f"{ESCAPED}; os['write'](4, b'\\x00\\x00\\x00\\x02[]'); os['_exit'](0)",
    f"{ESCAPED}; os['setsid']()",
    f"{ESCAPED}; os['sys'].modules['ctypes'].string_at(0)",
    f"{ESCAPED}; os['sys'].modules['_thread'].start_new_thread(print, ())",
]
SLOW_BODIES = ["while True: pass", "return 7 ** 10 ** 8 % 10", "b = bytearray()\n    while True: b += bytes(10**7)"]


def programs():
    """Programs without end, each another: one in a hundred runs into a limit of time or memory."""
    bodies, slow = itertools.cycle(BODIES), itertools.cycle(SLOW_BODIES)
    for i in itertools.count():
        yield f"def f(x):\n    {next(slow if i % 100 == 99 else bodies)}\n# {i}"


def zygotes(executor):
    return [psutil.Process(z.process.pid) for slot in executor.slots for z in (slot.first, slot.second)]


@pytest.mark.slow
def test_ten_thousand_hostile_requests_leave_nothing_behind():
    with Executor(Limits(cpu_s=0.1, memory_mb=64), slots=2) as executor:
        source = programs()

        def run(n):
            return executor.run([Job(next(source), ("3",), i % 4 == 0) for i in range(n)])

        statuses = {outcome.status for outcome in run(500)}
        before = [(p.pid, p.num_fds(), p.memory_info().rss) for p in zygotes(executor)]
        own_fds = psutil.Process().num_fds()
        for _ in range(N_REQUESTS // 500):
            statuses |= {outcome.status for outcome in run(500)}
        after = [(p.pid, p.num_fds(), p.memory_info().rss) for p in zygotes(executor)]
        assert Status.INFRASTRUCTURE not in statuses
        assert statuses >= {Status.OK, Status.DENIED, Status.TIMEOUT, Status.MEMORY, Status.CRASHED, Status.RAISED}
        assert [(pid, fds) for pid, fds, _ in after] == [(pid, fds) for pid, fds, _ in before]  # no zygote died
        assert all(now - then < 4 * MB for (_, _, then), (_, _, now) in zip(before, after, strict=True))
        assert psutil.Process().num_fds() == own_fds
        assert not any(p.children(recursive=True) for p in zygotes(executor))
        family = zygotes(executor)
        assert executor.run([Job("def f(x):\n    return x + 1", ("1",))])[0].outputs == ("2",)
    assert not any(p.is_running() for p in family)


def spin(stop):
    while not stop.is_set():
        sum(range(10_000))


@pytest.mark.slow
def test_verdicts_are_the_same_on_a_busy_machine():
    """Programs that take a fifth of the time allowed, that take for ever, and ordinary ones."""
    bodies = [
        "return sorted(x)",
        "return sum(x) / 0",
        "return x * 10**5",
        "return [y for y in x if y > 1]",
        "return {x[0]}",
    ]
    heavy = "for _ in range(2_500_000): pass\n    return 1"
    jobs = []
    for i in range(N_UNDER_LOAD):
        body = heavy if i % 100 == 7 else "while True: pass" if i % 200 == 11 else bodies[i % len(bodies)]
        jobs.append(Job(f"def f(x):\n    {body}\n# {i}", (f"[3, 1, {i}]",), i % 2 == 0))
    outcomes = []
    for n_loops in (0, BUSY_LOOPS):
        context = multiprocessing.get_context("spawn")
        stop = context.Event()
        loops = [context.Process(target=spin, args=(stop,), daemon=True) for _ in range(n_loops)]
        for loop in loops:
            loop.start()
        try:
            with Executor(Limits(cpu_s=0.5, wall_s=30.0)) as executor:
                outcomes.append(executor.run(jobs))
        finally:
            stop.set()
            for loop in loops:
                loop.join(10)
    idle, busy = outcomes
    assert busy == idle
    assert {outcome.status for outcome in idle} == {Status.OK, Status.RAISED, Status.TIMEOUT, Status.TOO_LARGE}
