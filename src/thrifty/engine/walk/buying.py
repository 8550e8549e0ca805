"""Mixin with ``buy`` and ``start``: prediction that buys features from a source, or one purchase after another."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from thrifty.engine.purchases.readers import Ledger
from thrifty.engine.purchases.receipts import Receipt
from thrifty.engine.walk.session import Session
from thrifty.errors import FullModelFailedWarning, PurchaseFailedError

__all__ = ["BuyingMixin"]


class BuyingMixin:
    """Mixin of estimators and chains that buy from sources: ``buy`` and ``start``."""

    def _served(self) -> Any:
        """The chain that buys."""
        raise NotImplementedError

    def buy(
        self,
        source: Any,
        *,
        on_failure: str = "answer",
        n_rows: int | None = None,
        batch_size: int | None = None,
        full_timeout: float | None = None,
        prices: Mapping[Any, Any] | None = None,
        row_key: Any = None,
    ) -> Receipt:
        """Predict every row of a source; return a receipt of what was bought, its cost and what failed.

        Parameters
        ----------
        source : FeatureSource, mapping or callable
            Has ``__len__`` and ``fetch(rows, columns)``, ``fetch(rows, names)`` or ``fetch(rows, group)``; or is a
            mapping from columns, or tuples of columns that come in one purchase, to values or to functions of rows; or
            a function of rows and names of columns. A source that can tell which rows failed answers with a
            ``thrifty.Delivery``; one that raises has failed for all the rows that it was asked about.
        on_failure : {"answer", "skip", "raise"}, default="answer"
            What becomes of a row whose purchase fails: it is answered by the last stage that it got to, or it goes on
            with the columns missing (and is answered by the last stage that could do without), or nothing more is
            asked for and ``PurchaseFailedError`` carries the receipt of everything so far. A full model that raises,
            takes too long or answers nonsense is a failure too, of the rows that it was asked about.
        n_rows : int, optional
            Rows to ask about, where the source does not say how many it has.
        batch_size : int, optional
            Most rows in one question, of the source and of the full model; None asks once per stage.
        full_timeout : float, optional
            Seconds that the full model may take for one question; None waits.
        prices : dict, optional
            Prices of each row, as ``by_row`` of ``thrifty.Prices``, in the place of those of the fit: a column that
            holds the price of a purchase, or a function of the columns that are free.
        row_key : array-like of shape (n_rows,), optional
            Keys of the rows, which decide between two operating points as they do in a table; the numbers of the rows,
            unless given.

        Raises
        ------
        PurchaseFailedError
            With ``on_failure="raise"``; its ``receipt`` says what was bought before.
        KeyboardInterrupt
            Where the user interrupts; its ``receipt`` says the same.
        """
        ledger = Ledger(on_failure, batch_size, full_timeout)
        chain = self._served().with_prices(prices)
        reader = chain.buyer(source, ledger, n_rows, row_key)
        rows = np.arange(reader.n_samples)
        try:
            receipt: Receipt = chain.receipt(reader, rows)
        except KeyboardInterrupt as interrupt:
            ledger.interrupted = True
            interrupt.receipt = chain.receipt(reader, rows)  # type: ignore[attr-defined]  # an exception holds any attribute
            interrupt.add_note("What was bought before is in the `receipt` of this KeyboardInterrupt.")
            raise
        if ledger.is_closed:
            row, reason = next(iter(ledger.reasons.items()))
            raise PurchaseFailedError(
                f"row {row} failed ({reason}), and nothing more was asked for. What was bought before is in the "
                f"`receipt` of this error; on_failure='answer' or 'skip' goes on with the other rows.",
                receipt,
            ) from (ledger.errors[0] if ledger.errors else None)
        _warn_of_full(ledger, len(receipt))
        return receipt

    def start(self, key: Any = None, *, prices: Mapping[Any, Any] | None = None) -> Session:
        """Start a session of one row: it asks for one purchase after another until the row is answered.

        Parameters
        ----------
        key : int or str, optional
            Key of the row: its key in a table (see ``predict``). Where two operating points are mixed, the key decides
            which of them the row follows, here as in a table. Unless given, one is drawn, which ``session.key`` tells.
        prices : dict, optional
            As in ``buy``.
        """
        chain = self._served().with_prices(prices)
        return Session(chain, key)


def _warn_of_full(ledger: Ledger, n_rows: int) -> None:
    if ledger.full_failed:
        row = min(ledger.full_failed)
        reason = ledger.reasons[row].rstrip(".")
        warnings.warn(
            f"the full model failed on {len(ledger.full_failed):,} of {n_rows:,} rows, which were answered by the last "
            f"stage that they got to, if any. Row {row}: {reason}. The receipt says so of each row in full_failed and "
            f"reason.",
            FullModelFailedWarning,
            stacklevel=3,
        )
