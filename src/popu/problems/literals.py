"""Words of the canonical grammar: a text cut into strings, numbers, names and brackets, and what each means.

`values` parses them. This file imports nothing of popu: the zygote loads it by path.
"""

from __future__ import annotations

import ast
import re
import warnings

MAX_BYTES = 65_536  # UTF-8 length of a text
MAX_DEPTH = 50  # containers around a scalar
_MAX_BRACKETS = 2 * MAX_DEPTH + 2  # `frozenset({` opens two for one level, `(1+2j)` one for none
CHUNK_DIGITS = 600  # a chunk of decimal digits, below the lowest limit (640) an interpreter may be set to
FLOAT_NAMES = frozenset({"nan", "inf", "nanj", "infj"})

_UNREADABLE = re.compile("[\0\ud800-\udfff]")
_DECIMAL = r"[0-9](?:_?[0-9])*"
_TOKEN = re.compile(
    rf"""
    (?P<space> [ \t\n\f]+ | \#[^\n]* | \\\n )
  | (?P<string> (?:[bB][rR]?|[rR][bB]?|[uU])?
        (?: '{{3}}(?:[^\\]|\\.)*?'{{3}} | "{{3}}(?:[^\\]|\\.)*?"{{3}}
          | '(?:[^'\\\n]|\\.)*' | "(?:[^"\\\n]|\\.)*" ) )
  | (?P<number> (?: 0[xX](?:_?[0-9a-fA-F])+ | 0[oO](?:_?[0-7])+ | 0[bB](?:_?[01])+
        | (?: (?:{_DECIMAL}\.(?:{_DECIMAL})?|\.{_DECIMAL})(?:[eE][+-]?{_DECIMAL})?
            | {_DECIMAL}(?:[eE][+-]?{_DECIMAL})? ) [jJ]? ) (?![\w.]) )
  | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
  | (?P<op> [][(){{}},:=+-] )
    """,
    re.VERBOSE | re.DOTALL,
)


class ValueRejected(ValueError):
    """A text or an object is not a value of the grammar; `reason` says why in one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ValueTooLarge(ValueRejected):
    """The text of a value is longer than the cap; values are rejected whole, never truncated."""


def tokenize(text: str, max_bytes: int) -> tuple[list[tuple[str, str]], bool]:
    """Return (kind, text) tokens ended by ("end", ""), and whether a comma stands outside all brackets.

    Size, encoding and depth are refused here, before any parsing.
    """
    if len(text.encode(errors="surrogatepass")) > max_bytes:
        raise ValueTooLarge(f"text longer than {max_bytes} bytes")
    if _UNREADABLE.search(text):
        raise ValueRejected("NUL or lone surrogate in the text")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    tokens: list[tuple[str, str]] = []
    at = level = 0
    bare_comma = False
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueRejected(f"not a literal at {text[at : at + 20]!r}")
        at = match.end()
        kind, token = str(match.lastgroup), match.group()
        if kind == "space":
            continue
        if kind == "op":
            level += (token in "([{") - (token in ")]}")
            bare_comma |= token == "," and level == 0
            if level > _MAX_BRACKETS:
                raise ValueRejected(f"nested deeper than {MAX_DEPTH}")
        tokens.append((kind, token))
    if not tokens:
        raise ValueRejected("empty text")
    return [*tokens, ("end", "")], bare_comma


def unquote(token: str) -> str | bytes:
    """Return the value of one quoted string, prefix included."""
    if token[0] in "'\"" and "\\" not in token:
        quotes = 3 if len(token) >= 6 and token[:3] in ("'''", '"""') else 1
        return token[quotes:-quotes]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of '\d'
            value = ast.literal_eval(token)
    except (SyntaxError, ValueError):
        raise ValueRejected("malformed string") from None
    assert isinstance(value, str | bytes)
    return value


def magnitude(text: str) -> complex:
    """Return the int, float or complex of an unsigned number token."""
    if len(text) <= CHUNK_DIGITS and text.isdecimal() and text[0] != "0":
        return int(text)
    if text in FLOAT_NAMES or (text[-1] in "jJ"):
        return complex(0.0, float(text[:-1])) if text[-1] in "jJ" else float(text)
    if text[:2].lower() in ("0x", "0o", "0b"):
        return int(text, 0)
    if not text.replace("_", "").isdigit():
        return float(text)
    digits = text.replace("_", "")
    if digits[0] == "0" and digits.strip("0"):
        raise ValueRejected("leading zeros in an integer")
    number = 0
    for start in range(0, len(digits), CHUNK_DIGITS):
        chunk = digits[start : start + CHUNK_DIGITS]
        number = number * 10 ** len(chunk) + int(chunk)
    return number
