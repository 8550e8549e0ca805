"""Which rows of a proof are trials: rows that the fit has seen are none, and equal rows are one.

A bound counts independent trials. What a model learned from says nothing about new rows, and a row that is given
twenty times is not twenty trials. Rows are told apart by fingerprints of what they hold and of their label; only labels
can part the outcomes of rows that hold the same, since every system answers equal rows alike.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Ints, Words
from thrifty.errors import InvalidInputError

__all__ = ["DUPLICATES", "HELD_OUT", "Trials", "check_duplicates", "trials_of"]

DUPLICATES = ("refuse", "drop", "count")
"""What can become of rows that equal rows of the fit, or each other."""

HELD_OUT = "drop"
"""What becomes of them among rows that a fit itself holds out, which share their label with no equal row of the fit."""

_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Trials:
    """The rows of a proof that count.

    Attributes
    ----------
    kept, first : ndarray of shape (n_rows,)
        Rows that are not left out, and the first of each set of equal ones among them.
    n_seen : int or None
        Rows that equal one of the fit; None where the rows of one of them are not known.
    rows : str or None
        Fingerprint of all rows given, whatever their order.
    """

    kept: Bools
    first: Bools
    n_seen: int | None
    rows: str | None

    @property
    def n_kept(self) -> int:
        """Rows that are not left out."""
        return int(self.kept.sum())

    @property
    def n_trials(self) -> int:
        """Different rows among them."""
        return int(self.first.sum())

    def losses(self, of_kept: Ints, of_first: Ints) -> Ints:
        """Losses among so many trials: the larger share of the two ways to count, rounded up to whole losses."""
        scaled = -(-of_kept * self.n_trials // max(self.n_kept, 1))
        return np.maximum(scaled, of_first)


def trials_of(rows: Words | None, seen: tuple[Words, ...], n_rows: int, duplicates: str) -> Trials:
    """Find the rows that count.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, 2) or None
        Fingerprints of what each row holds, and of that together with its label; None where they are not known.
    seen : tuple of ndarray
        Fingerprints of what the rows of the fit hold; empty where they are not known.
    n_rows : int
        Rows given.
    duplicates : str
        What becomes of rows that equal rows of the fit, or each other: one of ``DUPLICATES``.
    """
    check_duplicates(duplicates)
    everyone = np.ones(n_rows, dtype=bool)
    if rows is None:
        return Trials(everyone, everyone, None, None)
    told = hashlib.sha256(np.sort(rows[:, 1]).tobytes()).hexdigest()[:16]
    is_seen = np.isin(rows[:, 0], np.concatenate(seen)) if seen else ~everyone
    n_seen = int(is_seen.sum()) if seen else None
    if n_seen and duplicates == "refuse":
        places = np.flatnonzero(is_seen)[:_SHOWN].tolist()
        raise InvalidInputError(
            f"{n_seen:,} of the {n_rows:,} rows to prove with hold the same as rows that the system was fitted or "
            f"chosen on (the first are rows {places}, counted from 0), and what was learned from proves nothing. Give "
            f'rows that the fit has not seen, or leave these out with duplicates="drop". Where equal rows are '
            f'independent observations, as in a table with few different ones, duplicates="count" counts them all.'
        )
    if duplicates == "count":
        return Trials(everyone, everyone, n_seen, told)
    kept, first = ~is_seen, np.zeros(n_rows, dtype=bool)
    places = np.flatnonzero(kept)
    first[places[np.unique(rows[places, 1], return_index=True)[1]]] = True
    return Trials(kept, first, n_seen, told)


def check_duplicates(duplicates: Any) -> None:
    """Refuse a word that says nothing about equal rows."""
    if duplicates not in DUPLICATES:
        raise InvalidInputError(
            f"duplicates must be one of {', '.join(DUPLICATES)}; got {duplicates!r}. It says what becomes of rows that "
            f"equal rows of the fit, or each other."
        )
