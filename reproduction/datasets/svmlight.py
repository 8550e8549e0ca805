"""Ranking data as its owners publish it: one line per document, ``grade qid:query feature:value ...``.

scikit-learn reads the numbers. It does not say in which line something is wrong, and it takes what a ranking
must not take: a line without a query, a query that comes back after another one. So the heads of all lines are
looked at first, and the bodies only where scikit-learn stumbles.
"""

import gzip
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from sklearn.datasets import load_svmlight_file

from thrifty.arrays import Ints
from thrifty.errors import DataUnavailableError, InvalidInputError

__all__ = ["RankingTable", "load_svmlight_ranking"]

_HEAD = re.compile(rb"(\S+)\s+qid:(\S+)(?=\s|$)")


@dataclass(frozen=True)
class RankingTable:
    """Documents of queries, with their features and grades, as a file lists them.

    Attributes
    ----------
    X : CSR array of shape (n_documents, n_features)
        Features of documents; what a line leaves out is zero, as the format says. Column j is the file's feature j + 1.
    y : ndarray of shape (n_documents,)
        Grades of relevance: 0, 1, 2 and so on.
    qid : ndarray of shape (n_documents,)
        Query of each document; documents of one query stand together.
    """

    X: Any
    y: Ints
    qid: Ints


def load_svmlight_ranking(path: str | os.PathLike[str], n_features: int | None = None) -> RankingTable:
    """Read a file of graded documents, features numbered from 1; ``.gz`` is unpacked on the way.

    Parameters
    ----------
    path : path
        The file to read. A line that cannot be read, that has no query or a negative grade, or whose query has been
        left before, is refused by its number.
    n_features : int, optional
        Number of columns; without it, the largest feature that occurs.
    """
    path = Path(path)
    if not path.is_file():
        raise DataUnavailableError(f"{path} does not exist. Name an svmlight file with query ids.")
    grades, queries = _read_heads(path)
    try:
        with _opened(path) as file:
            X, _, qid = load_svmlight_file(file, n_features=n_features, query_id=True, zero_based=False)
    except ValueError as error:
        raise InvalidInputError(_what_is_wrong(path, n_features, error)) from error
    if not np.isfinite(X.data).all():
        raise InvalidInputError(_what_is_wrong(path, n_features, "a value is not finite"))
    if len(qid) != len(queries) or X.shape[0] != len(grades):
        raise InvalidInputError(f"{path}: {len(grades)} lines were expected, {X.shape[0]} were read.")
    return RankingTable(X, np.array(grades, dtype=np.intp), np.array(queries, dtype=np.intp))


def _opened(path: Path) -> IO[bytes]:
    # typeshed has no class for both; they read alike.
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines without their comments; empty ones are left out."""
    try:
        with _opened(path) as file:
            for number, line in enumerate(file, start=1):
                content = line.partition(b"#")[0].strip()
                if content:
                    yield number, content
    except (EOFError, gzip.BadGzipFile) as error:
        raise InvalidInputError(
            f"{path} is a damaged or truncated gzip file ({error}). Download it again."
        ) from error


def _read_heads(path: Path) -> tuple[list[int], list[int]]:
    """Grade and query of every line; a line that breaks a rule is refused."""
    grades: list[int] = []
    queries: list[int] = []
    left_at: dict[int, int] = {}
    for number, line in _lines(path):
        grade, query = _head(path, number, line)
        if queries and query != queries[-1]:
            left_at[queries[-1]] = number
            if query in left_at:
                raise InvalidInputError(
                    f"{path}, line {number}: query {query} comes back after it was left in line {left_at[query]}. "
                    f"All documents of a query must stand together; sort the file by query."
                )
        grades.append(grade)
        queries.append(query)
    if not grades:
        raise InvalidInputError(
            f"{path} holds no documents. It must have one line per document: `grade qid:query feature:value ...`."
        )
    return grades, queries


def _head(path: Path, number: int, line: bytes) -> tuple[int, int]:
    found = _HEAD.match(line)
    if found is None:
        raise InvalidInputError(
            f"{path}, line {number}: a line must begin with `grade qid:query`; got {_shown(line)}."
        )
    try:
        grade, query = float(found[1]), int(found[2])
    except ValueError:
        raise InvalidInputError(
            f"{path}, line {number}: grade and query must be whole numbers; got {_shown(line)}."
        ) from None
    if not (grade >= 0 and grade.is_integer()):
        raise InvalidInputError(
            f"{path}, line {number}: a grade must be a whole number of at least 0; got {_shown(found[1])}."
        )
    return int(grade), query


def _what_is_wrong(path: Path, n_features: int | None, error: object) -> str:
    """The first line that cannot be read; only asked once it is known that there is one."""
    most = math.inf if n_features is None else n_features
    for number, line in _lines(path):
        last = 0
        for cell in line.split()[2:]:
            name, colon, value = cell.partition(b":")
            rule = _broken_rule(name, colon, value, last, most)
            if rule:
                return (
                    f"{path}, line {number}: {rule}; got {_shown(cell)}. The line may be cut off or damaged."
                )
            last = int(name)
    return f"{path} cannot be read ({error})."


def _broken_rule(name: bytes, colon: bytes, value: bytes, last: int, most: float) -> str:
    if not (colon and name.isdigit()):
        return "a cell must read `feature:value`"
    try:
        if not math.isfinite(float(value)):
            return "a value must be finite"
    except ValueError:
        return "a value must be a number"
    if int(name) <= last:
        return f"features must be numbered from 1 and rise along a line (the one before is {last})"
    return f"features must be numbered up to {most:g}" if int(name) > most else ""


def _shown(content: bytes) -> str:
    text = content.decode("ascii", errors="backslashreplace")
    return repr(text if len(text) <= 40 else text[:40] + "...")
