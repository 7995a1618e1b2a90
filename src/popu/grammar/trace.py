"""The intermediate values of a grammar program's run: what a careful reader would jot down on the way to the output."""

import ast
import copy
from typing import cast

from popu.grammar.examples import define

_SILENT_CALLS = ("f", "g", "range")  # a helper's own operations are noted, a range is no value


def trace(source: str, arguments: tuple[object, ...]) -> list[object]:
    """Values of the operations outside conditions, in order of evaluation, the run's output left out at the end.

    `source` is a grammar program. Raises what it raises.
    """
    values: list[object] = []

    def note(value: object) -> object:
        if isinstance(value, (int, str, list, dict)):
            values.append(copy.deepcopy(value))
        return value

    tree = ast.fix_missing_locations(_Noting().visit(ast.parse(source)))
    output = define(tree, **{_NOTE: note})(*copy.deepcopy(arguments))
    if values and values[-1] == output:
        values.pop()
    return values


_NOTE = "_note"


class _Noting(ast.NodeTransformer):
    """Wraps every operation in a call of `_note`."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        return self._noted(node)

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        node.generators = [self.visit(generator) for generator in node.generators]
        return _call(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return self._noted(node) if isinstance(node.ctx, ast.Load) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        silent = isinstance(node.func, ast.Name) and node.func.id in _SILENT_CALLS
        return self.generic_visit(node) if silent else self._noted(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        target = cast(ast.Name, node.target)
        current = ast.Name(target.id, ast.Load())
        return ast.Assign([target], self._noted(ast.BinOp(current, node.op, node.value)))

    def _noted(self, node: ast.expr) -> ast.Call:
        self.generic_visit(node)
        return _call(node)


def _call(node: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(_NOTE, ast.Load()), [node], [])
