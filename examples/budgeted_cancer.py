"""A classifier that buys measurements one after the other, for each patient only until it is sure enough.

    python examples/budgeted_cancer.py

Thirty measurements of a tumour; those of the "worst" cells need a second look under the microscope and cost three times
as much. The full model reads them all.
"""

from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from thrifty import BudgetedClassifier


def main() -> None:
    """Fit once, look at three budgets, and retell the way of one patient."""
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    X, X_test, y, y_test = train_test_split(X, y, stratify=y, random_state=0)
    costs = {name: 3.0 if name.startswith("worst") else 1.0 for name in X.columns}
    full = make_pipeline(StandardScaler(), LogisticRegression())
    clf = BudgetedClassifier(full, feature_costs=costs, random_state=0).fit(X, y)
    f0 = full.fit(X, y)
    print(f"f0: accuracy {f0.score(X_test, y_test):.3f} at cost {sum(costs.values()):g}")
    for budget in (2, 4, 8):
        there = clf.at(budget=budget)
        spent = there.cost(X_test).mean()
        print(f"budget {budget}: accuracy {there.score(X_test, y_test):.3f} at cost {spent:.2f}")
    print("\nthe first patient at a budget of 4:")
    print(clf.at(budget=4).explain(X_test[:1])[0])


if __name__ == "__main__":
    main()
