"""Which programs and problems count as the same."""

import pytest

from popu.problems.duplicates import normal_form, problem_key, program_key

PROGRAM = "def f(values):\n    total = 0\n    for v in values:\n        total += v * 3\n    return total"

SAME = {
    "names": PROGRAM.replace("values", "xs").replace("total", "t"),
    "constants": PROGRAM.replace("3", "17"),
    "annotations": PROGRAM.replace("(values)", "(values: list[int]) -> int"),
    "an annotated assignment": PROGRAM.replace("total = 0", "total: int = 0"),
    "docstring": PROGRAM.replace("    total = 0", '    """Sum."""\n    total = 0'),
    "layout and comments": PROGRAM.replace("v * 3", "(v*3)  # thrice"),
}
DIFFERENT = {
    "another operator": PROGRAM.replace("*", "+"),
    "another type of constant": PROGRAM.replace("3", "'a'"),
    "another builtin": PROGRAM.replace("in values", "in sorted(values)"),
    "another variable": PROGRAM.replace("return total", "return v"),
    "another method": PROGRAM.replace("return total", "return total.bit_length()"),
}


@pytest.mark.parametrize("name", SAME)
def test_programs_that_are_the_same(name: str) -> None:
    assert normal_form(SAME[name]) == normal_form(PROGRAM)
    assert program_key(SAME[name]) == program_key(PROGRAM)
    assert problem_key(SAME[name], "[1]") == problem_key(PROGRAM, "[2]")


@pytest.mark.parametrize("name", DIFFERENT)
def test_programs_that_differ(name: str) -> None:
    assert program_key(DIFFERENT[name]) != program_key(PROGRAM)


def test_builtins_attributes_and_imports_keep_their_names() -> None:
    form = normal_form("import math\ndef f(x):\n    return len(str(math.floor(x)).strip())")
    for name in ("import math", "len(", "str(", "math.floor", ".strip()"):
        assert name in form


def test_keys_are_16_hex_digits() -> None:
    for key in (program_key(PROGRAM), problem_key(PROGRAM, "[1]")):
        assert len(key) == 16
        assert set(key) <= set("0123456789abcdef")


def test_arguments_count_by_structure() -> None:
    key = problem_key(PROGRAM, "[1, 2]")
    assert key == problem_key(PROGRAM, "[7, 9]")
    others = ["[1]", "[1, 2.0]", "(1, 2)", "[1, 2], 3", "k=[1, 2]", "{1: 2}", "set()"]
    assert len({key, *(problem_key(PROGRAM, text) for text in others)}) == len(others) + 1


@pytest.mark.parametrize(
    "source",
    [
        "def f(x):\n    return f'a{x}b{x:>3}{x!r}'",
        "def f(x):\n    match x:\n        case [1, *rest]: return rest\n        case None | 'a': return 0",
        "class A:\n    n: int\n    def g(self): return self.n\ndef f(x): return A().g()",
        "def f(x):\n    global z\n    try: pass\n    except ValueError as e: return e",
        "def f(x):\n    return [y := 1, *(a for a in x if a), {**x}, lambda q=1: q, -1, ...]",
    ],
)
def test_every_kind_of_program_has_a_normal_form(source: str) -> None:
    assert normal_form(normal_form(source))
    assert len(program_key(source)) == 16


def test_canonical_arguments_beyond_python_literals() -> None:
    for text in ("nan, -inf", "1" * 5000, "frozenset({1})", r"'\ud800'", "(1-2j)"):
        assert len(problem_key(PROGRAM, text)) == 16
    assert problem_key(PROGRAM, "1" * 5000) == problem_key(PROGRAM, "5")


def test_a_program_that_does_not_parse_is_an_error() -> None:
    with pytest.raises(SyntaxError):
        normal_form("def f(x")
