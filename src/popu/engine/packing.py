"""Prompts computed once: a tree of one prefix and several branches packed into one row.

A row holds prefix, branch 1, branch 2, ...; every branch continues the prefix and sees nothing of the others. This
serves pretraining (one program, many inputs) and the policy update (one prompt, many rollouts).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Tree:
    """Token ids of a non-empty prefix and of its branches."""

    prefix: Sequence[int]
    branches: Sequence[Sequence[int]]

    @property
    def n_tokens(self) -> int:
        return len(self.prefix) + sum(map(len, self.branches))


@dataclass(frozen=True)
class PackedTrees:
    """`n` trees padded to `t` tokens, and the `m` branch tokens to predict.

    `ids`, `positions`: (n, t). `mask`: (n, 1, t, t) bool, True where a query (dim 2) sees a key (dim 3).
    `rows`, `sources`, `tokens`: (m,), the token `tokens[j]` is predicted by the state at `[rows[j], sources[j]]`;
    order: tree, branch, position.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor
    rows: torch.Tensor
    sources: torch.Tensor
    tokens: torch.Tensor


def pack(trees: Sequence[Tree]) -> PackedTrees:
    """Pack trees into rows, one a tree, padded on the right."""
    width = max(tree.n_tokens for tree in trees)
    ids = np.zeros((len(trees), width), np.int64)
    positions = np.zeros_like(ids)
    segments = np.full_like(ids, -1)
    rows: list[np.ndarray] = []
    sources: list[np.ndarray] = []
    for n, tree in enumerate(trees):
        start = len(tree.prefix)
        ids[n, :start], positions[n, :start], segments[n, :start] = tree.prefix, np.arange(start), 0
        for b, branch in enumerate(tree.branches, start=1):
            end = start + len(branch)
            ids[n, start:end], segments[n, start:end] = branch, b
            positions[n, start:end] = len(tree.prefix) + np.arange(len(branch))
            source = np.arange(start - 1, end - 1)
            source[:1] = len(tree.prefix) - 1
            rows.append(np.full(len(branch), n))
            sources.append(source)
            start = end
    tokens = [np.asarray(branch, np.int64) for tree in trees for branch in tree.branches]
    return PackedTrees(
        torch.from_numpy(ids),
        torch.from_numpy(positions),
        torch.from_numpy(_visibility(segments))[:, None],
        torch.from_numpy(np.concatenate(rows)),
        torch.from_numpy(np.concatenate(sources)),
        torch.from_numpy(np.concatenate(tokens)),
    )


def _visibility(segments: np.ndarray) -> np.ndarray:
    """(n, t, t) from segment numbers (n, t): 0 prefix, b >= 1 branches, -1 padding (which sees itself alone)."""
    keys, queries = segments[:, None, :], segments[:, :, None]
    earlier = np.tril(np.ones((segments.shape[1],) * 2, bool))
    visible = earlier & ((keys == 0) | (keys == queries)) & (keys >= 0)
    return visible | np.eye(segments.shape[1], dtype=bool)
