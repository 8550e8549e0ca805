"""Many models, one budget: ModelRouter against its rivals on public logs of language models.

    python benchmarks/routing.py [mmlupro routerbench_part zeroeval routellm llmrouter9] [--quick] [--seeds 3]

Logs lie in THRIFTY_DATA/routing (default ../shared/data/routing). All fit and choose on rows with ``test == 0`` and are
reported on ``test == 1``. Budgets are shares of the mean cost of the best single model, which is chosen on training
rows. Every method may mix two of its settings, chosen out of fold, so that its expected spend is the budget:

* mix of singles; kNN, ridge and clusters route by the text (the same latent semantic analysis of TF-IDF as the router;
  neighbours, penalty and number of clusters tuned out of fold), the model of the largest quality less price times cost;
* fixed agreement cascades: the best one within the budget, and their mix (ask two, a third where they disagree).

Printed: quality on test rows; spend divided by the budget; gains over routing (the best of the three at each budget on
test rows, in favour of rivals) and over mixes, with standard errors of the paired differences; seconds of the processor
for the fit and milliseconds for a decision. Seeds are those of the router and of the clusters. ``--splits N`` draws N
further splits of 2,500 rows, fits, goes to the budgets .25 and .5 with ``confidence=0.95``, and prints how often the
test rows cost more, and how often a bill of ``ModelRouter.bill`` is exceeded. ``--bills`` does so for
``certified(..., budget=)`` in 500 deployments.
"""

import argparse
import os
import time
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.linear_model import Ridge

from thrifty import ModelRouter
from thrifty.engine.evidence.budgets import CostBounds
from thrifty.engine.evidence.thresholds import convex_hull
from thrifty.errors import InvalidInputError
from thrifty.learners.routing.quality import learn_text_reader

DATA = (
    Path(os.environ.get("THRIFTY_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")) / "routing"
)
SETS = ("mmlupro", "routerbench_part", "zeroeval", "routellm", "llmrouter9")
SHARES = (0.05, 0.1, 0.25, 0.5, 1.0)
PRICES = np.array([0.0, *np.geomspace(0.003, 3000, 40)])
"""Prices of the cost of the best single model."""


class Rows:
    """Rows of a log."""

    def __init__(self, texts, quality, cost, answers):
        self.texts, self.quality, self.cost, self.answers = texts, quality, cost, answers

    def __getitem__(self, mask):
        texts = [text for text, keep in zip(self.texts, mask, strict=True) if keep]
        return Rows(
            texts, self.quality[mask], self.cost[mask], None if self.answers is None else self.answers[mask]
        )


def read(name):
    arrays, queries = np.load(DATA / f"{name}.npz"), pd.read_csv(DATA / f"{name}_queries.csv.gz")
    answers = arrays["answer"].astype(int) if "answer" in arrays else None
    rows = Rows(
        queries["text"].tolist(), arrays["quality"].astype(float), arrays["cost"].astype(float), answers
    )
    return rows, (queries["test"] == 1).to_numpy(), [str(model) for model in arrays["models"]]


def mix(cost, quality, budget):
    """Two settings on the convex hull, and the share of the second; None below the least cost."""
    hull = convex_hull(cost, quality)
    if budget < cost[hull[0]]:
        return None
    place = np.interp(budget, cost[hull], np.arange(len(hull)))
    low = int(place)
    return hull[low], hull[min(low + 1, len(hull) - 1)], place - low


def tested(train, test, budget):
    """Expected quality and cost of each test row; ``train`` and ``test`` are (quality, cost) of rows x settings."""
    found = mix(train[1].mean(axis=0), train[0].mean(axis=0), budget)
    if found is None:
        return None
    low, high, share = found
    return tuple((1 - share) * part[:, low] + share * part[:, high] for part in test)


def routed(expected, rows, unit):
    """(quality, cost) of each row at each price, for expected (quality, cost)."""
    quality, cost = np.empty((len(rows.quality), len(PRICES))), np.empty((len(rows.quality), len(PRICES)))
    every = np.arange(len(rows.quality))
    for place, price in enumerate(PRICES):
        chosen = (expected[0] - price / unit * expected[1]).argmax(axis=1)
        quality[:, place], cost[:, place] = rows.quality[every, chosen], rows.cost[every, chosen]
    return quality, cost


def knn(k):
    def predict(Z, rows, Z_new, _):
        length = [one / np.maximum(np.linalg.norm(one, axis=1, keepdims=True), 1e-9) for one in (Z, Z_new)]
        targets = np.hstack([rows.quality, rows.cost])
        found = np.empty((len(Z_new), targets.shape[1]))
        for begin in range(0, len(Z_new), 500):
            block = slice(begin, begin + 500)
            nearest = np.argpartition(-(length[1][block] @ length[0].T), k, axis=1)[:, :k]
            found[block] = targets[nearest].mean(axis=1)
        return np.hsplit(found, 2)

    return predict


def ridge(alpha):
    def predict(Z, rows, Z_new, _):
        return np.hsplit(Ridge(alpha).fit(Z, np.hstack([rows.quality, rows.cost])).predict(Z_new), 2)

    return predict


def clusters(k):
    def predict(Z, rows, Z_new, seed):
        found = KMeans(k, n_init=1, random_state=seed).fit(Z)
        means = [rows_of.mean(axis=0) for rows_of in (rows.quality, rows.cost)]
        tables = [np.tile(mean, (k, 1)) for mean in means]
        for cluster in range(k):
            inside = found.labels_ == cluster
            for table, values, mean in zip(tables, (rows.quality, rows.cost), means, strict=True):
                table[cluster] = (values[inside].sum(axis=0) + 5 * mean) / (inside.sum() + 5)
        return [table[found.predict(Z_new)] for table in tables]

    return predict


ROUTERS = {
    "kNN": [knn(k) for k in (10, 25, 50, 100)],
    "ridge": [ridge(alpha) for alpha in (0.1, 1.0, 10.0)],
    "clusters": [clusters(k) for k in (10, 30, 60)],
}

KINDS = {
    "routing": tuple(ROUTERS),
    "mix of singles": ("mix of singles",),
    "mix of cascades": ("mix of cascades",),
}
"""Rivals that gains are printed over: the best of each kind at each budget on test rows, in favour of rivals."""


def cascades(rows, models):
    """(quality, cost) of fixed agreement cascades of these models, rows x cascades."""
    quality, cost = [], []
    mean = rows.quality.mean(axis=0)
    for i, j in combinations(models, 2):
        agree = (rows.answers[:, i] == rows.answers[:, j]) & (rows.answers[:, i] >= 0)
        better = i if mean[i] >= mean[j] else j
        for k in models:
            if k not in (i, j):
                quality.append(np.where(agree, rows.quality[:, better], rows.quality[:, k]))
                cost.append(rows.cost[:, i] + rows.cost[:, j] + np.where(agree, 0.0, rows.cost[:, k]))
    return np.column_stack(quality), np.column_stack(cost)


def near_the_front(rows, size=10):
    mean, cost = rows.quality.mean(axis=0), rows.cost.mean(axis=0)
    hull = convex_hull(cost, mean)
    return np.sort(np.argsort(np.interp(cost, cost[hull], mean[hull]) - mean, kind="stable")[:size]).tolist()


def rivals(train, test, folds, seed, names):
    """Each rival's function of the budget: (quality, cost) of test rows, or None; routers of these names."""
    found = {}
    singles = (train.quality, train.cost), (test.quality, test.cost)
    best = train.quality.mean(axis=0).argmax()
    found["best single"] = lambda _: (test.quality[:, best], test.cost[:, best])
    found["mix of singles"] = lambda budget: tested(*singles, budget)
    reader = learn_text_reader(train.texts, 0)
    Z, Z_test = reader.transform(train.texts), reader.transform(test.texts)
    centre, scale = Z.mean(axis=0), Z.std(axis=0) + 1e-9
    scale[:-4] = scale[:-4].mean()  # latent axes keep their lengths relative to each other
    Z, Z_test = (Z - centre) / scale, (Z_test - centre) / scale
    unit = train.cost[:, best].mean()
    for name in names:
        settings, judged = ROUTERS[name], []
        for predict in settings:
            expected = [np.empty_like(train.quality), np.empty_like(train.cost)]
            for fold in np.unique(folds):
                held = folds == fold
                for part, values in zip(
                    expected, predict(Z[~held], train[~held], Z[held], seed), strict=True
                ):
                    part[held] = values
            points = routed(expected, train, unit)
            hull = convex_hull(points[1].mean(axis=0), points[0].mean(axis=0))
            at = np.array(SHARES[1:]) * unit
            value = np.interp(at, points[1].mean(axis=0)[hull], points[0].mean(axis=0)[hull]).mean()
            judged.append((value, len(judged), points))
        _, tuned, points = max(judged, key=lambda one: one[:2])
        on_test = routed(settings[tuned](Z, train, Z_test, seed), test, unit)
        found[name] = lambda budget, a=points, b=on_test: tested(a, b, budget)
    if train.answers is not None:
        models = near_the_front(train)
        a, b = cascades(train, models), cascades(test, models)

        def within(budget):
            possible = np.flatnonzero(a[1].mean(axis=0) <= budget)
            if not len(possible):
                return None
            chosen = possible[a[0].mean(axis=0)[possible].argmax()]
            return b[0][:, chosen], b[1][:, chosen]

        found["fixed cascade"] = within
        both = [
            tuple(np.hstack(pair) for pair in zip(one, two, strict=True))
            for one, two in zip((a, b), singles, strict=True)
        ]
        found["mix of cascades"] = lambda budget: tested(*both, budget)
    return found


def fitted(models, train, **settings):
    return ModelRouter(models, **settings).fit(train.texts, train.quality, train.cost, train.answers)


def run(name, seeds):
    rows, is_test, models = read(name)
    train, test = rows[~is_test], rows[is_test]
    unit = train.cost[:, train.quality.mean(axis=0).argmax()].mean()
    folds = np.arange(len(train.texts)) % 5
    lines: dict[str, list] = {}
    against: dict[tuple[str, float], list] = {}
    others: dict = {}
    for seed in range(seeds):
        began = time.process_time()
        router = fitted(models, train, random_state=seed)
        seconds = time.process_time() - began
        began = time.process_time()
        for text in test.texts[:100]:
            router.start(text)
        decision = (time.process_time() - began) * 10
        # Only clusters depend on the seed.
        others = others | rivals(train, test, folds, seed, ROUTERS if seed == 0 else ("clusters",))
        for share in SHARES:
            try:
                found = router.at(budget=share * unit).replay(
                    test.texts, test.quality, test.cost, test.answers
                )
            except InvalidInputError:
                continue
            results = {rival: of(share * unit) for rival, of in others.items()}
            results["ModelRouter"] = found.quality, found.cost
            for method, result in results.items():
                if result is not None:
                    entry = result[0].mean(), result[1].mean() / (share * unit)
                    lines.setdefault(method, []).append((share, *entry))
            for kind, members in KINDS.items():
                known = [results[one] for one in members if results.get(one) is not None]
                if known:
                    gain = found.quality - max(known, key=lambda one: one[0].mean())[0]
                    entry = gain.mean(), gain.std() / np.sqrt(len(gain))
                    against.setdefault((kind, share), []).append(entry)
    print(
        f"\n{name}: {len(train.texts):,} x {len(models)}, {len(test.texts):,} test rows; fit {seconds:.0f} s, ",
        end="",
    )
    print(f"decision {decision:.1f} ms; means of {seeds} seeds")
    print(f"{'quality (spend / budget)':24s}" + "".join(f"{share:>16g}" for share in SHARES))
    for method, entries in lines.items():
        cells = []
        for share in SHARES:
            at = [entry[1:] for entry in entries if entry[0] == share]
            cells.append(
                f"{np.mean([a[0] for a in at]):.4f} ({np.mean([a[1] for a in at]):.2f})" if at else "-"
            )
        if method == "best single":
            cells = ["", "", "", "", cells[-1]]
        print(f"{method:24s}" + "".join(f"{cell:>16s}" for cell in cells))
    for kind in KINDS:
        cells = []
        for share in SHARES:
            at = np.mean(against.get((kind, share), [(np.nan, np.nan)]), axis=0)
            cells.append(f"{at[0]:+.4f}+-{at[1]:.4f}" if np.isfinite(at).all() else "-")
        print(f"{'gain over ' + kind:24s}" + "".join(f"{cell:>16s}" for cell in cells), flush=True)


def splits(name, n_splits, n_rows=2500):
    """How often test rows cost more than a budget that is to be held."""
    rows, _, models = read(name)
    over, exceeded, spent, lost = 0, 0, [], []
    for split in range(n_splits):
        order = np.random.default_rng(split).permutation(len(rows.texts))[:n_rows]
        train, test = np.zeros(len(rows.texts), bool), np.zeros(len(rows.texts), bool)
        train[order[: int(0.6 * len(order))]], test[order[int(0.6 * len(order)) :]] = True, True
        train, test = rows[train], rows[test]
        router = fitted(models, train, random_state=split)
        unit = train.cost[:, train.quality.mean(axis=0).argmax()].mean()
        for share in (0.25, 0.5):
            held = router.at(budget=share * unit, confidence=0.95)
            plain = router.at(budget=share * unit)
            bill = plain.bill(len(test.texts))
            held, plain = (
                one.replay(test.texts, test.quality, test.cost, test.answers) for one in (held, plain)
            )
            spent.append((held.cost.mean() / unit / share, plain.cost.mean() / unit / share))
            lost.append(plain.quality.mean() - held.quality.mean())
            over += held.cost.mean() > share * unit
            exceeded += plain.cost.sum() > bill
    mean = np.mean(spent, axis=0)
    print(
        f"{name}: {n_splits} splits, 2 budgets: {over / len(spent):.1%} over budget with confidence=0.95, ",
        end="",
    )
    print(f"spend {mean[0]:.3f}, without {mean[1]:.3f}; quality lost {np.mean(lost):.4f}; ", end="")
    print(f"{exceeded / len(spent):.1%} of bills exceeded", flush=True)


def bills(name, n_deployments=500, confidence=0.95):
    """How often the next rows cost more than ``certified(..., budget=)`` bounds, from other new rows."""
    rows, is_test, models = read(name)
    train, test = rows[~is_test], rows[is_test]
    router = fitted(models, train)
    new = router.evidence_on(test.texts, test.quality, test.cost, test.answers)
    costs, policy = new.cost, router._fitted().policy
    unit = train.cost[:, train.quality.mean(axis=0).argmax()].mean()
    rng = np.random.default_rng(0)
    for n_known, n_next in ((400, 400), (200, 800), (100, 100), (800, 200)):
        over = []
        for _ in range(n_deployments):
            order = rng.permutation(len(costs))
            known, following = order[:n_known], costs[order[n_known : n_known + n_next]]
            bounds = CostBounds(new.take(known), n_known, n_next)
            try:
                mix = bounds.within(policy, rng.choice([0.1, 0.25, 0.5]) * unit, confidence)
            except InvalidInputError:
                continue
            is_upper = rng.random(n_next) < mix.share
            spent = np.where(is_upper, following[:, mix.upper], following[:, mix.lower]).mean()
            over.append(spent > bounds.bound(mix, confidence))
        words = f"{np.mean(over):.1%} of {len(over)} bills of {n_next} rows exceeded"
        print(f"{name}: {words}, bounded from {n_known}", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="*", metavar="set", help=", ".join(SETS))
    parser.add_argument("--quick", action="store_true", help="two small logs and one seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--splits", type=int, default=0)
    parser.add_argument("--bills", action="store_true")
    given = parser.parse_args()
    sets = given.sets or (("routerbench_part", "zeroeval") if given.quick else SETS)
    for name in sets:
        if given.bills:
            bills(name)
        elif given.splits:
            splits(name, given.splits)
        else:
            run(name, 1 if given.quick else given.seeds)


if __name__ == "__main__":
    main()
