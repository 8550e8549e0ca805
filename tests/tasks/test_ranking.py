"""Targets that know their query, and the losses that trees of a ranker lower."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold

from thrifty.engine.full.adapters import models_of
from thrifty.engine.full.crossfit import assign_folds
from thrifty.engine.tasks.ranking import ndcg_at, ranking_of, with_queries
from thrifty.errors import InvalidInputError
from thrifty.rows import query_folds

GRADES, QUERIES = np.array([2, 0, 1, 0, 0, 1, 1, 0, 3]), np.array([0, 0, 0, 1, 1, 2, 2, 2, 3])


def task_of(loss="pointwise", metric="ndcg@5"):
    return ranking_of(with_queries(GRADES, QUERIES), loss, metric, 0.01)


def test_a_target_keeps_its_grade_and_its_query_whichever_rows_are_taken():
    task = task_of()
    code = task.encode("y", with_queries(GRADES, list("aaabbcccd")), 9)
    chosen = np.array([7, 0, 8])
    np.testing.assert_array_equal(task.decode(code[chosen]), [[0, 2], [2, 0], [3, 3]])


@pytest.mark.parametrize("loss", ["pointwise", "pairwise", "listwise"])
def test_gradients_of_a_ranking_loss_match_finite_differences(loss):
    task = task_of(loss)
    # The rows of a query need not stand together by then.
    shuffled = np.random.default_rng(0).permutation(9)
    of_rows = task.loss(task.encode("y", with_queries(GRADES, QUERIES), 9)[shuffled])
    scores = np.random.default_rng(1).normal(size=(9, 1))
    numeric = [
        (of_rows.values(scores + step).sum() - of_rows.values(scores - step).sum()) / 2e-6
        for step in 1e-6 * np.eye(9)[:, :, None]
    ]
    np.testing.assert_allclose(of_rows.derivatives(scores)[0][:, 0], numeric, atol=1e-7)


@pytest.mark.parametrize("loss", ["pairwise", "listwise"])
def test_a_query_that_says_nothing_about_order_has_no_gradient(loss):
    task = task_of(loss)
    gradient, hessian = task.loss(task.encode("y", with_queries(GRADES, QUERIES), 9)).derivatives(
        np.ones((9, 1))
    )
    assert not gradient[[3, 4, 8]].any()  # nothing is relevant; a single document
    assert gradient[[0, 1, 5, 6, 7]].all()
    assert (hessian > 0).all()


def test_the_value_of_a_query_is_that_of_its_own_documents():
    task, scores = task_of(), np.random.default_rng(0).normal(size=9)
    code = task.encode("y", with_queries(GRADES, QUERIES), 9)
    shuffled = np.random.default_rng(0).permutation(9)
    found = task.value_of_queries(code[shuffled], scores[shuffled])
    np.testing.assert_allclose(found, ndcg_at(GRADES, scores, QUERIES, 5))
    assert np.isnan(found[1])
    assert found[3] == 1.0


@pytest.mark.parametrize(
    ("relevance", "qid", "says"),
    [
        ([1, 0, 1], [1, 2, 1], "comes back in row 2.*Sort the rows by query"),
        ([1, 0], [1, 1, 1], "one query for each of the 2 documents; got 3"),
        ([1, np.nan, 0], [1, 1, 1], "whole numbers from 0 to 31; got nan in row 1"),
        ([1, 0, -1], [1, 1, 1], "got -1.0 in row 2"),
        ([1, 0.5, 0], [1, 1, 1], "got 0.5 in row 1"),
        ([1, 0, 0], [1.0, np.nan, np.nan], "missing in row 1"),
        ([1, 0, 0], None, "qid must say which query"),
        ([0, 0, 0], [1, 1, 2], "no order to learn"),
        ([2, 1, 3], [1, 2, 3], "no order to learn"),
    ],
)
def test_documents_that_cannot_be_learned_from_are_refused_in_words(relevance, qid, says):
    with pytest.raises(InvalidInputError, match=f"(?s){says}"):
        ranking_of(with_queries(relevance, qid), "pointwise", "ndcg@5", 0.01)


def test_relevance_without_queries_is_refused_where_an_order_is_judged():
    with pytest.raises(InvalidInputError, match=r"np.column_stack\(\[relevance, qid\]\)"):
        task_of().encode("y", GRADES, 9)


class Told(Ridge):
    def fit(self, X, y, group=None):
        return super().fit(X, y)


def test_a_full_model_that_ranks_is_told_the_queries_and_another_one_is_not():
    task = task_of()
    code = task.encode("y", with_queries(GRADES, QUERIES), 9)
    grades, told = models_of(task).fit_arguments(Told(), code[2:])
    np.testing.assert_array_equal(grades, GRADES[2:])
    np.testing.assert_array_equal(told["group"], [1, 2, 3, 1])
    assert models_of(task).fit_arguments(Ridge(), code)[1] == {}


def test_folds_that_part_a_query_are_refused_and_groups_are_kept():
    X, query = np.zeros((40, 1)), np.repeat(np.arange(10), 4)
    kept = assign_folds(GroupKFold(2), X, query, query, 0, query)
    assert len(np.unique(np.column_stack([query, kept]), axis=0)) == 10
    with pytest.raises(InvalidInputError, match="GroupKFold"):
        assign_folds(
            [(np.arange(18, 40), np.arange(18)), (np.arange(18), np.arange(18, 40))],
            X,
            query,
            query,
            0,
            query,
        )


def test_folds_keep_queries_together_and_do_not_depend_on_the_order_of_documents():
    rng = np.random.default_rng(0)
    X, query = rng.normal(size=(200, 2)), np.repeat(np.arange(40), 5)
    X[5:10] = X[:5]  # a query that is given twice
    relevant = rng.integers(0, 2, 200)
    relevant[:10] = 1
    folds = query_folds(X, query, relevant, 4)
    assert len(np.unique(np.column_stack([query, folds]), axis=0)) == 40
    assert folds[0] == folds[5]
    np.testing.assert_array_equal(np.unique(folds, return_counts=True)[0], [0, 1, 2, 3])
    shuffled = rng.permutation(200)
    np.testing.assert_array_equal(
        query_folds(X[shuffled], query[shuffled], relevant[shuffled], 4), folds[shuffled]
    )
