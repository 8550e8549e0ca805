"""One certificate for a loss, recalls and budgets, each tested at the full level at a point fixed in advance."""

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

import thrifty
from thrifty import BudgetedClassifier, Prices, StageOptions
from thrifty.engine.evidence.certificate import recall_bound
from thrifty.engine.evidence.collect import evidence_of
from thrifty.engine.evidence.hypothesis_tests import trials_of
from thrifty.engine.evidence.measures import recalls_at
from thrifty.errors import InvalidInputError

PRICES = [{"dollars": 1 + column % 3, "minutes": 1 + 2 * column % 5} for column in range(6)]


def rows_of(n_rows, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 6)).round(4)
    return X, (X[:, 0] + X[:, 1] + 0.5 * X[:, 2:].sum(axis=1) + rng.normal(0, 0.7, n_rows) > 0).astype(int)


@pytest.fixture(scope="module")
def fitted():
    few = StageOptions(4, [(8, 3)])
    clf = BudgetedClassifier(GaussianNB(), prices=Prices(PRICES), stages=few, cv=2, random_state=0)
    return clf.fit(*rows_of(500, 0))


def test_a_loss_and_two_budgets_are_in_one_certificate_and_a_file_keeps_it(fitted, tmp_path):
    X, y = rows_of(900, 1)
    budget = {"dollars": 10.5, "minutes": 13.0}
    proved = fitted.certified(X, y, max_loss=0.1, budget=budget)
    certificate = proved.certificate_
    assert certificate.bound <= 0.1
    assert all(certificate.cost[name] <= limit for name, limit in budget.items())
    assert "costs at most" in str(certificate)
    assert dict(proved.cost(X).mean()) == pytest.approx(certificate.cost, rel=0.1)
    by_class = fitted.certified(X, y, max_loss={0: 0.15, 1: 0.15}, budget=budget).certificate_
    assert {one.label for one in by_class.by_class} == {0, 1}
    all_together = fitted.certified(X, y, max_loss=0.1, budget=budget, min_recall={1: 0.75})
    certificate, (unseen, truth) = all_together.certificate_, rows_of(4000, 3)
    assert 0.75 <= certificate.recalls[1] <= np.mean(all_together.predict(unseen)[truth == 1] == 1)
    assert "of the rows of 1 with their class" in str(certificate)
    recall_alone = fitted.certified(X, y, max_loss=0.1, min_recall={1: 0.75}).certificate_
    assert recall_alone.cost is None
    assert recall_alone.recalls[1] >= 0.75
    for certified in (proved, all_together):
        with pytest.warns(thrifty.errors.FullModelOutsideWarning):
            thrifty.save(certified, tmp_path / "proved.thrifty")
        assert str(thrifty.load(tmp_path / "proved.thrifty").certificate_) == str(certified.certificate_)
    with pytest.raises(InvalidInputError, match="cannot be shown together"):
        fitted.certified(X, y, max_loss=0.02, budget={"dollars": 2.0})
    with pytest.raises(InvalidInputError, match="a recall of 1 of .* or more"):
        fitted.certified(X, y, max_loss=0.1, min_recall={1: 0.99})
    with pytest.raises(InvalidInputError, match="is proved together with max_loss"):
        fitted.certified(X, y, budget=budget, min_recall={1: 0.75})
    with pytest.raises(InvalidInputError, match="measure='share'"):
        fitted.certified(X, y, max_loss=0.1, budget=budget, measure="mean")


def test_promises_are_broken_in_at_most_their_share_of_draws(fitted):
    chosen, alone = fitted._candidates("share")
    everyone = evidence_of(fitted, *rows_of(3000, 2))
    if alone:
        everyone = everyone.with_full_alone()
    rng, wrong, proved = np.random.default_rng(0), 0, 0
    # Limits that the point with most room nearly meets: proofs are rare, and the more often wrong.
    for _ in range(60):
        draw = everyone.take(rng.integers(everyone.n_units, size=250))
        try:
            certificate = fitted._certified_together(
                chosen, draw, 0.09, {"dollars": 9.2, "minutes": 12.0}, None, 0.9, "count"
            )
        except InvalidInputError:
            continue
        proved += 1
        point = np.array(certificate.point.thresholds)
        paid = [everyone.of_resource(k).at_point(point)[1].mean() for k in range(2)]
        _, _, quality = everyone.at_point(point)
        lost = np.mean(np.asarray(everyone.full_quality, bool) & ~np.asarray(quality, bool))
        wrong += bool(lost > 0.09 or paid[0] > 9.2 or paid[1] > 12.0)
    assert wrong <= 0.1 * 60
    assert proved > 0


def test_bounds_of_a_recall_exceed_it_in_at_most_their_share_of_draws(fitted):
    everyone, point = evidence_of(fitted, *rows_of(3000, 2)), fitted._learned.policy.thresholds[3]
    recall, rng = recalls_at(everyone, point[None], 2)[0, 1], np.random.default_rng(0)
    bounds = []
    for _ in range(300):
        draw = everyone.take(rng.integers(everyone.n_units, size=250))
        trials = trials_of(draw.rows, (), draw.n_units, "count")
        bounds.append(recall_bound(draw, point, trials, 1, 0.9))
    assert 0.04 < np.mean(np.array(bounds) > recall) <= 0.1
