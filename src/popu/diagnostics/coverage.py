"""How much of the space of programs has been written: a CVT archive over complexity, the same for every run.

512 cells by k-means over the logarithms of depth, cyclomatic complexity, lines and variables, with a fixed seed: cells
of equal volume in log space (Vassiliades et al. 2018, by pyribs). Programs outside the ranges count at their edge.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

N_CELLS = 512
N_SAMPLES = 8_000  # points that the cells are fitted to
SEED = 0
RANGES = {"depth": (4, 24), "cyclomatic": (1, 16), "n_lines": (2, 32), "n_variables": (1, 16)}


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
    from threadpoolctl import threadpool_limits

    ranges = [tuple(np.log(ends)) for ends in RANGES.values()]
    with threadpool_limits(1):  # sums of several threads differ in their last bits
        return CVTArchive(solution_dim=1, centroids=N_CELLS, ranges=ranges, samples=N_SAMPLES, seed=SEED)
