"""Canonical literals: the one grammar in which values are written, shown to models and read back.

A value is None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset or dict, nested at most
`MAX_DEPTH` deep, by exact type. Its text is the Python literal, with `set()`, `frozenset()`,
`frozenset({...})`, `nan`, `inf` and `-inf` added. The reader is a tokenizer and a recursive-descent parser of
bounded depth: it has no notion of names, calls or operators beyond a sign and `a+bj`, so nothing can run.

Where the grammar departs from Python's evaluation: `a+bj` is built from its two parts without arithmetic, so
that `repr` of every complex number, signed zeros included, reads back as the same number; an integer may have more
digits than `sys.get_int_max_str_digits()` allows; and names of keyword arguments are ASCII.

The zygote loads this file and `literals` by path.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from popu.problems.literals import (
    CHUNK_DIGITS,
    FLOAT_NAMES,
    MAX_BYTES,
    MAX_DEPTH,
    ValueRejected,
    ValueTooLarge,
    magnitude,
    tokenize,
    unquote,
)

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "Arguments",
    "ValueRejected",
    "ValueTooLarge",
    "canonical",
    "canonical_arguments",
    "contains_nan",
    "equal",
    "is_canonical",
    "parse_arguments",
    "parse_value",
]

_CHUNK = 10**CHUNK_DIGITS
_SMALL_BITS = 1_900  # integers up to this size have fewer than CHUNK_DIGITS digits

_CONTAINERS = frozenset({list, tuple, set, frozenset, dict})
_SCALARS = frozenset({type(None), bool, int, float, complex, str, bytes})
_CONSTANTS = {"None": None, "True": True, "False": False}

# Texts that are canonical by their looks: a constant, a short integer, a plain string, or a list of such.
_PLAIN = r"(?:None|True|False|0|-?[1-9][0-9]{0,17}|'[ !#-&(-\[\]-~]*')"
_PLAIN_TEXT = re.compile(rf"{_PLAIN}|\[(?:{_PLAIN}(?:, {_PLAIN})*)?\]")


class Arguments(NamedTuple):
    """The arguments of one call."""

    args: tuple[object, ...]
    kwargs: dict[str, object]


# ---------------------------------------------------------------- reading


def parse_value(text: str, max_bytes: int = MAX_BYTES) -> object:
    """Return the value that `text` writes; `1, 2` is the tuple, comments are ignored.

    Raises ValueTooLarge above `max_bytes` and ValueRejected for everything else that is not one value.
    """
    reader = _Reader(text, max_bytes)
    if reader.bare_comma:
        return tuple(reader.sequence("", depth=1))
    value = reader.value(depth=0)
    reader.expect("")
    return value


def parse_arguments(text: str, max_bytes: int = MAX_BYTES) -> Arguments:
    """Return the arguments that `text` writes, as in `3, [1, 2], k="a"`; positional ones come first.

    Blank text writes none. Raises ValueTooLarge and ValueRejected as `parse_value`.
    """
    if not text.strip():
        return Arguments((), {})
    reader = _Reader(text, max_bytes)
    args: list[object] = []
    kwargs: dict[str, object] = {}
    for _ in reader.separated(""):
        name = reader.keyword_name()
        if name is not None and name not in kwargs:
            kwargs[name] = reader.value(depth=0)
        elif name is None and not kwargs:
            args.append(reader.value(depth=0))
        else:
            raise ValueRejected("a keyword argument is given twice, or before a positional one")
    return Arguments(tuple(args), kwargs)


class _Reader:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str, max_bytes: int) -> None:
        self.tokens, self.bare_comma = tokenize(text, max_bytes)
        self.at = 0

    def skip(self, text: str) -> bool:
        """Step over the operator `text` ("" is the end) if it comes next; return whether it did."""
        if self.tokens[self.at] not in (("op", text), ("end", text)):
            return False
        self.at += 1
        return True

    def expect(self, text: str) -> None:
        if not self.skip(text):
            raise self.unexpected()

    def unexpected(self) -> ValueRejected:
        kind, text = self.tokens[min(self.at, len(self.tokens) - 1)]
        return ValueRejected(f"unexpected {kind} {text[:20]!r}" if text else "unexpected end of the text")

    def value(self, depth: int) -> object:
        """Return the next value, `depth` containers deep."""
        kind, text = self.tokens[self.at]
        if kind == "string":
            return self.string()
        if kind == "number" or text in ("+", "-") or (kind == "name" and text in FLOAT_NAMES):
            return self.number()
        if kind == "end" or text not in ("[", "(", "{", *_CONSTANTS, "set", "frozenset"):
            raise self.unexpected()
        self.at += 1
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if depth >= MAX_DEPTH and text != "(":
            raise ValueRejected(f"nested deeper than {MAX_DEPTH}")
        try:
            return self.container(text, depth + 1)
        except TypeError:
            raise ValueRejected("an element of a set or a key of a dict is not hashable") from None

    def container(self, opening: str, depth: int) -> object:
        if opening == "[":
            return self.sequence("]", depth)
        if opening == "{":
            return self.braces(depth)
        if opening == "(":
            return self.parentheses(depth)
        self.expect("(")
        if self.skip(")"):
            return set() if opening == "set" else frozenset()
        if opening == "set":
            raise ValueRejected("set(...) of something: write the set in braces")
        self.expect("{")
        items = self.braces(depth)
        self.expect(")")
        if not isinstance(items, set):
            raise ValueRejected("frozenset takes a non-empty set in braces")
        return frozenset(items)

    def parentheses(self, depth: int) -> object:
        """Return the tuple, or the one value where no comma makes it a tuple, as in `(1+2j)`."""
        items = self.sequence(")", depth)
        if len(items) == 1 and self.tokens[self.at - 2] != ("op", ","):
            return items[0]
        if depth > MAX_DEPTH:
            raise ValueRejected(f"nested deeper than {MAX_DEPTH}")
        return tuple(items)

    def sequence(self, closing: str, depth: int) -> list[object]:
        return [self.value(depth) for _ in self.separated(closing)]

    def separated(self, closing: str) -> Iterator[None]:
        """Yield at every item up to `closing`; commas stand between items, and one may follow the last."""
        comma = True
        while not self.skip(closing):
            if not comma:
                raise self.unexpected()
            yield
            comma = self.skip(",")

    def braces(self, depth: int) -> set[object] | dict[object, object]:
        items: list[object] = []
        pairs: list[tuple[object, object]] = []
        for _ in self.separated("}"):
            item = self.value(depth)
            if self.skip(":"):
                pairs.append((item, self.value(depth)))
            else:
                items.append(item)
        if items and pairs:
            raise ValueRejected("braces mix set elements and dict pairs")
        return set(items) if items else dict(pairs)

    def string(self) -> str | bytes:
        """Return the next string; adjacent ones are joined, as in Python."""
        parts = []
        while self.tokens[self.at][0] == "string":
            parts.append(unquote(self.tokens[self.at][1]))
            self.at += 1
        texts = [part for part in parts if isinstance(part, str)]
        if len(texts) == len(parts):
            return "".join(texts)
        if texts:
            raise ValueRejected("str and bytes side by side")
        return b"".join(part for part in parts if isinstance(part, bytes))

    def number(self) -> complex:
        """Return the next number: a sign at most, then digits, `nan` or `inf`, then perhaps `+bj`."""
        negative = self.tokens[self.at] == ("op", "-")
        first = self._signed()
        if self.tokens[self.at] not in (("op", "+"), ("op", "-")):
            return first
        second = self._signed()
        if isinstance(first, complex) or not isinstance(second, complex):
            raise ValueRejected("arithmetic other than a+bj")
        try:
            real = math.copysign(float(first), -1.0 if negative else 1.0)  # `-0+2j` keeps its sign
        except OverflowError:
            raise ValueRejected("the real part of a complex number is too large") from None
        return complex(real, second.imag)

    def _signed(self) -> complex:
        negative = self.skip("-")
        if not negative:
            self.skip("+")
        kind, text = self.tokens[self.at]
        if kind != "number" and text not in FLOAT_NAMES:
            raise self.unexpected()
        self.at += 1
        number = magnitude(text)
        if not negative:
            return number
        return complex(0.0, -number.imag) if isinstance(number, complex) else -number

    def keyword_name(self) -> str | None:
        """Step over `name=` if it comes next and return the name."""
        kind, text = self.tokens[self.at]
        if kind != "name" or self.tokens[self.at + 1] != ("op", "="):
            return None
        if keyword.iskeyword(text):
            raise ValueRejected(f"{text!r} cannot name an argument")
        self.at += 2
        return text


# ---------------------------------------------------------------- writing


def canonical(value: object, max_bytes: int = MAX_BYTES) -> str:
    """Return the one text of `value`; sets and dicts are ordered by `_order`, the rest is Python's `repr`.

    Raises ValueTooLarge above `max_bytes`, before the whole text is built; ValueRejected for another type,
    a subclass, or nesting deeper than MAX_DEPTH (a list that contains itself).
    """
    text = _Writer(max_bytes).text(value, depth=0)
    if len(text) > max_bytes or (not text.isascii() and len(text.encode()) > max_bytes):
        raise ValueTooLarge(f"value longer than {max_bytes} bytes")
    return text


def canonical_arguments(arguments: Arguments, max_bytes: int = MAX_BYTES) -> str:
    """Return the one text of an argument list: positional ones in order, keywords by name.

    Raises as `canonical`.
    """
    parts = [canonical(value, max_bytes) for value in arguments.args]
    parts += [f"{name}={canonical(arguments.kwargs[name], max_bytes)}" for name in sorted(arguments.kwargs)]
    text = ", ".join(parts)
    if len(text.encode()) > max_bytes:
        raise ValueTooLarge(f"argument list longer than {max_bytes} bytes")
    return text


def is_canonical(text: str, max_bytes: int = MAX_BYTES) -> bool:
    """Return whether `text` is what `canonical` writes for the value that it states.

    Raises as `parse_value` where it states none.
    """
    if len(text) <= max_bytes and _PLAIN_TEXT.fullmatch(text):
        return True
    return canonical(parse_value(text, max_bytes), max_bytes) == text


def equal(a: object, b: object) -> bool:
    """Return whether two values have the same exact types and contents, recursively.

    True is not 1, 1 is not 1.0, -0.0 is not 0.0; every NaN equals every NaN; sets and dicts compare by
    content. Raises as `canonical`, in whose texts the comparison is made.
    """
    return canonical(a) == canonical(b)


def contains_nan(value: object) -> bool:
    """Return whether a NaN stands anywhere in `value`, dict keys included."""
    if isinstance(value, dict):
        return any(contains_nan(part) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return any(contains_nan(item) for item in value)
    if isinstance(value, complex):
        return math.isnan(value.real) or math.isnan(value.imag)
    return isinstance(value, float) and math.isnan(value)


class _Writer:
    """Writes one value, spending a byte budget, so that a small object of huge text stops early."""

    def __init__(self, max_bytes: int) -> None:
        self.left = max_bytes

    def spend(self, n_bytes: int) -> None:
        self.left -= n_bytes
        if self.left < 0:
            raise ValueTooLarge("value longer than the cap")

    def text(self, value: object, depth: int) -> str:
        kind = type(value)
        if kind not in _CONTAINERS:
            text = self.scalar(value)
            self.spend(len(text))
            return text
        if depth >= MAX_DEPTH:
            raise ValueRejected(f"nested deeper than {MAX_DEPTH}")
        self.spend(2 * max(1, len(value)))  # type: ignore[arg-type]  # brackets and separators
        return self.container(value, depth + 1)

    def scalar(self, value: object) -> str:
        kind = type(value)
        if kind is int:
            return self.integer(value)  # type: ignore[arg-type]
        if kind not in _SCALARS:
            raise ValueRejected(f"{kind.__name__[:40]} is not a supported type")
        if isinstance(value, str | bytes) and len(value) > self.left:
            self.spend(len(value))
        return repr(value)

    def integer(self, value: int) -> str:
        if value.bit_length() <= _SMALL_BITS:
            return repr(value)
        if value.bit_length() > 4 * self.left:  # a decimal digit takes 3.3 bits
            self.spend(value.bit_length())
        rest, chunks = abs(value), []
        while rest:
            rest, low = divmod(rest, _CHUNK)
            chunks.append(str(low).zfill(CHUNK_DIGITS))
        return ("-" if value < 0 else "") + "".join(reversed(chunks)).lstrip("0")

    def container(self, value: object, depth: int) -> str:
        if isinstance(value, list):
            return f"[{self.joined(value, depth)}]"
        if isinstance(value, tuple):
            return f"({self.joined(value, depth)}{',' * (len(value) == 1)})"
        if isinstance(value, dict):
            pairs = [(_order(k, self.text(k, depth)), self.text(v, depth)) for k, v in value.items()]
            return "{" + ", ".join(f"{key[-1]}: {text}" for key, text in sorted(pairs)) + "}"
        assert isinstance(value, set | frozenset)
        items = ", ".join(key[-1] for key in sorted(_order(item, self.text(item, depth)) for item in value))
        if isinstance(value, set):
            return f"{{{items}}}" if items else "set()"
        return f"frozenset({{{items}}})" if items else "frozenset()"

    def joined(self, items: Iterable[object], depth: int) -> str:
        return ", ".join([self.text(item, depth) for item in items])


def _order(value: object, text: str) -> tuple[int, int | float, str]:
    """Return the sort key of an element: real numbers by size, then everything else by text."""
    if isinstance(value, int | float) and value == value:
        return 0, value, text
    return 1, 0, text
