import contextlib
import hashlib
import json
import random
import struct
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from thrifty import InvalidInputError, ThriftyError, Tie, load, save
from thrifty.tables.storage import (
    load_table_system,
    save_table_system,
    table_system_from_bytes,
    table_system_to_bytes,
)

HEADER = struct.Struct("<8sIQ")


@pytest.fixture(scope="module")
def data(fitted):
    return table_system_to_bytes(fitted.system)


def changed(data, change):
    """The file after a change of its manifest, well sealed."""
    length = HEADER.unpack(data[: HEADER.size])[2]
    manifest = json.loads(data[HEADER.size : HEADER.size + length])
    change(manifest)
    text = json.dumps(manifest).encode()
    body = HEADER.pack(b"thrifty\x00", 1, len(text)) + text + data[HEADER.size + length : -32]
    return body + hashlib.sha256(body).digest()


def test_a_system_comes_back_and_answers_to_the_last_bit_as_before(fitted, certified, tmp_path, make_table):
    for system in (fitted.system, certified.system):
        save_table_system(system, tmp_path / "system.thrifty")
        again = load_table_system(tmp_path / "system.thrifty")
        X = system.table(make_table(200, seed=5))
        for name, column in system.answers(X).items():
            np.testing.assert_array_equal(again.answers(X)[name], column)
        assert again.promise == system.promise
        assert again.about == system.about
        assert again.certificate == system.certificate
        assert again.schema == system.schema
        assert again.schema.classes.tolist() == ["no", "yes"]
        np.testing.assert_array_equal(again.frontier.cost, system.frontier.cost)
        np.testing.assert_array_equal(again.frontier.score, system.frontier.score)


def test_a_bundle_of_another_kind_is_refused_by_the_commands(fitted, tmp_path):
    save(fitted.system.systems[0].estimator, tmp_path / "estimator.thrifty")
    with pytest.raises(InvalidInputError, match="not what `thrifty fit` writes"):
        load_table_system(tmp_path / "estimator.thrifty")


def test_save_and_load_of_thrifty_take_table_systems_too(fitted, tmp_path, make_table):
    save(fitted.system, tmp_path / "table.thrifty")
    again = load(tmp_path / "table.thrifty")
    X = again.table(make_table(200, seed=5))
    np.testing.assert_array_equal(again.answers(X)["probability"], fitted.system.answers(X)["probability"])


def test_a_fresh_process_reads_what_fit_wrote_with_thrifty_load_alone(data, tmp_path):
    (tmp_path / "table.thrifty").write_bytes(data)
    code = "import sys, thrifty; print(type(thrifty.load(sys.argv[1])).__name__)"
    told = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "table.thrifty")],
        capture_output=True,
        check=True,
        text=True,
    )
    assert told.stdout == "TableSystem\n"


def test_f0_of_a_table_system_may_be_kept_elsewhere_and_is_recognised(fitted, tmp_path, make_table):
    system = fitted.system
    X = system.table(make_table(200, seed=5))
    save(system, tmp_path / "table.thrifty", full="reference")
    with pytest.raises(InvalidInputError, match="refers to f0"):
        load(tmp_path / "table.thrifty")
    again = load(tmp_path / "table.thrifty", full=system.system.full.estimator)
    np.testing.assert_array_equal(again.answers(X)["probability"], system.answers(X)["probability"])
    save(system, tmp_path / "table.thrifty", full="absent")
    alone = load(tmp_path / "table.thrifty")
    np.testing.assert_array_equal(alone.system.route(X), system.system.route(X))


def test_a_tie_is_kept_in_the_file(fitted):
    tied = replace(fitted.system, threshold=0.5, tie=Tie(-np.inf, 0.25, seed=3))
    again = table_system_from_bytes(table_system_to_bytes(tied))
    assert (again.threshold, again.tie) == (0.5, tied.tie)
    cut = replace(fitted.system, tie=None)
    assert table_system_from_bytes(table_system_to_bytes(cut)).tie is None


def test_types_that_nobody_trusts_are_refused_with_the_words_to_add(fitted, data, tmp_path, monkeypatch):
    from thrifty.bundle import archive

    def refuse(*args, **kwargs):
        raise archive.UntrustedTypesError("no", ["some.Type"])

    monkeypatch.setattr("thrifty.bundle.fulls.load_model", refuse)
    (tmp_path / "system.thrifty").write_bytes(data)
    with pytest.raises(InvalidInputError, match="add --trust some.Type"):
        load_table_system(tmp_path / "system.thrifty")


HOSTILE = {
    "chosen out of range": lambda m: m.update(chosen=99),
    "chosen negative": lambda m: m.update(chosen=-1),
    "chosen no number": lambda m: m.update(chosen=True),
    "no systems": lambda m: m.update(systems=[]),
    "threshold not a number": lambda m: m.update(threshold={"$float": "nan"}),
    "promise lacks a part": lambda m: m["promise"].pop("low"),
    "promise in words": lambda m: m["promise"].update(cost="cheap"),
    "tie with a share of two": lambda m: m.update(tie={"lower": 0.0, "share": 2.0, "seed": 0}),
    "tie without a share": lambda m: m.update(tie={"lower": 0.0, "seed": 0}),
    "tie with a wild seed": lambda m: m.update(tie={"lower": 0.0, "share": 0.5, "seed": -1}),
    "about with a wild seed": lambda m: m["about"].update(seed=2**70),
    "about lacks the seed": lambda m: m["about"].pop("seed"),
    "about with a list": lambda m: m["about"].update(full=["svm"]),
    "names twice": lambda m: m["schema"].update(names=["a"] * 6),
    "names too few": lambda m: m["schema"].update(names=m["schema"]["names"][:5]),
    "names no text": lambda m: m["schema"].update(names=[1, 2, 3, 4, 5, 6]),
    "target a feature": lambda m: m["schema"].update(target="age"),
    "categories of an unknown column": lambda m: m["schema"].update(categories=[["nobody", ["a"]]]),
    "categories out of order": lambda m: m["schema"].update(categories=[["colour", ["red", "blue"]]]),
    "categories no pairs": lambda m: m["schema"].update(categories=[["colour"]]),
    "categories with a list as name": lambda m: m["schema"].update(categories=[[["colour"], ["a"]]]),
    "classes equal": lambda m: (
        m["schema"].update(classes=m["labels"] | {}) or m.update(labels={"$tuple": [0, 0]})
    ),
    "labels missing": lambda m: m.pop("labels"),
    "named though it is not": lambda m: m.update(named=True),
    "full_right another array": lambda m: m.update(full_right=m["systems"][0]["gate"]),
    "gate another array": lambda m: m["systems"][0].update(gate=m["full_right"]),
    "settings no dict": lambda m: m["systems"][0].update(settings=[1]),
    "settings with numbers as names": lambda m: m["systems"][0].update(settings={"$dict": [[1, 2]]}),
    "system without stage": lambda m: m["systems"][0]["object"]["system"].update(stages=[]),
    "system with other prices": lambda m: m["systems"][0]["object"]["system"].update(full_cost=7.0),
    "a certificate of nothing": lambda m: m.update(certificate={"$dict": []}),
    "a certificate in words": lambda m: m.update(certificate="sure"),
    "f0 absent": lambda m: m.update(full={"type": "nonsense"}),
    "kind a list": lambda m: m.update(kind=["table"]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_sealed_file_that_is_wrong_is_refused_with_one_sentence(data, name):
    with pytest.raises(InvalidInputError) as refusal:
        table_system_from_bytes(changed(data, HOSTILE[name]))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda point: point.update(source=99),
        lambda point: point.update(threshold="high"),
        lambda point: point.pop("cost"),
        lambda point: point.update(cost="cheap"),
    ],
)
def test_a_certificate_about_a_point_that_cannot_be_is_refused(certified, change):
    def forge(manifest):
        entries = dict(manifest["certificate"]["$dict"])
        point = dict(entries["point"]["$dict"])
        change(point)
        entries["point"] = {"$dict": [[key, value] for key, value in point.items()]}
        manifest["certificate"] = {"$dict": [[key, value] for key, value in entries.items()]}

    with pytest.raises(InvalidInputError):
        table_system_from_bytes(changed(table_system_to_bytes(certified.system), forge))


def test_a_file_that_is_cut_off_or_changed_anywhere_is_refused(data):
    chance = random.Random(0)
    for _ in range(60):
        with pytest.raises(ThriftyError):
            table_system_from_bytes(data[: chance.randrange(len(data))])
        place = chance.randrange(len(data))
        flipped = bytearray(data)
        flipped[place] ^= 1 << chance.randrange(8)
        with pytest.raises(ThriftyError):
            table_system_from_bytes(bytes(flipped))


def test_any_part_may_be_replaced_by_anything_and_is_refused_or_read(data):
    """Every leaf of the manifest, in turn, becomes something else: an answer or a refusal, never another error."""
    length = HEADER.unpack(data[: HEADER.size])[2]
    manifest = json.loads(data[HEADER.size : HEADER.size + length])
    chance = random.Random(1)
    leaves = [path for path in paths(manifest) if path[0] != "entries"]
    odd = [None, -1, 2**70, "x", [], {}, {"$array": 0}, {"$float": "nan"}, True, 1e308]
    for path in chance.sample(leaves, min(150, len(leaves))):

        def put(manifest, path=path):
            inner = manifest
            for step in path[:-1]:
                inner = inner[step]
            inner[path[-1]] = chance.choice(odd)

        with contextlib.suppress(ThriftyError):
            table_system_from_bytes(changed(data, put))


def paths(value, here=()):
    if isinstance(value, dict | list) and value:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(inner, (*here, key))
    else:
        yield here
