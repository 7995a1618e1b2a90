"""Grammar programs with inputs and outputs, and the split into pretraining and held-out programs.

The split is a function of the program's normal form, so no list has to be kept: a program whose names and constants
alone differ from a pretraining program is a pretraining program.
"""

import ast
import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Literal, cast

from popu.grammar.levels import PRETRAINING_LEVELS, UNSEEN_LEVELS
from popu.grammar.programs import Kind, sample_arguments, sample_program
from popu.problems.duplicates import program_key
from popu.problems.types import N_PAIRS, Problem, Reference
from popu.problems.values import Arguments, canonical, canonical_arguments

Split = Literal["pretraining", "heldout"]
HELDOUT_SHARE = 1 / 8

MAX_NUMBER = 99
MAX_LENGTH = 10  # characters of a string
MAX_ELEMENTS = 6  # of a list or dict


@dataclass(frozen=True)
class Example:
    """A program with `N_PAIRS` distinct inputs and their outputs, at least two of them different."""

    source: str
    level: int
    kinds: tuple[Kind, ...]
    inputs: tuple[tuple[object, ...], ...]
    outputs: tuple[object, ...]


def split_of(source: str) -> Split:
    """Which side of the split the program's normal form falls on."""
    return "heldout" if int(program_key(source)[:4], 16) < HELDOUT_SHARE * 0x10000 else "pretraining"


def sample_example(level: int, split: Split, rng: random.Random) -> Example:
    """One example of this level on this side of the split; tries until one fits.

    Levels that pretraining never sees are held out whole. Raises ValueError if one is asked for pretraining.
    """
    if level in UNSEEN_LEVELS and split == "pretraining":
        raise ValueError(f"level: {level} is left out of pretraining; expected one of {PRETRAINING_LEVELS}")
    while True:
        program = sample_program(level, rng)
        if level not in UNSEEN_LEVELS and split_of(program.source) != split:
            continue
        example = _complete(program.source, level, program.kinds, rng)
        if example is not None:
            return example


def sample_examples(levels: tuple[int, ...], split: Split, rng: random.Random) -> Iterator[Example]:
    """Endless examples, levels uniform."""
    while True:
        yield sample_example(rng.choice(levels), split, rng)


def problems_of(example: Example, problem_type: str) -> list[Problem]:
    """One problem a pair for `code_o` and `code_i`, one of all pairs for `code_f`.

    Those of `code_f` are in order of length and text, every second one first: a base that writes them so keeps them
    distinct, and those shown to the student span them all.
    """
    inputs = [canonical_arguments(Arguments(arguments, {})) for arguments in example.inputs]
    outputs = [canonical(output) for output in example.outputs]
    if problem_type == "code_f":
        pairs = sorted(zip(inputs, outputs, strict=True), key=lambda pair: (len(pair[0]), pair[0]))
        inputs, outputs = map(list, zip(*pairs[::2], *pairs[1::2], strict=True))
        return [Problem("code_f", example.source, tuple(inputs), tuple(outputs), describe(example.source))]
    return [
        Problem(problem_type, example.source, (given,), (output,))
        for given, output in zip(inputs, outputs, strict=True)
    ]


def reference_of(example: Example) -> Reference:
    """The example's program with its first input, as a teacher sees it."""
    return Reference(example.source, canonical_arguments(Arguments(example.inputs[0], {})))


def describe(source: str) -> str:
    """The message of a grammar problem: its constructs, operators and constants, in order of appearance.

    It leaves out names and nesting: which parameter is meant, and how the parts hang together, only the pairs tell.
    """
    words = (_word(node) for node in _in_order(ast.parse(source)))
    return " ".join(word for word in words if word) or "same"


_WORDS = {
    "Add": "add", "Sub": "subtract", "Mult": "multiply", "Mod": "mod", "FloorDiv": "divide", "USub": "negate",
    "For": "loop", "If": "if", "IfExp": "if", "ListComp": "map", "Slice": "slice", "Dict": "dict", "List": "list",
    "Lt": "less", "Gt": "greater", "Eq": "equal", "Return": "give",
}  # fmt: skip


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


def _word(node: ast.AST) -> str | None:
    match node:
        case ast.Constant(value):
            return str(value)
        case ast.Call(ast.Attribute(attr=name)) | ast.Call(ast.Name(id=name)):
            return None if name in ("f", "range") else name
        case _:
            return _WORDS.get(type(node).__name__)


def _complete(source: str, level: int, kinds: tuple[Kind, ...], rng: random.Random) -> Example | None:
    function = define(source)
    inputs: list[tuple[object, ...]] = []
    outputs: list[object] = []
    for _ in range(3 * N_PAIRS):
        arguments = sample_arguments(kinds, rng)
        if arguments in inputs:
            continue
        try:
            output = function(*copy.deepcopy(arguments))
        except (ArithmeticError, LookupError, ValueError):
            return None
        if not is_small(output):
            return None
        inputs.append(arguments)
        outputs.append(output)
        if len(inputs) == N_PAIRS:
            break
    if len(inputs) < N_PAIRS or all(output == outputs[0] for output in outputs):
        return None
    return Example(source, level, kinds, tuple(inputs), tuple(outputs))


def define(source: str | ast.Module, **names: object) -> Callable[..., object]:
    """The function `f` of a grammar program, which may use `names` beside the builtins.

    Only text that this grammar made comes here, never a model's.
    """
    namespace: dict[str, object] = dict(names)
    code: CodeType = compile(source, "<grammar>", "exec")
    exec(code, namespace)  # noqa: S102
    return cast(Callable[..., object], namespace["f"])


def is_small(value: object) -> bool:
    """Whether the value is short enough to be an answer of the embedded base."""
    if isinstance(value, int):
        return abs(value) <= MAX_NUMBER
    if isinstance(value, str):
        return len(value) <= MAX_LENGTH
    if isinstance(value, list):
        return len(value) <= MAX_ELEMENTS and all(map(is_small, value))
    if isinstance(value, dict):
        return len(value) <= MAX_ELEMENTS and all(map(is_small, value)) and all(map(is_small, value.values()))
    return False
