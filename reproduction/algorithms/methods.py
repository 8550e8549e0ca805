"""Who chooses: thrifty's plan, plain alternatives, and selectors of ``asf``; each returns a schedule for each row.

A schedule is a list of what is done one after the other: the name of a feature step, or an algorithm and the seconds
that it gets.
"""

import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd

from reproduction.algorithms.scenario import Scenario
from thrifty import ModelRouter, Prices
from thrifty.arrays import Ints
from thrifty.errors import InvalidInputError
from thrifty.learners.routing.quality import fit_runtime_model

Schedule = list[str | tuple[str, float]]
Method = Callable[[Scenario, Ints, Ints], list[Schedule]]


def plan(scenario: Scenario, learn: Ints, new: Ints) -> list[Schedule]:
    """``ModelRouter`` of run times; the price of a feature step is its mean time, steps that it requires included."""
    steps = sorted(set(scenario.groups.values()))
    closed = {step: scenario.closure(step) for step in steps}
    seconds = pd.DataFrame({step: scenario.feature_seconds[closed[step]].sum(axis=1) for step in steps})
    mean = {step: max(float(seconds[step].iloc[learn].mean()), 1e-6) for step in steps}
    alone = scenario.feature_seconds.iloc[learn].mean()
    after = {
        step: {
            other: min(
                float(alone[[one for one in closed[step] if one not in closed[other]]].sum()), mean[step]
            )
            for other in steps
            if other != step and set(closed[step]) & set(closed[other])
        }
        for step in steps
    }
    runs = scenario.seconds.where(scenario.solved, np.inf)
    runs = runs.join(pd.DataFrame(np.where(scenario.presolved[steps], 0.0, np.inf), runs.index, steps))
    router = ModelRouter(
        list(scenario.seconds.columns),
        prices=Prices({name: mean[step] for name, step in scenario.groups.items()}, groups=scenario.groups),
        outcome="runtime",
        cutoff=scenario.cutoff,
        after={step: others for step, others in after.items() if others},
    )
    router.fit(scenario.X.iloc[learn], runs.iloc[learn], seconds.iloc[learn])
    return [_schedule(router, scenario, row) for row in new]


def _schedule(router: ModelRouter, scenario: Scenario, row: int) -> Schedule:
    """What a session of a row asks for while nothing solves it."""
    session, computed = router.start(), list[str]()
    schedule: Schedule = []
    cells, seconds = scenario.X.iloc[row], scenario.feature_seconds.iloc[row]
    while (wanted := session.next_purchase) is not None:
        if not wanted.columns:
            limit = scenario.cutoff if wanted.limit is None else wanted.limit
            schedule.append((wanted.name, limit))
            session.fail(cost=limit)
            continue
        steps = [step for step in scenario.closure(wanted.name) if step not in computed]
        computed += steps
        schedule.append(wanted.name)
        session.give(cells[list(wanted.columns)].to_dict(), cost=float(seconds[steps].sum()))
    return schedule


def no_features(scenario: Scenario, learn: Ints, new: Ints) -> list[Schedule]:
    """The best single algorithm of the rows to learn from."""
    best = scenario.seconds.columns[scenario.scores[learn].mean(axis=0).argmin()]
    return [[(best, scenario.cutoff)]] * len(new)


def cheapest_group(scenario: Scenario, learn: Ints, new: Ints) -> list[Schedule]:
    """The cheapest feature step for every row, then the best algorithm by the predictor of the plan."""
    steps = sorted(set(scenario.groups.values()))
    cost = [
        float(scenario.feature_seconds[scenario.closure(step)].iloc[learn].sum(axis=1).mean())
        for step in steps
    ]
    step = steps[int(np.argmin(cost))]
    read = [name for name, own in scenario.groups.items() if own in scenario.closure(step)]
    Z = scenario.X[read].to_numpy(dtype=np.float64)
    quality = 1.0 - scenario.scores / (10 * scenario.cutoff)
    model = fit_runtime_model(Z[learn], quality[learn], scenario.seconds.to_numpy()[learn], 0)[0]
    chosen = scenario.seconds.columns[np.round(model.predict(Z[new])[0], 6).argmax(axis=1)]
    return [[step, (name, scenario.cutoff)] for name in chosen]


def _asf(selector: str, presolver: str | None = None) -> Method:
    """A selector of ``asf`` with its defaults, all features computed first; perhaps with a static schedule before."""

    def method(scenario: Scenario, learn: Ints, new: Ints) -> list[Schedule]:
        try:
            from asf import selectors
            from asf.presolving.static_3s import Static3S
        except ImportError as error:
            raise InvalidInputError(f"{selector} is a selector of asf: pip install asf==0.1.8.") from error
        performance = pd.DataFrame(scenario.scores, scenario.seconds.index, scenario.seconds.columns)
        steps = {
            step: {"provides": scenario.provided(step)} for step in sorted(set(scenario.groups.values()))
        }
        how = {"budget": scenario.cutoff, "maximize": False, "random_state": 0}
        before = None if presolver is None else Static3S(budget=scenario.cutoff, random_state=0)
        pipeline = selectors.SelectorPipeline(
            getattr(selectors, selector)(**how), feature_groups=steps, pre_solving=before, random_state=0
        )
        X = scenario.X.astype(np.float64)
        X = X.loc[:, X.iloc[learn].notna().any(axis=0)]
        steps = {
            step: {"provides": [name for name in one["provides"] if name in X]} for step, one in steps.items()
        }
        pipeline.feature_groups = steps
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pipeline.fit(X.iloc[learn], performance.iloc[learn])
            found = pipeline.predict(X.iloc[new])
        return [found[name] for name in X.index[new]]

    return method


METHODS: dict[str, Method] = {
    "thrifty": plan,
    "no features": no_features,
    "cheapest group first": cheapest_group,
    "pairwise forests": _asf("PairwiseClassifier"),
    "pairwise regression": _asf("PairwiseRegressor"),
    "SUNNY": _asf("SUNNY"),
    "ISAC": _asf("ISAC"),
    "performance model, presolved": _asf("PerformanceModel", "Static3S"),
}
