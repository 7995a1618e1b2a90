"""Event files hold the values of the tables."""

import struct

import pytest

from popu.artifacts import write_table
from popu.cli import main
from popu.config import Base, Engine, Run, Training
from popu.rundir import RunDirectory, State

pytest.importorskip("tensorboardX", reason="the environment was made before the lock had tensorboardX")


def scalars(path):
    """(tag, step) -> value of an event file: records of a length, its checksum, an Event, its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    data, found, at = path.read_bytes(), {}, 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        event = Event.FromString(data[at + 12 : at + 12 + length])
        for value in event.summary.value:
            assert (value.tag, event.step) not in found
            found[value.tag, event.step] = value.simple_value
        at += length + 16
    return found


@pytest.fixture()
def experiment(tmp_path):
    run = RunDirectory(tmp_path / "x" / "4t4s-00000000" / "seed1")
    run.create(Run(arm="4t4s", seed=1, training=Training(), base=Base(path="b"), base_sha256="0" * 64, engine=Engine()))
    run.finish(2, "evolve", [run.write_state(2, State({"members": []}, {}, {}))])
    directory = run.dynamics_path(2)
    tidy = [("", 1, 0.25), ("", 2, 1 / 3), ("code_o", 2, 0.5)]
    rows = [{"step": s, "problem_type": t, "metric": "solve_rate", "value": v} for t, s, v in tidy]
    write_table(directory / "dynamics.parquet", "dynamics", rows)
    member = {"step": 2, "slot": "s0", "member": "s0.g1", "role": "student"}
    write_table(directory / "member_dynamics.parquet", "member_dynamics", [{**member, "metric": "mu", "value": 27.5}])
    weights = {**member, "norm": 1.5, "effective_rank": None, "distance": 2.5}
    write_table(directory / "weights.parquet", "weights", [weights])
    return tmp_path / "x"


def test_values_are_those_of_the_tables(experiment, tmp_path):
    out = tmp_path / "events"
    assert main(["tensorboard", "--experiment", str(experiment), "--out", str(out)]) == 0
    (path,) = (out / "4t4s-00000000" / "seed1").iterdir()
    expected = {
        ("steps/solve_rate", 1): 0.25,
        ("steps/solve_rate", 2): 1 / 3,
        ("code_o/solve_rate", 2): 0.5,
        ("members/mu/s0", 2): 27.5,
        ("weights/norm/s0", 2): 1.5,
        ("weights/distance/s0", 2): 2.5,
    }
    assert scalars(path) == pytest.approx(expected)


def test_faults_are_named(experiment, tmp_path, capsys):
    out = tmp_path / "events"
    assert main(["tensorboard", "--experiment", str(experiment), "--out", str(out)]) == 0
    assert main(["tensorboard", "--experiment", str(experiment), "--out", str(out)]) == 2
    assert "without event files" in capsys.readouterr().err
    assert main(["tensorboard", "--experiment", str(tmp_path / "none"), "--out", str(tmp_path / "e2")]) == 2
    assert "found none" in capsys.readouterr().err
