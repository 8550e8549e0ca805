import gzip
import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thrifty.engine.table.files import read_table, table_bytes
from thrifty.errors import DataUnavailableError, InvalidInputError, listed


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


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zip"])
def test_a_compressed_table_is_read(tmp_path, ending):
    pd.DataFrame({"a": [1], "b": [2]}).to_csv(tmp_path / f"t.csv.{ending}", index=False)
    assert read_table(tmp_path / f"t.csv.{ending}")["b"].tolist() == [2]


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
        ("", "cannot be read as a table: it is empty"),
        ("\n \n", "cannot be read as a table: it is empty"),
        (
            "a,b,c\n1,2,3\n\n1,2\n",
            "line 4 has 2 cells, and the line of names has 3. Write a missing value as an empty",
        ),
        (
            "a,b\n1,2\n1,2,3\n",
            "line 3 has 3 cells, and the line of names has 2. Put text that holds a comma into",
        ),
        ("a,b\n1,2,\n4,5,\n", "line 2 has 3 cells, and the line of names has 2"),
        ("# made by hand\na,b\n1,2\n", "line 2 has 2 cells, .* has 1. Begin the file with the names"),
        ('a,b\n1,2\n""\n', "line 3 has 1 cell, and the line of names has 2"),
        ('a,b\n1,"2\n', "a quotation mark that is never closed"),
        ('a,b\n"1,2\n3,4\n', "lines 2 to 3, one row, have 1 cell, .* Close the quotation mark"),
        ('a,b\n1,"' + 2**17 * "2" + "\n", "of the row that begins in line 2 does not end"),
        ("a,b\n1,\0\n", "line 2 holds the byte 0x00, which is no text"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused_with_one_sentence(tmp_path, text, told):
    with pytest.raises(InvalidInputError, match=told) as refusal:
        read_table(written(tmp_path / "t.csv", text))
    assert "\n" not in str(refusal.value)


PACKED = gzip.compress(b"a,b\n1,2\n" * 9, mtime=0)


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        (
            "t.csv",
            "a,b\nK\xf6ln,1\n".encode("latin-1"),
            "line 2 holds the byte 0xf6, .* Save it as CSV in UTF-8",
        ),
        ("t.csv", "a,b\n1,2\n".encode("utf-16"), "it seems to be UTF-16. Save it as CSV in UTF-8"),
        ("t.csv", b"PK\x03\x04 and more", "it seems to be a spreadsheet"),
        ("t.csv", PACKED, "it seems to be compressed under another name"),
        ("t.csv.gz", PACKED[:-12], "it is damaged, or no .gz file"),
        ("t.csv.gz", PACKED[:-3] + b"...", "it is damaged, or no .gz file"),
        ("t.csv.gz", b"a,b\n1,2\n", "it is damaged, or no .gz file"),
        ("t.csv.xz", b"a,b\n1,2\n", "it is damaged, or no .xz file"),
        ("t.csv.zip", b"a,b\n1,2\n", "it is damaged, or no .zip file"),
    ],
)
def test_a_file_that_is_no_text_or_is_torn_is_refused_with_the_way_out(tmp_path, name, data, told):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InvalidInputError, match=f"cannot be read as a table: {told}"):
        read_table(tmp_path / name)


def test_the_line_that_is_refused_is_counted_as_an_editor_counts_lines(tmp_path):
    text = 'a,b\r\n1,"two\r\nlines"\r\n\r\n3\r\n'
    (tmp_path / "t.csv").write_bytes(text.encode())
    with pytest.raises(InvalidInputError, match="line 5 has 1 cell, and the line of names has 2"):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_may_end_in_every_way_and_cells_in_quotes_hold_commas_and_lines(tmp_path, end):
    cells = ['" a"', '"b"'], ['"x,y"', "1"], [], ['"two\nlines"', ""], ['say ""hi""', '"2"']
    (tmp_path / "t.csv").write_bytes(end.join(",".join(row) for row in cells).encode("utf-8-sig"))
    frame = read_table(tmp_path / "t.csv")
    assert list(frame.columns) == ["a", "b"]
    assert frame["a"].tolist() == ["x,y", "two\nlines", 'say ""hi""']
    np.testing.assert_array_equal(frame["b"], [1, np.nan, 2])


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


DANGEROUS = ["=1+1", "+cmd", "-2+3", "@sum", "\tx", "\rx", "\nx", "\uff1dx"]
HARMLESS = ["yes", "-1", "+1.5e3", "1-2", "'=x", ""]


def test_text_that_a_spreadsheet_would_run_is_quoted_in_csv_and_nothing_else_is_touched():
    frame = pd.DataFrame({"answer": DANGEROUS + HARMLESS, "cost": np.linspace(-5, 5, 14), "=n": range(-7, 7)})
    shown = pd.read_csv(io.BytesIO(table_bytes(frame, "t.csv")), keep_default_na=False)
    assert shown["answer"].tolist() == [f"'{text}" for text in DANGEROUS] + HARMLESS
    assert shown.columns.tolist() == ["answer", "cost", "'=n"]
    np.testing.assert_array_equal(shown["cost"], frame["cost"])
    np.testing.assert_array_equal(shown["'=n"], frame["=n"])


@pytest.mark.parametrize(("name", "raw"), [("t.csv", True), ("t.parquet", False)])
def test_text_comes_back_as_it_was_from_raw_csv_and_from_parquet(tmp_path, name, raw):
    frame = pd.DataFrame({"answer": DANGEROUS + HARMLESS[:-1]})
    (tmp_path / name).write_bytes(table_bytes(frame, name, raw=raw))
    assert read_table(tmp_path / name)["answer"].tolist() == frame["answer"].tolist()


@pytest.mark.slow
@given(st.lists(st.text("ab ',", max_size=5), max_size=12))
def test_a_list_of_names_says_how_many_it_leaves_out(names):
    told = listed(names, 3)
    assert (f"and {len(names) - 3} more" in told) == (len(names) > 3)
