"""Equality as benchmarks define it."""

import math

import pytest

from popu.evaluate.tolerance import same_value

CLOSE = 1.0 + 5e-7


@pytest.mark.parametrize(
    ("given", "expected", "absolute", "same"),
    [
        (1, 1.0, 0.0, True),  # Python's equality
        (True, 1, 0.0, True),
        ([1], (1,), 0.0, False),
        ("a", "a", 0.0, True),
        ("1", 1, 1.0, False),
        (CLOSE, 1.0, 0.0, True),  # floats alone have a tolerance of their own
        (1.01, 1.0, 0.0, False),
        ([CLOSE, 2.0], [1.0, 2.0], 0.0, True),
        ((CLOSE,), [1.0], 0.0, False),
        ([CLOSE, 2], [1.0, 2], 0.0, False),  # not floats alone
        ([[CLOSE]], [[1.0]], 0.0, False),
        ([[CLOSE], 2], [[1.0], 2], 1e-4, True),  # the benchmark states a tolerance
        ({"a": CLOSE}, {"a": 1.0}, 1e-4, True),
        ({"a": 1.0}, {"b": 1.0}, 1e-4, False),
        ([1.0], [1.0, 1.0], 1e-4, False),
        (1.2, 1.0, 0.1, False),
        (1, 1.00001, 1e-4, False),  # near, but of another type
        ([1, 2.0], [1.00001, 2.0], 1e-4, True),
        (1e9 + 50, 1e9, 1e-4, True),  # the relative part
        (math.nan, math.nan, 0.0, True),
        ([1.0, math.nan], [1.0, math.nan], 0.0, True),
        (math.nan, 1.0, 1.0, False),
        (math.inf, 1.0, 1.0, False),
        (math.inf, math.inf, 0.0, True),
        (10**400, 1.0, 1.0, False),
        ([], [], 0.0, True),
        (None, [], 0.0, False),
    ],
)
def test_same_value(given, expected, absolute, same):
    assert same_value(given, expected, absolute) is same
