"""Processes of one machine, or of one batch job, take devices that no other one has."""

import os
import subprocess
import sys
from contextlib import ExitStack

import pytest

from popu.devices import visible_devices

TAKE = """
import os, sys
from popu.devices import take_devices
from popu.errors import ConfigError
try:
    print(*take_devices(int(sys.argv[1])), os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
except ConfigError as error:
    print(error, flush=True)
sys.stdin.read()
"""


@pytest.fixture()
def start(tmp_path):
    """Starts a process that takes devices and holds them until its input ends."""
    with ExitStack() as stack:

        def begin(n: int, visible: str, job: str = "7") -> tuple[str, subprocess.Popen[str]]:
            environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "SLURM_JOB_ID": job}
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", TAKE, str(n)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env={**environment, "CUDA_VISIBLE_DEVICES": visible},
                )
            )
            stack.callback(process.kill)
            assert process.stdout is not None
            return process.stdout.readline().strip(), process

        yield begin


def test_two_processes_take_distinct_devices_and_a_death_frees_one(start):
    assert start(1, "4,GPU-a/b")[0] == "4 4"
    said, second = start(1, "4,GPU-a/b")
    assert said == "GPU-a/b GPU-a/b", "what is taken is skipped, and the others are hidden"
    assert "gpus: expected 1 free devices, found 0 of the 2" in start(1, "4,GPU-a/b")[0]
    second.kill()
    second.wait()
    assert start(1, "4,GPU-a/b")[0] == "GPU-a/b GPU-a/b"


def test_devices_of_other_jobs_may_have_the_same_number(start):
    """Where the batch system renumbers, two jobs of one machine both see their own as 0."""
    assert start(1, "0", job="7")[0] == start(1, "0", job="8")[0] == "0 0"


def test_a_process_that_wants_none_hides_none(start):
    assert start(0, "0,1")[0] == "0 1 0,1" and start(2, "0,1")[0] == "0 1 0,1"


def test_too_few_devices_leave_none_taken(start):
    assert "expected 2 free devices, found 1 of the 1" in start(2, "0")[0]
    assert start(1, "0")[0] == "0 0"


def test_a_machine_without_devices_has_none(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_devices() == []
