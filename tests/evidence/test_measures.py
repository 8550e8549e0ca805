"""Measures of operating points: scikit-learn's numbers, bands by brute force, and what is known without scores."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    log_loss,
    mean_absolute_error,
    r2_score,
    recall_score,
    roc_auc_score,
    root_mean_squared_error,
)

from thrifty import (
    BudgetedClassifier,
    BudgetedRegressor,
    ConfidenceRouter,
    Frontier,
    Prices,
    StageOptions,
    evidence_of,
)
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.measures import banded, measured_rows, score_interval
from thrifty.engine.walk.policy import Policy
from thrifty.errors import InvalidInputError

pytestmark = pytest.mark.slow

SMALL = {"stages": StageOptions(sizes=[(4, 2)]), "cv": 2, "random_state": 0}
DRAWS = {"n_boot": 50, "seed": 3}


def labelled(n_classes):
    X, y = make_classification(300, 4, n_informative=3, n_redundant=0, n_classes=n_classes, random_state=0)
    return X, np.array(["a", "b", "c"])[y]


@pytest.fixture(scope="module", params=[2, 3])
def classifier(request):
    X, y = labelled(request.param)
    return BudgetedClassifier(LogisticRegression(), **SMALL).fit(X[:150], y[:150]), X[150:], y[150:]


def test_measures_of_labels_are_those_of_scikit_learn(classifier):
    clf, X, y = classifier
    frontier = clf.frontier_.on([evidence_of(clf, X, y)])
    line = frontier.measures([frontier.chosen.cost[-1]], **DRAWS).iloc[0]
    there = clf.at(budget=float(frontier.chosen.cost[-1]))
    answers, probability = there.predict(X), there.predict_proba(X)
    several = len(clf.classes_) > 2
    expected = {
        "accuracy": accuracy_score(y, answers),
        "balanced accuracy": balanced_accuracy_score(y, answers),
        "log-loss": log_loss(y, probability),
        "AUC": roc_auc_score(y, probability, multi_class="ovr")
        if several
        else roc_auc_score(y, probability[:, 1]),
        **{
            f"recall of {label!r}": recall_score(y, answers, labels=[label], average=None)[0]
            for label in clf.classes_.tolist()
        },
    }
    assert line[list(expected)].to_dict() == pytest.approx(expected)
    for name in expected:
        assert line[f"{name}_low"] < line[name] < line[f"{name}_high"]


def test_bands_are_percentiles_of_measures_of_the_resampled_rows(classifier):
    clf, X, y = classifier
    seen, point = evidence_of(clf, X, y), clf.chain_.policy.thresholds[-1]

    def bands(evidence, **draws):
        rows = measured_rows([(evidence, point)], clf.chain_.task)
        return {name: np.ravel(ends) for name, ends in banded(rows, rows.names, **draws).items()}

    found = bands(seen, level=0.9, **DRAWS)
    taken = np.random.default_rng(DRAWS["seed"]).integers(0, len(y), size=(len(y), DRAWS["n_boot"]))
    alike = {"level": 0.9, "n_boot": 21, "seed": 0}
    again = [bands(seen.take(rows), **alike) for rows in taken.T]
    for name, (_, low, high) in found.items():
        values = [one[name][0] for one in again]
        assert (low, high) == pytest.approx(tuple(np.quantile(values, [0.05, 0.95])))


@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
@pytest.mark.parametrize("kind", [BudgetedClassifier, ConfidenceRouter])
def test_a_fitted_estimator_knows_balanced_accuracy_and_recalls_without_scores(kind):
    X, y = labelled(2)
    clf = kind(
        LogisticRegression(), **(SMALL if kind is BudgetedClassifier else {"prices": Prices(0.0, full=1.0)})
    ).fit(X, y)
    assert clf.evidence_.scores is None
    table = clf.frontier_.measures(**DRAWS)
    assert len(table) == 11
    recalls = table[["recall of 'a'", "recall of 'b'"]]
    np.testing.assert_allclose(table["balanced accuracy"], recalls.mean(axis=1))
    assert "AUC" not in table


def test_measures_of_numbers_are_those_of_scikit_learn_in_the_unit_of_the_target():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 3))
    y = 100 + 10 * (X @ [3.0, 2.0, 1.0] + rng.normal(size=240))
    model = BudgetedRegressor(LinearRegression(), **SMALL).fit(X[:120], y[:120])
    frontier = model.frontier_.on([evidence_of(model, X[120:], y[120:])])
    line = frontier.measures([frontier.chosen.cost[-1]], **DRAWS).iloc[0]
    answers = model.at(budget=float(frontier.chosen.cost[-1])).predict(X[120:])
    named = {"R2": r2_score, "RMSE": root_mean_squared_error, "MAE": mean_absolute_error}
    for name, measure in named.items():
        assert line[name] == pytest.approx(measure(y[120:], answers))
        assert line[f"{name}_low"] < line[name] < line[f"{name}_high"]
    with pytest.raises(InvalidInputError, match="errors of numbers need the targets"):
        model.frontier_.measures(**DRAWS)


def test_a_frontier_against_the_full_model_refuses_measures_of_right_answers(classifier):
    clf, X, y = classifier
    with pytest.raises(InvalidInputError, match="without against_full"):
        Frontier.from_evidence([evidence_of(clf, X, y)], against_full=True).measures()


def test_prices_of_mistakes_are_drawn_as_an_axis_with_the_least_total_marked():
    plt = pytest.importorskip("matplotlib.figure")
    X, y = labelled(2)
    clf = BudgetedClassifier(LogisticRegression(), loss=[[0, 5], [30, 0]], **SMALL).fit(X, y)
    frontier = clf.frontier_
    ax = frontier.plot(plt.Figure().add_subplot())
    assert (ax.get_xlabel(), ax.get_ylabel()) == (
        "mean cost of tests per row",
        "mean cost of mistakes per row",
    )
    curve, mark = ax.lines
    np.testing.assert_array_equal(curve.get_ydata(), -frontier.score)
    total = frontier.cost - frontier.score
    assert float(mark.get_xdata()[0] + mark.get_ydata()[0]) == pytest.approx(total.min())


def test_an_interval_of_the_score_holds_as_often_as_it_says_and_never_promises_perfection():
    rng, held = np.random.default_rng(0), []
    for _ in range(400):
        right = rng.random(60) < 0.9
        seen = Evidence.of_point(1.0, right, np.zeros(60))
        low, high = score_interval(seen, Policy.of(np.array([0.5])), right.mean(), 0.95)
        held.append(low <= 0.9 <= high)
    assert 0.95 <= np.mean(held) <= 0.995
    perfect = Evidence.of_point(1.0, np.ones(30, dtype=bool), np.zeros(30))
    low, high = score_interval(perfect, Policy.of(np.array([0.5])), 1.0, 0.95)
    assert 0.8 < low < 0.95 < high == 1.0
