"""Losses, floors and prices of mistakes by class, through the commands."""

import json

import numpy as np
import pytest

from thrifty.bundle.save_load import load
from thrifty.engine.table.files import read_cost_matrix


@pytest.fixture
def fit(files, small_fits, tmp_path):
    common = [
        "fit",
        files.train,
        "--target",
        "label",
        "--prices",
        files.costs,
        "--full",
        "svm",
        "--jobs",
        1,
    ]
    return lambda *options: [*common, *options, "-o", tmp_path / "s.thrifty"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--max-loss", "ill=0.1"], "--max-loss names the class 'ill'; the classes are 'no', 'yes'"),
        (["--max-loss", "yes=0.001"], "held-out rows of class 'yes' cannot show a loss of at most 0.1 %"),
        (["--max-loss", "yes=2"], "a share between 0 and 1, such as sick=0.9; got 'yes=2'"),
        (["--max-loss", "0.1", "--max-loss", "yes=0.1"], "or one for each class named"),
        (["--min-recall", "ill=0.9"], "--min-recall names the class 'ill'"),
        (["--min-recall", "yes=0.9", "--max-loss", "0.1"], "--min-recall can be combined with --budget only"),
        (["--tolerance", "0.1"], "--tolerance is for a target of numbers"),
        (["--loss", "squared"], "--loss is for a target of numbers"),
        (["--loss", "costs"], 'loss must be "error", "log", "brier"'),
    ],
)
def test_what_makes_no_sense_of_classes_is_refused_before_anything_is_fitted(refused, fit, options, words):
    assert words in refused(*fit(*options)).replace("\n", " ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (",no,yes\nno,0,-5\nyes,200,0", "loss must hold numbers from 0 to"),
        (",no,yes\nno,0,5", "must have lines for the true classes 'no', 'yes', each once; got 'no'"),
        (",no,ill\nno,0,5\nyes,200,0", "must have answers to 'no' 'no', 'yes', each once; got 'no', 'ill'"),
        (",no,yes\nno,0,5\nyes,200,300", "the right answer must be the cheapest of its line"),
        (",no,yes\nno,0,5\nyes,200", "every line must have as many cells as the line of names"),
        (",no,yes\nno,0,five\nyes,200,0", "could not convert"),
    ],
)
def test_bad_files_of_prices_of_mistakes_are_refused_before_anything_is_fitted(
    refused, fit, tmp_path, lines, words
):
    (tmp_path / "loss.csv").write_text(lines)
    assert words in refused(*fit("--loss", tmp_path / "loss.csv")).replace("\n", " ")


def test_a_matrix_is_read_by_the_names_of_its_classes_from_both_kinds_of_files(tmp_path):
    (tmp_path / "loss.csv").write_text(",yes,no\nyes,0,200\nno,5,0\n")
    (tmp_path / "loss.json").write_text(json.dumps({"yes": {"yes": 0, "no": 200}, "no": {"no": 0, "yes": 5}}))
    for name in ("loss.csv", "loss.json"):
        np.testing.assert_array_equal(
            read_cost_matrix(str(tmp_path / name), np.array(["no", "yes"])), [[0, 5], [200, 0]]
        )


@pytest.mark.slow
def test_a_fit_with_limits_by_class_names_them_as_the_table_does(run, fit, tmp_path):
    told = run(*fit("--max-loss", "no=0.2", "--max-loss", "yes=0.2"))
    assert told.code == 0, told.err
    assert "20 % of answers to rows of 'no' and 20 % of answers to rows of 'yes'" in told.out.replace(
        "\n", " "
    )
    system = load(tmp_path / "s.thrifty")
    assert [one.label for one in system.certificate_.by_class] == ["no", "yes"]
    assert system.record_.goal["max_loss"] == {"no": 0.2, "yes": 0.2}


@pytest.mark.slow
def test_a_fit_with_prices_of_mistakes_reaches_a_floor_and_tells_recalls_as_shares(run, fit, files, tmp_path):
    (tmp_path / "loss.csv").write_text(",no,yes\nno,0,5\nyes,200,0")
    told = run(*fit("--loss", tmp_path / "loss.csv", "--min-recall", "yes=0.5", "--json"))
    assert told.code == 0, told.err
    found = json.loads(told.out)
    assert found["measures"]["cost of mistakes"]["value"] > 0
    assert 0.5 <= found["measures"]["recall of 'yes'"]["value"] <= 1
    assert 0 <= found["measures"]["recall of 'no'"]["full"] <= 1
    asked = [
        "predict",
        tmp_path / "s.thrifty",
        files.new,
        "--min-recall",
        "yes=0.6",
        "-o",
        tmp_path / "a.csv",
    ]
    assert run(*asked).code == 0
