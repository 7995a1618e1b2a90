r"""Numbers as people write them in answers: `1,625`, `\$29.00`, `4.5e33`, `4.5\times10^{33}`, `50\%`, `29 dollars`.

Exact arithmetic over text: nothing here evaluates what a model wrote, and digits and exponents are bounded.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_CHARACTERS = 400  # of a number with its unit
MAX_EXPONENT = 1000
# Where a decimal stands for a number that has none (1/3, a root): as close as the six decimals of math-verify, and in
# proportion, since six decimals alone would make 1e-8 equal to 0. Ours.
ABSOLUTE, RELATIVE = Fraction(5, 10**7), Fraction(1, 10**6)

DECIMAL = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+"
NUMBERS = [
    re.compile(rf"(?P<mantissa>{DECIMAL})(?:[eE](?P<power>[+-]?\d+))?"),
    re.compile(
        rf"(?:(?P<mantissa>{DECIMAL})\s*(?:\\times|\\cdot|\*)\s*)?10\s*\^\s*"
        r"(?:\{\s*(?P<power>[+-]?\s*\d+)\s*\}|(?P<digit>\d+))"
    ),
    re.compile(
        rf"(?:(?P<whole>\d+)\s*)?\\frac\{{(?P<top>\s*-?\s*(?:{DECIMAL}))\s*\}}\{{\s*(?P<bottom>{DECIMAL})\s*\}}"
    ),
    re.compile(rf"(?P<top>{DECIMAL})\s*/\s*(?P<bottom>{DECIMAL})"),
]
PREFIX = re.compile(r"\s*([+-]?)\s*[€£¥₹]?\s*")
BASE = re.compile(r"\s*_\s*(?:\{\s*(?:\\text\{)?(\d+)\}?\s*\}|(\d+))")
TEXT = r"\\(?:text|textrm|textbf|textit|mbox|hbox|mathrm|mathbf|operatorname)\s*\{(?P<text>[^{}]*)\}"
POWER = r"(?:\s*\^\s*(?:\{\s*-?\d+\s*\}|-?\d))?"
UNIT = re.compile(
    rf"\s*(?:{TEXT}{POWER}|\^?\s*\{{?\s*\\circ\s*\}}?|\\degree|(?P<word>[A-Za-z]+)\.?{POWER}|(?P<per>/))\s*"
)
SHORT_UNITS = frozenset({
    "cm", "mm", "km", "dm", "nm", "ft", "in", "yd", "mi", "kg", "mg", "lb", "oz", "ml", "dl", "kl", "hr", "min", "ms",
    "sq", "cu", "mph", "eV", "kJ", "kN", "Hz", "kW", "mol", "rad",
})  # fmt: skip
# Words that change a number, or that are mathematics.
NOT_UNITS = frozenset({
    "hundred", "thousand", "million", "billion", "trillion", "dozen", "half", "pi", "alpha", "beta", "gamma", "delta",
    "theta", "lambda", "sin", "cos", "tan", "cot", "sec", "csc", "log", "exp", "sqrt", "infinity", "and", "mod",
})  # fmt: skip


@dataclass(frozen=True)
class Quantity:
    """A number: its value, whether `%` followed, whether it has a decimal point, the base written below it."""

    value: Fraction
    percent: bool = False
    decimal: bool = False
    base: int | None = None


def read_quantity(text: str) -> Quantity | None:
    r"""Return the number that `text` writes and nothing but a unit after it, None if it is anything else.

    A unit is dropped, never converted. It is text (`\text{ cm}^2`), degrees, or plain words: of three letters or more
    or on a short list, since `6m` and `2xy` may be products. Single letters count in a quotient, as in `m/s`.
    """
    if len(text) > MAX_CHARACTERS:
        return None
    text = plain(text)
    prefix = PREFIX.match(text)
    assert prefix is not None
    found = max(
        (match for form in NUMBERS if (match := form.match(text, prefix.end()))), key=lambda m: m.end(), default=None
    )
    if found is None:
        return None
    value = _value(found.groupdict(""))
    if value is None:
        return None
    rest = text[found.end() :]
    base = BASE.match(rest)
    if base:
        rest = rest[base.end() :]
    percent = rest.strip() == "%"
    if not percent and not is_unit(rest):
        return None
    return Quantity(
        -value if prefix[1] == "-" else value,
        percent,
        "." in found[0] and value.denominator != 1,
        int(base[1] or base[2]) if base else None,
    )


def same_quantity(gold: Quantity, answer: Quantity, tolerance: Fraction | None = None) -> bool:
    """Return whether two numbers are the same.

    Equality is exact, or within `tolerance` of the number as it stands where the problem states one; with a decimal
    that is no whole number it is also within ABSOLUTE and RELATIVE of the gold. A percentage is its number and its
    value: 50 and 0.5 each equal 50 %, not each other, and 50 % is not 0.5 %. A base that one side leaves out is taken
    as given. The relation is symmetric but for RELATIVE, which is of the gold.
    """
    if gold.base is not None and answer.base is not None and gold.base != answer.base:
        return False
    if gold.percent and answer.percent:
        pairs = [(gold.value, answer.value)]
    else:
        pairs = [(g, a) for g in _readings(gold) for a in _readings(answer)]
    if tolerance is not None and abs(gold.value - answer.value) <= tolerance:
        return True
    rounded = gold.decimal or answer.decimal
    return any(g == a or (rounded and abs(g - a) <= min(ABSOLUTE, RELATIVE * abs(g))) for g, a in pairs)


def plain(text: str) -> str:
    r"""Return LaTeX text in one of its spellings: no layout, `\frac{a}{b}`, `%`, ASCII signs, no dollar signs."""
    for pattern, replacement in SPELLINGS:
        text = pattern.sub(replacement, text)
    return text.strip().rstrip(".").strip()


def is_unit(text: str) -> bool:
    """Return whether `text` is empty or a unit (see `read_quantity`)."""
    quotient = "/" in text
    at = 0
    while at < len(text):
        token = UNIT.match(text, at)
        if token is None or token.end() == at:
            return not text[at:].strip()
        word = token["word"]
        if word and not (word in SHORT_UNITS or (len(word) >= 3 and word.lower() not in NOT_UNITS) or quotient):
            return False
        if token["text"] and not NOT_UNITS.isdisjoint(token["text"].lower().split()):
            return False
        at = token.end()
    return True


def without_unit(text: str) -> str:
    r"""Return `text` without the `\text{}` and the sign of degrees that end it, unless nothing else is there."""
    shorter = TRAILING_UNIT.sub("", text).strip()
    return shorter or text


TRAILING_UNIT = re.compile(rf"(?:\s*(?:{TEXT}{POWER}|\^\s*\{{?\s*\\circ\s*\}}?|\\degree))+\s*$".replace("?P<text>", ""))
DIGITS = r"(?:\{(\d+)\}|(\d))"
SPELLINGS = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"[−–]", "-"),
        ("×", r"\\times "),
        ("[·⋅]", r"\\cdot "),
        ("°", r"^\\circ "),
        ("∞", r"\\infty "),
        ("π", r"\\pi "),
        ("≤", r"\\le "),
        ("≥", r"\\ge "),
        ("∪", r"\\cup "),
        ("∈", r"\\in "),
        (r"\\\$|\$|(?<!\\)\\[()]|\\displaystyle(?![A-Za-z])|\\mathstrut(?![A-Za-z])", ""),
        (r"\\(?:left|right|[bB]igg?[lr]?)(?![A-Za-z])\.?", ""),
        (r"(?<!\\)\\!\s*", ""),
        (r"\{,\}", ","),
        (r"(?<!\\)\\[,;: ]|~|\\q?quad(?![A-Za-z])|\s+", " "),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\frac\s*(?:\{\s*(-?[\d.,]+)\s*\}|(\d))\s*(?:\{\s*(-?[\d.,]+)\s*\}|(\d))", r"\\frac{\1\2}{\3\4}"),
        (r"\\%|(?<=[\d} ])\s*(?:\\(?:text|mbox|mathrm)\s*\{\s*)(?:percent|%)\s*\}|(?<=\d)\s*percent\b", "%"),
        (r"\\geqslant|\\geq(?![A-Za-z])|>=", r"\\ge "),
        (r"\\leqslant|\\leq(?![A-Za-z])|<=", r"\\le "),
        (r"\+?\s*(?:\\infty(?![A-Za-z])|(?<![A-Za-z\\])(?:oo|infinity|inf)(?![A-Za-z]))", r"\\infty "),
        (r"\bnp\.", r"\\"),
    ]
]


def _readings(quantity: Quantity) -> list[Fraction]:
    return [quantity.value, quantity.value / 100] if quantity.percent else [quantity.value]


def _value(parts: dict[str, str]) -> Fraction | None:
    """The number in the named groups of NUMBERS; None for one that is no number, or larger than is read."""
    if parts.get("bottom"):
        top, bottom = _decimal(parts["top"]), _decimal(parts["bottom"])
        if bottom == 0:
            return None
        whole = Fraction(parts["whole"]) if parts.get("whole") else Fraction(0)
        if parts.get("whole") and not 0 <= top < bottom:
            return None  # a product then, not a mixed number
        return whole + top / bottom
    mantissa = _decimal(parts["mantissa"] or "1")
    power = (parts.get("power") or parts.get("digit") or "0").replace(" ", "")
    if len(power) > len(str(MAX_EXPONENT)) + 1 or abs(int(power)) > MAX_EXPONENT:
        return None
    return mantissa * Fraction(10) ** int(power)


def _decimal(text: str) -> Fraction:
    return Fraction(text.replace(",", "").replace(" ", "").rstrip("."))
