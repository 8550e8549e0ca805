import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduction.datasets import load_svmlight_ranking
from thrifty.errors import DataUnavailableError, InvalidInputError

GOOD = """\
# a comment
2 qid:10 1:0.5 3:1.25 # docid = a
0 qid:10 2:1

1.0 qid:4 1:-2e-3
0 qid:4
"""


@pytest.fixture
def write(tmp_path):
    def write(text, name="rank.txt"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_grades_queries_and_features_are_read_and_the_rest_is_zero(write):
    table = load_svmlight_ranking(write(GOOD))
    assert table.y.tolist() == [2, 0, 1, 0]
    assert table.qid.tolist() == [10, 10, 4, 4]
    np.testing.assert_array_equal(table.X.toarray(), [[0.5, 0, 1.25], [0, 1, 0], [-2e-3, 0, 0], [0, 0, 0]])
    assert load_svmlight_ranking(write(GOOD), n_features=700).X.shape == (4, 700)


def test_a_compressed_file_is_read_and_a_cut_one_is_refused(tmp_path):
    path = tmp_path / "rank.txt.gz"
    packed = gzip.compress(GOOD.encode() * 1)
    path.write_bytes(packed)
    assert load_svmlight_ranking(path).qid.tolist() == [10, 10, 4, 4]
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(InvalidInputError, match="damaged or truncated gzip"):
        load_svmlight_ranking(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 qid:1 1:1\n0 qid:2 1:1\n0 qid:1 1:1\n", "line 3: query 1 comes back after it was left in line 2"),
        ("0 qid:1 1:1\n-1 qid:1 1:1\n", "line 2: a grade must be a whole number of at least 0; got '-1'"),
        ("1.5 qid:1 1:1\n", "line 1: a grade must be a whole number"),
        ("nan qid:1 1:1\n", "line 1: a grade must be a whole number"),
        ("0 qid:1 1:1\n1 1:1 2:1\n", "line 2: a line must begin with `grade qid:query`; got '1 1:1 2:1'"),
        ("1 qid:x 1:1\n", "line 1: grade and query must be whole numbers"),
        ("", "holds no documents"),
        ("# only a comment\n\n", "holds no documents"),
        ("0 qid:1 1:1\n1 qid:1 2:0.5 3:\n", "line 2: a value must be a number; got '3:'"),
        ("1 qid:1 2:0.5 3\n", "line 1: a cell must read `feature:value`; got '3'"),
        ("1 qi", "line 1: a line must begin"),
        ("1 qid:1 \x00\x01garbage\n", "line 1: a cell must read"),
        ("1 qid:1 0:1\n", "line 1: features must be numbered from 1"),
        ("1 qid:1 3:1 2:1\n", "rise along a line (the one before is 3); got '2:1'"),
        ("1 qid:1 3:1 3:1\n", "rise along a line"),
        ("1 qid:1 2:1\n1 qid:1 1:nan\n", "line 2: a value must be finite; got '1:nan'"),
        ("1 qid:1 9:1\n", "line 1: features must be numbered up to 5; got '9:1'"),
    ],
)
def test_a_broken_line_is_refused_by_its_number_and_its_fault(write, text, said):
    path = write(text)
    with pytest.raises(InvalidInputError) as refused:
        load_svmlight_ranking(path, n_features=5)
    assert said in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataUnavailableError, match="nowhere.txt does not exist"):
        load_svmlight_ranking(tmp_path / "nowhere.txt")


@given(st.binary(max_size=60))
def test_whatever_the_bytes_they_are_read_or_refused_with_the_file_named(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "rank.txt"
    path.write_bytes(b"0 qid:1 1:1\n" + content)
    try:
        table = load_svmlight_ranking(path, n_features=9)
    except InvalidInputError as error:
        assert "rank.txt" in str(error)  # noqa: PT017 - either way is right, each with its own promise
    else:
        assert table.X.shape == (len(table.y), 9)
        assert len(table.qid) == len(table.y)


@given(st.integers(1, 40), st.integers(0, 200))
def test_a_file_cut_off_anywhere_gives_its_first_documents_or_a_refusal(tmp_path_factory, n_lines, cut):
    path = tmp_path_factory.mktemp("cut") / "rank.txt"
    lines = [f"{row % 3} qid:{row // 4} 1:{row}.5 2:7\n" for row in range(n_lines)]
    path.write_text("".join(lines)[: max(cut, 20)])
    try:
        table = load_svmlight_ranking(path, n_features=2)
    except InvalidInputError as error:
        assert "line" in str(error)  # noqa: PT017
    else:
        assert table.qid.tolist() == [row // 4 for row in range(len(table.qid))]
