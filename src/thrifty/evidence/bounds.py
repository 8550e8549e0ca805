r"""Upper bounds of a probability and of a mean from independent rows, which hold with a given confidence.

The number of losses among n rows is binomial, and its bound is the exact one of Clopper and Pearson. A mean is bounded
by betting against it (Waudby-Smith and Ramdas 2024, Journal of the Royal Statistical Society B 86): whoever stakes a
share f of his capital, row by row, on the excess D <= 1 being smaller than m on average, has afterwards

    K_f(m) = prod_i [1 + f (m - D_i) / (1 - m)],        E K_f(m) <= 1   if   E D >= m

so that the mean of K_f over stakes fixed in advance is at least 1 / alpha in a share alpha of all draws at most. It
grows with m: the bound is the m at which it is 1 / alpha. The order of the rows does not matter, and D needs no lower
end.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, logsumexp

from thrifty.arrays import Bools, Floats

__all__ = [
    "STAKES",
    "is_rare",
    "log_growth",
    "mean_bound",
    "passes",
    "rows_needed",
    "rows_of_mean",
    "upper_bound",
]

STAKES = np.array([0.99, 0.7, 0.45, 0.25, 0.12, 0.05])
"""Shares of the capital that are staked: large ones pay where few rows lose, small ones where losses vary."""

# Bound and limit may be the same number and differ in the last digits of an incomplete beta function.
_SLACK = 1e-12
_HALVINGS = 40


def upper_bound(n_losses: ArrayLike, n_rows: int, confidence: float) -> Floats:
    """Exact one-sided upper bound: the p for which ``P(Bin(n_rows, p) <= n_losses) = 1 - confidence``."""
    losses = np.asarray(n_losses, dtype=np.float64)
    bound: Floats = np.where(
        losses >= n_rows, 1.0, betaincinv(losses + 1.0, np.maximum(n_rows - losses, 1.0), confidence)
    )
    return bound


def passes(bound: Floats, limit: float) -> Bools:
    """Whether bounds are at most a limit."""
    return np.asarray(bound <= limit * (1 + _SLACK))


def rows_needed(max_loss: float, confidence: float = 0.95) -> int:
    """Fewest rows that can show ``max_loss`` at all: the smallest n with ``(1 - max_loss)^n <= 1 - confidence``."""
    n_rows = max(1, int(np.ceil(np.log1p(-confidence) / np.log1p(-max_loss) * (1 - 1e-9))))
    while not passes(upper_bound(0, n_rows, confidence), max_loss):
        n_rows += 1
    return n_rows


def log_growth(excess: Floats, mean: float, stake: float) -> Floats:
    """Logarithm of what each row makes of the capital that bets against a mean of at least ``mean``."""
    growth: Floats = np.log1p(stake * (mean - excess) / (1.0 - mean))
    return growth


def is_rare(log_capital: Floats, confidence: float) -> Bools:
    """Whether the mean of capitals, one for each of ``STAKES`` on the first axis, is as large as is rare by chance."""
    return np.asarray(logsumexp(log_capital, axis=0) - np.log(len(STAKES)) >= -np.log1p(-confidence) - _SLACK)


def mean_bound(excess: Floats, confidence: float, power: float = 1.0) -> float:
    """Upper bound of the mean of an excess of at most one; each row counts ``power`` times, at most once."""
    if not len(excess):
        return 1.0
    # Rows that lose nothing more are many, and all alike.
    values, counts = np.unique(excess, return_counts=True)

    def is_excluded(mean: float) -> bool:
        capital = np.array([power * counts @ log_growth(values, mean, stake) for stake in STAKES])
        return bool(is_rare(capital, confidence))

    low, high = max(float(excess.mean()), -1.0), 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if is_excluded(middle) else (middle, high)
    return high


def rows_of_mean(max_loss: float, confidence: float) -> int:
    """Fewest rows that can show a mean excess of at most ``max_loss`` if no row loses more than the full model's."""
    each = np.array([float(log_growth(np.zeros(1), max_loss, stake)[0]) for stake in STAKES])
    few, many = 0, 1
    while not is_rare(many * each, confidence):
        few, many = many, 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if is_rare(middle * each, confidence) else (middle, many)
    return many
