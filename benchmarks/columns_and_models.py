"""Columns that cost before models that cost: ``CascadeClassifier(prices=...)`` and its rivals, at equal budgets.

    python benchmarks/columns_and_models.py [heart thyroid satimage] --splits 5

Three estimators, which cost 1, 2 and 6 % of all columns. Prices of thyroid and heart are those of Turney (1995), a
column of satimage costs 1. Budgets are shares of the price of all columns. Rivals: ``BudgetedClassifier`` in front of
the most accurate estimator, by cross-validation on the rows of the fit, whose price is that of a full model; and a
cascade of the estimators of which every row has bought all columns. Accuracy is that on new rows, and what rows have
really paid stands beside it. Last line: mean difference over budgets to each rival, with its standard error over
splits.
"""

import argparse
import os
import warnings
from pathlib import Path

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ShuffleSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from reproduction.datasets import load_priced
from thrifty import BudgetedClassifier, CascadeClassifier, Prices
from thrifty.errors import InvalidParameterError

DATA = Path(os.environ.get("THRIFTY_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SHARES, N_FIT = (0.05, 0.1, 0.2, 0.35, 0.6), 2_500
MODEL_SHARES = {"logistic": 0.01, "boosting": 0.02, "trees": 0.06}


def table(name):
    """Columns, labels and prices of the columns."""
    if name == "satimage":
        with np.load(DATA / "satimage.npz") as arrays:
            X = arrays["X"].astype(np.float64)
            return X, arrays["y"], np.ones(X.shape[1])
    priced = load_priced(name)
    X = np.where(np.isnan(priced.X), np.nanmedian(priced.X, axis=0), priced.X)  # six cells of heart
    return X, priced.y, priced.feature_costs


def estimators():
    """Three estimators of rising price."""
    return {
        "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
        "boosting": HistGradientBoostingClassifier(max_iter=60, early_stopping=False, random_state=0),
        "trees": ExtraTreesClassifier(100, min_samples_leaf=2, random_state=0),
    }


def compare(name, seed):
    """Accuracy and cost at each budget, of the plan and its rivals, on one split."""
    X, y, costs = table(name)
    fit, new = next(
        ShuffleSplit(1, test_size=0.3, train_size=min(0.7, N_FIT / len(X)), random_state=seed).split(X)
    )
    whole = float(costs.sum())
    prices = {model: share * whole for model, share in MODEL_SHARES.items()}
    models = estimators()
    plan = CascadeClassifier([*models.items()], model_prices=prices, prices=Prices(costs), random_state=seed)
    plan.fit(X[fit], y[fit])
    best = max(models, key=lambda model: cross_val_score(models[model], X[fit], y[fit], cv=4).mean())
    front = BudgetedClassifier(models[best], prices=Prices(costs, full=prices[best]), random_state=seed)
    front.fit(X[fit], y[fit])
    bought = CascadeClassifier([*models.items()], model_prices=prices, random_state=seed).fit(X[fit], y[fit])
    rows = []
    for share in SHARES:
        budget = share * whole
        line = []
        for system, paid in ((plan, 0.0), (front, 0.0), (bought, whole)):
            try:
                there = system.at(budget=budget - paid)
            except InvalidParameterError:  # affords nothing: the most frequent class
                line.append((float((y[new] == np.bincount(y[fit].astype(int)).argmax()).mean()), 0.0))
                continue
            line.append((there.score(X[new], y[new]), float(np.mean(there.cost(X[new])) + paid) / whole))
        rows.append(line)
    dearest = bought.score(X[new], y[new]), 1.0 + float(bought.cost(X[new]).mean()) / whole
    return np.array(rows), dearest, best


def main():
    """Print a table for each data set."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="*", default=["heart", "thyroid", "satimage"])
    parser.add_argument("--splits", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in arguments.tables:
        found = [compare(name, seed) for seed in range(arguments.splits)]
        values = np.stack([rows for rows, _, _ in found])
        mean, best = values.mean(axis=0), sorted({best for _, _, best in found})
        print(
            f"{name}, {arguments.splits} splits: accuracy (cost as a share of all columns); best: {', '.join(best)}"
        )
        print("budget   one plan        BudgetedClassifier before the best")
        for share, line in zip(SHARES, mean, strict=True):
            print(f"{share:6.2f}", *(f"  {score:.4f} ({paid:.3f})" for score, paid in line[:2]))
        dearest = np.mean([one for _, one, _ in found], axis=0)
        gap = (values[:, :, 0, 0] - values[:, :, 1, 0]).mean(axis=1)
        error = gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else np.nan
        print(f"plan less BudgetedClassifier {gap.mean():+.4f}, standard error {error:.4f}")
        last = values[:, -1, 0, 0] - [one[0] for _, one, _ in found]
        error = last.std(ddof=1) / np.sqrt(len(last)) if len(last) > 1 else np.nan
        print(f"cascade that has bought all columns: {dearest[0]:.4f} ({dearest[1]:.3f})")
        print(f"plan at {SHARES[-1]:g} less that {last.mean():+.4f}, standard error {error:.4f}", flush=True)


if __name__ == "__main__":
    main()
