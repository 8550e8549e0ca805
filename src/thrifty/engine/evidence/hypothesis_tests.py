"""Hypothesis tests of the loss against the full model, and their upper confidence bounds.

The *risk* of an operating point is the probability that a row is worse than with the full model, over all rows or over
the rows of one class, or the mean excess of a loss. A point passes if every null hypothesis "the risk exceeds its
limit" is rejected. Each test has the full level: a point of which one risk is too large passes only if the test of that
risk errs (an intersection-union test, Berger 1982, Technometrics 24), so several classes need no correction.

The number of losses among n rows is binomial, and its bound is the exact one of Clopper and Pearson. A mean is bounded
by betting against it (Waudby-Smith and Ramdas 2024, Journal of the Royal Statistical Society B 86): a bettor who stakes
a share f of the wealth, row by row, on the excess D <= 1 being smaller than m on average, has afterwards

    K_f(m) = prod_i [1 + f (m - D_i) / (1 - m)],        E K_f(m) <= 1   if   E D >= m

so the mean of K_f over stakes fixed in advance is at least 1 / alpha in a share alpha of all draws at most. It grows
with m: the bound is the m at which it is 1 / alpha. The order of the rows does not matter, and D needs no lower end.

Tests count independent *trials*. Rows that the system learned from are not counted, and a row that is given twenty
times counts once. Rows are compared by fingerprints of their cells and of their label; a system gives equal cells equal
answers, so only labels can make the outcomes of such rows differ.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, logsumexp

from thrifty.arrays import Bools, Floats, Ints, Labels, Words
from thrifty.engine.evidence.frontier import Frontier
from thrifty.errors import InvalidInputError, InvalidParameterError

MaxLoss = float | Mapping[Any, float]


@dataclass(frozen=True)
class ClassLoss:
    """Test of one class: its limit, the rows counted, losses among them, and their bound."""

    label: Any
    max_loss: float
    n_rows: int
    n_losses: int
    bound: float


class TestResult(NamedTuple):
    """Result of the tests of one point; see ``Certificate``."""

    n_losses: int
    bound: float
    excess: float | None = None
    by_class: tuple[ClassLoss, ...] | None = None


Tests = tuple[Bools, Callable[[int], TestResult]]
"""Points of a frontier that pass all their tests, and the result of a point by its place."""


@dataclass(frozen=True, eq=False)
class LossCounts:
    """Rows that are worse than with the full model, at every point of a frontier; counts of partitions add up.

    Attributes
    ----------
    label : object
        The class whose rows are counted; None counts all rows.
    n_given, n_kept, n_trials : int
        Rows given, those that are not left out, and the different ones among these.
    of_kept, of_first : ndarray of shape (n_points,)
        Losses among the rows kept, and among the first of each set of equal ones.
    """

    label: Any
    n_given: int
    n_kept: int
    n_trials: int
    of_kept: Ints
    of_first: Ints

    @classmethod
    def of(cls, frontier: Frontier, trials: "Trials", label: Any = None, rows: Bools | None = None) -> Self:
        """Count the losses of the points of a frontier, among all rows or those of one class."""
        counted = (
            trials if rows is None else replace(trials, kept=trials.kept & rows, first=trials.first & rows)
        )
        of_kept, of_first = map(frontier.losses_against_full, (counted.kept, counted.first))
        n_given = frontier.n_rows if rows is None else int(rows.sum())
        return cls(label, n_given, counted.n_kept, counted.n_trials, of_kept, of_first)

    def __add__(self, other: Self) -> "LossCounts":
        names = ("n_given", "n_kept", "n_trials", "of_kept", "of_first")
        return LossCounts(self.label, *(getattr(self, name) + getattr(other, name) for name in names))

    @property
    def n_losses(self) -> Ints:
        """Number of losses among the trials: the larger share of the two ways to count, rounded up."""
        scaled: Ints = -(-self.of_kept * self.n_trials // max(self.n_kept, 1))
        return np.maximum(scaled, self.of_first)

    def bounds(self, confidence: float) -> Floats:
        """Upper bound of the risk of each point, for every reason that rows may be equal; see ``certify``."""
        return np.maximum(
            clopper_pearson_bound(self.n_losses, self.n_trials, confidence),
            clopper_pearson_bound(self.of_kept, self.n_kept, confidence),
        )


def binomial_tests(counts: Sequence[LossCounts], max_loss: MaxLoss, confidence: float) -> Tests:
    """Exact binomial tests that at most a share of the rows is worse than with the full model.

    Classes are tested each on its own rows: given the labels, these are independent draws. The result has the losses of
    all classes together, and the bound of the class that comes nearest to its limit.
    """
    limits = dict(max_loss) if isinstance(max_loss, Mapping) else {None: max_loss}
    bounds = [of_class.bounds(confidence) for of_class in counts]

    def result(place: int) -> TestResult:
        each = tuple(
            ClassLoss(
                of_class.label,
                limits[of_class.label],
                of_class.n_trials,
                int(of_class.n_losses[place]),
                float(bound[place]),
            )
            for of_class, bound in zip(counts, bounds, strict=True)
        )
        nearest = max(each, key=lambda loss: loss.bound / loss.max_loss)
        by_class = each if isinstance(max_loss, Mapping) else None
        return TestResult(sum(loss.n_losses for loss in each), nearest.bound, None, by_class)

    passed = [
        within_limit(bound, limits[of_class.label]) for of_class, bound in zip(counts, bounds, strict=True)
    ]
    return np.asarray(np.array(passed, dtype=bool).all(axis=0)), result


def betting_tests(
    frontier: Frontier, trials: "Trials", max_loss: float, confidence: float, largest: float
) -> Tests:
    """Tests that the mean loss, clipped at ``largest``, exceeds the full model's by at most a share of ``largest``.

    The result has the rows that lose more, the mean excess and its bound, as shares of the largest loss.
    """
    # Were all draws repeated alike, each row is a part of a draw; a power of at most one keeps the mean below one.
    power = trials.n_trials / trials.n_kept
    weighted_rows = [(trials.first, 1.0)]
    if trials.n_kept > trials.n_trials:
        weighted_rows.append((trials.kept, power))
    excess = [system.excess(largest) for system in frontier.evidence]
    rejected = []
    for rows, exponent in weighted_rows:
        wealth = [
            exponent * frontier.sums([log_wealth(each, max_loss, stake) for each in excess], rows)
            for stake in STAKES
        ]
        rejected.append(rejects(np.array(wealth), confidence))

    def result(place: int) -> TestResult:
        system = frontier.evidence[int(frontier.source[place])]
        point = frontier.thresholds[place, : system.n_parameters]
        _, _, values = replace(system, quality=excess[int(frontier.source[place])]).at_point(point)
        lost = np.asarray(values, dtype=np.float64)
        first, kept = lost[trials.first], lost[trials.kept]
        bounds = [betting_bound(first, confidence), betting_bound(kept, confidence, power)]
        return TestResult(int((first > 0).sum()), max(bounds), max(float(first.mean()), float(kept.mean())))

    return np.asarray(np.array(rejected, dtype=bool).all(axis=0)), result


@dataclass(frozen=True, eq=False)
class Sampled:
    """Held-out rows of which only some, drawn by chance, bought all that the system and the full model read.

    A row that did stands for 1 / p rows, where p is the probability of that: with A whether it did, the mean of
    ``A / p * excess`` over all rows is the mean excess, and no summand exceeds 1 / min(p). Where the odds of p may be
    wrong by a factor Gamma, 1 / p is at most ``1 + Gamma (1 / p - 1)``, with which a row that is worse counts, and at
    least ``1 + (1 / p - 1) / Gamma``, with which one that is better does (marginal sensitivity model, Tan 2006).

    Attributes
    ----------
    n_rows : int
        All rows.
    lacking : ndarray
        Labels of those that did not buy everything; the frontier has the others.
    chance : ndarray of shape (n_complete,)
        Probability with which each of these others bought everything.
    approximate : bool
        Whether probabilities are estimated, so that nothing is proved.
    """

    n_rows: int
    lacking: Labels
    chance: Floats
    approximate: bool

    @property
    def least(self) -> float:
        """Smallest probability of a row that bought everything."""
        return float(self.chance.min(initial=1.0))

    def stakes(self, sensitivity: float) -> Floats:
        """Stakes on one unit of excess, of which those are left out with which a row could lose more than all."""
        each = np.append(STAKES, _SMALL_STAKES) * self.least
        return each[each * (1.0 + sensitivity * (1.0 / self.least - 1.0)) < 1.0]

    def weighted(self, excess: Floats, sensitivity: float) -> Floats:
        """Excess of rows that bought everything, times the number of rows that each stands for at worst."""
        more = 1.0 / self.chance - 1.0
        weighted: Floats = excess * (1.0 + np.where(excess > 0.0, more * sensitivity, more / sensitivity))
        return weighted

    def rejects(self, total: Floats, stakes: Floats, n_others: int, limit: float, confidence: float) -> Bools:
        """Mask of rejections, from the log-wealth of stakes on some rows; the others have no excess."""
        total = (total.T + n_others * np.log1p(stakes * limit)).T.reshape(len(stakes), -1)
        left_out = np.full((len(STAKES) + len(_SMALL_STAKES) - len(stakes), total.shape[1]), -np.inf)
        return rejects(np.vstack([total, left_out]), confidence)

    def bound(self, weighted: Floats, n_lacking: int, confidence: float, sensitivity: float) -> float:
        """Upper bound of the mean excess of all rows, from the weighted excess of those that bought everything."""
        stakes, (values, counts) = self.stakes(sensitivity), np.unique(weighted, return_counts=True)
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            limit = (low + high) / 2.0
            total: Floats = np.log1p(stakes[:, None] * (limit - values)) @ counts.astype(np.float64)
            excluded = bool(self.rejects(total, stakes, n_lacking, limit, confidence)[0])
            low, high = (low, limit) if excluded else (limit, high)
        return high


def excess_at_points(frontier: Frontier, largest: float | None) -> Floats:
    """Excess of each row at each point, (n_points, n_rows): if it is worse, or how much of ``largest`` it loses."""
    quality = [
        1.0 - np.asarray(system.quality, dtype=np.float64) if largest is None else system.excess(largest)
        for system in frontier.evidence
    ]
    systems = [replace(system, quality=each) for system, each in zip(frontier.evidence, quality, strict=True)]
    of_points = zip((systems[source] for source in frontier.source), frontier.thresholds, strict=True)
    return np.array([system.at_point(point[: system.n_parameters])[2] for system, point in of_points])


def sampled_tests(
    excess: Floats,
    sample: Sampled,
    classes: Mapping[Any, Bools],
    max_loss: MaxLoss,
    confidence: float,
    sensitivity: float,
) -> Tests:
    """Tests by betting on rows of which some did not buy everything, by class where limits are; see ``Sampled``.

    ``excess`` is that of each point and row that bought everything, and ``classes`` has the rows that each limit is
    about. Wealth falls as ``sensitivity`` rises: what passes at one factor passes at all smaller ones.
    """
    limits = dict(max_loss) if isinstance(max_loss, Mapping) else {None: max_loss}
    excess, stakes = sample.weighted(excess, sensitivity), sample.stakes(sensitivity)
    n_lacking = {
        label: len(sample.lacking) if label is None else int((sample.lacking == label).sum())
        for label in limits
    }

    def of_class(label: Any) -> Bools:
        limit, own = limits[label], excess[:, classes[label]]
        own, n_rows = own[:, own.any(axis=0)], own.shape[1] + n_lacking[label]
        total = np.array([np.log1p(stake * (limit - own)).sum(axis=1) for stake in stakes])
        return sample.rejects(total, stakes, n_rows - own.shape[1], limit, confidence)

    def result(place: int) -> TestResult:
        each = []
        for label, limit in limits.items():
            own = excess[place, classes[label]]
            bound = sample.bound(own, n_lacking[label], confidence, sensitivity)
            each.append(ClassLoss(label, limit, len(own) + n_lacking[label], int((own > 0).sum()), bound))
        nearest = max(each, key=lambda loss: loss.bound / loss.max_loss)
        by_class = tuple(each) if isinstance(max_loss, Mapping) else None
        mean = float(excess[place].sum() / sample.n_rows)
        return TestResult(sum(loss.n_losses for loss in each), nearest.bound, mean, by_class)

    passed = [of_class(label) for label in limits]
    return np.asarray(np.array(passed, dtype=bool).all(axis=0)), result


def rows_by_class(frontier: Frontier, limits: Mapping[Any, float]) -> dict[Any, Bools]:
    """The rows of each class that a limit is set for."""
    of_classes = next((each for each in frontier.evidence if each.strata is not None and each.classes), None)
    if of_classes is None or of_classes.strata is None:
        raise InvalidParameterError(
            "max_loss",
            "by class needs to know the class of each row, and this evidence does not: numbers have none. Give one "
            "number for all rows.",
        )
    check_max_loss(limits, of_classes.classes)
    numbers = {label: of_classes.classes.index(label) for label in limits}
    return {label: of_classes.strata == number for label, number in numbers.items()}


def empirical_risk_within(frontier: Frontier, max_loss: MaxLoss) -> Bools:
    """Points whose empirical risk on these rows is within a limit; an estimate, not a certificate."""
    if isinstance(max_loss, Mapping):
        kept = [
            frontier.losses_against_full(rows) / max(rows.sum(), 1) <= max_loss[label]
            for label, rows in rows_by_class(frontier, max_loss).items()
        ]
        return np.asarray(np.array(kept).all(axis=0))
    return np.asarray(frontier.losses_against_full() / frontier.n_rows <= max_loss)


def check_max_loss(max_loss: Any, classes: Any = None) -> None:
    """Refuse a max_loss that is neither a share in (0, 1) nor a dict of label to share; labels are checked if known."""
    if not isinstance(max_loss, Mapping):
        _check_limit("", max_loss, "It is the share of answers that may get worse")
        return
    if not max_loss:
        raise InvalidParameterError("max_loss", "by class must name a class at least; got an empty dict.")
    for label, limit in max_loss.items():
        if classes is not None and label not in list(classes):
            reason = (
                f"which is not one of the labels {list(classes)}"
                if len(classes)
                else "and answers are numbers"
            )
            raise InvalidParameterError("max_loss", f"names the class {label!r}, {reason}.")
        _check_limit(f"of {label!r} ", limit, "It is the share of answers to its rows that may get worse")


def _check_limit(whose: str, value: Any, meaning: str) -> None:
    if isinstance(value, bool) or not (isinstance(value, float | int | np.number) and 0 < value < 1):
        raise InvalidParameterError(
            "max_loss",
            f"{whose}must lie strictly between 0 and 1; got {value!r}. {meaning}; none at all cannot be shown.",
        )


def check_enough_rows(
    n_rows: int,
    max_loss: float,
    confidence: float,
    *,
    n_given: int | None = None,
    label: Any = None,
    of_mean: bool = False,
    unit: str = "rows",
) -> None:
    """Refuse a limit that cannot be certified on so many held-out rows, or queries, even without a loss."""
    least = (
        betting_bound(np.zeros(n_rows), confidence)
        if of_mean
        else float(clopper_pearson_bound(0, n_rows, confidence))
    )
    if within_limit(np.array(least), max_loss):
        return
    needed = rows_needed_for_mean(max_loss, confidence) if of_mean else rows_needed(max_loss, confidence)
    fewer = f" (of {n_given:,}: {unit} that equal others, or {unit} of the fit, do not count)"
    of_class = "" if label is None else f" of class {label!r}"
    raise InvalidInputError(
        f"{n_rows:,} held-out {unit}{of_class}{'' if n_given in (None, n_rows) else fewer} "
        f"cannot show a loss of at most {100 * max_loss:.3g} % with {100 * confidence:.3g} % "
        f"confidence, not even without a single loss: it takes {needed:,} {unit}{of_class}. "
        f"Give more {unit}{of_class} to prove with, or allow a loss of at least {100 * least:.3g} %."
    )


# -- bounds ----------------------------------------------------------------------------------------


STAKES = np.array([0.99, 0.7, 0.45, 0.25, 0.12, 0.05])
"""Shares of the wealth to stake: large ones have power where few rows lose, small ones where losses vary."""

_SMALL_STAKES = np.array([0.02, 0.008, 0.003])
"""Further stakes where rows stand for others, as shares of the largest: few of them weigh as much as that."""

# Bound and limit may be the same number and differ in the last digits of an incomplete beta function.
_SLACK = 1e-12
_HALVINGS = 40


def clopper_pearson_bound(n_losses: ArrayLike, n_rows: int, confidence: float) -> Floats:
    """Exact one-sided upper bound: the p for which ``P(Bin(n_rows, p) <= n_losses) = 1 - confidence``."""
    losses = np.asarray(n_losses, dtype=np.float64)
    bound: Floats = np.where(
        losses >= n_rows, 1.0, betaincinv(losses + 1.0, np.maximum(n_rows - losses, 1.0), confidence)
    )
    return bound


def within_limit(bound: Floats, limit: float) -> Bools:
    """Mask of the bounds that are at most a limit."""
    return np.asarray(bound <= limit * (1 + _SLACK))


def rows_needed(max_loss: float, confidence: float = 0.95) -> int:
    """Fewest rows with which ``max_loss`` can be certified: the least n with ``(1 - max_loss)^n <= 1 - confidence``."""
    return _fewest(lambda n: within_limit(clopper_pearson_bound(0, n, confidence), max_loss))


def rows_needed_for_mean(max_loss: float, confidence: float) -> int:
    """Fewest rows with which a mean excess of ``max_loss`` can be certified, if no row has a positive excess."""
    each = np.array([float(log_wealth(np.zeros(1), max_loss, stake)[0]) for stake in STAKES])
    return _fewest(lambda n: rejects(n * each, confidence))


def _fewest(suffice: Callable[[int], Bools]) -> int:
    """Fewest rows that suffice, where more of them do, too."""
    few, many = 0, 1
    while not suffice(many):
        few, many = many, 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if suffice(middle) else (middle, many)
    return many


def log_wealth(excess: Floats, mean: float, stake: float) -> Floats:
    """Per-row log-wealth of the betting test of "the mean is at least ``mean``" (Waudby-Smith and Ramdas, 2024)."""
    wealth: Floats = np.log1p(stake * (mean - excess) / (1.0 - mean))
    return wealth


def rejects(total: Floats, confidence: float) -> Bools:
    """Mask of rejections by the betting test, from the log-wealth of each stake on the first axis."""
    return np.asarray(logsumexp(total, axis=0) - np.log(len(total)) >= -np.log1p(-confidence) - _SLACK)


def betting_bound(excess: Floats, confidence: float, power: float = 1.0) -> float:
    """Upper bound, by the betting test, of the mean of an excess of at most one; ``power`` <= 1 weighs each row."""
    if not len(excess):
        return 1.0
    # Most rows have an excess of zero: equal values are counted.
    values, counts = np.unique(excess, return_counts=True)

    def is_excluded(mean: float) -> bool:
        wealth = np.array([power * counts @ log_wealth(values, mean, stake) for stake in STAKES])
        return bool(rejects(wealth, confidence))

    low, high = max(float(excess.mean()), -1.0), 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if is_excluded(middle) else (middle, high)
    return high


# -- trials ----------------------------------------------------------------------------------------


DUPLICATES = ("refuse", "drop", "count")
"""Treatments of rows that equal rows of the fit, or each other."""

HELD_OUT = "drop"
"""Treatment of such rows among those that ``thrifty fit`` holds out."""

_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Trials:
    """Rows that count as independent trials.

    Attributes
    ----------
    kept, first : ndarray of shape (n_rows,)
        Rows that are not left out, and the first of each set of equal ones among them.
    n_seen : int or None
        Rows that equal one of the fit; None where the rows of one of them are not known.
    words : ndarray of shape (n_rows,) or None
        Fingerprints of all rows given, with their labels.
    """

    kept: Bools
    first: Bools
    n_seen: int | None
    words: Words | None

    @property
    def n_kept(self) -> int:
        """Rows that are not left out."""
        return int(self.kept.sum())

    @property
    def n_trials(self) -> int:
        """Different rows among them."""
        return int(self.first.sum())


def trials_of(
    rows: Words | None,
    seen: tuple[Words, ...],
    n_rows: int,
    duplicates: str,
    counted: Words | None = None,
) -> Trials:
    """Find the rows that count.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, 2) or None
        Fingerprints of the cells of each row, and of cells and label; None where they are not known.
    seen : tuple of ndarray
        Fingerprints of the cells of the rows of the fit; empty where they are not known.
    n_rows : int
        Rows given.
    duplicates : str
        Treatment of rows that equal rows of the fit, or each other: one of ``DUPLICATES``.
    counted : ndarray, optional
        Fingerprints, with labels, of rows that are counted elsewhere, in another partition of the table.
    """
    if duplicates not in DUPLICATES:
        raise InvalidInputError(
            f"duplicates must be one of {', '.join(DUPLICATES)}; got {duplicates!r}. It is the treatment of rows that "
            f"equal rows of the fit, or each other."
        )
    all_rows = np.ones(n_rows, dtype=bool)
    if rows is None:
        return Trials(all_rows, all_rows, None, None)
    is_seen = np.isin(rows[:, 0], np.concatenate(seen)) if seen else ~all_rows
    n_seen = int(is_seen.sum()) if seen else None
    if n_seen and duplicates == "refuse":
        places = np.flatnonzero(is_seen)[:_SHOWN].tolist()
        raise InvalidInputError(
            f"{n_seen:,} of the {n_rows:,} rows to prove with hold the same as rows that the system was fitted or "
            f"chosen on (the first are rows {places}, counted from 0), and such rows prove nothing. Give "
            f'rows that the fit has not seen, or leave these out with duplicates="drop". Where equal rows are '
            f'independent observations, as in a table with few different ones, duplicates="count" counts them all.'
        )
    if duplicates == "count":
        return Trials(all_rows, all_rows, n_seen, rows[:, 1])
    kept, first = ~is_seen, np.zeros(n_rows, dtype=bool)
    places = np.flatnonzero(kept)
    first[places[np.unique(rows[places, 1], return_index=True)[1]]] = True
    if counted is not None:
        first &= ~np.isin(rows[:, 1], counted)
    return Trials(kept, first, n_seen, rows[:, 1])


def digest_of(words: Words) -> str:
    """Fingerprint of a table from those of its rows, in any order."""
    return hashlib.sha256(np.sort(words).tobytes()).hexdigest()[:16]


def check_confidence(confidence: Any) -> float:
    """Check a probability strictly between 0 and 1, and return it as a float."""
    if not (isinstance(confidence, float | int | np.number) and 0 < confidence < 1):
        raise InvalidParameterError(
            "confidence",
            f"must lie strictly between 0 and 1; got {confidence!r}. It is the probability with which a budget is "
            f"kept, or a loss proved.",
        )
    return float(confidence)
