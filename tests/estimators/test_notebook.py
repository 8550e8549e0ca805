"""What a fitted estimator shows of itself: pictures, and a page in a notebook."""

import sys

import pytest
from matplotlib.figure import Figure
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.naive_bayes import GaussianNB

from thrifty import BudgetedClassifier, StageOptions
from thrifty.errors import InvalidInputError


@pytest.fixture(scope="module")
def fitted():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    X = X.iloc[:, [7, 21, 22, 27]]
    return BudgetedClassifier(
        GaussianNB(), budget=1.4, stages=StageOptions(sizes=[(4, 2)], structure="line"), cv=2, random_state=0
    ).fit(X, y), X


def test_bars_of_purchases_are_the_shares_of_rows_that_make_them(fitted):
    clf, X = fitted
    ax = clf.plot_purchases(X, Figure().add_subplot())
    shares = [bar.get_width() for bar in ax.patches]
    assert sum(shares) == pytest.approx(clf.cost(X).mean())  # each costs 1
    assert shares == sorted(shares, reverse=True)
    assert {label.get_text() for label in ax.get_yticklabels()} <= set(X.columns)
    judged = clf.plot_purchases(ax=Figure().add_subplot())
    assert sum(bar.get_width() for bar in judged.patches) == pytest.approx(clf.expected_cost_)


def test_the_way_of_a_row_ends_at_what_it_paid(fitted):
    clf, X = fitted
    row = X[clf.route(X) == clf.chain_.n_stages][:1]
    ax = clf.plot_route(row, Figure().add_subplot())
    ends = [bar.get_x() + bar.get_width() for bar in ax.patches]
    assert ends[-1] == clf.cost(row)[0]
    assert ax.get_yticklabels()[-1].get_text() == "full model"


def test_a_fitted_estimator_shows_stages_and_the_frontier_and_an_unfitted_one_as_scikit_learn_does(
    fitted,
):
    clf, _ = fitted
    page = clf._repr_html_()
    for told in ("stage 0", "full model", "worst perimeter"):
        assert told in page
    assert page.count("<img") == 1
    assert "<img" not in clone(clf)._repr_html_()
    with config_context(display="text"):
        assert "text/html" not in clf._repr_mimebundle_()


def test_without_matplotlib_pictures_are_refused_in_words_and_the_page_shows_its_tables(fitted, monkeypatch):
    clf, _ = fitted
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InvalidInputError, match="pictures need matplotlib"):
        clf.frontier_.plot()
    page = clf._repr_html_()
    assert "paid by then" in page
    assert "<img" not in page


def test_a_route_of_several_rows_is_refused_in_words(fitted):
    clf, X = fitted
    with pytest.raises(InvalidInputError, match="one row; got 3"):
        clf.plot_route(X[:3])
