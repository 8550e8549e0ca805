"""Operating points: thresholds of the gates of all stages, or rules, and the point in force.

A row goes on from a stage iff its gate score exceeds the stage's threshold. An *operating point* is one threshold per
stage; of a router, it is the number of a rule. Between two points chance decides which one a row follows, so that any
budget between them is met in expectation. Of a cascade, ``thrifty.engine.evidence.thresholds`` brings the two so close
to each other that they are thresholds on both sides of one score: chance then decides only among the rows that have it.

With ``explore``, that share of the rows, drawn by key, goes on from its stop to a place drawn evenly from all later
ones. Every purchase then has some chance of being made, which is known (``reached``).
Budgets of m resources are met by at most m + 1 points.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from thrifty.arrays import Bools, Floats, Ints, Words
from thrifty.errors import InvalidInputError, InvalidParameterError
from thrifty.rows import key_chance

SLACK = 1e-12
"""Relative tolerance of budgets: a mean over rows may miss a round number by its last digit."""


@dataclass(frozen=True, eq=False)
class Policy:
    """Operating points by rising cost, and the one (or several, mixed) in force.

    Attributes
    ----------
    thresholds : ndarray of shape (n_points, n_stages), or (n_points, 1) of rules
        A row goes on from a stage iff its gate score is larger; infinite ones stop all rows, or none. Of a router, the
        number of each point's rule.
    cost, score : ndarray of shape (n_points,)
        Mean cost and mean quality on the rows that the points were chosen on; NaN where that is not known.
    lower, upper, share : int, int, float
        The points in force, and the share of rows that follow the upper one.
    seed : int
        Seed of the chance that decides which rows follow the upper one.
    explore : float
        Share of the rows that go on beyond their stop.
    costs : ndarray of shape (n_points, n_resources), optional
        Mean cost in each resource, where there are several; ``cost`` is then their sum at exchange rates.
    more, more_shares : ndarray of shape (n_more,), optional
        Further points in force, and the shares of rows that follow them.
    error : float
        Standard error of the scores, where there are several resources.
    """

    thresholds: Floats
    cost: Floats
    score: Floats
    lower: int = 0
    upper: int = 0
    share: float = 0.0
    seed: int = 0
    explore: float = 0.0
    costs: Floats | None = None
    more: Ints | None = None
    more_shares: Floats | None = None
    error: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise InvalidInputError(
                f"the share of a mix must lie in [0, 1]; got {self.share!r}. "
                f"It is the share of rows that follow the upper point."
            )
        if not 0.0 <= self.explore < 1.0:
            raise InvalidParameterError(
                "explore",
                f"must lie in [0, 1); got {self.explore!r}. It is the share of rows that go on beyond their stop.",
            )

    def validate(self) -> "Policy":
        """Refuse arrays that are not operating points, and return the policy."""
        n_points = len(self.cost)
        means = [self.cost, self.score]
        rules = {
            "thresholds must be a number for each point and stage": self.thresholds.ndim == 2
            and not np.isnan(self.thresholds).any(),
            "cost and score must be known for each point": n_points > 0
            and all(mean.shape == (len(self.thresholds),) for mean in means),
            "cost and score must be finite, or NaN at every point": all(
                np.isfinite(mean).all() or np.isnan(mean).all() for mean in means
            ),
            "cost must rise from point to point": not (
                np.any(self.cost < 0) or np.any(np.diff(self.cost) < 0)
            ),
            f"lower and upper must lie in [0, {n_points}), and seed in [0, 2^63)": 0 <= self.lower < n_points
            and 0 <= self.upper < n_points
            and 0 <= self.seed < 2**63,
            "costs must be numbers of at least 0 for each point": self.costs is None
            or (self.costs.shape[:1] == self.cost.shape and self.costs.ndim == 2 and np.all(self.costs >= 0)),
            "further points in force must have shares, which leave some to the others": self.more is None
            or (
                self.more_shares is not None
                and self.more.shape == self.more_shares.shape
                and np.all((self.more >= 0) & (self.more < n_points) & (self.more_shares >= 0))
                and float(self.more_shares.sum()) + self.share <= 1.0 + 1e-9
            ),
        }
        for rule, holds in rules.items():
            if not holds:
                raise InvalidInputError(f"{rule}.")
        return self

    @classmethod
    def of(cls, *points: Floats, share: float = 0.0, seed: int = 0) -> "Policy":
        """A policy of one point, or of a mix of two, whose costs and scores are not measured."""
        thresholds = np.array(points, dtype=np.float64).reshape(len(points), -1)
        unknown = np.full(len(points), np.nan)
        return cls(thresholds, unknown, unknown, 0, len(points) - 1, share, seed)

    def __len__(self) -> int:
        return len(self.thresholds)

    def __getitem__(self, places: Ints) -> "Policy":
        costs = None if self.costs is None else self.costs[places]
        of_points = self.thresholds[places], self.cost[places], self.score[places]
        return Policy(*of_points, seed=self.seed, explore=self.explore, costs=costs, error=self.error)

    @property
    def n_stages(self) -> int:
        """Number of stages it has thresholds for."""
        return int(self.thresholds.shape[1])

    @property
    def threshold(self) -> float:
        """Threshold of the first stage at the point in force, the cheaper one of two."""
        return float(self.thresholds[self.lower, 0])

    @property
    def is_measured(self) -> bool:
        """True if the points were chosen on rows; otherwise any threshold is as good as those in force."""
        return not bool(np.isnan(self.cost).any())

    # -- the point in force ----------------------------------------------------------------------

    def at(self, lower: int, upper: int | None = None, share: float = 0.0) -> "Policy":
        """The policy with another point in force."""
        upper = lower if upper is None else upper
        return replace(
            self, lower=int(lower), upper=int(upper), share=float(share), more=None, more_shares=None
        )

    def mixed(self, points: Ints, shares: Floats) -> "Policy":
        """The policy with some points in force, each of which a share of the rows follows."""
        if len(points) < 2:
            return self.at(points[0])
        mix = self.at(points[0], points[1], shares[1])
        if len(points) == 2:
            return mix
        return replace(mix, more=np.array(points[2:], dtype=np.intp), more_shares=np.array(shares[2:]))

    @property
    def in_force(self) -> list[tuple[float, int]]:
        """Share of the rows that follow each point in force, and its number; the cheaper of two comes first."""
        more: list[tuple[float, int]] = []
        if self.more is not None and self.more_shares is not None:
            more = list(zip(self.more_shares.tolist(), self.more.tolist(), strict=True))
        left = 1.0 - self.share - sum(share for share, _ in more)
        return [(max(left, 0.0), self.lower), (self.share, self.upper), *more]

    def within(self, budget: float) -> "Policy":
        """The policy at the mix that spends ``budget`` per row; at the dearest point where that costs less."""
        if budget < self.cost[0] * (1 - SLACK):
            raise InvalidParameterError(
                "budget",
                f"must be at least {self.cost[0]:.6g}, the mean cost of the cheapest route; got {budget!r}. Raise the "
                f"budget, {'or explore less' if self.explore else 'or make the first purchase cheaper'}.",
            )
        upper = int(np.searchsorted(self.cost, budget * (1 + SLACK), side="right"))
        if upper == len(self):
            return self.at(upper - 1)
        lower = max(upper - 1, 0)
        step = float(self.cost[upper] - self.cost[lower])
        return self.at(lower, upper, min(max((budget - float(self.cost[lower])) / step, 0.0), 1.0))

    def score_within(self, budgets: Floats, below: float) -> Floats:
        """Mean quality at some budgets; ``below`` where even the cheapest point is too dear."""
        is_enough = budgets >= self.cost[0] * (1 - SLACK)
        score: Floats = np.where(is_enough, np.interp(budgets, self.cost, self.score), below)
        return score

    @property
    def expected_cost(self) -> float:
        """Mean cost of the point in force."""
        return float(sum(share * self.cost[point] for share, point in self.in_force))

    @property
    def expected_costs(self) -> Floats:
        """Mean cost of the point in force in each of several resources."""
        assert self.costs is not None  # asked for only where there are several
        return np.sum([share * self.costs[point] for share, point in self.in_force], axis=0)

    @property
    def expected_score(self) -> float:
        """Mean quality of the point in force."""
        return float(sum(share * self.score[point] for share, point in self.in_force))

    @property
    def is_mixed(self) -> bool:
        """True if points that differ are in force."""
        return self.parting >= 0 and (self.share > 0.0 or self.more is not None)

    # -- rows ------------------------------------------------------------------------------------

    @cached_property
    def parting(self) -> int:
        """First stage at which the points in force differ; -1 if they do not."""
        _, points = zip(*self.in_force, strict=True)
        differs = (self.thresholds[list(points)] != self.thresholds[self.lower]).any(axis=0)
        return int(np.argmax(differs)) if differs.any() else -1

    def follows_upper(self, keys: Words) -> Bools:
        """Mask of the rows that follow the upper point, by their keys.

        Chance is a fixed function of the key and the seed, so a row takes the same route in a table, in a partition of
        it and alone, and a table and a source send it the same way. Its cells have no influence: after one purchase
        many rows hold the same, and a group of them that all go on or all stop could not spend a budget.
        """
        follows: Bools = key_chance(keys, self.seed) < self.share
        return follows

    def follows(self, keys: Words) -> Ints:
        """Number of the point that each row follows, by its key."""
        if self.more is None or self.more_shares is None:
            return np.where(self.follows_upper(keys), self.upper, self.lower)
        ends = np.cumsum([self.share, *self.more_shares])
        points = np.array([self.upper, *self.more, self.lower], dtype=np.intp)
        follows: Ints = points[np.searchsorted(ends, key_chance(keys, self.seed), side="right")]
        return follows

    def reason(self, gates: Sequence[float], key: Words, follows: int) -> str:
        """What decided at the last of some stages, if not the gate alone: a point of the mix, or exploration.

        A row "explores" as long as it goes on from its stop, and then has "explored".
        """
        place = len(gates) - 1
        goes_on = np.array(gates) > self.thresholds[follows, : place + 1]
        if self.explore and not goes_on.all():
            stop = int(np.argmin(goes_on))
            to = int(self.explored_to(stop, key)[0])
            if to > stop:
                return "explores" if to > place else "explored"
        return self.deciding_point(place, gates[-1], follows)

    def deciding_point(self, place: int, gate: float, follows: int) -> str:
        """The point of a mix that a row follows, "cheaper" or "dearer"; empty where all decide alike at a stage."""
        points = [point for share, point in self.in_force if share > 0.0]
        goes_on = gate > self.thresholds[points, place]
        if goes_on.all() or not goes_on.any():
            return ""
        return "cheaper" if follows == self.lower else "dearer"

    def thresholds_at(self, place: int, follows: Ints) -> Floats | np.float64:
        """Threshold of a stage for each row, from the point that it follows; one for all where the points agree."""
        lower: np.float64 = self.thresholds[self.lower, place]
        if self.more is None and lower == self.thresholds[self.upper, place]:
            return lower
        thresholds: Floats = self.thresholds[follows, place]
        return thresholds

    def explored_to(self, place: int, keys: Words) -> Ints:
        """Place to which each row goes on that would stop at a place; that place unless it is drawn to explore."""
        drawn, n_later = (
            key_chance(keys, self.seed + _EXPLORE) / max(self.explore, 1e-300),
            self.n_stages - place,
        )
        to: Ints = place + np.where(drawn < 1.0, 1 + np.minimum(drawn, 1.0 - 2.0**-53) * n_later, 0.0).astype(
            np.intp
        )
        return np.minimum(to, self.n_stages)

    def reached(self, place: int, stops: Ints) -> Floats:
        """Probability of getting to a place, of rows that would stop at some places at each point in force.

        Parameters
        ----------
        place : int
            The place.
        stops : ndarray of shape (n_rows, n_in_force)
            Where the rows would stop; any place from ``place`` on counts alike.
        """
        later = np.maximum(self.n_stages - stops, 1)
        chance = np.where(stops >= place, 1.0, self.explore * (self.n_stages - place + 1) / later)
        reached: Floats = sum(
            share * of_point for (share, _), of_point in zip(self.in_force, chance.T, strict=True)
        )
        return reached


_EXPLORE = 2**32
"""Added to the seed of the mix, for the chance by which rows explore."""


def later_places(explore: float, n_places: int) -> Floats:
    """Probability with which a row that would stop at a place ends at each, shape (n_places, n_places)."""
    chance = np.eye(n_places)
    for place in range(n_places - 1):
        chance[place, place] -= explore
        chance[place, place + 1 :] = explore / (n_places - 1 - place)
    return chance


# -- thresholds of gates ---------------------------------------------------------------------------


def route_by(gate: Floats, thresholds: Floats) -> Ints:
    """Stage at which each row stops, shape (n_rows,); the number of stages means that it goes beyond them."""
    stops = gate <= thresholds
    route: Ints = np.where(stops.any(axis=1), np.argmax(stops, axis=1), gate.shape[1]).astype(np.intp)
    return route


def distinct_thresholds(g: Floats) -> Floats:
    """Every threshold that sends on another set of the rows with these gate scores, falling from "send no row".

    They are midway between neighbouring scores; "no row" and "all rows" are infinite, so that they hold for other rows
    too.
    """
    # Rows with equal scores go together.
    falling = np.unique(g)[::-1]
    above, below = np.r_[np.inf, falling], np.r_[falling, -np.inf]
    with np.errstate(invalid="ignore"):
        middle = below + (above - below) / 2.0
    # Midpoints that overflow or round onto the upper score fall back to the lower one, which is not sent.
    cut: Floats = np.where(np.isfinite(middle) & (middle < above), middle, below)
    cut[0] = np.inf
    return cut


def check_threshold(threshold: object) -> float:
    """A threshold of a gate; infinite ones send no row or all rows."""
    try:
        number = float(threshold)  # type: ignore[arg-type]  # anything may arrive; what cannot convert is refused
    except (TypeError, ValueError):
        number = np.nan
    if np.isnan(number):
        raise InvalidInputError(
            f"threshold must be a number, infinite ones included; got {threshold!r}. Rows with g > threshold go on."
        )
    return number
