"""Members in weight space: how large the learned dW of each is, of what effective rank, and how far from the others.

All of it comes from the factors, so no dW is formed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from popu.evolution.distance import distance, size
from popu.evolution.factors import thin_svd
from popu.population.adapter import Adapter
from popu.population.member import Member


def effective_rank(adapter: Adapter) -> float | None:
    """exp of the entropy of dW's singular values over their sum (Roy and Vetterli 2007), mean over modules.

    From 1 to the rank. Modules with dW = 0 are left out; None where all are.
    """
    ranks = []
    for module, (a, b) in adapter.factors.items():
        s = thin_svd(a, b, adapter.config.scale_of(module)).s
        if float(s.sum()) > 0:
            shares = s[s > 0] / s.sum()
            ranks.append(float(torch.exp(-(shares * shares.log()).sum())))
    return sum(ranks) / len(ranks) if ranks else None


def measure_weights(step: int, members: Sequence[Member], adapters: Mapping[str, Adapter]) -> list[dict[str, Any]]:
    """A row a member of the table `weights`; `adapters` by slot.

    `norm` is the Frobenius norm of dW over all modules, `distance` the mean over the other members of the role of the
    norm of the difference, None for the only one. So the mean of `distance` over a role is its mean pairwise distance.
    """
    rows = []
    for member in members:
        others = [other.slot for other in members if other.role == member.role and other.slot != member.slot]
        own = adapters[member.slot]
        gaps = [distance(own, adapters[other]) for other in others]
        rows.append(
            {
                "step": step,
                "slot": member.slot,
                "member": member.id,
                "role": member.role,
                "norm": size(own),
                "effective_rank": effective_rank(own),
                "distance": sum(gaps) / len(gaps) if gaps else None,
            }
        )
    return rows
