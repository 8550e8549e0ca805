import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thrifty.exceptions import InvalidInputError
from thrifty.ranking.queries import Queries, as_queries


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


@given(st.lists(st.integers(1, 6), min_size=2, max_size=30), st.integers(2, 5), st.integers(0, 9))
def test_folds_tear_no_query_apart_and_are_nearly_even(sizes, n_folds, seed):
    queries = Queries(np.repeat(np.arange(len(sizes)), sizes))
    if n_folds > len(sizes):
        with pytest.raises(InvalidInputError, match="number of queries"):
            queries.folds(n_folds, seed)
        return
    folds = queries.folds(n_folds, seed)
    first = folds[queries.start]
    np.testing.assert_array_equal(folds, first[queries.number])
    counts = np.bincount(first, minlength=n_folds)
    assert counts.max() - counts.min() <= 1
