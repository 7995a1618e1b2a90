"""evolve: rate the pairs of this step and, every k steps, replace the weakest by children.

Reads outcomes, matches, the population before and the adapters after the update; writes population.json (the state
after this step), children/<slot>/ for the newborn and lineage.parquet.
"""

from dataclasses import replace
from pathlib import Path

import torch

from popu import artifacts
from popu.evolution.registry import get_operator
from popu.evolution.selection import Replacement, plan_replacements
from popu.population.adapter import read_adapter, write_adapter
from popu.population.lineage import lineage_rows
from popu.population.member import Member, Population, version_name
from popu.population.ratings import PairResult, rate_pairs
from popu.rundir import RunDirectory, State
from popu.seeds import derive_rng, derive_seed
from popu.stages.backend import Backend
from popu.stages.common import adapter_files, member_card, population_of, selection_config
from popu.stages.retention import apply_retention


def evolve(run: RunDirectory, step: int, backend: Backend) -> None:
    """See the module."""
    config = run.settings.training
    before = _trained(population_of(run.state(step - 1)), step)
    rated = rate_pairs(before, pair_results(run, step))
    plan: list[Replacement] = []
    if config.evolution.every and step % config.evolution.every == 0:
        rng = derive_rng(run.settings.seed, step, "evolve")
        plan = plan_replacements(rated, step, selection_config(run.settings), rng)
    after = rated
    for birth in plan:
        after = after.with_member(birth.child)
    outputs = [path for birth in plan for path in _make_child(run, step, birth)]
    lineage_path = run.step(step) / "lineage.parquet"
    artifacts.write_table(lineage_path, "lineage", lineage_rows(step, rated, after))
    state_path = run.write_state(step, _state_after(after, step, plan, config.evolution.optimizer == "inherited"))
    apply_retention(run, step)
    run.finish(step, "evolve", [*outputs, lineage_path, state_path])


def pair_results(run: RunDirectory, step: int) -> list[PairResult]:
    """One result a match: the mean rho of the teacher's valid problems, None where it had none.

    A match of which the infrastructure lost every problem is left out: it says nothing of either.
    """
    n = run.settings.training.rollouts.per_problem
    outcomes = run.table(step, "verify", "outcomes")
    results = []
    for match in run.json(step, "propose", "matches.json"):
        own = [row for row in outcomes if row["slot"] == match["teacher"]]
        rhos = [row["rho"] for row in own if row["rho"] is not None]
        if not rhos and any(row["status"] == "infrastructure" for row in own):
            continue
        solve_rate = sum(rhos) / len(rhos) if rhos else None
        pair = (match["teacher"], match["student"], match["p"])
        results.append(PairResult(*pair, solve_rate, n * len(rhos)))
    return results


def _trained(population: Population, step: int) -> Population:
    """Every member in its version after this step's update: a name that is never reused."""
    return Population(tuple(replace(m, version=version_name(m.id, step)) for m in population.members))


def _make_child(run: RunDirectory, step: int, birth: Replacement) -> list[Path]:
    """Applies the operator to the parents as the update left them."""
    directory = run.step(step)
    for slot in birth.parent_slots:
        artifacts.verified(directory, "update", f"adapters/{slot}/adapter_model.safetensors")
    parents = [read_adapter(directory / "adapters" / slot) for slot in birth.parent_slots]
    seed = derive_seed(run.settings.seed, step, "child", birth.slot)
    child = get_operator(birth.operator).apply(parents, torch.Generator().manual_seed(seed))
    target = directory / "children" / birth.slot
    write_adapter(target, child, run.settings.base.path, _card(run, step, birth.child, seed))
    return adapter_files(target)


def _card(run: RunDirectory, step: int, child: Member, seed: int) -> dict[str, object]:
    constants = dict(get_operator(str(child.operator)).constants)
    card = member_card(child, step, run.run_hash, run.settings.seed)
    return {**card, "operator_constants": constants, "operator_seed": seed}


def _state_after(population: Population, step: int, plan: list[Replacement], inherited: bool) -> State:
    """The state with the newborn; with `inherited`, their optimizers go on from their first parents' moments."""
    directory = f"step{step:05d}"
    slots = [member.slot for member in population.members]
    adapters = {slot: f"{directory}/adapters/{slot}" for slot in slots}
    optimizers: dict[str, str | None] = {slot: f"{directory}/optimizer/{slot}.safetensors" for slot in slots}
    first_parents = {birth.slot: birth.parent_slots[0] for birth in plan}
    adapters |= {slot: f"{directory}/children/{slot}" for slot in first_parents}
    optimizers |= {slot: optimizers[parent] if inherited else None for slot, parent in first_parents.items()}
    return State(population.to_json(), adapters, optimizers)
