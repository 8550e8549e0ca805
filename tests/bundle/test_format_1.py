"""Files that version 0.1 wrote in format 1: they load and answer as they did, also after being saved in format 2."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import thrifty
from thrifty import InvalidInputError
from thrifty.bundle import from_bytes, to_bytes

FILES = (
    "lin", "gbrt", "gbrt_score", "chain", "lstsq", "miser", "confidence", "uniform", "prune", "tied_system",
    "budgeted", "budgeted_proved", "budgeted_system",
)  # fmt: skip


@pytest.fixture(scope="module")
def old(kept):
    return kept("format_1")


def test_no_file_is_forgotten(old):
    there = {path.stem for path in old.folder.glob("*.thrifty")}
    assert there - {"table_budget", "table_loss"} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_file_answers_as_when_it_was_written(name, old):
    assert old.differing(name, old.load(name)).tolist() == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_saved_in_format_2_it_answers_bit_by_bit_as_before(name, old):
    before, after, X = old.load(name), old.load(name, again=True), old.table(name)
    assert type(after) is type(before)
    assert old.differing(name, after).tolist() == []
    for ask in ("predict_proba", "cost", "route", "predict"):
        np.testing.assert_array_equal(getattr(after, ask)(X), getattr(before, ask)(X), strict=True)


@pytest.mark.parametrize("again", [False, True])
def test_a_cascade_moves_to_the_points_it_moved_to(again, old):
    clf, was = old.load("budgeted", again=again), old.answers
    np.testing.assert_allclose(clf.at(budget=2.2).predict_proba(old.new), was["budgeted_at2"], **old.agree)
    np.testing.assert_allclose(clf.at(max_loss=0.2).predict_proba(old.new), was["budgeted_loss"], **old.agree)
    found = [clf.frontier_.cost, clf.frontier_.score]
    np.testing.assert_allclose(found, was["budgeted_frontier"], **old.agree)
    assert clf.expected_cost_ == pytest.approx(clf.chain_.policy.expected_cost)


@pytest.mark.parametrize("again", [False, True])
def test_a_certificate_is_made_again_from_its_rows(again, old):
    clf = old.load("budgeted_proved", again=again)
    assert clf.certificate_.max_loss == 0.2
    assert (clf.certificate_.n_rows, clf.certificate_.n_losses) == (60, 4)
    assert clf.certificate_ == clf.at(max_loss=0.2).certificate_


@pytest.mark.parametrize("again", [False, True])
def test_an_estimator_with_one_gate_says_that_its_rows_were_not_kept(again, old):
    clf = old.load("gbrt", again=again)
    for ask in (lambda: clf.frontier_, lambda: clf.at(budget=3.0), lambda: clf.expected_cost_):
        with pytest.raises(
            InvalidInputError, match="needs the rows that the operating points were judged on"
        ):
            ask()
    assert set(clf.at(threshold=-np.inf).route(old.new)) == {1}


# Two stages, a purchase of two columns, names, text labels, precomputed probabilities known by their place.
EXPECTED = {
    "route": [0, 2, 1, 0, 2, 0],
    "cost": [2.5, 8.0, 4.0, 2.5, 8.0, 2.5],
    "probability": [
        0.13296424019782926,
        0.9,
        0.8698915256370021,
        0.13296424019782926,
        0.2,
        0.13296424019782926,
    ],
    "label": ["no", "yes", "yes", "no", "no", "no"],
}


@pytest.mark.parametrize("again", [False, True])
def test_the_first_file_of_all_is_still_read(again):
    system = thrifty.load(Path(__file__).parents[1] / "data" / "bundle_format_1.thrifty")
    system = from_bytes(to_bytes(system)) if again else system
    X = pd.DataFrame(np.arange(24.0).reshape(6, 4) % 7 - 3, columns=list(system.names))
    assert system.route(X).tolist() == EXPECTED["route"]
    assert system.cost(X).tolist() == EXPECTED["cost"]
    np.testing.assert_allclose(system.predict_proba(X)[:, 1], EXPECTED["probability"], rtol=1e-14)
    assert system.predict(X).tolist() == EXPECTED["label"]
