"""The graded levels of the grammar, and the level of any program measured from its AST.

The levels are frozen: the embedded base was pretrained on `PRETRAINING_LEVELS`, and `UNSEEN_LEVELS` were left out of
its pretraining altogether.
"""

import ast

LEVELS = {
    1: "arithmetic",
    2: "conditionals",
    3: "strings",
    4: "lists",
    5: "loops",
    6: "dicts",
    7: "helper functions",
    8: "nesting",
    9: "nested loops",
    10: "helpers with control flow",
}
UNSEEN_LEVELS = (9, 10)
PRETRAINING_LEVELS = tuple(level for level in LEVELS if level not in UNSEEN_LEVELS)
HARDEST_LEVELS = (8, 9, 10)

_STRING_METHODS = {
    "upper",
    "lower",
    "replace",
    "count",
    "find",
    "strip",
    "split",
    "join",
    "startswith",
    "endswith",
}
_DICT_METHODS = {"get", "items", "values", "keys", "update", "setdefault"}
_LIST_METHODS = {"append", "extend", "insert", "sort", "reverse"}
_LIST_FUNCTIONS = {"sorted", "sum", "list", "reversed", "zip", "enumerate", "map", "filter"}
_LOOPS = (ast.For, ast.While)
_BRANCHES = (ast.If, ast.IfExp)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def measure_level(source: str) -> int:
    """The level of a program: that of the hardest feature in it.

    Raises SyntaxError if `source` does not parse.
    """
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    helpers = [function for function in functions if function.name != "f"]
    nodes = list(ast.walk(tree))
    if any(_contains(helper, (*_LOOPS, *_BRANCHES, *_COMPREHENSIONS)) for helper in helpers):
        return 10
    if any(_contains(loop, _LOOPS) for loop in nodes if isinstance(loop, _LOOPS)):
        return 9
    if any(_contains(node, _BRANCHES) for node in nodes if isinstance(node, (*_LOOPS, ast.If)) and not _is_elif(node)):
        return 8
    if helpers:
        return 7
    if _uses(nodes, (ast.Dict,), _DICT_METHODS, set()) or _stores_string_key(nodes):
        return 6
    if any(isinstance(node, _LOOPS) for node in nodes):
        return 5
    if _uses(nodes, (ast.List, *_COMPREHENSIONS), _LIST_METHODS, _LIST_FUNCTIONS):
        return 4
    if _uses(nodes, (ast.JoinedStr, ast.Slice, ast.Subscript), _STRING_METHODS, {"len", "str"}) or _has_string(nodes):
        return 3
    if any(isinstance(node, _BRANCHES) for node in nodes):
        return 2
    return 1


def _contains(node: ast.AST, kinds: tuple[type, ...]) -> bool:
    return any(isinstance(inner, kinds) for inner in ast.walk(node) if inner is not node)


def _is_elif(node: ast.AST) -> bool:
    """An `if` whose only inner branches are a chain of `elif` is not nested."""
    if not isinstance(node, ast.If):
        return False
    inner = [*node.body, node.test]
    if not (len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)):
        inner += node.orelse
    return not any(isinstance(child, _BRANCHES) or _contains(child, _BRANCHES) for child in inner)


def _uses(nodes: list[ast.AST], kinds: tuple[type, ...], methods: set[str], functions: set[str]) -> bool:
    for node in nodes:
        if isinstance(node, kinds):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
            return True
    return False


def _stores_string_key(nodes: list[ast.AST]) -> bool:
    return any(
        isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
        for node in nodes
    )


def _has_string(nodes: list[ast.AST]) -> bool:
    return any(isinstance(node, ast.Constant) and isinstance(node.value, str) for node in nodes)
