"""Ready sources: tables of databases, services of the web, values and functions; none buys a cell twice."""

import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.naive_bayes import GaussianNB

from thrifty import BudgetedClassifier, Delivery, DictSource, HttpSource, SqlSource, StageOptions
from thrifty.errors import InvalidInputError

NAMES = ["age", "income", "debt", "score"]
TABLE, Y = load_breast_cancer(return_X_y=True)
TABLE = pd.DataFrame(TABLE[:, [0, 1, 3, 7]], columns=NAMES)
KEYS = [f"k{row}" for row in range(len(TABLE))]


@pytest.fixture(scope="module")
def clf():
    one = BudgetedClassifier(GaussianNB(), stages=StageOptions(sizes=[(6, 2)]), cv=2, random_state=0).fit(
        TABLE[::2], Y[::2]
    )
    low, high = one.chain_.policy.cost[[0, -1]]
    return one.at(budget=float((low + high) / 2))


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("database") / "people.db"
    with closing(sqlite3.connect(path)) as connection:
        TABLE.assign(id=KEYS).to_sql("people", connection, index=False)
    return path


def agrees(clf, receipt):
    np.testing.assert_array_equal(receipt.answer, clf.predict(TABLE))
    np.testing.assert_allclose(receipt.cost, clf.cost(TABLE))
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [{}, {"threads": 3, "chunk_size": 50, "timeout": 30.0}], ids=["alone", "threads"]
)
def test_a_database_is_asked_once_per_stage_and_chunk_and_never_twice_for_a_cell(clf, database, how):
    source = SqlSource(lambda: sqlite3.connect(database), "people", "id", KEYS, **how)
    assert agrees(clf, clf.buy(source))
    visitors = [(clf.route(TABLE) >= place).sum() for place in range(clf.chain_.n_stages + 1)]
    most = sum(-(-int(n) // how.get("chunk_size", 1000)) for n in visitors)
    asked = source.n_questions
    assert asked <= most
    # What is in stock is neither asked for nor paid for again.
    again = clf.buy(source)
    assert source.n_questions == asked
    np.testing.assert_array_equal(again.answer, clf.predict(TABLE))
    np.testing.assert_array_equal(
        again.cost, clf.chain_.price_list.full_cost * (again.route == clf.chain_.n_stages)
    )


def test_keys_and_columns_that_a_table_lacks_are_named(clf, database):
    def source(**how):
        return SqlSource(lambda: sqlite3.connect(database), "people", "id", [*KEYS[:5], "nobody"], **how)

    receipt = clf.buy(source())
    assert receipt.is_answered.tolist() == [True] * 5 + [False]
    assert receipt.reason[5] == "people has no row with id = 'nobody'"
    with pytest.raises(InvalidInputError, match=r"no column 'incom'; did you mean 'income'\?"):
        clf.buy(source(columns={"income": "incom"}))
    with pytest.raises(InvalidInputError, match="'poeple' must be there.*no such table"):
        clf.buy(SqlSource(lambda: sqlite3.connect(database), "poeple", "id", KEYS))
    with pytest.raises(InvalidInputError, match="connect must be a function"):
        SqlSource(database, "people", "id", KEYS)
    with pytest.raises(InvalidInputError, match="threads must be a whole number, 1 or more; got 0"):
        source(threads=0)


def test_a_key_that_a_table_has_twice_fails_for_its_row_alone():
    table = TABLE[:5].assign(id=["k0", "k1", "k1", "k2", "k3"])

    def connect():
        connection = sqlite3.connect(":memory:")
        table.to_sql("people", connection, index=False)
        return connection

    delivery = SqlSource(connect, "people", "id", KEYS[:4]).fetch(np.arange(4), ["age"])
    assert delivery.failed == {1: "people has 2 rows, where one must be, with id = 'k1'"}
    np.testing.assert_array_equal(delivery.values[[0, 2, 3], 0], TABLE["age"].to_numpy()[[0, 3, 4]])


def test_a_column_that_sqlite_would_read_as_text_is_an_error(database):
    def failed(key="id", column="age"):
        source = SqlSource(lambda: sqlite3.connect(database), "people", key, KEYS[:2], retries=0)
        return source.fetch(np.arange(2), [column]).failed

    assert failed() == {}
    assert "no such column: people.agee" in failed(column="agee")[0]
    assert "no such column: people.idd" in failed(key="idd")[0]


def test_a_truth_value_among_objects_is_no_number_of_a_source(clf):
    values = np.array([True, 1.0], dtype=object)
    receipt = clf.buy(DictSource(dict.fromkeys(NAMES, values)))
    assert receipt.is_answered.tolist() == [False, True]
    assert "must hold numbers; got True. Correct it" in receipt.reason[0]
    # A column that is declared as truth values is one of 0 and 1.
    declared = clf.buy(DictSource(dict.fromkeys(NAMES, np.array([True, True]))))
    np.testing.assert_array_equal(declared.outputs, receipt.outputs[[1, 1]])


SERVICE = """
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
table = json.load(open(sys.argv[2]))

class Service(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/drip":
            self.wfile.write(b"HTTP/1.1 200 OK\\r\\nX: ")
            for _ in range(1000):
                self.wfile.write(b"x")
                time.sleep(0.02)
        if self.path == "/moved":
            self.send_response(307)
            self.send_header("Location", "/")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        values = [[table[column][key] for column in asked["columns"]] for key in asked["rows"]]
        failed = {"k7": "sold out"} if self.path == "/short" else {}
        values = [[[1]] for _ in asked["rows"]] if self.path == "/lists" else values
        values = [[True] * len(row) for row in values] if self.path == "/true" else values
        body = json.dumps({"values": values, "failed": failed}).encode()
        body = body.replace(b"{", b'{"values": [], ', 1) if self.path == "/twice" else body
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Service).serve_forever()
"""
"""Answers in JSON; at other addresses one row is sold out, the answer comes byte by byte, or is none."""

PATHS = ("moved", "drip", "lists", "twice")


@pytest.mark.slow
def test_a_service_that_is_killed_and_comes_back_is_waited_for(clf, tmp_path):
    TABLE.set_index(pd.Index(KEYS)).to_json(tmp_path / "table.json")
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-S", "-c", SERVICE, str(port), str(tmp_path / "table.json")]
    source = HttpSource(f"http://127.0.0.1:{port}", KEYS, retries=6, deadline=20.0, chunk_size=200)
    services = [subprocess.Popen(command)]
    try:
        while not _is_up(port):
            time.sleep(0.01)
        source.fetch(np.arange(10), ["score"])
        services[0].kill()
        services[0].wait()
        starter = threading.Timer(0.2, lambda: services.append(subprocess.Popen(command)))
        starter.start()
        receipt = clf.buy(source)
        starter.join()
        short = clf.buy(HttpSource(f"http://127.0.0.1:{port}/short", KEYS[:20], retries=0))
        truths = clf.buy(HttpSource(f"http://127.0.0.1:{port}/true", KEYS[:20], retries=0))
        reasons = {path: reason_at(f"http://127.0.0.1:{port}/{path}") for path in PATHS}
    finally:
        for service in services:
            service.kill()
            service.wait()
    np.testing.assert_array_equal(receipt.answer, clf.predict(TABLE))
    assert np.flatnonzero(~short.is_answered).tolist() == [7]
    assert short.reason[7] == "sold out"
    assert not truths.is_answered.any()
    assert "must hold numbers; got True" in truths.reason[0]
    assert reasons == {"moved": "status_307", "drip": "timeout", "lists": "bad_json", "twice": "bad_json"}
    assert not [one.name for one in threading.enumerate() if "HttpSource" in one.name]
    down = clf.buy(HttpSource(f"http://127.0.0.1:{port}", KEYS, retries=0))
    assert not down.is_answered.any()
    assert "(connect)" in down.reason[0]
    with pytest.raises(InvalidInputError, match="url must begin with http"):
        HttpSource("ftp://somewhere", KEYS)


def reason_at(url):
    """Why a service does not deliver."""
    source = HttpSource(url, KEYS[:5], retries=0, timeout=0.2)
    assert len(source.fetch(np.arange(5), ["score"]).failed) == 5
    return next(iter(source.failures))


def _is_up(port):
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Counted:
    """A function of rows that fails the first time for some of them, and counts what it delivers."""

    def __init__(self, name):
        self.values, self.delivered, self.tried = TABLE[name].to_numpy(), np.zeros(len(TABLE), int), set()

    def __call__(self, rows):
        failed = {int(row): "busy" for row in rows if row % 9 == 0 and row not in self.tried}
        self.tried |= set(rows.tolist())
        self.delivered[[row for row in rows if row not in failed]] += 1
        return Delivery(self.values[rows], failed)


@pytest.mark.slow
def test_rows_that_fail_are_asked_for_again_and_no_others(clf):
    counters = {name: Counted(name) for name in NAMES}
    source = DictSource(counters, len(TABLE), threads=2, chunk_size=100)
    receipt = clf.buy(source)
    assert agrees(clf, receipt)
    delivered = np.column_stack([counters[name].delivered for name in NAMES])
    np.testing.assert_array_equal(delivered, receipt.bought)
    impatient = clf.buy(DictSource({name: Counted(name) for name in NAMES}, len(TABLE), retries=0))
    assert (~impatient.is_answered).sum() == len(range(0, len(TABLE), 9))
    with pytest.raises(InvalidInputError, match="offers nothing for 'income'"):
        clf.buy(DictSource({"age": TABLE["age"]}))


@pytest.mark.slow
def test_nothing_is_waited_for_beyond_the_deadline():
    def asleep(rows):
        time.sleep(3.0)
        return np.zeros(len(rows))

    source = DictSource({"age": asleep}, 5, timeout=0.05, retries=100, deadline=0.3)
    begin = time.monotonic()
    delivery = source.fetch(np.arange(5), ["age"])
    assert time.monotonic() - begin < 2.0
    assert set(delivery.failed) == set(range(5))
    assert "did not answer within" in delivery.failed[0]


class Counting:
    """Columns as functions that count how often each cell is asked for, slowly enough for threads to meet."""

    def __init__(self, interrupt_at=None):
        self.asked, self.n_questions = np.zeros(TABLE.shape, dtype=int), 0
        self._interrupt_at, self._lock = interrupt_at, threading.Lock()

    def source(self, **how):
        columns = {name: lambda rows, at=at: self._deliver(rows, at) for at, name in enumerate(NAMES)}
        return DictSource(columns, len(TABLE), chunk_size=50, **how)

    def _deliver(self, rows, at):
        with self._lock:
            self.n_questions += 1
            if self.n_questions == self._interrupt_at:
                raise KeyboardInterrupt
            self.asked[rows, at] += 1
        time.sleep(0.002)
        return TABLE.to_numpy()[rows, at]


def test_threads_that_share_a_source_buy_every_cell_once(clf):
    shop = Counting()
    source, receipts = shop.source(), []
    threads = [threading.Thread(target=lambda: receipts.append(clf.buy(source))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shop.asked.max() == 1
    for receipt in receipts:
        np.testing.assert_array_equal(receipt.answer, clf.predict(TABLE))
    # Together they pay what one of them would have paid.
    np.testing.assert_allclose(sum(receipt.cost for receipt in receipts), clf.cost(TABLE))


@pytest.mark.parametrize("threads", [1, 3])
def test_after_an_interrupt_only_what_was_not_delivered_is_bought(clf, threads):
    shop = Counting(interrupt_at=6)
    source = shop.source(threads=threads)
    with pytest.raises(KeyboardInterrupt):
        clf.buy(source)
    before = int(shop.asked.sum())
    assert before > 0
    receipt = clf.buy(source)
    assert shop.asked.max() == 1
    np.testing.assert_array_equal(receipt.answer, clf.predict(TABLE))
    assert receipt.cost.sum() < clf.cost(TABLE).sum()
