"""Documents to be ranked, and what the features of documents cost.

Only the prices of the Yahoo! Learning to Rank Challenge can be passed on, not its data. Public ranking data has no
prices. So prices of the real list are dealt out to the columns of public data, by a seed; whoever holds the
original files reads them with ``load_yahoo``.
"""

import csv
import io
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_files

from reproduction.datasets.classification import Split
from reproduction.datasets.known_files import (
    Arrays,
    DataFile,
    Folder,
    column_names,
    read_arrays,
    read_checked,
)
from thrifty.arrays import Floats, Ints
from thrifty.errors import DataUnavailableError, InvalidInputError

__all__ = [
    "MSLR_QUERIES",
    "RankingSplit",
    "draw_prices",
    "load_mq2008",
    "load_mslr",
    "load_yahoo",
    "load_yahoo_prices",
]

Part = tuple[Floats, Ints, Ints]

_ARRAYS = "as arrays X, y, qid, split (0 train, 1 validation, 2 test) and feature_names"
_MQ2008 = DataFile(
    "ltr_mq2008_fold1.npz",
    "3ae93153a6d30e587fc9529fdf97676c594750c5abbd85eaf5cd138849a3be46",
    f"fold 1 of LETOR 4.0 MQ2008, normalised by query (Qin and Liu, 2009), {_ARRAYS}",
)
_MSLR = DataFile(
    "ltr_mslr_fold1_10k.npz",
    "7c26feeafccf229d2cda0f1f6922a9f57a24a67812ed75a25d0043fb28d316b1",
    "the first 5,000 rows of the train and of the test file of fold 1 of MSLR-WEB (Qin and Liu, 2010), "
    + _ARRAYS,
)
_PRICES = DataFile(
    "yahoo_ltr_set1_feature_costs.csv",
    "53591daf8c4f73296ff1ae8e40a9074b6241a3e9ae4caadf0b6dcbf54e582c22",
    "the 519 feature costs of Yahoo! Learning to Rank set 1 that came with Feature-Budgeted Random Forest "
    "(Nan, Wang, Saligrama, 2015), columns feature_index_1based and cost",
)

MSLR_QUERIES = 28, 15
"""Training queries to learn from and to choose with."""

_YAHOO_FILES = "set1.train.txt", "set1.valid.txt", "set1.test.txt"
_YAHOO_NUMBERED = 700
"""Features that the challenge numbers; its set 1 uses fewer."""


@dataclass(frozen=True)
class RankingSplit:
    """Documents of queries to learn from, to choose with, and to report on.

    Attributes
    ----------
    X_train, X_val, X_test : ndarray of shape (n_documents, n_features)
        Features of a pair of query and document.
    y_train, y_val, y_test : ndarray of shape (n_documents,)
        Grades of relevance, 0 = none.
    qid_train, qid_val, qid_test : ndarray of shape (n_documents,)
        Query of each document; documents of one query stand together.
    feature_names : tuple of str
        Names of the columns.
    """

    X_train: Floats
    y_train: Ints
    qid_train: Ints
    X_val: Floats
    y_val: Ints
    qid_val: Ints
    X_test: Floats
    y_test: Ints
    qid_test: Ints
    feature_names: tuple[str, ...]

    def relevant_or_not(self) -> Split:
        """Turn grades into classes: label 1 where the grade is at least 1."""
        train, val, test = (
            (grades >= 1).astype(np.intp) for grades in (self.y_train, self.y_val, self.y_test)
        )
        return Split(self.X_train, train, self.X_val, val, self.X_test, test, self.feature_names)


def load_mq2008(data: Folder = None) -> RankingSplit:
    """Load LETOR 4.0 MQ2008, fold 1: 471 / 157 / 156 queries, 9,630 / 2,707 / 2,874 documents, grades 0 to 2."""
    arrays = read_arrays(_MQ2008, data)
    return _cut(arrays, arrays["split"])


def load_mslr(data: Folder = None, *, seed: int = 0) -> RankingSplit:
    """Load a sample of MSLR-WEB, fold 1: 28 / 15 / 43 queries, grades 0 to 4.

    The sample is the first 5,000 documents of the published training file and of the test file, 43 queries each (the
    last of each may be cut short), and none of the validation file: 15 of the training queries, drawn with the
    seed, are set aside to choose with.
    """
    arrays = read_arrays(_MSLR, data)
    queries = np.unique(arrays["qid"][arrays["split"] == 0])
    held_out = np.random.default_rng(seed).permutation(queries)[MSLR_QUERIES[0] :]
    return _cut(arrays, np.where(np.isin(arrays["qid"], held_out), 1, arrays["split"]))


def load_yahoo_prices(data: Folder = None) -> Floats:
    """Load the prices of the 519 features that set 1 of the Yahoo! challenge uses, in units of processor time."""
    lines = csv.DictReader(io.StringIO(read_checked(_PRICES, data).decode()))
    return np.array([float(line["cost"]) for line in lines])


def draw_prices(n_features: int, prices: Floats, seed: int = 0) -> Floats:
    """Deal real prices out to columns that have none.

    Column j gets the j-th of ``n_features`` prices drawn from the list *without* replacement by
    ``numpy.random.default_rng(seed).choice``: the list is used as a pack of cards, not as a distribution.

    Parameters
    ----------
    n_features : int
        Number of columns; at most as many as there are prices.
    prices : ndarray of shape (n_prices,)
        The list, say of ``load_yahoo_prices``.
    seed : int, default=0
        Seed of the draw; another seed is another assignment.
    """
    if not 1 <= n_features <= len(prices):
        raise InvalidInputError(
            f"n_features must lie between 1 and the {len(prices)} prices that can be dealt out; got {n_features!r}."
        )
    return np.random.default_rng(seed).choice(prices, size=n_features, replace=False)


def load_yahoo(folder: str | os.PathLike[str]) -> tuple[RankingSplit, Floats]:
    """Load set 1 of the Yahoo! Learning to Rank Challenge from its original files, and the price of each column.

    The files number 700 features, of which set 1 uses 519, and the price list numbers those 519 in a row. So columns
    that no line of the training file mentions are dropped, and what remains must be 519 columns: the j-th of them
    costs the j-th price. Rows are unpacked to float64, 2 GB for all three files.

    Parameters
    ----------
    folder : path
        Folder with ``yahoo_ltr_set1_feature_costs.csv``, ``set1.train.txt``, ``set1.valid.txt`` and ``set1.test.txt``
        (lines ``grade qid:query feature:value ...``).
    """
    prices = load_yahoo_prices(folder)
    paths = [Path(folder) / name for name in _YAHOO_FILES]
    for path in paths:
        if not path.is_file():
            raise DataUnavailableError(
                f"{path} does not exist. Put the file of set 1 there as it was published."
            )
    read = load_svmlight_files(paths, n_features=_YAHOO_NUMBERED, query_id=True, zero_based=False)
    tables = list(zip(read[::3], read[1::3], read[2::3], strict=True))
    kept = np.unique(tables[0][0].indices)
    if len(kept) != len(prices):
        raise InvalidInputError(
            f"{paths[0]} uses {len(kept)} features where the price list has {len(prices)}. "
            f"Use the files of set 1 as they were published."
        )
    parts = [(X[:, kept].toarray(), y.astype(np.intp), qid.astype(np.intp)) for X, y, qid in tables]
    return _joined(parts, tuple(f"f{column + 1}" for column in kept)), prices


def _cut(arrays: Arrays, part: Ints) -> RankingSplit:
    pieces: list[Part] = []
    for code in (0, 1, 2):
        rows = np.flatnonzero(part == code)
        X, y, qid = arrays["X"][rows], arrays["y"][rows], arrays["qid"][rows]
        pieces.append((X.astype(np.float64), y.astype(np.intp), qid.astype(np.intp)))
    return _joined(pieces, column_names(arrays))


def _joined(parts: list[Part], names: tuple[str, ...]) -> RankingSplit:
    train, val, test = parts
    return RankingSplit(*train, *val, *test, names)
