"""What the gateway observes: load, counts, latency, drift; and how Prometheus and the status page read it."""

import asyncio
import logging
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from thrifty.arrays import Floats
from thrifty.serve.config import Config
from thrifty.serve.protocol import Answered
from thrifty.tables.spread import Spread

__all__ = [
    "BOUNDS",
    "ActiveCount",
    "Collector",
    "Drift",
    "Load",
    "Tally",
    "registry_of",
    "stability_index",
    "status_of",
]

LOG = logging.getLogger("thrifty.serve")


class Collector:
    """The counts as Prometheus reads them.

    Parameters
    ----------
    tally : Tally
        The counts.
    serving : object with ``model`` and ``is_ready``
        What serves now.
    """

    def __init__(self, tally: "Tally", serving: Any) -> None:
        self._tally = tally
        self._serving = serving

    def collect(self) -> Iterator[Metric]:
        """Every metric."""
        tally = self._tally
        yield _counter(
            "requests",
            "Requests answered, by operation and status.",
            ["operation", "status"],
            (([operation, str(status)], n) for (operation, status), n in tally.requests.items()),
        )
        yield _counter(
            "turned_away",
            "Requests that were turned away unread, by reason.",
            ["reason"],
            _each(tally.turned_away),
        )
        yield _counter(
            "rows",
            "Rows answered, by route.",
            ["route"],
            (([_called(route, self._serving.model)], n) for route, n in tally.routes.items()),
        )
        yield _counter(
            "degraded_rows",
            "Rows that the full model did not answer, or for which a purchase failed, by reason.",
            ["reason"],
            _each(tally.degraded),
        )
        yield _counter("spend", "What rows paid.", [], [([], tally.spend)])
        yield _counter(
            "saved", "What rows would have paid more at the full model.", [], [([], max(tally.saved, 0.0))]
        )
        yield _counter("reloads", "Reloads of the file, by outcome.", ["outcome"], _each(tally.reloads))
        yield _counter(
            "explored_rows",
            "Rows that the full model was asked about to compare, and where both agreed.",
            ["outcome"],
            _each(tally.explored),
        )
        yield _gauge("in_flight", "Requests under way.", [], [([], self._serving.load.in_flight.now)])
        yield _gauge("ready", "Whether the gateway answers.", [], [([], int(self._serving.is_ready))])
        yield self._latency()
        yield self._missing()
        if self._serving.model.drift is not None:
            yield self._drift()
        if self._serving.model.providers:
            yield from _providers(self._serving.model.providers)
        yield from _remote(self._serving.model.remote)
        yield from _controller(self._serving.model.controller)

    def _latency(self) -> Metric:
        family = HistogramMetricFamily(
            "thrifty_latency_seconds",
            "Time that requests took, by who answered their dearest row.",
            labels=["route"],
        )
        for route, counts in self._tally.latency.items():
            family.add_metric([route], _buckets(counts), self._tally.latency_sum[route])
        return family

    def _missing(self) -> Metric:
        model = self._serving.model
        names, shares = model.rows.names, self._tally.missing_of(model) / max(self._tally.rows, 1)
        return _gauge(
            "missing_share",
            "Share of rows in which a feature is missing or was not sent.",
            ["feature"],
            (([name], share) for name, share in zip(names, shares.tolist(), strict=True)),
        )

    def _drift(self) -> Metric:
        model = self._serving.model
        index = model.drift.by_column().tolist()
        words = (
            "Population-stability index of a feature against the rows of the fit; above 0.25 it has drifted."
        )
        pairs = zip(model.rows.names, index, strict=True)
        return _gauge("drift", words, ["feature"], (([name], value) for name, value in pairs))


def status_of(serving: Any) -> dict[str, Any]:
    """What the status page shows, as plain data."""
    tally, model = serving.tally, serving.model
    places = [*range(model.chain.n_stages + 1), -1]
    statuses: Counter[str] = Counter()
    for (_, status), n in tally.requests.items():
        statuses[str(status)] += n
    remote, controller = model.remote, model.controller
    return {
        "name": serving.config.name,
        "version": model.version,
        "is_ready": serving.is_ready,
        "seconds": time.time() - tally.started,
        "requests": dict(statuses),
        "in_flight": serving.load.in_flight.now,
        "turned_away": dict(tally.turned_away),
        "rows": tally.rows,
        "routes": [
            {"route": _called(place, model, "stage "), "rows": tally.routes[place]} for place in places
        ],
        "degraded": dict(tally.degraded),
        "spend": tally.spend,
        "saved": tally.saved,
        "cost_of_full": model.cost_of_full,
        "budget": serving.budget,
        "mean_spend": getattr(controller, "mean_spend", None),
        "setpoint": getattr(controller, "setpoint", None),
        "capped": getattr(controller, "capped", None),
        "full": "in the file" if remote is None else str(serving.config.full or "remote"),
        "breaker": None if remote is None else str(getattr(getattr(remote, "breaker", None), "state", "")),
        "on_remote_failure": serving.config.on_remote_failure,
        "bounds": BOUNDS,
        "latency": tally.latency,
        "explored": tally.explored,
        "reloads": tally.reloads,
    }


def _called(place: int, model: Any, prefix: str = "") -> str:
    return "nobody" if place < 0 else "full" if place == model.chain.n_stages else f"{prefix}{place}"


def registry_of(tally: "Tally", serving: Any) -> CollectorRegistry:
    """What an exporter of Prometheus reads."""
    registry = CollectorRegistry()
    registry.register(Collector(tally, serving))
    return registry


def _providers(providers: Iterable[Any]) -> Iterator[Metric]:
    for name, words, kind in (
        ("purchases", "Rows that columns were needed for, by provider and outcome.", "outcome"),
        ("purchase_failures", "Purchases that failed, by provider and reason.", "reason"),
    ):
        counts = [(one.name, one.outcomes if kind == "outcome" else one.failures) for one in providers]
        pairs = (([who, key], n) for who, found in counts for key, n in dict(found).items())
        yield _counter(name, words, ["provider", kind], pairs)


def _remote(remote: Any) -> Iterator[Metric]:
    if remote is None:
        return
    for name, words in (
        ("calls", "Calls of the remote full model."),
        ("retries", "Calls of the remote full model that were tried again."),
    ):
        yield _counter(f"remote_{name}", words, [], [([], getattr(remote, name))])
    yield _counter(
        "remote_failures",
        "Calls of the remote full model that failed, by reason.",
        ["reason"],
        _each(remote.failures),
    )
    yield _gauge(
        "remote_in_flight", "Calls of the remote full model under way.", [], [([], remote.in_flight)]
    )
    state = str(getattr(remote.breaker, "state", "unknown"))
    yield _gauge(
        "breaker_open", "Whether the remote full model is left alone.", [], [([], int(state != "closed"))]
    )


def _controller(controller: Any) -> Iterator[Metric]:
    if controller is None:
        return
    for name, words in (
        ("target", "Mean cost per row that is to be spent."),
        ("mean_spend", "Mean cost per row of late."),
        ("setpoint", "Mean cost of the operating point in force."),
        ("capped", "Whether the cap keeps rows from the full model."),
    ):
        value = getattr(controller, name)
        yield _gauge(f"budget_{name}", words, [], [([], float("nan") if value is None else float(value))])


def _buckets(counts: list[int]) -> list[tuple[str, float]]:
    return [(str(bound), n) for bound, n in zip((*BOUNDS, "+Inf"), np.cumsum(counts).tolist(), strict=True)]


def _each(counts: Any) -> Iterator[tuple[list[str], float]]:
    return (([key], n) for key, n in counts.items())


def _counter(name: str, words: str, labels: list[str], values: Iterable[tuple[list[str], float]]) -> Metric:
    family = CounterMetricFamily(f"thrifty_{name}", words, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def _gauge(name: str, words: str, labels: list[str], values: Iterable[tuple[list[str], float]]) -> Metric:
    family = GaugeMetricFamily(f"thrifty_{name}", words, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the classes of latency, in seconds."""

_BLOCK = 256  # rows that are looked at together


class Tally:
    """Counts since the start."""

    def __init__(self) -> None:
        self.started = time.time()
        self.requests: Counter[tuple[str, int]] = Counter()
        self.turned_away: Counter[str] = Counter()
        self.routes: Counter[int] = Counter()
        self.degraded: Counter[str] = Counter()
        self.rows = 0
        self.spend = 0.0
        self.saved = 0.0
        self.reloads = {"done": 0, "refused": 0}
        self.explored = {"compared": 0, "agreed": 0}
        self.latency: dict[str, list[int]] = {}
        self.latency_sum: Counter[str] = Counter()
        self._missing: dict[tuple[str, ...], Floats] = {}
        self._waiting: list[tuple[Any, Floats]] = []
        self._n_waiting = 0

    def answered(self, model: Any, numbers: Floats, answered: Answered, seconds: float) -> None:
        """Count the rows of one request, by who answered them, and its latency, by the dearest route in it."""
        n_rows = len(numbers)
        spend = float(answered.cost[0] if n_rows == 1 else answered.cost.sum())
        self.rows += n_rows
        self.spend += spend
        self.saved += n_rows * model.cost_of_full - spend
        if n_rows == 1:
            self.routes[int(answered.route[0])] += 1
        else:
            self.routes.update(answered.route.tolist())
        for reason, n in answered.reasons.items():
            self.degraded[reason] += n
        # One by one, counting what rows hold would take longer than answering them.
        self._waiting.append((model, numbers))
        self._n_waiting += n_rows
        if self._n_waiting >= _BLOCK:
            self._look()
        self.took("degraded" if answered.reasons else "full" if answered.n_sent else "local", seconds)

    def _look(self) -> None:
        """Count what the rows of the latest requests hold."""
        waiting, self._waiting, self._n_waiting = self._waiting, [], 0
        for model in dict.fromkeys(model for model, _ in waiting):
            numbers = np.concatenate([rows for of, rows in waiting if of is model])
            names = model.rows.names
            missing = self._missing.setdefault(names, np.zeros(len(names)))
            missing += np.isnan(numbers).sum(axis=0)
            if model.drift is not None:
                model.drift.saw(numbers)

    def missing_of(self, model: Any) -> Floats:
        """How many rows lacked each column of a model; how these rows are spread is known afterwards too."""
        self._look()
        return self._missing.get(model.rows.names, np.zeros(len(model.rows.names)))

    def took(self, route: str, seconds: float) -> None:
        """Count how long a request took."""
        counts = self.latency.setdefault(route, [0] * (len(BOUNDS) + 1))
        counts[bisect_left(BOUNDS, seconds)] += 1
        self.latency_sum[route] += seconds  # type: ignore[assignment]


_LEARNING_INTERVAL = 0.05
"""Seconds between two measurements of what requests cost."""

_FIRST_COST = 5e-4
"""What a request of one row costs on a common machine, until more is known."""

_MAX_GROWTH, _LEARNING_RATE = 2.0, 0.25
"""How many times dearer the latest requests may look, and how much they count."""


class ActiveCount:
    """Counts the requests inside ``with count:``; ``now`` are inside, ``finished`` have left."""

    def __init__(self) -> None:
        self.now = self.finished = 0

    def __enter__(self) -> None:
        self.now += 1

    def __exit__(self, *_: object) -> None:
        self.now -= 1
        self.finished += 1


class Load:
    """Requests under way, what one of them costs, and whether one more is too many.

    Parameters
    ----------
    config : Config
        ``max_in_flight`` and ``max_delay``.

    Attributes
    ----------
    in_flight : ActiveCount
        Requests that came whole and are not answered yet.
    waiting : ActiveCount
        Those among them that wait for the full model or for a provider.
    reading : dict of asyncio.Task to float
        Requests whose bodies are being read, and since when.
    cost : float
        Seconds of the processor that a request took of late, in the thread that answers.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self.in_flight, self.waiting = ActiveCount(), ActiveCount()
        self.reading: dict[asyncio.Task[None] | None, float] = {}
        self.cost = _FIRST_COST

    @property
    def excess(self) -> str | None:
        """Why one more request is too many, in a word that can be counted; None if it is not."""
        if self.in_flight.now >= self._config.max_in_flight:
            return "in_flight"
        if (self.in_flight.now - self.waiting.now) * self.cost > self._config.max_delay:
            return "busy"
        return None

    async def run(self) -> None:
        """Learn what a request costs, and cut off slow bodies, until cancelled."""
        began, used, finished = time.perf_counter(), time.thread_time(), self.in_flight.finished
        while True:
            await asyncio.sleep(_LEARNING_INTERVAL)
            before, began = began, time.perf_counter()
            used_before, used = used, time.thread_time()
            n_finished, finished = self.in_flight.finished - finished, self.in_flight.finished
            self.learn(began - before, used - used_before, n_finished)
            self._cut_off()

    def _cut_off(self) -> None:
        """Cancel requests whose bodies take too long; they see that they are no longer among those that are read."""
        since = asyncio.get_running_loop().time() - self._config.body_timeout
        for task in [task for task, began in self.reading.items() if began < since]:
            del self.reading[task]
            if task is not None:
                task.cancel()

    def learn(self, seconds: float, used: float, n_finished: int) -> None:
        """Learn from some time of which so much was used, while so many requests were answered.

        While there is little to do, other things than requests take most of what is used, and nothing is learned.
        """
        if n_finished and used > seconds / 2:
            # One collection of garbage must not look like dear requests.
            latest = min(used / n_finished, _MAX_GROWTH * self.cost)
            self.cost += _LEARNING_RATE * (latest - self.cost)


LEAST_VALUES = 500
"""With fewer new values chance alone moves the index by more than 0.02."""

FLOOR = 1e-4
"""The least share of a bin: the logarithm of an empty one would be infinite."""


def stability_index(new: Floats, training: Floats) -> Floats:
    """Population-stability index of some columns, from shares of bins of shape (n_columns, n_bins)."""
    p, q = np.maximum(new, FLOOR), np.maximum(training, FLOOR)
    index: Floats = ((p - q) * np.log(p / q)).sum(axis=1)
    return index


class Drift:
    """Compares the latest rows with those of the fit.

    Missing values have no say: a request carries what is at hand, and what it lacks says nothing about the rest.

    Parameters
    ----------
    spread : Spread
        How the columns were spread in the fit.
    window : int
        About how many of the latest rows count: at least so many, and at most twice as many.
    """

    def __init__(self, spread: Spread, window: int = 10_000) -> None:
        self._spread, self._window = spread, window
        self._n_new = 0
        self._old = self._new = np.zeros(spread.shares.shape, dtype=np.int64)

    def saw(self, numbers: Floats) -> None:
        """Take note of some rows, shape (n_rows, n_columns); NaN is missing."""
        self._new = self._new + self._spread.counts(numbers)
        self._n_new += len(numbers)
        if self._n_new >= self._window:
            self._old, self._new, self._n_new = self._new, np.zeros_like(self._new), 0

    def by_column(self) -> Floats:
        """Population-stability index of each column; NaN where too few values have come, or the fit had none."""
        counts = self._old + self._new
        n_values = counts.sum(axis=1)
        index = stability_index(counts / np.maximum(n_values, 1)[:, None], self._spread.shares)
        index[(n_values < LEAST_VALUES) | (self._spread.shares.sum(axis=1) == 0)] = np.nan
        return index
