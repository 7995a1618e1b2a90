"""Random Python programs on graded levels, each with a sampler of its inputs.

A program is made by the level's builder and accepted when `levels.measure_level` agrees. Values stay small
(numbers of up to three digits, sequences of up to eight elements), so that answers cost few tokens.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from popu.grammar.levels import LEVELS, measure_level

Kind = str  # "int", "str", "list", "dict": the type of a parameter

NAMES = {"int": ("x", "y", "z"), "str": ("s", "t"), "list": ("v", "w"), "dict": ("d",)}
LETTERS = "abcd"


@dataclass(frozen=True)
class Program:
    """`source` defines `f`; `kinds` are the kinds of its parameters, in order."""

    source: str
    kinds: tuple[Kind, ...]
    level: int


def sample_program(level: int, rng: random.Random) -> Program:
    """A program of exactly this level (1..10).

    Raises ValueError for an unknown level.
    """
    if level not in LEVELS:
        raise ValueError(f"level: expected one of {min(LEVELS)}..{max(LEVELS)}, found {level!r}")
    while True:
        source, kinds = BUILDERS[level](rng)
        if measure_level(source) == level:
            return Program(source, kinds, level)


def sample_value(kind: Kind, rng: random.Random) -> object:
    """A small random value of this kind."""
    if kind == "int":
        return rng.randint(0, 9)
    if kind == "str":
        return "".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 4)))
    if kind == "list":
        return [rng.randint(0, 9) for _ in range(rng.randint(1, 4))]
    if kind == "dict":
        keys = rng.sample(LETTERS, rng.randint(1, 2))
        return {key: rng.randint(0, 9) for key in keys}
    raise ValueError(f"kind: expected int, str, list or dict, found {kind!r}")


def sample_arguments(kinds: tuple[Kind, ...], rng: random.Random) -> tuple[object, ...]:
    """One argument tuple for parameters of these kinds."""
    return tuple(sample_value(kind, rng) for kind in kinds)


# --- expressions -----------------------------------------------------------------------------------------------


def _name(kind: Kind, *taken: str) -> str:
    """The first free name of a kind: names follow kinds, so that a small base need not learn to look them up."""
    return next(name for name in NAMES[kind] if name not in taken)


def _int_expr(rng: random.Random, names: list[str], depth: int) -> str:
    if depth == 0:
        return rng.choice(names) if rng.random() < 0.9 else str(rng.randint(1, 5))
    left = _int_expr(rng, names, depth - 1)
    right = rng.choice(names) if rng.random() < 0.3 else str(rng.randint(1, 5))
    shape = rng.random()
    if shape < 0.45:
        return f"{left} + {right}"
    if shape < 0.7:
        return f"{left} - {right}"
    if shape < 0.87:
        return f"{_wrap(left)} * {rng.randint(2, 3)}"
    return f"{rng.choice(('max', 'min'))}({left}, {right})"


def _wrap(expression: str) -> str:
    return f"({expression})" if " " in expression and not expression.endswith(")") else expression


def _condition(rng: random.Random, names: list[str]) -> str:
    name = rng.choice(names)
    if rng.random() < 0.3:
        return f"{name} % 2 == 0"
    right = rng.choice(names) if len(names) > 1 and rng.random() < 0.3 else str(rng.randint(1, 9))
    return f"{name} {rng.choice(('<', '>', '=='))} {right if right != name else rng.randint(1, 9)}"


def _str_expr(rng: random.Random, name: str, depth: int) -> str:
    inner = name if depth <= 1 else _str_expr(rng, name, depth - 1)
    atom = inner if " " not in inner else f"({inner})"
    a, b = rng.sample(LETTERS, 2)
    return rng.choice(
        (
            f"{atom}.upper()",
            f"{atom}[::-1]",
            f"{inner} + '{a}'",
            f"'{a}' + {inner}",
            f"{inner} + {name}",
            f"{atom}.replace('{a}', '{b}')",
            f"{atom}[{rng.randint(1, 3)}:]",
            f"{atom}[:{rng.randint(1, 4)}]",
            f"{atom} * 2",
        )
    )


def _str_to_int(rng: random.Random, name: str) -> str:
    letter = rng.choice(LETTERS)
    return rng.choice((f"len({name})", f"{name}.count('{letter}')"))


def _list_expr(rng: random.Random, name: str, depth: int) -> str:
    inner = name if depth <= 1 else _list_expr(rng, name, depth - 1)
    atom = inner if " " not in inner or inner[0] == "[" or inner.endswith(")") else f"({inner})"
    c = rng.randint(1, 9)
    return rng.choice(
        (
            f"sorted({inner})",
            f"{atom}[::-1]",
            f"{inner} + [{c}]",
            f"[{c}] + {inner}",
            f"[i {rng.choice('+-')} {rng.randint(1, 5)} for i in {inner}]",
            f"[i for i in {inner} if i {rng.choice('<>')} {c}]",
            f"{atom}[{rng.randint(1, 2)}:]",
            f"{atom}[:{rng.randint(1, 3)}]",
        )
    )


def _list_to_int(rng: random.Random, inner: str) -> str:
    first = f"({inner})[0]" if " + " in inner else f"{inner}[0]"
    return rng.choice((f"sum({inner})", f"len({inner})", f"max({inner})", f"min({inner})", first))


def _function(name: str, parameters: list[str], body: list[str]) -> str:
    return "\n".join([f"def {name}({', '.join(parameters)}):", *(f"    {line}" for line in body)])


# --- levels ----------------------------------------------------------------------------------------------------

Built = tuple[str, tuple[Kind, ...]]


def _ints(rng: random.Random) -> list[str]:
    return list(NAMES["int"][: rng.randint(1, 2)])


def _copy(rng: random.Random) -> Built:
    """A program that returns one of its parameters: the first thing that a base has to learn."""
    kinds = rng.sample(tuple(NAMES), rng.randint(1, 2)) if rng.random() < 0.8 else ["int", "int"]
    names = [NAMES[kind][kinds[:i].count(kind)] for i, kind in enumerate(kinds)]
    return _function("f", names, [f"return {rng.choice(names)}"]), tuple(kinds)


def _arithmetic(rng: random.Random) -> Built:
    if rng.random() < 0.2:
        return _copy(rng)
    names = _ints(rng)
    if rng.random() < 0.2:
        local = _name("int", *names)
        body = [f"{local} = {_int_expr(rng, names, 1)}", f"return {_int_expr(rng, [local, *names], 1)}"]
    else:
        body = [f"return {_int_expr(rng, names, rng.choice((1, 1, 2)))}"]
    return _function("f", names, body), ("int",) * len(names)


def _conditional(rng: random.Random) -> Built:
    names = _ints(rng)
    first, second = (_int_expr(rng, names, rng.randint(0, 1)) for _ in range(2))
    condition = _condition(rng, names)
    if rng.random() < 0.3:
        body = [f"return {first} if {condition} else {second}"]
    elif rng.random() < 0.3:
        third = _int_expr(rng, names, rng.randint(0, 1))
        body = [f"if {condition}:", f"    return {first}"]
        body += [f"if {_condition(rng, names)}:", f"    return {second}", f"return {third}"]
    else:
        body = [f"if {condition}:", f"    return {first}", f"return {second}"]
    return _function("f", names, body), ("int",) * len(names)


def _string(rng: random.Random) -> Built:
    name = _name("str")
    if rng.random() < 0.3:
        other = _name("int")
        value = _str_to_int(rng, name)
        body = [f"return {value} {rng.choice('+-')} {other}"]
        return _function("f", [name, other], body), ("str", "int")
    if rng.random() < 0.25:
        return _function("f", [name], [f"return {_str_to_int(rng, name)} + {rng.randint(1, 9)}"]), ("str",)
    if rng.random() < 0.3:
        local = _name("str", name)
        body = [f"{local} = {_str_expr(rng, name, 1)}", f"return {_str_expr(rng, local, 1)}"]
        return _function("f", [name], body), ("str",)
    return _function("f", [name], [f"return {_str_expr(rng, name, rng.choice((1, 1, 2)))}"]), ("str",)


def _list(rng: random.Random) -> Built:
    name = _name("list")
    if rng.random() < 0.3:
        inner = _list_expr(rng, name, 1) if rng.random() < 0.3 else name
        body = [f"return {_list_to_int(rng, inner)} {rng.choice('+-')} {rng.randint(1, 5)}"]
        return _function("f", [name], body), ("list",)
    if rng.random() < 0.3:
        other = _name("int")
        inner = rng.choice((f"{name} + [{other}]", f"[{other}] + {name}", f"[i + {other} for i in {name}]"))
        return _function("f", [name, other], [f"return {inner}"]), ("list", "int")
    if rng.random() < 0.3:
        local = _name("list", name)
        body = [f"{local} = {_list_expr(rng, name, 1)}", f"return {_list_expr(rng, local, 1)}"]
        return _function("f", [name], body), ("list",)
    return _function("f", [name], [f"return {_list_expr(rng, name, rng.choice((1, 1, 2)))}"]), ("list",)


def _accumulate(rng: random.Random, names: list[str], indent: str = "") -> str:
    """One statement that changes the accumulator `r` by the loop variable `i`."""
    change = rng.choice(("i", "i", f"i + {rng.randint(1, 5)}", str(rng.randint(1, 5)), *names))
    return f"{indent}r {rng.choice(('+=', '+=', '-='))} {change}"


def _loop_header(rng: random.Random) -> tuple[str, str, Kind]:
    """(loop line, parameter name, its kind)"""
    if rng.random() < 0.5:
        name = _name("int")
        return f"for i in range({name}{rng.choice(('', '', ' % 3'))}):", name, "int"
    name = _name("list")
    return f"for i in {name}:", name, "list"


def _loop(rng: random.Random) -> Built:
    if rng.random() < 0.2:
        name = _name("str")
        letter = rng.choice(LETTERS)
        change = rng.choice((f"r = i + r + '{letter}'", f"r = r + i + '{letter}'", "r = i + r", "r = r + i * 2"))
        body = [f"r = '{rng.choice(('', letter))}'", f"for i in {name}:", f"    {change}", "return r"]
        return _function("f", [name], body), ("str",)
    header, name, kind = _loop_header(rng)
    extra = [_name("int", name)] if rng.random() < 0.3 else []
    start = rng.choice((str(rng.randint(0, 5)), "0", *extra))
    body = [f"r = {start}", header, _accumulate(rng, extra, "    ")]
    tail = rng.choice(("r", "r", f"r + {rng.randint(1, 5)}"))
    return _function("f", [name, *extra], [*body, f"return {tail}"]), (kind, *("int",) * len(extra))


def _dict(rng: random.Random) -> Built:
    name = _name("dict")
    extra = [_name("int")] if rng.random() < 0.3 else []
    value = rng.choice((*extra, str(rng.randint(0, 9))))
    body = [_dict_change(rng, name, value) for _ in range(rng.choice((0, 1)))]
    result = rng.choice((name, _dict_to_int(rng, name), _dict_to_int(rng, name), _dict_to_list(rng, name)))
    if "(" in result and not result.startswith("sorted") and rng.random() < 0.5:
        result = f"{result} {rng.choice('+-')} {rng.choice((*extra, str(rng.randint(1, 5))))}"
    return _function("f", [name, *extra], [*body, f"return {result}"]), ("dict", *("int",) * len(extra))


def _dict_change(rng: random.Random, name: str, value: str) -> str:
    key = rng.choice(LETTERS)
    return rng.choice(
        (
            f"{name}['{key}'] = {value}",
            f"{name}['{key}'] = {name}.get('{key}', 0) + {value}",
            f"{name}['{key}'] = len({name})",
            f"{name}.update({{'{key}': {value}}})",
        )
    )


def _dict_to_int(rng: random.Random, name: str) -> str:
    get = f"{name}.get('{rng.choice(LETTERS)}', {rng.randint(0, 9)})"
    return rng.choice((get, get, f"sum({name}.values())", f"max({name}.values())", f"len({name})"))


def _dict_to_list(rng: random.Random, name: str) -> str:
    return rng.choice((f"sorted({name})", f"sorted({name}.values())", f"sorted({name}.keys())[:{rng.randint(1, 2)}]"))


def _helper(rng: random.Random) -> Built:
    inner_name = _name("int")
    helper = _function("g", [inner_name], [f"return {_int_expr(rng, [inner_name], 1)}"])
    names = _ints(rng)
    call = rng.choice((f"g({names[0]})", f"g(g({names[0]}))", f"g({_int_expr(rng, names, 1)})"))
    tail = rng.choice(("", f" + {rng.choice(names)}", f" - {rng.randint(1, 5)}"))
    return f"{helper}\n{_function('f', names, [f'return {call}{tail}'])}", ("int",) * len(names)


def _branch_in_loop(rng: random.Random, extra: list[str], indent: str) -> list[str]:
    condition = _condition(rng, ["i", *extra])
    lines = [f"{indent}if {condition}:", _accumulate(rng, extra, indent + "    ")]
    if rng.random() < 0.5:
        lines += [f"{indent}else:", _accumulate(rng, extra, indent + "    ")]
    return lines


def _nested(rng: random.Random) -> Built:
    header, name, kind = _loop_header(rng)
    extra = [_name("int", name)] if rng.random() < 0.3 else []
    body = [f"r = {rng.randint(0, 5)}", header, *_branch_in_loop(rng, extra, "    "), "return r"]
    return _function("f", [name, *extra], body), (kind, *("int",) * len(extra))


def _double_loop(rng: random.Random) -> Built:
    header, name, kind = _loop_header(rng)
    inner = rng.choice((f"for j in range({rng.randint(2, 3)}):", "for j in range(i % 3):", "for j in range(2):"))
    change = rng.choice(("r += i", "r += j", "r += i + j", "r += i * j", f"r += {rng.randint(1, 4)}", "r -= j"))
    body = [f"r = {rng.randint(0, 9)}", header, f"    {inner}", f"        {change}", "return r"]
    return _function("f", [name], body), (kind,)


def _helper_with_control(rng: random.Random) -> Built:
    inner = _name("int")
    if rng.random() < 0.5:
        first, second = (_int_expr(rng, [inner], 1) for _ in range(2))
        body = [f"if {_condition(rng, [inner])}:", f"    return {first}", f"return {second}"]
    else:
        body = [
            f"r = {rng.randint(0, 5)}",
            f"for i in range({inner}):",
            _accumulate(rng, [], "    "),
            "return r",
        ]
    helper = _function("g", [inner], body)
    if rng.random() < 0.5:
        name = _name("list")
        main = _function("f", [name], [f"return [g(i) for i in {name}]"])
        return f"{helper}\n{main}", ("list",)
    name = _name("int")
    tail = rng.choice((f"g({name}) + {rng.randint(1, 9)}", f"g({name}) + g({rng.randint(1, 9)})", f"g(g({name}))"))
    return f"{helper}\n{_function('f', [name], [f'return {tail}'])}", ("int",)


BUILDERS: dict[int, Callable[[random.Random], Built]] = {
    1: _arithmetic,
    2: _conditional,
    3: _string,
    4: _list,
    5: _loop,
    6: _dict,
    7: _helper,
    8: _nested,
    9: _double_loop,
    10: _helper_with_control,
}
