"""How much of the space of programs has been written: a CVT archive over complexity, the same for every run.

512 cells over the logarithms of depth, cyclomatic complexity, lines and variables, of about equal volume there: centres
by k-means of even samples (Vassiliades et al. 2018), kept in cvt.npy so that every machine has the same cells, found by
pyribs. Programs outside the ranges count at their edge.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

N_CELLS = 512
RANGES = {"depth": (4, 24), "cyclomatic": (1, 16), "n_lines": (2, 32), "n_variables": (1, 16)}
CENTRES = Path(__file__).with_name("cvt.npy")


def cells(programs: Sequence[Mapping[str, int]]) -> np.ndarray:
    """(n,) the cell of every program, from its measures of `complexity`."""
    if not len(programs):
        return np.empty(0, np.int64)
    values = np.array([[max(1, program[name]) for name in RANGES] for program in programs], np.float64)
    low, high = np.array(list(RANGES.values()), np.float64).T
    index: np.ndarray = _archive().index_of(np.log(np.clip(values, low, high)))
    return index


@lru_cache(maxsize=1)
def _archive() -> Any:
    from ribs.archives import CVTArchive

    return CVTArchive(solution_dim=1, centroids=np.load(CENTRES, allow_pickle=False), ranges=_ranges())


def make_centres(n_samples: int = 20_000, seed: int = 0) -> np.ndarray:
    """(N_CELLS, 4): what cvt.npy was made by, once."""
    from ribs.archives import CVTArchive

    archive = CVTArchive(solution_dim=1, centroids=N_CELLS, ranges=_ranges(), samples=n_samples, seed=seed)
    centres: np.ndarray = archive.centroids
    return centres


def _ranges() -> list[tuple[float, float]]:
    return [(float(np.log(low)), float(np.log(high))) for low, high in RANGES.values()]
