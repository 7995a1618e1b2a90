"""What a run came to, by its measures; the diagram from finished runs of two bases."""

import json

import pytest

from popu.artifacts import write_table
from popu.cli import main
from popu.config import Base, Engine, Run, Training, Update
from popu.report.phase import Course, course_of, outcome_of, phase_figure, phase_rows, phase_table
from popu.report.tables import comma_separated
from popu.rundir import RunDirectory, State


@pytest.mark.parametrize(
    ("late_rho", "nodes", "unique", "gain", "expected"),
    [
        (0.7, 0.8, 0.9, (1.0, 0.5), "collapse"),
        (0.7, 1.0, 0.9, (1.0, 0.5), "learning"),
        (0.7, 1.2, 0.9, (1.0, 0.5), "learning"),
        (0.5, 1.2, 0.9, (1.0, 0.5), "race"),
        (0.5, 1.2, 0.5, (1.0, 0.5), "narrowing"),
        (0.7, 0.8, 0.5, None, "collapse"),
        (0.5, 1.0, 0.9, (1.0, -0.5), "neither"),
        (0.5, 1.0, 0.9, None, "neither"),
    ],
)
def test_outcomes(late_rho, nodes, unique, gain, expected):
    assert outcome_of(Course(0.5, late_rho, nodes, unique, *(gain or (None, None)))) == expected


def steps(n=40, **ends):
    """Rows of steps that go from one end to the other of every metric."""
    return [{"step": i + 1, **{k: a + (b - a) * i / (n - 1) for k, (a, b) in ends.items()}} for i in range(n)]


def test_the_course_is_of_the_ends():
    rows = steps(n_nodes=(10, 20), solve_rate=(0.5, 0.5), unique_share=(0.8, 0.8))
    course = course_of(rows, (3.0, 1.0))
    assert course.early_rho == course.late_rho == 0.5 and course.unique == 1.0 and course.gain == 3.0
    assert course.nodes == pytest.approx((20 - 4.5 * 10 / 39) / (10 + 4.5 * 10 / 39))
    assert course_of(rows[:1], None).nodes == 1.0
    assert course_of(steps(solve_rate=(0.5, 0.5)), None) is None, "a run without valid programs"
    assert course_of([], None) is None


def make_run(root, arm, seed, rate, base, digest, n_nodes):
    settings = Run(
        arm=arm,
        seed=seed,
        training=Training(update=Update(learning_rate=rate), population={"kind": "single"}),
        base=Base(path=str(base)),
        base_sha256=digest,
        engine=Engine(),
    )
    run = RunDirectory(root / f"{arm}-00000000" / f"seed{seed}")
    run.create(settings)
    run.finish(40, "evolve", [run.write_state(40, State({"members": []}, {}, {}))])
    rows = steps(n_nodes=n_nodes, solve_rate=(0.5, 0.55), unique_share=(0.8, 0.8))
    tidy = [
        {"step": row["step"], "problem_type": "", "metric": name, "value": value}
        for row in rows
        for name, value in row.items()
        if name != "step"
    ]
    write_table(run.dynamics_path(40) / "dynamics.parquet", "dynamics", tidy)
    for step in range(1, 41):
        write_table(run.step(step) / "lineage.parquet", "lineage", [])
        run.finish(step, "evolve", [run.step(step) / "lineage.parquet"])
    return run


@pytest.fixture()
def experiments(tmp_path):
    """Two bases, one with a card that is its own, one with that of other weights."""
    bases = []
    for name, digest in (("clean", "a" * 64), ("other", "x")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "card.json").write_text(json.dumps({"sha256": digest, "slip_share": 0.25}))
        bases.append(tmp_path / name)
    for seed, nodes in ((1, (10, 20)), (2, (10, 20)), (3, (10, 10))):
        make_run(tmp_path / "one", "single", seed, 1e-3, bases[0], "a" * 64, nodes)
    make_run(tmp_path / "one", "single_slow", 1, 3e-4, bases[0], "a" * 64, (10, 10))
    make_run(tmp_path / "two", "frozen", 1, 1e-3, bases[1], "b" * 64, (10, 10))
    return [tmp_path / "one", tmp_path / "two"]


def test_the_command_makes_table_and_figure_the_same_twice(experiments, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["phase", "--experiment", *map(str, experiments), "--out", str(out)]) == 0
    assert capsys.readouterr().out.count("race") == 2
    lines = (out / "phase.csv").read_text().splitlines()
    assert len(lines) == 6 and lines[1].startswith("aaaaaaaa,0.25,0.0003,single,single_slow,1,neither,0.5")
    assert lines[-1].startswith("bbbbbbbb,,0.001,frozen,frozen,1,neither"), "a card of other weights says nothing"
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert {*before} == {f"phase.{ending}" for ending in ("csv", "md", "tex", "png", "svg")}
    assert main(["phase", "--experiment", *map(str, experiments), "--out", str(out)]) == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_cell_shows_its_commonest_outcome(experiments):
    from popu.report.evidence import read_arms

    rows = phase_rows(read_arms(experiments[0]).values())
    figure = phase_figure(rows)
    assert [axis.get_title() for axis in figure.axes] == ["single"], "an arm at another rate is the same team"
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["neither\n1 of 1\nrho 0.51 to 0.54", "race\n2 of 3\nrho 0.51 to 0.54"]
    assert comma_separated(phase_table([])).count("\n") == 1


def test_an_experiment_without_runs_is_named(tmp_path, capsys):
    assert main(["phase", "--experiment", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "found none" in capsys.readouterr().err
