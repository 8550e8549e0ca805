"""Cascades, forests without stages, and full models that are more than a table of probabilities."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.naive_bayes import GaussianNB

import thrifty.dynamod.sweeping.run as run
from reproduction.rivals.budget_prune import BudgetPruneClassifier
from thrifty import (
    BudgetedClassifier,
    ConfidenceRouter,
    DynaModGbrtClassifier,
    DynaModLinClassifier,
    Frontier,
    evidence_of,
    sweep,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("small_fits")]

SIZES = {"sizes": [[(5, 2)], [(10, 3)]]}
GAMMAS = {"gamma": [0.001, 0.01, 0.1]}


def by_hand(estimator, rows, **settings):
    """The setting, fitted the ordinary way, with the seed of a sweep."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.set_params(**settings, random_state=0).fit(rows.X, rows.y)


def assert_points_hold(found, X, y, frontier):
    """The estimator of each point does on the rows what the frontier says."""
    for point in frontier:
        chosen = found.estimator(point)
        assert np.mean(chosen.predict(X) == y) == pytest.approx(point.score, abs=1e-12)
        assert chosen.cost(X).mean() == pytest.approx(point.cost)


def test_cascades_that_were_interrupted_end_as_fits_by_hand(
    assert_same_evidence, cascade, fitting, rows, tmp_path, monkeypatch
):
    class EnoughError(Exception):
        pass

    def stop(what, done, total):
        if what == "fitting" and done == 1:
            raise EnoughError

    path = tmp_path / "s.db"
    with pytest.raises(EnoughError):
        sweep(cascade, SIZES, *fitting, store=path, progress=stop)
    fitted = []
    real = run.fit_cell
    monkeypatch.setattr(
        run, "fit_cell", lambda cell, *given: (fitted.append(cell.settings), real(cell, *given))[1]
    )
    monkeypatch.setattr(run, "judge_once", None)
    resumed = sweep(cascade, SIZES, *fitting, store=path)
    assert fitted == [{"sizes": [[10, 3]]}]

    seen = []
    for cell in resumed.cells:
        hand = by_hand(cascade, rows, **cell.settings)
        seen.append(evidence_of(hand, rows.X_val, rows.y_val, settings=cell.settings))
        assert_same_evidence(cell.evidence, seen[-1])
    frontier = Frontier.from_evidence(seen)
    for name in ("source", "thresholds", "cost", "score"):
        np.testing.assert_array_equal(getattr(resumed.frontier, name), getattr(frontier, name))
    assert_points_hold(resumed, rows.X_val, rows.y_val, resumed.frontier)
    assert_points_hold(resumed, rows.X_test, rows.y_test, resumed.on(rows.X_test, rows.y_test))


def test_a_cascade_of_a_sweep_goes_on_to_other_points_by_the_validation_rows(cascade, fitting, rows):
    found = sweep(cascade, {"stages": [3]}, *fitting)
    chosen = found.estimator(found.frontier[-1])
    assert chosen.full is not None
    assert len(chosen.frontier_) == len(found.frontier)
    np.testing.assert_array_equal(chosen.frontier_.score, found.frontier.score)
    assert chosen.at(budget=1.5).cost(rows.X_test).mean() < 3.0
    certified = chosen.certified(rows.X_test, rows.y_test, max_loss=0.2)
    assert certified.certificate_.max_loss == 0.2


def test_the_full_model_is_judged_once_for_all_cascades(fitting):
    class Counted(GaussianNB):
        fits = 0

        def fit(self, X, y, sample_weight=None):
            type(self).fits += 1
            return super().fit(X, y, sample_weight)

    sweep(BudgetedClassifier(Counted(), cv=3, stages=2), {"sizes": [[(2, 2)], [(3, 2)]]}, *fitting)
    assert Counted.fits == 4


def test_training_rows_are_not_kept_in_the_store(cascade, fitting):
    found = sweep(cascade, {"stages": [3]}, *fitting)
    loaded = found._fitted(found.cells[0])
    assert not hasattr(loaded, "evidence_")


def test_the_full_model_is_given_the_columns_it_reads_and_no_others(
    assert_same_evidence, fitting, rows, tmp_path
):
    names = [f"c{number}" for number in range(10)]
    frames = [pd.DataFrame(X, columns=names) for X in (rows.X, rows.X_val, rows.X_test)]
    asked = set()

    def remote(table):
        asked.add(tuple(table.columns))
        return np.clip(0.5 - table["c7"].to_numpy() / 5.0, 0.05, 0.95)

    front = DynaModGbrtClassifier(remote, n_trees=5, max_depth=2, full_features=["c7", "c2"])
    found = sweep(
        front, {"gamma": [1.0, 10.0]}, frames[0], rows.y, frames[1], rows.y_val, store=tmp_path / "s.db"
    )
    for cell in found.cells:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            hand = front.set_params(**cell.settings, random_state=0).fit(frames[0], rows.y)
        assert_same_evidence(cell.evidence, evidence_of(hand, frames[1], rows.y_val, settings=cell.settings))
    assert_points_hold(found, frames[2], rows.y_test, found.on(frames[2], rows.y_test))
    assert asked == {("c7", "c2")}


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("front", ["gate", "cascade", "gate before a gate"])
def test_a_full_model_that_buys_by_row_is_paid_by_row(assert_same_evidence, fitting, rows, front, frozen):
    full = BudgetPruneClassifier(n_trees=5, random_state=0)
    tail = ConfidenceRouter(full, features=[0, 1], p_full=0.7, random_state=0)
    if frozen:
        tail, full = (FrozenEstimator(model.fit(rows.X_test, rows.y_test)) for model in (tail, full))
    estimator = {
        "gate": DynaModGbrtClassifier(full, n_trees=5, max_depth=2),
        "cascade": BudgetedClassifier(full, sizes=[(5, 2)], stages=2, cv=3),
        "gate before a gate": DynaModGbrtClassifier(tail, n_trees=5, max_depth=2),
    }[front]
    found = sweep(estimator, [{}], *fitting)
    hand = by_hand(estimator, rows)
    (cell,) = found.cells
    assert_same_evidence(cell.evidence, evidence_of(hand, rows.X_val, rows.y_val))
    assert cell.evidence.cost.ndim == 2
    assert front == "cascade" or len(np.unique(cell.evidence.cost_at(-1))) > 1
    assert_points_hold(found, rows.X_test, rows.y_test, found.on(rows.X_test, rows.y_test))


def test_a_cascade_stands_in_front_of_cells_and_behind_them(assert_same_evidence, cascade, fitting, rows, f0):
    gate = DynaModLinClassifier(f0, gamma=0.02, random_state=0)
    for front, tail in ((cascade, gate), (DynaModGbrtClassifier(n_trees=5, max_depth=2), cascade)):
        tail.set_params(random_state=0)
        estimator = front.set_params(full=FrozenEstimator(tail.fit(rows.X_test, rows.y_test)))
        found = sweep(estimator, [{}], *fitting)
        hand = by_hand(estimator, rows)
        assert_same_evidence(found.cells[0].evidence, evidence_of(hand, rows.X_val, rows.y_val))
        chosen = found.estimator(found.frontier[-1])
        assert chosen.chain_.n_stages > chosen.chain_.n_own_stages
        assert_points_hold(found, rows.X_val, rows.y_val, found.frontier)


def test_the_points_of_a_cascade_are_told_by_the_validation_rows(cascade, fitting, rows, f0):
    found = sweep(cascade.set_params(full=f0), [{}], *fitting)
    point = found.frontier[-1]
    chosen = found.estimator(point)
    assert chosen.expected_score_ == pytest.approx(point.score)
    assert chosen.expected_cost_ == pytest.approx(point.cost)
    assert chosen.at(budget=float(point.cost)).expected_cost_ == pytest.approx(point.cost)
