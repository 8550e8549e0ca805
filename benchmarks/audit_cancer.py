"""Audit of LightGBM on a table that comes with scikit-learn; prices are those of a number per column."""

import numpy as np
from lightgbm import LGBMClassifier
from sklearn.datasets import load_breast_cancer

from thrifty import audit

data = load_breast_cancer(as_frame=True)
X, y = data.data, data.target
# The ten means are at hand on every slide; their errors and worst values take longer to measure.
prices = np.repeat([1.0, 2.0, 3.0], 10)
model = LGBMClassifier(n_estimators=100, verbosity=-1, random_state=0).fit(X[::2], y[::2])
print(audit(model, X[1::2], prices, y[1::2]))
