"""The user's models: ``CascadeClassifier`` and ``CascadeRegressor`` against thresholds that everyone writes first.

    python benchmarks/own_models.py [letter covtype miniboone satimage cpu_act pol] [--seeds 3] [--columns noise none]
    python benchmarks/own_models.py networks | specialists | autogluon | seconds | decision

Data lie in THRIFTY_DATA (default ../shared/data). Models are fitted once, in four folds and on all rows for fitting;
their answers are kept in THRIFTY_CACHE (default a temporary folder), and all designs read the same ones. Budgets are
shares of the price of the best single model out of fold. Rivals choose out of fold among all single models, pairs and
triples, each threshold one of 40 quantiles of confidence, and mix two settings, so that the budget is spent:
``thresholds`` answer with the last model asked, ``combined`` with the mean of all that were asked. A number is as sure
as numbers like it were right on average, and after two models as they are near each other. ``in front`` (``--front``,
first seed) is a ``Budgeted*`` fit before the best single model, whose stages cost nothing here. Gains are over the
better of both thresholds at each budget on test rows, in favour of the rivals, with errors of paired differences.
"""

import argparse
import os
import tempfile
import time
import warnings
from collections import Counter
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import thrifty
from thrifty.engine.evidence.thresholds import convex_hull

DATA = Path(os.environ.get("THRIFTY_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
CACHE = Path(os.environ.get("THRIFTY_CACHE", Path(tempfile.gettempdir()) / "thrifty_own_models"))
SHARES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75)
CLASSIFIERS = {
    "bayes": GaussianNB(),
    "tree": DecisionTreeClassifier(max_depth=8, random_state=0),
    "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)),
    "neighbours": make_pipeline(StandardScaler(), KNeighborsClassifier(10)),
    "boosting10": HistGradientBoostingClassifier(max_iter=10, random_state=0),
    "boosting30": HistGradientBoostingClassifier(max_iter=30, random_state=0),
    "boosting100": HistGradientBoostingClassifier(max_iter=100, random_state=0),
    "kernel": make_pipeline(StandardScaler(), SVC(C=10.0, probability=True, random_state=0)),
    "forest": RandomForestClassifier(500, random_state=0),
}
REGRESSORS = {
    "ridge": make_pipeline(StandardScaler(), Ridge()),
    "tree": DecisionTreeRegressor(max_depth=8, random_state=0),
    "neighbours": make_pipeline(StandardScaler(), KNeighborsRegressor(10)),
    "boosting30": HistGradientBoostingRegressor(max_iter=30, random_state=0),
    "boosting300": HistGradientBoostingRegressor(max_iter=300, random_state=0),
    "forest": RandomForestRegressor(500, random_state=0),
}
TABLES = {
    "letter": ("letter", 5_000, (2.6, 0.17, 0.72, 19, 12, 29, 130, 170, 120)),
    "covtype": ("covtype", 4_000, (1.8, 0.19, 0.77, 22, 3.3, 12, 36, 200, 110)),
    "miniboone": ("miniboone_5k", 3_000, (0.84, 0.21, 0.52, 15, 1.0, 1.7, 5.9, 55, 65)),
    "satimage": ("satimage", 4_000, (1.2, 0.16, 0.56, 19, 3.2, 9.6, 33, 77, 71)),
    "cpu_act": ("cpu_act", 5_000, (0.5, 0.23, 20, 1.9, 15, 120)),
    "pol": ("pol", 4_000, (0.34, 0.14, 14, 1.3, 15, 55)),
}
"""File, rows for fitting, of at most twice as many in all, and microseconds of a row of each model in batches of
1,000, measured once on one core and rounded."""


class Pool(NamedTuple):
    """Rows for fitting with what models answer out of fold, and test rows."""

    names: list[str]
    prices: Any
    X: tuple[Any, ...]
    y: tuple[Any, ...]
    outputs: tuple[Any, ...]


def read(table, seed):
    """Columns and targets of rows for fitting and of test rows, without duplicates."""
    file, n_fit, _ = TABLES[table]
    arrays = np.load(DATA / f"{file}.npz")
    X, first = np.unique(arrays["X"].astype(float), axis=0, return_index=True)
    order = np.random.default_rng(seed).permutation(len(X))[: 2 * n_fit]
    y = arrays["y"][first].astype(float)
    y = y if table in ("cpu_act", "pol") else np.unique(y, return_inverse=True)[1].astype(float)
    return tuple(tuple(part[rows] for rows in np.split(order, [n_fit])) for part in (X, y))


def pool_of(key, models, prices, X, y, may_learn=None):
    """Answers of models, each trained on the rows that it may learn from."""
    n_classes = 0 if models is REGRESSORS else int(y[0].max()) + 1

    def answers(model, may, fit, new):
        rows = fit[may[fit]]
        model.fit(X[0][rows], y[0][rows])
        if not n_classes:
            return model.predict(new)[:, None]
        outputs = np.zeros((len(new), n_classes))
        outputs[:, model.classes_.astype(int)] = model.predict_proba(new)
        return outputs

    parts = [], []
    for name, model in models.items():
        paths = [CACHE / f"{key}_{name}_{half}.npy" for half in ("fit", "test")]
        if not all(path.exists() for path in paths):
            CACHE.mkdir(parents=True, exist_ok=True)
            may = (may_learn or {}).get(name, np.ones(len(y[0]), bool))
            folds = KFold(4, shuffle=True, random_state=0).split(X[0])
            held = [(rows, answers(model, may, fit, X[0][rows])) for fit, rows in folds]
            own = np.concatenate([own for _, own in held])[
                np.argsort(np.concatenate([rows for rows, _ in held]))
            ]
            np.save(paths[0], own)
            np.save(paths[1], answers(model, may, np.arange(len(X[0])), X[1]))
        for part, path in zip(parts, paths, strict=True):
            part.append(np.load(path))
    return Pool([*models], np.array(prices), X, y, tuple(np.stack(part, axis=1) for part in parts))


def scores_of(outputs, y):
    """1 of right classes, 0 of others; of numbers, that of which R2 is the mean."""
    y = y.reshape(-1, *[1] * (outputs.ndim - 2))
    is_class = outputs.shape[-1] > 1
    return (outputs.argmax(axis=-1) == y) * 1.0 if is_class else 1.0 - (outputs[..., 0] - y) ** 2 / y.var()


# -- rivals ----------------------------------------------------------------------------------------


def states_of(outputs, sequence, combined, curves):
    """Answer and confidence after each model of a sequence."""
    for n, model in enumerate(sequence):
        own = outputs[:, list(sequence[: n + 1])].mean(axis=1) if combined else outputs[:, model]
        if own.shape[1] > 1:
            yield own, own.max(axis=1)
        elif n == 0:
            yield own, np.interp(own[:, 0], *curves[model])
        else:
            yield own, -np.abs(outputs[:, model, 0] - outputs[:, sequence[n - 1], 0])


def thresholds(pool, combined, charge):
    """Function of a budget to score and cost of each test row: two settings of the best sequences, mixed."""
    (outputs, new), (y, y_new), n = pool.outputs, pool.y, len(pool.y[0])
    cells = [np.array_split(np.argsort(own, kind="stable"), 32) for own in outputs[:, :, 0].T]
    scores = scores_of(outputs, y)
    curves = [
        [[values[rows].mean() for rows in parts] for values in (outputs[:, model, 0], scores[:, model])]
        for model, parts in enumerate(cells)
    ]
    settings = []
    for sequence in [s for length in (1, 2, 3) for s in permutations(range(len(pool.names)), length)]:
        states = [*states_of(outputs, sequence, combined, curves)]
        score = [scores_of(own, y) for own, _ in states]
        cuts = [np.unique(np.quantile(sure, np.linspace(0, 1, 41))) for _, sure in states[:-1]]
        places = [np.searchsorted(cut, sure) for cut, (_, sure) in zip(cuts, states, strict=False)]
        shape = [len(cut) + 1 for cut in cuts]
        total = np.zeros((2, *shape)) + np.reshape(
            [score[0].sum(), n * charge((), sequence[0])], (2, *[1] * len(cuts))
        )
        for k in range(1, len(sequence)):  # rows that are sent on to model k: running sums over k axes
            cell = np.ravel_multi_index(places[:k], shape[:k])
            for what, gain in enumerate(
                (score[k] - score[k - 1], np.full(n, charge(sequence[:k], sequence[k])))
            ):
                sent = np.bincount(cell, gain, np.prod(shape[:k])).reshape(shape[:k])
                for axis in range(k):
                    sent = sent.cumsum(axis=axis)
                total[what] += sent.reshape(*sent.shape, *[1] * (len(cuts) - k))
        for place in convex_hull(total[1].ravel(), total[0].ravel()):
            levels = np.unravel_index(place, shape) if cuts else ()
            settings.append((*(part.ravel()[place] / n for part in total), sequence, cuts, levels))
    score, cost = (np.array([one[what] for one in settings]) for what in (0, 1))
    hull = convex_hull(cost, score)

    def followed(setting):
        _, _, sequence, cuts, levels = settings[setting]
        (answer, _), *later = states = [*states_of(new, sequence, combined, curves)]
        here, paid, answer = (
            np.ones(len(new), bool),
            np.full(len(new), charge((), sequence[0])),
            answer.copy(),
        )
        for k, (cut, level) in enumerate(zip(cuts, levels, strict=True)):
            here &= np.searchsorted(cut, states[k][1]) <= level
            answer[here] = later[k][0][here]
            paid[here] += charge(sequence[: k + 1], sequence[k + 1])
        return np.stack([scores_of(answer, y_new), paid])

    def at(budget):
        place = np.interp(budget, cost[hull], np.arange(len(hull)))
        low, share = int(place), place - int(place)
        return (1 - share) * followed(hull[low]) + share * followed(hull[min(low + 1, len(hull) - 1)])

    return at


def lookup(pool, model):
    """A model that knows its answers: those out of fold for rows for fitting."""
    pairs = zip(
        np.concatenate(pool.X), np.concatenate([part[:, model] for part in pool.outputs]), strict=True
    )
    known, n_columns = {row.tobytes(): own for row, own in pairs}, pool.X[0].shape[1]
    return lambda X: np.array([known[np.array(row[:n_columns], float).tobytes()] for row in X]).squeeze()


def in_front(pool):
    """Function of a budget to score and cost of a ``Budgeted*`` fit before the best single model."""
    best = scores_of(pool.outputs[0], pool.y[0]).mean(axis=0).argmax()
    is_class, prices = pool.outputs[0].shape[2] > 1, thrifty.Prices(0.0, full=float(pool.prices[best]))
    kind = thrifty.BudgetedClassifier if is_class else thrifty.BudgetedRegressor
    fitted = kind(lookup(pool, best), prices=prices, random_state=0).fit(pool.X[0], pool.y[0])

    def at(budget):
        there, y = fitted.at(budget=budget), pool.y[1]
        answer = there.predict(pool.X[1])
        return (answer == y if is_class else 1.0 - (answer - y) ** 2 / y.var()), there.cost(pool.X[1])

    return at


# -- the plan, and tables --------------------------------------------------------------------------


def plan(pool, columns, seed, after):
    """Function of a budget to score and cost of each test row, families of rules, models that answer; the cascade."""
    if columns == "noise":
        rng = np.random.default_rng(seed)
        pool = pool._replace(X=[rng.normal(size=(len(rows), 1)) for rows in pool.X])
    kind = thrifty.CascadeClassifier if pool.outputs[0].shape[2] > 1 else thrifty.CascadeRegressor
    models = [(name, lookup(pool, place)) for place, name in enumerate(pool.names)]
    prices = dict(zip(pool.names, pool.prices.tolist(), strict=True))
    settings = {"after": after, "columns": columns != "none", "cv": "prefit", "random_state": seed}
    cascade = kind(models, model_prices=prices, **settings).fit(pool.X[0], pool.y[0])
    log = cascade.log_of(pool.X[1], pool.y[1])
    scores, every = scores_of(pool.outputs[1], pool.y[1]), np.arange(len(pool.y[1]))

    def at(budget):
        router = cascade.at(budget=budget).router_
        done, policy = router.replay(**log), router.policy_
        rules = [router.frontier_.rule[place] for place in (policy.lower, policy.upper)]
        chosen = [pool.names.index(name) for name in done.model]
        rules = zip(rules, (1 - policy.share, policy.share), strict=True)
        return scores[every, chosen], done.cost, rules, chosen

    return at, cascade


def least_share(cascade):
    """Least share of the price of the best single model at which the plan is within .003 of it, out of fold."""
    router, shares = cascade.router_, np.arange(1, 100) / 100
    budgets = shares * router.model_costs[router.best_model]
    alone = max(one.score for one in cascade.alternatives_ if one.name.endswith("alone"))
    is_near = cascade.score_of(cascade.frontier_.quality_at(budgets)) >= alone - 0.003
    return float(min(shares[is_near], default=1.0))


def compare(label, pools, columns="", after=None, *, front=False, shares=SHARES):
    """Print a table of one pool for each seed."""
    began, lines, gains, families, left_out, near = time.process_time(), {}, {}, Counter(), [], []
    for seed, pool in enumerate(pools):
        prices = dict(zip(pool.names, pool.prices.tolist(), strict=True))

        def charge(asked, model, names=pool.names, prices=prices):
            cheaper = (after or {}).get(names[model], {})
            return min([prices[names[model]], *(cheaper.get(names[one], np.inf) for one in asked)])

        best = scores_of(pool.outputs[0], pool.y[0]).mean(axis=0).argmax()
        alone = scores_of(pool.outputs[1][:, best], pool.y[1]), pool.prices[best]
        rivals = {word: thresholds(pool, word == "combined", charge) for word in ("thresholds", "combined")}
        ours, cascade = plan(pool, columns, seed, after)
        before = in_front(pool) if front and not seed else None
        near.append(
            [
                (share, (ours(max(share * alone[1], pool.prices.min()))[0] - alone[0]).mean())
                for share in (least_share(cascade), 0.3)
            ]
        )
        for share in shares:
            budget = share * pool.prices[best]
            if budget < pool.prices.min():
                left_out.append(share)
                continue
            results = {word: rival(budget) for word, rival in rivals.items()}
            rival = max((score for score, _ in results.values()), key=np.mean)
            score, cost, rules, _ = ours(budget)
            results |= {"plan": (score, cost), "best single": alone}
            results |= {"in front": before(budget)} if before else {}
            gains.setdefault(seed, {})[share] = score - rival
            for rule, weight in rules:
                families[rule] += weight
            for word, (score, cost) in results.items():
                lines.setdefault(word, {}).setdefault(share, []).append((score.mean(), cost.mean() / budget))
    sizes = f"{len(pools[0].y[0]):,} + {len(pools[0].y[1]):,} rows, {len(pools)} seeds"
    lacking = f"; below the cheapest model: {sorted(set(left_out))}" if left_out else ""
    print(
        f"\n{label}{columns and ', columns: ' + columns}; {sizes}, {time.process_time() - began:.0f} s{lacking}"
    )
    print(f"{'score (spent / budget)':22s}" + "".join(f"{share:>16g}" for share in shares))
    for word, cells in lines.items():
        means = [np.mean(cells[share], axis=0) if share in cells else None for share in shares]
        texts = ["-" if mean is None else "{:.4f} ({:.2f})".format(*mean) for mean in means]
        print(f"{word:22s}" + "".join(text.rjust(16) for text in texts))
    error = lambda gain: gain.std() / np.sqrt(len(gain))  # noqa: E731 - a formula
    cells = {s: np.mean([(one[s].mean(), error(one[s])) for one in gains.values()], axis=0) for s in gains[0]}
    texts = ["{:+.4f}+-{:.4f}".format(*cells[s]) if s in cells else "-" for s in shares]
    print(f"{'gain':22s}" + "".join(text.rjust(16) for text in texts))
    (share, there), (_, at_3) = np.mean(near, axis=0)
    print(
        f"within .003 of the best single at share {share:.2f}, out of fold: {there:+.4f}; at .3: {at_3:+.4f}"
    )
    whole = [np.mean([*one.values()], axis=0) for one in gains.values()]
    mean, spread = (np.mean([statistic(one) for one in whole]) for statistic in (np.mean, error))
    worst = min(gain / max(sd, 1e-9) for gain, sd in cells.values())
    rules = ", ".join(f"{rule} {weight / families.total():.0%}" for rule, weight in families.most_common())
    print(f"mean gain {mean:+.4f}+-{spread:.4f}, worst cell {worst:+.1f} errors; {rules}", flush=True)


def networks():
    """Five networks in batches of 1, 32 and 256, and three exits of one, whose prices depend on those asked before."""
    arrays = np.load(DATA / "routing" / "networks8.npz")
    outputs = np.exp(arrays["logp"].astype(float))
    outputs /= outputs.sum(axis=2, keepdims=True)
    halves = [arrays["split"] == code for code in (0, 2)]
    X, y = ([arrays[name][half].astype(float) for half in halves] for name in ("statistics", "y"))
    for models, kinds in ((range(5), ("", "none")), (range(5, 8), ("none",))):
        for place, size in enumerate((1, 32, 256)):
            names, prices = arrays["names"][models].tolist(), arrays["seconds"][models, place] * 1e6
            pool = Pool(names, prices, X, y, [outputs[half][:, models] for half in halves])
            after = None
            if len(names) == 3:
                further = [(one, other) for one in (1, 2) for other in range(one)]
                after = {names[one]: {} for one, _ in further}
                for one, other in further:
                    after[names[one]][names[other]] = float(prices[one] - prices[other])
            for columns in kinds:
                compare(f"{names[0]} to {names[-1]}, batches of {size}", [pool], columns, after)


def specialists(table, seeds):
    """Forests of a third of the classes or regions each, alone or among others; wrong labels; shifted test rows."""
    few = {name: CLASSIFIERS[name] for name in ("tree", "logistic", "boosting10", "forest")}
    thirds = {f"third{k}": RandomForestClassifier(100, random_state=0) for k in range(3)}
    own = dict(zip(CLASSIFIERS, TABLES[table][2], strict=True))
    for setting in ("classes", "regions", "specialists", "wrong labels", "shifted rows"):
        models, prices, shares = few, [own[name] for name in few], SHARES
        if setting in ("classes", "regions"):
            models, prices, shares = thirds, [30.0] * 3, (1, 1.25, 1.5, 2, 2.5)
        elif setting == "specialists":
            models, prices = few | thirds, [0.2, 0.6, 20.0, 150.0, 30.0, 30.0, 30.0]
        pools = []
        for seed in range(seeds):
            (X, y), rng = read(table, seed), np.random.default_rng(seed)
            axis = np.linalg.svd(X[0] - X[0].mean(axis=0), full_matrices=False)[2][0]
            places = [(part - X[0].mean(axis=0)) @ axis for part in X]
            if setting == "wrong labels":
                y = np.where(rng.random(len(y[0])) < 0.2, rng.choice(y[0], len(y[0])), y[0]), y[1]
            elif setting == "shifted rows":
                chances = [
                    1 / (1 + np.exp(sign * 2 * p / places[0].std()))
                    for sign, p in zip((1, -1), places, strict=True)
                ]
                kept = [rng.random(len(chance)) < chance for chance in chances]
                X, y = ([part[rows] for part, rows in zip(both, kept, strict=True)] for both in (X, y))
            third_of = y[0] % 3
            if setting == "regions":
                third_of = np.searchsorted(np.quantile(places[0], (1 / 3, 2 / 3)), places[0])
            may_learn = {name: third_of == k for k, name in enumerate(thirds)}
            pools.append(pool_of(f"{table}{seed}_{setting[:5]}", models, prices, X, y, may_learn))
        compare(f"{table}, {setting}", pools, shares=shares)


def autogluon():
    """AutoGluon's fast models and ensembles in a plan, beside ``infer_limit`` (run ``gluon.py`` first).

    Single models that are more accurate than all faster ones, what ``infer_limit`` chooses at each limit, and the whole
    ensemble. Gains are over the fastest model of the ensemble; the time of decisions is in the plan's.
    """
    arrays = np.load(CACHE / "autogluon.npz")
    halves = arrays["held"], arrays["new"][:, :-1]
    X, y = (np.split(arrays[name], [len(halves[0])]) for name in "Xy")
    *price, whole = arrays["seconds"] * 1e6
    price = np.array(price)
    ensemble, single, every = arrays["new"][:, -1], np.eye(len(price)), np.arange(len(y[1]))

    def answers(weights, half=0):
        return np.tensordot(halves[half], weights / weights.sum(), (1, 0))

    def score(weights):
        return scores_of(answers(weights), y[0]).mean()

    whole_weights, scores = arrays["weights"], np.array([score(one) for one in single])
    is_best = [s > max([0, *scores[price < p]]) for p, s in zip(price, scores, strict=True)]
    parts = [*single[is_best], *arrays["limits"], whole_weights]
    fastest = single[min(np.flatnonzero(whole_weights), key=lambda model: price[model])]
    least, most = (scores_of(outputs, y[1]).mean() for outputs in (answers(fastest, 1), ensemble))
    asked = {"+".join(arrays["names"][part > 0]): part for part in parts}
    used = np.array([*asked.values()]) > 0
    outputs = [np.stack([answers(part, half) for part in asked.values()], axis=1) for half in (0, 1)]
    X = [part.astype(float) for part in X]
    pool, after = Pool([*asked], used @ price, X, y, outputs), {name: {} for name in asked}
    for one, other in permutations(range(len(asked)), 2):
        if (used[one] >= used[other]).all():
            after[pool.names[one]][pool.names[other]] = float(price @ (used[one] & ~used[other]))
    ours, _ = plan(pool, "none", 0, after)

    def show(what, outputs, microseconds):
        right, loss = scores_of(outputs, y[1]).mean(), -np.log(np.maximum(outputs[every, y[1]], 1e-15)).mean()
        gain = (right - least) / (most - least)
        print(
            f"{what:60s} {microseconds:6.1f} us, accuracy {right:.4f}, {gain:4.0%} of the gain, log-loss {loss:.4f}"
        )

    def show_plan(microseconds):
        budget = microseconds
        for _ in range(3):  # less the time of decisions
            began = time.process_time()
            _, cost, _, chosen = ours(budget)
            deciding = (time.process_time() - began) / len(every) * 1e6
            budget = microseconds - deciding
        show(
            f"  plan for {microseconds / whole:.0%} of the ensemble's seconds",
            outputs[1][every, chosen],
            cost.mean() + deciding,
        )

    for name, one, cost in zip(arrays["names"], single, price, strict=True):
        show(name, answers(one, 1), cost)
    show("AutoGluon's ensemble", ensemble, whole)
    for share, weights in zip(arrays["shares"], arrays["limits"], strict=True):
        cost = price @ (weights > 0)
        show(f"infer_limit {share:.0%}: {'+'.join(arrays['names'][weights > 0])}", answers(weights, 1), cost)
        show_plan(cost)
        show_plan(share * whole)


def seconds():
    """Seconds of ``predict`` on 20,000 rows (test rows four times) beside those of the plan, of the processor."""
    how = {"n_informative": 10, "n_classes": 5, "class_sep": 1.85, "flip_y": 0.02}
    X, y = make_classification(20_000, 30, random_state=0, **how)
    new = np.tile(np.arange(15_000, 20_000), 4)
    names = ("logistic", "boosting10", "boosting100", "forest")
    models = [(name, CLASSIFIERS[name]) for name in names]
    cascade = thrifty.CascadeClassifier(models, random_state=0).fit(X[:15_000], y[:15_000])
    best = cascade.router_.best_model
    systems = {
        f"{name} alone": (cascade.models_[name].estimator, cascade.model_prices_[name])
        for name in (best, *(name for name in names if name != best))
    }
    for share in np.arange(4, 17) / 20:
        if share * cascade.model_prices_[best] >= cascade.frontier_.cost[0]:
            systems[f"share {share:.2f}"] = (there := cascade.at(share=share), there.expected_cost_)
    unit = None
    for name, (system, price) in systems.items():
        taken = []
        for _ in range(3):
            began = time.process_time()
            answer = system.predict(X[new])
            taken.append(time.process_time() - began)
        real, right = min(taken), (answer == y[new]).mean()
        unit = unit or real
        shares = f"{real / unit:.2f} of the best one's, planned {price / cascade.model_prices_[best]:.2f}"
        print(f"{name:18s} accuracy {right:.4f}, {real / len(new) * 1e6:5.1f} us, {shares}", flush=True)


def decision():
    """Time to decide about one row, and in batches of 10,000: four models, ten classes."""
    rng = np.random.default_rng(0)
    y, X, logits = (
        rng.integers(0, 10, 12_000),
        rng.normal(size=(12_000, 10)),
        rng.normal(size=(12_000, 4, 10)),
    )
    logits[np.arange(len(y)), :, y] += np.arange(1, 5)
    chance = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    for columns in (None, X):
        router = thrifty.ModelRouter({"a": 1.0, "b": 2.0, "c": 4.0, "d": 8.0}, budget=4.0)
        router.fit(
            None if columns is None else X[:2000],
            chance.argmax(axis=2)[:2000] == y[:2000, None],
            evidence=chance[:2000],
        )
        began = time.perf_counter()
        for row in range(2000, 2300):
            session = router.start(row if columns is None else X[row])
            while (purchase := session.next_purchase) is not None:
                session = session.give(None, evidence=chance[row, router.pool_.index(purchase.name)])
        one, began = (time.perf_counter() - began) / 300, time.perf_counter()
        ask = lambda name, rows, pool=router.pool_: chance[2000 + rows, pool.index(name)]  # noqa: E731
        router.run(ask, np.arange(10_000) if columns is None else X[2000:])
        many = (time.perf_counter() - began) / 10_000
        words = "no" if columns is None else "ten"
        print(f"{words} columns: one row {one * 1e3:.3f} ms, in a batch {many * 1e6:.1f} microseconds")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=[*TABLES])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--columns", nargs="*", default=[""], help="noise, none")
    parser.add_argument(
        "--front", action="store_true", help="also a Budgeted* fit in front of the best model"
    )
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    others = {"networks": networks, "autogluon": autogluon, "seconds": seconds, "decision": decision}
    others["specialists"] = lambda: [specialists(table, given.seeds) for table in ("satimage", "letter")]
    for part in given.parts:
        if part in others:
            others[part]()
            continue
        models = REGRESSORS if part in ("cpu_act", "pol") else CLASSIFIERS
        pools = [pool_of(f"{part}{s}", models, TABLES[part][2], *read(part, s)) for s in range(given.seeds)]
        for columns in given.columns:
            compare(part, pools, columns, front=given.front)


if __name__ == "__main__":
    main()
