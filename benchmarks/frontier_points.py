"""Frontiers of many operating points: how the time grows with points and rows.

    python benchmarks/frontier_points.py

Every row of every system is a distinct threshold, so points = systems x rows. Choosing is one sort per system and one
over all points; "other rows" scores the chosen points on as many rows again; "band" draws those rows 1,000 times
(100,000 rows: 100 times). Processor seconds, one thread.
"""

import time
import tracemalloc

import numpy as np

from thrifty.engine.evidence.certificate import certify
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.frontier import Frontier


def make_system(seed, n_rows, rows=0):
    """A gate that knows a little about where its cheap side errs; cheaper systems err more."""
    skill = np.random.default_rng(seed).uniform(0.7, 0.9)
    rng = np.random.default_rng([seed, rows])
    cheap = rng.random(n_rows) < skill
    gate = rng.normal(size=n_rows) - cheap
    return Evidence.of_gate(
        gate,
        stop_cost=30 * (skill - 0.65),
        go_cost=20.0,
        stop_quality=cheap,
        go_quality=rng.random(n_rows) < 0.95,
        settings={"seed": seed},
    )


def timed(run):
    start = time.process_time()
    answer = run()
    return answer, time.process_time() - start


def measure(n_systems, n_rows):
    chosen_on = [make_system(seed, n_rows) for seed in range(n_systems)]
    others = [make_system(seed, n_rows, rows=1) for seed in range(n_systems)]
    frontier, choosing = min(
        (timed(lambda: Frontier.from_evidence(chosen_on)) for _ in range(3)), key=lambda one: one[1]
    )
    there, scoring = timed(lambda: frontier.on(others))
    _, asking = timed(lambda: [frontier.best(budget=budget) for budget in np.linspace(10, 20, 100)])
    tracemalloc.start()
    _, banding = timed(lambda: there.band(n_boot=100 if n_rows > 10_000 else 1000))
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    against = Frontier.from_evidence(chosen_on, against_full=True).on(others)
    _, certifying = timed(lambda: certify(against, max_loss=0.05))
    print(
        f"{n_systems:8d} {n_rows:8d} {n_systems * n_rows:9d} {len(frontier):8d} {choosing:9.3f} {scoring:11.3f} "
        f"{10 * asking:12.3f} {banding:6.2f} {peak:8.0f} {certifying:9.3f}"
    )


def main():
    print(" systems     rows    points     kept  choosing  other rows  best (ms)     band  band MB   certify")
    for n_systems, n_rows in (
        (10, 10_000),
        (20, 10_000),
        (40, 10_000),
        (100, 1000),
        (100, 2000),
        (1, 100_000),
    ):
        measure(n_systems, n_rows)


if __name__ == "__main__":
    main()
