"""Files that are whole or not there, and what a killed writer leaves."""

import os
import signal
import subprocess
import sys

import pytest
import torch

from popu.artifacts import atomic_write, read_tensors, write_tensors

WRITER = """
import sys, time
from pathlib import Path
from popu.artifacts import atomic_write, read_tensors, write_tensors
with atomic_write(Path(sys.argv[1])) as path:
    path.write_text("of the other")
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def writer(tmp_path):
    """Another process in the midst of writing the file `a[1].txt`."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "a[1].txt")], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"writing\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def write(path, text="ours"):
    with atomic_write(path) as temporary:
        temporary.write_text(text)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_next_writer_removes_what_a_killed_one_left(tmp_path, writer, how):
    writer.send_signal(how)
    writer.wait()
    assert names(tmp_path) == [f".a[1].txt.tmp-{writer.pid}"]
    write(tmp_path / "b.txt")
    assert len(names(tmp_path)) == 2  # of another file: its own writer removes it
    write(tmp_path / "a[1].txt")
    assert names(tmp_path) == ["a[1].txt", "b.txt"]


def test_what_another_writes_now_is_left_alone(tmp_path, writer):
    write(tmp_path / "a[1].txt")
    assert names(tmp_path) == [f".a[1].txt.tmp-{writer.pid}", "a[1].txt"]
    assert (tmp_path / "a[1].txt").read_text() == "ours"


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    write(path, "old")
    with pytest.raises(ValueError), atomic_write(path) as temporary:
        temporary.write_text("new")
        raise ValueError
    assert names(tmp_path) == ["a.txt"] and path.read_text() == "old"


def test_a_refusal_names_the_file_and_not_its_temporary_name(tmp_path):
    path = tmp_path / ("x" * (os.pathconf(tmp_path, "PC_NAME_MAX") - 4))
    with pytest.raises(OSError) as caught, atomic_write(path):
        pass
    assert caught.value.filename == str(path)


def test_the_file_has_the_mode_of_any_other(tmp_path):
    (tmp_path / "usual").touch()
    write(tmp_path / "a.txt")
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_reading_tensors_again_and_again_keeps_no_memory(tmp_path):
    path = tmp_path / "a.safetensors"
    tensors = {f"{i}": torch.full((3, 300), float(i)) for i in range(20)}
    write_tensors(path, tensors)
    assert all(torch.equal(tensors[name], tensor) for name, tensor in read_tensors(path).items())
    before = sys.getallocatedblocks()
    for _ in range(50):
        read_tensors(path)
    assert sys.getallocatedblocks() - before < 100  # of 2,000, were it two for every tensor
