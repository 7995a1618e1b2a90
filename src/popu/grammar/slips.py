"""Plausible slips: wrong answers of the kind that a hurried reader makes.

Real pretraining text is of mixed quality. A base that saw nothing but right answers is at its plateau and gives
reinforcement nothing to elicit; slips make the right answer likely but not sure.
"""

import random
import re

from popu.grammar.programs import LETTERS


def slip_value(value: object, rng: random.Random) -> object:
    """A value of the same kind, near `value` and different from it."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return _slip_int(value, rng)
    if isinstance(value, str):
        return _slip_str(value, rng)
    if isinstance(value, list):
        return _slip_list(value, rng)
    if isinstance(value, dict):
        return _slip_dict(value, rng)
    raise ValueError(f"value: expected bool, int, str, list or dict, found {type(value).__name__}")


def slip_arguments(arguments: tuple[object, ...], rng: random.Random) -> tuple[object, ...]:
    """The arguments with one of them slipped."""
    at = rng.randrange(len(arguments))
    return tuple(slip_value(value, rng) if i == at else value for i, value in enumerate(arguments))


def slip_program(source: str, rng: random.Random) -> str:
    """The program with one number or operator changed, or one line of a longer body dropped."""
    numbers = list(re.finditer(r"(?<![\w'])\d+(?![\w'])", source))
    operators = list(re.finditer(r" ([-+*<>]) ", source))
    choices = list(numbers + operators)
    if not choices:
        return source.replace("return ", "return 1 + ", 1) if rng.random() < 0.5 else source + " * 2"
    match = rng.choice(choices)
    text = match.group(0)
    new = str(abs(_slip_int(int(text), rng))) if text.isdigit() else f" {_other_operator(text.strip(), rng)} "
    return source[: match.start()] + new + source[match.end() :]


def _other_operator(operator: str, rng: random.Random) -> str:
    group = "<>" if operator in "<>" else "+-*"
    return rng.choice([other for other in group if other != operator])


def _slip_int(value: int, rng: random.Random) -> int:
    digits = str(abs(value))
    at = rng.randrange(len(digits))
    near = [str((int(digits[at]) + step) % 10) for step in (-2, -1, 1, 2)]
    changed = int(digits[:at] + rng.choice(near) + digits[at + 1 :])
    return -changed if (value < 0) != (rng.random() < 0.1) else changed


def _slip_str(value: str, rng: random.Random) -> str:
    if not value:
        return rng.choice(LETTERS)
    at = rng.randrange(len(value))
    shape = rng.random()
    if shape < 0.4:
        return value[:at] + value[at + 1 :]
    if shape < 0.7:
        return value[:at] + value[at] + value[at:]
    return value[:at] + rng.choice([c for c in LETTERS if c != value[at]]) + value[at + 1 :]


def _slip_list(value: list[object], rng: random.Random) -> list[object]:
    if not value:
        return [rng.randint(0, 9)]
    at = rng.randrange(len(value))
    if rng.random() < 0.4:
        return value[:at] + value[at + 1 :]
    return [*value[:at], slip_value(value[at], rng), *value[at + 1 :]]


def _slip_dict(value: dict[object, object], rng: random.Random) -> dict[object, object]:
    if not value:
        return {rng.choice(LETTERS): rng.randint(0, 9)}
    key = rng.choice(list(value))
    if rng.random() < 0.3:
        return {k: v for k, v in value.items() if k != key}
    return {k: slip_value(v, rng) if k == key else v for k, v in value.items()}
