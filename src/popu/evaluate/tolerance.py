"""Equality of values as code benchmarks define it: Python's, with a tolerance for floats."""

RELATIVE = 1e-7
FLOATS_ABSOLUTE = 1e-6  # where the benchmark states no tolerance but expects floats and nothing else


def same_value(given: object, expected: object, absolute: float = 0.0) -> bool:
    """Return whether `given == expected`, or is as close as the benchmark allows.

    `absolute` is the benchmark's tolerance. Where it is 0, a float, or a list or tuple of floats alone, has
    `FLOATS_ABSOLUTE`. With either, numbers may differ by it plus `RELATIVE` of the expected one, inside lists, tuples
    and dicts too, where both values have the same type (as in EvalPlus 0.3). NaN is NaN.
    """
    if not absolute and _only_floats(expected):
        absolute = FLOATS_ABSOLUTE
    return given == expected or (type(given) is type(expected) and _close(given, expected, absolute))


def _only_floats(value: object) -> bool:
    return isinstance(value, float) or (
        isinstance(value, list | tuple) and bool(value) and all(isinstance(item, float) for item in value)
    )


def _close(given: object, expected: object, absolute: float) -> bool:
    if given == expected:
        return True
    if isinstance(given, int | float) and isinstance(expected, int | float):
        if given != given or expected != expected:
            return given != given and expected != expected
        return bool(absolute) and _near(given, expected, absolute)
    if isinstance(given, list | tuple) and type(given) is type(expected) and len(given) == len(expected):
        return all(_close(a, b, absolute) for a, b in zip(given, expected, strict=True))
    if isinstance(given, dict) and isinstance(expected, dict) and given.keys() == expected.keys():
        return all(_close(given[key], expected[key], absolute) for key in given)
    return False


def _near(given: float, expected: float, absolute: float) -> bool:
    try:
        return abs(given - expected) <= absolute + RELATIVE * abs(expected)
    except OverflowError:  # an int beyond the floats, not equal
        return False
