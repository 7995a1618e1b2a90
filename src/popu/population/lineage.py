"""Births and deaths as rows, and what can be read from them."""

from collections.abc import Iterable, Mapping
from typing import Any

from popu.population.member import Population


def lineage_rows(step: int, before: Population, after: Population) -> list[dict[str, Any]]:
    """One row per birth between two states of the population, in the order of `after`.

    Keys: step, slot, child, parents (ids), operator, mu, sigma (the child's, at birth), replaced,
    age_at_death (steps), replaced_mu, replaced_sigma. The last four are None for a founder (`before` without
    the slot).

    Raises:
        ValueError: a slot vanished, or a child names a parent that was not alive in `before`.
    """
    living = {member.id for member in before.members}
    old_by_slot = {member.slot: member for member in before.members}
    if vanished := sorted(set(old_by_slot) - {member.slot for member in after.members}):
        raise ValueError(f"after: expected every slot of before, found none for {vanished}")
    rows: list[dict[str, Any]] = []
    for child in after.members:
        old = old_by_slot.get(child.slot)
        if old is not None and old.id == child.id:
            continue
        if unknown := [parent for parent in child.parents if parent not in living]:
            raise ValueError(f"parents of {child.id}: expected members of before, found {unknown}")
        row = {"step": step, "slot": child.slot, "child": child.id, "parents": list(child.parents)}
        row |= {"operator": child.operator, "mu": child.mu, "sigma": child.sigma}
        row |= {"replaced": old.id if old else None, "age_at_death": step - old.born_step if old else None}
        row |= {"replaced_mu": old.mu if old else None, "replaced_sigma": old.sigma if old else None}
        rows.append(row)
    return rows


def ancestry(rows: Iterable[Mapping[str, Any]], member_id: str) -> list[str]:
    """Ids of all ancestors of `member_id`, parents first, then grandparents; each once, the member itself
    excluded.

    A member without a row of its own but named in another's (a founder of a run that logs no founders) has
    none.

    Raises:
        ValueError: no row mentions the member.
    """
    parents: dict[str, list[str]] = {}
    mentioned: set[str] = set()
    for row in rows:
        parents[row["child"]] = list(row["parents"])
        mentioned |= {row["child"], row["replaced"], *row["parents"]}
    if member_id not in mentioned:
        raise ValueError(f"member_id: expected a member named in the rows, found {member_id!r}")
    found: dict[str, None] = {}
    frontier = [member_id]
    while frontier:
        frontier = [parent for child in frontier for parent in parents.get(child, [])]
        frontier = [parent for parent in dict.fromkeys(frontier) if parent not in found]
        found |= dict.fromkeys(frontier)
    return list(found)
