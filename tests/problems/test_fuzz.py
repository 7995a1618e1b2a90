"""Arbitrary text and values: no exception but the stated ones, values survive the way through text."""

import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from popu.problems.parse import BadFormat, parse_answer, parse_proposal
from popu.problems.static import ProgramRejected, check_program
from popu.problems.types import PROBLEM_TYPES
from popu.problems.values import (
    Arguments,
    ValueRejected,
    ValueTooLarge,
    canonical,
    canonical_arguments,
    equal,
    is_canonical,
    parse_arguments,
    parse_value,
)
from popu.sandbox.executor import Limits, Outcome, _outcome
from popu.sandbox.fork_server import Report

settings.register_profile("popu", max_examples=100, deadline=None)
settings.load_profile("popu")

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(st.characters(exclude_categories=())),
    st.binary(),
)
hashable = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4).map(tuple) | st.frozensets(inner, max_size=4), max_leaves=8
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.sets(hashable, max_size=4)
        | st.frozensets(hashable, max_size=4)
        | st.dictionaries(hashable, inner, max_size=4)
    ),
    max_leaves=20,
)
TOKENS = [
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    ",",
    ":",
    "+",
    "-",
    "=",
    ".",
    "'",
    '"',
    "\\",
    "#",
    "\n",
    " ",
    "\t",
    "0",
    "1",
    "0x",
]
TOKENS += [
    "1.5",
    "1e9",
    "9" * 5000,
    "2j",
    "nan",
    "inf",
    "None",
    "True",
    "set",
    "frozenset",
    "b'",
    "r'",
    "f'",
    "'''",
    "a",
    "é",
]
TOKENS += [
    "lambda",
    "*",
    "**",
    ":=",
    "\\u0041",
    "\\ud800",
    "\0",
    "\x0c",
    "_",
    "1_0",
    "...",
    "@",
    "def f(x):",
    "return x",
]
token_texts = st.lists(st.sampled_from(TOKENS), max_size=25).map("".join)
texts = st.text(st.characters(exclude_categories=()), max_size=200) | token_texts
FENCES = [
    "```python\n",
    "```input\n",
    "```output\n",
    "```message\n",
    "```\n",
    "~~~\n",
    "````\n",
    "<answer>",
    "</answer>",
    "\r\n",
]
completions = st.lists(st.sampled_from([*FENCES, "x\n", "def f(x): return x\n", "`", "\n"]), max_size=30).map("".join)


LARGE = st.integers(4400, 4410).map(lambda digits: [-(10**digits) - 1])  # more digits than Python writes


@given(values | LARGE)
def test_every_value_survives_its_text(value):
    text = canonical(value)
    again = parse_value(text)
    assert canonical(again) == text
    assert type(again) is type(value)
    assert equal(value, again) and equal(again, value)


plain = st.one_of(
    st.sampled_from(
        ["None", "True", "0", "-0", "00", "01", "-", "inf", "nan", "'a'", "''", "'\\\\'", '"a"', "'\\''", "'\"'", "'é'"]
    ),
    st.integers().map(str),
    st.text(st.sampled_from("ab'\"\\ \n\x7f~,[]0"), max_size=5).map(lambda text: f"'{text}'"),
)


@given(values.map(canonical) | plain | st.lists(plain, max_size=4).map(lambda items: f"[{', '.join(items)}]"))
@example("[1, 2,]")
@example("[1,2]")
@example("[]")
@example("1\n")
@example("'a' 'b'")
@example("-9" + "9" * 17)
def test_a_text_is_canonical_if_its_value_is_written_so(text):
    try:
        expected = canonical(parse_value(text)) == text
    except ValueRejected:
        with pytest.raises(ValueRejected):
            is_canonical(text)
    else:
        assert is_canonical(text) == expected
    with pytest.raises(ValueTooLarge):
        is_canonical(f"'{text}'", max_bytes=1)


@given(values, values)
def test_equality_is_reflexive_and_symmetric(a, b):
    assert equal(a, a) and equal(b, b)
    assert equal(a, b) == equal(b, a) == (canonical(a) == canonical(b))


@given(st.lists(values, max_size=3), st.dictionaries(st.sampled_from(["a", "b2", "_c"]), values, max_size=3))
def test_argument_lists_survive_their_text(args, kwargs):
    text = canonical_arguments(Arguments(tuple(args), kwargs))
    assert canonical_arguments(parse_arguments(text)) == text


@given(texts)
@example("1" * 5000)
@example("{nan, nan}")
def test_any_text_is_a_value_or_refused(text):
    for parse in (parse_value, parse_arguments):
        try:
            parsed = parse(text)
        except ValueRejected:
            continue
        assert canonical(parsed) if parse is parse_value else canonical_arguments(parsed) is not None


@given(texts | completions)
def test_any_completion_has_its_blocks_or_is_refused(text):
    for problem_type in PROBLEM_TYPES:
        for parse in (parse_answer, parse_proposal):
            try:
                parse(problem_type, text)
            except BadFormat as error:
                assert error.reason


@given(texts)
def test_any_source_is_a_program_or_refused(source):
    try:
        check_program(source)
    except ProgramRejected as error:
        assert error.reason


def frame(content):
    return struct.pack(">I", len(content)) + content


words = st.sampled_from(["ok", "raised", "timeout", "correct", "infrastructure", "denied", ""]) | st.text(max_size=8)
answers = st.tuples(words, st.lists(texts | values.map(canonical), max_size=3)).map(lambda a: "\n".join([a[0], *a[1]]))
frames = st.binary(max_size=60) | answers.map(lambda text: frame(text.encode(errors="surrogatepass")))


@given(frames | st.binary(max_size=40).map(frame), st.sampled_from([0, 1, -6, -9, -11, -31]), st.booleans())
@example(frame(b"ok\n" + b"[" * 100_000), 0, False)
@example(frame(b"ok\n1 "), 0, False)
@example(frame(b"ok\n" + b"9" * 5000), 0, False)
@example(frame(b"raised\n\xff"), 0, False)
def test_any_frame_is_an_outcome(content, exit_code, over_cpu):
    report = Report("closed", exit_code, over_cpu)
    outcome = _outcome(report, content, 1, "", Limits())
    assert isinstance(outcome, Outcome)
    outcome.reason.encode()
    for text in outcome.outputs:
        assert canonical(parse_value(text)) == text


def test_a_stated_value_is_believed_only_in_canonical_form():
    report = Report("closed", 0, False)

    def status(*outputs):
        content = frame("\n".join(["ok", *outputs]).encode())
        return _outcome(report, content, 1, "", Limits()).status

    assert [status("1"), status("1 "), status("1", "2"), status("f()")] == ["ok", "crashed", "crashed", "crashed"]
    with pytest.raises(ValueRejected):
        parse_value("f()")
