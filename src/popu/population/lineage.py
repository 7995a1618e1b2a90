"""Births and deaths as rows, and what can be read from them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from popu.population.member import SLOT_ROLES, Population


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


def histories(rows: Sequence[Mapping[str, Any]], founders: Population, step: int) -> list[dict[str, Any]]:
    """One row per member that ever lived up to `step`, founders first, then by birth.

    Keys: member, slot, role, born_step, died_step and age (steps; up to `step` for the living, whose died_step is
    None), operator, parents, ancestors (see `ancestry`), founders (those of its ancestors, or itself, that have no
    parents), children (ids, in the order of birth).
    """
    births = lineage_rows(0, Population(()), founders) + list(rows)
    died = {row["replaced"]: row["step"] for row in rows}
    found = []
    for row in births:
        member = row["child"]
        ancestors = ancestry(births, member)
        parents_of = {birth["child"]: birth["parents"] for birth in births}
        roots = [each for each in (member, *ancestors) if not parents_of[each]]
        end = died.get(member)
        found.append(
            {
                "member": member,
                "slot": row["slot"],
                "role": SLOT_ROLES[row["slot"][0]],
                "born_step": row["step"],
                "died_step": end,
                "age": (step if end is None else end) - row["step"],
                "operator": row["operator"],
                "parents": list(row["parents"]),
                "ancestors": ancestors,
                "founders": roots,
                "children": [birth["child"] for birth in births if member in birth["parents"]],
            }
        )
    return found


def operator_fates(members: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What became of every operator's children, by the operators' names; rows as of `histories`.

    Keys: operator, births, alive, mean_age_at_death (steps, None while all live), parents (how many of its children had
    children themselves).
    """
    by_operator: dict[str, list[Mapping[str, Any]]] = {}
    for member in members:
        if member["operator"] is not None:
            by_operator.setdefault(member["operator"], []).append(member)
    fates = []
    for operator, children in sorted(by_operator.items()):
        ages = [child["age"] for child in children if child["died_step"] is not None]
        fates.append(
            {
                "operator": operator,
                "births": len(children),
                "alive": len(children) - len(ages),
                "mean_age_at_death": sum(ages) / len(ages) if ages else None,
                "parents": sum(bool(child["children"]) for child in children),
            }
        )
    return fates
