"""The pure functions of the stages on small rows."""

import random
from collections import Counter
from pathlib import Path

import pytest

from popu.base import expected_identity
from popu.config import Base, Engine, Rewards, Run, Training, Update
from popu.domains.code import CODE
from popu.errors import ArtifactError, ConfigError
from popu.evolution.selection import SelectionConfig, plan_replacements
from popu.population.member import founders
from popu.problems.types import Reference, Validated
from popu.rundir import RunDirectory
from popu.sandbox.verdicts import Status
from popu.stages.backend import Backend
from popu.stages.buffer import draw, read_buffer, write_buffer
from popu.stages.common import selection_config
from popu.stages.evolve import _state_after
from popu.stages.update import learning_roles, train_sequences
from popu.stages.validate import problem_rows
from popu.stages.verify import buffer_rows, flip_rows, outcome_rows

BOTH = ("teacher", "student")
PROGRAM = "def f(x):\n    return x + 1"


def proposal(i, slot="t0", problem_type="code_o", references=()):
    return {
        "proposal_id": f"00001-p{i:04d}.0",
        "slot": slot,
        "member": f"{slot}.g0",
        "problem_type": problem_type,
        "group": i,
        "reference_programs": [program for program, _ in references],
        "reference_inputs": [given for _, given in references],
        "prompt_tokens": [2, 3],
        "tokens": [4, 5, 1],
        "log_probs": [-0.1, -0.2, -0.3],
    }


def valid(program=PROGRAM, given="1", output="2"):
    return Validated(Status.OK, "", program, (given,), (output,))


def nothing_known(_keys):
    return {}


@pytest.fixture()
def run(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.create(
        Run(arm="a", seed=1, training=Training(), base=Base(path="b"), base_sha256="0" * 64, engine=Engine())
    )
    return directory


def test_duplicates_are_named_by_what_they_repeat():
    twin = valid("def f(y):\n    return y + 5", "7")  # another name, other constants
    other = valid("def f(x):\n    return x * 2")
    first = problem_rows(CODE, [proposal(0), proposal(1), proposal(2)], [valid(), twin, other], nothing_known)
    assert [row["duplicate_of"] for row in first] == ["", "00001-p0000.0", ""]
    again = problem_rows(CODE, [proposal(0)], [valid()], lambda keys: dict.fromkeys(keys, "00000-q0003"))
    assert again[0]["duplicate_of"] == "buffer:00000-q0003"
    copied = problem_rows(CODE, [proposal(0, references=[(PROGRAM, "4")])], [valid()], nothing_known)
    assert copied[0]["duplicate_of"] == "reference"


def test_an_invalid_proposal_has_no_problem():
    (row,) = problem_rows(CODE, [proposal(0)], [Validated(Status.RAISED, "ZeroDivisionError")], nothing_known)
    assert (row["status"], row["problem_id"], row["problem_key"], row["n_nodes"]) == ("raised", "", "", 0)


def problem(i, status="ok", slot="t0", duplicate_of=""):
    return {
        "proposal_id": f"p{i}",
        "problem_id": f"q{i}" if status == "ok" else "",
        "slot": slot,
        "status": status,
        "duplicate_of": duplicate_of,
        "problem_type": "code_o",
        "program": PROGRAM,
        "inputs": ["1"],
        "outputs": ["2"],
        "message": "",
        "problem_key": f"k{i}",
        "program_key": "k",
    }


def paying(seed=1, **rewards):
    """Settings of a run with these rewards."""
    training = Training(rewards=Rewards(**rewards))
    return Run(arm="a", seed=seed, training=training, base=Base(path="b"), base_sha256="0" * 64, engine=Engine())


def verdicts(i, *names):
    return [{"problem_id": f"q{i}", "attempt": n, "verdict": name} for n, name in enumerate(names)]


def test_outcomes():
    problems = [problem(0), problem(1), problem(2, "raised"), problem(3), problem(4), problem(5)]
    rows = [
        *verdicts(0, "correct", "wrong", "wrong", "bad_format"),
        *verdicts(1, "wrong", "wrong"),
        *verdicts(3, "correct", "correct"),
        *verdicts(4, "infrastructure", "infrastructure"),
    ]
    outcomes = outcome_rows(paying(), problems, rows, {"t0": "s1"}, random.Random(0))
    assert [(o["status"], o["rho"], o["reward"]) for o in outcomes] == [
        ("ok", 0.25, 0.75),
        ("ok", 0.0, 0.0),
        ("raised", None, -1.0),
        ("ok", 1.0, 0.0),
        ("infrastructure", None, None),
        ("too_large", None, -1.0),  # no room for a rollout
    ]
    assert {o["student_slot"] for o in outcomes} == {"s1"}


def test_an_erring_verifier_pays_by_what_it_tells_and_rho_stays_true():
    names = ["correct", "wrong", "bad_format"] * 40
    settings, rows = paying(flip_share=0.2), verdicts(0, *names)
    flips = flip_rows(settings, [{"slot": "s0", **row} for row in rows])
    told = {row["attempt"]: row["told"] for row in flips}
    assert 8 < len(flips) < 24 and all(names[attempt] != "bad_format" for attempt in told)
    (outcome,) = outcome_rows(settings, [problem(0)], rows, {"t0": "s0"}, random.Random(0))
    told_correct = sum(told.get(i, name) == "correct" for i, name in enumerate(names))
    assert outcome["rho"] == 40 / 120 and outcome["reward"] == pytest.approx(1 - told_correct / 120)
    assert told_correct != 40


def test_duplicates_pay_the_papers_reward_unless_the_config_says_so():
    problems = [problem(0, duplicate_of="reference")]
    rows = verdicts(0, "correct", "wrong")
    assert outcome_rows(paying(), problems, rows, {"t0": "s0"}, random.Random(0))[0]["reward"] == 0.5
    strict = paying(duplicate="invalid")
    assert outcome_rows(strict, problems, rows, {"t0": "s0"}, random.Random(0))[0]["reward"] == -1.0


def test_the_buffer_takes_valid_problems_once_and_marks_the_unsolved():
    problems = [problem(0), problem(1), problem(2, duplicate_of="p0"), problem(3, "timeout")]
    outcomes = [{"rho": 0.5}, {"rho": 0.0}, {"rho": 0.5}, {"rho": None}]
    rows = buffer_rows(problems, outcomes, 3)
    assert [(row["problem_id"], row["solved"], row["step"]) for row in rows] == [("q0", True, 3), ("q1", False, 3)]


def test_references_are_distinct_and_half_recent():
    rng = random.Random(0)
    drawn = [draw(100, 50, 4, 0.5, rng) for _ in range(500)]
    assert all(len(set(group)) == 4 and max(group) < 100 for group in drawn)
    recent = [position >= 50 for group in drawn for position in group]
    assert sum(recent) / len(recent) == pytest.approx(0.75, abs=0.04)  # half by right, half of the rest by chance
    assert draw(1, 0, 4, 0.5, rng) == [0]
    assert sorted(draw(5, 4, 9, 1.0, rng)) == [0, 1, 2, 3, 4]  # the recent one, then the rest


def test_a_draw_is_uniform_over_what_is_left():
    rng = random.Random(1)
    pairs = Counter(tuple(draw(4, 4, 2, 0.5, rng)) for _ in range(12_000))
    assert len(pairs) == 12 and all(abs(n - 1000) < 5 * 31 for n in pairs.values())


def entry(step, n, problem_type="code_o"):
    return {
        "problem_id": f"{step:05d}-q{n:04d}",
        "step": step,
        "problem_type": problem_type,
        "program": f"def f(x):\n    return x + {n}",
        "input": str(n),
        "problem_key": f"{2**63 + 100 * step + n:016x}",
        "program_key": "0",
        "solved": True,
    }


def test_the_buffer_grows_by_files_of_new_problems(run):
    first = [entry(0, n) for n in range(3)]
    run.finish(0, "init", write_buffer(run, 0, None, first))
    second = [entry(1, 0, "code_f"), entry(1, 1)]
    run.finish(1, "verify", write_buffer(run, 1, read_buffer(run, 0), second))
    run.finish(2, "verify", write_buffer(run, 2, read_buffer(run, 1), []))
    buffer = read_buffer(run, 2)
    assert [buffer.row(i) for i in range(len(buffer))] == first + second
    keys = [first[2]["problem_key"], second[0]["problem_key"], "00000000000000ff"]
    assert buffer.ids_by_key(keys) == {keys[0]: "00000-q0002", keys[1]: "00001-q0000"}
    drawn = buffer.references(9, 1, 1.0, random.Random(0))
    assert drawn[0] == Reference(second[1]["program"], "1")  # the only recent one with a program of its own
    assert {reference.input for reference in drawn[1:]} == {"0", "1", "2"}


def test_a_buffer_that_names_a_lost_file_is_an_artifact_error(run):
    run.finish(0, "init", write_buffer(run, 0, None, [entry(0, 0)]))
    (run.step(0) / "buffer.parquet").unlink()
    with pytest.raises(ArtifactError, match=r"buffer\.parquet"):
        read_buffer(run, 0).row(0)


@pytest.mark.parametrize("whiten", ["adapter_role", "population", "role_type"])
def test_sequences_have_advantages_by_group(whiten):
    population = founders(1, 1)
    proposals = [proposal(0), proposal(0), proposal(1), proposal(1)]
    outcomes = [{"reward": r} for r in (0.75, -1.0, None, 0.5)]
    rollouts = [{**proposal(i, "s0"), "problem_id": f"q{i // 2}", "attempt": i % 2} for i in range(4)]
    judged = [{"reward": r} for r in (1.0, -0.5, -0.5, -0.5)]
    by_slot = train_sequences(population, proposals, outcomes, rollouts, judged, whiten, BOTH)
    teacher, student = by_slot["t0"], by_slot["s0"]
    assert len(teacher) == 3, "a proposal lost to the infrastructure is left out"
    assert teacher[0].advantage > 0 > teacher[1].advantage and teacher[2].advantage == 0
    assert student[0].advantage > 0 > student[1].advantage
    assert student[2].advantage == student[3].advantage == 0.0
    assert {s.kind[0] for s in teacher} == {"teacher"}


def test_the_single_agent_trains_on_both_roles():
    proposals = [proposal(0, "a0"), proposal(0, "a0")]
    rollouts = [{**proposal(0, "a0"), "problem_id": "q0", "attempt": i} for i in range(2)]
    by_slot = train_sequences(
        founders(0, 0),
        proposals,
        [{"reward": 0.5}, {"reward": -1.0}],
        rollouts,
        [{"reward": 1.0}, {"reward": -1.0}],
        "adapter_role",
        BOTH,
    )
    assert [s.kind[0] for s in by_slot["a0"]] == ["teacher", "teacher", "student", "student"]
    assert [round(s.advantage, 5) for s in by_slot["a0"]] == [1.0, -1.0, 1.0, -1.0]


def test_who_does_not_learn_has_no_sequences_and_changes_nothing_for_others():
    population = founders(1, 1)
    rollouts = [{**proposal(0, "s0"), "problem_id": "q0", "attempt": i} for i in range(2)]
    tables = (
        [proposal(0), proposal(0)],
        [{"reward": 0.5}, {"reward": -1.0}],
        rollouts,
        [{"reward": 1.0}, {"reward": 0}],
    )
    joint = train_sequences(population, *tables, "adapter_role", BOTH)
    frozen = train_sequences(population, *tables, "adapter_role", ("student",))
    assert joint["t0"] and not frozen["t0"] and frozen["s0"] == joint["s0"]


def test_schedules_of_learning():
    assert [learning_roles(Update(), step) for step in (1, 2)] == [BOTH, BOTH]
    assert [learning_roles(Update(schedule="alternating"), step) for step in (1, 2)] == [("teacher",), ("student",)]
    assert [learning_roles(Update(roles=("student",)), step) for step in (1, 2)] == [("student",), ("student",)]


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"evolution": {"operators": ["full_gausian"]}}, "full_gaussian"),
        (
            {"evolution": {"operators": ["layer_wise"]}, "population": {"n_teachers": 2, "n_students": 3}},
            "1 survivor of 2 teachers",
        ),
    ],
)
def test_operators_that_cannot_serve_are_named_before_any_work(training, message):
    settings = Run(arm="x", seed=0, training=Training(**training), base=Base(), base_sha256="", engine=Engine())
    with pytest.raises(ConfigError, match=rf"training\.evolution\.operators?: .*{message}"):
        selection_config(settings)


def test_a_childs_optimizer_is_fresh_or_its_first_parents():
    population = founders(4, 4)
    plan = plan_replacements(population, 10, SelectionConfig(), random.Random(0))
    born = {birth.slot: birth for birth in plan}
    for inherited in (False, True):
        state = _state_after(population, 10, plan, inherited)
        for member in population.members:
            slot, birth = member.slot, born.get(member.slot)
            source = birth.parent_slots[0] if birth else slot
            expected = None if birth and not inherited else f"step00010/optimizer/{source}.safetensors"
            assert state.optimizers[slot] == expected
            assert state.adapters[slot] == f"step00010/{'children' if birth else 'adapters'}/{slot}"
    assert len(born) == 2


def test_a_context_longer_than_the_base_is_a_fault_of_the_config():
    base = Base(path=str(Path(__file__).parents[2] / "resources" / "nano"))
    training = Training.model_validate({"sampling": {"context": 2048}})
    settings = Run(
        arm="a", seed=1, training=training, base=base, base_sha256=expected_identity(base), engine=Engine(threads=1)
    )
    with pytest.raises(ConfigError, match="at most the base's 1024 positions, found 2048"):
        Backend().engine(settings)
