"""The status page: what the gateway spends, who answers and how fast, once a second."""

import time
from pathlib import Path
from typing import Any

from thrifty.serve.metrics import BOUNDS
from thrifty.serve.reload import Serving

__all__ = ["PAGE", "status_of"]

PAGE = Path(__file__).with_name("status.html")
"""One page without anything to build; it asks for the data below once a second."""


def status_of(serving: Serving) -> dict[str, Any]:
    """What the page shows, as plain data."""
    tally, model = serving.tally, serving.model
    places = [*range(model.chain.n_stages), model.chain.n_stages, -1]
    remote, controller = model.remote, model.controller
    return {
        "name": serving.config.name,
        "version": model.version,
        "is_ready": serving.is_ready,
        "seconds": time.time() - tally.started,
        "requests": _summed((str(status), n) for (_, status), n in tally.requests.items()),
        "in_flight": tally.in_flight,
        "turned_away": dict(tally.turned_away),
        "rows": tally.rows,
        "routes": [
            {"route": _called(place, model.chain.n_stages), "rows": tally.routes[place]} for place in places
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


def _called(place: int, n_stages: int) -> str:
    return "nobody" if place < 0 else "full model" if place == n_stages else f"stage {place}"


def _summed(pairs: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for key, n in pairs:
        found[key] = found.get(key, 0) + n
    return found
