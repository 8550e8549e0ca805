"""Documents of queries, ranked under a budget."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from tests.mixes import mixed_at
from thrifty import BudgetedRanker, Frontier, StageOptions, evidence_of, point_of
from thrifty.engine.tasks.ranking import ndcg_at
from thrifty.errors import InvalidInputError, NothingSavedWarning

SMALL = {"metric": "ndcg@5", "stages": StageOptions(max_stages=2, sizes=[(8, 3)]), "cv": 2, "random_state": 0}


def documents(n_queries, seed=0):
    """Documents of six columns, of which the first tells most; some queries are of one document or hold nothing."""
    rng = np.random.default_rng(seed)
    size = rng.integers(4, 14, n_queries)
    size[::9] = 1
    qid = np.repeat(np.arange(n_queries), size)
    X = rng.normal(size=(len(qid), 6))
    grade = np.digitize(X[:, 0] + 0.7 * X[:, 1] + 0.4 * X[:, 2], [0.6, 1.4])
    grade[qid % 7 == 3] = 0
    return X, grade, qid


@pytest.fixture(scope="module")
def fitted():
    X, grade, qid = documents(60)
    return BudgetedRanker(Ridge(), **SMALL).fit(X, grade, qid=qid)


@pytest.mark.slow
def test_more_is_spent_where_it_puts_documents_into_a_better_order(fitted):
    X, grade, qid = documents(200, seed=1)
    cheap, dear = fitted.at(budget=1.2), fitted.at(budget=4)
    assert cheap.cost(X).mean() < 1.6 < dear.cost(X).mean()
    assert cheap.score(X, grade, qid) + 0.03 < dear.score(X, grade, qid=qid)
    np.testing.assert_allclose(
        cheap.score(X, grade, qid), np.nanmean(ndcg_at(grade, cheap.predict(X), qid, 5))
    )


def test_documents_of_one_query_stop_at_different_stages(fitted):
    X, _, qid = documents(200, seed=1)
    route = fitted.at(budget=2).route(X)
    assert max(len(np.unique(route[qid == one])) for one in np.unique(qid)) > 1


def test_a_query_pays_what_its_documents_pay(fitted):
    X, _, qid = documents(30, seed=1)
    each = fitted.cost(X)
    np.testing.assert_allclose(fitted.query_cost(X, qid), [each[qid == one].sum() for one in np.unique(qid)])


def test_scores_of_points_are_means_over_queries_and_costs_means_over_documents(fitted):
    X, grade, qid = documents(60, seed=1)
    y = np.column_stack([grade, qid])
    there = Frontier.from_evidence([evidence_of(fitted, X, y)])
    assert "on 60 queries" in repr(there)
    at = fitted.at(budget=2)
    point = Frontier.from_evidence([point_of(at, X, y)])[0]
    np.testing.assert_allclose([point.cost, point.score], [at.cost(X).mean(), at.score(X, grade, qid)])
    evidence = evidence_of(fitted, X, y)
    for thresholds, cost, score in zip(there.thresholds, there.cost, there.score, strict=True):
        # What a single query adds is told around the mean, so that plain means over queries are these ratios.
        _, paid, quality = evidence.at_point(thresholds)
        np.testing.assert_allclose([paid.mean(), quality.mean()], [cost, score])


def test_bands_hold_the_score_and_come_from_queries(fitted):
    X, grade, qid = documents(60, seed=1)
    frontier = Frontier.from_evidence([evidence_of(fitted, X, np.column_stack([grade, qid]))])
    band = frontier.band(n_boot=200)
    assert np.all((band.score_low <= frontier.score) & (frontier.score <= band.score_high))
    value = ndcg_at(grade, fitted.at(budget=6).predict(X), qid, 5)
    error = np.nanstd(value) / np.sqrt(np.sum(~np.isnan(value)))
    assert 2 * error < band.score_high[-1] - band.score_low[-1] < 6 * error


def test_a_certificate_counts_queries_that_have_a_relevant_document(fitted):
    X, grade, qid = documents(150, seed=2)
    proved = fitted.certified(X, grade, qid, max_loss=0.5)
    relevant = sum(grade[qid == one].any() for one in np.unique(qid))
    assert proved.certificate_.n_rows == proved.certificate_.n_given == relevant < 150
    assert f"{relevant} held-out queries" in str(proved.certificate_)
    full = Ridge().fit(*documents(60)[:2]).predict(X)
    full_value, value = (ndcg_at(grade, one, qid, 5) for one in (full, proved.predict(X)))
    assert int(np.sum(value < full_value - 0.01)) == proved.certificate_.n_losses
    X, grade, qid = documents(60)
    with pytest.raises(InvalidInputError, match="hold the same as"):
        fitted.certified(X, grade, qid, max_loss=0.5)


def test_where_nothing_can_be_proved_the_full_model_ranks_and_its_own_score_is_expected(fitted):
    X, grade, qid = documents(40, seed=2)
    with pytest.warns(NothingSavedWarning):
        sent = fitted.certified(X, grade, qid, max_loss=0.09, confidence=0.9)
    assert np.all(sent.cost(X) == 6.0)
    full = fitted.evidence_.full_quality
    target = fitted.evidence_.unit.target
    expected = np.nanmean(ndcg_at(target % 32, full, target // 32, 5))
    np.testing.assert_allclose(sent.expected_score_, expected)
    np.testing.assert_allclose(sent.score(X, grade, qid), np.nanmean(ndcg_at(grade, sent.predict(X), qid, 5)))


def test_the_interval_of_the_cost_holds_the_mean_cost_of_new_queries(fitted):
    at = fitted.at(budget=2)
    low, high = at.expected_cost_interval_
    assert 1.0 <= low < at.expected_cost_ < high
    assert low < at.cost(documents(300, seed=3)[0]).mean() < high


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "metric"), [("pairwise", "ndcg@5"), ("listwise", "ap@5")])
def test_pairs_and_lists_learn_the_order_too(loss, metric):
    X, grade, qid = documents(40)
    made = BudgetedRanker(Ridge(), loss=loss, **SMALL | {"metric": metric}).fit(X, grade, qid=qid)
    X, grade, qid = documents(100, seed=1)
    assert mixed_at(made, 3.0).score(X, grade, qid) > made.at(budget=1).score(X, grade, qid)
    assert made.chain_.task.quality_name == metric.upper()


@pytest.mark.parametrize(
    ("name", "value"),
    [("loss", "squared"), ("metric", "map@5"), ("metric", "ndcg"), ("metric", "ap@0"), ("tolerance", -1)],
)
def test_a_wrong_argument_is_named(name, value):
    X, grade, qid = documents(10)
    with pytest.raises(InvalidInputError, match=f"^{name} must be"):
        BudgetedRanker(Ridge(), **{**SMALL, name: value}).fit(X, grade, qid=qid)


def test_weights_of_documents_are_refused():
    X, grade, qid = documents(10)
    with pytest.raises(InvalidInputError, match="queries count alike"):
        BudgetedRanker(Ridge(), **SMALL).fit(X, grade, qid=qid, sample_weight=np.ones(len(X)))


def test_a_single_query_is_too_few():
    X, grade, qid = documents(10)
    one = np.repeat(np.flatnonzero(qid == np.argmax(np.bincount(qid))), 2)
    with pytest.raises(InvalidInputError, match="from one query"):
        BudgetedRanker(Ridge(), **SMALL).fit(X[one], grade[one], qid=qid[one])
