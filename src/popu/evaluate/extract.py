"""Completions to programs: which part of what a model wrote is run.

A chat model puts its program into a fenced block, a base model goes on where the prompt ends. Nothing is rewritten:
decorators, helpers and statements around the function stay. What follows the program and is no Python is left out.
"""

import ast
import re
import warnings
from typing import NamedTuple

MAX_PROGRAM_CHARS = 65_536  # beyond it nothing is parsed: no benchmark's answer is as long
PYTHON_TAGS = frozenset({"python", "py", "python3"})

_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})[ \t]*([^\s`~]*)[^`~]*")
_CODE = re.compile(
    r"^(?:(?:async[ \t]+)?def[ \t]|class[ \t]|import[ \t]|from[ \t]+\S+[ \t]+import[ \t]|@|[A-Za-z_]\w*[ \t]*=[^=])",
    re.MULTILINE,
)


class Block(NamedTuple):
    """The tag of a fence, in lower case, and the text in it."""

    tag: str
    text: str


def fenced_blocks(completion: str) -> list[Block]:
    """The fenced blocks in order. One that never closes counts, and a fence with a tag opens another block anywhere.

    The indentation of an opening fence, as in a list, is taken off its block.
    """
    blocks: list[Block] = []
    fence = tag = indent = ""
    lines: list[str] = []
    for line in _lines(completion):
        match = _FENCE.fullmatch(line)
        closes = bool(match and fence and not match[3] and match[2].startswith(fence))
        if fence and (closes or (match and match[3])):
            blocks.append(Block(tag, "\n".join(lines)))
            fence = ""
        elif fence:
            lines.append(line.removeprefix(indent))
        if match and not closes and not fence:
            indent, fence, tag, lines = match[1], match[2], match[3].lower(), []
    if fence:
        blocks.append(Block(tag, "\n".join(lines)))
    return blocks


def before_fences(completion: str) -> str:
    """The text up to the first fence: all of it where there is none."""
    lines = _lines(completion)
    end = next((i for i, line in enumerate(lines) if _FENCE.fullmatch(line)), len(lines))
    return "\n".join(lines[:end])


def function_program(completion: str, prompt: str, entry: str) -> str | None:
    """The program that defines the function `entry`, or None.

    It is the last fenced block that defines it, else the last part, block or text before any fence, that goes on with
    the body which `prompt` has begun (such a part begins with indentation), joined to the prompt. Where neither is
    found it is the last block, which then fails by itself.
    """
    blocks = [block.text for block in fenced_blocks(completion) if block.text.strip()]
    parts = [*reversed(blocks), before_fences(completion)]
    for part in parts:
        if not _is_indented(part) and _defines(part, entry):
            program = parsed_prefix(_from_code(part))
            return program if program and _defines(program, entry) else part
    for part in parts:
        if _is_indented(part) and (program := parsed_prefix(prompt + part, at_least=len(prompt.splitlines()) + 1)):
            return program
    return blocks[-1] if blocks else None


def script_program(completion: str) -> str | None:
    """The last fenced block that is a program; where there is no block the text, as far as it is Python; else None.

    A block of another language, or without a call, an import or a definition, such as an example's output, is passed
    over unless there is no other.
    """
    blocks = [block for block in fenced_blocks(completion) if block.text.strip()]
    for block in reversed(blocks):
        if block.tag in PYTHON_TAGS or (not block.tag and _does_something(block.text)):
            return block.text
    if blocks:
        return blocks[-1].text
    return parsed_prefix(_from_code(completion))


def parsed_prefix(source: str, at_least: int = 1) -> str | None:
    """The most lines of `source` from its start that are Python; None where these are fewer than `at_least`."""
    lines = _lines(source[:MAX_PROGRAM_CHARS])
    for end in range(len(lines), at_least - 1, -1):
        if lines[end - 1].strip() and parse("\n".join(lines[:end])) is not None:
            return "\n".join(lines[:end])
    return None


def parse(source: str) -> ast.Module | None:
    """The syntax tree of a text, or None where it has none. Nothing of the text runs."""
    if len(source) > MAX_PROGRAM_CHARS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of '\d' and of `1 is 1`
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _is_indented(part: str) -> bool:
    return next((line[0] in " \t" for line in _lines(part) if line.strip()), False)


def _defines(part: str, entry: str) -> bool:
    """By pattern: a block with a fault in its syntax is still the model's answer."""
    name = re.escape(entry)
    return bool(re.search(rf"^(?:(?:async[ \t]+)?def|class)[ \t]+{name}\b|^{name}[ \t]*[:=][^=]", part, re.MULTILINE))


def _from_code(part: str) -> str:
    """Without what stands before the first line that begins code, as far as that is no Python."""
    start = _CODE.search(part)
    return part if start is None or parse(part) is not None else part[start.start() :]


def _does_something(text: str) -> bool:
    kinds = ast.Call | ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
    tree = parse(text)
    return tree is not None and any(isinstance(node, kinds) for node in ast.walk(tree))
