"""Certificates against worlds in which the true loss of every point is known."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from thrifty.engine.evidence.certificate import certify
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.frontier import Frontier
from thrifty.engine.evidence.hypothesis_tests import clopper_pearson_bound, rows_needed
from thrifty.engine.evidence.thresholds import path_to_full, sweep_prices
from thrifty.errors import InvalidInputError

# -- the bound -------------------------------------------------------------------------------------


@pytest.mark.slow
@given(st.integers(1, 5000), st.floats(0, 1), st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99, 0.999]))
def test_the_bound_is_scipys_exact_one(n_rows, share, confidence):
    losses = round(share * n_rows)
    interval = binomtest(losses, n_rows, alternative="less").proportion_ci(confidence, method="exact")
    assert clopper_pearson_bound(losses, n_rows, confidence) == pytest.approx(interval.high, rel=1e-9)


@given(st.integers(1, 300), st.floats(0.001, 0.6), st.sampled_from([0.8, 0.95, 0.99]))
def test_the_bound_is_at_most_max_loss_just_where_so_few_losses_would_be_rare(n_rows, max_loss, confidence):
    losses = np.arange(n_rows + 1)
    rare = binom.cdf(losses, n_rows, max_loss) <= 1 - confidence
    np.testing.assert_array_equal(clopper_pearson_bound(losses, n_rows, confidence) <= max_loss, rare)


@given(st.floats(1e-4, 0.9), st.floats(0.05, 0.9999))
def test_the_rows_needed_are_the_fewest_that_do_without_a_loss(max_loss, confidence):
    needed = rows_needed(max_loss, confidence)
    assert (1 - max_loss) ** needed <= (1 - confidence) * (1 + 1e-9)
    assert needed == 1 or (1 - max_loss) ** (needed - 1) > (1 - confidence) * (1 - 1e-9)


def test_the_rows_needed_are_those_of_the_rule_of_three():
    assert rows_needed(0.05) == 59
    assert rows_needed(0.005) == 598
    assert rows_needed(0.5, 0.75) == 2  # (1 - 1/2)^2 is 1/4, to the last digit


# -- a world of points whose losses are drawn at will -----------------------------------------------


@cache
def candidates(n_points):
    """A frontier of so many points, the cheapest first, chosen on rows that nobody looks at again."""
    nobody = np.zeros(n_points, bool)
    chosen_on = [
        Evidence.of_point(1.0 + place, np.arange(n_points) <= place, nobody, settings={"place": place})
        for place in range(n_points)
    ]
    return Frontier.from_evidence(chosen_on)


def with_losses(lost):
    """The candidates on rows on which f0 is right, and point j wrong where ``lost[j]``."""
    frontier = candidates(len(lost))
    full = np.ones(lost.shape[1], bool)
    sent = np.zeros(lost.shape[1], bool)
    return frontier.on(
        [
            Evidence.of_point(1.0 + place, ~wrong, sent, settings={"place": place}, full_quality=full)
            for place, wrong in enumerate(lost)
        ]
    )


def lost_rows(n_losses, n_rows):
    return np.arange(n_rows) < np.asarray(n_losses)[:, None]


@pytest.mark.slow
@given(st.lists(st.integers(0, 12), min_size=1, max_size=8), st.sampled_from([0.8, 0.95]))
def test_the_certified_point_is_the_last_to_pass_before_the_first_failure(n_losses, confidence):
    n_rows, max_loss = 150, 0.04
    certificate = certify(with_losses(lost_rows(n_losses, n_rows)), max_loss=max_loss, confidence=confidence)
    certified, tested = None, 0
    for place in reversed(range(len(n_losses))):  # from the dearest
        tested += 1
        test = binomtest(n_losses[place], n_rows, max_loss, alternative="less")
        if test.pvalue > 1 - confidence:
            break
        certified = place
    assert certificate.n_tested == tested
    assert certificate.is_fallback == (certified is None)
    if certified is not None:
        assert certificate.point.settings == {"place": certified}
        assert certificate.n_losses == n_losses[certified]
        assert certificate.bound <= max_loss


def test_a_cheap_point_behind_a_failure_is_not_certified_however_well_it_does():
    certificate = certify(with_losses(lost_rows([0, 90, 0], 1000)), max_loss=0.05)
    assert certificate.point.settings == {"place": 2}
    assert (certificate.n_tested, certificate.failed_losses) == (2, 90)


def test_losses_count_only_where_f0_is_right():
    full = np.arange(1000) < 500
    wrong = np.arange(1000) >= 490
    chosen = Frontier.from_evidence([Evidence.of_point(1.0, [True], [False])])
    there = chosen.on([Evidence.of_point(1.0, ~wrong, np.zeros(1000, bool), full_quality=full)])
    assert certify(there, max_loss=0.05).n_losses == 10


# -- coverage ---------------------------------------------------------------------------------------

REPEATS = 250
N_ROWS = 800
MAX_LOSS = 0.02
CONFIDENCE = 0.9
SLACK = 3 * np.sqrt(0.1 * 0.9 / REPEATS)


def wrong_certificates(true_losses, seed=0):
    """Share of repeats in which the certified point loses too much, and in which the cheapest to pass alone would."""
    rng = np.random.default_rng(seed)
    true_losses = np.asarray(true_losses)
    wrong = naive = 0
    for _ in range(REPEATS):
        lost = rng.random((len(true_losses), N_ROWS)) < true_losses[:, None]
        certificate = certify(with_losses(lost), max_loss=MAX_LOSS, confidence=CONFIDENCE)
        if not certificate.is_fallback:
            wrong += true_losses[certificate.point.source] > MAX_LOSS
        alone = clopper_pearson_bound(lost.sum(axis=1), N_ROWS, CONFIDENCE) <= MAX_LOSS
        naive += bool(alone.any() and true_losses[alone.argmax()] > MAX_LOSS)
    return wrong / REPEATS, naive / REPEATS


JUST_ABOVE = MAX_LOSS + 1e-9


@pytest.mark.slow
def test_a_single_point_at_the_limit_is_certified_as_rarely_as_the_exact_test_says():
    wrong, _ = wrong_certificates([JUST_ABOVE])
    allowed = np.flatnonzero(binom.cdf(np.arange(50), N_ROWS, MAX_LOSS) <= 1 - CONFIDENCE)[-1]
    exact = binom.cdf(allowed, N_ROWS, MAX_LOSS)
    assert 0.05 < exact <= 0.1
    assert abs(wrong - exact) <= SLACK


@pytest.mark.slow
@pytest.mark.parametrize(
    ("true_losses", "naive_at_least"),
    [
        (np.full(8, JUST_ABOVE), 0.35),
        (np.r_[JUST_ABOVE, 0.01, JUST_ABOVE, 0.01, JUST_ABOVE, 0.001], 0.0),
    ],
    ids=["all at the limit", "in no order"],
)
def test_a_wrong_certificate_is_as_rare_as_promised_where_testing_each_alone_would_break_the_promise(
    true_losses, naive_at_least
):
    wrong, naive = wrong_certificates(true_losses)
    assert wrong <= 1 - CONFIDENCE + SLACK
    assert naive >= naive_at_least


# -- a world with a gate: the whole way from validation rows to a certificate ------------------------


def gated(rng, n_rows):
    """The gate g is uniform, the cheap side worse than f0 with probability 0.2 g: threshold t loses 0.1 t^2.

    The cheap side is right on half of the rows on which f0 is wrong, so the best accuracy is not at "every row to f0".
    """
    g = rng.random(n_rows)
    full = rng.random(n_rows) < 0.9
    lossy = rng.random(n_rows) < 0.2 * g / 0.9
    cheap = np.where(full, ~lossy, rng.random(n_rows) < 0.5)
    return Evidence.of_gate(
        g, stop_cost=1.0, go_cost=11.0, stop_quality=cheap, go_quality=full, features=(0, 3)
    )


def true_loss(threshold):
    return 0.1 * np.clip(threshold, 0, 1) ** 2


@cache
def gated_certificates(against_full, max_loss=0.02, n_rows=1000):
    rng = np.random.default_rng(7)
    found = []
    for _ in range(500):
        frontier = Frontier.from_evidence([gated(rng, 500)], against_full=against_full).on(
            [gated(rng, n_rows)]
        )
        found.append(certify(frontier, max_loss=max_loss, confidence=CONFIDENCE))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("against_full", [True, False])
def test_certificates_of_a_gate_whose_points_were_chosen_on_validation_rows_keep_the_promise(against_full):
    losses = [true_loss(certificate.point.threshold) for certificate in gated_certificates(against_full)]
    assert np.mean(np.array(losses) > 0.02) <= 1 - CONFIDENCE + 3 * np.sqrt(0.09 / 500)


@pytest.mark.slow
def test_certificates_are_worth_having_and_more_so_along_a_frontier_against_f0():
    # The best threshold there is keeps a share sqrt(0.2) = 0.45 of the rows and costs 11 - 4.5 = 6.5 in place of 11.
    cost, fallback, wrong = (np.empty(2) for _ in range(3))
    for place, against_full in enumerate((True, False)):
        found = gated_certificates(against_full)
        cost[place] = np.mean([certificate.point.cost for certificate in found])
        fallback[place] = np.mean([certificate.is_fallback for certificate in found])
        wrong[place] = np.mean([true_loss(certificate.point.threshold) > 0.02 for certificate in found])
    # reproduction/benchmarks.md shows these numbers.
    np.testing.assert_allclose(cost, [7.6, 9.0], atol=0.05)
    np.testing.assert_allclose(fallback, [0.004, 0.366], atol=0.0005)
    np.testing.assert_allclose(wrong, [0.050, 0.028], atol=0.0005)


# -- what a certificate says --------------------------------------------------------------------------


@pytest.mark.slow
def test_along_the_path_to_the_full_model_certificates_are_cheaper_and_keep_the_promise():
    rng = np.random.default_rng(0)

    def draw(n_rows):
        gate = rng.random((n_rows, 2))
        right = rng.random((n_rows, 2)) > [0.35, 0.25] * gate**2
        return Evidence(
            gate, np.c_[right, np.ones(n_rows, bool)], np.array([1.0, 2.0, 10.0]), np.ones(n_rows, bool)
        )

    world, wrong, cost = draw(20_000), [], []
    for _ in range(60):
        fitted, proof = draw(100), draw(150)
        lost = np.where(fitted.quality, 0.0, 1.0)
        efficient = replace(fitted, points=sweep_prices(fitted, lost, fitted.quality).thresholds)
        path = path_to_full(fitted, Frontier.from_evidence([efficient], against_full=True).thresholds)
        for points, every in ((efficient.points, False), (path, True)):
            chosen_on, held_out = (replace(one, points=points) for one in (fitted, proof))
            frontier = Frontier.from_evidence([chosen_on], against_full=True, every_point=every)
            told = certify(frontier.on([held_out]), max_loss=0.05, confidence=0.8)
            thresholds = [-np.inf] * 2 if told.is_fallback else told.point.thresholds
            _, paid, right = world.at_point(np.array(thresholds))
            cost.append(paid.mean())
            wrong.append(np.mean(~right) > 0.05)
    before, after = np.reshape(cost, (-1, 2)).mean(axis=0)
    assert after < 0.9 * before
    assert np.mean(wrong[1::2]) <= 0.2


def test_a_certificate_says_what_was_shown_and_what_it_assumes():
    certificate = certify(with_losses(lost_rows([40, 9], 4000)), max_loss=0.005)
    assert str(certificate).startswith(
        "loses at most 0.5 % of answers against the full model, with 95 % confidence, on 4,000 held-out rows: "
        "9 of them were worse (bound 0.392 %). This assumes that the rows are independent"
    )
    one = certify(with_losses(lost_rows([1], 1000)), max_loss=0.01)
    assert "1 of them was worse" in str(one)
    assert (one.failed_losses, one.failed_bound, one.n_tested, one.n_candidates) == (None, None, 1, 1)


def gate_that_fails(n_rows, seed):
    rng = np.random.default_rng(seed)
    rows = gated(rng, n_rows)
    return replace(rows, quality=rows.quality & [False, True])


def test_where_nothing_passes_every_row_goes_to_f0_and_the_certificate_says_so():
    chosen = Frontier.from_evidence([gated(np.random.default_rng(0), 50)])
    there = chosen.on([gate_that_fails(1000, 1)])
    only_cheap = replace(there, source=there.source[:1], thresholds=there.thresholds[:1],
                         means=_first(there.means), chosen=_first(there.chosen))  # fmt: skip
    certificate = certify(only_cheap, max_loss=0.01)
    assert certificate.is_fallback
    assert (certificate.point.threshold, certificate.point.share, certificate.point.cost) == (
        -np.inf,
        1.0,
        11.0,
    )
    assert (certificate.n_losses, certificate.bound, certificate.n_tested) == (0, 0.0, 1)
    assert str(certificate).startswith(
        "sends every row to the full model, and so loses nothing against it: the safest of 1 points could not be shown"
    )


@pytest.mark.parametrize("against_full", [False, True])
def test_the_fallback_of_a_gate_is_that_gate_wide_open_whatever_the_points_were_chosen_by(against_full):
    chosen = Frontier.from_evidence([gated(np.random.default_rng(0), 50)], against_full=against_full)
    there = chosen.on([gate_that_fails(1000, 1)])
    cheapest = replace(there, source=there.source[:1], thresholds=there.thresholds[:1],
                       means=_first(there.means), chosen=_first(there.chosen))  # fmt: skip
    certificate = certify(cheapest, max_loss=0.01)
    assert certificate.is_fallback
    assert (certificate.point.thresholds, certificate.point.cost) == ((-np.inf,), 11.0)


def _first(means):
    return type(means)(means.cost[:1], means.share[:1], means.score[:1])


def test_without_a_gate_that_can_be_opened_the_fallback_has_no_point():
    certificate = certify(with_losses(lost_rows([500], 1000)), max_loss=0.01)
    assert certificate.is_fallback
    assert certificate.point is None
    assert certificate.failed_losses == 500


def test_a_certificate_of_an_infinite_threshold_is_written_as_json():
    there = Frontier.from_evidence([gated(np.random.default_rng(0), 50)]).on([gate_that_fails(1000, 1)])
    certificate = certify(there, max_loss=0.01)
    again = json.loads(json.dumps(certificate.as_dict(), allow_nan=False))
    assert (again["bound"], again["point"]["threshold"]) == (certificate.bound, "-inf")


def test_rows_the_points_were_chosen_on_certify_nothing():
    evidence, measured_again = ([gated(np.random.default_rng(0), 1000)] for _ in range(2))
    frontier = Frontier.from_evidence(evidence)
    against = Frontier.from_evidence(evidence, against_full=True)
    for same in (frontier, frontier.on(evidence), frontier.on(measured_again), against.on(measured_again)):
        with pytest.raises(InvalidInputError, match="rows on which nothing was chosen"):
            certify(same, max_loss=0.05)


def test_too_few_rows_are_refused_with_the_number_that_would_do():
    with pytest.raises(
        InvalidInputError, match=r"100 held-out rows cannot show .* 0.5 % with 95 % .* takes 598 rows"
    ):
        certify(with_losses(lost_rows([0], 100)), max_loss=0.005)
    assert certify(with_losses(lost_rows([0], 598)), max_loss=0.005).bound <= 0.005
    with pytest.raises(InvalidInputError, match="597 held-out rows"):
        certify(with_losses(lost_rows([0], 597)), max_loss=0.005)


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, np.nan, "0.5", None])
def test_wishes_outside_the_open_interval_are_refused(bad):
    frontier = with_losses(lost_rows([0], 100))
    with pytest.raises(InvalidInputError, match="max_loss must lie strictly between 0 and 1"):
        certify(frontier, max_loss=bad)
    with pytest.raises(InvalidInputError, match="confidence must lie strictly between 0 and 1"):
        certify(frontier, max_loss=0.1, confidence=bad)
