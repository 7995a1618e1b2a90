"""What of a completion is run; numbers are those of public reports of wrong scores."""

import pytest

from popu.evaluate.extract import before_fences, fenced_blocks, function_program, parsed_prefix, script_program

PROMPT = 'from typing import List\n\n\ndef f(x: int) -> int:\n    """ One more. """\n'
RIGHT = "def f(x):\n    return x + 1"


def program(completion, prompt=PROMPT):
    return function_program(completion, prompt, "f")


def fenced(*programs, tag="python"):
    return "Some words.\n" + "\n".join(f"```{tag}\n{text}\n```\nMore words." for text in programs)


def test_report_26_the_last_of_two_blocks_counts():
    assert program(fenced("def f(x):\n    return x", RIGHT)) == RIGHT
    assert script_program(fenced("print(1)", "print(2)")) == "print(2)"


def test_a_block_of_another_kind_after_the_program_does_not_count():
    example = fenced(RIGHT) + "\n```\n>>> f(1)\n2\n```\n```bash\npython f.py\n```"
    assert program(example) == RIGHT
    assert script_program(fenced("print(int(input()) + 1)") + "\n```\n2\n```\n") == "print(int(input()) + 1)"


@pytest.mark.parametrize(
    "whole",
    [
        f"{RIGHT}\n\nprint(f(5))",
        f"import functools\n\n@functools.cache\n{RIGHT}",
        f"def helper(x):\n    pass\n\nTABLE = [1]\nTABLE.append(2)\n\n{RIGHT}",
        "f = lambda x: x + 1",
        "class f:\n    pass",
    ],
)
def test_report_05_nothing_of_a_program_is_dropped(whole):
    """EvalPlus's sanitizer drops decorated functions, helpers without a return and statements of the module."""
    assert program(fenced(whole)) == whole
    assert program(fenced(whole, tag="")) == whole
    assert program(whole) == whole


def test_report_17_an_import_is_no_end_of_an_answer():
    whole = f"from os.path import join\n\n{RIGHT}"
    assert program(f"```python\n{whole}\n```") == whole


@pytest.mark.parametrize(
    ("rest", "kept"),
    [
        ("    return x + 1\n", "    return x + 1"),
        ("\n    y = x\n    return y + 1\n\nprint(f(5))\n", "\n    y = x\n    return y + 1\n\nprint(f(5))"),
        ("    return x + 1\n\nThis adds one to x.\n", "    return x + 1"),
        ("    return x + 1\n```\nNow you know.\n", "    return x + 1"),
        ("    return x + 1\n\ndef g(y):\n    if y", "    return x + 1"),
    ],
)
def test_a_direct_completion_is_joined_to_the_prompt(rest, kept):
    assert program(rest) == PROMPT + kept
    assert program(f"```python\n{kept}\n```") == PROMPT + kept


def test_prose_around_code_without_fences_is_left_out():
    assert program(f"Sure. Here it is:\n\n{RIGHT}\n\nIt adds one.") == RIGHT
    assert script_program("Read a number.\nimport sys\nprint(1)\n\nThat is all, folks.") == "import sys\nprint(1)"


def test_what_cannot_be_a_program():
    assert program("I cannot do that.") is None
    assert program("") is None and script_program("") is None
    assert program(fenced("def g(x):\n    return x")) == "def g(x):\n    return x"  # it will fail by itself
    assert program("```python\ndef f(x):\n    return x +\n```") == "def f(x):\n    return x +"
    assert parsed_prefix("(" * 5000) is None and script_program("[" * 100_000) is None


def test_fences():
    text = (
        "1.\n   ```py title\n   a\n     b\n   ```\n~~~\nc\n~~~\r\n````python\n```\nd\n````\n```python\nx\n```python\ny"
    )
    assert [tuple(block) for block in fenced_blocks(text)] == [
        ("py", "a\n  b"),
        ("", "c"),
        ("python", "```\nd"),
        ("python", "x"),
        ("python", "y"),
    ]
    assert before_fences(text) == "1." and before_fences("a `b` c") == "a `b` c" and fenced_blocks("`a`") == []
