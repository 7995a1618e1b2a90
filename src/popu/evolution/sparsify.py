"""What DARE, TIES and their like do to dense deltas: sparsify each, then merge entry by entry.

All work on blocks of rows, in place where they can: a 7B adapter's dW has 6.5 G entries.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from popu.evolution.family import Delta

SAMPLED_ENTRIES = 2**18  # beyond these a threshold is estimated: the kept share is off by at most 0.1 % (one deviation)
RANDOM_LEVELS = 2**16  # a chance is a multiple of 1 / RANDOM_LEVELS: four draws from one 64-bit random number


def drop_and_rescale(block: Tensor, p: float, generator: torch.Generator) -> Tensor:
    """Set entries of `block` to zero with chance p and divide the others by 1 - p, in place; returns `block`.

    p in [0, 1) is rounded to a multiple of 2^-16, in the chance and the rescaling alike: the expectation is the block.
    """
    dropped_levels = round(p * RANDOM_LEVELS)
    random = torch.empty((block.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None, generator=generator)
    levels = random.view(torch.int16)[: block.numel()].view(block.shape)
    kept = levels >= dropped_levels - RANDOM_LEVELS // 2
    return block.mul_(kept).mul_(1.0 / (1.0 - dropped_levels / RANDOM_LEVELS))


def magnitude_threshold(delta: Delta, density: float, generator: torch.Generator) -> Tensor:
    """The magnitude that a share `density` in (0, 1] of dW's entries reach, a scalar.

    Of dW with more than SAMPLED_ENTRIES entries it is estimated from that many, drawn with repetition.
    """
    n_out, n_in = delta.b.shape[0], delta.a.shape[1]
    if n_out * n_in <= SAMPLED_ENTRIES:
        entries = delta.b @ delta.a
    else:
        rows, columns = (torch.randint(size, (SAMPLED_ENTRIES,), generator=generator) for size in (n_out, n_in))
        entries = (delta.b[rows] * delta.a.T[columns]).sum(dim=1)
    n_kept = max(1, round(density * entries.numel()))
    return (abs(delta.scale) * entries).abs().flatten().kthvalue(entries.numel() - n_kept + 1).values


def trim(block: Tensor, threshold: Tensor) -> Tensor:
    """Set entries of a magnitude below `threshold` to zero, in place; returns `block`."""
    return block.mul_(block.abs() >= threshold)


def mean_of_agreeing(blocks: Sequence[Tensor]) -> Tensor:
    """Entry by entry, the mean of those that have the sign of the sum; 0 where the sum is 0.

    Zeros have no sign: they neither vote nor count.
    """
    total, mass = torch.zeros_like(blocks[0]), torch.zeros_like(blocks[0])
    for block in blocks:
        total += block
        mass += block.abs()
    sign = total.sign()
    count = torch.zeros_like(total)
    for block in blocks:
        count += block * sign > 0
    return sign.mul_(mass.add_(total.abs_())).div_(count.clamp_(min=1.0).mul_(2.0))
