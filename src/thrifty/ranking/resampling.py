"""How sure a mean over queries is: draw queries, not documents, with replacement.

Documents of one query share its words, its difficulty and, in normalised data, its scale: they are not independent,
and a band over documents would be far too narrow.
"""

import numpy as np
from numpy.typing import ArrayLike

from thrifty.evidence.bootstrap import check_bootstrap, tails
from thrifty.exceptions import InvalidInputError

__all__ = ["band_over_queries"]


def band_over_queries(
    values: ArrayLike,
    weight: ArrayLike = 1.0,
    *,
    level: float = 0.95,
    n_boot: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile interval of a weighted mean over queries.

    Parameters
    ----------
    values : array-like of shape (n_queries,)
        A value per query. NaN, a query for which the measure is not defined, is left out.
    weight : float or array-like of shape (n_queries,), default=1.0
        Of each query in the mean: the number of its documents, where the mean is one over documents.
    level, n_boot, seed
        Share of the draws that the interval holds, number of draws, and their seed.
    """
    check_bootstrap(level, n_boot)
    given = np.asarray(values, dtype=np.float64)
    defined = ~np.isnan(given)
    if given.ndim != 1 or not defined.any():
        raise InvalidInputError(
            f"values must hold one number per query, at least one of them not missing; got shape {given.shape}."
        )
    kept, weights = (
        given[defined],
        np.broadcast_to(np.asarray(weight, dtype=np.float64), given.shape)[defined],
    )
    share = np.full(len(kept), 1.0 / len(kept))
    counts = np.random.default_rng(seed).multinomial(len(kept), share, size=n_boot)
    low, high = tails((counts @ (kept * weights)) / (counts @ weights), level)
    return float(low), float(high)
