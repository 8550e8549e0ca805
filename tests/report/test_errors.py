"""Reports of systems that predict numbers, against scikit-learn's scores."""

import re

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from thrifty import Frontier, evidence_of
from thrifty.errors import InvalidInputError
from thrifty.reporting.measure import measure
from thrifty.reporting.page import page_of, write_page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bikes(bike_system, make_bikes):
    """The system, its rows, what it says about them at one point, and the facts of a report on them."""
    new, estimator = make_bikes(200, 1), bike_system.estimator
    X, y = bike_system.read(new).numbers, new["count"].to_numpy()
    chosen = bike_system.frontier
    there = chosen.on([evidence_of(estimator, X, y)])
    known = {"estimators": [estimator], "X": X, "deployed": estimator, "chosen": chosen, "n_boot": 200}
    facts = measure(there, y, slices={"weather": new["weather"]}, title="Bicycles", **known)
    return estimator, X, y, there, facts


def test_points_of_a_report_have_the_scores_of_scikit_learn(bikes):
    estimator, X, y, _, facts = bikes
    place, said = facts.deployed, estimator.predict(X)
    full = estimator.chain_.ask_full(estimator.chain_.reader(X), np.arange(len(y)))[:, 0]
    points, errors = facts.points, {one.name: one for one in facts.errors}
    assert facts.score == "R2"
    assert points.accuracy[place] == pytest.approx(r2_score(y, said))
    assert facts.full.accuracy == pytest.approx(r2_score(y, full))
    for name, error in (("RMSE", root_mean_squared_error), ("MAE", mean_absolute_error)):
        curve = errors[name]
        assert curve.value[place] == pytest.approx(error(y, said))
        assert curve.full == pytest.approx(error(y, full))
        assert curve.constant == pytest.approx(error(y, np.full(len(y), y.mean())))
        assert all(
            low < value < high for low, value, high in zip(curve.low, curve.value, curve.high, strict=True)
        )
    assert all(
        low < value < high for low, value, high in zip(points.low, points.accuracy, points.high, strict=True)
    )
    lead = points.accuracy[place] - facts.full.accuracy
    assert points.lead_low[place] < lead < points.lead_high[place]
    assert facts.majority.accuracy == 0


def test_a_squared_error_has_one_band_whether_as_r2_or_as_rmse(bikes):
    *_, y, _, facts = bikes
    rmse = next(one for one in facts.errors if one.name == "RMSE")
    np.testing.assert_allclose(1 - np.square(rmse.low) / y.var(), facts.points.high)
    np.testing.assert_allclose(1 - np.square(rmse.high) / y.var(), facts.points.low)


def test_errors_by_range_and_by_slice_add_up_to_the_mean_error(bikes):
    *_, facts = bikes
    mae = next(one for one in facts.errors if one.name == "MAE")
    by_range, by_weather = facts.groupings
    assert by_weather.labels == ("clear", "mist", "rain")
    assert max(by_range.n_rows) < 1.5 * min(by_range.n_rows)
    for grouping in facts.groupings:
        assert sum(grouping.n_rows) == facts.measured.n_rows
        assert sum(grouping.right[facts.deployed]) / facts.measured.n_rows == pytest.approx(
            mae.value[facts.deployed]
        )
        assert sum(grouping.full_right) / facts.measured.n_rows == pytest.approx(mae.full)


def test_the_page_of_numbers_does_not_speak_of_classes(bikes, tmp_path):
    *_, facts = bikes
    shown = page_of(facts).split("<script ")[0].split("</style>")[1]
    page = re.sub("<[^>]*>", " ", shown)
    for words in (
        "R2 for the money",
        "has an R2 of",
        "the best constant",
        "RMSE",
        "Errors, and who needs the full model",
    ):
        assert words in page
    for words in ("majority class", "ecall", "AUC", "is right on", "accurac"):
        assert words not in page
    assert len(write_page(tmp_path / "r.html", facts)) == 2


def test_numbers_without_an_estimator_and_rows_that_do_not_differ_are_refused(bikes):
    estimator, X, y, there, _ = bikes
    with pytest.raises(InvalidInputError, match="unless the systems predict numbers.*`estimators`"):
        measure(there, y)
    same = np.full(len(y), 50.0)
    alike = Frontier.from_evidence([evidence_of(estimator, X, same)])
    with pytest.raises(InvalidInputError, match="all 200 targets are the same number, 50"):
        measure(alike, same, estimators=[estimator], X=X, n_boot=50)
