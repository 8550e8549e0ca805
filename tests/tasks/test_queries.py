from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from thrifty.engine.tasks.ranking import Queries, as_queries, average_precision_at, ndcg_at
from thrifty.errors import InvalidInputError

QUERY = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6)
"""Grades and scores of one query's documents; few distinct scores, so that there are ties."""


def test_queries_keep_the_order_of_the_rows_and_name_their_documents():
    queries = Queries([30, 30, 4, 7, 7, 7])
    assert queries.ids.tolist() == [30, 4, 7]
    assert queries.size.tolist() == [2, 1, 3]
    assert queries.number.tolist() == [0, 0, 1, 2, 2, 2]
    assert repr(queries) == "Queries(3 queries, 6 documents)"


def test_names_may_be_text():
    assert Queries(["shoes", "shoes", "hats"]).n_queries == 2


def test_a_query_pays_what_its_documents_pay():
    queries = Queries([1, 1, 2])
    assert queries.total([2.0, 3.0, 10.0]).tolist() == [5.0, 10.0]
    assert queries.total(1.5).tolist() == [3.0, 1.5]


def test_a_query_that_comes_back_is_refused_by_its_name_and_row():
    with pytest.raises(InvalidInputError, match="query 5 comes back in row 3. Sort the rows by query"):
        Queries([5, 6, 6, 5])


@pytest.mark.parametrize("qid", [[], [[1, 2], [3, 4]]], ids=["none", "a table"])
def test_ids_that_are_not_one_per_document_are_refused(qid):
    with pytest.raises(InvalidInputError, match="one query per document"):
        Queries(qid)


def test_queries_for_another_number_of_documents_are_refused():
    with pytest.raises(InvalidInputError, match="got 2 for 3 documents"):
        as_queries([1, 1], 3)


def precision_sum(relevant, k):
    """The definition, word by word, for documents that already stand in order."""
    total, found = 0.0, 0
    for place, is_relevant in enumerate(relevant[:k], start=1):
        found += is_relevant
        total += is_relevant * found / place
    return total / min(k, sum(relevant))


def all_orders(grades, scores, k):
    """AP@k of every order that the scores allow."""
    values = []
    for order in permutations(range(len(grades))):
        falling = [scores[row] for row in order]
        if falling == sorted(falling, reverse=True):
            values.append(precision_sum([grades[row] >= 1 for row in order], k))
    return values


@pytest.mark.slow
@given(st.lists(QUERY, min_size=1, max_size=4), st.integers(1, 7))
def test_average_precision_is_the_mean_over_all_orders_that_the_scores_allow(lists, k):
    rows = [pair for one in lists for pair in one]
    grades, scores = np.array(rows).T
    qid = np.repeat(np.arange(len(lists)), [len(one) for one in lists])
    mean = average_precision_at(grades, scores, qid, k)
    for number, one in enumerate(lists):
        given_grades, given_scores = zip(*one, strict=True)
        if max(given_grades) == 0:
            assert np.isnan(mean[number])
            continue
        values = all_orders(given_grades, given_scores, k)
        assert mean[number] == pytest.approx(np.mean(values), abs=1e-12)


@pytest.mark.slow
@given(st.lists(QUERY, min_size=1, max_size=4), st.integers(1, 7))
def test_discounted_gain_is_that_of_scikit_learn(lists, k):
    rows = [pair for one in lists for pair in one]
    grades, scores = np.array(rows).T
    qid = np.repeat(np.arange(len(lists)), [len(one) for one in lists])
    found = ndcg_at(grades, scores, qid, k)
    for number, one in enumerate(lists):
        truth, by = (np.array(values, dtype=float)[None] for values in zip(*one, strict=True))
        if truth.max() == 0:
            assert np.isnan(found[number])
        elif truth.size > 1:  # scikit-learn refuses a single document
            assert found[number] == pytest.approx(ndcg_score(2**truth - 1, by, k=k))


@pytest.mark.slow
@given(st.lists(QUERY, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_measures_depend_neither_on_the_order_of_documents_nor_on_that_of_queries(lists, chance):
    mixed = [chance.sample(one, len(one)) for one in lists]
    order = chance.sample(range(len(lists)), len(lists))

    def measured(parts, names):
        rows = np.array([pair for one in parts for pair in one])
        qid = np.repeat(names, [len(one) for one in parts])
        return [measure(rows[:, 0], rows[:, 1], qid) for measure in (average_precision_at, ndcg_at)]

    for plain, shuffled in zip(
        measured(lists, range(len(lists))), measured([mixed[place] for place in order], order), strict=True
    ):
        np.testing.assert_allclose(plain[order], shuffled, atol=1e-12)


def test_a_perfect_order_is_worth_one_even_with_fewer_relevant_documents_than_places():
    grades, scores = [2, 1, 0, 0], [4, 3, 2, 1]
    assert average_precision_at(grades, scores, [1] * 4, k=5) == [1.0]
    assert ndcg_at(grades, scores, [1] * 4, k=5) == [1.0]


def test_a_query_without_relevant_documents_has_no_value():
    for measure in (average_precision_at, ndcg_at):
        np.testing.assert_array_equal(measure([1, 0, 0, 0], [2, 1, 2, 1], [1, 1, 2, 2]), [1.0, np.nan])


def test_a_constant_score_gains_nothing_from_a_file_that_is_sorted_by_relevance():
    grades = np.array([1] * 5 + [0] * 15)
    constant = np.zeros(20)
    sorted_file, reversed_file = (
        average_precision_at(order, constant, np.zeros(20))[0] for order in (grades, grades[::-1])
    )
    assert sorted_file == pytest.approx(reversed_file)
    assert sorted_file < 0.3


def test_many_queries_take_no_loop():
    """A loop over queries in Python would take minutes here; the sort takes a second."""
    rng = np.random.default_rng(0)
    queries = Queries(np.repeat(np.arange(20_000), 10))
    y, score = rng.integers(3, size=200_000), rng.normal(size=200_000)
    found = average_precision_at(y, score, queries)
    one = slice(queries.start[777], queries.start[778])
    assert found[777] == pytest.approx(
        precision_sum([grade >= 1 for grade in y[one][np.argsort(-score[one])]], 5)
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ([0, -1], [1, 2], [1, 1]),
            "y must hold grades of relevance, whole numbers from 0 to 31; got -1.0 in row 1",
        ),
        (([0, np.nan], [1, 2], [1, 1]), "y must hold grades of relevance"),
        (([0, 1], [1, np.nan], [1, 1]), "score must hold one number per document, 2 in all"),
        (([0, 1], [1], [1, 1]), "score must hold one number per document"),
        (([0, 1], [1, 2], [1, 1, 1]), "got 3 for 2 documents"),
        (([0, 1], [1, 2], [1, 1], 0), "k must be a whole number of at least 1"),
        (([0, 1], [1, 2], [1, 1], 2.5), "k must be a whole number"),
    ],
)
def test_bad_input_is_refused_by_its_name(arguments, said):
    for measure in (average_precision_at, ndcg_at):
        with pytest.raises(InvalidInputError, match=said):
            measure(*arguments)
