"""Run by the test of workers: a sweep in two processes whose one fit says that it began and then takes an hour."""

import os
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from thrifty import ConfidenceRouter, sweep


class Slow(ClassifierMixin, BaseEstimator):
    """A cheap model that is not cheap at all."""

    def __init__(self, folder=""):
        self.folder = folder

    def fit(self, X, y, sample_weight=None):
        Path(self.folder, str(os.getpid())).touch()
        time.sleep(3600)
        return self


if __name__ == "__main__":
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = X[:, 0] > 0
    probabilities = np.where(y, 0.9, 0.1)
    sweep(
        ConfidenceRouter(probabilities[:40], Slow(sys.argv[1])),
        {"features": [[0]]},
        *(X[:40], y[:40], X[40:], y[40:]),
        full_val=probabilities[40:],
        n_jobs=2,
    )
