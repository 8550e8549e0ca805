"""Which rows of a proof count: none that the fit has seen, and equal ones once."""

import datetime as dt
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.frozen import FrozenEstimator

from thrifty import (
    BudgetedClassifier,
    ConfidenceRouter,
    Evidence,
    Frontier,
    StageOptions,
    certify,
    evidence_of,
)
from thrifty.bundle import from_bytes, to_bytes
from thrifty.engine.evidence.hypothesis_tests import LossCounts, clopper_pearson_bound, trials_of
from thrifty.errors import InvalidInputError
from thrifty.reporting.measure import measure
from thrifty.reporting.page import page_of
from thrifty.rows import content_keys

FIT, NEW = slice(0, 300), slice(300, 700)


def drawn(n_classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 4))
    y = np.digitize(X[:, 0] + 0.7 * X[:, 1] + 0.3 * rng.normal(size=700), [0.0, 1.2][: n_classes - 1])
    return X, y


@pytest.fixture(scope="module")
def rows():
    return drawn(2)


@pytest.fixture(scope="module")
def router(rows):
    X, y = rows
    return ConfidenceRouter(
        LinearDiscriminantAnalysis(), LinearDiscriminantAnalysis(), features=[0], random_state=0
    ).fit(X[FIT], y[FIT])


@pytest.fixture(scope="module")
def cascade(rows):
    X, y = rows
    return small().fit(X[FIT], y[FIT])


def small(**wish):
    return BudgetedClassifier(
        LinearDiscriminantAnalysis(),
        stages=StageOptions(max_stages=2, sizes=[(3, 2)]),
        cv=2,
        random_state=0,
        **wish,
    )


@pytest.fixture(params=["router", "cascade"])
def fitted(request):
    return request.getfixturevalue(request.param)


def with_some_of_the_fit(rows, n=20):
    X, y = rows
    return np.r_[X[NEW], X[:n]], np.r_[y[NEW], y[:n]]


# -- rows that the fit has seen --------------------------------------------------------------------


@pytest.mark.slow
def test_rows_of_the_fit_are_refused_with_their_number_and_the_first_of_them(fitted, rows):
    X, y = with_some_of_the_fit(rows)
    told = r"20 of the 420 rows .* \[400, 401, 402, 403, 404\].* duplicates=\"drop\""
    for one in (fitted, from_bytes(to_bytes(fitted))):
        with pytest.raises(InvalidInputError, match=told):
            one.certified(X, y, max_loss=0.3)


def test_left_out_they_change_nothing_but_the_words(fitted, rows):
    X, y = rows
    alone = fitted.certified(X[NEW], y[NEW], max_loss=0.3).certificate_
    there = fitted.certified(*with_some_of_the_fit(rows), max_loss=0.3, duplicates="drop").certificate_
    assert (there.n_rows, there.n_losses, there.bound) == (alone.n_rows, alone.n_losses, alone.bound)
    assert (there.n_given, there.n_seen, alone.n_given, alone.n_seen) == (420, 20, 400, 0)
    assert (
        "20 of 420 rows given equal rows of the fit and were left out, so it speaks of rows unlike those"
        in str(there)
    )


def test_rows_of_the_fit_alone_prove_nothing(fitted, rows):
    with pytest.raises(InvalidInputError, match=r"0 held-out rows \(of 300: rows that equal"):
        fitted.certified(rows[0][FIT], rows[1][FIT], max_loss=0.3, duplicates="drop")


def test_rows_that_a_chain_behind_was_fitted_on_are_seen_too(router, rows):
    X, y = rows
    front = ConfidenceRouter(
        FrozenEstimator(router), LinearDiscriminantAnalysis(), features=[1], random_state=0
    )
    front.fit(X[NEW][:200], y[NEW][:200])
    with pytest.raises(InvalidInputError, match="300 of the 300 rows"):
        front.certified(X[FIT], y[FIT], max_loss=0.3)


def test_a_frontier_refuses_the_rows_of_the_fit_and_those_it_was_chosen_on(router, rows):
    X, y = rows
    chosen = Frontier.from_evidence([evidence_of(router, X[300:450], y[300:450])], against_full=True)
    assert certify(chosen.on([evidence_of(router, X[450:], y[450:])]), max_loss=0.3).n_seen == 0
    for first in (250, 400):
        there = chosen.on([evidence_of(router, X[first : first + 200], y[first : first + 200])])
        with pytest.raises(InvalidInputError, match="50 of the 200 rows|200 of the 200 rows"):
            certify(there, max_loss=0.3)


def test_held_out_rows_are_left_out_that_equal_rows_of_the_fit_with_another_label(rows):
    X, y = np.round(rows[0], 1), rows[1]
    X[:, 2:] = 0.0
    clf = small().fit(X[FIT], y[FIT])
    certificate = clf.certified(X[NEW], y[NEW], max_loss=0.4, duplicates="drop").certificate_
    assert certificate.n_seen > 0
    assert certificate.n_rows + certificate.n_seen + certificate.n_repeated == certificate.n_given


def test_rows_of_a_fit_with_several_classes_are_refused_too():
    X, y = drawn(3)
    router = ConfidenceRouter(
        LinearDiscriminantAnalysis(), LinearDiscriminantAnalysis(), features=[0], random_state=0
    ).fit(X[FIT], y[FIT])
    with pytest.raises(InvalidInputError, match="20 of the 420 rows"):
        router.certified(*with_some_of_the_fit((X, y)), max_loss=0.5)
    often = np.repeat(X[NEW], 3, axis=0), np.repeat(y[NEW], 3)
    assert router.certified(*often, max_loss=0.5).certificate_.n_rows == 400


# -- rows that repeat each other -------------------------------------------------------------------


def test_a_row_that_is_given_twenty_times_is_counted_once(fitted, rows):
    X, y = rows[0][NEW], rows[1][NEW]
    once = fitted.certified(X, y, max_loss=0.3).certificate_
    often = fitted.certified(np.repeat(X, 20, axis=0), np.repeat(y, 20), max_loss=0.3).certificate_
    assert (often.n_rows, often.n_losses, often.bound) == (once.n_rows, once.n_losses, once.bound)
    assert (often.n_given, often.n_repeated) == (8000, 7600)
    assert "7,600 of 8,000 rows given repeat others and were not counted" in str(often)
    counted = fitted.certified(
        np.repeat(X, 20, axis=0), np.repeat(y, 20), max_loss=0.3, duplicates="count"
    ).certificate_
    assert counted.n_rows == 8000
    assert "counted as independent ones, as was asked for" in str(counted)


def test_a_frequent_row_that_is_lost_weighs_as_much_as_it_is_frequent():
    """Counting different rows alone would make one loss of a hundred."""
    rare = np.arange(300) < 200
    keys = content_keys(np.where(rare, np.arange(300), -1.0)[:, None], np.zeros(300, dtype=int))
    trials = trials_of(keys, (), 300, "drop")
    assert (trials.n_trials, trials.n_kept) == (201, 300)
    counts = LossCounts(None, 300, trials.n_kept, trials.n_trials, np.array([100]), np.array([1]))
    assert counts.n_losses.tolist() == [67]  # a third of 201


@settings(max_examples=50)
@given(st.integers(1, 400), st.integers(1, 400), st.floats(0, 1), st.sampled_from([0.5, 0.8, 0.95, 0.99]))
def test_fewer_trials_with_no_smaller_share_have_no_smaller_bound(n_few, n_more, share, confidence):
    n_rows = n_few + n_more
    losses = round(share * n_rows)
    scaled = -(-losses * n_few // n_rows)
    few, many = (
        clopper_pearson_bound(scaled, n_few, confidence),
        clopper_pearson_bound(losses, n_rows, confidence),
    )
    assert few >= many * (1 - 1e-12)


def test_a_point_passes_only_if_every_way_to_count_lets_it():
    full, wrong = np.ones(400, bool), np.arange(400) < 8
    keys = content_keys(np.r_[np.arange(8), 8 + np.arange(392) % 92][:, None], np.zeros(400, dtype=int))
    chosen = Frontier.from_evidence([Evidence.of_point(1.0, full[:50], ~full[:50], full_quality=full[:50])])
    there = Evidence.of_point(1.0, ~wrong, ~full, full_quality=full, rows=keys)
    merged = certify(chosen.on([there]), max_loss=0.2)
    assert (merged.n_rows, merged.n_losses) == (100, 8)
    assert merged.bound == clopper_pearson_bound(8, 100, 0.95)
    unknown = certify(chosen.on([replace(there, rows=None)]), max_loss=0.2)
    assert (unknown.n_rows, unknown.n_losses, unknown.n_seen) == (400, 8, None)
    assert "could not be compared with each other or with those of the fit" in str(unknown)


# -- words -------------------------------------------------------------------------------------------


def test_a_certificate_tells_its_assumptions_its_date_and_its_rows_at_every_door(router, rows):
    X, y = rows
    sure = router.certified(X[NEW], y[NEW], max_loss=0.3)
    told = str(sure.certificate_)
    assert "independent of each other and of the fit, and drawn as future rows are" in told
    assert "none of them equals another one, or one of the fit" in told
    assert f"issued on {dt.date.today().isoformat()} for the rows {sure.certificate_.rows}" in told
    assert str(from_bytes(to_bytes(sure)).certificate_) == told
    assert told in page_of(measure(sure, X[NEW], y[NEW], n_boot=40))
    turned = router.certified(X[NEW][::-1], y[NEW][::-1], max_loss=0.3).certificate_
    assert turned.rows == sure.certificate_.rows
    assert router.certified(X[NEW][1:], y[NEW][1:], max_loss=0.3).certificate_.rows != turned.rows


def test_an_unknown_way_to_treat_equal_rows_is_refused(cascade, rows):
    X, y = rows
    with pytest.raises(InvalidInputError, match="duplicates must be one of refuse, drop, count; got 'keep'"):
        cascade.certified(X[NEW], y[NEW], max_loss=0.3, duplicates="keep")
