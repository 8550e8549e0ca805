"""What goes wrong while a batch is bought for, whose problem it is, and which calls of the full model are billed.

A failed purchase is the problem of its row, and so is a model that raises, takes too long or answers nonsense: the row
is left behind where it is, and the others go on. Who is to blame is found in this order: the rows that an error names,
the rows that lack a value which the others have, all rows that were asked about together.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.errors import InvalidAnswerError, InvalidInputError, RowsLeftBehindError
from thrifty.prices.billing import check_amount
from thrifty.threads import call_within

__all__ = ["ON_FAILURE", "Ledger", "for_able"]

ON_FAILURE = ("answer", "skip", "raise")
"""What becomes of a row whose purchase fails."""

Result = TypeVar("Result")


class Ledger:
    """What failed for which row, and how often the full model answered about it.

    Parameters
    ----------
    on_failure : {"answer", "skip", "raise"}
        Whether a row is answered with what it holds, goes on without what it lacks, or is the last that is asked for.
    batch_size : int, optional
        Rows per question; None asks about all of them together.
    full_timeout : float, optional
        Seconds that the full model may take to answer one question.

    Attributes
    ----------
    reasons : dict of int to str
        What went wrong first, by row.
    errors : list of Exception
        What was raised.
    full_failed : set of int
        Rows that the full model was asked about in vain, and with which nothing had gone wrong before.
    """

    def __init__(
        self, on_failure: str, batch_size: int | None = None, full_timeout: float | None = None
    ) -> None:
        if on_failure not in ON_FAILURE:
            raise InvalidInputError(
                f"on_failure must be 'answer' (with what the row holds), 'skip' (go on without it) or 'raise'; got "
                f"{on_failure!r}."
            )
        if batch_size is not None and not (isinstance(batch_size, int) and batch_size >= 1):
            raise InvalidInputError(
                f"batch_size must be a whole number of rows, 1 or more; got {batch_size!r}. None asks about all rows "
                f"together."
            )
        if full_timeout is not None:
            check_amount("full_timeout", full_timeout, rule="a number of seconds >= 0, or None to wait")
        self.on_failure = on_failure
        self.batch_size = batch_size
        self.full_timeout = full_timeout
        self.reasons: dict[int, str] = {}
        self.errors: list[Exception] = []
        self.full_failed: set[int] = set()
        self._full_errors: list[Exception] = []
        self._called: list[Ints] = []

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is asked for, because something failed that may not."""
        return self.on_failure == "raise" and bool(self.reasons)

    def note(self, rows: Ints, reason: str, error: Exception | None = None) -> None:
        """Remember why something failed for some rows; the first reason of a row stays."""
        # A model that cannot do without what another failure left out is not to blame.
        new = [row for row in rows.tolist() if row not in self.reasons]
        if any(error is one for one in self._full_errors):
            self.full_failed.update(new)
        self.reasons.update(dict.fromkeys(new, reason))
        if error is not None:
            self.errors.append(error)

    def calls(self, rows: Ints) -> Ints:
        """How often the full model answered about each of some rows."""
        if not self._called:
            return np.zeros(len(rows), dtype=np.intp)
        return np.bincount(np.concatenate(self._called), minlength=int(rows.max(initial=0)) + 1)[rows]

    def parts(self, rows: Ints) -> list[Ints]:
        """The rows, in questions of the size that was asked for."""
        if self.batch_size is None or len(rows) <= self.batch_size:
            return [rows]
        return np.split(rows, np.arange(self.batch_size, len(rows), self.batch_size))

    def ask_full(self, rows: Ints, ask: Callable[[], Floats]) -> Floats:
        """Ask the full model about some rows; an answer is billed, and one that makes no sense is billed too.

        Rows are asked about again where the answers of others made no sense, but only once: a model that answers at
        random would otherwise be paid for ever.
        """
        if self.is_closed:
            self.note(rows, "the full model was not asked, because something else had failed before")
            raise RowsLeftBehindError(rows)
        try:
            outputs = call_within(self.full_timeout, ask, "the full model")
        except InvalidAnswerError as error:
            self._called.append(rows)
            self._full_errors.append(error)
            if self.calls(rows).max() > 1:
                error.rows = []
            raise
        except Exception as error:  # whatever a model of somebody else raises
            self._full_errors.append(error)
            raise
        self._called.append(rows)
        return outputs

    @contextmanager
    def blaming(self, rows: Ints, is_whole: Callable[[], Bools]) -> Iterator[None]:
        """While something is done for some rows: an error leaves those behind that are to blame."""
        try:
            yield
        except RowsLeftBehindError:
            raise
        except Exception as error:  # whatever a model of somebody else raises
            rows_named = getattr(error, "rows", []) if isinstance(error, InvalidInputError) else []
            named = np.intersect1d(rows, np.asarray(rows_named, dtype=np.intp))
            with_holes = rows if len(named) else rows[~is_whole()]
            guilty = named if len(named) else with_holes if len(with_holes) else rows
            self.note(guilty, told(error), error)
            raise RowsLeftBehindError(guilty) from error


def told(error: Exception) -> str:
    """An error in words: those of one of ours, and the type of any other."""
    words = str(error)[:500]
    return words if isinstance(error, InvalidInputError) else f"{type(error).__name__}: {words}"


def for_able(
    reader: Any, rows: Ints, columns: Ints, act: Callable[[Any], Result]
) -> tuple[Bools | None, Result | None]:
    """Do something for the rows that it can be done for; return which those are, None being all, and the result.

    Parameters
    ----------
    reader : Reader
        Where the rows are read from; one without a ledger lets every error pass.
    rows, columns : ndarray of int
        What is read.
    act : callable
        Does it, for the rows at some places of ``rows``.
    """
    ledger: Ledger | None = reader.ledger
    if ledger is None:
        return None, act(slice(None))
    able = np.ones(len(rows), dtype=bool)
    while able.any():
        kept = rows[able]
        try:
            with ledger.blaming(kept, lambda kept=kept: reader.is_whole(kept, columns)):  # type: ignore[misc]
                return (None if able.all() else able), act(np.flatnonzero(able))
        except RowsLeftBehindError as left:
            able[np.isin(rows, left.rows)] = False
    return able, None
