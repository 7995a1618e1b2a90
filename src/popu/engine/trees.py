"""Prompts computed once: trees of one prefix and several branches that continue it and do not see each other.

A tree is a prompt with its rollouts (the policy update) or a prompt alone (the start of decoding). Tokens lie flat, all
prefixes first, then all branches; only the attention sees rectangles.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from popu.engine.rectangle import CPU, Rectangle

PLAIN_WIDTH = 256  # tokens up to which the scores of a sequence are held as one matrix
BUNDLE = 8  # branches of one prefix that attend to it in one product


@dataclass(frozen=True)
class Tree:
    """Token ids of a non-empty prefix and of its branches."""

    prefix: Sequence[int]
    branches: Sequence[Sequence[int]] = ()

    @property
    def n_tokens(self) -> int:
        return len(self.prefix) + sum(map(len, self.branches))


class FlatTrees:
    """Trees as one row of `n` tokens, and who attends to whom. A branch's last token predicts nothing and is left out.

    `ids`, `positions`: (n,), the prefixes of all trees, then their branches. `tokens`: (m,), the branches' tokens in
    that order, the last ones included; `tokens[j]` is predicted by the state at `sources[j]`. `ends`: (n_trees,), where
    the prefixes' last tokens are.
    """

    def __init__(self, trees: Sequence[Tree], device: torch.device = CPU) -> None:
        prefix_lengths = np.array([len(tree.prefix) for tree in trees], np.int64)
        branches = [branch for tree in trees for branch in tree.branches]
        owners = np.repeat(np.arange(len(trees)), [len(tree.branches) for tree in trees])
        predicted = np.array([len(branch) for branch in branches], np.int64)
        read = np.maximum(predicted - 1, 0)
        ends = np.cumsum(prefix_lengths) - 1
        n_prefix = int(prefix_lengths.sum())
        ids = np.concatenate([_flat([tree.prefix for tree in trees]), _flat([branch[:-1] for branch in branches])])
        positions = np.concatenate([_within(prefix_lengths), np.repeat(prefix_lengths[owners], read) + _within(read)])
        within = _within(predicted)
        before = np.repeat(n_prefix + np.cumsum(read) - read, predicted) + within - 1
        sources = np.where(within == 0, np.repeat(ends[owners], predicted), before)
        self.ends, self.tokens, self.ids, self.positions, self.sources = (
            torch.from_numpy(array).to(device) for array in (ends, _flat(branches), ids, positions, sources)
        )
        prefixes = Rectangle(prefix_lengths.tolist(), 0, device)
        self.attention = TreeAttention(prefixes, *_bundles(owners, read, n_prefix, device))


class TreeAttention:
    """Attention of `FlatTrees`: a prefix to itself, a branch to its prefix and to itself, all causal.

    Branches come in bundles of one prefix: `branches` is a rectangle of as many rows a bundle, `owners` (n_bundles,)
    names each one's prefix. After a pass under `keep`, `kept` holds each layer's keys and values of the prefixes,
    (n_trees, h_kv, width, d).
    """

    def __init__(self, prefixes: Rectangle, branches: Rectangle, owners: Tensor, keep: bool = False) -> None:
        self.prefixes, self.branches, self.owners, self.keep = prefixes, branches, owners, keep
        self.kept: list[tuple[Tensor, Tensor]] = []
        self.bias = prefixes.bias[owners][:, None, None]
        square = (branches.width, branches.width)
        self.causal = torch.full(square, float("-inf"), device=self.bias.device).triu(1)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """See `flat.Attend`."""
        h, d = q.shape[1:]
        qp, kp, vp = (self.prefixes.spread(tensor).transpose(1, 2) for tensor in (q, k, v))
        if self.keep:
            self.kept.append((kp.contiguous(), vp.contiguous()))
        kp, vp = _repeat(kp, h), _repeat(vp, h)
        out = self.prefixes.gather(_causal_attention(qp, kp, vp, scale).transpose(1, 2))
        if not self.branches.n_tokens:
            return out
        n, t, width = len(self.owners), self.branches.width, self.prefixes.width
        qb, kb, vb = (
            _repeat(self.branches.spread(tensor).view(n, -1, t, tensor.shape[1], d).permute(0, 3, 1, 2, 4), h)
            for tensor in (q * scale, k, v)
        )  # (n, h, branches of a bundle, t, d)
        if n != self.prefixes.n:
            kp, vp = kp.index_select(0, self.owners), vp.index_select(0, self.owners)
        own = qb @ kb.transpose(-1, -2) + self.causal.to(q.dtype)
        shared = qb.reshape(n, h, -1, d) @ kp.transpose(-1, -2) + self.bias.to(q.dtype)
        p = torch.softmax(torch.cat([shared.view(*own.shape[:-1], width), own], -1), -1)
        branch_out = p[..., width:] @ vb + (p[..., :width].reshape(n, h, -1, width) @ vp).view(qb.shape)
        return torch.cat([out, self.branches.gather(branch_out.permute(0, 2, 3, 1, 4).reshape(-1, t, h, d))])


def _causal_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """(n, h, t, d) from three of that shape; where the scores are small, plain products beat torch's fused ones."""
    n, h, t, d = q.shape
    if t > PLAIN_WIDTH:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    q, k, v = (tensor.reshape(n * h, t, d) for tensor in (q, k, v))
    causal = torch.full((t, t), float("-inf"), dtype=q.dtype, device=q.device).triu(1)
    p = torch.softmax(torch.baddbmm(causal, q, k.transpose(1, 2), alpha=scale), -1)
    return torch.bmm(p, v).view(n, h, t, d)


def _bundles(owners: np.ndarray, lengths: np.ndarray, offset: int, device: torch.device) -> tuple[Rectangle, Tensor]:
    """Branches of these lengths, bundled: their rectangle, and the prefix of every bundle.

    `owners`: the prefix of every branch, ascending. A prefix with many branches has several bundles, so that few cells
    of the rectangle are empty.
    """
    rank = _within(np.bincount(owners)) if len(owners) else owners  # of a branch among those of its prefix
    size = min(BUNDLE, int(rank.max(initial=0)) + 1)
    starts = np.flatnonzero(rank % size == 0)
    bundle = np.cumsum(rank % size == 0) - 1
    cells = np.zeros((len(starts), size), np.int64)
    cells[bundle, rank % size] = lengths
    return Rectangle(cells.reshape(-1).tolist(), offset, device), torch.from_numpy(owners[starts]).to(device)


def _repeat(heads: Tensor, n_heads: int) -> Tensor:
    """Keys or values of dim 1 = h_kv repeated to n_heads, neighbours equal."""
    times = n_heads // heads.shape[1]
    return heads if times == 1 else heads.repeat_interleave(times, dim=1)


def _within(lengths: np.ndarray) -> np.ndarray:
    """0, 1, ... of every stretch, one after the other."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _flat(parts: Sequence[Sequence[int]]) -> np.ndarray:
    return np.concatenate([np.asarray(part, np.int64) for part in parts]) if parts else np.empty(0, np.int64)
