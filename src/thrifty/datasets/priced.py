"""Medical tables with the real prices of their tests (Turney, 1995; Canadian dollars, 1 = a question)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats
from thrifty.datasets.files import DataFile, Folder, read_arrays
from thrifty.exceptions import InvalidInputError

__all__ = ["PRICED_NAMES", "PricedTable", "load_priced"]


_PRICES = (
    "with the test prices of Turney (1995), as arrays X, y, cost, cost_discount, group and feature_names"
)
_FILES = {
    "heart": DataFile(
        "cost_heart_cleveland.npz",
        "20905a99db6371600319b389e53a8818667e4b2683f5ca3e254661c0229f6b3f",
        f"the processed Cleveland file of UCI Heart Disease (Janosi and others, 1988) {_PRICES}",
    ),
    "pima": DataFile(
        "cost_pima_diabetes.npz",
        "81814b1d178e291019dde8a882a5b9e1cb696095f103f996eb1340cf661ec93b",
        f"the Pima Indians Diabetes data (NIDDK, 1990) {_PRICES}",
    ),
    "hepatitis": DataFile(
        "cost_hepatitis.npz",
        "007c8bb6b09c5b83276c5f4842b04b8f8c107dda97b785f0f467b1c73ceb1313",
        f"the UCI Hepatitis data (Gong, 1988) {_PRICES}",
    ),
    "thyroid": DataFile(
        "cost_ann_thyroid.npz",
        "a6800328a008e208823dfebaa5f4f1c092016072a50a6e67b17a0c55c42ffbbe",
        f"the ann-thyroid files of UCI Thyroid Disease (Werner, 1992) {_PRICES}",
    ),
}
PRICED_NAMES = tuple(_FILES)
"""Names that ``load_priced`` knows."""


@dataclass(frozen=True)
class PricedTable:
    """A small table whose columns have real prices.

    Attributes
    ----------
    X : ndarray of shape (n_samples, n_features)
        Missing values are NaN.
    y : ndarray of shape (n_samples,)
        0 / 1; what 1 means is said in ``load_priced``.
    feature_costs : ndarray of shape (n_features,)
        Price of a test that is bought alone.
    later_costs : ndarray of shape (n_features,)
        Its price once another test of the same group has been bought: blood is drawn once.
    groups : tuple of str
        Group of each column; "" is a test that shares nothing. These are *discounts*: unlike the ``feature_groups`` of
        an estimator, one purchase does not deliver the whole group.
    feature_names : tuple of str
        Names of the columns.
    """

    X: Floats
    y: NDArray[np.intp]
    feature_costs: Floats
    later_costs: Floats
    groups: tuple[str, ...]
    feature_names: tuple[str, ...]


def load_priced(name: str, data: Folder = None) -> PricedTable:
    """A medical table with real prices; all its rows, in file order, without a split.

    Parameters
    ----------
    name : {"heart", "pima", "hepatitis", "thyroid"}
        What a label 1 means: heart disease of any grade (303 rows); diabetes (768); survival (155); either of the two
        thyroid diseases (7,200). The thyroid's FTI is left out: it is computed from TT4 and T4U and has no price.
    data : path, optional
        Folder with the files; else the one in ``THRIFTY_DATA``.
    """
    if name not in _FILES:
        raise InvalidInputError(f"name must be one of {', '.join(PRICED_NAMES)}; got {name!r}.")
    arrays = read_arrays(_FILES[name], data)
    kept = np.flatnonzero(arrays["feature_names"] != "FTI")
    return PricedTable(
        X=arrays["X"][:, kept].astype(np.float64),
        y=_positive(name, arrays["y"]).astype(np.intp),
        feature_costs=arrays["cost"][kept].astype(np.float64),
        later_costs=arrays["cost_discount"][kept].astype(np.float64),
        groups=tuple(str(group) for group in arrays["group"][kept]),
        feature_names=tuple(str(feature) for feature in arrays["feature_names"][kept]),
    )


def _positive(name: str, y: NDArray[Any]) -> NDArray[np.bool_]:
    # Thyroid: 1 and 2 are diseases, 3 is none. Heart: 0 is none, 1 to 4 are grades. The others are 0 / 1.
    positive: NDArray[np.bool_] = y < 3 if name == "thyroid" else y > 0
    return positive
