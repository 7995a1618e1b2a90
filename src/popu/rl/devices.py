"""Many adapters' updates on several devices, each with a copy of the base."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Device = TypeVar("Device")
Job = TypeVar("Job")
Result = TypeVar("Result")


def spread(costs: Sequence[float], n_devices: int) -> list[int]:
    """The device of every job: the dearest first, each where the least is to do; equal ones in order.

    Raises ValueError for less than one device.
    """
    if n_devices < 1:
        raise ValueError(f"n_devices: expected at least 1, found {n_devices}")
    load = [0.0] * n_devices
    owners = [0] * len(costs)
    for job in sorted(range(len(costs)), key=lambda i: -costs[i]):
        owners[job] = load.index(min(load))
        load[owners[job]] += costs[job]
    return owners


def run_spread(
    devices: Sequence[Device], jobs: Sequence[Job], costs: Sequence[float], work: Callable[[Device, Job], Result]
) -> list[Result]:
    """`work` of every job on its device (`spread`), in the order of the jobs.

    A device has a thread, and one job at a time; the first exception, in the order of devices, is raised.
    """
    if len(devices) == 1:
        return [work(devices[0], job) for job in jobs]
    owners = spread(costs, len(devices))

    def work_of(number: int) -> dict[int, Result]:
        return {i: work(devices[number], job) for i, job in enumerate(jobs) if owners[i] == number}

    with ThreadPoolExecutor(len(devices)) as pool:
        done = {i: result for part in pool.map(work_of, range(len(devices))) for i, result in part.items()}
    return [done[i] for i in range(len(jobs))]
