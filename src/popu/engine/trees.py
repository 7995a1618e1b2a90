"""Prompts computed once: trees of one prefix and several branches that continue it and do not see each other.

A tree is a prompt with its rollouts (the policy update) or a prompt alone (the start of decoding). Tokens lie flat, all
prefixes first, then all branches; only the attention sees rectangles.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from popu.engine.rectangle import Rectangle


@dataclass(frozen=True)
class Tree:
    """Token ids of a non-empty prefix and of its branches."""

    prefix: Sequence[int]
    branches: Sequence[Sequence[int]] = ()

    @property
    def n_tokens(self) -> int:
        return len(self.prefix) + sum(map(len, self.branches))


class FlatTrees:
    """Trees as one row of `n` tokens, and who attends to whom.

    `ids`, `positions`: (n,), the prefixes of all trees, then their branches. `tokens`: (m,), the branches' tokens in
    that order; `tokens[j]` is predicted by the state at `sources[j]`. `ends`: the last token of every prefix.
    """

    def __init__(self, trees: Sequence[Tree]) -> None:
        prefixes = [tree.prefix for tree in trees]
        branches = [branch for tree in trees for branch in tree.branches]
        owners = np.repeat(np.arange(len(trees)), [len(tree.branches) for tree in trees])
        self.prefixes = Rectangle([len(prefix) for prefix in prefixes], 0)
        n_prefix = self.prefixes.n_tokens
        self.ends = torch.from_numpy(np.cumsum([len(prefix) for prefix in prefixes]) - 1)
        lengths = np.array([len(branch) for branch in branches], np.int64)
        starts = n_prefix + np.cumsum(lengths) - lengths
        tokens = _flat(branches)
        self.tokens = torch.from_numpy(tokens)
        self.ids = torch.from_numpy(np.concatenate([_flat(prefixes), tokens]))
        within = np.arange(n_prefix, n_prefix + len(tokens)) - np.repeat(starts, lengths)
        prefix_lengths = np.array([len(prefix) for prefix in prefixes], np.int64)
        before = np.repeat(prefix_lengths[owners], lengths)
        self.positions = torch.from_numpy(
            np.concatenate([*map(np.arange, prefix_lengths), before + within]).astype(np.int64)
        )
        first = np.repeat(self.ends.numpy()[owners], lengths)
        previous = np.arange(n_prefix, n_prefix + len(tokens)) - 1
        self.sources = torch.from_numpy(np.where(within == 0, first, previous))
        self.attention = TreeAttention(self.prefixes, _branch_rectangle(trees, lengths, n_prefix))


class TreeAttention:
    """Attention of `FlatTrees`: a prefix to itself, a branch to its prefix and to itself, all causal.

    After a pass under `keep`, `kept` holds each layer's keys and values of the prefixes, (n_trees, h_kv, width, d).
    """

    def __init__(self, prefixes: Rectangle, branches: Rectangle, keep: bool = False) -> None:
        self.prefixes, self.branches, self.keep = prefixes, branches, keep
        self.kept: list[tuple[Tensor, Tensor]] = []
        width = branches.width
        self.causal = torch.full((width, width), float("-inf")).triu(1)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """See `flat.Attend`."""
        h, d = q.shape[1:]
        qp, kp, vp = (self.prefixes.spread(tensor).transpose(1, 2) for tensor in (q, k, v))
        if self.keep:
            self.kept.append((kp.contiguous(), vp.contiguous()))
        kp, vp = _repeat(kp, h), _repeat(vp, h)
        out = torch.nn.functional.scaled_dot_product_attention(qp, kp, vp, is_causal=True, scale=scale)
        out = out.transpose(1, 2).reshape(-1, h, d).index_select(0, self.prefixes.places)
        if not self.branches.n_tokens:
            return out
        n, b, t = self.prefixes.n, self.branches.n // self.prefixes.n, self.branches.width
        qb, kb, vb = (
            _repeat(self.branches.spread(tensor).view(n, b, t, -1, d).permute(0, 3, 1, 2, 4), h)
            for tensor in (q * scale, k, v)
        )  # (n, h, b, t, d)
        own = qb @ kb.transpose(-1, -2) + self.causal.to(q.dtype)
        shared = qb.reshape(n, h, b * t, d) @ kp.transpose(-1, -2) + self.prefixes.bias[:, None, None].to(q.dtype)
        p = torch.softmax(torch.cat([shared.view(n, h, b, t, -1), own], -1), -1)
        width = self.prefixes.width
        branch_out = p[..., width:] @ vb + (p[..., :width].reshape(n, h, b * t, width) @ vp).view(n, h, b, t, d)
        flat = branch_out.permute(0, 2, 3, 1, 4).reshape(-1, h, d).index_select(0, self.branches.places)
        return torch.cat([out, flat])


def _branch_rectangle(trees: Sequence[Tree], lengths: np.ndarray, offset: int) -> Rectangle:
    """The branches as a rectangle in which every tree has as many; missing ones are empty."""
    most = max((len(tree.branches) for tree in trees), default=0)
    filled = np.zeros((len(trees), most), np.int64)
    filled[np.arange(most) < np.array([len(tree.branches) for tree in trees])[:, None]] = lengths
    return Rectangle(filled.reshape(-1).tolist(), offset)


def _repeat(heads: Tensor, n_heads: int) -> Tensor:
    """Keys or values of dim 1 = h_kv repeated to n_heads, neighbours equal."""
    times = n_heads // heads.shape[1]
    return heads if times == 1 else heads.repeat_interleave(times, dim=1)


def _flat(parts: Sequence[Sequence[int]]) -> np.ndarray:
    return np.concatenate([np.asarray(part, np.int64) for part in parts]) if parts else np.empty(0, np.int64)
