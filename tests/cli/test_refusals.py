"""Bad input: exit code 2, one sentence on standard error that names the thing, and no file touched."""

import errno
import gzip
import os

import numpy as np
import pandas as pd
import pytest

from thrifty import DynaModGbrtClassifier, save
from thrifty.learners.dynamod import BoostedOptions
from thrifty.reporting.words import quantity


@pytest.fixture
def fit(files, small_fits, tmp_path):
    """Arguments of a good fit; keywords replace the options, None leaves one out."""

    def arguments(table=None, **options):
        given = {
            "target": "label", "prices": files.costs, "full": "svm", "budget": 4, "jobs": 1,
            "out": tmp_path / "s.thrifty", **options,
        }  # fmt: skip
        named = [(f"--{name.replace('_', '-')}", value) for name, value in given.items() if value is not None]
        return ["fit", files.train if table is None else table, *(word for pair in named for word in pair)]

    return arguments


@pytest.fixture
def changed(files, tmp_path):
    """A table of the files, changed and written elsewhere."""

    def write(change, source="train"):
        frame = change(pd.read_csv(getattr(files, source)))
        frame.to_csv(tmp_path / "changed.csv", index=False)
        return tmp_path / "changed.csv"

    return write


def test_wishes(refused, fit):
    assert "give one of --budget, --max-loss" in refused(*fit(max_loss=0.01))
    assert "--budget must be a finite number >= 0; got -1.0" in refused(*fit(budget=-1))
    assert "strictly between 0 and 1; got 5.0" in refused(*fit(budget=None, max_loss=5))
    assert "held-out rows cannot show a loss of at most 0.1 %" in refused(*fit(budget=None, max_loss=0.001))


def test_a_budget_that_no_route_can_meet(refused, fit, tmp_path, files):
    costs = tmp_path / "costs.csv"
    costs.write_text(files.costs.read_text().replace("old,0,", "old,1,"))
    told = refused(*fit(budget=0.25, prices=costs))
    assert "--budget must be at least 0.5, the price of the cheapest purchase" in told
    costs.write_text("\n".join(f"{line.split(',')[0]},0" for line in costs.read_text().splitlines()[1:]))
    assert "so there is nothing to save" in refused(*fit(prices=costs))


def test_targets(refused, fit, changed):
    assert "has no column 'lable', which should hold the label" in refused(*fit(target="lable"))
    assert "it holds only 'yes'" in refused(*fit(changed(lambda frame: frame.assign(label="yes"))))
    many = changed(lambda frame: frame.assign(label=np.arange(len(frame))))
    assert "different rows of each class" in refused(*fit(many), "--task", "classes")


def test_prices(refused, fit, tmp_path, files):
    costs = tmp_path / "costs.csv"
    good = files.costs.read_text()
    for text, told in (
        (good + "\nnobody,1,", "there is a price for 'nobody'"),
        (good.replace("noise,2,\n", "").replace("old,0,", ""), "there is no price for 'noise', 'old'"),
        (good.replace("noise,2", "noise,two"), "the cost of 'noise' must be a number; got 'two'"),
        (good.replace("age,0.5", "age,-1"), "cost of 'age' must be finite and at least 0; got -1"),
    ):
        costs.write_text(text)
        assert told in refused(*fit(prices=costs))
    assert "No such file" in refused(*fit(prices=tmp_path / "absent.csv"))


def test_tables(refused, fit, changed, tmp_path):
    assert "does not exist" in refused(*fit(tmp_path / "absent.csv"))
    twice = tmp_path / "twice.csv"
    twice.write_text("a,a,label\n1,2,x\n")
    assert "names the column 'a' more than once" in refused(*fit(twice))
    assert "different rows of each class" in refused(*fit(changed(lambda frame: frame[:40])))
    gap = changed(lambda frame: frame.assign(age=frame["age"].where(frame.index != 3)))
    assert "column 'age' is missing in row 4, and the full model (svm) reads no missing" in refused(*fit(gap))


def test_a_torn_file_and_a_short_line_are_one_sentence(refused, fit, files, tmp_path):
    torn, short = tmp_path / "torn.csv.gz", tmp_path / "short.csv"
    torn.write_bytes(gzip.compress(files.train.read_bytes())[:-100])
    assert "torn.csv.gz cannot be read as a table: it is damaged" in refused(*fit(torn))
    lines = files.new.read_text().splitlines()
    short.write_text("\n".join([*lines[:3], lines[3].rsplit(",", 2)[0], *lines[4:]]))
    told = refused("predict", files.system, short, "-o", tmp_path / "a.csv")
    assert "line 4 has 4 cells, and the line of names has 6" in told


def test_a_label_that_the_only_column_gives_away_has_no_different_rows_to_judge_on(refused, fit, changed):
    told = refused(
        *fit(changed(lambda frame: frame.assign(age=frame["label"] == "yes")[["age", "label"]]), prices=None)
    )
    assert "'no', one of 2 labels, has 1 among" in told
    assert "columns that tell them apart" in told


def test_full_models(refused, fit, tmp_path, files):
    assert "--full must be auto, one of forest, svm" in refused(*fit(full="magic"))
    assert "does not exist" in refused(*fit(full=tmp_path / "absent.thrifty"))
    (tmp_path / "no.thrifty").write_bytes(b"no file of ours, although it is long enough to be one of them")
    assert "no.thrifty is not a file of thrifty" in refused(*fit(full=tmp_path / "no.thrifty"))
    (tmp_path / "model.pkl").write_bytes(b"")
    assert "or a file with a fitted model: .thrifty" in refused(*fit(full=tmp_path / "model.pkl"))


def test_outputs_that_cannot_be_written_are_refused_before_anything_is_fitted(
    refused, fit, tmp_path, files, monkeypatch
):
    monkeypatch.setattr("thrifty.engine.table.files.read_table", lambda *_, **__: pytest.fail("read"))
    assert "there is no folder" in refused(*fit(out=tmp_path / "none" / "s.thrifty"))
    assert "it is a folder" in refused(*fit(out=tmp_path))
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    assert "may not be written to" in refused(*fit(out=tmp_path / "s.thrifty"))
    assert "may not be written to" in refused("predict", files.system, files.new, "-o", tmp_path / "a.csv")


def test_an_error_of_the_system_that_nobody_foresaw_is_a_sentence_too(refused, files, monkeypatch, tmp_path):
    def fail(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "some file")

    monkeypatch.setattr("thrifty.bundle.save_load.load", fail)
    assert refused("frontier", files.system) == f"thrifty: some file: {os.strerror(errno.EACCES)}."


def test_new_rows_that_do_not_fit(refused, changed, files, tmp_path):
    out = tmp_path / "a.csv"

    def predict(change, *more):
        return refused("predict", files.system, changed(change, "new"), "-o", out, *more)

    assert "the table lacks column 'age', which is read in row" in predict(
        lambda frame: frame.drop(columns=["age", "colour"])
    )
    told = predict(lambda frame: frame.replace({"colour": {"red": "pink"}}), "--budget", 6)
    assert "column 'colour' holds 'pink' in row" in told
    assert "column 'age' must hold numbers; got 'old' in row 1" in predict(
        lambda frame: frame.assign(age="old")
    )
    assert "holds no rows" in predict(lambda frame: frame[:0])


@pytest.mark.slow
def test_wishes_of_predict_and_explain(refused, files, tmp_path):
    predict = ["predict", files.system, files.new, "-o", tmp_path / "a.csv"]
    assert "give one of --budget, --max-loss" in refused(*predict, "--budget", 5, "--max-loss", 0.1)
    assert "--max-loss names none" in refused(*predict, "--hold-budget", "--max-loss", 0.1)
    assert "strictly between 0 and 1" in refused(*predict, "--max-loss", 2)
    train = pd.read_csv(files.train)
    pair = DynaModGbrtClassifier(options=BoostedOptions(n_trees=5, max_iter=1, tol=1.0), cv=2, random_state=0)
    save(pair.fit(train[["age", "lab one", "noise"]], train["label"]), tmp_path / "pair.thrifty")
    gated = ["predict", tmp_path / "pair.thrifty", files.new, "-o", tmp_path / "a.csv"]
    assert "--max-loss is not for a DynaModGbrtClassifier" in refused(*gated, "--max-loss", 0.1)
    assert "budget must be at least" in refused(*gated, "--budget", 0.01)
    certified = ["predict", files.certified, files.new, "-o", tmp_path / "a.csv"]
    assert "so there is none to hold" in refused(*certified, "--hold-budget")
    assert "both want standard output" in refused("predict", files.system, files.new, "-o", "-", "--json")
    for row in (0, 51):
        assert "--row must be from 1 to 50" in refused("explain", files.system, files.new, "--row", row)
    assert not (tmp_path / "a.csv").exists()


def test_unseen_text_is_read_as_missing_where_that_is_asked_for(run, changed, files, tmp_path):
    pink = changed(lambda frame: frame.replace({"colour": {"red": "pink"}}), "new")
    said = run("predict", files.system, pink, "-o", tmp_path / "a.csv", "--unseen", "missing")
    # The support vector machine reads no missing values: it depends on the rows whether one is sent there.
    assert said.code == 0 or "reads no missing values" in said.err


def test_systems(refused, files, tmp_path):
    (tmp_path / "no.thrifty").write_bytes(b"nothing of the kind")
    cut = tmp_path / "cut.thrifty"
    cut.write_bytes(files.system.read_bytes()[:-5])
    for command in (
        ["predict", files.new, "-o", tmp_path / "a.csv"],
        ["frontier"],
        ["report", files.test],
        ["explain", files.new],
    ):
        word, *rest = command
        assert "does not exist" in refused(word, tmp_path / "absent.thrifty", *rest)
        assert "no.thrifty is not a file of thrifty" in refused(word, tmp_path / "no.thrifty", *rest)
        assert "damaged" in refused(word, cut, *rest)


def test_reports_and_pictures(refused, files, changed, tmp_path):
    out = tmp_path / "r.html"
    assert "has no column 'label', which should hold the label" in refused(
        "report", files.system, files.new, "-o", out
    )
    strange = changed(lambda frame: frame.assign(label="maybe"), "test")
    assert "got 'maybe' in row 1" in refused("report", files.system, strange, "-o", out)
    assert "by names 'town'" in refused("report", files.system, files.test, "-o", out, "--by", "town")
    assert "--plot writes png, svg or pdf" in refused("frontier", files.system, "--plot", tmp_path / "f.doc")
    assert not out.exists()


@pytest.mark.slow
def test_a_full_disk_leaves_the_old_system_and_the_old_answers_as_they_were(
    refused, fit, files, small_disk, tmp_path
):
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk", "8k") as disk:
        for name, command in (
            ("s.thrifty", fit(out=disk / "s.thrifty")),
            ("a.csv", ["predict", files.system, files.test, "-o", disk / "a.csv"]),
            ("r.html", ["report", files.system, files.test, "-o", disk / "r.html"]),
        ):
            (disk / name).write_text("old")
            told = refused(*command)
            assert f"{name} cannot be written: {os.strerror(errno.ENOSPC)}" in told
            assert (disk / name).read_text() == "old"
            assert os.listdir(disk) == [name]
            (disk / name).unlink()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["fit", "predict"])
def test_a_disk_that_breaks_while_it_is_written_to_leaves_the_old_file(
    refused, fit, files, tmp_path, monkeypatch, command
):
    out = tmp_path / "out"
    out.write_text("old")

    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    arguments = fit(out=out) if command == "fit" else ["predict", files.system, files.new, "-o", out]
    assert f"cannot be written: {os.strerror(errno.EIO)}" in refused(*arguments)
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    "arguments", [["fit"], ["predict", "x"], ["fit", "x", "--target", "y", "-o", "z", "--seed", "-1"]]
)
def test_words_that_lack_are_exit_code_two(run, arguments):
    said = run(*arguments)
    assert said.code == 2
    assert said.out == ""


def test_a_quantity_has_no_digits_that_say_nothing():
    shown = [quantity(value) for value in (6.0, 0.5, 5.9949, 12345.6, 0.0004)]
    assert shown == ["6", "0.5", "5.995", "12,346", "0"]
