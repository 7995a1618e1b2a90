"""Arithmetic in words: what `7 multiply 3 add 2` comes to, and which expression of some numbers comes to 23.

A domain that runs no program: expressions are parsed by the grammar below and evaluated exactly, in fractions.

    sum     := product (("add" | "subtract") product)*
    product := atom (("multiply" | "divide") atom)*
    atom    := number | "(" sum ")"

Numbers are 0 to 99. `seven times three plus two` is read as the same: number words, and plus, minus, times, over, open,
close. Canonical text has numerals and the words of the grammar, which the embedded base's tokenizer has. Ours, not the
paper's.
"""

import random
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TypeAlias

from popu.domains.domain import Domain, by_attempt, by_proposal, text_key
from popu.problems.parse import BadFormat, only_block
from popu.problems.prompts import fence
from popu.problems.types import Attempt, Problem, PromptStyle, Proposal, Reference, Task
from popu.seeds import derive_rng

MAX_WORDS = 30  # of an expression
MAX_DIGITS = 40  # of an answer's numerator or denominator
HELDOUT_SHARE = 0.1
LEVELS = (1, 2, 3, 4)  # operations in an expression

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
)
_TEENS = [*_ONES.split(), "eighteen", "nineteen"]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
NUMBERS = [*_TEENS, *(f"{ten}-{one}" if one != "zero" else ten for ten in _TENS for one in _TEENS[:10])]
_VALUES = {word: value for value, word in enumerate(NUMBERS)} | {str(value): value for value in range(100)}
SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "(": "(", ")": ")"}
_SYNONYMS = dict(zip(["plus", "minus", "times", "over", "open", "close"], SIGNS, strict=True))
_SUMS, _PRODUCTS = ("add", "subtract"), ("multiply", "divide")
_ANSWER = re.compile(rf"-?[0-9]{{1,{MAX_DIGITS}}}(?:/[0-9]{{1,{MAX_DIGITS}}})?")

Tree: TypeAlias = "int | tuple[str, Tree, Tree]"
"""A number, or an operation's word with its two sides."""


# --- expressions -------------------------------------------------------------------------------------------------


def canonical(text: str) -> str:
    """The words of an expression, one space apart, each in its one form. Raises BadFormat for another word."""
    words = text.replace("(", " ( ").replace(")", " ) ").split()
    if len(words) > MAX_WORDS:
        raise BadFormat(f"expected at most {MAX_WORDS} words, got {len(words)}")
    return " ".join(map(_word, words))


def _word(word: str) -> str:
    if word in _VALUES:
        return str(_VALUES[word])
    if word not in SIGNS and word not in _SYNONYMS:
        raise BadFormat(f"no word of the grammar: {word[:20]!r}")
    return _SYNONYMS.get(word, word)


def parse(text: str) -> Tree:
    """The tree of an expression. Raises BadFormat."""
    rest = canonical(text).split()[::-1]
    tree = _chain(rest, _SUMS)
    if rest:
        raise BadFormat(f"expected the end, got {rest[-1]!r}")
    return tree


def _chain(rest: list[str], signs: Sequence[str]) -> Tree:
    """Operations of one strength, from the left."""
    deeper = signs is _SUMS
    tree = _chain(rest, _PRODUCTS) if deeper else _atom(rest)
    while rest and rest[-1] in signs:
        sign = rest.pop()
        tree = (sign, tree, _chain(rest, _PRODUCTS) if deeper else _atom(rest))
    return tree


def _atom(rest: list[str]) -> Tree:
    word = rest.pop() if rest else "the end"
    if word in _VALUES:
        return _VALUES[word]
    if word != "(":
        raise BadFormat(f"expected a number, got {word!r}")
    tree = _chain(rest, _SUMS)
    if not rest or rest.pop() != ")":
        raise BadFormat("expected ')'")
    return tree


def evaluate(tree: Tree) -> Fraction:
    """Exactly. Raises ZeroDivisionError."""
    if isinstance(tree, int):
        return Fraction(tree)
    return _applied(tree[0], evaluate(tree[1]), evaluate(tree[2]))


def _applied(sign: str, left: Fraction, right: Fraction) -> Fraction:
    if sign == "divide":
        return left / right
    return left * right if sign == "multiply" else left + right if sign == "add" else left - right


def steps(tree: Tree) -> list[Fraction]:
    """The value of every operation, in the order of evaluation; the last is the expression's. Raises as `evaluate`."""
    return [] if isinstance(tree, int) else [*steps(tree[1]), *steps(tree[2]), evaluate(tree)]


def numbers(tree: Tree) -> list[int]:
    """In order of appearance."""
    return [tree] if isinstance(tree, int) else [*numbers(tree[1]), *numbers(tree[2])]


def _depth(tree: Tree) -> int:
    return 1 if isinstance(tree, int) else 1 + max(_depth(tree[1]), _depth(tree[2]))


def measures(text: str) -> dict[str, int]:
    """Numbers and operations, depth of the tree, 1 line, distinct numbers, 1 and the operations other than add."""
    tree = parse(text)
    values = numbers(tree)
    harder = sum(word in ("subtract", "multiply", "divide") for word in text.split())
    return {
        "n_nodes": 2 * len(values) - 1,
        "depth": _depth(tree),
        "n_lines": 1,
        "n_variables": len({*values}),
        "cyclomatic": 1 + harder,
    }


def form_key(text: str) -> str:
    """16 hex digits that expressions share which differ in their numbers alone."""
    return text_key(" ".join("n" if word in _VALUES else word for word in text.split()))


# --- prompts -----------------------------------------------------------------------------------------------------

_TASKS = {"arith_v": "deduce", "arith_x": "abduce"}  # words that the embedded base's tokenizer has
_INSTRUCTIONS = {
    "arith_v": "Work out the value of the expression below. Reply with one block that opens with ```output and closes "
    "with ```, holding only the value as an integer or a fraction like -7/2.",
    "arith_x": "Write an expression that has the value below and uses each of the numbers below once, in any order, "
    "with the words add, subtract, multiply, divide and brackets. Reply with one block that opens with ```input and "
    "closes with ```, holding only the expression.",
}
_PROPOSING = (
    "Write a new expression of numbers (0 to 99), the words add, subtract, multiply, divide and brackets, so that "
    "{task} takes careful thought. Reply with one block that opens with ```input and closes with ```, holding only the "
    "expression. Examples:"
)
_THOUGHT = {"arith_v": "working out its value", "arith_x": "finding it from its value and its numbers"}


def propose_prompt(problem_type: str, references: Sequence[Reference], style: PromptStyle) -> str:
    """What a teacher is asked: expressions as examples."""
    shown = "".join(fence("input", reference.program) for reference in references)
    if style == "compact":
        return f"{shown}propose {_TASKS[problem_type]}\n"
    return f"{_PROPOSING.format(task=_THOUGHT[problem_type])}\n{shown}"


def solve_prompt(problem: Problem, style: PromptStyle) -> str:
    """What a student is asked: the expression, or its value and its numbers by size."""
    if problem.problem_type == "arith_v":
        shown = fence("input", problem.program)
    else:
        words = " ".join(map(str, sorted(numbers(parse(problem.program)))))
        shown = fence("output", problem.outputs[0]) + fence("input", words)
    asked = _TASKS if style == "compact" else _INSTRUCTIONS
    return f"{asked[problem.problem_type]}\n{shown}"


def proposal_text(problem: Problem) -> str:
    """The completion of a teacher that would make this problem."""
    return fence("input", problem.program)


def answer_text(problem: Problem) -> str:
    """A right answer; to `arith_v` after the values of the operations, as the embedded base notes a program's."""
    if problem.problem_type == "arith_x":
        return fence("input", problem.program)
    notes = " -> ".join(map(str, steps(parse(problem.program))))
    return f"{notes}\n{fence('output', problem.outputs[0])}"


# --- checks ------------------------------------------------------------------------------------------------------


def problem_of(problem_type: str, text: str) -> Problem:
    """The problem of an expression. Raises BadFormat."""
    tree = parse(text)
    if isinstance(tree, int):
        raise BadFormat("expected an operation, got a number alone")
    try:
        value = evaluate(tree)
    except ZeroDivisionError:
        raise BadFormat("division by zero") from None
    return Problem(problem_type, canonical(text), (), (str(value),))


def written(proposal: Proposal) -> Problem:
    """The problem of a teacher's completion. Raises BadFormat."""
    return problem_of(proposal.problem_type, only_block(proposal.completion, "input"))


def is_right(attempt: Attempt) -> bool:
    """Whether the value is, however it is written; whether the expression has it and the numbers. Raises BadFormat."""
    gold = Fraction(attempt.problem.outputs[0])
    if attempt.problem.problem_type == "arith_v":
        text = only_block(attempt.completion, "output").strip()
        if not _ANSWER.fullmatch(text):
            raise BadFormat("expected an integer or a fraction")
        numerator, _, denominator = text.partition("/")
        return int(denominator or 1) != 0 and Fraction(int(numerator), int(denominator or 1)) == gold
    tree = parse(only_block(attempt.completion, "input"))
    if sorted(numbers(tree)) != sorted(numbers(parse(attempt.problem.program))):
        return False
    try:
        return evaluate(tree) == gold
    except ZeroDivisionError:
        return False


# --- random problems ---------------------------------------------------------------------------------------------


def is_held_out(text: str) -> bool:
    """Whether an expression belongs to the held-out suite alone."""
    return int(text_key(text)[:4], 16) < HELDOUT_SHARE * 0x10000


def _expressions(level: int, rng: random.Random) -> Iterator[str]:
    """Endless expressions of `level` operations on digits, a third of the longer ones with a bracket."""
    while True:
        words = [str(rng.randint(0, 9))]
        for _ in range(level):
            words += [rng.choices((*_SUMS, *_PRODUCTS), (4, 3, 3, 1))[0], str(rng.randint(0, 9))]
        if level > 1 and rng.random() < 1 / 3:
            first = 2 * rng.randrange(level)
            words[first : first + 3] = ["(", *words[first : first + 3], ")"]
        yield " ".join(words)


def _sampled(problem_type: str, level: int, held_out: bool, rng: random.Random) -> Problem:
    for text in _expressions(level, rng):
        try:
            problem = problem_of(problem_type, text)
        except BadFormat:
            continue
        if is_held_out(text) == held_out:
            return problem
    raise AssertionError("expressions have no end")


def sample(problem_type: str, rng: random.Random) -> Problem:
    """A problem that is not held out, levels even."""
    return _sampled(problem_type, rng.choice(LEVELS), False, rng)


def heldout(tasks_per_level: int) -> list[Task]:
    """Distinct tasks of every type and level, the same for every run."""
    tasks = []
    for problem_type in ARITHMETIC.types:
        for level in LEVELS:
            rng = derive_rng("heldout", "arithmetic", problem_type, level)
            seen: dict[str, Problem] = {}
            while len(seen) < tasks_per_level:
                problem = _sampled(problem_type, level, True, rng)
                seen.setdefault(problem.program, problem)
            tasks += [Task(f"{problem_type}/{level}/{i}", level, problem) for i, problem in enumerate(seen.values())]
    return tasks


ARITHMETIC = Domain(
    name="arithmetic",
    types=("arith_v", "arith_x"),
    first=Reference("1 add 1", ""),
    propose_prompt=propose_prompt,
    solve_prompt=solve_prompt,
    proposal_text=proposal_text,
    answer_text=answer_text,
    validate=by_proposal(written),
    judge=by_attempt(is_right),
    program_key=form_key,
    measures=measures,
    sample=sample,
    heldout=heldout,
)
