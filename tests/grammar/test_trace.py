import itertools
import random

import pytest

from popu.grammar.examples import sample_examples
from popu.grammar.levels import LEVELS
from popu.grammar.trace import trace


@pytest.mark.parametrize(
    ("body", "arguments", "values"),
    [
        (["return x"], (3,), []),
        (["return x + 1"], (3,), []),
        (["return (x + 1) * 2 - x"], (3,), [4, 8]),
        (["if x + 1 > 2:", "    return x - 1 + x", "return 0"], (3,), [2]),
        (["r = 1", "for i in range(x):", "    r += i", "return r + 5"], (3,), [1, 2, 4]),
        (["r = 1", "for i in x:", "    r += i + 1", "return r"], ([2, 0],), [3, 4, 1]),
        (["return sorted([i + 1 for i in x])[:1]"], ([2, 0],), [[3, 1], [1, 3]]),
        (["x.update({'a': 1})", "x['b'] = len(x)", "return x"], ({},), [1]),
        (["return sum(x.values()) - 1"], ({"a": 2},), [2]),
        (["return x[::-1].upper()"], ("ab",), ["ba"]),
    ],
)
def test_values_in_order_of_evaluation_without_the_output(body, arguments, values):
    source = "\n".join(["def f(x):", *(f"    {line}" for line in body)])
    assert trace(source, arguments) == values


def test_helpers_note_their_own_operations():
    source = "def g(x):\n    return x * 2\ndef f(x, y):\n    return g(g(x)) + y"
    assert trace(source, (3, 1)) == [6, 12]


def test_values_are_as_they_were_and_arguments_are_untouched():
    arguments = ([1],)
    assert trace("def f(v):\n    w = v + [2]\n    w.append(3)\n    return len(w)", arguments) == [[1, 2]]
    assert arguments == ([1],)


def test_every_level_has_values_of_answers_kinds():
    noted = set()
    for example in itertools.islice(sample_examples(tuple(LEVELS), "heldout", random.Random(0)), 200):
        for given in example.inputs:
            values = trace(example.source, given)
            assert all(type(value) in (int, str, list, dict) for value in values)
            noted |= {example.level} if values else set()
    assert noted == set(LEVELS) - {2}  # conditionals do at most one operation outside their conditions
