import random

import pytest

from popu.grammar.examples import describe, is_small, sample_example, split_of
from popu.grammar.levels import LEVELS, PRETRAINING_LEVELS, UNSEEN_LEVELS, measure_level
from popu.grammar.programs import sample_program
from popu.grammar.slips import slip_arguments, slip_program, slip_value
from popu.grammar.suite import heldout_suite, problems_of
from popu.problems.check import Proposal, validate
from popu.problems.prompts import fence, proposal_text
from popu.problems.static import check_program
from popu.problems.types import N_SHOWN
from popu.sandbox.executor import Executor
from popu.sandbox.verdicts import Status


@pytest.mark.parametrize("level", LEVELS)
def test_a_program_has_the_level_asked_for_and_passes_the_static_checks(level):
    rng = random.Random(level)
    for _ in range(60):
        source = sample_program(level, rng).source
        assert measure_level(source) == level
        check_program(source)


@pytest.mark.parametrize(
    ("source", "level"),
    [
        ("def f(x):\n    return x", 1),
        ("def f(x):\n    if x > 1:\n        return 2\n    elif x > 0:\n        return 1\n    return 0", 2),
        ("def f(s):\n    return s.upper()", 3),
        ("def f(v):\n    return sorted(v)", 4),
        ("def f(n):\n    while n > 3:\n        n -= 2\n    return n", 5),
        ("def f(x):\n    return {'a': x}", 6),
        ("def g(x):\n    return x\ndef f(x):\n    return g(x)", 7),
        ("def f(v):\n    for i in v:\n        if i:\n            return i\n    return 0", 8),
        ("def f(n):\n    for i in range(n):\n        for j in range(i):\n            n += 1\n    return n", 9),
        ("def g(x):\n    if x:\n        return 1\n    return 0\ndef f(x):\n    return g(x)", 10),
    ],
)
def test_the_level_of_any_program(source, level):
    assert measure_level(source) == level


def test_examples_are_those_of_the_verifier():
    """Outputs that the grammar computes equal those of the sandbox, and every example is a valid problem."""
    rng = random.Random(0)
    problems = []
    for level in LEVELS:
        for kind in ("code_o", "code_f"):
            problems.append(problems_of(sample_example(level, "heldout", rng), kind)[0])
    proposals = [
        Proposal(p.problem_type, proposal_text(p), p.program if p.problem_type == "code_f" else None, False)
        for p in problems
    ]
    with Executor() as executor:
        for problem, result in zip(problems, validate(proposals, executor), strict=True):
            assert result.status is Status.OK, (problem, result)
            assert (result.inputs, result.outputs) == (problem.inputs, problem.outputs)


def test_the_split_is_by_normal_form():
    rng = random.Random(0)
    for level in PRETRAINING_LEVELS:
        assert split_of(sample_example(level, "pretraining", rng).source) == "pretraining"
        assert split_of(sample_example(level, "heldout", rng).source) == "heldout"
    assert split_of("def f(x):\n    return x + 1") == split_of("def f(y):\n    return y + 9")


@pytest.mark.parametrize("level", UNSEEN_LEVELS)
def test_pretraining_has_no_unseen_level(level):
    with pytest.raises(ValueError, match=f"{level} is left out of pretraining"):
        sample_example(level, "pretraining", random.Random(0))


def test_slips_are_near_and_never_right():
    rng = random.Random(0)
    for value in (True, 0, 7, -12, 45, "", "abc", [], [1, 2], {"a": 1}, {}):
        for _ in range(50):
            wrong = slip_value(value, rng)
            assert wrong != value and is_small(wrong)
            assert slip_arguments((value, 5), rng) != (value, 5)
    for level in PRETRAINING_LEVELS:
        source = sample_program(level, rng).source
        assert slip_program(source, rng) != source


def test_the_suite_is_fixed_and_held_out():
    tasks = heldout_suite(3)
    assert tasks == heldout_suite(3) and len(tasks) == 3 * 3 * len(LEVELS)
    assert len({(t.problem.problem_type, t.problem.program, t.problem.inputs) for t in tasks}) == len(tasks)
    for task in tasks:
        assert measure_level(task.problem.program) == task.level
        assert task.level in UNSEEN_LEVELS or split_of(task.problem.program) == "heldout"


def test_pairs_of_code_f_are_in_order_and_the_shown_ones_span_them():
    rng = random.Random(1)
    for level in LEVELS:
        (problem,) = problems_of(sample_example(level, "heldout", rng), "code_f")
        shown, hidden = problem.inputs[:N_SHOWN], problem.inputs[N_SHOWN:]
        ordered = [text for pair in zip(shown, hidden, strict=True) for text in pair]
        assert ordered == sorted(problem.inputs, key=lambda text: (len(text), text))


def test_a_message_does_not_hold_the_program():
    source = "def f(v):\n    r = 0\n    for i in v:\n        r += i\n    return r"
    assert describe(source) == "0 loop add give"
    assert describe("def f(x, y):\n    return max(x * 3 + 2, y)") == "give max multiply 3 add 2"
    assert describe("def f(s):\n    return s.replace('a', 'b') if s < 'c' else s") == "give if less c replace a b"
    assert source not in fence("message", describe(source))
