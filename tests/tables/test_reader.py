"""A row is judged by what it reads: what nobody asks for may be absent, unseen or nonsense."""

import numpy as np
import pandas as pd
import pytest

from thrifty.chain.columns import FrameOfFit
from thrifty.errors import InvalidInputError
from thrifty.tables.reader import CellReader
from thrifty.tables.schema import learn_schema


@pytest.fixture
def cells():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "x"], "y": [0, 1, 0]})
    new = pd.DataFrame({"a": ["1", "nonsense", "3"], "b": ["x", "y", "z"]})
    return learn_schema(frame.assign(c=1.0), "y").cells(new)


NAMED = FrameOfFit("pandas", ("a", "b", "c"), None, None)
ROWS, A, B, C = np.arange(3), np.array([0]), np.array([1]), np.array([2])


def test_a_reader_refuses_a_cell_when_it_is_asked_for_and_not_before(cells):
    reader = CellReader(cells, None)
    np.testing.assert_array_equal(reader.block(np.array([0, 2]), A), [[1.0], [3.0]])
    np.testing.assert_array_equal(reader.block(np.array([0, 1]), B), [[0.0], [1.0]])
    for rows, columns, told in (
        (ROWS, A, "column 'a' must hold numbers; got 'nonsense' in row 2"),
        (ROWS, B, "column 'b' holds 'z' in row 3, which was not there"),
        (ROWS, C, "the table lacks column 'c', which is read in row 1"),
        (ROWS[1:], np.array([1, 0]), "column 'a' must hold numbers; got 'nonsense' in row 2"),
    ):
        with pytest.raises(InvalidInputError, match=told):
            reader.block(rows, columns)
        with pytest.raises(InvalidInputError, match=told):
            reader.table(rows, columns)


def test_rows_that_are_taken_out_keep_their_numbers_and_their_chance(cells):
    some = cells.take(np.array([2, 1]))
    with pytest.raises(InvalidInputError, match="in row 2"):
        some.refuse_unreadable(columns=A)
    whole, part = (CellReader(one, NAMED) for one in (cells, some))
    np.testing.assert_array_equal(whole.keys(np.array([2])), part.keys(np.array([0])))


def test_a_missing_cell_is_refused_only_where_the_full_model_needs_it():
    frame = pd.DataFrame({"a": [1.0, np.nan], "y": [0, 1]})
    cells = learn_schema(frame, "y").cells(frame)
    assert np.isnan(CellReader(cells, NAMED).table(np.array([1])).to_numpy()).all()
    needy = CellReader(cells, None, full_needs="the full model (svm)")
    assert np.isnan(needy.block(np.array([1]), A)).all()
    assert needy.table(np.array([0])).tolist() == [[1.0]]
    with pytest.raises(
        InvalidInputError, match=r"'a' is missing in row 2, and the full model \(svm\) reads no"
    ):
        needy.table(np.array([1]))
