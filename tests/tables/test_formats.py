import gzip

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thrifty import DataUnavailableError, InvalidInputError
from thrifty.tables.formats import listed, read_rows, read_table, table_bytes


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_numbers_come_back_to_the_last_bit_from_csv_and_from_parquet(tmp_path):
    chance = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": chance.normal(size=500) * 10.0 ** chance.integers(-30, 30, 500), "b": range(500)}
    )
    for name in ("t.csv", "t.parquet"):
        (tmp_path / name).write_bytes(table_bytes(frame, name))
        pd.testing.assert_frame_equal(read_table(tmp_path / name), frame)


def test_cells_that_mean_no_value_are_missing_and_the_word_none_is_not(tmp_path):
    frame = read_table(written(tmp_path / "t.csv", "a,b\n1,None\n,x\nNA,\n"))
    assert frame["a"].isna().tolist() == [False, True, True]
    assert frame["b"].isna().tolist() == [False, False, True]
    assert frame["b"][0] == "None"


def test_a_mark_at_the_beginning_and_spaces_around_names_do_not_matter(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("\ufeffa , b\n1, 2\n".encode())
    assert list(read_table(path).columns) == ["a", "b"]


def test_a_compressed_table_is_read(tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    assert read_table(tmp_path / "t.csv.gz")["b"].tolist() == [2]


def test_columns_that_are_text_stay_text_though_they_look_like_numbers(tmp_path):
    frame = read_table(written(tmp_path / "t.csv", "a,b\n01,1\n2,2\n"), as_text=["a", "absent"])
    assert frame["a"].tolist() == ["01", "2"]
    assert frame["b"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,b,a\n1,2,3\n", "names the column 'a' more than once"),
        ("a,b,a,b\n1,2,3,4\n", "names the columns 'a', 'b' more than once"),
        (",a\n0,1\n", "column 1 of"),
        ("a;b\n1;2\n", "semicolons"),
        ("a\tb\n1\t2\n", "tabs"),
        ("a,b\n", "holds no rows"),
        ("", "cannot be read as a table"),
        ("a,b\n1,2\n1,2,3\n", "cannot be read as a table"),
        ("a,b\n1,2,3\n4,5,6\n", "cannot be read as a table"),
        ('a,b\n1,"2\n', "cannot be read as a table"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused_with_one_sentence(tmp_path, text, told):
    with pytest.raises(InvalidInputError, match=told) as refusal:
        read_table(written(tmp_path / "t.csv", text))
    assert "\n" not in str(refusal.value)


def test_a_table_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(InvalidInputError, match="cannot be read as a table"):
        read_table(tmp_path / "t.csv")


def test_a_table_that_is_not_there_or_a_folder_or_no_parquet_is_refused(tmp_path):
    with pytest.raises(DataUnavailableError, match="does not exist"):
        read_table(tmp_path / "absent.csv")
    with pytest.raises(InvalidInputError, match="is a folder"):
        read_table(tmp_path)
    with pytest.raises(InvalidInputError, match="cannot be read as a table"):
        read_table(written(tmp_path / "t.parquet", "a,b\n1,2\n"))


def test_a_parquet_file_with_one_name_twice_is_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), tmp_path / "t.parquet")
    with pytest.raises(InvalidInputError, match="names the column 'a' more than once"):
        read_table(tmp_path / "t.parquet")


def test_without_pyarrow_a_parquet_file_is_refused_with_the_way_out(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InvalidInputError, match=r"pip install thrifty\[parquet\]"):
        read_table(written(tmp_path / "t.parquet", ""))


def test_small_files_are_read_as_cells_of_text(tmp_path):
    assert read_rows(written(tmp_path / "c.csv", "a, 1\n\nb,2\n")) == [["a", "1"], ["b", "2"]]
    frame = pd.DataFrame({"feature": ["a"], "cost": [1.5]})
    (tmp_path / "c.parquet").write_bytes(table_bytes(frame, "c.parquet"))
    assert read_rows(tmp_path / "c.parquet") == [["feature", "cost"], ["a", "1.5"]]


@given(st.lists(st.text(max_size=5), max_size=12))
def test_a_list_of_names_says_how_many_it_leaves_out(names):
    told = listed(names, 3)
    assert (f"and {len(names) - 3} more" in told) == (len(names) > 3)
