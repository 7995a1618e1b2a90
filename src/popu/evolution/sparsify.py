"""What DARE, TIES and their like do to dense deltas: sparsify each, then merge entry by entry.

All work on blocks of rows, in place or in scratch buffers: a 7B adapter's dW has 6.5 G entries.
"""

import torch
from torch import Tensor

from popu.evolution.factors import Scratch
from popu.evolution.family import Delta

SAMPLED_ENTRIES = 2**16  # beyond these a threshold is estimated: the kept share has a standard error of at most 0.2 %
ROUNDING = 1e-6  # relative, of an entry of dW: that at the threshold shall be kept, however it is computed
RANDOM_LEVELS = 2**16  # a chance is a multiple of 1 / RANDOM_LEVELS: four draws from one 64-bit random number


def drop_and_rescale(block: Tensor, p: float, generator: torch.Generator, scratch: Scratch) -> Tensor:
    """Set entries of `block` to zero with chance p and divide the others by 1 - p, in place; returns `block`.

    p in [0, 1) is rounded to a multiple of 2^-16, in the chance and the rescaling alike: the expectation is the block.
    """
    dropped_levels = round(p * RANDOM_LEVELS)
    random = scratch("random", ((block.numel() + 3) // 4,), torch.int64).random_(-(2**63), None, generator=generator)
    levels = random.view(torch.int16)[: block.numel()].view(block.shape)
    kept = torch.ge(levels, dropped_levels - RANDOM_LEVELS // 2, out=scratch("mask", block.shape))
    return block.mul_(kept).mul_(1.0 / (1.0 - dropped_levels / RANDOM_LEVELS))


def magnitude_threshold(delta: Delta, density: float, generator: torch.Generator) -> float:
    """The magnitude that a share `density` in (0, 1] of dW's entries reach; 0 for all of them.

    Of dW with more than SAMPLED_ENTRIES entries it is estimated from that many, drawn with repetition.
    """
    n_out, n_in = delta.b.shape[0], delta.a.shape[1]
    if n_out * n_in <= SAMPLED_ENTRIES:
        entries = delta.b @ delta.a
    else:
        rows, columns = (torch.randint(size, (SAMPLED_ENTRIES,), generator=generator) for size in (n_out, n_in))
        entries = (delta.b[rows] * delta.a.T[columns]).sum(dim=1)
    n_kept = max(1, round(density * entries.numel()))
    if n_kept == entries.numel():
        return 0.0
    smallest_kept = (delta.scale * entries).abs().flatten().kthvalue(entries.numel() - n_kept + 1).values
    return float(smallest_kept) * (1.0 - ROUNDING)


def trim(block: Tensor, threshold: float, scratch: Scratch) -> Tensor:
    """Set entries of a magnitude below `threshold` to zero, in place; returns `block`."""
    mask = torch.abs(block, out=scratch("mask", block.shape))
    return block.mul_(torch.ge(mask, threshold, out=mask))


def mean_of_agreeing(one: Tensor, two: Tensor, out: Tensor, scratch: Scratch) -> Tensor:
    """Entry by entry, the mean of those that have the sign of the sum; 0 where the sum is 0. Written to `out`.

    Zeros have no sign: they neither vote nor count. With s the sign of the sum, the sum of those that agree is
    s (|w1| + |w2| + |w1 + w2|) / 2, and both do where w1 w2 > 0.
    """
    mass, part, number = (scratch(name, out.shape) for name in ("mass", "part", "number"))
    torch.abs(one, out=mass).add_(torch.abs(two, out=part))
    torch.mul(one, two, out=part)
    torch.gt(part, 0.0, out=number).add_(1.0)
    torch.add(one, two, out=out)
    mass.add_(torch.abs(out, out=part)).div_(number.mul_(2.0))
    return out.sign_().mul_(mass)
