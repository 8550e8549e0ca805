"""Score at small budgets on splits of many tables, and two checkouts side by side.

    python benchmarks/small_budgets.py letters pol heart --keep after.json
    python benchmarks/small_budgets.py letters pol heart --keep after.json --against before.json
    python benchmarks/small_budgets.py switch context --structures line tree auto

`before.json` is what the same command kept with another checkout in PYTHONPATH. Rows are drawn at random, `--rows` of
them for the fit and up to 4,000 others for the test, once for each of `--splits` splits; default settings; the full
model is 100 extra trees. "Held" sets the operating point by what the test rows pay, which needs no labels. Classes are
scored by accuracy, numbers by R2. Cells are the mean over splits and its standard error; with `--against`, of the
difference on the same splits. `--asked B` fits with `budget=B` and looks at that budget alone; `--structures` prints
a table for each `StageOptions(structure=...)`.

Six tables are synthetic. `houses`: 18 columns, of which one has 70 codes (a zone) that say as much as two
coordinates together, and several say nearly the same about the size; `houses_classes` asks which numbers are above
zero. `graded`: 14 columns, nine of chance, and five of falling strength, some with two or few values. In `switch` and
`context` no purchase is worth anything by itself. `switch`: column 0 holds a number from 0 to 5, and the label is the
sign of the column of that number, plus noise: an oracle has .907 at a cost of 2. `context`: AFAContext of AFABench
(arXiv 2508.14734): three columns say, with noise, which of three cubes of ten columns is informative, in which class
c of 8 puts its 3-bit code into columns c to c + 2; everything else is noise; `context_noisy` has a noise of .3
instead of .1.
"""

import argparse
import json
import os
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

from thrifty import BudgetedClassifier, BudgetedRegressor, Prices, StageOptions, hold_budget

DATA = Path(os.environ.get("THRIFTY_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
MAX_TEST = 4_000
FEW, PRICED = (2, 3, 4, 5, 8), {"heart": (2, 5, 20, 50), "pima": (2, 5, 10, 20), "thyroid": (2, 10, 20, 25)}
BUDGETS = PRICED | {"switch": (2, 3, 4), "context": (3, 4, 5, 6, 8, 10), "context_noisy": (3, 4, 5, 6, 8, 10)}
NUMBERS = ("pol", "bike_hour", "cpu_act", "houses")


def houses(n_rows, seed):
    """Numbers; column 13 is one of 70 codes, whose effect columns 8 and 9 tell together."""
    world, rng = np.random.default_rng(1234), np.random.default_rng(seed)
    centre, code, peak = world.uniform(size=(70, 2)), world.permutation(70), world.uniform(size=(12, 2))
    far = np.square(centre[:, None] - peak).sum(axis=2)
    hills = np.exp(-far / 0.02) @ world.normal(size=12)
    effect = (hills - hills.mean()) / hills.std() + (centre[:, 0] - centre[:, 0].mean()) / centre[:, 0].std()
    zone, size = rng.integers(0, 70, n_rows), rng.normal(size=n_rows)
    X = rng.normal(size=(n_rows, 18))
    for column, noise in enumerate((0.3, 0.5, 0.5, 0.8, 1.0, 2.0)):
        X[:, column] = size + noise * X[:, column]
    X[:, 6] = X[:, 6] > 1.3
    X[:, 8:10] = centre[zone] + 0.02 * X[:, 8:10]
    X[:, 13] = code[zone]
    y = 0.75 * size + 0.6 * effect[zone] / effect.std() + 0.6 * X[:, 6] + 0.1 * X[:, 7]
    return X.round(3), y + 0.3 * rng.normal(size=n_rows)


def graded(n_rows, seed):
    """Two classes; the last five columns say less and less, the others nothing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 14))
    X[:, 10], X[:, 12], X[:, 13] = X[:, 10] > 0, X[:, 12] > 0.5, X[:, 13].round()
    told = (X[:, 9:] - X[:, 9:].mean(axis=0)) / X[:, 9:].std(axis=0)
    return X.round(3), told @ [1.2, 0.8, 0.5, 0.35, 0.25] + rng.logistic(size=n_rows) > 0


def switch(n_rows, seed):
    """Column 0 says which of six others has the sign of the label."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 7))
    X[:, 0] = rng.integers(0, 6, n_rows)
    signal = X[np.arange(n_rows), X[:, 0].astype(int) + 1]
    return X.round(3), signal + 0.3 * rng.normal(size=n_rows) > 0


def context(n_rows, seed, noise=0.1):
    """Columns 0 to 2 say which of three cubes has the code of the class."""
    rng = np.random.default_rng(seed)
    cube, label = rng.integers(0, 3, n_rows), rng.integers(0, 8, n_rows)
    X = rng.normal(0.5, 0.3, (n_rows, 33))
    X[:, :3] = np.eye(3)[cube] + rng.normal(0.0, noise, (n_rows, 3))
    for bit in range(3):
        value = (label >> (2 - bit)) & 1
        X[np.arange(n_rows), 3 + 10 * cube + label + bit] = value + rng.normal(0.0, noise, n_rows)
    return X.round(3), label


SYNTHETIC = {
    "houses": houses,
    "houses_classes": houses,
    "graded": graded,
    "switch": switch,
    "context": context,
    "context_noisy": lambda n_rows, seed: context(n_rows, seed, 0.3),
}


def load(name, n_rows, seed):
    """Columns, targets, prices and groups of rows drawn at random, or a fresh draw of a synthetic table."""
    if name in SYNTHETIC:
        X, y = SYNTHETIC[name](n_rows + MAX_TEST, seed)
        return X, y > 0 if name == "houses_classes" else y, None, None
    files = {"heart": "cost_heart_cleveland", "pima": "cost_pima_diabetes", "thyroid": "cost_ann_thyroid"}
    files |= dict.fromkeys(("letters", "letters26"), "letter") | dict.fromkeys(
        ("forest", "forest7"), "covtype"
    )
    files |= {"miniboone": "miniboone_5k", "gas_drift": "gas_drift_8batch"}
    arrays = np.load(DATA / f"{files.get(name, name)}.npz")
    X, y, prices = arrays["X"], arrays["y"], arrays["cost"].astype(float) if name in PRICED else None
    if name == "thyroid":
        X, y, prices = X[:, :20], y < 3, prices[:20]
    elif name in ("heart", "pima"):
        y = y > 0
    elif name in ("letters", "forest"):
        y = y >= 13 if name == "letters" else y == 2
    rows = np.random.default_rng(seed).permutation(len(y))[: n_rows + MAX_TEST]
    groups = arrays["sensor"] if name == "gas_drift" else None
    return X[rows].astype(float), y[rows].astype(float) if name in NUMBERS else y[rows], prices, groups


def measure(name, n_rows, seed, budgets, asked, structure):
    """Scores at the budgets, spend over budget of new rows, first purchases, and seconds of the fit."""
    X, y, prices, groups = load(name, n_rows, seed)
    n_fit = min(n_rows, 4 * len(y) // 5)
    kind, full = BudgetedClassifier, ExtraTreesClassifier(100, random_state=0)
    if name in NUMBERS:
        kind, full = BudgetedRegressor, ExtraTreesRegressor(100, random_state=0)
    start = time.process_time()
    stages = StageOptions() if structure is None else StageOptions(structure=structure)
    priced = {"prices": Prices(prices, groups=groups), "budget": asked}
    model = kind(full, stages=stages, **priced, n_jobs=1, random_state=0)
    model.fit(X[:n_fit], y[:n_fit])
    seconds = time.process_time() - start
    X, y = X[n_fit:], y[n_fit:]
    cheapest = model.chain_.at(model.chain_.policy.at(0)).cost(X).mean()
    # A budget below the first purchase is answered with the largest class, or the mean.
    constant = 0.0 if name in NUMBERS else float(np.unique(y, return_counts=True)[1].max() / len(y))
    scores = [
        hold_budget(model, X, budget).score(X, y) if budget >= cheapest else constant for budget in budgets
    ]
    policy = model.chain_.policy
    spent = [
        float(model.at(budget=budget).cost(X).mean() / budget)
        for budget in budgets
        if policy.cost[0] <= budget <= policy.cost[-1]
    ]
    first = [int(purchase) for purchase in model.order_[:5]]
    return {"scores": scores, "spent": spent, "first": first, "seconds": seconds}


def print_table(name, chosen, known, before, structure):
    budgets = (chosen.asked,) if chosen.asked else BUDGETS.get(name, FEW)
    keys = [
        f"{name} {chosen.rows} {seed} {chosen.asked}" + (f" {structure}" if structure else "")
        for seed in range(chosen.seed, chosen.seed + chosen.splits)
    ]
    for seed, key in enumerate(keys, chosen.seed):
        if key not in known:
            known[key] = measure(name, chosen.rows, seed, budgets, chosen.asked, structure)
            if chosen.keep:
                Path(chosen.keep).write_text(json.dumps(known))
    found = [known[key] for key in keys]
    scores = np.array([one["scores"] for one in found])
    lines = {"": scores}
    if before:
        earlier = [before[key] for key in keys]
        lines = {"before": np.array([one["scores"] for one in earlier]), "after": scores}
        lines["difference"] = scores - lines["before"]
        found = [*earlier, *found]
    spent = np.array([one for each in found for one in each["spent"]])
    seconds = np.array([one["seconds"] for one in found]).reshape(-1, len(keys)).mean(axis=1)
    print(
        f"\n| {name}{f', {structure}' if structure else ''} | "
        + " | ".join(f"{budget:g}" for budget in budgets)
        + " |"
    )
    print("|---" * (1 + len(budgets)) + "|")
    for label, some in lines.items():
        error = some.std(axis=0, ddof=1) / np.sqrt(len(some)) if len(some) > 1 else np.zeros(len(budgets))
        sign = "+" if label == "difference" else ""
        cells = [
            f"{one:{sign}.4f} ± {around:.4f}" for one, around in zip(some.mean(axis=0), error, strict=True)
        ]
        print(f"| {label} | " + " | ".join(cells) + " |")
    print(
        f"seconds of a fit {seconds.round(1)}, spent over budget {spent.mean():.3f} ± {spent.std():.3f}; ",
        end="",
    )
    print("first purchases " + "; ".join(str(one["first"]) for one in found[-len(keys) :]), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the first split")
    parser.add_argument("--asked", type=float, help="budget of the fit, and the only one that is looked at")
    parser.add_argument("--structures", nargs="+", choices=["line", "tree", "auto"], default=[None])
    parser.add_argument("--keep", help="file that keeps what was measured, and is read again")
    parser.add_argument("--against", help="such a file of another checkout")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    known = json.loads(Path(chosen.keep).read_text()) if chosen.keep and Path(chosen.keep).exists() else {}
    before = json.loads(Path(chosen.against).read_text()) if chosen.against else None
    for name in chosen.tables:
        for structure in chosen.structures:
            print_table(name, chosen, known, before, structure)


if __name__ == "__main__":
    main()
