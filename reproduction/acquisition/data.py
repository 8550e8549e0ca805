"""Data sets of AFABench (Schütz and others, 2025, arXiv 2508.14734), with purchases, budgets and a metric."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import accuracy_score, roc_auc_score

from reproduction.datasets import Split, load_miniboone, load_physionet, load_spam
from reproduction.datasets.known_files import Folder
from thrifty.arrays import Floats, Ints

__all__ = ["SETS", "AcquisitionSet", "make_cube"]


def make_cube(n_rows: int, seed: int, *, n_contexts: int = 0, noise: float = 0.3) -> tuple[Floats, Ints]:
    """Draw CUBE, or CUBE-NM where there are contexts.

    Class c of 8 puts its 3-bit code, with noise, into columns c to c + 2 of a block of ten; all else is noise. CUBE has
    two blocks, of which the second is noise. In CUBE-NM the first columns tell, as a one-hot code with noise of 0.1,
    which of the blocks after them holds the code.
    """
    rng = np.random.default_rng(seed)
    label, block = rng.integers(0, 8, n_rows), rng.integers(0, max(n_contexts, 1), n_rows)
    context = np.eye(n_contexts or 1)[block, :n_contexts] + rng.normal(0.0, 0.1, (n_rows, n_contexts))
    X = rng.normal(0.5, 0.3, (n_rows, 10 * (n_contexts or 2)))
    for bit in range(3):
        code = (label >> bit & 1) + rng.normal(0.0, noise, n_rows)
        X[np.arange(n_rows), 10 * block + label + bit] = code
    return np.hstack([context, X]), label


@dataclass(frozen=True)
class AcquisitionSet:
    """A data set, what is bought together, and what methods are compared by; every purchase costs 1.

    Attributes
    ----------
    rows : callable
        ``rows(seed, data)`` gives rows and labels; those of synthetic sets are drawn with the seed.
    n_context : int
        Number of first columns that one purchase reveals together.
    metric : {"accuracy", "AUROC"}
        AUROC where one class is rare.
    n_test : int, optional
        Number of test rows; None is a fifth of all.
    budgets : tuple of int
        Purchases of a row.
    """

    rows: Callable[[int, Folder], tuple[Floats, Ints]]
    n_context: int = 1
    metric: str = "accuracy"
    n_test: int | None = None
    budgets: tuple[int, ...] = (3, 5, 10)

    def split(self, seed: int, data: Folder, *, max_test_rows: int | None, scaled: bool = True) -> Split:
        """Cut rows 60 / 20 / 20, as AFABench and GDFS's authors do, in their order with seed 0.

        Missing values become means. Columns are centred by the rows for fitting, and ``scaled`` divides them by their
        standard deviation, too.
        """
        X, y = self.rows(seed, data)
        order, n_test = np.arange(len(y)), self.n_test or len(y) // 5
        np.random.default_rng(seed).shuffle(order)
        test, rest, n_val = order[:n_test][:max_test_rows], order[n_test:], (len(y) - n_test) // 4
        val, train = rest[:n_val], rest[n_val:]
        mean, spread = np.nanmean(X[train], axis=0), np.nanstd(X[train], axis=0)
        X = np.nan_to_num((X - mean) / np.where(scaled & (spread > 0), spread, 1.0))
        names = tuple(map(str, range(X.shape[1])))
        return Split(X[train], y[train], X[val], y[val], X[test], y[test], names)

    def groups(self, n_columns: int) -> Ints:
        """Purchase that reveals each column."""
        return np.maximum(np.arange(n_columns) - self.n_context + 1, 0)

    def quality(self, probabilities: Floats, y: Ints) -> float:
        """Accuracy of the most probable class, or AUROC of class 1."""
        if self.metric == "AUROC":
            return float(roc_auc_score(y, probabilities[:, 1]))
        return float(accuracy_score(y, probabilities.argmax(axis=1)))


def _miniboone(data: Folder) -> tuple[Floats, Ints]:
    parts = load_miniboone(data)
    X = np.concatenate([parts.X_train, parts.X_val, parts.X_test])
    return np.where(X == -999.0, np.nan, X), np.concatenate([parts.y_train, parts.y_val, parts.y_test])


SETS = {
    "cube": AcquisitionSet(lambda seed, _: make_cube(1_400, seed), n_test=600),
    "cube_nm": AcquisitionSet(lambda seed, _: make_cube(1_400, seed, n_contexts=5), n_context=5, n_test=600),
    "context": AcquisitionSet(lambda seed, _: make_cube(20_000, seed, n_contexts=3, noise=0.1)),
    "spam": AcquisitionSet(lambda _, data: load_spam(data)),
    "miniboone": AcquisitionSet(lambda _, data: _miniboone(data)),
    "physionet": AcquisitionSet(lambda _, data: load_physionet(data), metric="AUROC"),
}
"""Sets by name, as AFABench has them, but with 600 test rows for its 200 where rows are drawn at will.

``context`` is CUBE-NM in its first version, and ``miniboone`` has 5,000 of 130,064 events.
"""
