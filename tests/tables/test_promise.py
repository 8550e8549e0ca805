from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import recall_score, roc_auc_score

from thrifty.chain.policy import Policy
from thrifty.evidence.evidence import Evidence
from thrifty.tables.promise import Promise, promise_of
from thrifty.tasks.classes import BinaryTask

PROMISE = Promise(0.9, 0.88, 0.915, cost=4.0, cost_spread=2.0, share=0.1, n_rows=400, full_cost=6.0)


def estimator(policy, n_rows=400, seed=0, **known):
    """An estimator of one gate, as far as a promise looks at it."""
    chance = np.random.default_rng(seed)
    y = np.where(chance.random(n_rows) < 0.4, 1.0, -1.0)
    scores = y[:, None] + chance.normal(size=(n_rows, 2)) * [1.5, 1.0]
    right = (scores > 0) == (y[:, None] > 0)
    gate = -np.abs(scores[:, 0])
    evidence = Evidence(
        gate[:, None],
        right,
        np.array([1.0, 5.0]),
        right[:, 1],
        target=y,
        scores=scores[:, :, None],
        full_scores=scores[:, 1:],
    )
    prices = SimpleNamespace(cost_of_full=5.0)
    chain = SimpleNamespace(policy=policy, blend=None, price_list=prices, task=BinaryTask(np.array([0, 1])))
    return SimpleNamespace(chain_=chain, evidence_=evidence, **known)


def test_a_promise_is_what_the_rows_of_the_evidence_say():
    system = estimator(Policy.of(np.array([-0.7])))
    evidence, promise = system.evidence_, promise_of(system)
    sent = evidence.gate[:, 0] > -0.7
    scores = np.where(sent, evidence.scores[:, 1, 0], evidence.scores[:, 0, 0])
    y = evidence.target > 0
    assert promise.accuracy == pytest.approx(np.mean((scores > 0) == y))
    assert promise.low < promise.accuracy < promise.high
    assert promise.share == pytest.approx(sent.mean())
    assert promise.cost == pytest.approx(1.0 + 4.0 * sent.mean())
    assert promise.cost_spread == pytest.approx(np.where(sent, 5.0, 1.0).std())
    assert promise.recall == pytest.approx(recall_score(y, scores > 0, average=None))
    assert promise.auc == pytest.approx(roc_auc_score(y, scores))
    assert promise.full_accuracy == pytest.approx(np.mean(evidence.quality[:, 1]))
    assert promise.full_recall == pytest.approx(recall_score(y, evidence.full_scores[:, 0] > 0, average=None))
    assert promise.full_auc == pytest.approx(roc_auc_score(y, evidence.full_scores[:, 0]))
    assert promise.majority == pytest.approx(max(y.mean(), 1 - y.mean()))


def test_a_mix_of_two_points_promises_their_weighted_mean():
    low, high = (promise_of(estimator(Policy.of(np.array([cut])))) for cut in (-0.2, -0.9))
    mixed = promise_of(estimator(Policy.of(np.array([-0.2]), np.array([-0.9]), share=0.3)))
    for name in ("accuracy", "cost", "share"):
        expected = 0.7 * getattr(low, name) + 0.3 * getattr(high, name)
        assert getattr(mixed, name) == pytest.approx(expected)
    assert mixed.recall == pytest.approx(np.average([low.recall, high.recall], axis=0, weights=[0.7, 0.3]))


def test_what_a_file_does_not_keep_is_taken_from_the_promise_that_it_keeps():
    from dataclasses import replace

    system = estimator(Policy.of(np.array([-0.7])))
    known = promise_of(system)
    system.evidence_ = replace(system.evidence_, target=None, scores=None)
    system.chain_.policy = Policy.of(np.array([-0.1]))
    moved = promise_of(system, known)
    assert moved.accuracy != known.accuracy
    assert (moved.recall, moved.auc) == (None, None)
    assert (moved.majority, moved.full_auc, moved.full_recall) == (
        known.majority,
        known.full_auc,
        known.full_recall,
    )


def test_the_interval_of_new_rows_holds_their_own_chance_too():
    many, few = PROMISE.interval(10**9), PROMISE.interval(400)
    assert many == pytest.approx((0.88, 0.915), abs=1e-4)
    assert few[0] == pytest.approx(0.9 - np.hypot(0.02, 1.96 * np.sqrt(0.09 / 400)))
    assert PROMISE.interval(1)[1] == 1.0
    assert PROMISE.spread(100) == pytest.approx(2.0 * np.sqrt(1 / 100 + 1 / 400))


@pytest.mark.slow
def test_the_interval_of_new_rows_covers_as_often_as_it_says(monkeypatch):
    # Bands of other measures take their time, and are not asked about here.
    monkeypatch.setattr("thrifty.tables.promise._measures", lambda *_: {})
    inside, inside_confidence = [], []
    for seed in range(120):
        promise = promise_of(estimator(Policy.of(np.array([-0.7])), seed=seed))
        new = promise_of(estimator(Policy.of(np.array([-0.7])), n_rows=600, seed=1000 + seed)).accuracy
        low, high = promise.interval(600)
        inside.append(low <= new <= high)
        inside_confidence.append(promise.low <= new <= promise.high)
    assert 0.9 <= np.mean(inside) <= 0.99
    assert np.mean(inside_confidence) < 0.92
