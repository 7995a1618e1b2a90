"""When two programs or problems count as the same: names and constants are normalised away.

The normal form also splits the grammar's programs into those that pretraining may see and those held out, so a change
here makes the embedded base's held-out scores meaningless: it is frozen together with the base.
"""

import ast
import builtins
import hashlib
import re
from functools import lru_cache

_BUILTINS = frozenset(dir(builtins))
_LONG_INTEGER = re.compile(r"[0-9]{4301,}")  # beyond what `ast.parse` reads, within what canonical text writes


@lru_cache(maxsize=4096)  # a prompt's references are compared with each of its proposals
def normal_form(source: str) -> str:
    """The program with names numbered by first appearance, constants replaced by their type, annotations dropped.

    Builtins, attributes, keyword names and imported modules keep their names. Raises SyntaxError if `source` does not
    parse.
    """
    tree = ast.parse(source)
    return ast.unparse(ast.fix_missing_locations(_Normalise().visit(tree)))


def program_key(source: str) -> str:
    """16 hex digits that two programs share when their normal forms are equal."""
    return _digest(normal_form(source))


def problem_key(program: str, arguments_text: str) -> str:
    """16 hex digits that two problems share when program and argument list have equal normal forms.

    Constants of the arguments are replaced by their type too; containers keep their structure.
    """
    readable = _LONG_INTEGER.sub("1", arguments_text)
    return _digest(normal_form(program) + "\n---\n" + normal_form(f"f({readable})"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class _Normalise(ast.NodeTransformer):
    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.kept = set(_BUILTINS)

    def _rename(self, name: str) -> str:
        return name if name in self.kept else self.names.setdefault(name, f"v{len(self.names)}")

    def visit_Import(self, node: ast.Import) -> ast.AST:
        self.kept.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        self.kept.update(alias.asname or alias.name for alias in node.names)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name, node.returns = self._rename(node.name), None
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self._rename(node.name)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(arg=self._rename(node.arg), annotation=None)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(id=self._rename(node.id), ctx=node.ctx)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.Pass()
        return self.generic_visit(ast.Assign(targets=[node.target], value=node.value))

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = self._rename(node.name) if node.name else None
        return self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        parts = (ast.Constant("_str") if isinstance(part, ast.Constant) else self.visit(part) for part in node.values)
        return ast.JoinedStr(list(parts))

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Name(id=f"_{type(node.value).__name__}", ctx=ast.Load())
