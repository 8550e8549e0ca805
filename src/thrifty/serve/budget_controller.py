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

What rows have paid is a ``Spending``, which outlives reloads and may be shared by several processes.
"""

import fcntl
import math
import multiprocessing
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.engine.evidence.budgets import best_mix, nearest_limits, within_budgets
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.thresholds import with_points_between
from thrifty.engine.prices.billing import Resources
from thrifty.engine.purchases.receipts import Reader
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.policy import SLACK, Policy
from thrifty.engine.walk.walk import Walk
from thrifty.errors import InvalidInputError
from thrifty.learners.routing.model_cascade import ModelCascade

Result = TypeVar("Result")

HORIZONS = 20
"""Debts are paid back within the window's rows over this number."""

PATIENCE = 4.0
"""Ratio of the speeds of debt and correction: the least at which the two do not swing."""


_STEP = math.log(1.01)
"""Step in the logarithm of setpoints of several resources, from one mix to the next (no command chose it)."""

_STATE = np.dtype(
    [
        ("is_begun", "f8"),
        ("n_seen", "f8"),
        ("capped", "f8"),
        ("debt", "f8"),
        ("correction", "f8"),
        ("n_together", "f8"),
        ("target", "f8"),
        ("setpoint", "f8"),
    ]
)


def shared_memory(window: int, n_workers: int) -> Any:
    """Memory for the ``Spending`` of several processes.

    It is taken here as a whole and has no name in the file system: a process that writes to a mapped file is killed
    where another program has cut it, or the disk is full.
    """
    return multiprocessing.get_context("spawn").RawArray("d", _STATE.itemsize // 8 + 2 * n_workers + window)


class Spending:
    """Payments of the latest rows of a stream, and what a controller has learned from them.

    Several processes share it as memory, and lock it. The operating system opens the lock of a process that is killed;
    rows that the process had begun are counted as begun until ``settle`` takes them for the dearest. Every change is
    made in an order in which an interrupted one counts rows as too dear, never as too cheap.

    Parameters
    ----------
    window : int
        Rows whose costs are kept.
    memory : array of ctypes, optional
        What ``shared_memory`` returned; None shares nothing.
    lock : Path, optional
        File that processes lock, which is made where it is not there; it stays empty.
    n_workers, worker : int
        Processes that share it, and the number of this one.

    Attributes
    ----------
    latest : ndarray of shape (window,)
        A ring of costs: the next one takes the place of the oldest.
    begun : ndarray of shape (n_workers, 2)
        Rows under way of each process, and the most that they can cost together.
    """

    def __init__(
        self, window: int, memory: Any = None, lock: Path | None = None, n_workers: int = 1, worker: int = 0
    ) -> None:
        self._lock, self.window, self._worker = Lock(), window, worker
        self._file: int | None = None
        if lock is not None:
            self._file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
            weakref.finalize(self, os.close, self._file)
        size = _STATE.itemsize // 8 + 2 * n_workers + window
        values: Any = np.zeros(size) if memory is None else np.frombuffer(memory)
        first, second = _STATE.itemsize // 8, size - window
        self.state: Any = values[:first].view(_STATE)[0]
        self.begun, self.latest = values[first:second].reshape(n_workers, 2), values[second:]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One thread of one process at a time."""
        with self._lock:
            if self._file is None:
                yield
                return
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def begin(self, n_rows: int, most: float) -> None:
        """Count rows as under way, each of which costs so much at most."""
        self.begun[self._worker, 1] += n_rows * most
        self.begun[self._worker, 0] += n_rows

    def end(self, n_rows: int, most: float) -> None:
        """Count rows as done; their costs were added before."""
        begun = self.begun[self._worker]
        begun[0] -= n_rows
        begun[1] = begun[1] - n_rows * most if begun[0] > 0 else 0.0

    def add(self, costs: Floats) -> None:
        """Add the costs of rows in their order."""
        kept = np.asarray(costs, dtype=np.float64)[-self.window :]
        self.latest[self.places(len(costs) - len(kept), len(kept))] = kept
        self.state["n_seen"] += len(costs)

    def settle(self, worker: int) -> None:
        """Take the rows that a process had begun when it was killed for as dear as they can be."""
        with self.locked():
            n_rows, most = self.begun[worker]
            if n_rows > 0:
                self.add(np.full(int(n_rows), most / n_rows))
                self.state["debt"] += most - n_rows * self.state["target"]
            self.begun[worker] = 0.0

    def places(self, first: int, n: int) -> Ints:
        """Places in the ring of ``n`` costs, from ``first`` after the oldest one."""
        return (int(self.state["n_seen"]) + first + np.arange(n)) % self.window


class _Held:
    """A mean cost that the rows of a stream are to hold: the law of control, without a system.

    Parameters
    ----------
    ends : tuple of two float
        Mean costs of the cheapest and of the dearest operating point.
    rows : tuple of two float
        The least and the most that a row can cost.
    window : int
        Rows of which ``mean_spend`` is the mean.
    spending : Spending, optional
        What rows before have paid; None begins anew.
    """

    def __init__(
        self, ends: tuple[float, float], rows: tuple[float, float], window: int, spending: Spending | None
    ) -> None:
        (self._cheapest, self._dearest), (self._least, self._most) = ends, rows
        self._window = window
        self._spending = Spending(window) if spending is None else spending
        self._state = self._spending.state
        with self._spending.locked():
            if not self._state["is_begun"]:
                self._spending.latest[:] = self._least
                self._state["n_together"] = (
                    1  # rows that lately came at once: a debt cannot be paid back in fewer
                )
                self._state["is_begun"] = 1

    @property
    def target(self) -> float:
        """Mean cost per row that is held."""
        return float(self._state["target"])

    @target.setter
    def target(self, target: float) -> None:
        if not self._cheapest * (1 - SLACK) <= target <= self._dearest * (1 + SLACK):
            raise InvalidInputError(
                f"the target must lie between {self._cheapest:.6g} and {self._dearest:.6g}, the mean costs of the "
                f"cheapest and of the dearest operating point; got {target!r}."
            )
        self._check_target(target)
        with self._spending.locked():
            # What was spent beyond another target is no debt under this one.
            if self._state["target"] != target:
                self._state["target"], self._state["debt"] = target, 0.0
            self._move(0)

    @property
    def setpoint(self) -> float:
        """Mean cost, on the rows of the fit, of the operating point in force."""
        return float(self._state["setpoint"])

    @property
    def n_seen(self) -> int:
        """Rows whose costs are known."""
        return int(self._state["n_seen"])

    @property
    def mean_spend(self) -> float:
        """Mean cost of the latest rows, at most ``window`` of them; 0 before the first."""
        n = min(self.n_seen, self._window)
        return float(self._spending.latest[self._spending.places(-n, n)].mean()) if n else 0.0

    def _check_target(self, target: float) -> None:
        """Refuse a target that cannot be held for another reason."""

    def under_way(self, n_rows: int) -> None:
        """Count rows as under way."""
        with self._spending.locked():
            self._spending.begin(n_rows, self._most)

    def count(self, n_rows: int, costs: Floats) -> None:
        """Count rows that had begun as done, and what they paid; without costs, they were refused."""
        with self._spending.locked():
            if len(costs):
                self._spending.add(costs)
                self._state["debt"] += float(np.sum(costs)) - self.target * len(costs)
                self._move(len(costs))
            self._spending.end(n_rows, self._most)

    # -- the law of control ------------------------------------------------------------------------

    def _move(self, n_rows: int) -> None:
        """Set the setpoint for the rows that follow, after some rows were paid for."""
        state, target = self._state, self.target
        state["n_together"] = n_together = max(n_rows, float(state["n_together"]) - 1)
        horizon = max(self._window / HORIZONS, n_together)
        low, high = self._cheapest - target, self._dearest - target
        max_debt = self._window / 2
        debt = min(max(float(state["debt"]), -max_debt * high), -max_debt * low)
        correction = float(state["correction"])
        wanted = correction - debt / horizon
        if not (wanted > high and debt < 0) and not (wanted < low and debt > 0):
            correction -= debt * n_rows / (PATIENCE * horizon**2)
        state["debt"], state["correction"] = debt, min(max(correction, low), high)
        state["setpoint"] = target + min(max(wanted, low), high)


class BudgetController(_Held):
    """Moves between operating points of one system so that the mean cost of the stream holds the target.

    Parameters
    ----------
    system : Chain or ModelCascade
        A system whose operating points were measured in a fit.
    target : float
        Mean cost per row that the stream is to spend; may be set again at any time.
    window : int
        Rows of which ``mean_spend`` is the mean, and within which the target is to be held.
    cap : float, optional
        Mean cost per row that no ``window`` rows in succession may exceed: rows that could break it
        stop at the first stage.
    is_at_hand_free : bool
        Whether rows pay only for what is bought for them, and nothing for the columns that they come with.
    spending : Spending, optional
        What rows before have paid, of the same window; None begins anew.
    evidence : Evidence, optional
        Held-out rows of the fit. With them there are points between those of the fit, and keys decide about few rows.

    Attributes
    ----------
    target : float
        Mean cost per row that is held.
    """

    def __init__(
        self,
        system: Chain | ModelCascade,
        *,
        target: float,
        window: int = 2000,
        cap: float | None = None,
        is_at_hand_free: bool = False,
        spending: Spending | None = None,
        evidence: Evidence | None = None,
    ) -> None:
        if window < 1:
            raise InvalidInputError(f"the window of a budget must have at least 1 row; got {window!r}.")
        if (resources := resources_of(system)) is not None:
            raise InvalidInputError(
                f"the budget must name its resources, since prices are in {', '.join(resources.names)}; got {target!r}."
            )
        policy: Policy = system.policy if isinstance(system, Chain) else system.router_.policy_
        if not policy.is_measured:
            raise InvalidInputError(
                "a budget can be held only between operating points whose costs are known, and those of this chain "
                "are not. Serve what a fit has made, or leave the budget out."
            )
        if evidence is not None:
            policy = with_points_between(policy, evidence)
        self._policy, self._cap = policy, cap
        if isinstance(system, Chain):
            if cap is not None and system.price_list.by_row is not None:
                raise InvalidInputError(
                    f"a cap needs to know the most that a row can cost, and prices of this system differ by row; got "
                    f"{cap!r}. Leave the cap out: the mean is held without it."
                )
            self._system: Any = system.ready()
            self._max_piece = window // (2 * HORIZONS)
            self._cost_by_place = cost_at_hand(system, is_free=is_at_hand_free)
            of_rows = float(self._cost_by_place[0]), float(system.cost_by_place.max())
        else:
            if cap is not None:
                raise InvalidInputError(
                    f"a cap needs a first stage at which every row can stop, and a cascade of models has none; got "
                    f"{cap!r}. Leave the cap out: the mean is held without it."
                )
            prices = sorted(system.model_prices_.values())
            self._system, self._max_piece = system, sys.maxsize  # each model is asked in one batch
            of_rows = prices[0], sum(prices[-system.max_asks :])
        self._least = of_rows[0]
        self._check_cap()
        super().__init__((float(policy.cost[0]), float(policy.cost[-1])), of_rows, window, spending)
        self.target = target

    @property
    def capped(self) -> bool:
        """True if the latest rows were made to stop because of the cap."""
        return bool(self._state["capped"])

    def _check_target(self, target: float) -> None:
        if self._cap is not None and target > self._cap:
            raise InvalidInputError(
                f"the target must be at most the cap of {self._cap:.6g}; got {target!r}. Raise the cap, or lower the "
                f"target."
            )

    def _check_cap(self) -> None:
        if self._cap is not None and not self._cap >= self._least:
            raise InvalidInputError(
                f"the cap must be at least {self._least:.6g}, what a row pays that stops at the first stage; got "
                f"{self._cap!r}."
            )

    # -- rows --------------------------------------------------------------------------------------

    def walk(self, reader: Reader, rows: Ints | None = None, beyond: Chain | None = None) -> Walk:
        """Send rows, all of them by default, as far as the budget allows, and count what their routes cost.

        Routes are counted at their price before it is known whether the full model will answer: were a failed call
        worth nothing, the controller would answer an outage by sending ever more rows to a remote that is down.
        """

        def walk(chain: Chain, rows: Ints) -> tuple[Walk, Floats]:
            walk = chain.walk(reader, rows)
            has_own_prices = chain.price_list.by_row is not None
            return walk, chain.spent(reader, walk) if has_own_prices else self._cost_by_place[
                chain.places(walk)
            ]

        return joined(self.in_pieces(np.arange(reader.n_samples) if rows is None else rows, walk, beyond))

    def in_pieces(
        self, rows: Ints, run: Callable[[Any, Ints], tuple[Result, Floats]], beyond: Chain | None = None
    ) -> list[Result]:
        """Run rows in pieces, each at an operating point of its own.

        Parameters
        ----------
        rows : ndarray
            Rows of a request.
        run : callable
            From the system at a point and the rows of a piece to a result and what each row costs.
        beyond : Chain, optional
            Chain that rows follow wherever the cap leaves room for it, instead of the one at the setpoint.
        """
        results: list[Result] = []
        first = 0
        while first < len(rows) or not results:
            n_rows, chain = self.begin(len(rows) - first, beyond)
            costs = np.zeros(0)
            try:
                result, costs = run(chain, rows[first : first + n_rows])
                results.append(result)
            finally:
                self.end(n_rows, costs)
            first += n_rows
        return results

    def begin(self, n_rows: int, beyond: Chain | None = None) -> tuple[int, Any]:
        """Number of rows that go next, and the chain at the point that they follow; ``end`` must follow.

        No request waits for rows under way. Until it is known what they pay, the cap takes it for as much as a row can.
        """
        with self._spending.locked():
            n_free = self._n_free
            n_rows = min(n_rows, max(min(n_free, self._max_piece), 1))
            self._state["capped"] = is_capped = n_rows > n_free
            self._spending.begin(n_rows, self._most)
            return n_rows, self._stopping if is_capped else beyond or self.chain_at_setpoint

    def end(self, n_rows: int, costs: Floats) -> None:
        """Count rows that had begun as done, and what they paid; without costs, they were refused."""
        self.count(n_rows, costs)

    @property
    def chain_at_setpoint(self) -> Any:
        """The system at the operating point in force."""
        # The seed stays: at one setpoint a row key follows the same of two points at every request.
        if isinstance(self._system, Chain):
            return self._system.at(self._policy.within(self.setpoint))
        return self._system.at(budget=self.setpoint)

    # -- the cap -----------------------------------------------------------------------------------

    @cached_property
    def _stopping(self) -> Any:
        """The chain at which every row stops at the first stage."""
        return self._system.at(Policy.of(np.full(self._policy.n_stages, np.inf)))

    @property
    def _n_free(self) -> int:
        """Number of rows that keep the cap even if each of them pays as much as a row can."""
        if self._cap is None:
            return sys.maxsize
        latest, (n_begun, reserved) = self._spending.latest, self._spending.begun.sum(axis=0)
        # Every row takes the place of the oldest one, which may have paid the least.
        floor = min(self._least, float(latest.min()))
        room = self._cap * self._window * (1 + SLACK) - float(latest.sum())
        if (self._most - floor) * self._window <= room:
            return sys.maxsize
        return int((room - (reserved - n_begun * floor)) // (self._most - floor))


class BudgetsController:
    """Moves between mixes of operating points so that the mean cost of a stream holds budgets of several resources.

    Each budget has the law of control of a ``BudgetController`` to itself; what moves is the setpoint of that resource.
    In force is the best mix of points that keeps to all setpoints.

    Parameters
    ----------
    system : Chain or ModelCascade
        A system whose operating points were measured in a fit, with prices in several resources.
    target : dict of str to float
        Mean cost per row that the stream is to spend at most, of some of the resources.
    window : int
        Rows of which ``mean_spend`` is the mean.
    is_at_hand_free : bool
        Whether columns that come with a row cost nothing, as where providers sell the others.
    spending : callable
        From the name of a resource to the ``Spending`` of it.
    """

    capped = False

    def __init__(
        self,
        system: Chain | ModelCascade,
        *,
        target: Mapping[str, float],
        window: int = 2000,
        is_at_hand_free: bool = False,
        spending: Callable[[str], Spending] | None = None,
    ) -> None:
        resources = resources_of(system)
        if resources is None:
            raise InvalidInputError(
                f"the budget must be a number, since prices are in one resource; got {dict(target)!r}."
            )
        self._resources, self._window, self._is_at_hand_free = resources, window, is_at_hand_free
        self._spending = spending or (lambda _: Spending(window))
        self._held: dict[str, _Held] = {}
        if isinstance(system, Chain):
            self._system: Any = system.ready()
            self._policy, self._max_piece = system.policy, max(window // (2 * HORIZONS), 1)
        else:
            self._system, self._policy, self._max_piece = system, system.router_.state_.policy, sys.maxsize
        if self._policy.costs is None:
            raise InvalidInputError(
                "budgets can be held only between operating points whose costs are known, and those of this chain are "
                "not. Serve what a fit has made, or leave the budget out."
            )
        self._costs = self._policy.costs
        self.target = target

    @property
    def target(self) -> dict[str, float]:
        """Mean cost per row that is held, by resource."""
        return self._of_each("target")

    @target.setter
    def target(self, target: Mapping[str, float]) -> None:
        wanted = self._resources.check_budget("budget", target)
        within_budgets(self._policy, self._resources, wanted)  # refuses budgets that nothing keeps to
        self._held = {name: self._held_at(name, amount) for name, amount in wanted.items()}

    def _held_at(self, name: str, amount: float) -> _Held:
        """The law that holds a budget of one resource."""
        place = self._resources.names.index(name)
        costs = self._costs[:, place]
        ends = float(costs.min()), max(float(costs.max()), amount)
        held = _Held(ends, self._of_rows(place), self._window, self._spending(name))
        held.target = amount
        return held

    def _of_rows(self, resource: int) -> tuple[float, float]:
        """The least and the most that a row can cost in one resource."""
        if isinstance(self._system, Chain):
            paid = self._system.by_resource[resource].cost_by_place
            return float(paid[0]), float(paid.max())
        name = self._resources.names[resource]
        prices = sorted(price.get(name, 0.0) for price in self._system.model_prices_.values())
        return prices[0], sum(prices[-self._system.max_asks :])

    def _of_each(self, name: str) -> dict[str, float]:
        return {resource: getattr(held, name) for resource, held in self._held.items()}

    @property
    def setpoint(self) -> dict[str, float]:
        """Mean cost, on the rows of the fit, that the mix in force keeps to, by resource."""
        return self._of_each("setpoint")

    @property
    def mean_spend(self) -> dict[str, float]:
        """Mean cost of the latest rows, by resource."""
        return self._of_each("mean_spend")

    @property
    def chain_at_setpoint(self) -> Any:
        """The system at the mix in force."""
        # Setpoints move with every row: mixes are kept for steps of one per cent, and what is left over is a debt.
        steps = (round(math.log(max(amount, 1e-9)) / _STEP) for amount in self.setpoint.values())
        return self._at(tuple(steps))

    @cached_property
    def _at(self) -> Callable[[tuple[int, ...]], Any]:
        @lru_cache(4096)
        def at(steps: tuple[int, ...]) -> Any:
            amounts = (math.exp(step * _STEP) for step in steps)
            limits = self._resources.limits(dict(zip(self._held, amounts, strict=True)))
            mix = best_mix(self._policy, limits)
            if mix is None:
                nearest = nearest_limits(self._costs, limits) * (1 + 1e-9)
                mix = within_budgets(self._policy, self._resources, self._resources.named(nearest))
            if isinstance(self._system, Chain):
                return self._system.at(mix)
            return self._system.at_policy(mix)

        return at

    def walk(self, reader: Reader, rows: Ints | None = None, beyond: Chain | None = None) -> Walk:
        """Send rows, all of them by default, as far as the budgets allow, and count what their routes cost."""

        def walk(chain: Chain, rows: Ints) -> tuple[Walk, Floats]:
            walk = chain.walk(reader, rows)
            costs = costs_at_hand(chain, walk) if self._is_at_hand_free else chain.costs(reader, walk)
            return replace(walk, costs=costs), costs

        return joined(self.in_pieces(np.arange(reader.n_samples) if rows is None else rows, walk, beyond))

    def in_pieces(
        self, rows: Ints, run: Callable[[Any, Ints], tuple[Result, Floats]], beyond: Chain | None = None
    ) -> list[Result]:
        """Run rows in pieces, each at an operating point of its own; ``run`` returns costs in each resource, too."""
        results: list[Result] = []
        for first in range(0, max(len(rows), 1), self._max_piece):
            piece = rows[first : first + self._max_piece]
            costs = np.zeros((0, len(self._resources.names)))
            for held in self._held.values():
                held.under_way(len(piece))
            try:
                result, costs = run(beyond or self.chain_at_setpoint, piece)
                results.append(result)
            finally:
                for name, held in self._held.items():
                    held.count(len(piece), costs[:, self._resources.names.index(name)])
        return results


def resources_of(system: Chain | ModelCascade) -> Resources | None:
    """Several resources that a system is priced in, or None."""
    return system.price_list.resources if isinstance(system, Chain) else system.router_.state_.resources


def cost_at_hand(chain: Chain, *, is_free: bool) -> Floats:
    """Cost of a row that came with its columns, by the place that answered it; 0 at -1, where none did."""
    paid = chain.cost_by_place
    if is_free:
        nothing = np.zeros_like(chain.bought_by_place)
        paid = chain.price_list.cost_of_rows(nothing, np.arange(len(paid)) == len(paid) - 1)
    return np.append(paid, 0.0)


def costs_at_hand(chain: Chain, walk: Walk) -> Floats:
    """Cost in each of several resources of rows that came with their columns, which cost nothing."""
    places = chain.places(walk)
    return np.stack([cost_at_hand(each, is_free=True)[places] for each in chain.by_resource], axis=1)


def joined(walks: Sequence[Walk]) -> Walk:
    """Walks of parts of a batch as one, in the order of its rows."""
    if len(walks) == 1:
        return walks[0]
    rows = np.concatenate([walk.rows for walk in walks])
    order = np.argsort(rows)
    behind = [walk.behind for walk in walks if walk.behind is not None]
    nodes = [walk.node for walk in walks if walk.node is not None]
    costs = [walk.costs for walk in walks if walk.costs is not None]
    return Walk(
        rows[order],
        np.concatenate([walk.route for walk in walks])[order],
        np.concatenate([walk.scores for walk in walks])[order],
        joined(behind) if behind else None,
        np.concatenate(nodes)[order] if nodes else None,
        np.concatenate(costs)[order] if costs else None,
    )
