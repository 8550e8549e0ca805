"""What a certificate claims of an operating point, and the tests: one of all rows, one of each class, or one of a mean.

A point passes if it passes every test. Each has the full level: a point of which one claim is false passes only if the
test of that claim errs (an intersection-union test, Berger 1982, Technometrics 24), so that several classes need no
correction.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.errors import InvalidInputError
from thrifty.evidence.bounds import (
    STAKES,
    is_rare,
    log_growth,
    mean_bound,
    passes,
    rows_needed,
    rows_of_mean,
    upper_bound,
)
from thrifty.evidence.frontier import Frontier
from thrifty.evidence.trials import Trials

__all__ = [
    "Claim",
    "ClassLoss",
    "Found",
    "MeanExcess",
    "ShareLost",
    "SharesByClass",
    "check_max_loss",
    "check_provable",
    "loses_at_most",
]

MaxLoss = float | Mapping[Any, float]


class ClassLoss(NamedTuple):
    """What was shown of the rows of one class: the limit, rows counted, losses among them, and their bound."""

    label: Any
    max_loss: float
    n_rows: int
    n_losses: int
    bound: float


class Found(NamedTuple):
    """What the tests of one point found; see ``Certificate``."""

    n_losses: int
    bound: float
    excess: float | None = None
    by_class: tuple[ClassLoss, ...] | None = None


class Claim(Protocol):
    """Tests of every point of a frontier on the rows that count."""

    @property
    def passed(self) -> Bools:
        """Whether each point passes."""

    def found(self, place: int) -> Found:
        """What the tests of one point found."""


@dataclass(frozen=True, eq=False)
class ShareLost:
    """At most a share of all rows is worse than with the full model: exact binomial tests."""

    max_loss: float
    losses: Ints
    bounds: Floats
    n_rows: int

    @classmethod
    def of(cls, frontier: Frontier, trials: Trials, max_loss: float, confidence: float) -> "ShareLost":
        """Count the losses of each point among the trials, and bound them whatever made rows equal."""
        n_rows, n_kept = trials.n_trials, trials.n_kept
        if n_rows == frontier.n_rows:
            losses = frontier.losses_against_full()
            return cls(max_loss, losses, upper_bound(losses, n_rows, confidence), n_rows)
        of_kept, of_first = map(frontier.losses_against_full, (trials.kept, trials.first))
        losses = trials.losses(of_kept, of_first)
        bounds = np.maximum(upper_bound(losses, n_rows, confidence), upper_bound(of_kept, n_kept, confidence))
        return cls(max_loss, losses, bounds, n_rows)

    @property
    def passed(self) -> Bools:
        """Whether each bound is at most the limit."""
        return passes(self.bounds, self.max_loss)

    def found(self, place: int) -> Found:
        """Losses of one point, and their bound."""
        return Found(int(self.losses[place]), float(self.bounds[place]))


@dataclass(frozen=True, eq=False)
class SharesByClass:
    """At most a share of the rows of each of some classes is worse than with the full model."""

    shares: Mapping[Any, ShareLost]

    @classmethod
    def of(
        cls, frontier: Frontier, trials: Trials, limits: Mapping[Any, float], confidence: float
    ) -> "SharesByClass":
        """Test each class on its own rows: given the labels, rows of a class are independent draws of such rows."""
        inside = rows_by_class(frontier, limits)
        own = {
            label: replace(trials, kept=trials.kept & rows, first=trials.first & rows)
            for label, rows in inside.items()
        }
        for label, part in own.items():
            check_provable(
                part.n_trials, limits[label], confidence, n_given=int(inside[label].sum()), label=label
            )
        return cls(
            {label: ShareLost.of(frontier, part, limits[label], confidence) for label, part in own.items()}
        )

    @property
    def passed(self) -> Bools:
        """Whether each point passes in every class."""
        return np.asarray(np.array([one.passed for one in self.shares.values()], dtype=bool).all(axis=0))

    def found(self, place: int) -> Found:
        """Losses of all classes together, and the bound of the class that comes nearest to its limit."""
        each = tuple(
            ClassLoss(label, one.max_loss, one.n_rows, *one.found(place)[:2])
            for label, one in self.shares.items()
        )
        nearest = max(each, key=lambda one: one.bound / one.max_loss)
        return Found(sum(one.n_losses for one in each), nearest.bound, None, each)


@dataclass(frozen=True, eq=False)
class MeanExcess:
    """The mean loss, clipped at ``largest``, is larger than the full model's by at most a share of ``largest``."""

    frontier: Frontier
    trials: Trials
    max_loss: float
    confidence: float
    largest: float

    @property
    def passed(self) -> Bools:
        """Whether betting against each point's mean excess being more than the limit wins enough."""
        # Were all draws repeated alike, each row is a part of a draw; a power of at most one keeps the mean below one.
        rows = [(self.trials.first, 1.0)]
        if self.trials.n_kept > self.trials.n_trials:
            rows.append((self.trials.kept, self._power))
        excess = [one.excess(self.largest) for one in self.frontier.evidence]
        wins = []
        for some, power in rows:
            capital = [
                power * self.frontier.sums([log_growth(each, self.max_loss, stake) for each in excess], some)
                for stake in STAKES
            ]
            wins.append(is_rare(np.array(capital), self.confidence))
        return np.asarray(np.array(wins, dtype=bool).all(axis=0))

    @property
    def _power(self) -> float:
        return self.trials.n_trials / self.trials.n_kept

    def found(self, place: int) -> Found:
        """Rows of one point that lose more, its mean excess, and the bound of that, as shares of the largest loss."""
        source = int(self.frontier.source[place])
        system = self.frontier.evidence[source]
        judged = replace(system, quality=system.excess(self.largest))
        excess = np.asarray(
            judged.at_point(self.frontier.thresholds[place, : system.n_stages])[2], dtype=np.float64
        )
        first, kept = excess[self.trials.first], excess[self.trials.kept]
        bounds = [mean_bound(first, self.confidence), mean_bound(kept, self.confidence, self._power)]
        return Found(int((first > 0).sum()), max(bounds), max(float(first.mean()), float(kept.mean())))


def rows_by_class(frontier: Frontier, limits: Mapping[Any, float]) -> dict[Any, Bools]:
    """The rows of each class that a limit is set for."""
    known = next((one for one in frontier.evidence if one.strata is not None and one.classes), None)
    if known is None or known.strata is None:
        raise InvalidInputError(
            "max_loss by class needs to know the class of each row, and this evidence does not: numbers have none, and "
            "files of earlier versions do not keep it. Give one number for all rows, or fit again."
        )
    check_max_loss(limits, known.classes)
    numbers = {label: known.classes.index(label) for label in limits}
    return {label: known.strata == number for label, number in numbers.items()}


def loses_at_most(frontier: Frontier, max_loss: MaxLoss) -> Bools:
    """Whether each point loses at most so much on just these rows, which proves nothing about others."""
    if isinstance(max_loss, Mapping):
        inside = rows_by_class(frontier, max_loss)
        shares = [frontier.losses_against_full(rows) / max(rows.sum(), 1) for rows in inside.values()]
        kept = [share <= max_loss[label] for label, share in zip(inside, shares, strict=True)]
        return np.asarray(np.array(kept).all(axis=0))
    return np.asarray(frontier.losses_against_full() / frontier.n_rows <= max_loss)


def check_max_loss(max_loss: Any, classes: Any = None) -> None:
    """Refuse what is no share in (0, 1), nor a dict from labels to such shares; None knows no labels to check."""
    if not isinstance(max_loss, Mapping):
        _check_share("max_loss", max_loss, "It is the share of answers that may get worse")
        return
    if not max_loss:
        raise InvalidInputError("max_loss by class must name a class at least; got an empty dict.")
    for label, limit in max_loss.items():
        if classes is not None and label not in list(classes):
            told = (
                f"which is not one of the labels {list(classes)}"
                if len(classes)
                else "and answers are numbers"
            )
            raise InvalidInputError(f"max_loss names the class {label!r}, {told}.")
        _check_share(
            f"max_loss of {label!r}", limit, "It is the share of answers to its rows that may get worse"
        )


def _check_share(name: str, value: Any, meaning: str) -> None:
    if isinstance(value, bool) or not (isinstance(value, float | int | np.number) and 0 < value < 1):
        raise InvalidInputError(
            f"{name} must lie strictly between 0 and 1; got {value!r}. {meaning}; none at all cannot be shown."
        )


def check_provable(
    n_rows: int,
    max_loss: float,
    confidence: float,
    *,
    n_given: int | None = None,
    label: Any = None,
    of_mean: bool = False,
    unit: str = "rows",
) -> None:
    """Refuse a loss that so many held-out rows, or queries, cannot show even without a single one that is worse."""
    least = mean_bound(np.zeros(n_rows), confidence) if of_mean else float(upper_bound(0, n_rows, confidence))
    if passes(np.array(least), max_loss):
        return
    needed = rows_of_mean(max_loss, confidence) if of_mean else rows_needed(max_loss, confidence)
    fewer = f" (of {n_given:,}: {unit} that equal others, or {unit} of the fit, do not count)"
    of_class = "" if label is None else f" of class {label!r}"
    raise InvalidInputError(
        f"{n_rows:,} held-out {unit}{of_class}{'' if n_given in (None, n_rows) else fewer} "
        f"cannot show a loss of at most {100 * max_loss:.3g} % with {100 * confidence:.3g} % "
        f"confidence, not even without a single loss: it takes {needed:,} {unit}{of_class}. "
        f"Give more {unit}{of_class} to prove with, or allow a loss of at least {100 * least:.3g} %."
    )
