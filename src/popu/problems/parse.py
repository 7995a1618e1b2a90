"""Completions to blocks: which part of a model's text is its program, its inputs, its message, its answer.

Where a completion has an `<answer>` block, the last closed one is the only part read, else the whole text;
`<answer>` that never closes is refused. A block is fenced by three or more backticks or tildes, opens with
its tag alone on a line and closes at a line start. Blocks come in any order; those of other tags are
skipped. Missing, doubled or unclosed blocks are refused, and empty ones but for inputs: an empty argument list is one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

N_INDUCTION_INPUTS = 10

_FENCE = re.compile(r"(`{3,}|~{3,})[ \t]*([^\s`~]*)[ \t]*")
_PYTHON_TAGS = frozenset({"python", "py", "python3"})
_ANSWER_TAGS = {"code_o": "output", "code_i": "input", "code_f": "python"}


class BadFormat(ValueError):
    """A completion does not have the blocks its problem type asks for; `reason` says what is wrong."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ParsedProposal(NamedTuple):
    """The raw texts of a proposal; `code_f` has a message and no program, the others the reverse."""

    program: str | None
    inputs: tuple[str, ...]
    message: str | None


def parse_proposal(problem_type: str, text: str) -> ParsedProposal:
    """Return the blocks of a teacher's completion: one program and one input, or ten inputs and one message.

    Raises BadFormat for a completion without exactly these, ValueError for an unknown problem type.
    """
    _require_type(problem_type)
    blocks = _blocks(_answer_part(text))
    if problem_type == "code_f":
        inputs = _exactly(blocks, "input", N_INDUCTION_INPUTS)
        return ParsedProposal(None, inputs, _exactly(blocks, "message", 1)[0])
    program = _exactly(blocks, "python", 1)[0]
    return ParsedProposal(program, _exactly(blocks, "input", 1), None)


def parse_answer(problem_type: str, text: str) -> str:
    """Return the raw text of a student's answer block: an output, an input or a program.

    Raises BadFormat unless there is exactly one, ValueError for an unknown problem type.
    """
    _require_type(problem_type)
    return _exactly(_blocks(_answer_part(text)), _ANSWER_TAGS[problem_type], 1)[0]


def only_block(text: str, tag: str) -> str:
    """Return the content of a completion's one block of this tag, for domains of other blocks. Raises BadFormat."""
    return _exactly(_blocks(_answer_part(text)), tag, 1)[0]


def _require_type(problem_type: str) -> None:
    if problem_type not in _ANSWER_TAGS:
        raise ValueError(f"problem_type: expected one of {sorted(_ANSWER_TAGS)}, got {problem_type!r}")


def _answer_part(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    if end >= 0 and start >= 0:
        return text[start + len("<answer>") : end]
    if "<answer>" in text:
        raise BadFormat("<answer> is not closed")
    return text


def _blocks(text: str) -> list[tuple[str, str]]:
    """Return (tag, content) of every fenced block in order; raise BadFormat if the last is not closed."""
    blocks: list[tuple[str, str]] = []
    fence, tag = "", ""
    content: list[str] = []
    for line in text.split("\n"):
        match = _FENCE.fullmatch(line)
        if match and not fence:
            fence, tag, content = match[1], match[2].lower(), []
        elif match and not match[2] and match[1].startswith(fence):
            blocks.append(("python" if tag in _PYTHON_TAGS else tag, "\n".join(content)))
            fence = ""
        else:
            content.append(line)
    if fence:
        raise BadFormat(f"block {tag[:20]!r} is not closed")
    return blocks


def _exactly(blocks: list[tuple[str, str]], tag: str, count: int) -> tuple[str, ...]:
    found = tuple(content for block_tag, content in blocks if block_tag == tag)
    if len(found) != count:
        raise BadFormat(f"{tag} blocks: expected {count}, got {len(found)}")
    if tag != "input" and not all(content.strip() for content in found):
        raise BadFormat(f"a {tag} block is empty")
    return found
