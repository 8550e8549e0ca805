"""Stages of one ensemble, and orders of purchases."""

from dataclasses import replace

import numpy as np
import pytest

from thrifty.engine.prices.billing import PriceList
from thrifty.engine.tasks.classes import BinaryTask
from thrifty.engine.trees import bin_columns
from thrifty.learners.cascade.evaluation import MAX_LOG_RATIO, overconfidence_ratio
from thrifty.learners.cascade.orders import ORDERS_OF_SEVERAL, Learner
from thrifty.learners.cascade.problem import TrainingSet, nested_sets, stopping_places
from thrifty.learners.cascade.stages import (
    MIN_RELATIVE_DROP,
    N_LOSS_CHECKS,
    PATIENCE,
    SUBSAMPLE,
    grow_stages,
    margins,
    narrow_table,
)
from thrifty.learners.trees.boosting import Boosting

TASK = BinaryTask(np.array([0, 1]))
SMALL = Boosting(n_trees=8, max_depth=3)


def training(table, y, weight=None):
    return TrainingSet(TASK, table, y, np.ones(len(y)) if weight is None else weight)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 5))
    score = 2 * X[:, 3] + X[:, 1] * X[:, 0]
    return X, np.where(score + 0.3 * rng.normal(size=600) > 0, 1.0, -1.0)


def test_a_stage_reads_only_its_columns_and_keeps_the_score_of_the_stage_before(rows):
    X, y = rows
    table = bin_columns(X)
    sets = [np.array([3]), np.array([3, 1])]
    grown = grow_stages(training(table, y), sets, SMALL)
    scores = grown.scores(table)
    changed = table.padded.copy()
    changed[:, [0, 2, 4]] = 0
    np.testing.assert_array_equal(grown.scores(replace(table, padded=changed)), scores)
    changed[:, 1] = 0
    np.testing.assert_array_equal(grown.scores(replace(table, padded=changed))[:, 0], scores[:, 0])
    added = grown.parts[1].predict(X)[:, 0]
    np.testing.assert_allclose(scores[:, 1, 0], scores[:, 0, 0] + added, rtol=1e-12)
    assert set(np.flatnonzero(grown.parts[1].features_used)) <= {1, 3}


def test_the_first_stages_do_not_depend_on_the_later_ones(rows):
    X, y = rows
    table = bin_columns(X)
    short = grow_stages(training(table, y), [np.array([3])], SMALL)
    long = grow_stages(training(table, y), [np.array([3]), np.arange(5)], SMALL)
    np.testing.assert_array_equal(short.scores(table)[:, 0], long.scores(table)[:, 0])


def test_a_row_of_weight_two_is_that_row_given_twice(rows):
    X, y = rows
    twice = np.r_[np.arange(600), np.arange(100)]
    table = bin_columns(X)
    sets, counts = [np.array([3]), np.array([3, 1])], np.ones(600)
    counts[:100] = 2.0
    weighted = grow_stages(training(table, y, counts), sets, SMALL)
    repeated = grow_stages(training(table.take(twice), y[twice]), sets, SMALL)
    np.testing.assert_allclose(weighted.scores(table), repeated.scores(table), rtol=1e-9)
    np.testing.assert_allclose(weighted.mean_margin, repeated.mean_margin, rtol=1e-9)


def test_trees_see_different_shares_of_the_rows(rows, monkeypatch):
    seen = []

    def spy(self, *given):
        seen.extend(given[-1])
        return add_trees(self, *given)

    add_trees = Boosting.add_trees
    monkeypatch.setattr(Boosting, "add_trees", spy)
    X, y = rows
    sets = [np.array([3]), np.arange(5)]
    grow_stages(training(bin_columns(X), y), sets, replace(SMALL, n_trees=20))
    drawn = np.array(seen)
    assert drawn.mean() == pytest.approx(SUBSAMPLE, abs=0.02)
    assert drawn.mean(axis=0).min() > 0.3
    assert np.unique(drawn, axis=0).shape[0] == 40


def test_a_hundred_stages_and_more_keep_their_scores_finite(rows):
    table = bin_columns(rows[0])
    one = replace(SMALL, n_trees=1)
    grown = grow_stages(training(table, rows[1]), [np.array([3])] * 130, one)
    assert np.isfinite(grown.scores(table)).all()


def test_a_narrow_table_holds_the_same_codes(rows):
    table = bin_columns(rows[0])
    narrow = narrow_table(table, np.array([4, 0]))
    np.testing.assert_array_equal(narrow.codes, table.codes[:, [4, 0]])
    np.testing.assert_array_equal(narrow.thresholds.of(0), table.thresholds.of(4))


def test_held_out_scores_are_those_of_trees_that_do_not_know_the_labels_of_these_rows(rows):
    X, y = rows
    table, fold, sets = bin_columns(X), np.arange(200), [np.array([3]), np.arange(5)]
    other = y.copy()
    other[fold] *= -1
    before, after = (
        grow_stages(training(table, labels), sets, SMALL, n_trees=[8, 8], held_out=fold)
        for labels in (y, other)
    )
    assert before.held_out.std(axis=0).min() > 0.1
    np.testing.assert_allclose(before.held_out, before.scores(table.take(fold)), rtol=1e-12)
    np.testing.assert_array_equal(after.held_out, before.held_out)
    np.testing.assert_array_equal(after.mean_margin, before.mean_margin)


def losses_after(table, y, fold, columns, boosting):
    """Mean loss of held-out rows after every tenth of the trees of one stage, each ensemble grown from nothing."""
    losses = []
    for n_trees in range(0, boosting.n_trees + 1, boosting.n_trees // N_LOSS_CHECKS):
        scores = grow_stages(
            training(table, y), [columns], boosting, n_trees=[n_trees], held_out=fold
        ).held_out
        losses.append(TASK.loss(y[fold]).values(scores[:, 0]).mean())
    return np.array(losses)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [np.array([2]), np.array([3]), np.arange(5)])
def test_a_stage_ends_where_the_loss_of_rows_that_watch_was_lowest(columns, rows):
    X, y = rows
    table, fold = bin_columns(X), np.arange(0, 600, 3)
    boosting = Boosting(n_trees=100, max_depth=4)
    of_fold = grow_stages(training(table, y), [columns], boosting, held_out=fold)
    scores, n_trees = of_fold.held_out, of_fold.n_trees
    losses = losses_after(table, y, fold, columns, boosting)
    best, worse = 0, 0
    for look, loss in enumerate(losses):
        better = loss < losses[best] * (1 - MIN_RELATIVE_DROP) or look == 0
        best, worse = (look, 0) if better else (best, worse + 1)
        if worse == PATIENCE:
            break
    assert n_trees == [10 * best]
    assert n_trees[0] < 100 or len(columns) == 5  # who reads everything is not done yet
    assert TASK.loss(y[fold]).values(scores[:, 0]).mean() == pytest.approx(losses[best])


def test_stages_behind_one_that_ended_early_begin_where_it_ended(rows):
    X, y = rows
    table, fold = bin_columns(X), np.arange(0, 600, 3)
    boosting, sets = Boosting(n_trees=40, max_depth=3), [np.array([2]), np.array([2, 3]), np.arange(5)]
    watched = grow_stages(training(table, y), sets, boosting, held_out=fold)
    again = grow_stages(training(table, y), sets, boosting, n_trees=watched.n_trees, held_out=fold)
    assert again.n_trees == watched.n_trees
    assert min(watched.n_trees) < 40
    np.testing.assert_array_equal(again.held_out, watched.held_out)


@pytest.mark.parametrize("name", ORDERS_OF_SEVERAL)
def test_an_order_names_every_priced_purchase_once_and_the_best_first(name, rows):
    X, y = rows
    prices = PriceList(np.array([1.0, 0.0, 2.0, 1.0]), np.array([0, 0, 1, 3, 2]))
    order = ORDERS_OF_SEVERAL[name](Learner(training(bin_columns(X), y), prices, SMALL))
    assert sorted(order.tolist()) == [0, 2, 3]
    assert order[0] == 3


@pytest.mark.parametrize("name", ORDERS_OF_SEVERAL)
def test_a_price_moves_a_purchase_back(name, rows):
    X, y = rows
    table = bin_columns(X)
    dear = PriceList(np.array([1.0, 1.0, 1.0, 1e6, 1.0]), np.arange(5))
    order = ORDERS_OF_SEVERAL[name](Learner(training(table, y), dear, SMALL))
    assert order[0] != 3


def test_stopping_places_end_with_everything_and_are_at_most_so_many():
    assert stopping_places(5, 16).tolist() == [1, 2, 3, 4, 5]
    for n_purchases in (17, 54, 400):
        for most in (1, 3, 16):
            places = stopping_places(n_purchases, most)
            assert len(places) <= most
            assert places[-1] == n_purchases
            assert (np.diff(places) > 0).all()


def test_sets_are_nested_and_begin_with_what_is_free():
    prices = PriceList(np.array([0.0, 1.0, 2.0]), np.array([1, 0, 2, 1]))
    sets = nested_sets(np.array([2, 1]), [1, 2], prices)
    assert [columns.tolist() for columns in sets] == [[1], [1, 2], [1, 2, 0, 3]]


def test_scores_of_copies_are_stretched_by_as_much_as_those_of_the_model_that_serves_are_larger(rows):
    table, y, sets = bin_columns(rows[0]), rows[1], [np.array([2]), np.array([2, 3])]
    grown = grow_stages(training(table, y), sets, SMALL)
    scores = grown.scores(table)
    np.testing.assert_allclose(grown.mean_margin, np.abs(scores - grown.base).mean(axis=(0, 2)))
    np.testing.assert_allclose(overconfidence_ratio(grown.mean_margin, grown.mean_margin), 1.0)
    np.testing.assert_allclose(overconfidence_ratio(grown.mean_margin, grown.mean_margin / 1.1), 1.1)
    np.testing.assert_allclose(
        overconfidence_ratio(grown.mean_margin, grown.mean_margin / [1.3, 1.0]),
        1.3 ** np.array([2 / 3, 1 / 3]),
    )
    np.testing.assert_allclose(
        overconfidence_ratio(grown.mean_margin, grown.mean_margin / 9), np.exp(MAX_LOG_RATIO)
    )
    np.testing.assert_allclose(overconfidence_ratio(grown.mean_margin, np.zeros(2)), 1.0)  # nothing was grown
    np.testing.assert_allclose(
        overconfidence_ratio(grown.mean_margin, grown.mean_margin * 1.1), 1.0
    )  # less overfit is not less sure


def test_how_sure_an_answer_of_several_classes_is_does_not_depend_on_classes_that_are_out_of_the_question():
    scores, base = np.array([[2.0, 0.5, -1.0], [0.0, 3.0, -1.0]]), np.zeros(3)
    np.testing.assert_allclose(margins(scores, base), [1.5, 3.0])
    rarer = scores - [0.0, 0.0, 4.0]
    np.testing.assert_allclose(margins(rarer, base), margins(scores, base))


def test_every_stage_keeps_seven_tenths_of_the_score_so_far(rows):
    table, y, sets = bin_columns(rows[0]), rows[1], [np.arange(5)] * 19
    grown = grow_stages(training(table, y), sets, SMALL, n_trees=[1] + [0] * 17 + [1])
    first, last = (np.abs(grown.parts[place].values).max() for place in (0, 18))
    assert last / first == pytest.approx(1 / 0.7**18, rel=0.6)  # a tree like the first, scaled
