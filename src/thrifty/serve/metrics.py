"""Metrics of Prometheus, the status page, and drift of features."""

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Protocol

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import Metric

from thrifty.arrays import Floats
from thrifty.engine.table.training import Spread
from thrifty.serve.inference_protocol import Answered

BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the buckets of latency, in seconds."""

_BLOCK = 256
"""Rows whose values are counted together: one by one, that would take longer than answering them."""


class Served(Protocol):
    """Facts that metrics and the status page show of a model or router in force.

    Attributes
    ----------
    version : str
        Version, as clients see it.
    cost_of_full, rival : float, str
        Price of a row at the full model, or at the best single model, and its name.
    routes : tuple of str
        Names of the routes that rows can take.
    """

    version: str
    cost_of_full: float
    rival: str
    routes: tuple[str, ...]


class Metrics:
    """Counts since the start. Processes of one gateway share them through files, as prometheus_client does it.

    Attributes
    ----------
    registry : CollectorRegistry
        All metrics of this process.
    n_rows : int
        Rows that this process has answered.
    """

    def __init__(self) -> None:
        self.started, self.n_rows = time.time(), 0
        self.paid_by_resource: dict[str, float] = {}
        self.registry = CollectorRegistry()
        self._gauges: dict[str, Gauge] = {}
        self._published: dict[Any, float] = {}
        self._missing: dict[tuple[str, ...], Floats] = {}
        self._waiting: list[tuple[Any, Floats]] = []
        self._n_waiting = 0

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"thrifty_{name}", about, labels, registry=self.registry)

        self.requests = counter("requests", "Requests, by operation and status.", "operation", "status")
        self.rejected = counter("rejected", "Requests for which there was no room.")
        self.rows = counter("rows", "Rows answered, by route.", "route")
        about = "Rows that the full model did not answer, or for which a purchase failed, by reason."
        self.degraded = counter("degraded_rows", about, "reason")
        self.asked = counter("asked_rows", "Rows that each model of a cascade was asked about.", "model")
        self.spend = counter("spend", "What rows paid.")
        self.unlogged = counter("unlogged_calls", "Calls of models that the log of usage could not take.")
        self.reloads = counter("reloads", "Reloads of the file, by outcome.", "outcome")
        for outcome in ("done", "refused"):
            self.reloads.labels(outcome)  # shown as 0 from the start
        about = "Explored rows, and those among them whose stop and whose full model gave one answer."
        self.explored = counter("explored_rows", about, "outcome")
        self.purchases = counter(
            "purchases", "Rows that columns were needed for, by provider and outcome.", "provider", "outcome"
        )
        self.purchase_failures = counter(
            "purchase_failures", "Purchases that failed, by provider and reason.", "provider", "reason"
        )
        self.remote_calls = counter("remote_calls", "Calls of the remote full model.")
        self.remote_retries = counter("remote_retries", "Calls of it that were tried again.")
        self.remote_failures = counter("remote_failures", "Calls of it that failed, by reason.", "reason")
        self.saved = Gauge(
            "thrifty_saved_total",
            "What rows would have paid more at the full model.",
            registry=self.registry,
            multiprocess_mode="sum",
        )
        about = "Time that requests took, by who answered their dearest row."
        self.latency = Histogram(
            "thrifty_latency_seconds", about, ["route"], registry=self.registry, buckets=BOUNDS
        )
        # Series by their labels: prometheus_client takes longer to find them than to count.
        self.requests_of = cache(self.requests.labels)
        self._rows_of, self._latency_of = cache(self.rows.labels), cache(self.latency.labels)
        self._latency_of("local")  # shown as 0 from the start

    def count(self, model: Any, numbers: Floats, answered: Answered, seconds: float) -> None:
        """Count the rows of one request, by the place that answered them, and its latency."""
        n_rows = len(numbers)
        spend = float(answered.cost[0] if n_rows == 1 else answered.cost.sum())
        self.n_rows += n_rows
        self.spend.inc(spend)
        self.saved.inc(n_rows * model.cost_of_full - spend)
        for name, paid in answered.costs.items():
            self.paid_by_resource[name] = self.paid_by_resource.get(name, 0.0) + float(paid.sum())
        routes = answered.route.tolist()
        for route in set(routes):
            self._rows_of(model.routes[route]).inc(routes.count(route))
        if answered.asked_models is not None:
            asked = answered.asked_models.sum(axis=0).tolist()
            for name, n in zip(model.routes, asked, strict=False):  # no model is asked for the route "none"
                self.asked.labels(name).inc(n)
        for reason, n in answered.reasons.items():
            self.degraded.labels(reason).inc(n)
        self._waiting.append((model, numbers))
        self._n_waiting += n_rows
        if self._n_waiting >= _BLOCK:
            self._count_values()
        route = "degraded" if answered.reasons else "full" if answered.n_sent else "local"
        self._latency_of(route).observe(seconds)

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
        return self._missing.get(names, np.zeros(len(names))) / max(self.n_rows, 1)

    def show(
        self,
        name: str,
        about: str,
        values: Mapping[str, float] | float,
        label: str = "",
        merge: Any = "livemax",
    ) -> None:
        """Set a gauge; ``merge`` says how those of several processes become one."""
        gauge = self._gauges.get(name)
        if gauge is None:
            labels = [label] if label else []
            gauge = Gauge(f"thrifty_{name}", about, labels, registry=self.registry, multiprocess_mode=merge)
            self._gauges[name] = gauge
        if isinstance(values, Mapping):
            for key, value in values.items():
                gauge.labels(key).set(value)
        else:
            gauge.set(values)

    def publish(self, counter: Counter, totals: Mapping[tuple[str, ...], float]) -> None:
        """Raise a counter to totals that are counted elsewhere, by their labels."""
        for labels, total in totals.items():
            series = counter.labels(*labels) if labels else counter
            series.inc(total - self._published.get((counter, labels), 0.0))
            self._published[counter, labels] = total


def status_of(collected: Iterable[Metric], routes: Iterable[str]) -> dict[str, Any]:
    """Counts on the status page, from metrics of one process or of several."""
    samples = [sample for metric in collected for sample in metric.samples]

    def sums(name: str, label: str) -> dict[str, float]:
        totals: dict[str, float] = {}
        for sample in samples:
            if sample.name == f"thrifty_{name}":
                key = sample.labels.get(label, "")
                totals[key] = totals.get(key, 0.0) + sample.value
        return totals

    def total(name: str) -> float:
        return sum(sums(name, "").values())

    rows = sums("rows_total", "route")
    spend, saved = total("spend_total"), total("saved_total")
    return {
        "requests": sums("requests_total", "status"),
        "in_flight": total("in_flight"),
        "is_ready": bool(total("ready")),
        "rejected": total("rejected_total"),
        "rows": sum(rows.values()),
        "routes": [{"route": route, "rows": rows.get(route, 0)} for route in routes],
        "asked": sums("asked_rows_total", "model"),
        "degraded": sums("degraded_rows_total", "reason"),
        "spend": spend,
        "saved": saved,
        "saved_share": saved / (saved + spend) if saved + spend > 0.0 else None,
        "bounds": BOUNDS,
        "latency": dict(_buckets(samples)),
        "reloads": sums("reloads_total", "outcome"),
    }


def _buckets(samples: Iterable[Any]) -> Iterator[tuple[str, list[float]]]:
    """Requests in each bucket of latency, by route."""
    bounds: dict[str, dict[float, float]] = {}
    for sample in samples:
        if sample.name == "thrifty_latency_seconds_bucket":
            bounds.setdefault(sample.labels["route"], {})[float(sample.labels["le"])] = sample.value
    for route, cumulative in bounds.items():
        yield route, np.diff([cumulative[bound] for bound in sorted(cumulative)], prepend=0.0).tolist()


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
