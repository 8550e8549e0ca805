"""What another processor would compute: the last bit of numbers that come out of a BLAS is another one.

A BLAS adds in the order that suits the processor and the number of rows, so a row alone may differ from the row in a
batch, and equal rows of one batch from each other. ``make test-kernels KERNEL=last-bits`` runs the tests with this.
"""

import functools

import numpy as np
import sklearn.datasets
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model._base import LinearClassifierMixin, LinearModel


def nudged(values, noise):
    """Numbers one unit in the last place up, down, or as they were."""
    return np.where(noise == 0, values, np.nextafter(values, np.where(noise > 0, np.inf, -np.inf)))


def _noise(values):
    """-1, 0 or 1 for each number, by its bits."""
    bits = np.ascontiguousarray(values, dtype=np.float64).view(np.uint64)
    return (bits % 3).astype(int) - 1


def by_content(values):
    """Equal numbers are moved alike, as they are where the same product is computed twice."""
    return nudged(values, _noise(values))


def by_place(values):
    """Numbers are moved by their place and by how many there are."""
    values = np.asarray(values)
    place = np.arange(values.size).reshape(values.shape) + len(values)
    return nudged(values, place % 3 - 1)


def move_last_bits():
    """Let scikit-learn's made-up data, and the scores of its linear models, be those of another processor."""
    for name in ("make_classification", "make_regression"):
        setattr(sklearn.datasets, name, _other_data(getattr(sklearn.datasets, name)))
    LogisticRegression.fit = _other_solution(LogisticRegression.fit)
    LinearClassifierMixin.decision_function = _other_scores(LinearClassifierMixin.decision_function)
    LinearModel._decision_function = _other_scores(LinearModel._decision_function)


def _other_data(make):
    @functools.wraps(make)
    def other(*arguments, **options):
        X, *rest = make(*arguments, **options)
        return by_content(X), *rest

    return other


def _other_scores(score):
    @functools.wraps(score)
    def other(self, X):
        return by_place(score(self, X))

    return other


def _other_solution(fit):
    @functools.wraps(fit)
    def other(self, *arguments, **options):
        fit(self, *arguments, **options)
        if self.solver == "lbfgs":  # stops early, and the way there depends on the last bits
            self.coef_ = self.coef_ * (1.0 + 1e-7 * _noise(self.coef_))
        return self

    return other
