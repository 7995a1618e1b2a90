r"""Whether an answer is the gold answer: the structure of both is compared here, what is left is for `leaf` to compare.

Lists and sets without order, `\pm` as two elements, pairs and intervals by their parts, unions, `x = ...`, words and
numbers. So pairs in another order, `6` for `6m`, and `0` for `1e-8` stay wrong, which math-verify 0.9 takes for right.
Only text is handled; nothing of it is evaluated.
"""

import re
from collections.abc import Callable, Iterator
from fractions import Fraction

from popu.evaluate.quantities import plain, read_quantity, same_quantity, without_unit

Leaf = Callable[[str, str], bool]

MAX_DEPTH = 6  # of structures in one another; deeper ones are compared as they stand
OPENING, CLOSING = "([{", ")]}"
SEPARATOR = re.compile(
    r"[,;]\s*(?:and|or)\b|[,;]|\\(?:text|mbox|mathrm)\s*\{\s*(?:,\s*)?(?:and|or)\s*\}|(?<=\s)(?:and|or)(?=\s)|\\cup(?![A-Za-z])"
)
BRACES = re.compile(r"\\\{(.*)\\\}", re.DOTALL)
SIGNS = re.compile(r"\\pm(?![A-Za-z])")
WORDS = re.compile(r"\\(?:text|textbf|textrm|textit|mbox|mathrm)\s*\{([^{}]*)\}")
# `x =`, `f(x) =`, `m_{\max} =`, `\angle ABC =`, `x \in`: a name that only says what the answer is the value of.
NAME = re.compile(
    r"((?:[A-Za-z'() ]|\\(?:angle|triangle|prime|max|min|mathrm|text|alpha|beta|theta|lambda|mu|phi|omega)(?![A-Za-z])"
    r"|_\s*\d|_\s*\{[^{}]*\}|\{|\})+)(?:=|\\in(?![A-Za-z]))(?!.*=)(.+)",
    re.DOTALL,
)
RELATION = re.compile(r"[<>=]|\\(?:l|g|n)eq?(?![A-Za-z])|\\in(?![A-Za-z])")


def same_answer(gold: str, answer: str, leaf: Leaf, tolerance: Fraction | None = None) -> bool:
    """Return whether `answer` says what `gold` says.

    `leaf(gold, answer)` decides on expressions; `tolerance` is the problem's, of its numbers. Not symmetric: the gold
    decides what is compared. A gold list is compared with the answer read as a list, a gold without a name with the
    value of `x = 5`; between numbers see `same_quantity`.
    """
    return _same(plain(gold), plain(answer), leaf, tolerance, MAX_DEPTH)


def _same(gold: str, answer: str, leaf: Leaf, tolerance: Fraction | None, depth: int) -> bool:
    """`same_answer` of spellings that `plain` gives."""
    if compact(gold) == compact(answer):
        return True
    if depth == 0:
        return leaf(gold, answer)

    def same(one: str, other: str) -> bool:
        return _same(one.strip(), other.strip(), leaf, tolerance, depth - 1)

    if WORDS.fullmatch(gold):
        return _word(gold) == _word(answer)
    wanted = elements(gold)
    if wanted != [gold]:
        return _same_set(wanted, elements(answer), same)
    named, other_named = NAME.fullmatch(gold), NAME.fullmatch(answer)
    if named and other_named:
        return compact(named[1]) == compact(other_named[1]) and same(named[2], other_named[2])
    if named and not RELATION.search(answer):
        return same(named[2], answer)
    if other_named and (not RELATION.search(gold) or gold[0] in OPENING):
        return same(gold, other_named[2])
    if (parts := bracketed(gold)) and (given := bracketed(answer)):
        return parts[0] == given[0] and _all_same(parts[1], given[1], same)
    numbers = read_quantity(gold), read_quantity(answer)
    if numbers[0] and numbers[1]:
        return same_quantity(numbers[0], numbers[1], tolerance)
    return leaf(without_unit(gold), without_unit(answer))


def compact(text: str) -> str:
    """Return the text without spaces, and without braces around one character."""
    return re.sub(r"(?<=[_^])\{(\w)\}", r"\1", re.sub(r"\s+", "", text))


def elements(text: str) -> list[str]:
    r"""Return the elements of a list, a union or `\{...\}`, without repetitions; a thousands comma separates nothing.

    `1 \pm \sqrt{2}` is two elements. A text that is no list is its only element.
    """
    braces = BRACES.fullmatch(text)
    if braces and len(split(text)) == 1:
        text = braces[1].strip()
    parts = [text] if read_quantity(text) else split(text)
    both = [each for part in parts for each in _both_signs(part)]
    return list({compact(part): part for part in both if part}.values())


def split(text: str) -> list[str]:
    """Return the parts of `text` between commas, `and`, `or` and unions that stand in no bracket."""
    parts, depth, start, at = [], 0, 0, 0
    while at < len(text):
        depth += (text[at] in OPENING) - (text[at] in CLOSING)
        found = SEPARATOR.match(text, at) if depth <= 0 else None
        if found:
            parts.append(text[start:at].strip())
            start = found.end()
        at = found.end() if found else at + 1
    return [*parts, text[start:].strip()]


def bracketed(text: str) -> tuple[str, list[str]] | None:
    """Return the two brackets of a pair, tuple or interval and its parts in order; None where it is none."""
    if len(text) < 2 or text[0] not in "([" or text[-1] not in ")]":
        return None
    depth = 0
    for at, character in enumerate(text):
        depth += (character in OPENING) - (character in CLOSING)
        if depth == 0 and at < len(text) - 1:
            return None
    parts = split(text[1:-1])
    return (text[0] + text[-1], parts) if len(parts) > 1 else None


def _both_signs(text: str) -> Iterator[str]:
    if SIGNS.search(text):
        yield SIGNS.sub("+", text).strip()
        yield SIGNS.sub("-", text).strip()
    else:
        yield text


def _same_set(wanted: list[str], given: list[str], same: Callable[[str, str], bool]) -> bool:
    """Return whether every element of either list is one of the other."""
    if len(wanted) != len(given):
        return False
    left = list(given)
    for element in wanted:
        at = next((i for i, other in enumerate(left) if same(element, other)), None)
        if at is None:
            return False
        del left[at]
    return True


def _all_same(wanted: list[str], given: list[str], same: Callable[[str, str], bool]) -> bool:
    return len(wanted) == len(given) and all(map(same, wanted, given))


def _word(text: str) -> str:
    return re.sub(r"[\s(){}]", "", WORDS.sub(r"\1", text)).casefold()
