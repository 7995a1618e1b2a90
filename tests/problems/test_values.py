"""The canonical grammar: what reads, what is refused, what is equal."""

import ast
import random
import warnings
from collections import Counter, OrderedDict, deque, namedtuple
from fractions import Fraction

import pytest

from popu.problems.values import (
    MAX_BYTES,
    MAX_DEPTH,
    Arguments,
    ValueRejected,
    ValueTooLarge,
    canonical,
    canonical_arguments,
    contains_nan,
    equal,
    parse_arguments,
    parse_value,
)

NAN = float("nan")
INF = float("inf")

TEXTS = {
    "None": None,
    "True": True,
    "-7": -7,
    "+7": 7,
    "1_000": 1000,
    "0x1F": 31,
    "0o17": 15,
    "0b11": 3,
    "00": 0,
    "-0.0": -0.0,
    ".5": 0.5,
    "5.": 5.0,
    "1e-3": 0.001,
    "nan": NAN,
    "inf": INF,
    "-inf": -INF,
    "2j": 2j,
    "1+2j": 1 + 2j,
    "(1-2j)": 1 - 2j,
    "'it''s'": "its",
    '"""a\nb"""': "a\nb",
    "''''''": "",
    "''": "",
    r"'\ud800'": "\ud800",
    r"'\x00'": "\0",
    r"r'\d'": r"\d",
    r"'\d'": r"\d",
    "b'a' b'b'": b"ab",
    "[]": [],
    "[1, [2]]": [1, [2]],
    "()": (),
    "(1,)": (1,),
    "(1)": 1,
    "1, 2": (1, 2),
    "1,": (1,),
    "{}": {},
    "{1, 2,}": {1, 2},
    "set()": set(),
    "frozenset()": frozenset(),
    "frozenset({1, 2})": frozenset({1, 2}),
    "{'a': [1],\n 'b': 2,\n}": {"a": [1], "b": 2},
    "5 # it is five": 5,
    "# first\n[1, # one\n 2]": [1, 2],
    "\\\n5": 5,
}


@pytest.mark.parametrize("text", TEXTS)
def test_text_reads_as_its_value(text: str) -> None:
    assert equal(parse_value(text), TEXTS[text])


REFUSED = [
    "",
    "  # nothing",
    "x",
    "f('[1, 2]')",
    "__import__('os')._exit(1)",
    "__import__('os').getpid()",
    "9**9**9",
    "[0]*10**12",
    "0) or (1",
    "x:=5",
    "(x:=5)",
    "*[5]",
    "1 + 1",
    "1 - 2",
    "--1",
    "-True",
    "2j+1",
    "1+2j+3j",
    "not 1",
    "[x for x in [1]]",
    "lambda: 1",
    "f'a'",
    "'a' b'b'",
    "'a",
    "'a\nb'",
    r"'\x1'",
    "b'é'",
    "01",
    "1__0",
    "1_",
    "0x",
    "1.2.3",
    "1a",
    "1 2",
    "[1 2]",
    "[1",
    "[,]",
    "{1: 2, 3}",
    "{[1]}",
    "{[1]: 2}",
    "{1:}",
    "set([1])",
    "set({1})",
    "frozenset([1])",
    "frozenset({})",
    "frozenset({1: 2})",
    "...",
    "\ud800",
    "'\ud800'",
    "'\0'",
    "1\0",
    "9" * 400 + "+1j",
]


@pytest.mark.parametrize("text", REFUSED)
def test_text_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueRejected) as refusal:
        parse_value(text)
    assert refusal.value.reason


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 60_000, "-" * 60_000 + "1", "(" * 200 + ")" * 200, "{1:" * 900])
def test_deep_or_huge_text_is_refused_before_parsing(text: str) -> None:
    with pytest.raises(ValueRejected):
        parse_value(text)
    with pytest.raises(ValueRejected):
        parse_arguments(text)


def test_size_counts_bytes_and_is_its_own_error() -> None:
    assert parse_value(f"'{'a' * (MAX_BYTES - 2)}'")
    for text in ("1" * (MAX_BYTES + 1), "'" + "é" * (MAX_BYTES // 2) + "'"):
        with pytest.raises(ValueTooLarge):
            parse_value(text)
    with pytest.raises(ValueTooLarge):
        canonical("é" * (MAX_BYTES // 2))
    with pytest.raises(ValueTooLarge):
        canonical([1, 2, 3], max_bytes=8)
    assert canonical([1, 2, 3], max_bytes=9) == "[1, 2, 3]"


def test_depth_limit_is_the_same_for_reading_and_writing() -> None:
    for leaf in (7, 1 + 2j, (), "a"):
        value: object = leaf
        for _ in range(MAX_DEPTH - (leaf == ())):
            value = [value]
        assert equal(parse_value(canonical(value)), value)
        with pytest.raises(ValueRejected):
            canonical([value])
        with pytest.raises(ValueRejected):
            parse_value(f"[{canonical(value)}]")
    frozen: frozenset[object] = frozenset()
    for _ in range(MAX_DEPTH - 1):
        frozen = frozenset({frozen})
    assert equal(parse_value(canonical(frozen)), frozen)


@pytest.mark.parametrize("digits", [600, 601, 4_300, 5_000, 60_000])
@pytest.mark.parametrize("sign", ["", "-"])
def test_integers_beyond_the_digit_limit(digits: int, sign: str) -> None:
    text = sign + "1" + "0" * (digits - 2) + "7"
    value = parse_value(text)
    assert isinstance(value, int)
    assert abs(value) == 10 ** (digits - 1) + 7
    assert canonical(value) == text


def test_an_integer_over_the_cap_is_too_large() -> None:
    with pytest.raises(ValueTooLarge):
        canonical(1 << 10_000_000)
    with pytest.raises(ValueTooLarge):
        canonical(10**MAX_BYTES)


def test_whole_values_are_kept() -> None:
    assert canonical("a" * 1000) == repr("a" * 1000)
    assert parse_value(canonical(list(range(200)))) == list(range(200))


def test_sets_and_dicts_are_written_in_one_order() -> None:
    assert canonical({10, 9, 2.5, "b", "a", None}) == "{2.5, 9, 10, 'a', 'b', None}"
    assert canonical({"b": 1, "a": 2}) == canonical({"a": 2, "b": 1}) == "{'a': 2, 'b': 1}"
    assert canonical(set()) == "set()"
    assert canonical(frozenset()) == "frozenset()"
    assert canonical(frozenset({2, 1})) == "frozenset({1, 2})"
    assert canonical(parse_value("{-5, 3}")) == "{-5, 3}"


_Point = namedtuple("_Point", "x")


class _List(list):  # type: ignore[type-arg]
    __eq__ = lambda self, other: True  # noqa: E731


class _Str(str):
    pass


class _Int(int):
    pass


class _Evil:
    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    def __hash__(self) -> int:
        return 1

    def __repr__(self) -> str:
        raise AssertionError("printed")

    def __reduce__(self) -> str:
        raise AssertionError("pickled")


UNSUPPORTED = [
    OrderedDict(a=1),
    Counter("a"),
    deque([1]),
    Fraction(1, 2),
    _Point(1),
    bytearray(b"a"),
    range(3),
    lambda: 1,
    (x for x in "a"),
    object(),
    int,
    ...,
    _List([1]),
    _Str("a"),
    _Int(1),
    _Evil(),
]


@pytest.mark.parametrize("value", UNSUPPORTED, ids=lambda value: type(value).__name__)
def test_other_types_are_refused_wherever_they_stand(value: object) -> None:
    for place in (value, [value], (1, value), {1: value}):
        with pytest.raises(ValueRejected) as refusal:
            canonical(place)
        assert not isinstance(refusal.value, ValueTooLarge)


def test_an_evil_key_or_element_is_refused_unseen() -> None:
    for place in ({_Evil()}, {_Evil(): 1}, frozenset({_Str("a")})):
        with pytest.raises(ValueRejected):
            canonical(place)


def test_endless_and_exploding_values_end() -> None:
    endless: list[object] = []
    endless.append(endless)
    exploding: list[object] = []
    for _ in range(MAX_DEPTH - 1):
        exploding = [exploding, exploding]
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (endless, exploding, deep, [0] * 10_000_000, "a" * 10_000_000):
        with pytest.raises(ValueRejected):
            canonical(value)
    while deep:
        deep = deep.pop()  # type: ignore[assignment]


DIFFERENT = [
    (True, 1),
    (1, 1.0),
    (0, False),
    (0.0, -0.0),
    (complex(0.0, 1.0), complex(-0.0, 1.0)),
    (0.3, 0.1 + 0.2),
    ("1", "1.0"),
    ("1", b"1"),
    ([1, 2], (1, 2)),
    ({1}, frozenset({1})),
    ({1: "a"}, {True: "a"}),
    ([[1]], [[1.0]]),
    (None, 0),
    ("", []),
]


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_values_of_other_type_or_content_differ(a: object, b: object) -> None:
    assert equal(a, a)
    assert equal(b, b)
    assert not equal(a, b)
    assert not equal(b, a)


def test_equality_ignores_the_order_of_sets_and_dicts() -> None:
    assert equal({"a": {1, 2}, "b": 0}, {"b": 0, "a": {2, 1}})
    assert equal(NAN, -NAN)
    assert not equal(NAN, INF)


def test_contains_nan() -> None:
    for value in (NAN, [1, (NAN,)], {NAN}, {NAN: 1}, {1: {2: NAN}}, complex(0, NAN)):
        assert contains_nan(value)
    for clean in ("nan", 1, INF, [1.0], {"nan": None}):
        assert not contains_nan(clean)


def test_arguments() -> None:
    assert parse_arguments('3, [1, 2], k="a"') == Arguments((3, [1, 2]), {"k": "a"})
    assert parse_arguments("5 # it is five") == Arguments((5,), {})
    assert parse_arguments("") == parse_arguments(" \n") == Arguments((), {})
    assert parse_arguments("x=5") == Arguments((), {"x": 5})
    assert parse_arguments("(1, 2)") == Arguments(((1, 2),), {})
    assert parse_arguments("1,\n 2,\n") == Arguments((1, 2), {})
    assert parse_arguments('{\n"a": 1,\n"b": 2}') == Arguments(({"a": 1, "b": 2},), {})
    assert canonical_arguments(parse_arguments("2, z = 1, b={2,1}")) == "2, b={1, 2}, z=1"


@pytest.mark.parametrize(
    "text",
    ["# c", ",", "1,,2", "x=1, 2", "x=1, x=2", "x=", "class=1", "None=1", "x:=5", "*[5]",
     "**{'x': 5}",      "0) or (1", "1) (2", "x", "x==1", "a.b=1", "[x=1]", "print(1)"],
)  # fmt: skip
def test_what_is_not_an_argument_list(text: str) -> None:
    with pytest.raises(ValueRejected):
        parse_arguments(text)


def _random_value(rng: random.Random, depth: int) -> object:
    floats = (0.0, -0.0, INF, -INF, NAN, 1.5, 5e-324, 1e300)
    kind = rng.randrange(11 if depth else 6)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.choice([0, -1, 7 ** rng.randrange(3000), rng.randrange(-99, 99)])
    if kind == 2:
        return rng.choice(floats)
    if kind == 3:
        return complex(rng.choice(floats), rng.choice(floats))
    if kind == 4:
        return "".join(chr(rng.choice([39, 34, 92, 10, rng.randrange(128), rng.randrange(0x110000)])) for _ in "abc")
    if kind == 5:
        return rng.randbytes(3)
    items = [_random_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind == 6:
        return items
    try:
        return (tuple, set, frozenset, dict.fromkeys)[kind - 7](items)
    except TypeError:
        return tuple(items)


def test_canonical_text_reads_back_as_the_same_value() -> None:
    rng = random.Random(0)
    for _ in range(3000):
        value = _random_value(rng, depth=3)
        text = canonical(value)
        again = parse_value(text)
        assert type(again) is type(value)
        assert canonical(again) == text
        arguments = Arguments((value,), {"k": value})
        assert canonical_arguments(parse_arguments(canonical_arguments(arguments))) == f"{text}, k={text}"


def test_the_reader_agrees_with_literal_eval_and_raises_nothing_else() -> None:
    rng = random.Random(1)
    for _ in range(10_000):
        text = "".join(rng.choice("[](){},:=+-'\"\\ 01j.e_#xb\0\ud800") for _ in range(rng.randrange(10)))
        try:
            value = parse_value(text)
        except ValueRejected:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert equal(ast.literal_eval(text.strip()), value) or "j" in text
