"""Reports of systems that predict numbers, against scikit-learn's scores."""

import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from thrifty.errors import InvalidInputError
from thrifty.reporting.measure import measure
from thrifty.reporting.page import page_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bikes(bike_system, make_bikes):
    """The system, its rows, and the facts of a report on them."""
    new = make_bikes(200, 1)
    X, y = new.drop(columns="count"), new["count"].to_numpy()
    return bike_system, X, y, measure(bike_system, X, y, by={"weather": new["weather"]}, n_boot=200)


def test_points_of_a_report_have_the_scores_of_scikit_learn(bikes):
    estimator, X, y, facts = bikes
    place, said = facts.marked["deployed"], estimator.predict(X)
    full = estimator.chain_.ask_full(estimator.chain_.reader(X), np.arange(len(y)))[:, 0]
    score, errors = facts.score, {one.name: one for one in facts.measures}
    assert facts.score.name == "R2"
    assert score.value[place] == pytest.approx(r2_score(y, said))
    assert facts.score.full == pytest.approx(r2_score(y, full))
    for name, error in (("RMSE", root_mean_squared_error), ("MAE", mean_absolute_error)):
        curve = errors[name]
        assert curve.value[place] == pytest.approx(error(y, said))
        assert curve.full == pytest.approx(error(y, full))
        assert curve.constant == pytest.approx(error(y, np.full(len(y), y.mean())))
        assert all(
            low < value < high for low, value, high in zip(curve.low, curve.value, curve.high, strict=True)
        )
    assert all(
        low < value < high for low, value, high in zip(score.low, score.value, score.high, strict=True)
    )
    lead = score.value[place] - facts.score.full
    assert facts.lead.low[place] < facts.lead.value[place] == lead < facts.lead.high[place]
    assert facts.score.constant == 0


def test_a_squared_error_has_one_band_whether_as_r2_or_as_rmse(bikes):
    *_, y, facts = bikes
    rmse = next(one for one in facts.measures if one.name == "RMSE")
    np.testing.assert_allclose(1 - np.square(rmse.low) / y.var(), facts.score.high, rtol=1e-5)
    np.testing.assert_allclose(1 - np.square(rmse.high) / y.var(), facts.score.low, rtol=1e-5)


def test_errors_by_range_and_by_slice_add_up_to_the_mean_error(bikes):
    *_, facts = bikes
    mae = next(one for one in facts.measures if one.name == "MAE")
    by_range, by_weather = facts.groupings
    assert by_weather.labels == ("clear", "mist", "rain")
    assert max(by_range.n_rows) < 1.5 * min(by_range.n_rows)
    for grouping in facts.groupings:
        assert sum(grouping.n_rows) == facts.n_rows
        assert sum(grouping.sums[facts.marked["deployed"]]) / facts.n_rows == pytest.approx(
            mae.value[facts.marked["deployed"]]
        )
        assert sum(grouping.full_sums) / facts.n_rows == pytest.approx(mae.full)


def test_the_page_of_numbers_does_not_speak_of_classes(bikes):
    *_, facts = bikes
    shown = page_of(replace(facts, title="Bicycles")).split("<script ")[0].split("</style>")[1]
    page = re.sub("<[^>]*>", " ", shown)
    for words in (
        "R2 by mean cost",
        "has an R2 of",
        "the best constant",
        "RMSE",
        "Errors, and who needs the full model",
    ):
        assert words in page
    for words in ("majority class", "ecall", "AUC", "is right on", "accurac"):
        assert words not in page


def test_targets_that_do_not_differ_are_refused(bikes):
    estimator, X, y, _ = bikes
    with pytest.raises(InvalidInputError, match="all 200 targets are the same number, 50"):
        measure(estimator, X, np.full(len(y), 50.0), n_boot=50)
