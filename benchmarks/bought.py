"""Fits on tables in which not everything was bought, on complete test rows.

    python benchmarks/bought.py [letter letter26 satimage miniboone covtype bike] [--rows 3000] [--share 0.5]
        [--seeds 1] [--masks random known label value blocks] [--only complete bought believed ...]
    python benchmarks/bought.py thyroid [--rows 3000]
    python benchmarks/bought.py warning
    python benchmarks/bought.py memory [--rows 12000]
    python benchmarks/bought.py certificates [letter] [--rows 4000] [--draws 300]
    python benchmarks/bought.py loop [letter] [--rows 3000] [--seeds 1]
    python benchmarks/bought.py picture          # writes docs/img/incomplete.png

Data lie in THRIFTY_DATA (default ../shared/data). The first quarter of the columns is free and always known; of the
others, each row has bought a column with a probability that depends on nothing (``random``), on the free columns, on
the label, on the value itself (which no method can see) or on a draw for three columns at once (``blocks``). For each
budget: promised / real score @ cost / budget of the complete table, of ``fit(bought=)``, and of rivals: a fit that
believes the blanks, columns filled with their means or by ``IterativeImputer``, rows that bought everything, these
weighted by inverse probabilities, and LightGBM in a cascade. Intervals of 95 % either hold the real score or do not;
binding budgets are those that some point of the frontier spends; refused are those for which few rows bought what they
need.

``loop``: a system that was fitted on 3,000 complete rows serves as many as asked with ``explore=0.05``, and the next
learns from all receipts so far, three times: promised / real score at the budget, beside a fit on the complete rows of
these receipts, and one that believes their blanks.

``certificates``: how often certificates of 90 % confidence are wrong, on rows drawn from a table of which everything is
known: receipts of a system that explores, and tables in which all columns were bought or only the free ones, with a
probability that depends on these, and is given or estimated.

``thyroid``: four blood tests at what they cost, ordered for four of five patients with a disorder and for three of ten
others; what was asked and examined is known of all.

``memory``: most memory that a process takes which fits complete rows, and one that fits with ``bought=``.

``picture``: promise and truth at the middle budget, where blanks depend on the label, against their share.
"""

import argparse
import os
import resource
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from lightgbm import LGBMClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401 - makes the next import work
from sklearn.impute import IterativeImputer

import thrifty
from thrifty.engine.evidence.certificate import certify_sampled
from thrifty.engine.evidence.hypothesis_tests import Sampled
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.walk.policy import route_by
from thrifty.learners.cascade.bought import warn_if_blanks_tell
from thrifty.learners.estimators.checks import check_training_rows
from thrifty.learners.estimators.incomplete import Bought, chance_of_all, estimated_chance

DATA = Path(os.environ.get("THRIFTY_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
FILES = {"letter26": "letter", "miniboone": "miniboone_5k", "bike": "bike_hour"}
METHODS = ("complete", "bought", "believed", "means", "iterative", "cases", "weights", "lightgbm")
MASKS = ("random", "known", "label", "value", "blocks")


def read(table, seed, n_rows, n_new=6_000):
    """Rows for fitting and test rows."""
    arrays = np.load(DATA / f"{FILES.get(table, table)}.npz", allow_pickle=False)
    X, y = arrays["X"].astype(float), arrays["y"]
    if table != "bike":
        y = np.unique(y, return_inverse=True)[1]
    if table == "letter":
        y = (y >= 13).astype(int)
    order = np.random.default_rng(seed).permutation(len(X))[: n_rows + min(len(X) - n_rows, n_new)]
    return X[order[:n_rows]], y[order[:n_rows]], X[order[n_rows:]], y[order[n_rows:]]


def mask_of(kind, X, y, n_known, share, seed):
    """Which cells are bought: all of the first columns, and of each other column all but about ``share``."""
    rng = np.random.default_rng([seed, MASKS.index(kind)])
    bought, Z = np.ones(X.shape, dtype=bool), (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    rank = np.argsort(np.argsort(y, kind="stable")) / len(y) - 0.5
    for column in range(n_known, X.shape[1]):
        lean = np.zeros(len(X))
        if kind == "known":
            lean = 2.0 * Z[:, :n_known] @ rng.choice([-1, 1], n_known) / np.sqrt(n_known)
        elif kind == "label":
            lean = 3.0 * rng.choice([-1, 1]) * rank
        elif kind == "value":
            lean = 1.5 * Z[:, column]
        if kind != "blocks" or (column - n_known) % 3 == 0:
            draw = rng.random(len(X))
        bought[:, column] = draw < 1 / (1 + np.exp(np.log(share / (1 - share)) - lean))
    return bought


def rows_of(name, X, y, bought, n_known):
    """Rows, targets and arguments of a fit for one way to deal with what was not bought."""
    blank = np.where(bought, X, np.nan)
    if name == "complete":
        return X, y, {}
    if name == "bought":
        return blank, y, {"bought": bought}
    if name == "means":
        return np.where(bought, X, np.nanmean(blank, axis=0)), y, {}
    if name == "iterative":
        return IterativeImputer(max_iter=5, random_state=0).fit_transform(blank), y, {}
    if name in ("cases", "weights"):
        has_all = bought.all(axis=1)
        if has_all.sum() < 100 or np.bincount(np.unique(y[has_all], return_inverse=True)[1]).max() < 10:
            return None
        weight = None
        if name == "weights":
            known = np.column_stack([X[:, :n_known], y])
            weight = 1.0 / np.maximum(estimated_chance(known, has_all, None, 0)[has_all], 0.01)
        return X[has_all], y[has_all], {"sample_weight": weight}
    return blank, y, {}  # believed


class BoostedCascade:
    """LightGBM on ever more columns, blanks as they are: a row stops where one of its probabilities is large enough."""

    def fit(self, X, y, order, prices):
        free = np.flatnonzero(prices == 0)
        self.sets = [np.append(free, part) for part in (order[:k] for k in np.arange(1, 5) * len(order) // 4)]
        self.costs, self.y = np.array([prices[columns].sum() for columns in self.sets]), y
        half = np.random.default_rng(0).permutation(len(y)) % 2
        self.models, self.held_out = [], np.empty((len(self.sets), len(y), len(np.unique(y))))
        for number, columns in enumerate(self.sets):
            for part in (0, 1):
                model = self._model().fit(X[half != part][:, columns], y[half != part])
                self.held_out[number, half == part] = model.predict_proba(X[half == part][:, columns])
            self.models.append(self._model().fit(X[:, columns], y))
        return self

    def _model(self):
        return LGBMClassifier(n_estimators=60, num_leaves=15, verbose=-1, n_jobs=1)

    def _walk(self, chances, threshold):
        place = np.argmax(
            np.append(chances[:-1].max(axis=2) >= threshold, [[True] * chances.shape[1]], axis=0), axis=0
        )
        return chances.argmax(axis=2)[place, np.arange(chances.shape[1])], self.costs[place].mean()

    def at(self, budget, new, truth):
        """Promised score, and score and mean cost on new rows."""
        sure = np.append(np.quantile(self.held_out.max(axis=2), np.linspace(0, 1, 200)), 2.0)
        within = [t for t in sure if self._walk(self.held_out, t)[1] <= budget] or [0.0]
        chances = np.array([m.predict_proba(new[:, s]) for m, s in zip(self.models, self.sets, strict=True)])
        answer, cost = self._walk(chances, max(within))
        return (self._walk(self.held_out, max(within))[0] == self.y).mean(), (answer == truth).mean(), cost


def compare(table, kind, args):
    """Print promised / real score @ cost divided by budget at three budgets, and what promises miss by."""
    found, n_refused, seconds, spent, holds = {}, {}, {}, {}, {}
    for seed in range(args.seeds):
        X, y, new, truth = read(table, seed, args.rows)
        n_known = X.shape[1] // 4
        bought = mask_of(kind, X, y, n_known, args.share, seed)
        prices = np.where(np.arange(X.shape[1]) < n_known, 0.0, 1.0)
        budgets, order = np.array([0.25, 0.4, 0.6]) * prices.sum(), np.flatnonzero(prices)
        for name in args.only:
            cells = found.setdefault(name, np.full((args.seeds, len(budgets), 3), np.nan))
            n_refused.setdefault(name, 0)
            if name == "lightgbm":
                if table != "bike":
                    boosted = BoostedCascade().fit(np.where(bought, X, np.nan), y, order, prices)
                    cells[seed] = [boosted.at(budget, new, truth) for budget in budgets]
                continue
            given = rows_of(name, X, y, bought, n_known)
            if given is None:
                n_refused[name] += len(budgets)
                continue
            fit = thrifty.BudgetedRegressor if table == "bike" else thrifty.BudgetedClassifier
            began = time.process_time()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                system = fit(feature_costs=prices, random_state=0).fit(*given[:2], **given[2])
            seconds.setdefault(name, []).append(time.process_time() - began)
            order = np.array([c for c in system.order_ if prices[c] > 0] or np.flatnonzero(prices))
            lacks = any(issubclass(one.category, thrifty.errors.MissingSupportWarning) for one in caught)
            for number, budget in enumerate(budgets):
                if lacks and system.frontier_.cost[-1] < 0.9 * budget:
                    n_refused[name] += 1
                point = system.at(budget=max(budget, system.frontier_.cost[0]))
                score, cost = point.score(new, truth), point.cost(new).mean()
                cells[seed, number] = point.expected_score_, score, cost
                low, high = point.expected_score_interval_
                holds.setdefault(name, []).append(low <= score <= high)
                if system.frontier_.cost[-1] >= budget:
                    spent.setdefault(name, []).append(cost / budget)
    for name, cells in found.items():
        shown = "   ".join(
            f"{promised:.3f} / {real:.3f} @ {cost / budget:.2f}"
            for (promised, real, cost), budget in zip(np.mean(cells, axis=0), budgets, strict=True)
        )
        missed = 100 * (cells[:, :, 0] - cells[:, :, 1]).mean(axis=1)
        print(
            f"{table:10s}{kind:7s}{args.share:4.0%} {name:10s}{shown}   promise {missed.mean():+5.1f} +- "
            f"{missed.std():.1f}, intervals hold {sum(holds.get(name, []))} of {len(holds.get(name, []))}, binding "
            f"budgets spent {np.mean(spent.get(name, [np.nan])):.2f}, refused {n_refused[name]}, "
            f"{np.mean(seconds.get(name, [0])):.0f} s",
            flush=True,
        )


def thyroid(n_rows):
    """Print promised and real accuracy, and cost, of fits on patients whose blood tests were ordered on suspicion."""
    arrays = np.load(DATA / "cost_ann_thyroid.npz", allow_pickle=False)
    X, cost = arrays["X"][:, :20].astype(float), arrays["cost"][:20]  # the last is computed from two others
    y = (arrays["y"] != np.bincount(arrays["y"]).argmax()).astype(int)  # 1: a disorder
    order = np.random.default_rng(0).permutation(len(X))
    X, y, new, truth = X[order[:n_rows]], y[order[:n_rows]], X[order[n_rows:]], y[order[n_rows:]]
    is_test, prices = cost > 1.0, np.where(cost > 1.0, cost, 0.0)
    draw = np.random.default_rng(1).random(X.shape)
    bought = ~is_test | (draw < np.where(y, 0.8, 0.3)[:, None])
    blank = np.where(bought, X, np.nan)
    for name, rows, given in (("complete", X, None), ("bought", blank, bought), ("believed", blank, None)):
        fitted = thrifty.BudgetedClassifier(feature_costs=prices, random_state=0).fit(rows, y, bought=given)
        cells = []
        for budget in (25.0, 40.0):
            point = fitted.at(budget=max(budget, fitted.frontier_.cost[0]))
            paid, score = point.cost(new).mean(), point.score(new, truth)
            cells.append(f"{point.expected_score_:.3f} / {score:.3f} @ {paid:.1f} of {budget:.0f}")
        print(f"{name:10s}" + "   ".join(cells), flush=True)
    print(f"{1.0 - truth.mean():.3f} of the rows have no disorder; all tests cost {prices.sum():.2f}")


def picture(args):
    """Draw promise and truth of a fit on what was bought, and of one that believes the blanks, against their share."""
    import matplotlib.pyplot as plt

    shares, drawn = (0.3, 0.5, 0.7), {}
    for share in shares:
        X, y, new, truth = read("letter", 0, args.rows)
        bought, prices = mask_of("label", X, y, 4, share, 0), np.where(np.arange(X.shape[1]) < 4, 0.0, 1.0)
        blank = np.where(bought, X, np.nan)
        for name, given in (("bought=mask", bought), ("blanks believed", None)):
            fitted = thrifty.BudgetedClassifier(feature_costs=prices, random_state=0).fit(
                blank, y, bought=given
            )
            point = fitted.at(budget=max(0.4 * prices.sum(), fitted.frontier_.cost[0]))
            drawn.setdefault(name, []).append((point.expected_score_, point.score(new, truth)))
            print(f"{share:.0%} blank, {name}: promised / real {drawn[name][-1]}", flush=True)
    figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    for color, (name, pairs) in zip(("C0", "C1"), drawn.items(), strict=True):
        promised, real = zip(*pairs, strict=True)
        axes.plot(shares, promised, "--", color=color, marker="o", label=f"{name}: promised")
        axes.plot(shares, real, color=color, marker="o", label=f"{name}: real")
    axes.set(xlabel="share of blank cells, which depends on the label", ylabel="accuracy", xticks=shares)
    axes.legend()
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(Path(__file__).resolve().parents[1] / "docs" / "img" / "incomplete.png", dpi=100)


def warning():
    """Share of masks of 2,000 rows that are warned of: by label, and at random."""
    for kind in ("label", "random"):
        warned = 0
        for seed in range(200):
            X, y, _, _ = read("letter", seed, 2_000)
            bought = mask_of(kind, X, y, 4, 0.5, seed)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                rows = check_training_rows(
                    thrifty.BudgetedClassifier(), np.where(bought, X, np.nan), y, None, 4, 0
                )
                warn_if_blanks_tell(rows, PriceList(np.ones(X.shape[1]), np.arange(X.shape[1])))
            warned += bool(caught)
        print(f"{kind}: {warned / 2:.1f} % of 200 tables warned of")


def memory(n_rows):
    """Print the most memory of a process before and after a fit of letters, on complete rows and with a mask."""
    for name in ("complete", "bought"):
        if os.fork() == 0:
            X, y, _, _ = read("letter", 0, n_rows)
            bought, prices = mask_of("known", X, y, 4, 0.5, 0), np.where(np.arange(X.shape[1]) < 4, 0.0, 1.0)
            small = rows_of(name, X[:500], y[:500], bought[:500], 4)
            fit = thrifty.BudgetedClassifier(feature_costs=prices, random_state=0).fit
            fit(*small[:2], **small[2])  # everything is compiled
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            given = rows_of(name, X, y, bought, 4)
            fit(*given[:2], **given[2])
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"{name:10s}{most:.0f} MB, {most - before:.0f} MB more than for 500 rows", flush=True)
            os._exit(0)
        os.wait()


def loop(table, seed, n_rows):
    """Print what systems promise and score that learn from receipts only, round by round."""
    X, y, new, truth = read(table, seed, 3_000, 3 * n_rows + 2_000)
    served, outcomes = np.array_split(new[: 3 * n_rows], 3), np.array_split(truth[: 3 * n_rows], 3)
    new, truth = new[3 * n_rows :], truth[3 * n_rows :]
    prices = np.where(np.arange(X.shape[1]) < X.shape[1] // 4, 0.0, 1.0)
    budget, receipts = 0.4 * prices.sum(), []

    def fit(rows, labels, **bought):
        return thrifty.BudgetedClassifier(feature_costs=prices, random_state=0).fit(rows, labels, **bought)

    def shown(fitted):
        point = fitted.at(budget=max(budget, fitted.frontier_.cost[0]))
        score, cost = point.score(new, truth), point.cost(new).mean()
        return f"{point.expected_score_:.3f} / {score:.3f} @ {cost / budget:.2f}"

    system = fit(X, y)
    print(f"{table} seed {seed}: at first {shown(system)}", flush=True)
    for number, rows in enumerate(served):
        exploring = system.at(budget=budget, explore=0.05)
        receipts.append(exploring.buy(dict(enumerate(rows.T)), n_rows=len(rows)))
        own, labels = thrifty.Receipts.of(*receipts), np.concatenate(outcomes[: number + 1])
        blank, began = own.X.to_numpy(dtype=float), time.process_time()
        system = fit(blank, labels, bought=own.bought, propensity=own.propensity)
        seconds = time.process_time() - began
        print(
            f"  round {number + 1}, {len(own):,} rows, {np.mean(own.cost) / budget:.2f} of the budget: receipts "
            f"{shown(system)} ({seconds:.0f} s); complete {shown(fit(np.concatenate(served[: number + 1]), labels))}; "
            f"believed {shown(fit(blank, labels))}",
            flush=True,
        )


def certificates(table, n_rows, n_draws, limit=0.04, confidence=0.9):
    """Print how many certificates claim less than a system loses on the rows that theirs were drawn from."""
    X, y, pool, truth = read(table, 0, 3_000, 1_000_000)
    n_free = X.shape[1] // 4
    prices = np.where(np.arange(X.shape[1]) < n_free, 0.0, 1.0)
    fitted = thrifty.BudgetedClassifier(feature_costs=prices, random_state=0).fit(X, y)
    serving = fitted.at(budget=0.4 * prices.sum(), explore=0.3).chain_.policy
    chosen, _ = fitted._candidates()
    whole = thrifty.evidence_of(fitted, pool, truth).with_full_alone()
    whole = replace(whole, points=chosen.evidence[0].points)
    stops = np.column_stack(
        [route_by(whole.gate, serving.thresholds[point]) for _, point in serving.in_force]
    )
    chance_of = {"receipts": serving.reached(serving.n_stages, stops)}
    Z = (pool[:, :n_free] - X[:, :n_free].mean(axis=0)) / X[:, :n_free].std(axis=0)
    chance_of["panel"] = chance_of["panel, estimated"] = 0.15 + 0.5 / (1 + np.exp(-2 * Z[:, 0] - Z[:, 1]))
    chance_of["complete"] = np.ones(len(pool))
    everything = np.arange(X.shape[1])
    for name, every in chance_of.items():
        told = []
        for seed in range(n_draws):
            rng = np.random.default_rng(seed)
            rows = rng.integers(0, len(pool), n_rows)
            has_all = rng.random(n_rows) < every[rows]
            how, chance = {"max_loss": limit, "confidence": confidence}, every[rows]
            on_rows = chosen.on([whole.take(rows[has_all])])
            if name == "complete":
                issued = thrifty.certify(on_rows, duplicates="count", **how)
            else:
                is_estimated = name.endswith("estimated")
                if is_estimated:
                    cells = Bought(has_all[:, None] | (prices == 0))
                    given = (pool[rows], truth[rows].astype(float), fitted.chain_.task, cells, everything)
                    chance = chance_of_all(*given, fitted.chain_.price_list)[1]
                sample = Sampled(n_rows, truth[rows[~has_all]], chance[has_all], is_estimated)
                issued = certify_sampled(on_rows, sample, measure="share", largest=None, **how)
            lost = 0.0
            if not issued.is_fallback:
                lost = 1.0 - whole.against_full().at_point(np.array(issued.point.thresholds))[2].mean()
            told.append((lost, issued.is_fallback, issued.point.chosen_cost, issued.sensitivity or 1.0))
        lost, is_fallback, cost, factor = np.array(told, dtype=float).T
        print(
            f"{name:18s}{np.mean(lost > limit):6.1%} of {n_draws} wrong; lost {lost.mean():.3f} to {lost.max():.3f}; "
            f"{is_fallback.mean():.0%} send all to the full model; cost {cost.mean():.2f} of {prices.sum():.0f}; "
            f"Gamma {np.median(factor):.2f}; 1 / p to {1 / every.min():.0f}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", default=["letter"])
    parser.add_argument("--rows", type=int, default=3_000)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--masks", nargs="*", default=["known", "label"], choices=MASKS)
    parser.add_argument("--only", nargs="*", default=METHODS, choices=METHODS)
    args = parser.parse_args()
    if args.tables == ["warning"]:
        warning()
        return
    warnings.simplefilter("ignore")
    if args.tables == ["thyroid"]:
        thyroid(args.rows)
        return
    if args.tables == ["memory"]:
        memory(args.rows)
        return
    if args.tables == ["picture"]:
        picture(args)
        return
    if args.tables[0] == "certificates":
        certificates((*args.tables, "letter")[1], args.rows, args.draws)
        return
    if args.tables[0] == "loop":
        for seed in range(args.seeds):
            loop((*args.tables, "letter")[1], seed, args.rows)
        return
    for table in args.tables:
        for kind in args.masks:
            compare(table, kind, args)


if __name__ == "__main__":
    main()
