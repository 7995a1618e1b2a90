"""Stretches of a flat row of tokens as a padded rectangle, for products that need one."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

CPU = torch.device("cpu")


class Rectangle:
    """Stretches of a flat row as a padded (n, width) rectangle; where padding is, `index` names another token.

    `index`: (n * width,) into the row. `places`: (n_tokens,), where in the rectangle each token of the stretches lies.
    `bias`: (n, width), 0 at tokens and -inf at padding.
    """

    def __init__(self, lengths: Sequence[int], offset: int, device: torch.device = CPU) -> None:
        self.n, self.width, self.n_tokens = len(lengths), max(lengths, default=0), int(sum(lengths))
        sizes = np.asarray(lengths, np.int64)
        live = np.arange(self.width) < sizes[:, None]
        index = np.full((self.n, self.width), offset, np.int64)
        index[live] = offset + np.arange(self.n_tokens)
        self.index = torch.from_numpy(index.reshape(-1)).to(device)
        self.places = torch.from_numpy(np.flatnonzero(live)).to(device)
        self.bias = torch.from_numpy(np.where(live, np.float32(0), np.float32("-inf"))).to(device)

    @property
    def full(self) -> bool:
        """Whether there is no padding."""
        return self.n * self.width == self.n_tokens

    def spread(self, flat: Tensor) -> Tensor:
        """(n, width, ...) from the flat row (n_all, ...)."""
        chosen = flat if self.full and len(flat) == self.n_tokens else flat.index_select(0, self.index)
        return chosen.view(self.n, self.width, *flat.shape[1:])

    def gather(self, spread: Tensor) -> Tensor:
        """The stretches' tokens (n_tokens, ...) from (n, width, ...)."""
        flat = spread.flatten(0, 1)
        return flat if self.full else flat.index_select(0, self.places)
