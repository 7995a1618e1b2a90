"""Trees packed into rows of one width, for pretraining: a program is computed once, many inputs branch off it.

A row holds prefix, branch 1, branch 2, ...; every branch continues the prefix and sees nothing of the others. Shapes
are fixed, so that the forward pass can be compiled.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from popu.engine.trees import Tree


@dataclass(frozen=True)
class PackedTrees:
    """Trees in `n` rows padded to `t` tokens, and the `m` branch tokens to predict.

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

    @property
    def n_rows(self) -> int:
        return self.ids.shape[0]


def pack(trees: Sequence[Tree], width: int = 0, predict_prefix: bool = False) -> PackedTrees:
    """Packs trees in order into rows of `width` tokens (or the longest tree's, where that is more).

    Trees that share a row do not see each other. With the default every row is as wide as the longest tree.
    `predict_prefix` adds the prefix's tokens but the first to those to predict, before the tree's branches.
    """
    places, n_rows, width = _place(trees, width)
    ids = np.zeros((n_rows, width), np.int64)
    positions = np.zeros_like(ids)
    owners = np.full_like(ids, -1)  # which tree a token belongs to, -1 padding
    branches = np.zeros_like(ids)  # 0 prefix, b >= 1 branches
    sources: list[np.ndarray] = []
    for i, (tree, (row, begin)) in enumerate(zip(trees, places, strict=True)):
        start = begin + len(tree.prefix)
        ids[row, begin:start], positions[row, begin:start] = tree.prefix, np.arange(len(tree.prefix))
        last = start - 1
        if predict_prefix:
            sources.append(np.arange(begin, last))
        for b, branch in enumerate(tree.branches, start=1):
            end = start + len(branch)
            ids[row, start:end], branches[row, start:end] = branch, b
            positions[row, start:end] = len(tree.prefix) + np.arange(len(branch))
            source = np.arange(start - 1, end - 1)
            source[:1] = last
            sources.append(source)
            start = end
        owners[row, begin:start] = i
    predicted = [([tree.prefix[1:]] if predict_prefix else []) + list(tree.branches) for tree in trees]
    rows = np.repeat([row for row, _ in places], [sum(map(len, parts)) for parts in predicted])
    tokens = [np.asarray(part, np.int64) for parts in predicted for part in parts]
    return PackedTrees(
        torch.from_numpy(ids),
        torch.from_numpy(positions),
        torch.from_numpy(_visibility(owners, branches))[:, None],
        torch.from_numpy(rows.astype(np.int64)),
        torch.from_numpy(np.concatenate(sources)),
        torch.from_numpy(np.concatenate(tokens)),
    )


def _place(trees: Sequence[Tree], width: int) -> tuple[list[tuple[int, int]], int, int]:
    """(row, first column) of every tree, number of rows, and their width."""
    width = max(width, max(tree.n_tokens for tree in trees))
    places: list[tuple[int, int]] = []
    row, column = 0, 0
    for tree in trees:
        if column + tree.n_tokens > width:
            row, column = row + 1, 0
        places.append((row, column))
        column += tree.n_tokens
    return places, row + 1, width


def _visibility(owners: np.ndarray, branches: np.ndarray) -> np.ndarray:
    """(n, t, t) from (n, t): a token sees earlier ones of its tree that are prefix or of its branch; padding itself."""
    width = owners.shape[1]
    same_tree = owners[:, None, :] == owners[:, :, None]
    same_branch = (branches[:, None, :] == 0) | (branches[:, None, :] == branches[:, :, None])
    earlier = np.tril(np.ones((width, width), bool))
    return (earlier & same_tree & same_branch & (owners[:, None, :] >= 0)) | np.eye(width, dtype=bool)
