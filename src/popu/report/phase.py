"""The phase diagram: what becomes of self-play by base, learning rate and team, from finished runs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib import pyplot as plt

from popu.base import read_card
from popu.config import Run
from popu.report import figures
from popu.report.evidence import REFERENCE, Arm, read_arms, scores
from popu.report.statistics import difference
from popu.report.tables import Table, write_tables
from popu.rundir import RunDirectory

Outcome = Literal["collapse", "narrowing", "race", "learning", "neither"]
OUTCOMES: tuple[Outcome, ...] = ("collapse", "narrowing", "race", "learning", "neither")
COLOURS = dict(zip(OUTCOMES, ("#D55E00", "#E69F00", "#56B4E9", "#009E73", "#DDDDDD"), strict=True))  # Okabe and Ito
WINDOW = 10  # steps at either end of a run, or a quarter of one that is short
RISE, EASIER, HARDER, NARROWER = 0.1, 0.9, 1.1, 0.6  # see `outcome_of`


@dataclass(frozen=True)
class Course:
    """The ends of a run: means over its first and its last steps.

    Args:
        early_rho, late_rho: solve rate of valid problems.
        nodes: late over early syntax nodes of written programs.
        unique: late over early share of distinct programs.
        gain, gain_low: the students' held-out accuracy minus the base's in points, and the low end of its 95 %
            interval over tasks; None where it was not scored.
    """

    early_rho: float
    late_rho: float
    nodes: float
    unique: float
    gain: float | None
    gain_low: float | None


def outcome_of(course: Course) -> Outcome:
    """What a run came to; the first that fits.

    - `collapse`: problems become easier: the solve rate rises by at least 0.1 while syntax nodes fall by 10 % or more;
    - `narrowing`: at most 0.6 of the share of distinct programs is left;
    - `race`: syntax nodes rise by 10 % or more, while the solve rate rises by less than 0.1;
    - `learning`: held-out accuracy rises (the 95 % interval over tasks lies above 0);
    - `neither`: none of these.

    The thresholds are ours. One run each: an outcome is a description, not a test.
    """
    rise = course.late_rho - course.early_rho
    if rise >= RISE and course.nodes <= EASIER:
        return "collapse"
    if course.unique <= NARROWER:
        return "narrowing"
    if course.nodes >= HARDER and rise < RISE:
        return "race"
    if course.gain_low is not None and course.gain_low > 0:
        return "learning"
    return "neither"


def course_of(metrics: Sequence[Mapping[str, Any]], gain: tuple[float, float] | None) -> Course | None:
    """From rows of steps and (gain, its low end); None where a metric is missing at an end of the run."""
    window = min(WINDOW, max(1, len(metrics) // 4))
    ends: list[dict[str, float]] = []
    for part in (metrics[:window], metrics[-window:]):
        known = {name: [row[name] for row in part if name in row] for name in ("solve_rate", "n_nodes", "unique_share")}
        if not all(known.values()):
            return None
        ends.append({name: float(np.mean(values)) for name, values in known.items()})
    early, late = ends
    return Course(
        early["solve_rate"],
        late["solve_rate"],
        late["n_nodes"] / early["n_nodes"],
        late["unique_share"] / early["unique_share"],
        *(gain or (None, None)),
    )


# --- runs --------------------------------------------------------------------------------------------------------


def phase_rows(arms: Iterable[Arm]) -> list[dict[str, Any]]:
    """A row a run that has metrics: base, slip_share (None where its card names none), learning_rate, team, arm, seed,
    outcome, and the fields of `Course`."""
    rows = []
    for arm in arms:
        for seed, run in arm.runs.items():
            course = course_of(arm.metrics[seed], _gain(arm, seed))
            if course is None:
                continue
            rows.append({**_place(run), "arm": arm.name, "seed": seed, "outcome": outcome_of(course), **asdict(course)})
    return rows


def _place(run: RunDirectory) -> dict[str, Any]:
    settings = run.settings
    card = read_card(Path(settings.base.path))
    slip_share = card.get("slip_share") if card.get("sha256") == settings.base_sha256 else None
    rate = settings.training.update.learning_rate
    return {
        "base": settings.base_sha256[:8],
        "slip_share": slip_share,
        "learning_rate": rate,
        "team": team_of(settings),
    }


def team_of(settings: Run) -> str:
    """`single` or `4t4s`, where the arm's name begins with it (`4t4s_slow` is that team at another rate); else the name
    of the arm, which differs in more."""
    population = settings.training.population
    team = REFERENCE if population.kind == "single" else f"{population.n_teachers}t{population.n_students}s"
    return team if settings.arm == team or settings.arm.startswith(f"{team}_") else settings.arm


def _gain(arm: Arm, seed: int) -> tuple[float, float] | None:
    if seed not in arm.heldout:
        return None
    students, base = ({seed: scores(arm, "all", group)[seed]} for group in ("students", "base"))
    found = difference(students, base)
    return None if found is None or found.low is None else (found.value, found.low)


def phase_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A row a run."""
    columns = ["base", "slip share", "learning rate", "team", "arm", "seed", "outcome"]
    columns += [
        "initial rho",
        "late rho",
        "nodes, late / early",
        "distinct, late / early",
        "held-out gain",
        "its low end",
    ]
    names = ("early_rho", "late_rho", "nodes", "unique", "gain", "gain_low")
    cells = [
        [
            *(row["base"], row["slip_share"], f"{row['learning_rate']:g}", row["team"], row["arm"], row["seed"]),
            *(row["outcome"], *(row[name] for name in names)),
        ]
        for row in rows
    ]
    note = (
        f"Early and late: means over the first and the last {WINDOW} steps (a quarter of a short run). collapse: rho "
        f"rises by {RISE} or more and syntax nodes fall to {EASIER} or less; narrowing: {NARROWER} or less of the "
        f"share of distinct programs is left; race: nodes rise to {HARDER} or more and rho rises by less than {RISE}; "
        "learning: held-out accuracy (points, 95 % interval over tasks) rises; else neither; the first that fits. "
        "slip share: of wrong answers in the base's pretraining."
    )
    return Table("phase", "What every run came to", note, columns, cells, digits=2)


# --- the diagram -------------------------------------------------------------------------------------------------


def phase_figure(rows: Sequence[Mapping[str, Any]]) -> Any:
    """A panel a team, bases up, learning rates along; a cell is named and coloured by its commonest outcome.

    Below the name: in how many of the cell's runs, and mean rho from early to late. `rows` of `phase_rows`, not empty.
    """
    bases = sorted({_base_key(row) for row in rows}, key=lambda key: (key[0] is None, key))
    rates = sorted({row["learning_rate"] for row in rows})
    teams = list(dict.fromkeys(row["team"] for row in rows))
    size = (1.3 + (0.35 + 1.25 * len(rates)) * len(teams), 1.9 + 0.85 * len(bases))
    figure, axes = plt.subplots(1, len(teams), figsize=size, constrained_layout=True, sharey=True, squeeze=False)
    for axis, team in zip(axes[0], teams, strict=True):
        for y, base in enumerate(bases):
            for x, rate in enumerate(rates):
                own = [r for r in rows if (_base_key(r), r["learning_rate"], r["team"]) == (base, rate, team)]
                _cell(axis, x, y, own)
        axis.set(xlim=(-0.5, len(rates) - 0.5), ylim=(-0.5, len(bases) - 0.5), xlabel="learning rate")
        axis.set_title(team, fontsize=10)
        axis.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
        axis.set_yticks(range(len(bases)), [_base_label(base, rows) for base in bases], fontsize=8)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
    axes[0, 0].set_ylabel("base")
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[name]) for name in OUTCOMES]
    figure.legend(handles, OUTCOMES, loc="outside lower center", ncols=len(OUTCOMES), frameon=False, fontsize=8)
    return figure


def _base_key(row: Mapping[str, Any]) -> tuple[float | None, str]:
    return row["slip_share"], row["base"]


def _base_label(base: tuple[float | None, str], rows: Sequence[Mapping[str, Any]]) -> str:
    rho = float(np.mean([row["early_rho"] for row in rows if _base_key(row) == base]))
    share = base[1] if base[0] is None else f"{100 * base[0]:.0f} % slips"
    return f"{share}\ninitial rho {rho:.2f}"


def _cell(axis: Any, x: int, y: int, runs: Sequence[Mapping[str, Any]]) -> None:
    if not runs:
        axis.text(x, y, "not run", ha="center", va="center", fontsize=7, color="0.5")
        return
    counts = Counter(run["outcome"] for run in runs)
    name = max(OUTCOMES, key=lambda outcome: counts[outcome])
    axis.add_patch(plt.Rectangle((x - 0.47, y - 0.45), 0.94, 0.9, color=COLOURS[name]))
    early, late = (float(np.mean([run[end] for run in runs])) for end in ("early_rho", "late_rho"))
    text = f"{name}\n{counts[name]} of {len(runs)}\nrho {early:.2f} to {late:.2f}"
    axis.text(x, y, text, ha="center", va="center", fontsize=7.5, color="black")


def write_phase(experiments: Sequence[Path], out: Path) -> list[dict[str, Any]]:
    """`phase.csv`, `.md`, `.tex`, `.png` and `.svg` of the runs of some experiments, by base, rate, team and seed.

    Raises ArtifactError where an experiment has no run.
    """
    found = [row for experiment in experiments for row in phase_rows(read_arms(experiment).values())]
    rows = sorted(found, key=lambda row: (row["slip_share"] is None, *_order(row)))
    write_tables(out, [phase_table(rows)])
    if rows:
        figures.save(phase_figure(rows), out, "phase")
    return rows


def _order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        row["slip_share"] or 0.0,
        row["base"],
        row["learning_rate"],
        row["team"] != REFERENCE,
        row["arm"],
        row["seed"],
    )
