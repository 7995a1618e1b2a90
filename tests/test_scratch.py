"""Temporary directories of killed processes."""

import os
import signal
import subprocess
import sys
import tempfile

import pytest

from popu.scratch import scratch_directory

PREFIX = "popu-test-"
HOLD = """
import sys, time
from popu.scratch import scratch_directory
with scratch_directory("popu-test-") as directory:
    (directory / "file").write_text("x")
    print(directory, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path
    tempfile.tempdir = None


def test_it_goes_with_its_use(place):
    with pytest.raises(KeyError), scratch_directory(PREFIX) as directory:
        assert directory.parent == place and os.stat(directory).st_mode & 0o777 == 0o700
        (directory / "file").write_text("x")
        raise KeyError
    assert not list(place.iterdir())


def test_a_killed_process_leaves_it_to_the_next_and_a_living_one_keeps_its_own(place):
    holders = [subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        killed, living = (holder.stdout.readline().strip() for holder in holders)
        holders[0].send_signal(signal.SIGKILL)
        holders[0].wait()
        assert os.path.exists(killed)
        with scratch_directory(PREFIX) as directory:
            assert {str(path) for path in place.iterdir()} == {living, str(directory)}
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()
            holder.stdout.close()


def test_files_and_links_of_that_name_are_left_alone(place):
    (place / "popu-test-file").write_text("x")
    (place / "kept").mkdir()
    (place / "popu-test-link").symlink_to(place / "kept")
    with scratch_directory(PREFIX):
        pass
    assert {path.name for path in place.iterdir()} == {"popu-test-file", "popu-test-link", "kept"}
