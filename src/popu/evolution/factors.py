"""Low-rank algebra on dW = scale * B @ A.

Operators work on dW: factors that differ by a rotation (B Q, Q^-1 A) are the same adapter, so averages and
singular components are taken of the product. Gram matrices of both factors and the SVD of a small core give it exactly,
at O((d_in + d_out) r^2) instead of O(d_in d_out min(d_in, d_out)). Where an operator needs the dense dW, it is brought
back to rank r by a randomized SVD (arXiv 0909.4061).
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from popu.evolution.family import Delta
from popu.population.adapter import Factors

DEAD_RATIO = 1e-6  # a component this far below the leading one is float32 rounding, not signal
ROUNDING = 1e-13  # of a Gram matrix's eigenvalue relative to the largest: float32 factors say nothing below
OVERSAMPLING = 10  # columns of a sketch beyond the rank
MAX_ITERATIONS = 6
SETTLED = 0.01  # relative gain in the residual below which the iteration ends
GRAM_COLUMNS = 2048  # of a factor widened to float64 at a time
BLOCK_ENTRIES = 2**20  # of a dense dW handled at a time: 4 MiB, so that elementwise passes stay in the cache


def dense(delta: Delta) -> Tensor:
    """dW (d_out, d_in), for tests and small modules only."""
    return delta.scale * (delta.b @ delta.a)


class ThinSvd(NamedTuple):
    """dW = U diag(s) Vh with U = b @ left and Vh = right @ a, of k components.

    U's columns and Vh's rows are orthonormal, except for components with s = 0.

    Args:
        a: (r, d_in). b: (d_out, r). Float32.
        left: (r, k). s: (k,), descending as `thin_svd` gives it. right: (k, r). Float64.
    """

    a: Tensor
    b: Tensor
    left: Tensor
    s: Tensor
    right: Tensor

    @property
    def u(self) -> Tensor:
        return self.b @ self.left.float()

    @property
    def vh(self) -> Tensor:
        return self.right.float() @ self.a

    def part(self, components: slice) -> "ThinSvd":
        return ThinSvd(self.a, self.b, self.left[:, components], self.s[components], self.right[components])


def thin_svd(a: Tensor, b: Tensor, scale: float) -> ThinSvd:
    """The SVD of scale * B @ A. Dead components are zero; no column of U has a negative sum.

    So equal products of different factors have equal components. The factors' own singular vectors are those of their
    r x r Gram matrices, which are decomposed in float64: half the cost of QR, and a smaller error of the product. Only
    the orthogonality of components below 1e-4 of a factor's largest suffers (5e-5 there).

    Args:
        a: (r, d_in). b: (d_out, r). r may be a sum of ranks (see `recompress`).

    Raises:
        ValueError: the factors do not share r.
    """
    if a.dim() != 2 or b.dim() != 2 or a.shape[0] != b.shape[1]:
        raise ValueError(f"a, b: expected (r, d_in) and (d_out, r), found {tuple(a.shape)} and {tuple(b.shape)}")
    gram_a, gram_b = gram(a), gram(b.T)
    balance = (gram_a.diagonal() / gram_b.diagonal()) ** 0.25  # rows of A and columns of B of equal norms
    balance = torch.where(balance.isfinite() & (balance > 0), balance, 1.0)
    root_a, inverse_a = _roots(gram_a / balance / balance[:, None])
    root_b, inverse_b = _roots(gram_b * balance * balance[:, None])
    u, s, vh = torch.linalg.svd(scale * (root_b.T @ root_a))
    left, right = balance[:, None] * (inverse_b @ u), vh @ (inverse_a / balance[:, None]).T
    sign = torch.where(b.sum(dim=0).double() @ left < 0, -1.0, 1.0).double()
    s = s.masked_fill(s <= DEAD_RATIO * s[0], 0.0)
    return ThinSvd(a.detach(), b.detach(), left * sign, s, sign[:, None] * right)


def gram(rows: Tensor) -> Tensor:
    """rows @ rows.T (r, r) in float64 from (r, d), widened a part at a time: fresh memory costs as much as it does."""
    gram = rows.new_zeros(rows.shape[0], rows.shape[0], dtype=torch.float64)
    for part in rows.split(GRAM_COLUMNS, dim=1):
        wide = part.double()
        gram.addmm_(wide, wide.T)
    return gram


def _roots(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Of a Gram matrix V diag(l) V^T, V diag(sqrt l) and V diag(1 / sqrt l), columns of rounding zero."""
    values, vectors = torch.linalg.eigh(gram)
    live = values > ROUNDING * values[-1]
    root = torch.where(live, values, 0.0).sqrt()
    return vectors * root, vectors * torch.where(live, 1.0 / root, 0.0)


def from_svd(svd: ThinSvd, scale: float, keep_a: Tensor) -> Factors:
    """Balanced factors A (rank, d_in), B (d_out, rank) of the leading components, `rank` being `keep_a`'s.

    Component i becomes row i of A and column i of B with equal norms sqrt(S_i / scale). A dead component (zero,
    or absent because fewer than `rank` are given) would zero both and could
    never be trained again: its row of A is taken from `keep_a`, its column of B is zero. So if all are dead
    (a fresh adapter) A is `keep_a`.

    Args:
        svd: s non-negative, largest first for the truncation to be optimal; zeros anywhere are fine.
        keep_a: (rank, d_in), what dead rows of A become: the parent's A, or a fresh Kaiming draw.

    Raises:
        ValueError: `keep_a` is not (rank, d_in).
    """
    if keep_a.dim() != 2 or keep_a.shape[1] != svd.a.shape[1]:
        raise ValueError(f"keep_a: expected shape (rank, {svd.a.shape[1]}), found {tuple(keep_a.shape)}")
    rank = keep_a.shape[0]
    missing = max(0, rank - len(svd.s))
    root = torch.nn.functional.pad((svd.s[:rank] / scale).sqrt(), (0, missing))
    left = torch.nn.functional.pad(svd.left[:, :rank], (0, missing))
    right = torch.nn.functional.pad(svd.right[:rank], (0, 0, 0, missing))
    a, b = (root[:, None] * right).float() @ svd.a, svd.b @ (left * root).float()
    dead = root == 0
    if dead.any():
        a[dead] = keep_a.detach()[dead]
    return a, b


def recompress(terms: Sequence[tuple[float, Delta]], scale: float, keep_a: Tensor) -> Factors:
    """Balanced factors, for `scale`, of the best approximation of sum_i coef_i dW_i (Eckart-Young).

    Exact when the sum has at most the rank of `keep_a`.

    Args:
        terms: (coef, dW), whose ranks may differ. At least one.
        keep_a: (rank, d_in), see `from_svd`.

    Raises:
        ValueError: no terms, or `keep_a` of a wrong shape.
    """
    if not terms:
        raise ValueError("terms: expected at least one, found none")
    wide_a = torch.cat([delta.a for _, delta in terms], dim=0)
    wide_b = torch.cat([(coef * delta.scale) * delta.b for coef, delta in terms], dim=1)
    return from_svd(thin_svd(wide_a, wide_b, 1.0), scale, keep_a)


def truncate(dense: Tensor, scale: float, keep_a: Tensor, generator: torch.Generator, guess: Tensor) -> Factors:
    """Balanced factors, for `scale`, of nearly the best approximation of a dense dW (d_out, d_in).

    The range of dW is sketched with the rows of `guess` (any number, d_in) and random ones; power iterations go on
    until the Frobenius residual settles. It then is within 1.02 times the optimal one's, whatever the guess.
    `keep_a` (rank, d_in) as in `from_svd`.
    """
    rank = keep_a.shape[0]
    n_columns = min(rank + OVERSAMPLING, *dense.shape)
    n_random = max(n_columns - guess.shape[0], min(OVERSAMPLING, n_columns))
    random = torch.randn(dense.shape[1], n_random, generator=generator)
    energy = dense.norm().double() ** 2
    basis = torch.linalg.qr(dense @ torch.cat([guess.T[:, : n_columns - n_random], random], dim=1)).Q
    residual = math.inf
    for _ in range(MAX_ITERATIONS):
        projected = dense.T @ basis
        rows, core = torch.linalg.qr(projected)
        captured = (torch.linalg.svdvals(core.double())[:rank] ** 2).sum()
        last, residual = residual, float((energy - captured).clamp(min=0.0).sqrt())
        if last - residual <= SETTLED * residual:
            break
        basis = torch.linalg.qr(dense @ rows).Q
    else:
        projected = dense.T @ basis
    return from_svd(thin_svd(projected.T, basis, 1.0), scale, keep_a)


def row_blocks(matrix: Tensor) -> Iterator[slice]:
    """Slices of rows that cover `matrix`, of about `BLOCK_ENTRIES` entries each."""
    n_rows = max(1, BLOCK_ENTRIES // matrix.shape[1])
    for start in range(0, matrix.shape[0], n_rows):
        yield slice(start, start + n_rows)


class Scratch:
    """Buffers by name that are allocated once: on large dW, fresh memory costs more than the arithmetic done in it."""

    def __init__(self) -> None:
        self.buffers: dict[str, Tensor] = {}

    def __call__(self, name: str, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """A tensor of arbitrary content, which the next call of that name gives again."""
        size = math.prod(shape)
        if name not in self.buffers or self.buffers[name].numel() < size:
            self.buffers[name] = torch.empty(size, dtype=dtype)
        return self.buffers[name][:size].view(shape)


def with_noise(factors: Factors, eps: float, generator: torch.Generator) -> Factors:
    """Both factors W plus eps std(W) N(0, 1), A's noise drawn first.

    std is the population deviation of the factor itself, so the relative change of dW, about sqrt(2) eps,
    does not depend on how its norm is split over A and B. A fresh adapter's B = 0 has std 0 and stays zero, A
    does not: dW stays 0 and trainable.
    """
    a, b = (torch.randn(w.shape, generator=generator).mul_(eps * w.std(correction=0)).add_(w) for w in factors)
    return a, b
