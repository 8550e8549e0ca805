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
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Ints
from thrifty.errors import InvalidInputError
from thrifty.evidence.certificate import Certificate
from thrifty.evidence.claims import (
    Claim,
    Found,
    MeanExcess,
    ShareLost,
    SharesByClass,
    check_max_loss,
    check_provable,
)
from thrifty.evidence.frontier import Frontier
from thrifty.evidence.operating_point import OperatingPoint
from thrifty.evidence.trials import HELD_OUT, Trials, trials_of
from thrifty.rows import content_keys, query_keys

__all__ = ["MEASURES", "certify", "check_hold_out"]

MEASURES = ("share", "mean")
"""What can be certified: the share of rows that are worse than with the full model, or the mean excess of a loss."""


def certify(
    frontier: Frontier,
    *,
    max_loss: float | Mapping[Any, float],
    confidence: float = 0.95,
    duplicates: str = "refuse",
    measure: str = "share",
    largest: float | None = None,
) -> Certificate:
    """The cheapest point of a frontier that loses at most ``max_loss`` against the full model, by exact tests.

    Parameters
    ----------
    frontier : Frontier
        Points chosen on some rows and scored on others: ``Frontier.from_evidence(chosen_on, against_full=True)
        .on(held_out)``. Nothing may have been fitted, tuned or chosen on the held-out rows. Every row counts
        once; there are no sample weights, with which the number of losses would not be binomial.
    max_loss : float, or dict of label to float
        Share of answers, between 0 and 1, on which the system may be wrong where the full model is right; by label, the
        share of the rows of that class, so that a rare one cannot be given up in silence. Classes that are left out
        have no limit; ``dict.fromkeys(classes, 0.02)`` limits all, and so all rows together. With ``measure="mean"``
        by how much the mean loss may exceed the full model's, as a share of ``largest``.
    confidence : float, default=0.95
        Probability with which the certificate must hold.
    duplicates : {"refuse", "drop", "count"}, default="refuse"
        Rows that hold the same as a row that the system was fitted on, or that its points were chosen on, are refused,
        or left out ("drop"). Rows that equal each other, label included, count as one in both cases. "count" takes
        equal rows for independent observations, which they are in a table with few different rows that is drawn afresh.
    measure : {"share", "mean"}, default="share"
        What is certified: the share of rows that are worse than with the full model, or the mean excess of the loss: of
        errors of numbers, of the logarithmic or Brier loss, of the price of mistakes. A mean needs a frontier that was
        made without ``against_full``.
    largest : float, optional
        Loss at which losses are clipped before the mean is taken, chosen before the rows are looked at. Squared errors
        of numbers are in units of the variance of the targets of the fit, absolute ones in units of their mean distance
        from the median. None is 4 for numbers, and the largest loss there is for classes.

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
    whatever the other points are and however the tests depend on each other. Where classes have limits of their own, j
    is the first point that breaks one of them, and to get past j the test of that class must err: the limits of all
    classes hold together with the same confidence. Means are tested by betting; see ``thrifty.evidence.bounds``.

    Among n rows let d be different, label included, on which a point loses k_d times, and k times on all n. Tested are
    ``max(k_d, ceil(d k / n))`` losses in d trials, and k in n; a point passes if both bounds do. Nobody can tell from
    a table why rows are equal, and the level holds for each of the reasons. Were all rows different before some were
    repeated, however often, the d rows are the draw, and k_d is binomial. Are equal rows independent draws, k is
    binomial. Were such draws all repeated alike, k / n is the share of losses in the draw, which has at least
    d rows, and fewer trials with no smaller share have a larger bound. Without equal rows all three are one test.

    Leaving rows out that equal rows of the fit keeps the level for rows that do not: whether a row is left out depends
    on what it holds, so that the others are independent draws of such rows. The certificate says so.
    """
    check_max_loss(max_loss)
    _check_confidence(confidence)
    if not frontier.held_out:
        raise InvalidInputError(
            "a certificate needs rows on which nothing was chosen; this frontier is scored on the rows that it was "
            "chosen on. Give frontier.on(evidence of held-out rows)."
        )
    largest = _largest(frontier, max_loss, measure, largest)
    rows = next((one.rows for one in frontier.evidence if one.rows is not None), None)
    trials = trials_of(rows, frontier.seen, frontier.n_rows, duplicates)
    claim = _claim_of(frontier, trials, max_loss, confidence, largest)
    order = np.argsort(-frontier.chosen.cost, kind="stable")
    failed = np.flatnonzero(~claim.passed[order])
    n_passed = int(failed[0]) if failed.size else len(order)
    last = int(order[n_passed - 1])
    shown = claim.found(last) if n_passed else Found(0, 0.0)
    missed = claim.found(int(order[n_passed])) if failed.size else None
    told = shown if n_passed or missed is None else missed
    task = frontier.evidence[0].task
    return Certificate(
        max_loss=float(max(max_loss.values()) if isinstance(max_loss, Mapping) else max_loss),
        confidence=float(confidence),
        n_rows=trials.n_trials,
        n_losses=shown.n_losses,
        bound=shown.bound,
        n_candidates=len(order),
        n_tested=min(n_passed + 1, len(order)),
        failed_losses=None if missed is None else missed.n_losses,
        failed_bound=None if missed is None else missed.bound,
        point=frontier[last] if n_passed else _everything_to_full(frontier),
        is_fallback=n_passed == 0,
        n_given=frontier.n_rows,
        n_repeated=None if rows is None else trials.n_kept - trials.n_trials,
        n_seen=trials.n_seen,
        duplicates=duplicates,
        issued=dt.date.today().isoformat(),
        rows=trials.rows,
        by_class=told.by_class,
        excess=told.excess,
        largest=largest,
        loss=None if task is None else task.lost_in_words,
        tolerance=frontier.evidence[0].tolerance or None,
        unit=next((one.unit for one in frontier.evidence), None),
    )


def _claim_of(
    frontier: Frontier,
    trials: Trials,
    max_loss: float | Mapping[Any, float],
    confidence: float,
    largest: float | None,
) -> Claim:
    """The tests of every point, or a refusal where so few rows can show nothing."""
    if isinstance(max_loss, Mapping):
        return SharesByClass.of(frontier, trials, max_loss, confidence)
    of_mean = largest is not None
    unit = frontier.evidence[0].unit or "rows"
    check_provable(trials.n_trials, max_loss, confidence, n_given=frontier.n_rows, of_mean=of_mean, unit=unit)
    if largest is not None:
        return MeanExcess(frontier, trials, float(max_loss), confidence, largest)
    return ShareLost.of(frontier, trials, max_loss, confidence)


def _largest(frontier: Frontier, max_loss: Any, measure: str, largest: Any) -> float | None:
    """The loss at which losses are clipped, where a mean is asked for; None where rows are counted."""
    if measure not in MEASURES:
        raise InvalidInputError(f"measure must be one of {', '.join(MEASURES)}; got {measure!r}.")
    if measure == "share":
        if largest is not None:
            raise InvalidInputError(
                f'largest={largest!r} clips losses before their mean is taken, and measure="share" counts rows. Leave '
                f'it out, or ask for measure="mean".'
            )
        return None
    if isinstance(max_loss, Mapping):
        raise InvalidInputError('max_loss by class counts rows; with measure="mean" it must be one number.')
    if frontier.compares_with_full:
        raise InvalidInputError(
            'measure="mean" needs to know what answers lose, and this frontier knows only which ones are worse. Make '
            "it with Frontier.from_evidence(evidence), without against_full."
        )
    if largest is None:
        task = frontier.evidence[0].task
        return 1.0 if task is None else float(task.largest_loss)
    if isinstance(largest, bool) or not (
        isinstance(largest, float | int | np.number) and 0 < largest < np.inf
    ):
        raise InvalidInputError(
            f"largest must be a finite number above 0; got {largest!r}. Losses are clipped there."
        )
    return float(largest)


def check_hold_out(
    X: Any,
    strata: Ints,
    is_proof: Bools,
    max_loss: Any,
    confidence: Any,
    classes: Any = (),
    query: Ints | None = None,
) -> None:
    """Refuse, before anything is fitted, a loss that the rows, or queries, held out of a fit cannot show."""
    check_max_loss(max_loss, classes if isinstance(max_loss, Mapping) else None)
    _check_confidence(confidence)
    keys = content_keys(X, strata)
    proof, learned = (
        query_keys(keys[part], None if query is None else query[part]) for part in (is_proof, ~is_proof)
    )
    first = trials_of(proof, (learned[:, 0],), len(proof), HELD_OUT).first
    if not isinstance(max_loss, Mapping):
        unit = "rows" if query is None else "queries"
        check_provable(int(first.sum()), max_loss, confidence, n_given=len(proof), unit=unit)
        return
    for label, limit in max_loss.items():
        own = strata[is_proof] == list(classes).index(label)
        check_provable(int(first[own].sum()), limit, confidence, n_given=int(own.sum()), label=label)


def _check_confidence(confidence: Any) -> None:
    if not (isinstance(confidence, float | int | np.number) and 0 < confidence < 1):
        raise InvalidInputError(
            f"confidence must lie strictly between 0 and 1; got {confidence!r}. It is the probability with which the "
            f"certificate must hold."
        )


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
