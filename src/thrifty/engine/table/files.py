"""Reading and writing CSV and parquet files; errors name the line and the column."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import sys
import zipfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Labels
from thrifty.engine.tasks.classes import read_loss
from thrifty.errors import DataUnavailableError, InvalidInputError, listed
from thrifty.files import check_path

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""Cells of a CSV file that are missing values."""

_PARQUET = (".parquet", ".pq")

STANDARD_INPUT = Path("-")
"""Path for CSV on standard input."""


def _unzip(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        (name,) = archive.namelist()
        return archive.read(name)


_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress, ".zip": _unzip,
}  # fmt: skip
_SIGNATURES = {
    b"PK\x03\x04": "a spreadsheet or another zip archive",
    b"\xd0\xcf\x11\xe0": "a spreadsheet or another office document",
    b"PAR1": "parquet under another name",
    b"\x1f\x8b": "compressed under another name",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}

_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
"""First characters of text that spreadsheets run as a formula, as OWASP lists them, full-width ones included."""


def read_table(path: str | os.PathLike[str], *, as_text: Collection[str] = ()) -> Any:
    """Read a CSV or parquet file as a pandas data frame with distinct column names.

    Parameters
    ----------
    path : path
        ``.parquet`` or ``.pq`` is read as parquet, everything else as comma-separated text with a line of names; ``-``
        is such text on standard input.
    as_text : collection of str
        Columns whose cells are text even where they look like numbers.
    """
    path = STANDARD_INPUT if Path(path) == STANDARD_INPUT else _existing(path)
    frame = _read_parquet(path) if path.suffix.lower() in _PARQUET else _read_csv(path, as_text)
    if not len(frame):
        raise InvalidInputError(f"{name_of(path)} holds no rows, only the names of its columns.")
    return frame


def read_cost_matrix(path: str | os.PathLike[str], classes: Labels) -> Floats:
    """Cost matrix of mistakes from a file that names true classes and answers; in the order of ``classes``.

    CSV: a line of names, the first cell of which is free, then a line for each true class, its name first. JSON: an
    object of true classes, each an object of answers and what they cost.
    """
    names, path = [str(label) for label in classes.tolist()], Path(check_path(path))
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() == ".json":
            lines = {truth: list(line.items()) for truth, line in json.loads(text).items()}
        else:
            cells = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text)) if row]
            if len({len(row) for row in cells}) != 1:
                raise InvalidInputError("every line must have as many cells as the line of names.")
            lines = {truth: list(zip(cells[0][1:], line, strict=True)) for truth, *line in cells[1:]}
        named = {"lines for the true classes": list(lines)}
        named |= {f"answers to {truth!r}": [answer for answer, _ in line] for truth, line in lines.items()}
        for what, labels in named.items():
            if sorted(labels) != sorted(names):
                raise InvalidInputError(
                    f"it must have {what} {listed(names)}, each once; got {listed(labels)}."
                )
        costs = np.array([[float(dict(lines[truth])[answer]) for answer in names] for truth in names])
        read_loss(costs, np.array(names))
    except (OSError, ValueError, TypeError, AttributeError, csv.Error) as error:
        raise InvalidInputError(f"{path} cannot be read as a matrix of costs: {error}") from None
    return costs


def table_bytes(frame: Any, path: str | os.PathLike[str], *, raw: bool = False) -> bytes:
    """Bytes of a data frame as parquet or CSV, by the name of the file.

    Parameters
    ----------
    frame : pandas data frame
        The table.
    path : path
        ``.parquet`` or ``.pq`` is written as parquet, everything else as CSV.
    raw : bool, default=False
        Whether text of a CSV file is written as it is. Otherwise a single quote comes before text that a spreadsheet
        would run as a formula; numbers, and text that is a number, are never changed.
    """
    if Path(path).suffix.lower() in _PARQUET:
        need_parquet()
        sink = io.BytesIO()
        frame.to_parquet(sink, index=False)
        return sink.getvalue()
    shown = frame if raw else frame.apply(_escaped).rename(columns=_harmless)
    text = str(shown.to_csv(index=False, lineterminator="\n"))
    if "\r" in text:
        # Readers take a carriage return as the end of a line, and pandas does not quote it by default.
        text = str(shown.to_csv(index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC))
    return text.encode()


def name_of(path: str | os.PathLike[str]) -> str:
    """Name of a table in messages."""
    return "standard input" if Path(path) == STANDARD_INPUT else str(path)


def _existing(path: str | os.PathLike[str]) -> Path:
    path = Path(check_path(path))
    if not path.exists():
        raise DataUnavailableError(f"{path} does not exist. Name a CSV or parquet file.")
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder. Name a CSV or parquet file in it.")
    return path


def _escaped(column: Any) -> Any:
    """Column with text escaped so that a spreadsheet does not run it; numbers are unchanged."""
    return column if column.dtype.kind in "biufc" else column.map(_harmless)


def _harmless(cell: Any) -> Any:
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def _read_csv(path: Path, as_text: Collection[str]) -> Any:
    import pandas as pd

    data = _text_of(path)
    names = _check_lines(data, path)
    try:
        return pd.read_csv(
            io.BytesIO(data),
            header=0,
            names=names,
            index_col=False,
            na_values=list(MISSING),
            dtype=dict.fromkeys((name for name in names if name in as_text), "str"),
            low_memory=False,
            keep_default_na=False,
            encoding="utf-8-sig",
            skipinitialspace=True,
            # Exact parsing of floats, which is pandas' default from version 3 on.
            **({"float_precision": "round_trip"} if int(pd.__version__.split(".")[0]) < 3 else {}),
        )
    except (ValueError, pd.errors.ParserError) as error:
        is_open = "EOF inside string" in str(error)
        reason = "a cell begins with a quotation mark that is never closed. Close it" if is_open else error
        raise _unreadable(path, reason) from error


def _text_of(path: Path) -> bytes:
    """Bytes of a text file, decompressed; content that is not UTF-8 text is refused."""
    unpack = _UNPACK.get(path.suffix.lower())
    try:
        data = sys.stdin.buffer.read() if path == STANDARD_INPUT else path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    if unpack is not None:
        try:
            data = unpack(data)
        except Exception as error:  # every kind of archive has errors of its own
            reason = f"it is damaged, or no {path.suffix} file ({error}). Write it again"
            raise _unreadable(path, reason) from error
    way_out = "Save it as CSV in UTF-8, or as parquet with the ending .parquet"
    for signature, called in _SIGNATURES.items():
        if data.startswith(signature):
            raise _unreadable(path, f"it seems to be {called}. {way_out}")
    try:
        data.decode("utf-8")
        wrong = data.find(b"\0")
    except UnicodeDecodeError as error:
        wrong = error.start
    if wrong >= 0:
        line = data.count(b"\n", 0, wrong) + 1
        reason = f"line {line:,} holds the byte 0x{data[wrong]:02x}, which is no text in UTF-8. {way_out}"
        raise _unreadable(path, reason)
    return data


def _check_lines(data: bytes, path: Path) -> list[str]:
    """Check that every line has as many cells as the header, and return the names of the columns."""
    names: list[str] = []
    last, end = "", 0

    def remembered() -> Iterator[str]:
        # Parsed cells of an empty line and of a pair of quotes are the same.
        nonlocal last
        for line in io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline=""):
            last = line
            yield line

    lines = csv.reader(remembered(), skipinitialspace=True)
    try:
        for cells in lines:
            begin, end = end + 1, lines.line_num
            if len(cells) == len(names) or not last.strip(" \t\r\n"):
                continue  # an empty line is no row
            if names:
                raise _unreadable(path, _ragged(begin, end, len(cells), len(names)))
            names = [name.strip() for name in cells]
            _check_names(names, path)
    except csv.Error as error:
        reason = f"a cell of the row that begins in line {end + 1:,} does not end ({error}). Close its quotation mark"
        raise _unreadable(path, reason) from error
    if not names:
        raise _unreadable(path, "it is empty. Give a line of names, and rows")
    return names


def _ragged(begin: int, end: int, n_cells: int, wanted: int) -> str:
    where = f"line {begin:,} has" if begin == end else f"lines {begin:,} to {end:,}, one row, have"
    reason = f"{where} {n_cells} cell{'s' if n_cells > 1 else ''}, and the line of names has {wanted}"
    if begin < end:
        return f"{reason}. Close the quotation mark that a cell begins with"
    if wanted == 1:
        return f"{reason}. Begin the file with the names of the columns"
    if n_cells < wanted:
        return f"{reason}. Write a missing value as an empty cell, so that every line has as many commas"
    return (
        f"{reason}. Put text that holds a comma into quotation marks, and end no line with a comma too many"
    )


def _read_parquet(path: Path) -> Any:
    pq = need_parquet()
    try:
        _check_names([str(name) for name in pq.read_schema(path).names], path)
        frame = pq.read_table(path).to_pandas().reset_index(drop=True)
    except InvalidInputError:
        raise
    except Exception as error:  # pyarrow raises errors of its own, and the system's
        raise _unreadable(path, error) from error
    frame.columns = [str(name) for name in frame.columns]
    return frame


def need_parquet() -> Any:
    """Module ``pyarrow.parquet``, or an error that says how to install it."""
    try:
        import pyarrow.parquet as pq
    except ModuleNotFoundError:
        raise InvalidInputError(
            "parquet files need pyarrow; install it with `pip install thrifty[parquet]`, or use CSV."
        ) from None
    return pq


def _check_names(names: list[str], path: Path) -> None:
    twice = sorted({name for name in names if names.count(name) > 1 and name})
    if twice:
        raise InvalidInputError(
            f"{name_of(path)} names the column{'s' if len(twice) > 1 else ''} {listed(twice)} more than once. "
            f"Every column needs a name of its own."
        )
    if "" in names:
        raise InvalidInputError(
            f"column {names.index('') + 1} of {name_of(path)} has no name. If it only numbers the rows, write the file "
            f"without it (in pandas: to_csv(..., index=False)); else give it a name."
        )
    for mark, called in ((";", "semicolons"), ("\t", "tabs")):
        if len(names) == 1 and mark in names[0]:
            raise InvalidInputError(
                f"{name_of(path)} seems to separate its cells by {called}. Write it with commas, or as parquet."
            )


def _unreadable(path: Path, why: Exception | str) -> InvalidInputError:
    reason = (getattr(why, "strerror", None) or str(why) or type(why).__name__).strip()
    return InvalidInputError(
        f"{name_of(path)} cannot be read as a table: {' '.join(reason.split())[:300].rstrip('.')}."
    )
