"""Static checks of a program, before anything runs: its shape, and what it may name.

The checks look at syntax, never at substrings, so `read_input(` is fine. They are a filter of quality and a
first fence; the sandbox does not rely on them.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

from popu.problems.allowed import (
    BANNED_ATTRIBUTES,
    BANNED_BUILTINS,
    BANNED_MEMBERS,
    DUNDER_ATTRIBUTES,
    MODULES,
    RUN_DEPENDENT,
)

MAX_SOURCE_BYTES = 65_536
MAX_TREE_DEPTH = 100  # syntax nodes around a node; ordinary programs stay below 30

_REFLECTION = frozenset({"getattr", "setattr", "delattr", "hasattr"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class ProgramRejected(ValueError):
    """A program is refused unseen; `status` is "bad_format", "too_large", "denied" or "nondeterministic"."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(f"{status}: {reason}")
        self.status = status
        self.reason = reason


def check_program(source: str) -> None:
    """Return None if `source` may be run: one top-level `def f` with a parameter, only allowed names in it.

    Helpers, classes and nested functions are allowed. A banned builtin's name may be used for a variable,
    parameter or function of the program's own; at run time the builtin is absent in any case.
    Raises ProgramRejected.
    """
    tree = parse_program(source)
    _check_entry_point(tree)
    own_names = set(_bound_names(tree))
    for node in ast.walk(tree):
        reason = _denial(node, own_names)
        if reason is not None:
            run_dependent = isinstance(node, ast.Name) and node.id in RUN_DEPENDENT
            raise ProgramRejected("nondeterministic" if run_dependent else "denied", reason)


def parse_program(source: str) -> ast.Module:
    """Return the syntax tree of `source`.

    Raises ProgramRejected: "too_large" above MAX_SOURCE_BYTES; "bad_format" for NUL, lone surrogates, a
    syntax error, or nesting beyond MAX_TREE_DEPTH.
    """
    try:
        size = len(source.encode())
    except UnicodeEncodeError:
        raise ProgramRejected("bad_format", "lone surrogate in the program") from None
    if size > MAX_SOURCE_BYTES:
        raise ProgramRejected("too_large", f"program longer than {MAX_SOURCE_BYTES} bytes")
    if "\0" in source:
        raise ProgramRejected("bad_format", "NUL in the program")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of '\d' and of `1 is 1`
            tree = ast.parse(source)
    except SyntaxError as error:
        raise ProgramRejected("bad_format", f"syntax error in line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError):
        raise ProgramRejected("bad_format", "program cannot be parsed") from None
    _check_depth(tree)
    return tree


def _check_depth(tree: ast.AST) -> None:
    level: list[ast.AST] = [tree]
    for _ in range(MAX_TREE_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise ProgramRejected("bad_format", f"program nested deeper than {MAX_TREE_DEPTH}")


def _check_entry_point(tree: ast.Module) -> None:
    """Raise unless `f` is bound once at the top level, by a plain `def` with a parameter."""
    bindings = [node for node in tree.body if "f" in _top_level_names(node)]
    if not bindings:
        raise ProgramRejected("bad_format", "no top-level function f")
    if len(bindings) > 1:
        raise ProgramRejected("bad_format", "f is bound more than once at the top level")
    function = bindings[0]
    if isinstance(function, ast.AsyncFunctionDef):
        raise ProgramRejected("bad_format", "f is async")
    if not isinstance(function, ast.FunctionDef):
        raise ProgramRejected("bad_format", "f is not defined by def")
    arguments = function.args
    if not any((arguments.posonlyargs, arguments.args, arguments.vararg, arguments.kwonlyargs, arguments.kwarg)):
        raise ProgramRejected("bad_format", "f has no parameter")
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _own_nodes(function)):
        raise ProgramRejected("bad_format", "f is a generator")


def _top_level_names(statement: ast.stmt) -> set[str]:
    """Return the names a top-level statement binds outside function and class bodies."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    names = set()
    for node in [statement, *_own_nodes(statement)]:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
    return names


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below `node`, nested functions and classes included but not their bodies."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
            yield from _own_nodes(child)


def _bound_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def _denial(node: ast.AST, own_names: set[str]) -> str | None:
    """Return why a node is denied, or None."""
    if isinstance(node, ast.Import):
        return _first(_module_denial(alias.name) for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        members = (alias.name for alias in node.names if alias.name in BANNED_MEMBERS or _is_dunder(alias.name))
        if node.module == "__future__":
            return None
        return _module_denial("." * node.level + (node.module or "")) or _first(f"import of {m}" for m in members)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in own_names:
        return _name_denial(node.id)
    if isinstance(node, ast.Attribute):
        banned = node.attr in BANNED_ATTRIBUTES or node.attr in BANNED_MEMBERS
        hidden = _is_dunder(node.attr) and node.attr not in DUNDER_ATTRIBUTES
        return f"attribute {node.attr[:40]}" if banned or hidden else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _REFLECTION:
        texts = (a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))
        return _first(f"{text[:40]} by {node.func.id}" for text in texts if _is_dunder(text))
    return None


def _module_denial(name: str) -> str | None:
    return None if name in MODULES else f"import of {name[:40]}"


def _name_denial(name: str) -> str | None:
    return f"use of {name[:40]}" if name in BANNED_BUILTINS or (_is_dunder(name) and name != "__name__") else None


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _first(reasons: Iterator[str | None]) -> str | None:
    return next((reason for reason in reasons if reason is not None), None)
