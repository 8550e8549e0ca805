"""Features as they are bought: throughput from a database, failures against the source's own ledger, sessions.

    python benchmarks/buying.py

A cascade is fitted once. (1) sqlite3 with 100,000 rows: queries, and rows per second. (2) A source that fails 5 % of
its purchases at random, 10,000 rows under each policy: rows without an answer, cells asked for twice, and the
difference between what the receipts and the ledger of the source say. (3) A session for each row against the batch: of
4,200 rows each of letters, covtype (seven classes) and the thyroid table at its prices and discounts, which are all
that it has beside those of the fit, in THRIFTY_DATA (default ../shared/data), and of diabetes, a number. Times are
processor seconds, which do not depend on what else runs.
"""

import sqlite3
import tempfile
import time
import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import Ridge

from frontier import DATA
from reproduction import datasets
from thrifty import BudgetedClassifier, BudgetedRegressor, Delivery, Policy, Prices, SqlSource, StageOptions
from thrifty.errors import PurchaseFailedError

N_COLUMNS, N_DATABASE, N_FAILING, N_FIT, N_SESSIONS = 12, 100_000, 10_000, 3_000, 4_200
NAMES = [f"x{column}" for column in range(N_COLUMNS)]
PRICES = np.round(np.linspace(0.11, 2.53, N_COLUMNS), 2)


def between(clf, X, quantile=0.5):
    """The fit at thresholds that send on some rows from every stage."""
    gate = clf.chain_.visit_all(clf.chain_.reader(X)).gate
    clf.chain_ = clf.chain_.at(Policy.of(np.quantile(gate, quantile, axis=0) - 1e-9))
    return clf


def fitted():
    """A cascade, and new rows."""
    X, y = make_classification(N_DATABASE + 4000, N_COLUMNS, n_informative=8, random_state=0)
    table = pd.DataFrame(X, columns=NAMES)
    prices = {"prices": Prices(dict(zip(NAMES, PRICES, strict=True)), full=0.37)}
    full = RandomForestClassifier(50, min_samples_leaf=5, random_state=0)
    clf = BudgetedClassifier(full, stages=StageOptions(sizes=[(30, 4)]), cv=3, random_state=0, **prices)
    clf.fit(table[:4000], y[:4000])
    return between(clf, table[4000:8000]), table[4000:].reset_index(drop=True)


def database(clf, table):
    """Queries and time of a batch from sqlite3."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.db"
        with closing(sqlite3.connect(path)) as connection:
            table.rename_axis("id").to_sql("rows", connection)
            connection.execute("CREATE UNIQUE INDEX by_id ON rows (id)")
        begin = time.process_time()
        expected = clf.predict(table)
        at_hand = time.process_time() - begin
        route = clf.route(table)
        for chunk_size in (1000, 10_000, 30_000):
            source = SqlSource(
                lambda: sqlite3.connect(path), "rows", "id", range(len(table)), chunk_size=chunk_size
            )
            begin = time.process_time()
            receipt = clf.buy(source)
            seconds = time.process_time() - begin
            visitors = [int((route >= place).sum()) for place in range(clf.chain_.n_stages + 1)]
            most = sum(-(-n // chunk_size) for n in visitors)
            assert np.array_equal(receipt.answer, expected)
            print(
                f"sqlite3, {len(table):,} rows, chunks of {chunk_size:>6,}: {source.n_questions:>4} queries "
                f"(stages x chunks: {most}), {seconds:5.1f} s, {len(table) / seconds:>7,.0f} rows/s "
                f"({at_hand:.1f} s from a table at hand)"
            )


class Failing:
    """Fails some purchases at random and keeps a ledger."""

    def __init__(self, table, share, seed=0):
        self.values, self.share, self.chance = table.to_numpy(), share, np.random.default_rng(seed)
        self.asked, self.ledger = np.zeros(self.values.shape, dtype=int), np.zeros(len(table))

    def __len__(self):
        return len(self.values)

    def fetch(self, rows, group):
        columns = [NAMES.index(name) for name in group]
        self.asked[np.ix_(rows, columns)] += 1
        failed = self.chance.random(len(rows)) < self.share
        self.ledger[rows[~failed]] += PRICES[columns[0]]
        return Delivery(self.values[np.ix_(rows, columns)], dict.fromkeys(rows[failed].tolist(), "no stock"))


def failures(clf, table):
    """Every policy against the ledger of a source that fails."""
    for on_failure in ("answer", "skip", "raise"):
        source = Failing(table, 0.05)
        try:
            receipt = clf.buy(source, on_failure=on_failure)
        except PurchaseFailedError as error:
            receipt = error.receipt
        called = clf.chain_.price_list.full_cost * (receipt.route == clf.chain_.n_stages)
        off = np.abs(receipt.cost - source.ledger - called).max()
        nothing = ~receipt.bought.any(axis=1)
        print(
            f"on_failure={on_failure!r}: {len(receipt):,} receipts, {receipt.failed.any(axis=1).sum():,} rows with a "
            f"failure, {(~receipt.is_answered).sum():,} without an answer ({nothing.sum():,} hold nothing), cells "
            f"asked twice: {(source.asked > 1).sum()}, paid {receipt.cost.sum():,.2f}, "
            f"ledger {(source.ledger + called).sum():,.2f}, largest difference of a row {off:.1e}"
        )


def sessions(name, clf, table):
    """One row after another against the batch."""
    answers, route, cost = clf.predict(table), clf.route(table), clf.cost(table)
    cells, differ, purchases = table.to_dict("records"), 0, 0
    begin = time.process_time()
    for row in range(len(table)):
        session = clf.start(row)
        while (wanted := session.next_purchase) is not None:
            session.give({column: cells[row][column] for column in wanted.columns})
            purchases += 1
        same = np.isclose(session.answer, answers[row], rtol=1e-12) and session.route == route[row]
        differ += not (same and np.isclose(session.cost, cost[row]))
    seconds = time.process_time() - begin
    print(
        f"sessions, {name}: {len(table):,} rows, {differ} differ; {1e3 * seconds / len(table):.1f} ms a row, "
        f"{purchases / len(table):.1f} steps, {100 * np.mean(route == clf.chain_.n_stages):.0f} % to the full model",
        flush=True,
    )


def real_tables():
    """Tables with their labels and prices, in a random order."""
    letters, covtype = np.load(DATA / "letter.npz"), np.load(DATA / "covtype.npz")
    yield "letters, two classes", letters["X"], letters["y"] >= 13, None
    some = np.random.default_rng(0).choice(len(covtype["y"]), N_FIT + N_SESSIONS, replace=False)
    yield "covtype, seven classes", covtype["X"][some], covtype["y"][some], None
    thyroid = datasets.load_priced("thyroid", DATA)
    yield (
        "thyroid, with discounts",
        thyroid.X,
        thyroid.y,
        Prices(thyroid.feature_costs, discounts=thyroid.discounts),
    )


def real_sessions():
    """A session for every row of real tables that the fit has not seen."""
    for name, X, y, prices in real_tables():
        order = np.random.default_rng(0).permutation(len(y))
        table = pd.DataFrame(X[order].astype(float), columns=[f"x{column}" for column in range(X.shape[1])])
        clf = BudgetedClassifier(
            HistGradientBoostingClassifier(max_iter=30, random_state=0),
            stages=StageOptions(sizes=[(30, 4)]),
            cv=3,
            prices=prices,
            random_state=0,
        ).fit(table[:N_FIT], y[order][:N_FIT].astype(int))
        sessions(name, between(clf, table[:N_FIT]), table[N_FIT : N_FIT + N_SESSIONS].reset_index(drop=True))


def main():
    """Print all of it."""
    warnings.simplefilter("ignore")
    clf, table = fitted()
    database(clf, table)
    failures(clf, table[:N_FAILING])
    real_sessions()
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    number = BudgetedRegressor(Ridge(), stages=StageOptions(sizes=[(30, 3)]), cv=3, random_state=0).fit(
        X[:200], y[:200]
    )
    sessions("diabetes, a number", between(number, X[:200]), X[200:].reset_index(drop=True))


if __name__ == "__main__":
    main()
