"""Low-rank algebra on dW = scale * B @ A that never forms the dense dW.

Operators work on dW: factors that differ by a rotation (B Q, Q^-1 A) are the same adapter, so averages and
singular components are taken of the product. QR of both factors and the SVD of a small core give it exactly,
at O((d_in + d_out) r^2) instead of O(d_in d_out min(d_in, d_out)).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

DEAD_RATIO = 1e-6  # a component this far below the leading one is float32 rounding, not signal


def delta(a: Tensor, b: Tensor, scale: float) -> Tensor:
    """The dense dW (d_out, d_in) = scale * B @ A, for tests and small modules only."""
    return scale * (b @ a)


def thin_svd(a: Tensor, b: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """U (d_out, r), S (r,) descending, Vh (r, d_in) with U diag(S) Vh = scale * B @ A.

    U's columns and Vh's rows are orthonormal, except that where r exceeds min(d_out, d_in) the excess
    components are zero. All float32; the r x r core is decomposed in float64, which costs nothing and keeps
    small components.

    Args:
        a: (r, d_in). b: (d_out, r). r may be a sum of ranks (see `recompress`).

    Raises:
        ValueError: the factors do not share r.
    """
    if a.dim() != 2 or b.dim() != 2 or a.shape[0] != b.shape[1]:
        raise ValueError(f"a, b: expected (r, d_in) and (d_out, r), found {tuple(a.shape)} and {tuple(b.shape)}")
    rank = a.shape[0]
    q_out, r_out = torch.linalg.qr(b.float())
    q_in, r_in = torch.linalg.qr(a.float().T)
    u, s, vh = torch.linalg.svd(scale * (r_out.double() @ r_in.double().T), full_matrices=False)
    missing = rank - s.shape[0]
    left = torch.nn.functional.pad(q_out @ u.float(), (0, missing))
    right = torch.nn.functional.pad(vh.float() @ q_in.T, (0, 0, 0, missing))
    return left, torch.nn.functional.pad(s.float(), (0, missing)), right


def from_svd(u: Tensor, s: Tensor, vh: Tensor, scale: float, rank: int, keep_a: Tensor) -> tuple[Tensor, Tensor]:
    """Balanced factors A (rank, d_in), B (d_out, rank) of the leading `rank` components of U diag(S) Vh.

    Component i becomes row i of A and column i of B with equal norms sqrt(S_i / scale). A dead component (S_i
    at most 1e-6 of the largest, or absent because fewer than `rank` are given) would zero both and could
    never be trained again: its row of A is taken from `keep_a`, its column of B is zero. So if all are dead
    (a fresh adapter) A is `keep_a`.

    Args:
        s: (k,), non-negative, largest first for the truncation to be optimal; zeros anywhere are fine.
        keep_a: (rank, d_in), what dead rows of A become: the parent's A, or a fresh Kaiming draw.

    Raises:
        ValueError: `keep_a` is not (rank, d_in).
    """
    if tuple(keep_a.shape) != (rank, vh.shape[1]):
        raise ValueError(f"keep_a: expected shape {(rank, vh.shape[1])}, found {tuple(keep_a.shape)}")
    u, s, vh = u[:, :rank], s[:rank], vh[:rank]
    floor = DEAD_RATIO * s.max() if s.numel() else 0.0
    indices = (s > floor).nonzero().flatten()
    root = (s[indices] / scale).sqrt()
    a = keep_a.detach().clone()
    b = a.new_zeros(u.shape[0], rank)
    a[indices] = root[:, None] * vh[indices]
    b[:, indices] = u[:, indices] * root
    return a, b


def recompress(terms: Sequence[tuple[float, Tensor, Tensor]], rank: int, keep_a: Tensor) -> tuple[Tensor, Tensor]:
    """Balanced factors of the best rank-`rank` approximation of sum_i coef_i B_i A_i (Eckart-Young).

    Exact when the sum has rank <= `rank`. A scale common to all terms factors out, so none is needed.

    Args:
        terms: (coef, A (r_i, d_in), B (d_out, r_i)); the r_i may differ. At least one.
        keep_a: (rank, d_in), see `from_svd`.

    Raises:
        ValueError: no terms, or `keep_a` of a wrong shape.
    """
    if not terms:
        raise ValueError("terms: expected at least one, found none")
    wide_a = torch.cat([a for _, a, _ in terms], dim=0)
    wide_b = torch.cat([coef * b for coef, _, b in terms], dim=1)
    return from_svd(*thin_svd(wide_a, wide_b, 1.0), scale=1.0, rank=rank, keep_a=keep_a)
