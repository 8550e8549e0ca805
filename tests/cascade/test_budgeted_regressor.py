"""A cascade that answers with numbers."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import (
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LinearRegression
from sklearn.svm import SVR

from thrifty import BudgetedRegressor, Prices, StageOptions
from thrifty.bundle import from_bytes, to_bytes
from thrifty.errors import FullModelNotWorthItWarning, InvalidInputError
from thrifty.reporting.measure import measure
from thrifty.reporting.page import page_of

pytestmark = pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
RECIPE = {
    "stages": StageOptions(sizes=[(40, 4)]),
    "cv": 3,
    "random_state": 0,
    "feature_costs": [1, 4, 1, 1],
}


@pytest.fixture(scope="module")
def rows():
    """Where the first column is large, the second decides: elsewhere it need not be bought."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(900, 4))
    y = np.where(X[:, 0] > 0.3, 40 * X[:, 1], 5 * X[:, 0]) + 0.5 * rng.normal(size=900) + 100
    return X, y


@pytest.fixture(scope="module")
def fitted(rows):
    X, y = rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FullModelNotWorthItWarning)
        return BudgetedRegressor(LinearRegression(), **RECIPE).fit(X[:600], y[:600])


@pytest.mark.slow
def test_rows_go_on_where_more_features_change_the_number(rows, fitted):
    X, _ = rows
    route = fitted.at(budget=2.4).route(X[600:])
    where = X[600:, 0] > 0.3
    assert route[where].mean() > route[~where].mean() + 0.5


def test_a_gate_saves_what_a_fixed_set_of_features_must_pay(rows, fitted):
    X, y = rows
    there = fitted.at(budget=2.5)
    assert there.cost(X[600:]).mean() < 2.7
    assert there.score(X[600:], y[600:]) > 0.9
    assert abs(there.expected_score_ - there.score(X[600:], y[600:])) < 0.1


def test_scores_of_points_rise_with_their_budget(fitted):
    policy = fitted.chain_.policy
    assert np.all(np.diff(policy.cost) > 0)
    assert policy.score[-1] > policy.score[0] + 0.2


@pytest.mark.slow
@pytest.mark.parametrize(("shift", "scale"), [(1e6, 1e-6), (0.0, 1e300), (0.0, 1e-300)])
def test_the_unit_of_the_target_does_not_matter(rows, fitted, shift, scale):
    X, y = rows
    other = BudgetedRegressor(LinearRegression(), **RECIPE).fit(X[:600], scale * (y[:600] + shift))
    # Rounding differs, and a split that was as good as another may be the other: not more than that.
    assert abs(other.expected_score_ - fitted.expected_score_) < 0.01
    assert np.mean(np.abs(other.predict(X[600:]) / scale - shift - fitted.predict(X[600:]))) < 0.7


@pytest.mark.slow
def test_the_absolute_error_is_not_led_by_outliers(rows):
    X, y = rows
    dirty = y[:600].copy()
    dirty[::20] += 3000.0
    robust = BudgetedRegressor(LinearRegression(), loss="absolute", **RECIPE).fit(X[:600], dirty)
    plain = BudgetedRegressor(LinearRegression(), **RECIPE).fit(X[:600], dirty)
    errors = [np.abs(y[600:] - one.predict(X[600:])).mean() for one in (robust, plain)]
    assert errors[0] < 0.2 * errors[1]


def test_an_unknown_loss_and_a_classifier_are_refused(rows):
    X, y = rows
    with pytest.raises(InvalidInputError, match='"squared", "absolute" or "pinball"; got \'cubic\''):
        BudgetedRegressor(LinearRegression(), loss="cubic").fit(X, y)
    from sklearn.naive_bayes import GaussianNB

    with pytest.raises(InvalidInputError, match="must be a regressor"):
        BudgetedRegressor(GaussianNB()).fit(X, y)


@pytest.mark.slow
def test_a_quantile_is_covered_on_new_rows_at_every_budget_and_comes_back_from_a_file(rows):
    X, y = rows
    spread = np.random.default_rng(1).exponential(1 + 9 * np.abs(X[:, 0]))
    settings = {
        **RECIPE,
        "stages": StageOptions(max_stages=3, sizes=[(12, 3)]),
        "loss": "pinball",
        "quantile": 0.9,
    }
    model = BudgetedRegressor(**settings).fit(X[:600], (y + spread)[:600])
    for one in (model, model.at(budget=1.5)):
        assert np.mean((y + spread)[600:] <= one.predict(X[600:])) == pytest.approx(0.9, abs=0.05)
    again = from_bytes(to_bytes(model))
    assert (again.quantile, again.chain_.task) == (0.9, model.chain_.task)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    facts = measure(model, X[600:], (y + spread)[600:], n_boot=40)
    assert "D2 of the pinball loss (quantile 0.9)" in page_of(facts)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"loss": "pinball"}, "needs a quantile between 0 and 1, both left out; got None"),
        ({"loss": "pinball", "quantile": 1.0}, "got 1.0. Give quantile=0.9"),
        ({"quantile": 0.9}, "quantile=0.9 goes with loss='pinball'; got loss='squared'"),
    ],
)
def test_a_quantile_goes_with_the_pinball_loss_and_the_loss_with_a_quantile(rows, settings, says):
    with pytest.raises(InvalidInputError, match=says):
        BudgetedRegressor(LinearRegression(), **settings).fit(*rows)


@pytest.mark.slow
def test_a_file_holds_the_default_full_model(rows):
    X, y = rows
    clf = BudgetedRegressor(
        HistGradientBoostingRegressor(max_iter=4),
        stages=StageOptions(sizes=[(5, 2)]),
        cv=2,
        random_state=0,
        prices=Prices(full=1.0),
    ).fit(X[:300], y[:300])
    again = from_bytes(to_bytes(clf))
    assert np.array_equal(again.predict(X), clf.predict(X))
    assert again.chain_.task == clf.chain_.task


@pytest.mark.slow
def test_a_support_vector_regressor_comes_back_from_a_file(rows):
    X, y = rows
    clf = BudgetedRegressor(
        SVR(),
        stages=StageOptions(sizes=[(5, 2)]),
        cv=2,
        random_state=0,
        prices=Prices(full=1.0),
    ).fit(X[:200], y[:200])
    again = from_bytes(to_bytes(clf)).at(budget=5.0)
    np.testing.assert_allclose(again.predict(X[:50]), clf.at(budget=5.0).predict(X[:50]), rtol=1e-11)


@pytest.mark.parametrize("tolerance", [0.02, 0.7])
def test_a_certificate_counts_errors_by_the_tolerance_of_the_constructor_as_the_page_of_certificates_says(
    rows, tolerance
):
    X, y = rows
    small = RECIPE | {"stages": StageOptions(sizes=[(5, 2)], max_stages=2), "cv": 2}
    model = BudgetedRegressor(LinearRegression(), tolerance=tolerance, **small).fit(X[:300], y[:300])
    proved = model.certified(X[300:], y[300:], max_loss=0.5)
    assert f"exceeds that of the full model by more than {tolerance}" in str(proved.certificate_)
    page = Path(__file__).parents[2] / "docs" / "certificates.md"
    assert page.read_text(encoding="utf-8").count("by more than the `tolerance` of the constructor") == 1
