"""Noise on singular values, rotations of singular vectors."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from popu.evolution.factors import from_svd, thin_svd
from popu.evolution.family import Family, Module
from popu.evolution.operator import PAPER, Operator
from popu.population.adapter import Factors


def svd_structured(family: Family, generator: torch.Generator, eps: float) -> Mapping[str, Factors]:
    """dW = U S V^T becomes (U R) S exp(eps z) (V R')^T with R, R' = expm(eps K / sqrt(k)) of the k live components.

    z and the entries of the skew-symmetric K above its diagonal are N(0, 1). Unscaled, a rotation would grow with the
    rank and change dW by 86 % at r = 32; so it is eps sqrt((k - 1) / k) a side, and dW changes by about
    eps sqrt(1 + 2 (k - 1) / k). The spans of rows and columns stay the parent's.
    """
    return {module.name: _perturbed(module, generator, eps) for module in family}


def _perturbed(module: Module, generator: torch.Generator, eps: float) -> Factors:
    (parent,) = module.deltas
    svd = thin_svd(parent.a, parent.b, parent.scale)
    k = int((svd.s > 0).sum())
    live = svd.part(slice(k))
    z = torch.randn(k, generator=generator)
    left, right = (_rotation(k, eps, generator) for _ in range(2))
    child = live._replace(left=live.left @ left, s=live.s * torch.exp(eps * z), right=right.T @ live.right)
    return from_svd(child, module.scale, keep_a=parent.a)


def _rotation(k: int, eps: float, generator: torch.Generator) -> Tensor:
    """(k, k), orthogonal, float64."""
    upper = torch.randn(k, k, generator=generator).double().triu(1)
    return torch.linalg.matrix_exp(eps / math.sqrt(max(k, 1)) * (upper - upper.T))


OPERATOR = Operator("svd_structured", 1, svd_structured, PAPER, {"eps": 0.1})
