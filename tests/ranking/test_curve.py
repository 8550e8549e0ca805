import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thrifty.exceptions import InvalidInputError
from thrifty.ranking.curve import ranking_curve, thresholds_of
from thrifty.ranking.measures import average_precision_at, ndcg_at
from thrifty.ranking.queries import Queries


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
        np.testing.assert_array_equal(curve.values[place], there.value)
        assert curve.score[place] == pytest.approx(there.mean)
        assert curve.share[place] == sent.mean()
        assert curve.cost[place] == pytest.approx(np.where(sent, 10.0, documents["stop_cost"]).mean())


def test_the_ends_are_the_cheap_model_alone_and_f0_alone(documents):
    curve = ranking_curve(**documents)
    y, queries = documents["y"], documents["queries"]
    assert curve.score[0] == average_precision_at(y, documents["cheap"], queries).mean
    assert curve.score[-1] == average_precision_at(y, documents["full"], queries).mean
    assert (curve.share[0], curve.share[-1]) == (0.0, 1.0)
    assert np.all(np.diff(curve.cost) > 0)


def test_another_measure_and_given_thresholds_are_used(documents):
    curve = ranking_curve(**documents, thresholds=[-0.5, 0.5], measure=ndcg_at, k=3)
    assert curve.threshold.tolist() == [0.5, -0.5]
    sent = documents["gate"] > 0.5
    mixed = np.where(sent, documents["full"], documents["cheap"])
    assert curve.score[0] == ndcg_at(documents["y"], mixed, documents["queries"], 3).mean


def test_queries_without_relevant_documents_are_counted_once(documents):
    documents["y"] = np.where(documents["queries"].number == 4, 0, documents["y"])
    curve = ranking_curve(**documents, n_points=5)
    assert curve.n_undefined == 1
    assert np.isfinite(curve.score).all()


def test_nothing_relevant_anywhere_has_no_score(documents):
    documents["y"] = np.zeros(120)
    assert np.isnan(ranking_curve(**documents, n_points=3).score).all()


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
