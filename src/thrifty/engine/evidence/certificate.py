"""Certificates: upper confidence bounds of the loss of a system against the full model (f0), from held-out rows.

The risk of a system is ``P(f0 is right and the system is wrong)`` for a new row. It is at least
``accuracy(f0) - accuracy(system)``, so a bound of it also bounds the loss of accuracy.

Candidates are the points of a frontier, fixed on other rows. On ``n`` held-out rows, drawn independently from where
the system will be used, the number ``k`` of rows that are worse is binomial, with the risk as its probability.
The exact (Clopper-Pearson) upper bound is the probability at which ``k`` or fewer would be seen in a share
``1 - confidence`` of all draws. A point passes if its bound is at most ``max_loss``. Points are tested in a fixed
sequence, which controls the family-wise error without a correction; ``certify`` has the argument.
"""

import datetime as dt
import operator
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from typing import Any, Self

import numpy as np

from thrifty.arrays import Bools, Floats, Ints, Words
from thrifty.engine.evidence.evidence import Evidence, Means, means_at
from thrifty.engine.evidence.frontier import Frontier, OperatingPoint
from thrifty.engine.evidence.hypothesis_tests import (
    HELD_OUT,
    ClassLoss,
    LossCounts,
    Sampled,
    TestResult,
    Tests,
    Trials,
    betting_tests,
    binomial_tests,
    check_confidence,
    check_enough_rows,
    check_max_loss,
    digest_of,
    excess_at_points,
    rows_by_class,
    sampled_tests,
    trials_of,
)
from thrifty.engine.prices.billing import amount_text
from thrifty.errors import InvalidInputError, InvalidParameterError
from thrifty.rows import content_keys, query_keys

MEASURES = ("share", "mean")
"""Risks that can be certified: the share of rows that are worse than with the full model, or the mean excess loss."""


_MAX_SENSITIVITY, _SENSITIVITY_HALVINGS = 100.0, 10
"""Largest factor that is tried, and halvings of the logarithm of factors up to it."""


def certify(
    frontier: Frontier,
    *,
    max_loss: float | Mapping[Any, float],
    confidence: float = 0.95,
    duplicates: str = "refuse",
    measure: str = "share",
    largest: float | None = None,
) -> "Certificate":
    """Certify the cheapest point of a frontier whose risk against the full model is at most ``max_loss``.

    For frontiers of logged answers and of several systems; one fitted estimator is certified by its ``certified``.

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
        Certified risk: the share of rows that are worse than with the full model, or the mean excess of the loss: of
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
    bound is at most max_loss" means). Since the binomial distribution grows with its probability,
    ``P(Bin(n, p) <= c) <= P(Bin(n, max_loss) <= c) <= alpha``. So a wrong certificate has probability at most alpha,
    for any other points and any dependence between the tests (fixed-sequence testing: Maurer, Hothorn and Lehmacher
    1995; Angelopoulos et al. 2021, Learn then Test). So a path may be as fine as one likes. Where classes have
    limits of their own, j is the first point that breaks one of them, and to get past j the test of that class must
    err: the limits of all classes hold together with the same confidence. Means are tested by betting; see
    ``thrifty.engine.evidence.hypothesis_tests``.

    Among n rows let d be different, label included, on which a point loses k_d times, and k times on all n. Tested are
    ``max(k_d, ceil(d k / n))`` losses in d trials, and k in n; a point passes if both bounds do. A table does not tell
    why its rows are equal, and the level holds for each possible reason. If all rows were different before some were
    repeated, the d rows are the sample, and k_d is binomial. If equal rows are independent draws, k is binomial. If
    such draws were all repeated equally often, k / n is the share of losses in the sample, which has at least d rows,
    and fewer trials with no smaller share have a larger bound. Without equal rows all three are one test.

    Leaving rows out that equal rows of the fit keeps the level for rows that do not: whether a row is left out depends
    on what it holds, so that the others are independent draws of such rows. The certificate says so.
    """
    check_max_loss(max_loss)
    check_confidence(confidence)
    if not frontier.held_out:
        raise InvalidInputError(
            "a certificate needs rows on which nothing was chosen; this frontier is scored on the rows that it was "
            "chosen on. Give frontier.on(evidence of held-out rows)."
        )
    largest = _largest(frontier, max_loss, measure, largest)
    rows = next((system.rows for system in frontier.evidence if system.rows is not None), None)
    trials = trials_of(rows, frontier.seen, frontier.n_rows, duplicates)
    counts = CountedRows.of(frontier, trials, max_loss if largest is None else None)
    if largest is None or isinstance(max_loss, Mapping):
        return certify_counts(frontier, counts, max_loss, confidence, duplicates)
    check_enough_rows(counts.n_trials, max_loss, confidence, n_given=counts.n_rows, of_mean=True)
    tests = betting_tests(frontier, trials, max_loss, confidence, largest)
    return _certificate(frontier, counts, tests, max_loss, confidence, duplicates, largest)


def certify_counts(
    frontier: Frontier,
    counts: "CountedRows",
    max_loss: float | Mapping[Any, float],
    confidence: float,
    duplicates: str = HELD_OUT,
) -> "Certificate":
    """Certificate of the points of a frontier from counts of held-out rows, which may be those of many partitions."""
    unit = frontier.evidence[0].unit_name
    for losses in counts.losses:
        limit = max_loss[losses.label] if isinstance(max_loss, Mapping) else max_loss
        check_enough_rows(
            losses.n_trials, limit, confidence, n_given=losses.n_given, label=losses.label, unit=unit
        )
    tests = binomial_tests(counts.losses, max_loss, confidence)
    return _certificate(frontier, counts, tests, max_loss, confidence, duplicates)


def certify_sampled(
    frontier: Frontier,
    sample: Sampled,
    *,
    max_loss: float | Mapping[Any, float],
    confidence: float,
    measure: str,
    largest: float | None,
    sensitivity: float = 1.0,
) -> "Certificate":
    """Certify as ``certify`` does, on rows of which only those of the frontier bought everything; see ``Sampled``.

    Points are tested in the same sequence, by betting. ``sensitivity`` of the certificate is the largest factor at
    which all points of the sequence up to the certified one pass.
    """
    check_max_loss(max_loss)
    if not (isinstance(sensitivity, int | float | np.number) and 1.0 <= sensitivity < np.inf):
        raise InvalidParameterError(
            "sensitivity",
            f"must be at least 1; got {sensitivity!r}. It is the factor by which the odds of having bought everything "
            f"may differ from those that are given or estimated.",
        )
    largest = _largest(frontier, max_loss, measure, largest)
    limit = min(max_loss.values()) if isinstance(max_loss, Mapping) else max_loss
    least = sample.bound(np.zeros(0), sample.n_rows, confidence, sensitivity)
    if least > limit:
        raise InvalidInputError(
            f"{sample.n_rows:,} rows, {len(sample.chance):,} of which bought everything, with a probability of "
            f"{sample.least:.3g} or more, cannot show a loss of at most {_percent(limit)} with {_percent(confidence)} "
            f"confidence, not even without a single loss: one may stand for {1.0 / sample.least:,.0f} rows. Give more "
            f"rows, let more of them explore, or allow a loss of at least {_percent(least)}."
        )
    means = means_at(frontier.evidence, frontier.source, frontier.thresholds, 1.0 / sample.chance)
    frontier, n_rows = replace(frontier, means=means), sample.n_rows
    sums = n_rows * np.array([means.cost, means.share, means.score])
    counts = CountedRows(n_rows, n_rows, n_rows, None, (), sums, None)
    excess = excess_at_points(frontier, largest)
    classes: dict[Any, Bools] = {None: np.ones(len(sample.chance), dtype=bool)}
    if isinstance(max_loss, Mapping):
        classes = rows_by_class(frontier, max_loss)
    tests = sampled_tests(excess, sample, classes, max_loss, confidence, sensitivity)
    certificate = _certificate(frontier, counts, tests, max_loss, confidence, HELD_OUT, largest)
    holds_to = None
    if not certificate.is_fallback:
        n_passed = certificate.n_tested - (certificate.failed_bound is not None)
        excess = excess[np.argsort(-frontier.chosen.cost, kind="stable")[:n_passed]]
        low, high = np.log(sensitivity), np.log(_MAX_SENSITIVITY)
        for _ in range(_SENSITIVITY_HALVINGS):
            middle = (low + high) / 2.0
            at_factor = sampled_tests(excess, sample, classes, max_loss, confidence, float(np.exp(middle)))
            low, high = (middle, high) if at_factor[0].all() else (low, middle)
        holds_to = max(float(np.floor(np.exp(low) * 100.0) / 100.0), float(sensitivity))
    return replace(
        certificate,
        excess=None if largest is None else certificate.excess,
        n_complete=len(sample.chance),
        least_propensity=sample.least,
        approximate=sample.approximate,
        sensitivity=holds_to,
    )


@dataclass(frozen=True, eq=False)
class CountedRows:
    """Held-out rows as far as a certificate of the points of a frontier counts them; ``total`` adds up partitions.

    Attributes
    ----------
    n_rows, n_kept, n_trials : int
        Rows given, those that are not left out, and the different ones among these.
    n_seen : int or None
        Rows that equal one of the fit; None where the rows of the fit are not known.
    losses : tuple of LossCounts
        Losses of each point, of all rows or of the classes that have a limit.
    sums : ndarray of shape (3, n_points) or (3 + n_resources, n_points)
        Sums over the rows given of cost, "is sent" and score at each point, and of the cost in each of several
        resources.
    words : ndarray of shape (n_rows,) or None
        Fingerprints of the rows given, with their labels.
    """

    n_rows: int
    n_kept: int
    n_trials: int
    n_seen: int | None
    losses: tuple[LossCounts, ...]
    sums: Floats
    words: Words | None

    @classmethod
    def of(cls, frontier: Frontier, trials: Trials, max_loss: float | Mapping[Any, float] | None) -> Self:
        """Count the rows of a frontier, and the losses that ``max_loss`` limits; none are counted where it is None."""
        classes: dict[Any, Bools | None] = {} if max_loss is None else {None: None}
        if isinstance(max_loss, Mapping):
            classes = dict(rows_by_class(frontier, max_loss))
        means = frontier.means
        return cls(
            frontier.n_rows,
            trials.n_kept,
            trials.n_trials,
            trials.n_seen,
            tuple(LossCounts.of(frontier, trials, label, rows) for label, rows in classes.items()),
            frontier.n_rows * np.array([means.cost, means.share, means.score]),
            trials.words,
        )

    @classmethod
    def total(cls, parts: Sequence["CountedRows"]) -> "CountedRows":
        """Rows of all parts together."""
        n_rows, n_kept, n_trials, n_seen = (
            sum(getattr(part, name) for part in parts) for name in ("n_rows", "n_kept", "n_trials", "n_seen")
        )
        losses = (reduce(operator.add, each) for each in zip(*(part.losses for part in parts), strict=True))
        words = [part.words for part in parts if part.words is not None]
        sums: Floats = np.sum([part.sums for part in parts], axis=0)
        together = np.concatenate(words) if words else None
        return cls(n_rows, n_kept, n_trials, n_seen, tuple(losses), sums, together)

    @property
    def means(self) -> Means:
        """Mean cost, share sent and mean score of the rows given, at each point."""
        return Means(*(self.sums[:3] / self.n_rows))

    @property
    def costs(self) -> Floats | None:
        """Mean cost of the rows given at each point in each of several resources; None where there is one."""
        return self.sums[3:].T / self.n_rows if len(self.sums) > 3 else None


def recall_bound(
    evidence: Evidence, thresholds: Floats, trials: Trials, number: int, confidence: float
) -> float:
    """Lower confidence bound of the recall of a class at a point fixed by other rows; answers are right or wrong."""
    rows = np.asarray(evidence.strata == number)
    kept, first = trials.kept & rows, trials.first & rows
    if not first.any():
        return 0.0
    is_missed = ~np.asarray(evidence.at_point(thresholds)[2], dtype=bool)
    missed = [np.array([int((is_missed & counted).sum())]) for counted in (kept, first)]
    counts = LossCounts(number, int(rows.sum()), int(kept.sum()), int(first.sum()), *missed)
    return float(1.0 - counts.bounds(confidence)[0])


def _certificate(
    frontier: Frontier,
    counts: CountedRows,
    tests: Tests,
    max_loss: float | Mapping[Any, float],
    confidence: float,
    duplicates: str,
    largest: float | None = None,
) -> "Certificate":
    """Certificate of the cheapest point before the first that fails, from the dearest on."""
    (passed, result_of), order = tests, np.argsort(-frontier.chosen.cost, kind="stable")
    failed = np.flatnonzero(~passed[order])
    n_passed = int(failed[0]) if failed.size else len(order)
    last = int(order[n_passed - 1])
    shown = result_of(last) if n_passed else TestResult(0, 0.0)
    missed = result_of(int(order[n_passed])) if failed.size else None
    result = shown if n_passed or missed is None else missed
    task = frontier.evidence[0].task
    return Certificate(
        max_loss=float(max(max_loss.values()) if isinstance(max_loss, Mapping) else max_loss),
        confidence=float(confidence),
        n_rows=counts.n_trials,
        n_losses=shown.n_losses,
        bound=shown.bound,
        n_candidates=len(order),
        n_tested=min(n_passed + 1, len(order)),
        failed_losses=None if missed is None else missed.n_losses,
        failed_bound=None if missed is None else missed.bound,
        point=_point(frontier, last) if n_passed else _everything_to_full(frontier),
        is_fallback=n_passed == 0,
        n_given=counts.n_rows,
        n_repeated=None if counts.words is None else counts.n_kept - counts.n_trials,
        n_seen=counts.n_seen,
        duplicates=duplicates,
        issued=dt.date.today().isoformat(),
        rows=None if counts.words is None else digest_of(counts.words),
        by_class=result.by_class,
        excess=result.excess,
        largest=largest,
        loss=None if task is None else task.loss_unit,
        tolerance=frontier.evidence[0].tolerance or None,
        unit=None if frontier.evidence[0].unit is None else frontier.evidence[0].unit_name,
    )


def _point(frontier: Frontier, place: int) -> OperatingPoint:
    """A point of the frontier; its means do not depend on the order in which rows were added up."""
    point = frontier[place]
    cost, score = (float(f"{mean:.12g}") for mean in (point.cost, point.score))
    share = None if point.share is None else float(f"{point.share:.12g}")
    return replace(point, cost=cost, score=score, share=share)


def _largest(frontier: Frontier, max_loss: Any, measure: str, largest: Any) -> float | None:
    """Loss at which losses are clipped for ``measure="mean"``; None for ``measure="share"``."""
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
    """Refuse, before the fit, a ``max_loss`` for which there are too few held-out rows, or queries."""
    check_max_loss(max_loss, classes if isinstance(max_loss, Mapping) else None)
    check_confidence(confidence)
    keys = content_keys(X, strata)
    proof, learned = (
        query_keys(keys[part], None if query is None else query[part]) for part in (is_proof, ~is_proof)
    )
    first = trials_of(proof, (learned[:, 0],), len(proof), HELD_OUT).first
    if not isinstance(max_loss, Mapping):
        unit = "rows" if query is None else "queries"
        check_enough_rows(int(first.sum()), max_loss, confidence, n_given=len(proof), unit=unit)
        return
    for label, limit in max_loss.items():
        is_class = strata[is_proof] == list(classes).index(label)
        check_enough_rows(
            int(first[is_class].sum()), limit, confidence, n_given=int(is_class.sum()), label=label
        )


def _everything_to_full(frontier: Frontier) -> OperatingPoint | None:
    """Operating point that sends every row to the full model, if a system can; else None."""
    for place, system in enumerate(frontier.evidence):
        if system.sends_to_full and system.points is None:
            means = system.averages(np.array([[-np.inf]])).under()
            cost, score = float(means.cost[0]), float(means.score[0])
            settings = dict(system.settings)
            return OperatingPoint(cost, score, 1.0, place, system.features, settings, cost, score, (-np.inf,))
    return None


@dataclass(frozen=True)
class Certificate:
    """The cheapest point whose risk is certified to be at most ``max_loss``, and the results of its tests.

    Attributes
    ----------
    max_loss, confidence : float
        Limit of the risk and confidence: a certified point exceeds ``max_loss`` in at most ``1 - confidence`` of all
        draws of held-out rows.
    n_rows : int
        Held-out rows that were counted: all that were given, without those left out and without repetitions.
    n_losses, bound : int or None, float
        On how many of them the full model was right and the point wrong, and the exact upper bound from that; None
        where a file of version 0.3 does not hold it. ``max_loss`` is
        certified; the bound of the point at which the search ended is not a sharper certificate.
    n_candidates, n_tested : int
        Points that were fixed in advance, and how many were tested before the first failure (included).
    failed_losses, failed_bound : int, float or None
        Losses and bound of the first point that failed; None if none did.
    point : OperatingPoint or None
        The certified point. None: send every row to the full model, and no system at hand has a gate for that.
    is_fallback : bool
        Whether no candidate passed, so that every row goes to the full model: that loses nothing, and needs no test.
    n_given, n_repeated : int, int or None
        Rows that were given, and how many of them repeat another one that was counted; None where that is not known.
    n_seen : int or None
        Rows that equal one of the fit; None where the rows of the fit are not known.
    duplicates : str
        Treatment of such rows; see ``certify``.
    issued, rows : str, str or None
        Date of the test, and a fingerprint of the rows given, which does not depend on their order.
    by_class : tuple of ClassLoss or None
        Limit, rows, losses and bound of each class, where classes have limits of their own: ``max_loss`` is then the
        largest limit, ``n_losses`` the sum, and ``bound`` that of the class which comes nearest to its limit.
    excess, largest : float or None
        Where a mean was certified: by how much the mean loss exceeded the full model's on the rows counted, as a share
        of ``largest``, the loss at which losses are clipped; ``n_losses`` are then rows that lose more.
    loss : str or None
        Loss of an answer, in words; None where it is right or wrong.
    tolerance : float or None
        Excess loss over the full model up to which an answer does not count as worse, where that is not 0.
    unit : str or None
        Unit that was counted, where that is not rows: "queries".
    against : str or None
        The model that a router was compared with.
    n_complete, least_propensity : int, float or None
        Where rows were partly bought: those among ``n_rows`` that bought everything, and their smallest probability.
    approximate : bool
        Whether these probabilities were estimated, so that the certificate is no proof.
    sensitivity : float or None
        Largest factor by which the odds of having bought everything may differ from those that were used.
    cost : float, dict of resource to float, or None
        Upper bound of the mean cost, where budgets are part of it: all holds together, with the same confidence.
    recalls : dict of label to float, or None
        Lower bound of the recall of classes, where they are part of it.
    """

    max_loss: float
    confidence: float
    n_rows: int
    n_losses: int | None
    bound: float
    n_candidates: int
    n_tested: int
    failed_losses: int | None
    failed_bound: float | None
    point: OperatingPoint | None
    is_fallback: bool
    n_given: int
    n_repeated: int | None
    n_seen: int | None
    duplicates: str
    issued: str
    rows: str | None
    by_class: tuple[ClassLoss, ...] | None = None
    excess: float | None = None
    largest: float | None = None
    loss: str | None = None
    tolerance: float | None = None
    unit: str | None = None
    against: str | None = None
    n_complete: int | None = None
    least_propensity: float | None = None
    approximate: bool = False
    sensitivity: float | None = None
    cost: float | dict[str, float] | None = None
    recalls: dict[Any, float] | None = None

    def __str__(self) -> str:
        return f"{self._claim}. {self._basis}"

    @property
    def _claim(self) -> str:
        counted = f"{self.n_rows:,} held-out {self.unit or 'rows'}"
        surely = (
            f"with {'approximate' * self.approximate} {_percent(self.confidence)} confidence, on {counted}"
        )
        surely = surely.replace("  ", " ")
        if self.n_complete is not None:
            surely += f", {self.n_complete:,} of which bought everything"
        if self.is_fallback:
            return (
                f"sends every row to the full model, and so loses nothing against it: the safest of "
                f"{self.n_candidates:,} points could not be shown to {self._limits('lose', 'have')}, {surely}: "
                f"{self._outcome(self.failed_losses or 0, self.failed_bound or 0.0)}"
            )
        limits = self._limits("loses", "has")
        if self.cost is not None:
            limits += f", and costs at most {amount_text(self.cost)} a row on average"
        if self.recalls is not None:
            found = (
                f"{np.floor(1000 * bound) / 10:g} % of the rows of {label!r}"
                for label, bound in self.recalls.items()
            )
            limits += f", and answers at least {', '.join(found)} with their class"
        return f"{limits}, {surely}: {self._outcome(self.n_losses or 0, self.bound)}"

    def _limits(self, loses: str, has: str) -> str:
        """The certified limits, with their verb."""
        if self.against is not None:
            return f"{has} a mean {self.loss or 'quality'} at most {self.max_loss:.6g} below that of {self.against}"
        if self.largest is not None:
            return (
                f"{has} a mean {self.loss or 'error'} (clipped at {self.largest:.6g}) that exceeds the full model's by "
                f"at most {self.max_loss * self.largest:.6g}, {_percent(self.max_loss)} of that"
            )
        if self.by_class is not None:
            parts = [
                f"{_percent(loss.max_loss)} of answers to rows of {loss.label!r}" for loss in self.by_class
            ]
            limits = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
        else:
            limits = f"{_percent(self.max_loss)} of {self.unit or 'answers'}"
        return f"{loses} at most {limits} against the full model{self._meaning}"

    @property
    def _meaning(self) -> str:
        """Definition of a lost answer, where that is not just a wrong one."""
        if self.loss is None:
            return ""
        more = f" by more than {self.tolerance:.6g}" if self.tolerance else ""
        name = "an answer" if self.unit is None else f"one of the {self.unit}"
        return f" ({name} is lost if its {self.loss} exceeds that of the full model{more})"

    def _outcome(self, n_losses: int, bound: float) -> str:
        if self.largest is not None:
            differed = "" if self.excess is None else f"it differed by {self.excess * self.largest:.3g} "
            return f"{differed}(bound {bound * self.largest:.3g})"
        if self.by_class is not None:
            return "; ".join(
                f"of {loss.n_rows:,} of {loss.label!r} {_worse(loss.n_losses, loss.bound, '')}"
                for loss in self.by_class
            )
        return _worse(n_losses, bound)

    @property
    def _basis(self) -> str:
        """Basis of the claim in words: assumptions, rows counted, date and fingerprint of the rows."""
        basis = "This assumes that the rows are independent of each other and of the fit, and drawn as future rows are"
        if self.least_propensity is not None:
            given = "estimated from the target and what every row has" if self.approximate else "given"
            basis += (
                f", and that each bought everything with the probability that was {given}, at least "
                f"{self.least_propensity:.3g}"
            )
            if self.sensitivity is not None:
                basis += (
                    f"; it holds if the odds of that differ by a factor of at most {self.sensitivity:.3g}"
                )
        parts = [basis, *self._counted(), f"issued on {self.issued}"]
        return "; ".join(parts) + ("" if self.rows is None else f" for the rows {self.rows}")

    def _counted(self) -> list[str]:
        """Rows that were left out or counted once, in words."""
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
        """All fields, ready for a JSON file."""
        return asdict(self) | {"point": None if self.point is None else self.point.as_dict()}


def _worse(n_losses: int, bound: float, of_them: str = " of them") -> str:
    return f"{n_losses:,}{of_them} {'was' if n_losses == 1 else 'were'} worse (bound {_percent(bound)})"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
