import json
import os
import sqlite3
import subprocess
import sys

import pytest

from thrifty.dynamod.sweeping.store import FORMAT, Store
from thrifty.errors import InvalidInputError

ME = {"the training rows": "a" * 32, "the code of thrifty": "1.0", "parameters": {"tol": 1.0, "l2": 2.0}}


def test_what_was_put_is_there_when_the_file_is_opened_again(tmp_path):
    path = tmp_path / "sweep.db"
    with Store(path, ME) as store:
        store.put("one", b"\x00\xff")
        assert store.get("one") == b"\x00\xff"
        assert store.get("two") is None
    with Store(path, ME) as store:
        assert store.keys() == {"one"}
        assert store.get("one") == b"\x00\xff"


def test_a_record_is_never_overwritten(tmp_path):
    with Store(tmp_path / "sweep.db", ME) as store:
        store.put("one", b"1")
        with pytest.raises(InvalidInputError, match="UNIQUE"):
            store.put("one", b"2")
        assert store.get("one") == b"1"


def test_without_a_path_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Store(None, ME) as store:
        store.put("one", b"1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"the training rows": "b" * 32}, "the training rows differs"),
        ({"the code of thrifty": "1.1"}, r"the code of thrifty \(1.0; now 1.1\) differs"),
        ({"parameters": {"tol": 1.0, "l2": 3.0}}, r"parameters \(l2\) differs"),
    ],
)
def test_a_store_of_another_sweep_is_refused_and_left_alone(tmp_path, changed, named):
    path = tmp_path / "sweep.db"
    with Store(path, ME) as store:
        store.put("one", b"1")
    before = path.read_bytes()
    with pytest.raises(InvalidInputError, match=named):
        Store(path, {**ME, **changed})
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("dear diary, " * 1000)
    with pytest.raises(InvalidInputError, match="damaged or no file of a sweep"):
        Store(path, ME)
    assert path.read_text().startswith("dear diary")


def test_a_database_of_another_program_is_refused(tmp_path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    with pytest.raises(InvalidInputError, match="a database of another program"):
        Store(path, ME)


@pytest.mark.parametrize("number", [FORMAT - 1, FORMAT + 1])
def test_a_store_of_another_format_is_refused(tmp_path, number):
    path = tmp_path / "sweep.db"
    Store(path, ME).__exit__(None, None, None)
    with sqlite3.connect(path) as other:
        other.execute("UPDATE about SET value = ? WHERE name = 'format'", (str(number),))
    other.close()
    with pytest.raises(InvalidInputError, match=f"has format {number}; this version reads format {FORMAT}"):
        Store(path, ME)


def test_a_truncated_store_is_refused(tmp_path):
    path = tmp_path / "sweep.db"
    with Store(path, ME) as store:
        for number in range(20):
            store.put(str(number), bytes(5000))
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(InvalidInputError, match="damaged"):
        Store(path, ME)


def test_pages_full_of_noise_are_noticed_when_the_store_is_opened(tmp_path):
    path = tmp_path / "sweep.db"
    with Store(path, ME) as store:
        for number in range(20):
            store.put(str(number), bytes(100))
    damaged = bytearray(path.read_bytes())
    damaged[4096:] = b"\xa5" * len(damaged[4096:])
    path.write_bytes(bytes(damaged))
    with pytest.raises(InvalidInputError, match="damaged"):
        Store(path, ME)


@pytest.mark.slow
def test_a_second_process_is_refused_while_the_first_is_at_work(tmp_path, monkeypatch):
    monkeypatch.setattr("thrifty.dynamod.sweeping.store._PATIENCE", 0.1)
    path = tmp_path / "sweep.db"
    code = (
        "import sys, json; from thrifty.dynamod.sweeping.store import Store\n"
        "store = Store(sys.argv[1], json.loads(sys.argv[2])); print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(path), json.dumps(ME)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "open\n"
        with pytest.raises(InvalidInputError, match="in use by another sweep"):
            Store(path, ME)
        first.kill()
    with Store(path, ME) as store:
        assert store.keys() == set()


def test_two_stores_in_one_process_do_not_share_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("thrifty.dynamod.sweeping.store._PATIENCE", 0.1)
    with Store(tmp_path / "sweep.db", ME), pytest.raises(InvalidInputError, match="in use"):
        Store(tmp_path / "sweep.db", ME)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="must be a file in a folder that can be written"):
        Store(tmp_path / "nowhere" / "sweep.db", ME)


def test_a_full_disk_is_a_sentence_and_costs_no_earlier_record(tmp_path):
    path = tmp_path / "sweep.db"
    with Store(path, ME) as store:
        store.put("one", b"1")
        store._connection.execute("PRAGMA max_page_count = 8")
        with pytest.raises(InvalidInputError, match="cannot be used: database or disk is full"):
            store.put("two", bytes(100_000))
    with Store(path, ME) as store:
        assert store.keys() == {"one"}
