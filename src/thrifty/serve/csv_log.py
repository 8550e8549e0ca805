"""Logs of the gateway that a later fit reads: a CSV file for each, which is replaced when it is full."""

import csv
import errno
import io
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from thrifty.errors import InvalidInputError

LOG = logging.getLogger("thrifty.serve")


class CsvLog:
    """A log of lines, a CSV file: a full one becomes ``NAME.1``, that one ``NAME.2``, and the tenth is removed.

    A line that cannot be written costs no answer: it is counted, and said in the log of the gateway.

    Parameters
    ----------
    path : Path
        The file.
    columns : sequence of str
        Names of the columns.
    max_bytes : int
        Size of a full one.
    failures : Counter
        Metric of lines that could not be written.
    """

    def __init__(self, path: Path, columns: Sequence[str], max_bytes: int, failures: Any) -> None:
        self._path, self._max_bytes, self._failures = path, max_bytes, failures
        self.columns, self._header = tuple(columns), _line(columns)
        self._file = self._open(path)

    def _open(self, path: Path) -> int:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            start = os.pread(file, len(self._header), 0) or self._header[: os.write(file, self._header)]
        except OSError as error:
            raise InvalidInputError(f"the log {path} must be a file that can be written: {error}.") from error
        if start != self._header:
            os.close(file)
            raise InvalidInputError(
                f"the log {path} must be empty, or begin with {self._header.decode().strip()}; got "
                f"{start.decode(errors='replace')!r}. Name another file."
            )
        return file

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add some lines in one write, so that a process that is killed leaves no half of a line."""
        line = b"".join(map(_line, rows))
        try:
            size = os.fstat(self._file).st_size
            if size + len(line) > max(self._max_bytes, len(self._header) + len(line)):
                self._begin_another()
                size = len(self._header)
            if os.write(self._file, line) < len(line):
                os.ftruncate(self._file, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except (OSError, InvalidInputError) as error:
            self._failures.inc()
            LOG.warning("lines are missing in the log %s: %s", self._path, error)

    def _begin_another(self) -> None:
        new = Path(f"{self._path}.new")  # whole, before anything is moved
        new.unlink(missing_ok=True)
        file = self._open(new)
        for number in range(9, 0, -1):
            former = self._path if number == 1 else Path(f"{self._path}.{number - 1}")
            if former.exists():
                former.replace(f"{self._path}.{number}")
        new.replace(self._path)
        full, self._file = self._file, file
        os.close(full)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _line(cells: Sequence[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode("utf-8", "surrogatepass")
