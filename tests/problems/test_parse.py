"""Blocks of completions: accepted spellings and bad formats."""

import pytest

from popu.problems.parse import BadFormat, ParsedProposal, parse_answer, parse_proposal

PROGRAM = "def f(x):\n    return x"
PYTHON = f"```python\n{PROGRAM}\n```\n"
INPUT = "```input\n3\n```\n"


def _inputs(count: int) -> str:
    return "".join(f"```input\n{i}\n```\n" for i in range(count))


@pytest.mark.parametrize(
    "text",
    [
        PYTHON + INPUT,
        INPUT + PYTHON,
        f"Here it is.\n{PYTHON}and\n{INPUT}done.",
        PYTHON.replace("python", "py") + INPUT,
        PYTHON.replace("python", "python3") + INPUT,
        PYTHON.replace("python", "Python") + INPUT,
        PYTHON.replace("```", "~~~") + INPUT.replace("```", "````"),
        (PYTHON + INPUT).replace("\n", "\r\n"),
        f"<think>```python\n1\n```</think><answer>\n{PYTHON}{INPUT}</answer>",
        f"<answer>{INPUT}</answer> no: <answer>\n{PYTHON}{INPUT}</answer> trailing",
        f"<answer> in thought <answer>\n{PYTHON}{INPUT}</answer>",
        f"{PYTHON}{INPUT}```text\nnotes\n```",
        f"{PYTHON}{INPUT}```output\n3\n```",
    ],
)
@pytest.mark.parametrize("problem_type", ["code_o", "code_i"])
def test_a_program_and_an_input(problem_type: str, text: str) -> None:
    assert parse_proposal(problem_type, text) == ParsedProposal(PROGRAM, ("3",), None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        PROGRAM,
        PYTHON,
        INPUT,
        PYTHON + INPUT + INPUT,
        PYTHON + PYTHON + INPUT,
        PYTHON + "```input\n3\n",
        PYTHON + "```input\n3 ```\n",
        "```python\n\n```\n" + INPUT,
        PYTHON + "Input: ```input 3```",
        "```\ndef f(x):\n    return x\n```\n" + INPUT,
        f"<answer>{PYTHON}{INPUT}",
        f"<answer>\n{PYTHON}</answer>{INPUT}",
        PYTHON + INPUT + "```text\nunclosed",
    ],
)
def test_bad_proposals(text: str) -> None:
    with pytest.raises(BadFormat) as refusal:
        parse_proposal("code_o", text)
    assert refusal.value.reason


def test_fences_close_only_at_a_line_start() -> None:
    program = 'def f(x):\n    """ ```python example``` """\n    return "```" + x'
    assert parse_proposal("code_o", f"```python\n{program}\n```\n{INPUT}").program == program


def test_an_input_may_span_lines() -> None:
    text = '{\n"a": 1,\n"b": 2}'
    assert parse_proposal("code_i", f"{PYTHON}```input\n{text}\n```").inputs == (text,)


def test_induction_proposals() -> None:
    message = "```message\nIt adds.\n```\n"
    parsed = parse_proposal("code_f", message + _inputs(10))
    assert parsed == ParsedProposal(None, tuple(map(str, range(10))), "It adds.")
    for text in (_inputs(10), message + _inputs(9), message + _inputs(11), message * 2 + _inputs(10)):
        with pytest.raises(BadFormat):
            parse_proposal("code_f", text)


def test_answers() -> None:
    assert parse_answer("code_o", "so\n```output\n[1,\n 2]\n```") == "[1,\n 2]"
    assert parse_answer("code_i", INPUT) == "3"
    assert parse_answer("code_f", PYTHON) == PROGRAM
    assert parse_answer("code_o", f"{PYTHON}```output\n1\n```") == "1"
    assert parse_answer("code_o", "Assistant: `Assistant:`\n```output\n1\n```") == "1"


@pytest.mark.parametrize("text", ["", "5", "```output\n5", "```output\n5\n```\n```output\n5\n```", "```input\n5\n```"])
def test_bad_answers(text: str) -> None:
    with pytest.raises(BadFormat):
        parse_answer("code_o", text)


def test_an_unknown_problem_type_is_the_callers_error() -> None:
    with pytest.raises(ValueError, match="code_x"):
        parse_answer("code_x", INPUT)
    with pytest.raises(ValueError, match="code_x"):
        parse_proposal("code_x", INPUT)
