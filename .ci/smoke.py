"""What must work where nothing but the package is installed: import, fit, save, load and answer, with types."""

import importlib.metadata
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

import thrifty

home = Path(thrifty.__file__).parent
assert "site-packages" in str(home), f"thrifty was imported from {home}, not from the installation"
assert (home / "py.typed").is_file(), "py.typed is not installed"
assert importlib.metadata.version("thrifty") == thrifty.__version__
for name in thrifty.__all__:
    getattr(thrifty, name)

X, y = load_breast_cancer(return_X_y=True)
fitted = thrifty.BudgetedClassifier(
    budget=3, stages=thrifty.StageOptions(sizes=[(20, 3)]), cv=3, random_state=0
).fit(X[::2], y[::2])
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "system.thrifty"
    thrifty.save(fitted, path)
    loaded = thrifty.load(path)
np.testing.assert_array_equal(loaded.predict_proba(X[1::2]), fitted.predict_proba(X[1::2]))
np.testing.assert_array_equal(loaded.cost(X[1::2]), fitted.cost(X[1::2]))
assert fitted.score(X[1::2], y[1::2]) > 0.9
print(
    f"thrifty {thrifty.__version__} fits, saves, loads and answers; mean cost {loaded.cost(X[1::2]).mean():.3g}"
)
