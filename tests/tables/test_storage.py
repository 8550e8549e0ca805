import contextlib
import hashlib
import json
import random
import struct
import subprocess
import sys

import numpy as np
import pytest

from thrifty import load, save
from thrifty.errors import InvalidInputError, ThriftyError
from thrifty.tables.storage import (
    load_table_system,
    table_system_from_bytes,
    table_system_to_bytes,
)

pytestmark = pytest.mark.slow

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
    version = HEADER.unpack(data[: HEADER.size])[1]
    body = HEADER.pack(b"thrifty\x00", version, len(text)) + text + data[HEADER.size + length : -32]
    return body + hashlib.sha256(body).digest()


def test_a_system_comes_back_and_answers_to_the_last_bit_as_before(fitted, certified, tmp_path, make_table):
    for system in (fitted.system, certified.system):
        save(system, tmp_path / "system.thrifty")
        for again in (load(tmp_path / "system.thrifty"), load_table_system(tmp_path / "system.thrifty")):
            cells = system.read(make_table(200, seed=5))
            for name, column in system.answers(cells).items():
                np.testing.assert_array_equal(again.answers(cells)[name], column)
            assert again.promise == system.promise
            assert again.about == system.about
            assert again.certificate == system.certificate
            assert again.schema == system.schema
            assert again.schema.classes.tolist() == ["no", "yes"]
            np.testing.assert_array_equal(again.frontier.cost, system.frontier.cost)
            np.testing.assert_array_equal(again.frontier.score, system.frontier.score)
            assert again.at(budget=2.0).promise.accuracy == system.at(budget=2.0).promise.accuracy

    assert system.at(budget=3.0).promise.cost <= 3.0


def test_an_estimator_that_was_saved_by_itself_is_read(fitted, tmp_path, make_table):
    save(fitted.system.estimator, tmp_path / "nameless.thrifty")
    names = load_table_system(tmp_path / "nameless.thrifty").schema.names
    assert names == tuple(f"x{column}" for column in range(len(fitted.system.schema.names)))
    from sklearn.naive_bayes import GaussianNB

    from thrifty import ConfidenceRouter

    frame = make_table(200)[["age", "lab one", "label"]]
    clf = ConfidenceRouter(GaussianNB(), features=[0]).fit(frame[["age", "lab one"]], frame["label"])
    save(clf, tmp_path / "named.thrifty")
    system = load_table_system(tmp_path / "named.thrifty")
    answers = system.answers(system.read(frame))
    np.testing.assert_array_equal(answers["answer"], clf.predict(frame[["age", "lab one"]]))
    with pytest.raises(InvalidInputError, match="ConfidenceRouter that was saved by itself"):
        _ = system.promised


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


def test_the_full_model_may_be_kept_elsewhere_and_is_recognised(fitted, tmp_path, make_table):
    system = fitted.system
    cells = system.read(make_table(200, seed=5))
    save(system, tmp_path / "table.thrifty", full="reference")
    with pytest.raises(InvalidInputError, match="refers to its full model"):
        load(tmp_path / "table.thrifty")
    again = load(tmp_path / "table.thrifty", full=system.chain.full.estimator)
    np.testing.assert_array_equal(again.answers(cells)["probability"], system.answers(cells)["probability"])
    save(system, tmp_path / "table.thrifty", full="absent")
    alone = load(tmp_path / "table.thrifty")
    X = cells.table(None)
    np.testing.assert_array_equal(alone.chain.route(X), system.chain.route(X))


def test_types_that_nobody_trusts_are_refused_with_the_words_to_add(fitted, data, tmp_path, monkeypatch):
    from thrifty.bundle import archives as archive

    def refuse(*args, **kwargs):
        raise archive.UntrustedTypesError("no", ["some.Type"])

    monkeypatch.setattr("thrifty.bundle.full_models.load_model", refuse)
    (tmp_path / "system.thrifty").write_bytes(data)
    with pytest.raises(InvalidInputError, match="add --trust some.Type"):
        load_table_system(tmp_path / "system.thrifty")


HOSTILE = {
    "promise lacks a part": lambda m: m["promise"].pop("low"),
    "promise in words": lambda m: m["promise"].update(cost="cheap"),
    "promise with a measure in words": lambda m: m["promise"].update(
        measures={"AUC": {"$tuple": ["a", 0.1, 0.2]}}
    ),
    "promise with one recall": lambda m: m["promise"].update(recall={"$tuple": [0.5]}),
    "promise with recall in words": lambda m: m["promise"].update(recall={"$tuple": ["a", "b"]}),
    "promise on less than no rows": lambda m: m["promise"].update(n_rows=-1),
    "about with a wild seed": lambda m: m["about"].update(seed=2**70),
    "about lacks the seed": lambda m: m["about"].pop("seed"),
    "about with a list": lambda m: m["about"].update(full=["svm"]),
    "about without a method": lambda m: m["about"].update(method=None),
    "names twice": lambda m: m["schema"].update(names=["a"] * 6),
    "names too few": lambda m: m["schema"].update(names=m["schema"]["names"][:5]),
    "names no text": lambda m: m["schema"].update(names=[1, 2, 3, 4, 5, 6]),
    "target a feature": lambda m: m["schema"].update(target="age"),
    "categories of an unknown column": lambda m: m["schema"].update(categories=[["nobody", ["a"]]]),
    "categories out of order": lambda m: m["schema"].update(categories=[["colour", ["red", "blue"]]]),
    "categories no pairs": lambda m: m["schema"].update(categories=[["colour"]]),
    "categories with a list as name": lambda m: m["schema"].update(categories=[[["colour"], ["a"]]]),
    "classes in the wrong form": lambda m: m["schema"].update(classes={"$tuple": [0, 0]}),
    "no estimator": lambda m: m.pop("estimator"),
    "a chain for an estimator": lambda m: m["estimator"].update(kind="chain"),
    "an estimator without evidence": lambda m: m["estimator"].update(evidence=None),
    "an estimator without stages": lambda m: m["estimator"]["chain"].update(stages=[]),
    "kind a list": lambda m: m.update(kind=["table"]),
}


def refused_in_one_sentence(data):
    with pytest.raises(InvalidInputError) as refusal:
        table_system_from_bytes(data)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_sealed_file_that_is_wrong_is_refused_with_one_sentence(data, name):
    refused_in_one_sentence(changed(data, HOSTILE[name]))


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
