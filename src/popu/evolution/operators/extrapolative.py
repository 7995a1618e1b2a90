"""Past the fitter parent, away from the other."""

from collections.abc import Mapping

import torch

from popu.evolution.factors import recompress
from popu.evolution.family import Family
from popu.evolution.operator import PAPER, Operator
from popu.population.adapter import Factors


def extrapolative(family: Family, generator: torch.Generator, eta_min: float, eta_max: float) -> Mapping[str, Factors]:
    """W_other + eta (W_fitter - W_other) of dW, eta uniform in [eta_min, eta_max), one draw a child; truncated by SVD.

    The first parent is the fitter. Spare rows of A as in `linear_0_5`.
    """
    eta = eta_min + (eta_max - eta_min) * torch.rand((), generator=generator, dtype=torch.float64).item()
    factors = {}
    for module in family:
        fitter, other = module.deltas
        factors[module.name] = recompress([(eta, fitter), (1 - eta, other)], module.scale, keep_a=fitter.a)
    return factors


OPERATOR = Operator("extrapolative", 2, extrapolative, PAPER, {"eta_min": 1.0, "eta_max": 1.5}, fitter_first=True)
