"""Metrics of Prometheus, the status page, and drift of features."""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
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
from thrifty.engine.table.drift import Spread
from thrifty.serve.inference_protocol import Answered

__all__ = ["BOUNDS", "Drift", "Metrics", "registry_of", "stability_index", "status_of"]

BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the buckets of latency, in seconds."""

_BLOCK = 256
"""Rows whose values are counted together: one by one, that would take longer than answering them."""


class Metrics:
    """Counts since the start, as plain numbers: those of prometheus_client would add five percent to a request."""

    def __init__(self) -> None:
        self.started = time.time()
        self.requests: Counter[tuple[str, int]] = Counter()  # by operation and status
        self.turned_away: Counter[str] = Counter()
        self.routes: Counter[int] = Counter()
        self.degraded: Counter[str] = Counter()
        self.reloads = Counter({"done": 0, "refused": 0})
        self.explored = Counter({"compared": 0, "agreed": 0})
        self.rows, self.spend, self.saved = 0, 0.0, 0.0
        self.latency: dict[str, list[int]] = {}
        self.seconds: dict[str, float] = {}
        self._missing: dict[tuple[str, ...], Floats] = {}
        self._waiting: list[tuple[Any, Floats]] = []
        self._n_waiting = 0

    def count(self, model: Any, numbers: Floats, answered: Answered, seconds: float) -> None:
        """Count the rows of one request, by the place that answered them, and its latency."""
        n_rows = len(numbers)
        spend = float(answered.cost[0] if n_rows == 1 else answered.cost.sum())
        self.rows += n_rows
        self.spend += spend
        self.saved += n_rows * model.cost_of_full - spend
        if n_rows == 1:
            self.routes[int(answered.route[0])] += 1
        else:
            self.routes.update(answered.route.tolist())
        if answered.reasons:
            self.degraded.update(answered.reasons)
        self._waiting.append((model, numbers))
        self._n_waiting += n_rows
        if self._n_waiting >= _BLOCK:
            self._count_values()
        route = "degraded" if answered.reasons else "full" if answered.n_sent else "local"
        buckets = self.latency.setdefault(route, [0] * (len(BOUNDS) + 1))
        buckets[bisect_left(BOUNDS, seconds)] += 1
        self.seconds[route] = self.seconds.get(route, 0.0) + seconds

    def _count_values(self) -> None:
        """Count missing values and bins of the rows of the latest requests."""
        waiting, self._waiting, self._n_waiting = self._waiting, [], 0
        for model in dict.fromkeys(model for model, _ in waiting):
            numbers = np.concatenate([rows for of, rows in waiting if of is model])
            names = model.rows.names
            missing = self._missing.setdefault(names, np.zeros(len(names)))
            missing += np.isnan(numbers).sum(axis=0)
            if model.drift is not None:
                model.drift.update(numbers)

    def missing_share(self, names: tuple[str, ...]) -> Floats:
        """Share of rows that lacked each of the columns; the drift is up to date afterwards too."""
        self._count_values()
        return self._missing.get(names, np.zeros(len(names))) / max(self.rows, 1)


def registry_of(gateway: Any) -> CollectorRegistry:
    """Prometheus registry of the counts and of the state of the gateway."""
    registry = CollectorRegistry()
    registry.register(_Collector(gateway))
    return registry


class _Collector:
    """The metrics of a gateway as Prometheus reads them."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway

    def collect(self) -> Iterator[Metric]:
        """Every metric."""
        gateway, model, metrics = self._gateway, self._gateway.model, self._gateway.metrics
        yield _counter(
            "requests", "Requests, by operation and status.", metrics.requests, "operation", "status"
        )
        yield _counter("turned_away", "Requests refused by the limiter.", metrics.turned_away, "reason")
        routes = {model.route_name(route): n for route, n in metrics.routes.items()}
        yield _counter("rows", "Rows answered, by route.", routes, "route")
        about = "Rows that the full model did not answer, or for which a purchase failed, by reason."
        yield _counter("degraded_rows", about, metrics.degraded, "reason")
        yield _counter("spend", "What rows paid.", {(): metrics.spend})
        about = "What rows would have paid more at the full model."
        yield _counter("saved", about, {(): max(metrics.saved, 0.0)})
        yield _counter("reloads", "Reloads of the file, by outcome.", metrics.reloads, "outcome")
        about = "Rows that the full model was asked about to compare, and where both agreed."
        yield _counter("explored_rows", about, metrics.explored, "outcome")
        about = "Time that requests took, by who answered their dearest row."
        latency = HistogramMetricFamily("thrifty_latency_seconds", about, labels=["route"])
        for route, buckets in metrics.latency.items():
            bounds = zip((*map(str, BOUNDS), "+Inf"), np.cumsum(buckets).tolist(), strict=True)
            latency.add_metric([route], list(bounds), metrics.seconds[route])
        yield latency
        yield _gauge("in_flight", "Requests under way.", {(): gateway.limiter.in_flight.now})
        yield _gauge("ready", "Whether the gateway answers.", {(): gateway.is_ready})
        names = model.rows.names
        missing = dict(zip(names, metrics.missing_share(names).tolist(), strict=True))
        about = "Share of rows in which a feature is missing or was not sent."
        yield _gauge("missing_share", about, missing, "feature")
        if model.drift is not None:
            drift = dict(zip(names, model.drift.by_column().tolist(), strict=True))
            about = "Population-stability index of a feature against the rows of the fit; above 0.25 it has drifted."
            yield _gauge("drift", about, drift, "feature")
        if model.providers:
            yield from _purchases(model.providers)
        if model.remote is not None:
            yield from _remote(model.remote)
        if model.controller is not None:
            for name, about in (
                ("target", "Mean cost per row that is to be spent."),
                ("mean_spend", "Mean cost per row of late."),
                ("setpoint", "Mean cost of the operating point in force."),
                ("capped", "Whether the cap keeps rows from the full model."),
            ):
                yield _gauge(f"budget_{name}", about, {(): getattr(model.controller, name)})


def _purchases(providers: Any) -> Iterator[Metric]:
    outcomes = {(one.name, key): n for one in providers for key, n in dict(one.outcomes).items()}
    about = "Rows that columns were needed for, by provider and outcome."
    yield _counter("purchases", about, outcomes, "provider", "outcome")
    failures = {(one.name, key): n for one in providers for key, n in dict(one.failures).items()}
    about = "Purchases that failed, by provider and reason."
    yield _counter("purchase_failures", about, failures, "provider", "reason")


def _remote(remote: Any) -> Iterator[Metric]:
    yield _counter("remote_calls", "Calls of the remote full model.", {(): remote.calls})
    yield _counter("remote_retries", "Calls of it that were tried again.", {(): remote.retries})
    yield _counter("remote_failures", "Calls of it that failed, by reason.", remote.failures, "reason")
    yield _gauge("remote_in_flight", "Calls of it under way.", {(): remote.breaker.in_flight})
    yield _gauge("breaker_open", "Whether its breaker is not closed.", {(): remote.breaker.state != "closed"})


def _counter(name: str, about: str, values: Mapping[Any, float], *labels: str) -> Metric:
    return _filled(CounterMetricFamily(f"thrifty_{name}", about, labels=labels), values)


def _gauge(name: str, about: str, values: Mapping[Any, float], *labels: str) -> Metric:
    return _filled(GaugeMetricFamily(f"thrifty_{name}", about, labels=labels), values)


def _filled(family: Any, values: Mapping[Any, float]) -> Metric:
    """A family of metrics with values by their labels: a tuple, or the only label."""
    for key, value in values.items():
        family.add_metric([str(one) for one in (key if isinstance(key, tuple) else (key,))], float(value))
    metric: Metric = family
    return metric


def status_of(gateway: Any) -> dict[str, Any]:
    """Contents of the status page, as plain data."""
    metrics, model = gateway.metrics, gateway.model
    remote, controller = model.remote, model.controller
    places = [*range(model.chain.n_stages + 1), -1]
    statuses: Counter[str] = Counter()
    for (_, status), n in metrics.requests.items():
        statuses[str(status)] += n
    return {
        "name": gateway.config.name,
        "version": model.version,
        "is_ready": gateway.is_ready,
        "seconds": time.time() - metrics.started,
        "requests": statuses,
        "in_flight": gateway.limiter.in_flight.now,
        "turned_away": metrics.turned_away,
        "rows": metrics.rows,
        "routes": [{"route": model.route_name(one), "rows": metrics.routes[one]} for one in places],
        "degraded": metrics.degraded,
        "spend": metrics.spend,
        "saved": metrics.saved,
        "cost_of_full": model.cost_of_full,
        "budget": gateway.budget,
        "mean_spend": getattr(controller, "mean_spend", None),
        "setpoint": getattr(controller, "setpoint", None),
        "capped": getattr(controller, "capped", None),
        "breaker": None if remote is None else remote.breaker.state,
        "on_remote_failure": gateway.config.on_remote_failure,
        "bounds": BOUNDS,
        "latency": metrics.latency,
        "reloads": metrics.reloads,
    }


MIN_VALUES = 500
"""With fewer new values chance alone moves the index by more than 0.02."""

FLOOR = 1e-4
"""Lower bound of the share of a bin: the logarithm of an empty one would be infinite."""


def stability_index(new: Floats, training: Floats) -> Floats:
    """Population-stability index of some columns, from shares of bins of shape (n_columns, n_bins)."""
    p, q = np.maximum(new, FLOOR), np.maximum(training, FLOOR)
    index: Floats = ((p - q) * np.log(p / q)).sum(axis=1)
    return index


class Drift:
    """Compares the latest rows with those of the fit.

    Missing values do not count: a request carries the columns that its client has.

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

    def update(self, numbers: Floats) -> None:
        """Count some rows, shape (n_rows, n_columns); NaN is missing."""
        self._new = self._new + self._spread.counts(numbers)
        self._n_new += len(numbers)
        if self._n_new >= self._window:
            self._old, self._new, self._n_new = self._new, np.zeros_like(self._new), 0

    def by_column(self) -> Floats:
        """Population-stability index of each column; NaN where too few values have come, or the fit had none."""
        counts = self._old + self._new
        n_values = counts.sum(axis=1)
        index = stability_index(counts / np.maximum(n_values, 1)[:, None], self._spread.shares)
        index[(n_values < MIN_VALUES) | (self._spread.shares.sum(axis=1) == 0)] = np.nan
        return index
