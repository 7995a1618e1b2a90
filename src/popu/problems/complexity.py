"""How complex a program is: size, depth, lines, variables, cyclomatic complexity; of a text, what compares to that."""

import ast

from radon.complexity import cc_visit

MEASURES = ("n_nodes", "depth", "n_lines", "n_variables", "cyclomatic")
NO_PROGRAM = dict.fromkeys(MEASURES, 0)


def complexity(source: str) -> dict[str, int]:
    """The measures of a program, all >= 1 but for `n_variables`.

    `n_nodes` and `depth` of the AST, `n_lines` without blank ones, `n_variables` distinct names that are assigned or
    parameters, `cyclomatic` summed over functions and classes (radon). Raises SyntaxError if it does not parse.
    """
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    variables = {node.arg for node in nodes if isinstance(node, ast.arg)}
    variables |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return {
        "n_nodes": len(nodes),
        "depth": _depth(tree),
        "n_lines": sum(1 for line in source.splitlines() if line.strip()),
        "n_variables": len(variables),
        "cyclomatic": sum(block.complexity for block in cc_visit(source)) or 1,
    }


def _depth(node: ast.AST) -> int:
    return 1 + max((_depth(child) for child in ast.iter_child_nodes(node)), default=0)


def text_measures(text: str) -> dict[str, int]:
    """The measures of a text that is no program: words as nodes, non-blank lines, distinct words as variables."""
    words = text.split()
    n_lines = sum(1 for line in text.splitlines() if line.strip())
    return {"n_nodes": len(words), "depth": 1, "n_lines": n_lines, "n_variables": len({*words}), "cyclomatic": 1}
