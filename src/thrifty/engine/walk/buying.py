"""Prediction that buys: features from a source (``buy`` and ``start`` of a mixin), and answers of models."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from thrifty.arrays import Ints
from thrifty.engine.purchases.readers import Delivery, Ledger, error_text
from thrifty.engine.purchases.receipts import Receipt
from thrifty.engine.walk.model_session import ModelSession
from thrifty.engine.walk.session import ChainSession
from thrifty.errors import FullModelFailedWarning, InvalidInputError, PurchaseFailedError


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
            Treatment of a row whose purchase fails: it is answered by the last stage that it got to, or it goes on
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
            Prices of each row, as ``by_row`` of ``thrifty.Prices``, instead of those of the fit: a column that
            holds the price of a purchase, or a function of the columns that are free.
        row_key : array-like of shape (n_rows,), optional
            Keys of the rows, which decide between two operating points as they do in a table; the numbers of the rows,
            unless given.

        Raises
        ------
        PurchaseFailedError
            With ``on_failure="raise"``; its ``receipt`` lists what was bought before.
        KeyboardInterrupt
            Where the user interrupts; its ``receipt`` lists the same.
        """
        ledger = Ledger(on_failure, batch_size, full_timeout)
        refuse_prices_beside_cap(self, prices)
        chain = self._served().with_prices(prices)
        reader = chain.buyer(source, ledger, n_rows, row_key)
        rows = np.arange(reader.n_samples)
        keys = rows if row_key is None else np.asarray(row_key)
        receipt = _receipt_of_all(ledger, lambda: replace(chain.receipt(reader, rows), key=keys))
        if ledger.full_failed:
            row = min(ledger.full_failed)
            reason = ledger.reasons[row].rstrip(".")
            warnings.warn(
                f"the full model failed on {len(ledger.full_failed):,} of {len(receipt):,} rows, which were answered "
                f"by the last stage that they got to, if any. Row {row}: {reason}. The receipt says so of each row in "
                f"full_failed and reason.",
                FullModelFailedWarning,
                stacklevel=2,
            )
        return receipt

    def start(self, key: Any = None, *, prices: Mapping[Any, Any] | None = None) -> ChainSession:
        """Start a session of one row: it asks for one purchase after another until the row is answered.

        Parameters
        ----------
        key : int or str, optional
            Key of the row: its key in a table (see ``predict``). Where two operating points are mixed, the key decides
            which of them the row follows, here as in a table. By default it is drawn, and kept as ``session.key``.
        prices : dict, optional
            As in ``buy``.
        """
        refuse_prices_beside_cap(self, prices)
        chain = self._served().with_prices(prices)
        return ChainSession(chain, key)


def refuse_prices_beside_cap(system: Any, prices: Any) -> None:
    """Refuse prices that differ by row where a cap was set by those of the fit."""
    cap = vars(system).get("cap_")
    if prices is not None and cap is not None:
        raise InvalidInputError(
            f"prices that differ by row could make a row spend more than the cap of {cap!r}. Leave them out, or take "
            f"the estimator without a cap."
        )


def _receipt_of_all(ledger: Ledger, buy: Callable[[], Receipt]) -> Receipt:
    """Receipt of what ``buy`` buys; errors of an end before it carry the receipt of everything so far.

    Once the ledger is closed, ``buy`` asks for nothing more and writes the receipt of what was bought.
    """
    try:
        receipt = buy()
    except KeyboardInterrupt as interrupt:
        ledger.interrupted = True
        interrupt.receipt = buy()  # type: ignore[attr-defined]  # an exception holds any attribute
        interrupt.add_note("What was bought before is in the `receipt` of this KeyboardInterrupt.")
        raise
    if ledger.is_closed:
        row, reason = next(iter(ledger.reasons.items()))
        raise PurchaseFailedError(
            f"row {row} failed ({reason}), and nothing more was asked for. What was bought before is in the "
            f"`receipt` of this error; on_failure='answer' or 'skip' goes on with the other rows.",
            receipt,
        ) from (ledger.errors[0] if ledger.errors else None)
    return receipt


# -- answers of models -----------------------------------------------------------------------------


def buy_answers(
    sessions: Sequence[ModelSession],
    models: Mapping[str, Callable[..., Any]],
    names: Sequence[str],
    rows_of: Callable[[Ints], Any],
    ledger: Ledger,
) -> Receipt:
    """Ask models until every session is settled, one question for all rows that need the same one.

    Parameters
    ----------
    sessions : sequence of ModelSession
        The rows.
    models : dict of str to callable
        Functions of rows; where costs are run times, of rows and the seconds that each of them may take.
    names : sequence of str
        Models that may be asked.
    rows_of : callable
        The rows with some numbers, as models read them.
    ledger : Ledger
        Keeps what fails.
    """
    lacking = [name for name in names if not callable(models.get(name))]
    if lacking:
        raise InvalidInputError(
            f"models must have a function of rows for each model that may be asked; {lacking[0]!r} has none."
        )

    def call(name: str, part: Ints) -> Any:
        limits = [wanted.limit for row in part if (wanted := sessions[row].next_purchase) is not None]
        try:
            if limits[0] is not None:
                return models[name](rows_of(part), np.array(limits))
            return models[name](rows_of(part))
        except Exception as error:  # a user's model may raise anything
            return _Failed(error)

    def buy() -> Receipt:
        ahead: dict[str, list[tuple[Ints, Any]]] = {}  # answers of models that were asked at once with others
        while not ledger.is_closed:
            waiting: dict[str, list[int]] = {}
            of_round: dict[str, list[int]] = {}
            for row, session in enumerate(sessions):
                if (wanted := session.next_purchase) is not None:
                    waiting.setdefault(wanted.name, []).append(row)
                    for name in wanted.at_once[1:]:
                        of_round.setdefault(name, []).append(row)
            if not waiting:
                break
            known = {name: np.concatenate([part for part, _ in parts]) for name, parts in ahead.items()}
            jobs = [
                (name, part, group is waiting)
                for group in (waiting, of_round)
                for name, rows in group.items()
                for part in ledger.parts(np.setdiff1d(rows, known.get(name, [])).astype(np.intp))
                if len(part)
            ]
            answers = {name: ahead.pop(name) for name in [*ahead] if name in waiting}
            if of_round:
                with ThreadPoolExecutor(len(jobs) or 1) as pool:
                    called = [*pool.map(lambda job: call(*job[:2]), jobs)]
                for (name, part, is_now), answered in zip(jobs, called, strict=True):
                    (answers if is_now else ahead).setdefault(name, []).append((part, answered))
                jobs = []
            for name, parts in answers.items():
                for part, answered in parts:
                    _give_answers(answered, name, part, sessions, ledger)
            for name, part, _ in jobs:
                if not ledger.is_closed:
                    _give_answers(call(name, part), name, part, sessions, ledger)
        return _receipt_of_answers(sessions, names, ledger)

    return _receipt_of_all(ledger, buy)


@dataclass(frozen=True)
class _Failed:
    """A model that raised an error instead of answering."""

    error: Exception


def _give_answers(
    answered: Any, name: str, numbers: Ints, sessions: Sequence[ModelSession], ledger: Ledger
) -> None:
    """Give the answers of one model about some rows to their sessions; an error is a failure of all of them."""
    if isinstance(answered, _Failed):
        ledger.note(numbers, error_text(answered.error), answered.error)
        for row in numbers:
            sessions[row].fail()
        return
    delivery = answered if isinstance(answered, Delivery) else Delivery(answered)
    billed = delivery.cost
    if isinstance(billed, Mapping):  # by resource
        columns = zip(*billed.values(), strict=True)
        billed = [dict(zip(billed, map(float, line), strict=True)) for line in columns]
    parts = delivery.values, billed, delivery.evidence
    if any(part is not None and len(part) != len(numbers) for part in parts):
        raise InvalidInputError(
            f"{name!r} was asked about {len(numbers)} rows and must return as many answers, costs and evidence."
        )
    for place, row in enumerate(numbers.tolist()):
        answer, cost, evidence = (None if part is None else part[place] for part in parts)
        cost = cost if cost is None or isinstance(cost, Mapping) else float(cost)
        if place in delivery.failed:
            ledger.note(numbers[[place]], str(delivery.failed[place]))
            sessions[row].fail(0.0 if cost is None else cost)
        else:
            sessions[row].give(answer, cost, evidence)


def _receipt_of_answers(sessions: Sequence[ModelSession], names: Sequence[str], ledger: Ledger) -> Receipt:
    answers = np.full(len(sessions), None, dtype=object)
    bought, failed = (np.zeros((len(sessions), len(names)), dtype=bool) for _ in range(2))
    place_of = {name: place for place, name in enumerate(names)}
    for row, session in enumerate(sessions):
        answers[row] = session.answer
        failed[row, [place_of[name] for name in session.failed]] = True
        bought[row, [place_of[name] for name in session.asked]] = True
    value = np.array([session.value if session.model is not None else np.nan for session in sessions])
    reasons = np.full(len(sessions), None, dtype=object)
    reasons[list(ledger.reasons)] = list(ledger.reasons.values())
    return Receipt(
        answers,
        value,
        value[:, None],
        np.array([place_of.get(session.model or "", -1) for session in sessions], dtype=np.intp),
        np.array([session.cost for session in sessions]),
        bought & ~failed,
        failed,
        reasons,
        tuple(names),
        np.zeros(len(sessions), dtype=bool),
        costs=_costs_of_answers(sessions),
    )


def _costs_of_answers(sessions: Sequence[ModelSession]) -> Any:
    """What rows paid in each of several resources, as a data frame; None where there is one."""
    import pandas as pd

    costs = [session.costs for session in sessions if session.costs is not None]
    return pd.DataFrame(costs) if costs else None
