import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduction.ranking_curve import band_over_queries, ranking_curve, thresholds_of
from thrifty.engine.tasks.ranking import Queries, average_precision_at, ndcg_at
from thrifty.errors import InvalidInputError


@pytest.fixture
def documents():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 120)
    return {
        "gate": rng.normal(size=120).round(1),
        "cheap": y + 2 * rng.normal(size=120),
        "full": y + 0.3 * rng.normal(size=120),
        "stop_cost": rng.uniform(1, 2, 120),
        "go_cost": 10.0,
        "y": y,
        "queries": Queries(np.repeat(np.arange(12), 10)),
    }


def test_every_point_is_the_measure_of_the_mixed_scores_at_its_threshold(documents):
    curve = ranking_curve(**documents, n_points=30)
    for place, threshold in enumerate(curve.threshold):
        sent = documents["gate"] > threshold
        mixed = np.where(sent, documents["full"], documents["cheap"])
        there = average_precision_at(documents["y"], mixed, documents["queries"])
        np.testing.assert_array_equal(curve.values[place], there)
        assert curve.score[place] == pytest.approx(np.nanmean(there))
        assert curve.share[place] == sent.mean()
        assert curve.cost[place] == pytest.approx(np.where(sent, 10.0, documents["stop_cost"]).mean())


def test_the_ends_are_the_cheap_model_alone_and_f0_alone(documents):
    curve = ranking_curve(**documents)
    y, queries = documents["y"], documents["queries"]
    assert curve.score[0] == average_precision_at(y, documents["cheap"], queries).mean()
    assert curve.score[-1] == average_precision_at(y, documents["full"], queries).mean()
    assert (curve.share[0], curve.share[-1]) == (0.0, 1.0)
    assert np.all(np.diff(curve.cost) > 0)


def test_another_measure_and_given_thresholds_are_used(documents):
    curve = ranking_curve(**documents, thresholds=[-0.5, 0.5], measure=ndcg_at, k=3)
    assert curve.threshold.tolist() == [0.5, -0.5]
    sent = documents["gate"] > 0.5
    mixed = np.where(sent, documents["full"], documents["cheap"])
    assert curve.score[0] == ndcg_at(documents["y"], mixed, documents["queries"], 3).mean()


def test_queries_without_relevant_documents_are_counted_once(documents):
    documents["y"] = np.where(documents["queries"].number == 4, 0, documents["y"])
    curve = ranking_curve(**documents, n_points=5)
    assert np.isnan(curve.values[0]).sum() == 1
    assert np.isfinite(curve.score).all()


def test_nothing_relevant_anywhere_has_no_score(documents):
    documents["y"] = np.zeros(120)
    assert np.isnan(ranking_curve(**documents, n_points=3).score).all()


@pytest.mark.slow
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=60), st.integers(2, 20))
def test_thresholds_are_few_fall_and_hold_both_ends(gate, n_points):
    gate = np.array(gate, dtype=float)
    found = thresholds_of(gate, n_points)
    assert len(found) <= n_points
    assert found[0] == np.inf
    assert found[-1] == -np.inf
    assert np.all(found[1:] < found[:-1])
    if n_points > len(gate) + 1:  # then every cut is among them
        assert len(found) == len(np.unique(gate)) + 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"gate": np.full(120, np.nan)}, "gate must hold one number per document"),
        ({"cheap": np.zeros(7)}, "cheap must hold one number per document"),
        ({"full": np.full(120, np.nan)}, "full must hold one number per document"),
        ({"n_points": 1}, "n_points must be at least 2"),
        ({"thresholds": [np.nan]}, "thresholds must be at least one number"),
        ({"thresholds": []}, "thresholds must be at least one number"),
    ],
)
def test_bad_input_is_refused_by_its_name(documents, changed, said):
    with pytest.raises(InvalidInputError, match=said):
        ranking_curve(**(documents | changed))


def test_the_band_is_as_wide_as_the_mean_of_so_many_queries_varies():
    values = np.random.default_rng(1).normal(size=400)
    low, high = band_over_queries(values, n_boot=4000)
    assert low < values.mean() < high
    assert (high - low) / 2 == pytest.approx(1.96 * values.std() / np.sqrt(400), rel=0.1)
    assert band_over_queries(values) == band_over_queries(values)
    assert band_over_queries(values) != band_over_queries(values, seed=1)


def test_undefined_queries_are_left_out():
    values = np.array([0.25, np.nan, 0.75, np.nan])
    assert band_over_queries(values) == band_over_queries(values[[0, 2]])


def test_a_mean_over_documents_weighs_queries_by_their_documents():
    low, high = band_over_queries([1.0, 3.0], [99.0, 1.0], n_boot=200)
    assert low == pytest.approx(1.0)  # both draws the first
    assert high == pytest.approx(3.0)  # both draws the second
    assert band_over_queries([2.0, 2.0, 2.0], [1.0, 5.0, 9.0]) == (2.0, 2.0)


@pytest.mark.parametrize("values", [[np.nan, np.nan], [], [[1.0]]], ids=["undefined", "none", "a table"])
def test_values_without_any_defined_query_are_refused(values):
    with pytest.raises(InvalidInputError, match="values must hold one number per query"):
        band_over_queries(values)


def test_too_few_draws_for_the_level_are_refused():
    with pytest.raises(InvalidInputError, match="n_boot must be at least 40"):
        band_over_queries([1.0, 2.0], n_boot=10)
