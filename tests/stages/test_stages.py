"""The pure functions of the stages on small rows."""

import random

import pytest

from popu.config import Base, Engine, Run, Training
from popu.errors import ConfigError
from popu.evolution.selection import SelectionConfig, plan_replacements
from popu.population.member import founders
from popu.problems.check import Validated
from popu.sandbox.verdicts import Status
from popu.stages.common import draw_references, selection_config
from popu.stages.evolve import _state_after
from popu.stages.update import train_sequences
from popu.stages.validate import problem_rows
from popu.stages.verify import buffer_rows, outcome_rows

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


def test_duplicates_are_named_by_what_they_repeat():
    twin = valid("def f(y):\n    return y + 5", "7")  # another name, other constants
    other = valid("def f(x):\n    return x * 2")
    first = problem_rows([proposal(0), proposal(1), proposal(2)], [valid(), twin, other], [])
    assert [row["duplicate_of"] for row in first] == ["", "00001-p0000.0", ""]
    buffer = [{"problem_key": first[0]["problem_key"], "problem_id": "00000-q0003"}]
    again = problem_rows([proposal(0)], [valid()], buffer)
    assert again[0]["duplicate_of"] == "buffer:00000-q0003"
    copied = problem_rows([proposal(0, references=[(PROGRAM, "4")])], [valid()], [])
    assert copied[0]["duplicate_of"] == "reference"


def test_an_invalid_proposal_has_no_problem():
    (row,) = problem_rows([proposal(0)], [Validated(Status.RAISED, "ZeroDivisionError")], [])
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
        "problem_key": f"k{i}",
        "program_key": "k",
    }


def verdicts(i, *names):
    return [{"problem_id": f"q{i}", "verdict": name} for name in names]


def test_outcomes():
    problems = [problem(0), problem(1), problem(2, "raised"), problem(3), problem(4), problem(5)]
    rows = [
        *verdicts(0, "correct", "wrong", "wrong", "bad_format"),
        *verdicts(1, "wrong", "wrong"),
        *verdicts(3, "correct", "correct"),
        *verdicts(4, "infrastructure", "infrastructure"),
    ]
    outcomes = outcome_rows(problems, rows, {"t0": "s1"}, False)
    assert [(o["status"], o["rho"], o["reward"]) for o in outcomes] == [
        ("ok", 0.25, 0.75),
        ("ok", 0.0, 0.0),
        ("raised", None, -1.0),
        ("ok", 1.0, 0.0),
        ("infrastructure", None, None),
        ("too_large", None, -1.0),  # no room for a rollout
    ]
    assert {o["student_slot"] for o in outcomes} == {"s1"}


def test_duplicates_pay_the_papers_reward_unless_the_config_says_so():
    problems = [problem(0, duplicate_of="reference")]
    rows = verdicts(0, "correct", "wrong")
    assert outcome_rows(problems, rows, {"t0": "s0"}, False)[0]["reward"] == 0.5
    assert outcome_rows(problems, rows, {"t0": "s0"}, True)[0]["reward"] == -1.0


def test_the_buffer_takes_valid_problems_once_and_marks_the_unsolved():
    problems = [problem(0), problem(1), problem(2, duplicate_of="p0"), problem(3, "timeout")]
    outcomes = [{"rho": 0.5}, {"rho": 0.0}, {"rho": 0.5}, {"rho": None}]
    rows = buffer_rows(problems, outcomes, 3)
    assert [(row["problem_id"], row["solved"], row["step"]) for row in rows] == [("q0", True, 3), ("q1", False, 3)]


def buffer(n, step, problem_type="code_o"):
    return [{"problem_type": problem_type, "step": step, "program": f"p{step}.{i}", "input": str(i)} for i in range(n)]


def test_references_are_distinct_and_half_recent():
    rows = buffer(50, 0) + buffer(50, 15) + buffer(50, 15, "code_f")
    rng = random.Random(0)
    drawn = [draw_references(rows, 4, 20, 10, 0.5, rng) for _ in range(500)]
    assert all(len({r.program for r in group}) == 4 for group in drawn)
    recent = [r.program.startswith("p15") for group in drawn for r in group]
    assert sum(recent) / len(recent) == pytest.approx(0.75, abs=0.04)  # half by right, half of the rest by chance
    assert len(draw_references(buffer(1, 0), 4, 20, 10, 0.5, rng)) == 1


@pytest.mark.parametrize("whiten", ["adapter_role", "population", "role_type"])
def test_sequences_have_advantages_by_group(whiten):
    population = founders(1, 1)
    proposals = [proposal(0), proposal(0), proposal(1), proposal(1)]
    outcomes = [{"reward": r} for r in (0.75, -1.0, None, 0.5)]
    rollouts = [{**proposal(i, "s0"), "problem_id": f"q{i // 2}", "attempt": i % 2} for i in range(4)]
    judged = [{"reward": r} for r in (1.0, -0.5, -0.5, -0.5)]
    by_slot = train_sequences(population, proposals, outcomes, rollouts, judged, whiten)
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
    )
    assert [s.kind[0] for s in by_slot["a0"]] == ["teacher", "teacher", "student", "student"]
    assert [round(s.advantage, 5) for s in by_slot["a0"]] == [1.0, -1.0, 1.0, -1.0]


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
