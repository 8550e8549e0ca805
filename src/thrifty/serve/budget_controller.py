"""Budget controller: keeps the mean cost of a stream of rows at a target.

The mean cost of an operating point is known on the rows of the fit. New rows may be harder: the same point then spends
more. The controller sets the chain to a *setpoint*, a mean cost as measured in the fit, and moves it by what the stream
really spends:

    setpoint = target + correction - debt / horizon

*Debt* is what rows have spent beyond the target so far: at this rate it is paid back within ``horizon`` rows.
*Correction* follows the debt slowly; it is the amount by which rows of this stream cost less than those of the fit, so
that a stream that stays harder leaves no debt. Neither grows while the setpoint has reached the cheapest or the most
expensive point (anti-windup): hours of easy rows must not allow unlimited spending afterwards.

The same rows in the same order give the same points: neither time nor random numbers are involved.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from threading import Lock

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.chain.chain import Chain
from thrifty.chain.policy import SLACK, Policy
from thrifty.chain.readers import Reader
from thrifty.chain.walk import Walk
from thrifty.errors import InvalidInputError

__all__ = ["BudgetController", "cost_at_hand"]

HORIZONS = 20
"""Debts are paid back within the window's rows over this number."""

PATIENCE = 4.0
"""How many times slower than the debt the correction moves: the least at which the two do not swing."""


class BudgetController:
    """Moves between operating points of one chain so that the mean spend of the stream holds the target.

    Parameters
    ----------
    chain : Chain
        A chain whose operating points were measured in a fit.
    target : float
        Mean cost per row that the stream is to spend; may be set again at any time.
    window : int
        Rows of which ``mean_spend`` is the mean, and within which the target is to be held.
    cap : float, optional
        Mean cost per row that no ``window`` rows in succession may exceed: rows that could break it
        stop at the first stage.
    is_at_hand_free : bool
        Whether rows pay only for what is bought for them, and nothing for the columns that they come with.

    Attributes
    ----------
    target : float
        Mean cost per row that is held.
    setpoint : float
        Mean cost, on the rows of the fit, of the operating point in force.
    n_seen : int
        Rows whose costs are known.
    capped : bool
        Whether the latest rows were made to stop because of the cap.
    n_capped : int
        Rows that were.
    """

    def __init__(
        self,
        chain: Chain,
        *,
        target: float,
        window: int = 2000,
        cap: float | None = None,
        is_at_hand_free: bool = False,
    ) -> None:
        if window < 1:
            raise InvalidInputError(f"the window of a budget must have at least 1 row; got {window!r}.")
        if not chain.policy.is_measured:
            raise InvalidInputError(
                "a budget can be held only between operating points whose costs are known, and those of this chain "
                "are not. Serve what a fit has made, or leave the budget out."
            )
        self._chain, self._window, self._cap = chain.ready(), window, cap
        self._cheapest, self._dearest = float(chain.policy.cost[0]), float(chain.policy.cost[-1])
        if cap is not None and chain.price_list.by_row is not None:
            raise InvalidInputError(
                f"a cap needs to know the most that a row can cost, and prices of this system differ by row; got "
                f"{cap!r}. Leave the cap out: the mean is held without it."
            )
        self._cost_by_place = cost_at_hand(chain, is_free=is_at_hand_free)
        self._least, self._most = float(self._cost_by_place[0]), float(chain.cost_by_place.max())
        self._check_cap()
        self._latest = np.full(window, self._least)  # a ring: the next cost takes the place of the oldest
        self._turn = Lock()
        self._n_begun = 0  # rows under way whose costs are not known yet
        self.n_seen = self.n_capped = 0
        self.capped = False
        self._debt = self._correction = 0.0
        self._n_together = 1  # rows that lately came at once: a debt cannot be paid back in fewer
        self.target = target

    # -- what is held ------------------------------------------------------------------------------

    @property
    def target(self) -> float:
        """Mean cost per row that is held."""
        return self._target

    @target.setter
    def target(self, target: float) -> None:
        if not self._cheapest * (1 - SLACK) <= target <= self._dearest * (1 + SLACK):
            raise InvalidInputError(
                f"the target must lie between {self._cheapest:.6g} and {self._dearest:.6g}, the mean costs of the "
                f"cheapest and of the dearest operating point; got {target!r}."
            )
        if self._cap is not None and target > self._cap:
            raise InvalidInputError(
                f"the target must be at most the cap of {self._cap:.6g}; got {target!r}. Raise the cap, or lower the "
                f"target."
            )
        with self._turn:
            self._target = float(target)
            # What was spent beyond another target is no debt under this one.
            self._debt = 0.0
            self._move(0)

    def _check_cap(self) -> None:
        if self._cap is not None and not self._cap >= self._least:
            raise InvalidInputError(
                f"the cap must be at least {self._least:.6g}, what a row pays that stops at the first stage; got "
                f"{self._cap!r}."
            )

    @property
    def mean_spend(self) -> float:
        """Mean cost of the latest rows, at most ``window`` of them; 0 before the first."""
        n = min(self.n_seen, self._window)
        return float(self._latest[self._places(-n, n)].mean()) if n else 0.0

    def take_over(self, other: "BudgetController") -> None:
        """Go on with what the latest rows of another controller paid: a new chain begins with no empty window."""
        with other._turn, self._turn:
            n_begun = min(
                other._n_begun, self._window
            )  # they are taken for the dearest: their costs are not known
            paid = other._latest[other._places(-other._window, other._window)]
            paid = np.append(paid, np.full(n_begun, other._most))[-self._window :]
            self._latest[-len(paid) :] = paid
            self._move(0)

    # -- rows --------------------------------------------------------------------------------------

    def walk(self, reader: Reader) -> Walk:
        """Send every row as far as the budget allows, and take note of what its route costs.

        Large batches go in pieces, each at a point of its own. Routes are noted at their price before it is known
        whether the full model will answer: were a failed call worth nothing, the controller would answer an outage by
        sending ever more rows to a remote that is down.
        """
        walks: list[Walk] = []
        first, by_row = 0, self._chain.price_list.by_row is not None
        while first < reader.n_samples or not walks:
            n_rows, chain = self.begin(reader.n_samples - first)
            costs = np.zeros(0)
            try:
                walks.append(chain.walk(reader, np.arange(first, first + n_rows)))
                walk = walks[-1]
                costs = chain.spent(reader, walk) if by_row else self._cost_by_place[chain.places(walk)]
            finally:
                self.end(n_rows, costs)
            first += n_rows
        return _joined(walks)

    def begin(self, n_rows: int) -> tuple[int, Chain]:
        """How many of some rows go next, and the chain at the point that they follow; ``end`` must follow.

        No request waits for rows under way. Until it is known what they pay, the cap takes it for as much as a row can.
        """
        with self._turn:
            n_rows = min(n_rows, self._max_together)
            self.capped = n_rows > self._n_free
            if self.capped:
                self.n_capped += n_rows
            self._n_begun += n_rows
            return n_rows, self._stopping if self.capped else self._chain_at_setpoint

    def end(self, n_rows: int, costs: Floats) -> None:
        """Take note that rows which had begun are done, and of what they paid; without costs, they were refused."""
        with self._turn:
            self._n_begun -= n_rows
            if len(costs):
                self._spent(costs)

    def _spent(self, costs: Floats) -> None:
        n_rows = len(costs)
        kept = np.asarray(costs, dtype=np.float64)[-self._window :]
        self._latest[self._places(n_rows - len(kept), len(kept))] = kept
        self.n_seen += n_rows
        self._debt += float(np.sum(costs)) - self._target * n_rows
        self._move(n_rows)

    # -- the law of control ------------------------------------------------------------------------

    def _move(self, n_rows: int) -> None:
        """Find the setpoint for the rows that follow, after some rows were paid for."""
        self._n_together = max(n_rows, self._n_together - 1)
        horizon = max(self._window / HORIZONS, self._n_together)
        low, high = self._cheapest - self._target, self._dearest - self._target
        max_debt = self._window / 2
        self._debt = min(max(self._debt, -max_debt * high), -max_debt * low)
        wanted = self._correction - self._debt / horizon
        if not (wanted > high and self._debt < 0) and not (wanted < low and self._debt > 0):
            self._correction -= self._debt * n_rows / (PATIENCE * horizon**2)
        self._correction = min(max(self._correction, low), high)
        self.setpoint = self._target + min(max(wanted, low), high)
        policy = self._chain.policy.within(self.setpoint)
        # Rows that come one by one all have the same place in their batch: without another seed for each, rows that
        # hold the same would all follow the same point.
        self._chain_at_setpoint = self._chain.at(replace(policy, seed=policy.seed + self.n_seen))

    # -- the cap -----------------------------------------------------------------------------------

    @cached_property
    def _stopping(self) -> Chain:
        """The chain at which every row stops at the first stage."""
        return self._chain.at(Policy.of(np.full(self._chain.policy.n_stages, np.inf)))

    @property
    def _n_free(self) -> int:
        """How many rows keep the cap even if each of them pays as much as a row can."""
        if self._cap is None:
            return sys.maxsize
        room = self._cap * self._window * (1 + SLACK) - float(self._latest.sum())
        # Every row takes the place of the oldest one, which may have paid the least.
        more = self._most - min(self._least, float(self._latest.min()))
        return sys.maxsize if more * self._window <= room else int(room // more) - self._n_begun

    @property
    def _max_together(self) -> int:
        """Rows that are sent at one point."""
        return max(min(self._n_free, self._window // (2 * HORIZONS)), 1)

    def _places(self, first: int, n: int) -> Ints:
        """Places in the ring of ``n`` costs, from ``first`` after the oldest one."""
        return (self.n_seen + first + np.arange(n)) % self._window


def cost_at_hand(chain: Chain, *, is_free: bool) -> Floats:
    """What a row pays that came with its columns, by the place that answered it; 0 at -1, where none did."""
    paid = chain.cost_by_place
    if is_free:
        nothing = np.zeros_like(chain.bought_by_place)
        paid = chain.price_list.cost_of_rows(nothing, np.arange(len(paid)) == len(paid) - 1)
    return np.append(paid, 0.0)


def _joined(walks: Sequence[Walk]) -> Walk:
    """Walks of pieces of a batch as one."""
    if len(walks) == 1:
        return walks[0]
    behind = [walk.behind for walk in walks if walk.behind is not None]
    return Walk(
        np.concatenate([walk.rows for walk in walks]),
        np.concatenate([walk.route for walk in walks]),
        np.concatenate([walk.scores for walk in walks]),
        _joined(behind) if behind else None,
        None
        if walks[0].node is None
        else np.concatenate([walk.node for walk in walks if walk.node is not None]),
    )
