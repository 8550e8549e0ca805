"""Print digests of what small fits of every estimator answer and cost, to see that a change changed no fit.

    PYTHONPATH=OTHER/src python benchmarks/fit_digests.py > before.txt
    python benchmarks/fit_digests.py --against before.txt    # what is another, in words
    python benchmarks/fit_digests.py routers                 # those of routers only

`OTHER` is another checkout, of version 0.3 or later. All tables are complete and have prices of one resource. Digests
differ from machine to machine: a fit may differ in the last bits of a sum.
"""

import argparse
import hashlib
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.naive_bayes import GaussianNB

import thrifty

try:
    from thrifty.engine.evidence.thresholds import measured
    from thrifty.learners import dynamod
except ImportError:  # version 0.3, where options are parameters of the estimators
    from thrifty.evidence.thresholds import measured

    dynamod = None

SEED = {"random_state": 0}


def with_few_trees(estimator, options, *full):
    """A system with one gate whose cheap model has ten trees."""
    few = {"n_trees": 10} if dynamod is None else {"options": getattr(dynamod, options)(n_trees=10)}
    return estimator(*full, **few, **SEED)


def fits():
    """Fitted estimators and rows to ask them about, by name."""
    X, y = load_breast_cancer(return_X_y=True)
    X, several, numbers = X[:, :12], load_iris(return_X_y=True), load_diabetes(return_X_y=True)
    forest = ExtraTreesClassifier(20, **SEED)
    few = thrifty.StageOptions(sizes=[(20, 3)])
    small = {"stages": few, "cv": 3, **SEED}
    made = {
        "cascade": thrifty.BudgetedClassifier(forest, **small),
        "cascade, default sizes": thrifty.BudgetedClassifier(forest, **SEED),
        "cascade, budget": thrifty.BudgetedClassifier(forest, budget=1.4, **small),
        "cascade, proved": thrifty.BudgetedClassifier(forest, **small),
        "cascade, mistakes": thrifty.BudgetedClassifier(forest, loss=[[0, 20], [5, 0]], **small),
        "cascade, auto": thrifty.BudgetedClassifier(
            forest, **small | {"stages": replace(few, structure="auto")}
        ),
        "cascade, tree of purchases": thrifty.BudgetedClassifier(
            forest, **small | {"stages": replace(few, structure="tree")}
        ),
        "dynamod gbrt": with_few_trees(thrifty.DynaModGbrtClassifier, "BoostedOptions", forest),
        "dynamod lin": thrifty.DynaModLinClassifier(GaussianNB(), gamma=0.01, **SEED),
        "dynamod lstsq": with_few_trees(thrifty.DynaModLstsqClassifier, "LeafOptions", forest),
        "confidence": thrifty.ConfidenceRouter(forest, cheap=GaussianNB(), features=[0, 1], **SEED),
    }
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    for name, one in made.items():
        try:
            one.fit(scaled[::2], y[::2])
        except ValueError:  # a structure that another version does not have
            continue
        if name == "cascade, proved":
            one = one.certified(scaled[1::2], y[1::2], max_loss=0.1)
        yield name, one, scaled[1::2]
    yield "several classes", thrifty.BudgetedClassifier(forest, **small).fit(*several), several[0]
    gbrt = with_few_trees(thrifty.DynaModGbrtClassifier, "BoostedOptions", forest)
    yield "dynamod gbrt, several classes", gbrt.fit(*several), several[0]
    regressor = ExtraTreesRegressor(20, **SEED)
    yield "numbers", thrifty.BudgetedRegressor(regressor, budget=4.0, **small).fit(*numbers), numbers[0]
    rng = np.random.default_rng(0)
    documents = rng.normal(size=(600, 6)).round(3)
    grade = np.digitize(documents[:, 0] + documents[:, 1], [0, 1, 2])
    ranker = thrifty.BudgetedRanker(regressor, **small)
    yield "documents", ranker.fit(documents, grade, qid=np.arange(600) // 10), documents


def estimator_digests():
    """Digests of what estimators answer and cost, by name."""
    for name, one, X in fits():
        said = one.predict_proba(X) if hasattr(one, "predict_proba") else one.predict(X)
        policy, seen = one.chain_.policy, getattr(one, "evidence_", None)
        if (
            seen is not None and seen.optimism is not None
        ):  # scores of the rows of the fit, without a correction
            policy = measured(policy, replace(seen, optimism=None))
        yield (
            name,
            {
                "answers": digest(said),
                "costs": digest(one.cost(X)),
                "routes": digest(one.route(X)),
                "operating points": digest(policy.thresholds, policy.cost),
                "scores of operating points": digest(policy.score),
            },
        )


# -- routers, by public names only: they run on former checkouts too ----------------------------------

PRICES = {"tiny": 1.0, "small": 2.0, "middle": 5.0, "large": 20.0}


def router_log(n_rows, seed):
    """Rows of a log: features, qualities, costs and answers of models of rising skill; the first column is how hard."""
    rng = np.random.default_rng(seed)
    hard = rng.random(n_rows)
    chance = np.clip(np.array([0.55, 0.65, 0.75, 0.92]) + 0.5 - hard[:, None], 0.02, 0.98)
    right = rng.random((n_rows, 4)) < chance
    answers = np.where(right, 0, rng.integers(1, 5, right.shape))
    cost = (np.array(list(PRICES.values())) * rng.uniform(0.8, 1.2, right.shape)).round(3)
    X = np.column_stack([hard + 0.2 * rng.standard_normal(n_rows), rng.random(n_rows)]).round(6)
    return X, right.astype(float), cost, answers


def routers():
    """Fitted routers and a log of new rows, by name."""
    X, quality, cost, answers = router_log(1_000, 0)
    fit, new = slice(0, 600), slice(600, None)

    def split(**parts):
        return [{name: part[rows] for name, part in parts.items()} for rows in (fit, new)]

    kinds = np.array(["easy", "plain", "hard", "tricky"])[np.digitize(X[:, 0], [0.25, 0.5, 0.75])]
    texts = np.array(
        [f"question {row}, {kind}: {kind} {'why ' * (row % 5)}" for row, kind in enumerate(kinds)]
    )
    words = np.array(["Paris", "Rome", "Oslo", "Bern", "Kyiv"], dtype=object)[answers]
    columns = ["hard", "other"]
    noise = np.random.default_rng(1).normal(size=quality.shape)
    propensity = np.where(X[:, :1] > 0.5, [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1])
    asked = (np.random.default_rng(2).random((len(X), 1)) > propensity.cumsum(axis=1)).sum(axis=1)
    is_asked = np.arange(4) == np.minimum(asked, 3)[:, None]
    seen, billed = np.where(is_asked, quality, np.nan), np.where(is_asked, cost, np.nan)
    made = {
        "texts": (
            thrifty.ModelRouter({name: (price, 4 * price) for name, price in PRICES.items()}, **SEED),
            split(X=texts, quality=quality, answers=words),
        ),
        "table": (
            thrifty.ModelRouter(PRICES, **SEED),
            split(X=pd.DataFrame(X, columns=columns), quality=quality, cost=cost, answers=answers),
        ),
        "evidence": (
            thrifty.ModelRouter(list(PRICES), **SEED),
            split(X=X, quality=quality, cost=cost, evidence=quality + 0.3 * noise),
        ),
        "propensities": (
            thrifty.ModelRouter(list(PRICES), max_asks=1, **SEED),
            split(X=X, quality=seen, cost=billed, propensity=propensity),
        ),
    }
    for name, (router, (log, rows)) in made.items():
        rows["X"] = rows["X"].tolist() if name == "texts" else rows["X"]
        log["X"] = log["X"].tolist() if name == "texts" else log["X"]
        yield name, router.fit(**log), rows


def expected_quality(router):
    """Mean quality expected of a router, by its present or its former name."""
    return next(
        getattr(router, name) for name in ("expected_score_", "expected_quality_") if hasattr(router, name)
    )


def replay_parts(router, log):
    """Models asked, the one whose answer is taken, cost and quality of each row of a log."""
    replay = router.replay(**log)
    asked = [" ".join(filter(None, names)) for names in replay.asked.tolist()]
    ips = replay.cost if replay.ips is None else replay.ips
    return "\n".join([*asked, *replay.model.tolist()]).encode(), replay.cost, replay.quality, ips


def replayed(router, log):
    """Digests of what a router asks, pays, answers and expects."""
    models, cost, quality, ips = replay_parts(router, log)
    return {
        "models": digest(models),
        "costs": digest(cost, ips),
        "qualities": digest(quality),
        "expectations": digest(*map(np.asarray, expected(router))),
    }


def router_digests():
    """Digests of replays, budgets, bills and certificates of routers, by name."""
    for name, router, log in routers():
        low, high = (float(router.frontier_.cost[place]) for place in (0, -1))
        cheap, dear = (router.at(budget=low + share * (high - low)) for share in (0.25, 0.6))
        for point, one in (("replay", router), ("cheap", cheap), ("dear", dear)):
            yield f"router, {name}: {point}", replayed(one, log)
        held = router.at(budget=0.7 * high + 0.3 * low, confidence=0.9)
        bills = [one.bill(n_rows) for one in (router, cheap, held) for n_rows in (10, 1_000)]
        yield f"router, {name}: bill", {"bills": digest(np.array(bills))}
        if name != "propensities":  # which lacks the answers that prove something
            proved = {part: values for part, values in log.items() if part != "propensity"}
            by_loss = router.certified(**proved, max_loss=0.2)
            by_bill = router.certified(**proved, budget=high, n_next=500)
            bounds = [one.certificate_.bound for one in (by_loss, by_bill)]
            costs = [one.expected_cost_ for one in (by_loss, by_bill)]
            yield (
                f"router, {name}: certificates",
                {"bounds": digest(np.array(bounds)), "costs": digest(np.array(costs))},
            )


def expected(router):
    """Mean cost and quality expected of a router, and its frontier."""
    frontier = router.frontier_
    quality = getattr(frontier, "quality", None)
    return (
        router.expected_cost_,
        expected_quality(router),
        frontier.cost,
        frontier.score if quality is None else quality,
    )


def digest(*parts):
    """First digits of the SHA-256 of some arrays."""
    data = b"".join(
        part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes() for part in parts
    )
    return hashlib.sha256(data).hexdigest()[:12]


def what_changed(parts, before):
    """In words, how a fit differs from one before; digests are those of ``parts`` in their order."""
    if before is None:
        return "was not there"
    others = [part for (part, now), then in zip(parts.items(), before, strict=True) if now != then]
    same = [part for part in parts if part not in others]
    if not others:
        return "the same"
    return f"other {', '.join(others)}" + (f"; the same {', '.join(same)}" if same else "")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["all", "routers"], default="all")
    parser.add_argument("--against", type=Path)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [] if asked.against is None else asked.against.read_text().splitlines()
    before = {name.strip(): digests.split() for name, digests in (line.split(" | ") for line in lines)}
    for digests in [router_digests] if asked.what == "routers" else [estimator_digests, router_digests]:
        for name, parts in digests():
            of_fit = " ".join(parts.values()) if not before else what_changed(parts, before.pop(name, None))
            print(f"{name:34} | {of_fit}", flush=True)
    for name in before if asked.what == "all" else ():
        print(f"{name:34} | is gone")


if __name__ == "__main__":
    main()
