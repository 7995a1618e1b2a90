"""Tables as values, and as CSV, Markdown and LaTeX. A cell is text, a number or an `Estimate`."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from popu.artifacts import atomic_write
from popu.report.statistics import Estimate

Cell = str | int | float | Estimate | None
LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
}
PARTS = ("value", "low", "high", "n_runs", "n_tasks", "p")


@dataclass(frozen=True)
class Table:
    """`rows` have a cell a column; `digits` after the point, `note` says what the numbers are."""

    name: str
    title: str
    note: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    digits: int = 1


def write_tables(directory: Path, tables: Sequence[Table]) -> list[Path]:
    """`<name>.csv`, `.md` and `.tex` of every table."""
    paths = []
    for table in tables:
        for ending, text in (("md", markdown(table)), ("tex", latex(table)), ("csv", comma_separated(table))):
            path = directory / f"{table.name}.{ending}"
            with atomic_write(path) as temporary:
                temporary.write_text(text)
            paths.append(path)
    return paths


def shown(cell: Cell, digits: int = 1) -> str:
    """`12.3 (10.1 to 14.2; 5 x 360)`: value, 95 % interval, runs x tasks; `-` where there is nothing."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.{digits}f}"
    if not isinstance(cell, Estimate):
        return str(cell)
    sizes = f"{cell.n_runs} x {cell.n_tasks}"
    if cell.low is None or cell.high is None:
        return f"{cell.value:.{digits}f} ({sizes})"
    return f"{cell.value:.{digits}f} ({cell.low:.{digits}f} to {cell.high:.{digits}f}; {sizes})"


def markdown(table: Table) -> str:
    """The title, the table and the note."""
    lines = [f"## {table.title}", "", _row(table.columns), _row(["---"] * len(table.columns))]
    lines += [_row([shown(cell, table.digits).replace("|", "\\|") for cell in row]) for row in table.rows]
    return "\n".join([*lines, "", table.note, ""])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def latex(table: Table) -> str:
    """A `table` environment for the booktabs package."""
    body = [" & ".join(escaped(shown(cell, table.digits)) for cell in row) + r" \\" for row in table.rows]
    lines = [
        r"\begin{table}",
        rf"\caption{{{escaped(table.title)}. {escaped(table.note)}}}",
        rf"\begin{{tabular}}{{{'l' * len(table.columns)}}}",
        r"\toprule",
        " & ".join(map(escaped, table.columns)) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Text for LaTeX."""
    return "".join(LATEX.get(c, c) for c in text)


def comma_separated(table: Table) -> str:
    """One row a cell that is an estimate, in long form with all its numbers; others in its first columns."""
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    keys = [i for i in range(len(table.columns)) if not any(isinstance(row[i], Estimate) for row in table.rows)]
    writer.writerow(
        [*(table.columns[i] for i in keys), "column", *PARTS] if len(keys) < len(table.columns) else table.columns
    )
    for row in table.rows:
        if len(keys) == len(table.columns):
            writer.writerow(["" if cell is None else cell for cell in row])
            continue
        for i, cell in enumerate(row):
            if isinstance(cell, Estimate):
                values: Mapping[str, object] = vars(cell)
                parts = ["" if values[part] is None else values[part] for part in PARTS]
                writer.writerow([*("" if row[k] is None else row[k] for k in keys), table.columns[i], *parts])
    return out.getvalue()
