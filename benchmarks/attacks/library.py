"""Attacks on what is bought and proved: sources that fail, interrupts, threads; certificates on hostile rows."""

import contextlib
import threading
import time

import numpy as np
import pandas as pd

# -- buying ------------------------------------------------------------------------------------------


class Shop:
    """Sells columns for 1, counts how often each cell is asked for, and may be interrupted at a question."""

    def __init__(self, table, interrupt_at=None):
        self.table = table
        self.asked = np.zeros(table.shape, dtype=int)
        self.n_questions, self._interrupt_at, self._lock = 0, interrupt_at, threading.Lock()

    def source(self, **how):
        from thrifty import DictSource

        columns = {name: lambda rows, at=at: self._sell(rows, at) for at, name in enumerate(self.table)}
        return DictSource(columns, len(self.table), chunk_size=40, **how)

    def _sell(self, rows, at):
        with self._lock:
            self.n_questions += 1
            if self.n_questions == self._interrupt_at:
                raise KeyboardInterrupt
            self.asked[rows, at] += 1
        time.sleep(0.001)
        return self.table.to_numpy()[rows, at]


def buying(cases, folder, args):
    """A buyer asks for every cell once and is billed once, after interrupts and with threads."""
    from thrifty import load

    clf, table = load(folder / "cancer.thrifty"), pd.read_csv(folder / "rows.csv")
    answers, costs = clf.predict(table), clf.cost(table)
    shop = Shop(table)
    clf.buy(shop.source())
    for n_threads in (1, 3):
        for place in range(1, shop.n_questions + 1, 2):
            with cases.case(f"an interrupt at question {place}, {n_threads} threads of the source"):
                _is_bought_once_after_an_interrupt(clf, table, answers, costs, place, n_threads)
    for n_buyers in (2, 4, 8):
        with cases.case(f"{n_buyers} threads buy from one source"):
            _is_bought_once_by_threads(clf, table, answers, costs, n_buyers)
    for on_failure in ("answer", "skip"):
        for seed in range(10):
            with cases.case(f"a source that fails, {on_failure}, seed {args.seed + seed}"):
                _agrees_with_ledger(clf, table, on_failure, args.seed + seed)
    _nonsense(cases, clf, table)


def _is_bought_once_after_an_interrupt(clf, table, answers, costs, place, n_threads):
    shop = Shop(table, interrupt_at=place)
    source = shop.source(threads=n_threads)
    with contextlib.suppress(KeyboardInterrupt):
        clf.buy(source)
    receipt = clf.buy(source)
    assert shop.asked.max() <= 1, f"{(shop.asked > 1).sum()} cells were bought again"
    assert np.array_equal(receipt.answer, answers)
    assert receipt.cost.sum() <= costs.sum() + 1e-9


def _is_bought_once_by_threads(clf, table, answers, costs, n_buyers):
    shop = Shop(table)
    source, receipts = shop.source(), []
    buyers = [threading.Thread(target=lambda: receipts.append(clf.buy(source))) for _ in range(n_buyers)]
    for buyer in buyers:
        buyer.start()
    for buyer in buyers:
        buyer.join()
    assert shop.asked.max() == 1, f"{(shop.asked > 1).sum()} cells were bought again"
    assert len(receipts) == n_buyers
    assert all(np.array_equal(receipt.answer, answers) for receipt in receipts)
    calls = (receipts[0].route == clf.chain_.n_stages) * clf.chain_.price_list.full_cost
    billed = sum(receipt.cost for receipt in receipts) - (n_buyers - 1) * calls
    assert np.allclose(billed, costs), "together they pay what one would have paid"


def _agrees_with_ledger(clf, table, on_failure, seed):
    """A source that fails for one row in ten: the receipt bills what its ledger says."""
    from thrifty import Delivery

    chance, ledger, asked = np.random.default_rng(seed), np.zeros(len(table)), np.zeros(table.shape, int)
    names = list(table)

    class Failing:
        def __len__(self):
            return len(table)

        def fetch(self, rows, group):
            columns = [names.index(name) for name in group]
            asked[np.ix_(rows, columns)] += 1
            failed = chance.random(len(rows)) < 0.1
            ledger[rows[~failed]] += len(columns)
            return Delivery(
                table.to_numpy()[np.ix_(rows, columns)], dict.fromkeys(rows[failed].tolist(), "no")
            )

    receipt = clf.buy(Failing(), on_failure=on_failure)
    calls = clf.chain_.price_list.full_cost * (receipt.route == clf.chain_.n_stages)
    assert asked.max() == 1
    assert np.allclose(receipt.cost, ledger + calls)
    assert receipt.failed.any()


def _nonsense(cases, clf, table):
    """What a source delivers is checked, and is a failure of the rows that it concerns."""
    values = table.to_numpy()
    for name, answer in {
        "too few rows": lambda right: right[:-1],
        "too many rows": lambda right: np.vstack([right, right]),
        "turned": lambda right: np.zeros((right.shape[1], right.shape[0] + 1)),
        "text": lambda right: [["red"] * right.shape[1]] * len(right),
        "nothing": lambda _: None,
        "a number": lambda _: 1.0,
        "infinite": lambda right: right * np.inf,
        "objects": lambda right: [[object()] * right.shape[1]] * len(right),
        "complex": lambda right: right + 1j,
        "an error": lambda _: 1 / 0,
        "a generator": lambda right: (row for row in right),
    }.items():
        with cases.case(f"a source that delivers nonsense: {name}"):

            def fetch(rows, names, answer=answer):
                return answer(values[np.ix_(rows, [list(table).index(one) for one in names])])

            receipt = clf.buy(fetch, n_rows=len(table))
            assert not receipt.is_answered.any()
            assert (receipt.cost == 0).all()


# -- certificates ------------------------------------------------------------------------------------

REPEATS = 40


def certificates(cases, folder, args):
    """Certificates on new rows are wrong as rarely as they promise; rows that prove nothing are refused."""
    from scipy.stats import binom

    from certificates import CONFIDENCE, KINDS, N_PROOF, WORLDS, simulate, simulate_kind
    from thrifty.errors import InvalidInputError

    n_issued, failures = 0, {}
    for n_classes in (2, 3, 0):
        for number, world in enumerate(WORLDS):
            rng, wrong, issued = np.random.default_rng([args.seed, n_classes, number]), 0, 0
            for repeat in range(REPEATS):
                for (times, duplicates), one in simulate(rng, n_classes, world).items():
                    if duplicates == "count":
                        continue  # the caller vouches that equal rows are independent, and here they are not
                    n_issued += 1
                    # Rows of the fit prove nothing, and copies no more than the rows themselves.
                    most = 0 if world[0] == "rows of the fit" else N_PROOF
                    if one is not None and one[0] > most:
                        name = f"{n_classes} classes, {world[0]} x {times}, repeat {repeat}"
                        failures[name] = f"{one[0]} rows are counted, of {most} that prove something"
                    if one is not None:
                        issued, wrong = issued + 1, wrong + bool(one[2])
            # One run in ten thousand of a certificate that keeps its promise has more wrong ones.
            if issued and wrong > binom.ppf(1 - 1e-4, issued, 1 - CONFIDENCE):
                failures[f"{n_classes} classes, {world[0]}"] = f"{wrong} of {issued} are wrong"
    cases.add(n_issued, failures)
    for number, (name, kind) in enumerate(KINDS.items()):
        with cases.case(f"certificates of {name}"):
            rng = np.random.default_rng([args.seed, 7, number])
            found = [simulate_kind(rng, *kind) for _ in range(REPEATS)]
            wrong = sum(bool(one[1]) for one in found)
            assert wrong <= binom.ppf(1 - 1e-4, REPEATS, 1 - CONFIDENCE), f"{wrong} of {REPEATS} are wrong"
    clf, table = _labelled(folder)
    labels = clf.predict(table)
    for name, (X, y, how) in {
        "no rows": (table[:0], labels[:0], {"max_loss": 0.1}),
        "fewer labels than rows": (table, labels[:-1], {"max_loss": 0.1}),
        "labels that the fit has not seen": (table, labels + 7, {"max_loss": 0.1}),
        "missing labels": (table, np.full(len(table), np.nan), {"max_loss": 0.1}),
        "a loss of NaN": (table, labels, {"max_loss": np.nan}),
        "a negative loss": (table, labels, {"max_loss": -0.1}),
        "a confidence of 1": (table, labels, {"max_loss": 0.1, "confidence": 1.0}),
        "a confidence of 0": (table, labels, {"max_loss": 0.1, "confidence": 0.0}),
        "copies of one row": (pd.concat([table[:1]] * 500), np.repeat(labels[:1], 500), {"max_loss": 0.1}),
    }.items():
        with cases.case(f"refused: {name}"):
            try:
                sure = clf.certified(X, y, **how).certificate_
            except InvalidInputError:
                continue
            assert sure.is_fallback, sure


def _labelled(folder):
    from thrifty import load

    return load(folder / "cancer.thrifty"), pd.read_csv(folder / "rows.csv")
