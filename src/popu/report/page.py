"""The report of an experiment: tables, figures, and one self-contained page to read from top to bottom.

Nothing is fetched when the page is opened. Text that a model wrote is escaped; the page's policy forbids every script
but the one that sorts tables.
"""

import base64
import hashlib
import html
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from popu.artifacts import atomic_write, read_table
from popu.problems.types import pair_lines
from popu.report import figures
from popu.report.benchmarks import ablation_table, benchmark_tables
from popu.report.claims import claims, claims_table
from popu.report.crossplay import culls_table, round_robin_table, solve_rates
from popu.report.evidence import (
    GROUPS,
    POPULATION,
    Arm,
    cost_table,
    difference_table,
    iqm_table,
    main_table,
    read_arms,
    scores,
)
from popu.report.lineage import last_ratings, lineage_of
from popu.report.members import children_table, specialisation_table, together_estimates
from popu.report.phase import phase_figure, phase_rows, phase_table
from popu.report.statistics import mean
from popu.report.tables import Table, shown, write_tables
from popu.report.tree import lineage_figure
from popu.rundir import RunDirectory

SORT = """
for (const head of document.querySelectorAll('th button')) head.onclick = () => {
  const cell = head.parentElement, table = cell.closest('table'), column = cell.cellIndex;
  const rising = cell.getAttribute('aria-sort') !== 'ascending';
  for (const other of table.querySelectorAll('th')) other.removeAttribute('aria-sort');
  cell.setAttribute('aria-sort', rising ? 'ascending' : 'descending');
  const key = row => { const text = row.cells[column].textContent, number = parseFloat(text.replace(/,/g, ''));
    return isNaN(number) ? text : number; };
  const compare = (x, y) => typeof x !== typeof y ? (typeof x === 'number' ? -1 : 1) : x < y ? -1 : x > y ? 1 : 0;
  const rows = [...table.tBodies[0].rows].sort((a, b) => compare(key(a), key(b)) * (rising ? 1 : -1));
  table.tBodies[0].append(...rows);
};
"""
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; font-size: 0.85rem; display: block; overflow-x: auto; }
th, td { padding: 0.25rem 0.6rem; text-align: left; border-bottom: 1px solid #ddd; vertical-align: top; }
th button { all: unset; cursor: pointer; font-weight: bold; }
th button:focus-visible { outline: 2px solid #0072b2; }
th[aria-sort=ascending] button::after { content: ' \\2191'; }
th[aria-sort=descending] button::after { content: ' \\2193'; }
img { max-width: 100%; } figure { margin: 1.5rem 0; } figcaption, .note { color: #555; font-size: 0.9rem; }
pre { background: #f5f5f5; padding: 0.6rem; overflow-x: auto; font-size: 0.8rem; }
nav a { margin-right: 1rem; }
.examples { display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: 1rem; }
"""


def write_report(experiment: Path, out: Path) -> None:
    """`tables/`, `figures/` and index.html in `out`. Raises ArtifactError where there is no run."""
    arms = read_arms(experiment)
    path = experiment / "crossplay.parquet"
    cross = read_table(path, "crossplay") if path.exists() else []
    tables = [claims_table(claims(arms)), main_table(arms), difference_table(arms), difference_table(arms, POPULATION)]
    tables += [iqm_table(arms), ablation_table(arms)]
    tables += [specialisation_table(arms), children_table(arms), culls_table(arms, cross), cost_table(arms)]
    if cross:
        tables.append(round_robin_table(arms, cross))
    tables += [*benchmark_tables(arms), phase_table(phase_rows(arms.values()))]
    pictures = list(_figures(arms, cross, out / "figures"))
    write_tables(out / "tables", tables)
    with atomic_write(out / "index.html") as file:
        file.write_text(page(experiment.name, arms, tables, pictures))


Picture = tuple[Path, str, str]
"""PNG, title, caption."""


def _figures(arms: Mapping[str, Arm], cross: Sequence[Mapping[str, Any]], directory: Path) -> Iterator[Picture]:
    metrics = {name: arm.metrics for name, arm in arms.items()}
    path = figures.save(figures.dynamics_figure(metrics), directory, "dynamics")[0]
    yield path, "Dynamics", "Thin: runs. Thick: mean over runs. Running means over 5 steps."
    if cross:
        path = figures.save(figures.crossplay_figure(solve_rates(cross)), directory, "crossplay")[0]
        yield path, "Cross-play", "Solve rate of the column's students on the row's problems, all seeds."
    estimates = {
        name: {g: mean(values) for g in GROUPS if g != "base" and (values := scores(arm, "all", g))}
        for name, arm in arms.items()
        if arm.heldout
    }
    if estimates:
        bare = mean(scores(arms[next(iter(estimates))], "all", "base"))
        path = figures.save(figures.heldout_figure(estimates, bare), directory, "heldout")[0]
        yield path, "Held-out accuracy", "All tasks, temperature 1; 95 % intervals over runs and tasks."
    shared = {name: together_estimates(arm) for name, arm in arms.items() if arm.heldout}
    if shared:
        path = figures.save(figures.together_figure(shared), directory, "together")[0]
        yield path, "Students alone and together", TOGETHER
    weights = {name: arm.weights for name, arm in arms.items() if any(arm.weights.values())}
    if weights:
        path = figures.save(figures.weights_figure(weights), directory, "weights")[0]
        yield path, "Members in weight space", WEIGHTS
    if outcomes := phase_rows(arms.values()):
        path = figures.save(phase_figure(outcomes), directory, "phase")[0]
        yield path, "What the runs came to", PHASE
    for arm in arms.values():
        yield from _figures_of_arm(arm, directory)


TOGETHER = (
    "Chance that one of equally many answers is right, all of one student or shared among all; tasks where more than "
    "half of all samples are right; tasks that no sample solves. 95 % intervals over runs and tasks."
)
WEIGHTS = (
    "At checkpoints, over all adapted modules: Frobenius norm of dW, mean distance to the others of the role, and "
    "effective rank (mean over modules). Thin: runs. Thick: mean over runs. A single agent is drawn in both rows."
)
PHASE = (
    "The commonest outcome of a team's runs by base (share of slips in pretraining, and rho in the first steps) and "
    "learning rate; the table of that name has the criteria."
)
LINEAGE = (
    "Seed {seed}. A bar is a member from birth to death, a dot a birth with its operator; a line leads to it from its "
    "parent (ring; dashed: the second). Colour and number: {measure}."
)


def _figures_of_arm(arm: Arm, directory: Path) -> Iterator[Picture]:
    """Of the first seed: ratings, lineage, skills."""
    seed, run = next(iter(arm.runs.items()))
    if len(run.state(0).adapters) > 1:
        figure = figures.ratings_figure(arm.members[seed], arm.births[seed])
        path = figures.save(figure, directory, f"ratings-{arm.name}")[0]
        yield path, f"Ratings of {arm.name}", f"Seed {seed}. A dot is a birth, named by its operator."
        members = lineage_of(run.path)["members"]
        ratings = last_ratings(arm.members[seed])
        measure = "rating mu in the last step of its life"
        figure = lineage_figure(members, ratings, run.last_step() or 0, "last rating mu", "TrueSkill points")
        path = figures.save(figure, directory, f"lineage-{arm.name}")[0]
        yield path, f"Lineage of {arm.name}", LINEAGE.format(seed=seed, measure=measure)
    if len(arm.heldout.get(seed, [])):
        figure = figures.specialisation_figure(*_specialisation(arm.heldout[seed]))
        path = figures.save(figure, directory, f"members-{arm.name}")[0]
        yield path, f"Members of {arm.name}", f"Seed {seed}: held-out accuracy by type and level, temperature 1."


def _specialisation(rows: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, list[str], list[str]]:
    """Accuracy in % (members, columns): types, then pairs of levels."""
    members = list(dict.fromkeys(row["member"] for row in rows))
    levels = sorted({row["level"] for row in rows})
    columns = {
        str(t): [row for row in rows if row["problem_type"] == t]
        for t in dict.fromkeys(row["problem_type"] for row in rows)
    }
    columns |= {f"level {level}": [row for row in rows if row["level"] == level] for level in levels}
    columns = {name: own for name, own in columns.items() if own}
    table = np.array(
        [
            [
                100 * np.mean([row["n_correct"] / row["samples"] for row in own if row["member"] == member])
                for own in columns.values()
            ]
            for member in members
        ]
    )
    return table, members, list(columns)


# --- the page ----------------------------------------------------------------------------------------------------


def page(name: str, arms: Mapping[str, Arm], tables: Sequence[Table], pictures: Sequence[Picture]) -> str:
    """The HTML document."""
    digest = base64.b64encode(hashlib.sha256(SORT.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    sections = {
        "What was run": _runs(arms),
        **{table.title: _table(table) for table in tables},
        "Figures": "".join(_picture(picture) for picture in pictures),
        "Example problems": "".join(_examples(arm) for arm in arms.values()),
        "Lineage": "".join(_lineage(arm) for arm in arms.values()),
    }
    links = "".join(f'<a href="#s{i}">{html.escape(title)}</a>' for i, title in enumerate(sections))
    body = "".join(
        f'<section id="s{i}"><h2>{html.escape(title)}</h2>{text}</section>'
        for i, (title, text) in enumerate(sections.items())
    )
    title = html.escape(f"PopuLoRA: {name}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"<body><h1>{title}</h1><nav>{links}</nav>{body}<script>{SORT}</script></body></html>\n"
    )


def _table(table: Table) -> str:
    rows = [[shown(cell, table.digits) for cell in row] for row in table.rows]
    return _html_table(table.columns, rows) + f'<p class="note">{html.escape(table.note)}</p>'


def _html_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col"><button>{html.escape(c)}</button></th>' for c in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _runs(arms: Mapping[str, Arm]) -> str:
    rows = []
    for arm in arms.values():
        settings = next(iter(arm.runs.values())).settings
        population, proposals = settings.training.population, settings.training.proposals
        team = f"{population.n_teachers} + {population.n_students}" if population.kind == "teams" else "1 in both roles"
        steps = " ".join(str(run.last_step()) for run in arm.runs.values())
        rollouts = settings.training.rollouts.per_problem
        shape = f"{proposals.prompts_per_type} x {proposals.proposals_per_prompt} x {rollouts}"
        seeds = " ".join(map(str, arm.runs))
        rate = f"{settings.training.update.learning_rate:g}"
        rows.append([arm.name, team, seeds, steps, shape, rate, settings.base_sha256[:12]])
    columns = ["arm", "teachers + students", "seeds", "steps", "prompts a type x proposals x rollouts", "rate", "base"]
    return _html_table(columns, rows)


def _picture(picture: Picture) -> str:
    path, title, caption = picture
    data = base64.b64encode(path.read_bytes()).decode()
    alt = html.escape(title)
    return (
        f'<figure><img alt="{alt}" src="data:image/png;base64,{data}">'
        f"<figcaption>{alt}. {html.escape(caption)}</figcaption></figure>"
    )


def _examples(arm: Arm) -> str:
    """The commonest valid written program of the first and of the last step of the first run."""
    seed, run = next(iter(arm.runs.items()))
    blocks = []
    for step in sorted({1, run.last_step() or 1}):
        found = _commonest(run, step)
        if found is not None:
            problem, n, n_valid, rho = found
            caption = (
                f"step {step}: {n} of {n_valid} valid written programs; rho {'-' if rho is None else f'{rho:.2f}'}"
            )
            text = f"{problem['program']}\n\n{pair_lines(problem)[0]}"
            blocks.append(f"<div><p>{html.escape(caption)}</p><pre>{html.escape(text)}</pre></div>")
    title = f"{arm.name}, seed {seed}: the commonest program"
    return f'<h3>{html.escape(title)}</h3><div class="examples">{"".join(blocks)}</div>'


def _commonest(run: RunDirectory, step: int) -> tuple[Mapping[str, Any], int, int, float | None] | None:
    problems = run.table(step, "validate", "problems")
    written = [row for row in problems if row["status"] == "ok" and row["problem_type"] != "code_f"]
    if not written:
        return None
    keys = [row["program_key"] for row in written]
    key = max(dict.fromkeys(keys), key=keys.count)
    problem = written[keys.index(key)]
    rho = {row["problem_id"]: row["rho"] for row in run.table(step, "verify", "outcomes")}
    return problem, keys.count(key), len(written), rho[problem["problem_id"]]


def _lineage(arm: Arm) -> str:
    seed, run = next(iter(arm.runs.items()))
    rows = [
        [
            row["member"],
            f"{row['born_step']} to {'now' if row['died_step'] is None else row['died_step']}",
            row["operator"] or "founder",
            " ".join(row["parents"]) or "-",
            " ".join(row["children"]) or "-",
        ]
        for row in lineage_of(run.path)["members"]
    ]
    if len(rows) < 2:
        return ""
    columns = ["member", "lived", "operator", "parents", "children"]
    return f"<h3>{html.escape(f'{arm.name}, seed {seed}')}</h3>{_html_table(columns, rows)}"
