"""Arithmetic in words: its grammar against sympy, what is refused, and what counts as right."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest
import sympy

from popu.domains import arithmetic
from popu.domains.arithmetic import (
    ARITHMETIC,
    NUMBERS,
    SIGNS,
    canonical,
    evaluate,
    is_held_out,
    parse,
    problem_of,
    steps,
)
from popu.errors import ConfigError
from popu.problems.parse import BadFormat
from popu.problems.prompts import fence
from popu.problems.types import Attempt, Proposal
from popu.sandbox.verdicts import Status, Verdict


def expression(rng, depth=4):
    """A random expression of the whole grammar."""
    n = rng.randrange(100)
    if depth == 0 or rng.random() < 0.3:
        return rng.choice((NUMBERS[n], str(n)))
    left, right = expression(rng, depth - 1), expression(rng, depth - 1)
    joined = f"{left} {rng.choice([*SIGNS][:4] + ['plus', 'minus', 'times', 'over'])} {right}"
    return rng.choice(("open {} close", "({})")).format(joined) if rng.random() < 0.4 else joined


def test_values_are_those_of_sympy():
    rng, n_defined = random.Random(0), 0
    for _ in range(400):
        text = expression(rng)
        if len(text.replace("(", " ( ").replace(")", " ) ").split()) > arithmetic.MAX_WORDS:
            continue
        signs = "".join(SIGNS.get(word) or f"Integer({word})" for word in canonical(text).split())
        expected = sympy.sympify(signs, rational=True)  # of this test's own expression, no model's
        if expected.is_finite:
            n_defined += 1
            value = evaluate(parse(text))
            assert sympy.Rational(value.numerator, value.denominator) == expected, text
        else:
            with pytest.raises(ZeroDivisionError):
                evaluate(parse(text))
    assert n_defined > 200


def test_numbers_are_a_hundred_words():
    assert len({*NUMBERS}) == 100 and (NUMBERS[17], NUMBERS[20], NUMBERS[99]) == ("seventeen", "twenty", "ninety-nine")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected a number, got 'the end'"),
        ("seven plus", "expected a number, got 'the end'"),
        ("seven three", "expected the end, got '3'"),
        ("open seven plus two", r"expected '\)'"),
        ("seven close", "expected the end"),
        ("7 + 2", "no word of the grammar: '\\+'"),
        ("100 add 1", "no word of the grammar: '100'"),
        ("__import__('os')", "no word of the grammar"),
        ("seven over open two minus two close", "division by zero"),
        ("seven", "a number alone"),
        ("one plus " * 15 + "one", "at most 30 words, got 31"),
        ("open " * 30, "expected a number, got 'the end'"),
    ],
)
def test_what_is_no_problem(text, reason):
    with pytest.raises(BadFormat, match=reason):
        problem_of("arith_v", text)
    (found,) = ARITHMETIC.validate([Proposal("arith_v", fence("input", text), None, False)], None)
    assert found.status is Status.BAD_FORMAT


def test_a_proposal_is_checked_and_has_its_value():
    texts = [fence("input", " seven  times (three)\nplus 2 "), "seven plus two", fence("input", "one plus one") * 2]
    proposals = [Proposal("arith_x", text, None, False) for text in texts]
    good, bare, doubled = ARITHMETIC.validate(proposals, None)
    assert (good.program, good.inputs, good.outputs) == ("7 multiply ( 3 ) add 2", (), ("23",))
    assert bare.status is doubled.status is Status.BAD_FORMAT
    (cut,) = ARITHMETIC.validate([Proposal("arith_x", texts[0], None, True)], None)
    assert cut.status is Status.BAD_FORMAT


def verdict(problem, completion, truncated=False):
    return ARITHMETIC.judge([Attempt(problem, completion, truncated)], None)[0].verdict


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("7/2", Verdict.CORRECT),
        ("14/4", Verdict.CORRECT),
        (" 7/2\n", Verdict.CORRECT),
        ("-7/2", Verdict.WRONG),
        ("7/0", Verdict.WRONG),
        ("3.5", Verdict.BAD_FORMAT),
        ("7 / 2", Verdict.BAD_FORMAT),
        ("", Verdict.BAD_FORMAT),
        ("9" * 10_000, Verdict.BAD_FORMAT),
    ],
)
def test_a_value_is_right_however_it_is_written(answer, expected):
    problem = problem_of("arith_v", "seven over two")
    assert verdict(problem, f"7 / 2\n{fence('output', answer)}") is expected
    assert verdict(problem, fence("output", answer), truncated=True) is Verdict.BAD_FORMAT


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("two plus three times seven", Verdict.CORRECT),
        ("open three times seven close plus two", Verdict.CORRECT),
        ("seven plus three times two", Verdict.WRONG),
        ("ten plus thirteen", Verdict.WRONG),
        ("seven times three plus two plus zero", Verdict.WRONG),
        ("seven over open two minus two close times three", Verdict.WRONG),
        ("seven times three and two", Verdict.BAD_FORMAT),
        ("23", Verdict.WRONG),
    ],
)
def test_any_expression_of_the_numbers_and_the_value_is_right(answer, expected):
    assert verdict(problem_of("arith_x", "seven times three plus two"), fence("input", answer)) is expected


@pytest.mark.parametrize("problem_type", ARITHMETIC.types)
@pytest.mark.parametrize("style", ["compact", "instruct"])
def test_gold_texts_make_and_solve_the_problem_and_prompts_do_not_tell(problem_type, style):
    rng = random.Random(1)
    for _ in range(50):
        problem = ARITHMETIC.sample(problem_type, rng)
        (made,) = ARITHMETIC.validate([Proposal(problem_type, ARITHMETIC.proposal_text(problem), None, False)], None)
        assert (made.program, made.outputs) == (problem.program, problem.outputs)
        assert verdict(problem, ARITHMETIC.answer_text(problem)) is Verdict.CORRECT
        hidden = fence("output", problem.outputs[0]) if problem_type == "arith_v" else problem.program
        assert hidden not in ARITHMETIC.solve_prompt(problem, style)


def test_what_is_held_out_is_never_drawn():
    rng = random.Random(2)
    drawn = [ARITHMETIC.sample("arith_v", rng).program for _ in range(500)]
    tasks = ARITHMETIC.heldout(6)
    assert not any(map(is_held_out, drawn)) and all(is_held_out(task.problem.program) for task in tasks)
    assert len({task.task_id for task in tasks}) == len(tasks) == 2 * 4 * 6
    assert {task.level for task in tasks} == {1, 2, 3, 4} and tasks == ARITHMETIC.heldout(6)


def test_keys_and_measures():
    one, two = "7 multiply 3 add 2", "6 multiply 1 add 2"
    assert ARITHMETIC.problem_key(one, ()) != ARITHMETIC.problem_key(two, ())
    assert ARITHMETIC.program_key(one) == ARITHMETIC.program_key(two) != ARITHMETIC.program_key("1 add 2 multiply 2")
    assert ARITHMETIC.measures("( 1 add 1 ) multiply 2 subtract 3") == {
        "n_nodes": 7,
        "depth": 4,
        "n_lines": 1,
        "n_variables": 3,
        "cyclomatic": 3,
    }
    assert evaluate(parse("1 subtract 2 subtract 3")) == Fraction(-4), "from the left"
    assert steps(parse("2 multiply (3 add 4) divide 7")) == [7, 14, 2]


def test_what_a_domain_does_not_have_is_said():
    poor = replace(ARITHMETIC, sample=None, answer_text=None)
    with pytest.raises(ConfigError, match="another than grammar for problems of arithmetic"):
        poor.sampled("arith_v", random.Random(0))
    with pytest.raises(ConfigError, match="with gold answers, found arithmetic"):
        poor.gold_answer(problem_of("arith_v", "1 add 1"))
