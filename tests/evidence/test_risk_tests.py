"""Certificates by class, and of mean losses: bounds against other bounds, words, refusals."""

import numpy as np
import pytest
from scipy.stats import binom

from thrifty.engine.evidence.certificate import certify
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.frontier import Frontier
from thrifty.engine.evidence.hypothesis_tests import (
    STAKES,
    betting_bound,
    clopper_pearson_bound,
    log_wealth,
    rejects,
    rows_needed_for_mean,
)
from thrifty.engine.tasks.classes import classification, read_loss
from thrifty.engine.tasks.regression import RegressionTask
from thrifty.errors import InvalidInputError

WELL_AND_SICK = np.array(["well", "sick"])[::-1]


def hoeffding_bentkus(excess, confidence):
    """Bound of Bates et al. 2021, which is for means in [0, 1], of a mean in [-1, 1]."""
    n_rows, mean = len(excess), float((1 + excess.mean()) / 2)
    limits = np.linspace(mean, 1.0, 4001)[1:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        below = np.where(mean > 0, mean * np.log(mean / limits), 0.0)
    distance = below + (1 - mean) * np.log((1 - mean) / (1 - limits))
    p_value = np.minimum(np.exp(-n_rows * distance), np.e * binom.cdf(np.ceil(n_rows * mean), n_rows, limits))
    return 2 * float(limits[np.argmax(p_value <= 1 - confidence)]) - 1


@pytest.mark.parametrize("n_losses", [0, 3, 30])
def test_betting_on_losses_of_one_is_nearly_as_sharp_as_the_exact_bound_and_never_sharper(n_losses):
    exact = float(clopper_pearson_bound(n_losses, 1000, 0.95))
    bound = betting_bound((np.arange(1000) < n_losses).astype(float), 0.95)
    assert exact <= bound < 1.7 * exact


def test_betting_is_sharper_than_hoeffding_and_bentkus_where_an_excess_has_two_signs():
    rng = np.random.default_rng(0)
    for excess in (0.1 * rng.normal(size=500), rng.choice([-1.0, 0.0, 1.0], 500, p=[0.05, 0.9, 0.05])):
        assert excess.mean() < betting_bound(excess, 0.95) < 0.75 * hoeffding_bentkus(excess, 0.95)


def test_the_betting_bound_misses_the_mean_as_rarely_as_it_says():
    rng = np.random.default_rng(1)
    draws = np.where(rng.random((2000, 200)) < 0.1, rng.random((2000, 200)) - 0.2, 0.0)
    capital = np.array([log_wealth(draws, 0.03, stake).sum(axis=1) for stake in STAKES])
    missed = rejects(capital, 0.9)
    assert missed[0] == (betting_bound(draws[0], 0.9) < 0.03)
    assert 0.0 < missed.mean() <= 0.1


def test_rows_that_are_repeated_do_not_sharpen_the_bound_of_a_mean():
    excess = np.random.default_rng(2).random(50) * 0.2
    assert betting_bound(np.repeat(excess, 20), 0.95, 1 / 20) == pytest.approx(betting_bound(excess, 0.95))


def test_the_rows_that_a_mean_needs_are_the_fewest():
    needed = rows_needed_for_mean(0.05, 0.95)
    assert betting_bound(np.zeros(needed), 0.95) <= 0.05 + 1e-9 < betting_bound(np.zeros(needed - 1), 0.95)


def on_rows(quality, full, task, strata=None, tolerance=0.0):
    """Two points, the dearer of which never differs from the full model, on held-out rows of a task."""

    def seen(own, theirs, **known):
        return [
            Evidence.of_point(
                2.0, theirs, [True] * len(own), settings={"at": 1}, full_quality=theirs, **known
            ),
            Evidence.of_point(1.0, own, [False] * len(own), settings={"at": 0}, full_quality=theirs, **known),
        ]

    chosen = Frontier.from_evidence(seen(np.array([0.0, 0.0]), np.array([0.0, 0.5])))
    return chosen.on(seen(quality, full, task=task, strata=strata, tolerance=tolerance))


def rare_class(n_lost, n_sick=100):
    """A thousand rows, some of class sick, of which the cheap point loses the first."""
    strata = (np.arange(1000) >= n_sick).astype(np.uint8)
    return on_rows(np.arange(1000) >= n_lost, np.ones(1000, bool), classification(WELL_AND_SICK), strata)


def test_a_rare_class_that_is_given_up_is_no_loss_of_all_rows_but_one_of_its_class():
    frontier = rare_class(n_lost=30)
    assert certify(frontier, max_loss=0.05).point.settings == {"at": 0}
    certificate = certify(frontier, max_loss={"sick": 0.05, "well": 0.05})
    assert certificate.point.settings == {"at": 1}
    assert (certificate.failed_losses, certificate.failed_bound) == (30, clopper_pearson_bound(30, 100, 0.95))


def test_a_certificate_by_class_names_each_class_with_its_rows_and_its_exact_bound():
    certificate = certify(rare_class(n_lost=2), max_loss={"sick": 0.08, "well": 0.01})
    told = {one.label: (one.n_rows, one.n_losses, one.bound) for one in certificate.by_class}
    bounds = [float(clopper_pearson_bound(2, 100, 0.95)), float(clopper_pearson_bound(0, 900, 0.95))]
    assert told == {"sick": (100, 2, bounds[0]), "well": (900, 0, bounds[1])}
    assert certificate.point.settings == {"at": 0}
    assert str(certificate).startswith(
        "loses at most 8 % of answers to rows of 'sick' and 1 % of answers to rows of 'well' against the full model, "
        "with 95 % confidence, on 1,000 held-out rows: of 100 of 'sick' 2 were worse (bound 6.16 %); "
        "of 900 of 'well' 0 were worse (bound 0.332 %)"
    )
    assert [one["label"] for one in certificate.as_dict()["by_class"]] == ["sick", "well"]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (
            {"max_loss": {"sick": 0.02}},
            r"100 held-out rows of class 'sick' cannot show .* it takes 149 rows of class",
        ),
        (
            {"max_loss": {"ill": 0.1}},
            r"names the class 'ill', which is not one of the labels \['sick', 'well'\]",
        ),
        ({"max_loss": {"sick": 1.0}}, "max_loss of 'sick' must lie strictly between 0 and 1"),
        ({"max_loss": {}}, "must name a class"),
        ({"max_loss": {"sick": 0.1}, "measure": "mean"}, "must be one number"),
        ({"max_loss": 0.1, "measure": "median"}, "measure must be one of share, mean"),
        ({"max_loss": 0.1, "largest": 2.0}, 'Leave it out, or ask for measure="mean"'),
        ({"max_loss": 0.1, "largest": -1.0, "measure": "mean"}, "largest must be a finite number above 0"),
        ({"max_loss": 0.0001, "measure": "mean"}, "cannot show a loss of at most 0.01 %"),
    ],
)
def test_what_cannot_be_certified_is_refused_in_words(how, words):
    with pytest.raises(InvalidInputError, match=words):
        certify(rare_class(n_lost=2), **how)


def test_a_mean_needs_a_frontier_that_knows_what_answers_lose():
    seen = [Evidence.of_point(1.0, [0.5, 0.2], [True, False], full_quality=[0.5, 0.5])]
    other = [Evidence.of_point(1.0, [0.1, 0.2], [True, False], full_quality=[0.5, 0.5])]
    with pytest.raises(InvalidInputError, match="without against_full"):
        certify(Frontier.from_evidence(seen, against_full=True).on(other), max_loss=0.1, measure="mean")


def test_numbers_are_certified_by_their_tolerance_and_by_their_mean_and_the_words_tell_both():
    task = RegressionTask("squared", 0.0, 2.0, 0.01)
    full = np.full(1000, 0.7)
    worse = np.where(np.arange(1000) < 20, -50.0, 0.695)
    frontier = on_rows(worse, full, task, tolerance=0.01)
    assert "exceeds that of the full model by more than 0.01)" in str(certify(frontier, max_loss=0.05))
    mean = certify(frontier, max_loss=0.05, measure="mean")
    # Errors of 51 are clipped at 4; the rest lose 0.005 more than the full model's 0.3.
    assert mean.excess * 4 == pytest.approx(0.02 * (4 - 0.3) + 0.98 * 0.005)
    assert mean.excess < mean.bound <= 0.05
    assert "squared error in units of the variance of the targets (clipped at 4)" in str(mean)
    assert certify(frontier, max_loss=0.05, measure="mean", largest=1.0).largest == 1.0


@pytest.mark.parametrize(("loss", "largest"), [("log", 13.8155), ("brier", 1.0), ([[0, 5], [200, 0]], 200.0)])
def test_losses_of_classifiers_are_bounded_by_construction_and_certified_in_their_own_unit(loss, largest):
    task = classification(WELL_AND_SICK, read_loss(loss, WELL_AND_SICK))
    lost = np.where(np.arange(1000) < 10, 0.5, 0.0) * largest
    certificate = certify(on_rows(-lost, np.zeros(1000), task), max_loss=0.02, measure="mean")
    assert certificate.largest == pytest.approx(largest, rel=1e-4)
    assert certificate.excess == pytest.approx(0.005)
    assert certificate.point.settings == {"at": 0}
