"""REINFORCE++ with a group baseline (arXiv 2501.03262): no critic, no reference model."""

import torch
from torch import Tensor


def advantages(rewards: Tensor, groups: Tensor, whiten_by: Tensor | None = None) -> Tensor:
    """Advantage (n,) float32 of every sequence: reward minus its group's mean, divided by the whiten group's
    RMS.

    A group holds the completions of one prompt (a teacher's proposals, a student's rollouts on one problem),
    a whiten group those of one adapter and role. The centred rewards of a whiten group have mean 0, so their
    RMS is their population standard deviation. Equal rewards in a group give exactly 0, as does a group of
    one; where every centred reward of a whiten group is 0 all are 0, never NaN.

    Deviation: whitening counts sequences, not tokens, so a long completion does not weigh more in the
    deviation.

    Args:
        rewards: (n,) finite. groups: (n,) integer ids, any values. whiten_by: (n,) integer ids; None for one
            group.

    Raises:
        ValueError: shapes differ, a reward is not finite, or a group lies in two whiten groups.
    """
    values = torch.as_tensor(rewards, dtype=torch.float64)
    group = _dense_ids("groups", groups, values)
    block = torch.zeros_like(group) if whiten_by is None else _dense_ids("whiten_by", whiten_by, values)
    if not bool(torch.isfinite(values).all()):
        raise ValueError("rewards: expected finite values, found NaN or infinity")
    if len(torch.unique(torch.stack([group, block]), dim=1).T) != len(torch.unique(group)):
        raise ValueError("whiten_by: expected every group within one whiten group, found one in two")
    # Relative to the group's minimum first: equal rewards then are exact zeros, which (sum / n) alone is not.
    lowest = torch.zeros_like(values).scatter_reduce(0, group, values, "amin", include_self=False)
    raised = values - lowest[group]
    centred = raised - _mean_by(raised, group)
    deviation = _mean_by(centred.square(), block).sqrt()
    return torch.where(deviation > 0, centred / deviation.clamp_min(1e-300), 0.0).float()


def _dense_ids(argument: str, ids: Tensor, values: Tensor) -> Tensor:
    """Ids renumbered 0.. (n,), on the device of `values`."""
    ids = torch.as_tensor(ids, device=values.device)
    if values.dim() != 1 or ids.shape != values.shape or ids.is_floating_point():
        found = f"{ids.dtype} {tuple(ids.shape)}"
        raise ValueError(f"{argument}: expected integers of shape {tuple(values.shape)}, found {found}")
    dense: Tensor = torch.unique(ids, return_inverse=True)[1]
    return dense


def _mean_by(values: Tensor, ids: Tensor) -> Tensor:
    """(n,): for every element the mean over the elements with its id (ids dense, in 0..n-1)."""
    total = torch.zeros_like(values).index_add(0, ids, values)
    count = torch.zeros_like(values).index_add(0, ids, torch.ones_like(values))
    return (total / count.clamp_min(1))[ids]
