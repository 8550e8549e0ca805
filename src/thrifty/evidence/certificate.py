"""How much a system may lose against the full model (f0), proved on held-out rows.

The loss of a system against it is ``P(f0 is right and the system is wrong)`` for a new row. It is at least
``accuracy(f0) - accuracy(system)``, so whoever bounds it bounds the lost accuracy too.

Candidates are the points of a frontier, fixed on other rows. On ``n`` held-out rows, drawn independently from where
the system will be used, the number ``k`` of rows that are worse is binomial, with the true loss as its probability.
The exact (Clopper-Pearson) upper bound is the probability at which ``k`` or fewer would be seen in a share
``1 - confidence`` of all draws. A point passes if its bound is at most ``max_loss``.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from thrifty.arrays import Bools, Floats, Ints
from thrifty.evidence.frontier import Frontier, OperatingPoint
from thrifty.evidence.trials import HELD_OUT, Trials, trials_of
from thrifty.exceptions import InvalidInputError
from thrifty.rows import query_keys, row_keys

__all__ = ["Certificate", "certify", "check_hold_out", "check_provable", "rows_needed", "upper_bound"]


# Bound and limit may be the same number and differ in the last digits of an incomplete beta function.
_SLACK = 1e-12


@dataclass(frozen=True)
class Certificate:
    """The cheapest point that was shown to lose at most ``max_loss``, and everything that showed it.

    Attributes
    ----------
    max_loss, confidence : float
        What was to be shown, and how surely: in at most ``1 - confidence`` of all draws of held-out rows does a
        certified point lose more than ``max_loss``.
    n_rows : int
        Held-out rows that were counted: all that were given, without those left out and without repetitions.
    n_losses, bound : int, float
        On how many of them the full model was right and the point wrong, and the exact upper bound from that. What is
        certified is ``max_loss``; the bound of the point at which the search ended is not a sharper certificate.
    n_candidates, n_tested : int
        Points that were fixed in advance, and how many were tested before the first failure (included).
    failed_losses, failed_bound : int, float or None
        Losses and bound of the first point that failed; None if none did.
    point : OperatingPoint or None
        The certified point. None: send every row to the full model, and no system at hand has a gate for that.
    is_fallback : bool
        Whether no candidate passed, so that every row goes to the full model: that loses nothing, and needs no test.
    n_given, n_repeated : int or None
        Rows that were given, and how many of them repeat another one that was counted.
    n_seen : int or None
        Rows that equal one of the fit; None where the rows of the fit are not known.
    duplicates : str or None
        What became of such rows; see ``certify``.
    issued, rows : str or None
        Date of the test, and a fingerprint of the rows that were given, whatever their order.
    unit : str or None
        What was counted, where that is not rows: "queries".
    """

    max_loss: float
    confidence: float
    n_rows: int
    n_losses: int
    bound: float
    n_candidates: int
    n_tested: int
    failed_losses: int | None
    failed_bound: float | None
    point: OperatingPoint | None
    is_fallback: bool
    n_given: int | None = None
    n_repeated: int | None = None
    n_seen: int | None = None
    duplicates: str | None = None
    issued: str | None = None
    rows: str | None = None
    unit: str | None = None

    def __str__(self) -> str:
        return f"{self._claim}. {self._basis}"

    @property
    def _claim(self) -> str:
        limit, surely = _percent(self.max_loss), f"with {_percent(self.confidence)} confidence"
        answers, counted = self.unit or "answers", f"{self.n_rows:,} held-out {self.unit or 'rows'}"
        if self.is_fallback:
            worse = _worse(self.failed_losses or 0, self.failed_bound or 0.0)
            return (
                f"sends every row to the full model, and so loses nothing against it: the safest of "
                f"{self.n_candidates:,} points could not be shown, {surely}, to lose at most {limit} of {answers}, "
                f"on {counted}: {worse}"
            )
        return (
            f"loses at most {limit} of {answers} against the full model, {surely}, on {counted}: "
            f"{_worse(self.n_losses, self.bound)}"
        )

    @property
    def _basis(self) -> str:
        """What the claim rests on, in words: assumptions, what was counted, when and on which rows."""
        told = "This assumes that the rows are independent of each other and of the fit, and drawn as future rows are"
        if self.issued is None:
            return f"{told}; an earlier version issued it, which did not look for rows that equal others"
        parts = [told, *self._counted(), f"issued on {self.issued}"]
        return "; ".join(parts) + ("" if self.rows is None else f" for the rows {self.rows}")

    def _counted(self) -> list[str]:
        """What was counted, where that is not just the rows that were given."""
        if self.rows is None:
            return ["the rows could not be compared with each other or with those of the fit"]
        parts = [] if self.n_seen is not None else ["the rows could not be compared with those of the fit"]
        if self.duplicates == "count":
            return [*parts, "rows that equal others were counted as independent ones, as was asked for"]
        if self.n_seen:
            parts.append(
                f"{self.n_seen:,} of {self.n_given:,} rows given equal rows of the fit and were left out, so it speaks "
                f"of rows unlike those"
            )
        if self.n_repeated:
            parts.append(
                f"{self.n_repeated:,} of {self.n_given:,} rows given repeat others and were not counted"
            )
        return parts or ["none of them equals another one, or one of the fit"]

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for a JSON file."""
        entries = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return entries | {"point": None if self.point is None else self.point.as_dict()}

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> Self:
        """The certificate that ``as_dict`` described."""
        wanted = {entry.name for entry in fields(cls)}
        # The first versions did not tell rows apart.
        entries = {**{entry.name: None for entry in fields(cls) if entry.default is None}, **entries}
        if set(entries) != wanted:
            differing = sorted(wanted ^ set(entries))
            raise InvalidInputError(
                f"a certificate has the entries {sorted(wanted)}; missing or unknown: {differing}."
            )
        point = None if entries["point"] is None else OperatingPoint.from_dict(entries["point"])
        return cls(**{**entries, "point": point})


def certify(
    frontier: Frontier, *, max_loss: float, confidence: float = 0.95, duplicates: str = "refuse"
) -> Certificate:
    """The cheapest point of a frontier that loses at most ``max_loss`` against the full model, by exact tests.

    Parameters
    ----------
    frontier : Frontier
        Points chosen on some rows and scored on others: ``Frontier.from_evidence(chosen_on, against_full=True)
        .on(held_out)``. Nothing may have been fitted, tuned or chosen on the held-out rows. Every row counts
        once; there are no sample weights, with which the number of losses would not be binomial.
    max_loss : float
        Share of answers, between 0 and 1, on which the system may be wrong where the full model is right.
    confidence : float, default=0.95
        Probability with which the certificate must hold.
    duplicates : {"refuse", "drop", "count"}, default="refuse"
        Rows that hold the same as a row that the system was fitted on, or that its points were chosen on, are refused,
        or left out ("drop"). Rows that equal each other, label included, count as one in both cases. "count" takes
        equal rows for independent observations, which they are in a table with few different rows that is drawn afresh.

    Returns
    -------
    Certificate
        About the cheapest point that passed, or about "every row to the full model", which always does.

    Notes
    -----
    Points are tested one after the other, from the dearest (which sends on the most) to the cheapest, each at the
    full level ``alpha = 1 - confidence``; the search ends at the first failure, and the last point that passed is
    certified. No correction for the number of tests is needed:

    Points and order do not depend on the held-out rows. If no point loses more than ``max_loss`` there is nothing
    to get wrong. Otherwise let j be the first point in the order that does, with true loss p > max_loss. To certify j
    or any point behind it the search must get past j, so *every* wrong certificate requires that j passes. It passes if
    ``k <= c``, with c the largest number for which ``P(Bin(n, max_loss) <= c) <= alpha`` (which is what "the
    bound is at most max_loss" says). Since the binomial distribution grows with its probability,
    ``P(Bin(n, p) <= c) <= P(Bin(n, max_loss) <= c) <= alpha``. So a wrong certificate has probability at most alpha,
    whatever the other points are and however the tests depend on each other.

    Among n rows let d be different, label included, on which a point loses k_d times, and k times on all n. Tested are
    ``max(k_d, ceil(d k / n))`` losses in d trials, and k in n; a point passes if both bounds do. Nobody can tell from
    a table why rows are equal, and the level holds for each of the reasons. Were all rows different before some were
    repeated, however often, the d rows are the draw, and k_d is binomial. Are equal rows independent draws, k is
    binomial. Were such draws all repeated alike, k / n is the share of losses in the draw, which has at least
    d rows, and fewer trials with no smaller share have a larger bound. Without equal rows all three are one test.

    Leaving rows out that equal rows of the fit keeps the level for rows that do not: whether a row is left out depends
    on what it holds, so that the others are independent draws of such rows. The certificate says so.
    """
    _check_wish(max_loss, confidence)
    if not frontier.held_out:
        raise InvalidInputError(
            "a certificate needs rows on which nothing was chosen; this frontier is scored on the rows that it was "
            "chosen on. Give frontier.on(evidence of held-out rows)."
        )
    rows = next((one.rows for one in frontier.evidence if one.rows is not None), None)
    trials = trials_of(rows, frontier.seen, frontier.n_rows, duplicates)
    n_rows = trials.n_trials
    check_provable(n_rows, max_loss, confidence, n_given=frontier.n_rows)
    order = np.argsort(-frontier.chosen.cost, kind="stable")
    losses, bounds = _losses_and_bounds(frontier, trials, confidence)
    losses, bounds = losses[order], bounds[order]
    failed = np.flatnonzero(~_passes(bounds, max_loss))
    n_passed = int(failed[0]) if failed.size else len(order)
    last = n_passed - 1
    return Certificate(
        max_loss=float(max_loss),
        confidence=float(confidence),
        n_rows=n_rows,
        n_losses=int(losses[last]) if n_passed else 0,
        bound=float(bounds[last]) if n_passed else 0.0,
        n_candidates=len(order),
        n_tested=min(n_passed + 1, len(order)),
        failed_losses=int(losses[n_passed]) if failed.size else None,
        failed_bound=float(bounds[n_passed]) if failed.size else None,
        point=frontier[int(order[last])] if n_passed else _everything_to_full(frontier),
        is_fallback=n_passed == 0,
        n_given=frontier.n_rows,
        n_repeated=None if rows is None else trials.n_kept - n_rows,
        n_seen=trials.n_seen,
        duplicates=duplicates,
        issued=dt.date.today().isoformat(),
        rows=trials.rows,
        unit=next((one.unit for one in frontier.evidence), None),
    )


def _losses_and_bounds(frontier: Frontier, trials: Trials, confidence: float) -> tuple[Ints, Floats]:
    """Losses of each point among the trials, and their upper bounds, whatever made rows equal."""
    n_rows, n_kept = trials.n_trials, trials.n_kept
    if n_rows == frontier.n_rows:
        losses = frontier.losses_against_full()
        return losses, upper_bound(losses, n_rows, confidence)
    of_kept, of_first = map(frontier.losses_against_full, (trials.kept, trials.first))
    losses = trials.losses(of_kept, of_first)
    bounds = np.maximum(upper_bound(losses, n_rows, confidence), upper_bound(of_kept, n_kept, confidence))
    return losses, bounds


def check_provable(n_rows: int, max_loss: Any, confidence: Any, *, n_given: int | None = None) -> None:
    """Refuse a loss that so many held-out rows cannot show, not even without a single one that is worse."""
    _check_wish(max_loss, confidence)
    least = upper_bound(0, n_rows, confidence)
    if not _passes(least, max_loss):
        fewer = f" (of {n_given:,}: rows that equal others, or rows of the fit, do not count)"
        raise InvalidInputError(
            f"{n_rows:,} held-out rows{'' if n_given in (None, n_rows) else fewer} "
            f"cannot show a loss of at most {_percent(max_loss)} with {_percent(confidence)} "
            f"confidence, not even without a single loss: it takes {rows_needed(max_loss, confidence):,} rows. "
            f"Give more rows to prove with, or allow a loss of at least {_percent(float(least))}."
        )


def check_hold_out(
    X: Any, strata: Ints, is_proof: Bools, max_loss: Any, confidence: Any, query: Ints | None = None
) -> None:
    """Refuse, before anything is fitted, a loss that the rows, or queries, held out of a fit cannot show."""
    keys = row_keys(X, strata)
    proof, learned = (
        query_keys(keys[part], None if query is None else query[part]) for part in (is_proof, ~is_proof)
    )
    n_rows = trials_of(proof, (learned[:, 0],), len(proof), HELD_OUT).n_trials
    check_provable(n_rows, max_loss, confidence, n_given=len(proof))


def upper_bound(n_losses: ArrayLike, n_rows: int, confidence: float) -> Floats:
    """Exact one-sided upper bound: the p for which ``P(Bin(n_rows, p) <= n_losses) = 1 - confidence``."""
    losses = np.asarray(n_losses, dtype=np.float64)
    bound: Floats = np.where(
        losses >= n_rows, 1.0, betaincinv(losses + 1.0, np.maximum(n_rows - losses, 1.0), confidence)
    )
    return bound


def rows_needed(max_loss: float, confidence: float = 0.95) -> int:
    """Fewest rows that can show ``max_loss`` at all: the smallest n with ``(1 - max_loss)^n <= 1 - confidence``."""
    _check_wish(max_loss, confidence)
    n_rows = max(1, int(np.ceil(np.log1p(-confidence) / np.log1p(-max_loss) * (1 - 1e-9))))
    while not _passes(upper_bound(0, n_rows, confidence), max_loss):
        n_rows += 1
    return n_rows


def _check_wish(max_loss: float, confidence: float) -> None:
    for name, value, meaning in (
        ("max_loss", max_loss, "It is the share of answers that may get worse; none at all cannot be shown."),
        ("confidence", confidence, "It is the probability with which the certificate must hold."),
    ):
        if not (isinstance(value, float | int | np.number) and 0 < value < 1):
            raise InvalidInputError(f"{name} must lie strictly between 0 and 1; got {value!r}. {meaning}")


def _passes(bound: Floats, max_loss: float) -> NDArray[np.bool_]:
    return np.asarray(bound <= max_loss * (1 + _SLACK))


def _everything_to_full(frontier: Frontier) -> OperatingPoint | None:
    """Any system with its gates wide open, if the full model's own answer stands behind them."""
    for place, one in enumerate(frontier.evidence):
        if one.sends_to_full and one.points is None:
            means = one.averages(np.array([[-np.inf]])).under()
            cost, score = float(means.cost[0]), float(means.score[0])
            wide = float("-inf")
            return OperatingPoint(
                cost, score, 1.0, wide, place, one.features, dict(one.settings), cost, score, (wide,)
            )
    return None


def _worse(n_losses: int, bound: float) -> str:
    return f"{n_losses:,} of them {'was' if n_losses == 1 else 'were'} worse (bound {_percent(bound)})"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
