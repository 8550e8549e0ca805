"""What the gateway has done so far, in plain numbers."""

import time
from bisect import bisect_left
from collections import Counter

import numpy as np

from thrifty.arrays import Floats
from thrifty.serve.answered import Answered
from thrifty.serve.answering import Model

__all__ = ["BOUNDS", "Tally"]

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
        self._waiting: list[tuple[Model, Floats]] = []
        self._n_waiting = 0

    def answered(self, model: Model, numbers: Floats, answered: Answered, seconds: float) -> None:
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

    def missing_of(self, model: Model) -> Floats:
        """How many rows lacked each column of a model; how these rows are spread is known afterwards too."""
        self._look()
        return self._missing.get(model.rows.names, np.zeros(len(model.rows.names)))

    def took(self, route: str, seconds: float) -> None:
        """Count how long a request took."""
        counts = self.latency.setdefault(route, [0] * (len(BOUNDS) + 1))
        counts[bisect_left(BOUNDS, seconds)] += 1
        self.latency_sum[route] += seconds  # type: ignore[assignment]
