"""Tables from files: CSV and parquet, with every column named once, or a refusal that says where the file is wrong."""

import csv
import io
import os
import warnings
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from thrifty.exceptions import DataUnavailableError, InvalidInputError

__all__ = ["MISSING", "listed", "read_rows", "read_table", "table_bytes"]

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""Cells of a CSV file that mean "no value"; everything else is text or a number."""

_PARQUET = (".parquet", ".pq")


def read_table(path: str | os.PathLike[str], *, as_text: Collection[str] = ()) -> Any:
    """The table in a CSV or parquet file, as a pandas data frame with distinct column names.

    Parameters
    ----------
    path : path
        ``.parquet`` or ``.pq`` is read as parquet, everything else as comma-separated text with a line of names.
    as_text : collection of str
        Columns whose cells are text even where they look like numbers.
    """
    path = _existing(path)
    frame = _read_parquet(path) if path.suffix.lower() in _PARQUET else _read_csv(path, as_text)
    if not len(frame):
        raise InvalidInputError(f"{path} holds no rows, only the names of its columns.")
    return frame


def read_rows(path: str | os.PathLike[str]) -> list[list[str]]:
    """The cells of a small CSV or parquet file as text, the line of names included where there is one."""
    path = _existing(path)
    if path.suffix.lower() in _PARQUET:
        frame = _read_parquet(path)
        return [list(frame.columns), *([str(cell) for cell in row] for row in frame.itertuples(index=False))]
    try:
        text = path.read_text(encoding="utf-8-sig")
        return [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text)) if any(row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _unreadable(path, error) from error


def table_bytes(frame: Any, path: str | os.PathLike[str]) -> bytes:
    """A data frame as the bytes of a file with this name: parquet, or CSV."""
    if Path(path).suffix.lower() in _PARQUET:
        _need_parquet()
        sink = io.BytesIO()
        frame.to_parquet(sink, index=False)
        return sink.getvalue()
    return str(frame.to_csv(index=False, lineterminator="\n")).encode()


def listed(names: Iterable[Any], most: int = 5) -> str:
    """Names for a sentence, the first few of them."""
    names = list(names)
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _existing(path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    if not path.exists():
        raise DataUnavailableError(f"{path} does not exist. Name a CSV or parquet file.")
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder. Name a CSV or parquet file in it.")
    return path


def _read_csv(path: Path, as_text: Collection[str]) -> Any:
    import pandas as pd

    plain: dict[str, Any] = {"keep_default_na": False, "encoding": "utf-8-sig", "skipinitialspace": True}
    try:
        first = pd.read_csv(path, header=None, nrows=1, dtype=str, **plain)
        names = [str(name).strip() for name in first.iloc[0]]
        _check_names(names, path)
        with warnings.catch_warnings():
            # Lines that are longer than the line of names would lose cells with no more than a warning.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                path,
                header=0,
                names=names,
                index_col=False,
                na_values=list(MISSING),
                dtype=dict.fromkeys((name for name in names if name in as_text), "str"),
                low_memory=False,
                **_exact_numbers(pd),
                **plain,
            )
    except InvalidInputError:
        raise
    except (OSError, ValueError, pd.errors.ParserWarning, pd.errors.ParserError) as error:
        raise _unreadable(path, error) from error


def _exact_numbers(pd: Any) -> dict[str, Any]:
    """Every digit counts: what pandas does by itself from version 3 on, and has a word for before."""
    return {"float_precision": "round_trip"} if int(pd.__version__.split(".")[0]) < 3 else {}


def _read_parquet(path: Path) -> Any:
    pq = _need_parquet()
    try:
        _check_names([str(name) for name in pq.read_schema(path).names], path)
        frame = pq.read_table(path).to_pandas().reset_index(drop=True)
    except InvalidInputError:
        raise
    except Exception as error:  # pyarrow raises errors of its own, and the system's
        raise _unreadable(path, error) from error
    frame.columns = [str(name) for name in frame.columns]
    return frame


def _need_parquet() -> Any:
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
            f"{path} names the column{'s' if len(twice) > 1 else ''} {listed(twice)} more than once. "
            f"Every column needs a name of its own."
        )
    if "" in names:
        raise InvalidInputError(
            f"column {names.index('') + 1} of {path} has no name. If it only numbers the rows, write the file "
            f"without it (in pandas: to_csv(..., index=False)); else give it a name."
        )
    for mark, called in ((";", "semicolons"), ("\t", "tabs")):
        if len(names) == 1 and mark in names[0]:
            raise InvalidInputError(
                f"{path} seems to separate its cells by {called}. Write it with commas, or as parquet."
            )


def _unreadable(path: Path, error: Exception) -> InvalidInputError:
    told = (getattr(error, "strerror", None) or str(error) or type(error).__name__).strip()
    return InvalidInputError(f"{path} cannot be read as a table: {' '.join(told.split())[:200].rstrip('.')}.")
