"""Tables and images with classes: the paper's data by name, sensors that drift, and medical tests with real prices."""

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from reproduction.datasets.known_files import (
    DataFile,
    Folder,
    OpenmlSet,
    column_names,
    read_arrays,
    read_checked,
)
from thrifty.arrays import Floats, Ints
from thrifty.errors import InvalidInputError

__all__ = [
    "FOREST_SIZES",
    "PRICED_NAMES",
    "SCENE15_SIZES",
    "PricedTable",
    "SensorTable",
    "Split",
    "load_cifar_images",
    "load_digits_at_least_five",
    "load_forest",
    "load_gas_drift",
    "load_letters",
    "load_miniboone",
    "load_physionet",
    "load_priced",
    "load_scene15",
    "load_spam",
    "make_synthetic",
]

_LETTERS = DataFile(
    "letter.npz",
    "14227dcdca563007800a525b117751b1595a83edaeb938a613c9796bdf1c1e38",
    "the UCI Letter Recognition data (Slate, 1991) as arrays X (20000, 16) and y (20000,), in file order",
    OpenmlSet(
        6,
        {letter: code for code, letter in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZ")},
        "f03e20f59e07febd240fc350c42476c253342bc8dc34eef873424cf6dbc4a961",
    ),
)

_MINIBOONE = DataFile(
    "miniboone_5k.npz",
    "353bb95020f1c7c09a0c2d544c9e2d7058964b97d8180a884cd6d672f0479459",
    "the balanced 5,000-event subset of UCI MiniBooNE (Roe, 2010) that came with Feature-Budgeted Random Forest "
    "(Nan, Wang, Saligrama, 2015), as arrays X (5000, 50), y and split (0 train, 1 validation, 2 test)",
)
_FOREST = DataFile(
    "covtype.npz",
    "0d5aa2bc4daae303d3006c17d1bfa125078ee52399341b5f48fca1c533c808da",
    "the UCI Covertype data (Blackard, 1998) as arrays X (581012, 54) and y (581012,) in 1..7, in file order",
    OpenmlSet(
        1596,
        {str(code): code for code in range(1, 8)},
        "c337add3c92712e86b6cfcb20e5cdbee8d2e22c5fc9d597a9351bc9bf8e3915f",
    ),
)
_CIFAR = DataFile(
    "cifar10_20k.npz",
    "37845c6dad697f8d1d1a5e64a63f5b8ad63a5db25926492ddbdc1e85f781432d",
    "20,000 images of CIFAR-10 (Krizhevsky, 2009), 2,000 a class, as arrays d (differences of pixels) and y",
)
_SCENE15 = DataFile(
    "scene15_3view.npz",
    "82f98f50f0b74ac6f21e73edd772270390133665ac5703a5dd47e997d29f82b7",
    "the Scene-15 images (Lazebnik, Schmid, Ponce, 2006) as three descriptors, GIST, PHOG and LBP: arrays "
    "X (4485, 119), y (4485,) in 0..14 and view (119,)",
)
_GAS_DRIFT = DataFile(
    "gas_drift_8batch.npz",
    "8e9c30998997cb7a3c0b6de4aae695be076a5dce5daa3ea38f3979dbbc60d807",
    "batches 1 to 6, 8 and 9 of the UCI Gas Sensor Array Drift data (Vergara and others, 2012) as arrays "
    "X (6697, 128), y (6697,) in 0..5, batch (6697,), sensor (128,) and feature_names (128,)",
)
_SPAM = DataFile(
    "spam.csv",
    "6da53e84a5e300430bfd3ee68fdc4e4bc42cedbc3c3ddfc61ac897348453da07",
    "datasets/spam.csv of github.com/iancovert/dynamic-selection, which is UCI Spambase (Hopkins and others, 1999)",
)
_PHYSIONET = DataFile(
    "physionet.csv",
    "daca2ea78d228b93488f68938ab667a31e683adcbe916b77769633bc297aad91",
    "extra/data/misc/physionet.csv of github.com/Linusaronsson/AFA-Benchmark, 12,000 stays of the PhysioNet Challenge "
    "2012 (Silva and others, 2012)",
)
_TURNEY = (
    "with the test prices of Turney (1995), as arrays X, y, cost, cost_discount, group and feature_names"
)
_PRICED = {
    "heart": DataFile(
        "cost_heart_cleveland.npz",
        "20905a99db6371600319b389e53a8818667e4b2683f5ca3e254661c0229f6b3f",
        f"the processed Cleveland file of UCI Heart Disease (Janosi and others, 1988) {_TURNEY}",
    ),
    "pima": DataFile(
        "cost_pima_diabetes.npz",
        "81814b1d178e291019dde8a882a5b9e1cb696095f103f996eb1340cf661ec93b",
        f"the Pima Indians Diabetes data (NIDDK, 1990) {_TURNEY}",
    ),
    "hepatitis": DataFile(
        "cost_hepatitis.npz",
        "007c8bb6b09c5b83276c5f4842b04b8f8c107dda97b785f0f467b1c73ceb1313",
        f"the UCI Hepatitis data (Gong, 1988) {_TURNEY}",
    ),
    "thyroid": DataFile(
        "cost_ann_thyroid.npz",
        "a6800328a008e208823dfebaa5f4f1c092016072a50a6e67b17a0c55c42ffbbe",
        f"the ann-thyroid files of UCI Thyroid Disease (Werner, 1992) {_TURNEY}",
    ),
}

FOREST_SIZES = 36_603, 15_688, 58_101
"""Rows to learn from, to choose with and to report on, as in the paper's appendix."""
SCENE15_SIZES = 1_500, 300, 2_685
"""Rows to learn from, to choose with and to report on: a third of the 4,485 images, a few, and the rest."""
PRICED_NAMES = tuple(_PRICED)
"""Names that ``load_priced`` knows."""

NEXT_DAY = {
    "heart": ("chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca", "thal"),
    "pima": ("glucose", "insulin"),
    "hepatitis": ("bilirubin", "alk_phosphate", "sgot", "albumin", "protime"),
    "thyroid": ("TSH", "T3", "TT4", "T4U"),
}
"""Tests whose results come the next day, by Turney's files of delays; those of hepatitis are its blood tests."""


@dataclass(frozen=True)
class Split:
    """Rows to learn from, to choose with, and to report on, with labels 0 / 1, or 0, 1, 2 and so on."""

    X_train: Floats
    y_train: Ints
    X_val: Floats
    y_val: Ints
    X_test: Floats
    y_test: Ints
    feature_names: tuple[str, ...]


@dataclass(frozen=True)
class SensorTable:
    """Rows that sensors measured over time.

    Attributes
    ----------
    X : ndarray of shape (n_samples, n_features)
        What the sensors measured.
    y : ndarray of shape (n_samples,)
        Class of each row, from 0.
    batch : ndarray of shape (n_samples,)
        Number of the batch of each row, in the order of time.
    sensor : ndarray of shape (n_features,)
        Number of the sensor that a column comes from: the ``feature_groups`` of an estimator.
    feature_names : tuple of str
        Names of the columns.
    """

    X: Floats
    y: Ints
    batch: Ints
    sensor: Ints
    feature_names: tuple[str, ...]


@dataclass(frozen=True)
class PricedTable:
    """A small table whose columns have real prices.

    Attributes
    ----------
    X : ndarray of shape (n_samples, n_features)
        Results of the tests; missing ones are NaN.
    y : ndarray of shape (n_samples,)
        Labels 0 / 1; what 1 means is said in ``load_priced``.
    feature_costs : ndarray of shape (n_features,)
        Price of a test that is bought alone.
    later_costs : ndarray of shape (n_features,)
        Price of a test once another one of its group has been bought: blood is drawn once.
    groups : tuple of str
        Group of each column; "" is a test that shares nothing. These are *discounts*: unlike the ``feature_groups`` of
        an estimator, one purchase does not deliver the whole group.
    feature_names : tuple of str
        Names of the columns.
    days : ndarray of shape (n_features,)
        Delay of each result, in days: tests that are ordered together wait together.
    """

    X: Floats
    y: Ints
    feature_costs: Floats
    later_costs: Floats
    groups: tuple[str, ...]
    feature_names: tuple[str, ...]
    days: Floats

    @property
    def discounts(self) -> dict[str, tuple[list[int], float]]:
        """Discounts as ``thrifty.Prices`` takes them: columns, and what each costs less that is not the first."""
        labels = sorted({group for group in self.groups if group})
        columns = {label: [i for i, group in enumerate(self.groups) if group == label] for label in labels}
        saved = np.round(self.feature_costs - self.later_costs, 2)
        return {label: (those, float(saved[those[0]])) for label, those in columns.items() if len(those) > 1}


def load_letters(data: Folder = None) -> Split:
    """Load Letter Recognition, letters before N against the rest: 12,000 / 4,000 / 4,000 rows as in the paper."""
    arrays = read_arrays(_LETTERS, data)
    X, y = arrays["X"].astype(np.float64), (arrays["y"] >= 13).astype(np.intp)
    return _in_order(X, y, 12_000, 16_000, column_names(arrays))


def load_miniboone(data: Folder = None, *, seed: int | None = None) -> Split:
    """Load MiniBooNE, electron against muon neutrinos: 2,000 / 1,000 / 2,000 events of a subset of 5,000.

    Without a seed the split is the published one; a seed draws another of the same sizes.
    """
    arrays = read_arrays(_MINIBOONE, data)
    names = column_names(arrays)
    part = np.argsort(arrays["split"], kind="stable")
    order = part if seed is None else np.random.default_rng(seed).permutation(len(part))
    X, y = arrays["X"].astype(np.float64)[order], arrays["y"].astype(np.intp)[order]
    return _in_order(X, y, 2_000, 3_000, names)


def load_forest(data: Folder = None, *, seed: int = 0) -> Split:
    """Load Covertype, lodgepole pine against the rest: 36,603 / 15,688 / 58,101 rows drawn with a seed."""
    arrays = read_arrays(_FOREST, data)
    train, val, test = FOREST_SIZES
    order = np.random.default_rng(seed).permutation(len(arrays["y"]))[: train + val + test]
    X, y = arrays["X"][order].astype(np.float64), (arrays["y"][order] == 2).astype(np.intp)
    return _in_order(X, y, train, train + val, column_names(arrays))


def load_cifar_images(data: Folder = None) -> tuple[NDArray[np.uint8], Ints]:
    """Load 20,000 images of CIFAR-10, shape (n, 32, 32, 3), and whether each is of the last five classes."""
    arrays = read_arrays(_CIFAR, data)
    # Stored as differences along both sides of (G, R - G, B - G), modulo 256.
    plane = np.cumsum(np.cumsum(arrays["d"], axis=3, dtype=np.uint8), axis=2, dtype=np.uint8)
    green = plane[:, 0]
    images = np.stack([plane[:, 1] + green, green, plane[:, 2] + green], axis=-1)
    return images, (arrays["y"] >= 5).astype(np.intp)


def load_scene15(data: Folder = None, *, seed: int = 0, two_classes: bool = True) -> tuple[Split, Ints]:
    """Load Scene-15, 1,500 / 300 / 2,685 images, and the descriptor of each column.

    The source does not name its fifteen codes, so that no split by meaning (indoors or outdoors, say) can be
    made: of two classes, the first eight codes are class 0, the last seven class 1. The second value, of shape
    (119,), numbers the descriptor that a column belongs to (0 GIST, 1 PHOG, 2 LBP); whoever computes one number of a
    descriptor has computed them all, so it is the ``feature_groups`` of an estimator.

    Parameters
    ----------
    data : path, optional
        Folder with the file; by default the one in ``THRIFTY_DATA``.
    seed : int, default=0
        Seed of the split.
    two_classes : bool, default=True
        Whether labels are the two halves of the codes, or the fifteen codes as they are.
    """
    arrays = read_arrays(_SCENE15, data)
    train, val, _ = SCENE15_SIZES
    order = np.random.default_rng(seed).permutation(len(arrays["y"]))
    X, codes = arrays["X"][order].astype(np.float64), arrays["y"][order]
    y = (codes >= 8 if two_classes else codes).astype(np.intp)
    names = column_names(arrays)
    return _in_order(X, y, train, train + val, names), arrays["view"].astype(np.intp)


def load_gas_drift(data: Folder = None) -> SensorTable:
    """Load 6,697 rows of six gases, as 16 ageing sensors with eight columns each saw them in eight batches.

    Batches 7 and 10 of the published data are not in the file. Toluene, class 5, is absent from batches 3 to 5.
    """
    arrays = read_arrays(_GAS_DRIFT, data)
    return SensorTable(
        X=arrays["X"].astype(np.float64),
        y=arrays["y"].astype(np.intp),
        batch=arrays["batch"].astype(np.intp),
        sensor=arrays["sensor"].astype(np.intp),
        feature_names=column_names(arrays),
    )


def load_priced(name: str, data: Folder = None) -> PricedTable:
    """Load a medical table with the real prices of its tests: all rows, in file order, without a split.

    Prices are those of Turney (1995), in Canadian dollars of the time; a question costs 1. Laboratories answer the next
    day.

    Parameters
    ----------
    name : {"heart", "pima", "hepatitis", "thyroid"}
        What a label 1 means: heart disease of any grade (303 rows); diabetes (768); survival (155); either of the two
        thyroid diseases (7,200). The thyroid's FTI is left out: it is computed from TT4 and T4U and has no price.
    data : path, optional
        Folder with the files; by default the one in ``THRIFTY_DATA``.
    """
    if name not in _PRICED:
        raise InvalidInputError(f"name must be one of {', '.join(PRICED_NAMES)}; got {name!r}.")
    arrays = read_arrays(_PRICED[name], data)
    names = column_names(arrays)
    kept = [column for column, feature in enumerate(names) if feature != "FTI"]
    return PricedTable(
        X=arrays["X"][:, kept].astype(np.float64),
        # Thyroid: 1 and 2 are diseases, 3 is none. Heart: 0 is none, 1 to 4 are grades. The others are 0 / 1.
        y=(arrays["y"] < 3 if name == "thyroid" else arrays["y"] > 0).astype(np.intp),
        feature_costs=arrays["cost"][kept].astype(np.float64),
        later_costs=arrays["cost_discount"][kept].astype(np.float64),
        groups=tuple(str(group) for group in arrays["group"][kept]),
        feature_names=tuple(names[column] for column in kept),
        days=np.array([float(names[column] in NEXT_DAY[name]) for column in kept]),
    )


def load_spam(data: Folder = None) -> tuple[Floats, Ints]:
    """Load Spambase: 4,601 messages, 57 shares of words and lengths of runs, label 1 is spam."""
    return _read_csv(_SPAM, data)


def load_physionet(data: Folder = None) -> tuple[Floats, Ints]:
    """Load 12,000 stays in intensive care, 41 means of what was measured, NaN where nothing was; label 1 is a death."""
    return _read_csv(_PHYSIONET, data)


def load_digits_at_least_five(seed: int = 0) -> Split:
    """Load scikit-learn's hand-written digits, is it 5 or more? 1,797 rows of 64 pixels, half to learn from."""
    bunch = load_digits()
    order = np.random.default_rng(seed).permutation(len(bunch.target))
    X, y = bunch.data[order], (bunch.target[order] >= 5).astype(np.intp)
    return _in_order(X, y, 900, 1350, tuple(bunch.feature_names))


def make_synthetic(seed: int = 0, noise: float = 0.01) -> tuple[Floats, Ints]:
    """Draw four clusters on a plane, the paper's figure 1: sizes 20, 20, 15, 15; classes 0, 1, 0, 1.

    Feature 2 alone separates clusters 3 and 4 from each other and from the first two; feature 1
    alone separates only cluster 1.
    """
    rng = np.random.default_rng(seed)
    centres = np.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [-1.0, -3.0]])
    cluster = np.repeat(np.arange(4), [20, 20, 15, 15])
    return centres[cluster] + rng.normal(scale=noise, size=(70, 2)), cluster % 2


def _read_csv(file: DataFile, data: Folder) -> tuple[Floats, Ints]:
    """Columns and, from the last one, labels of a file with a line of names."""
    values = np.genfromtxt(io.BytesIO(read_checked(file, data)), delimiter=",", skip_header=1)
    return values[:, :-1], values[:, -1].astype(np.intp)


def _in_order(X: Floats, y: Ints, train_end: int, val_end: int, names: tuple[str, ...]) -> Split:
    """Cut rows that already stand in the order in which they are to be used."""
    train, val, test = slice(train_end), slice(train_end, val_end), slice(val_end, None)
    return Split(X[train], y[train], X[val], y[val], X[test], y[test], names)
