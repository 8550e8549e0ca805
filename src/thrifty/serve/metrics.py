"""What Prometheus and the status page read of the counts of the gateway when they ask."""

import time
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

from thrifty.serve.answering import Model
from thrifty.serve.tally import BOUNDS, Tally

__all__ = ["Collector", "registry_of", "status_of"]


class Collector:
    """The counts as Prometheus reads them.

    Parameters
    ----------
    tally : Tally
        The counts.
    serving : object with ``model`` and ``is_ready``
        What serves now.
    """

    def __init__(self, tally: Tally, serving: Any) -> None:
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


def _called(place: int, model: Model, prefix: str = "") -> str:
    return "nobody" if place < 0 else "full" if place == model.chain.n_stages else f"{prefix}{place}"


def registry_of(tally: Tally, serving: Any) -> CollectorRegistry:
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
