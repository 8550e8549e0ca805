"""Certificates on rows of which only some bought everything, against worlds in which the true loss is known."""

import numpy as np
import pytest
from scipy.stats import binom

from thrifty.engine.evidence.certificate import certify_sampled
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.frontier import Frontier
from thrifty.engine.evidence.hypothesis_tests import Sampled, clopper_pearson_bound, sampled_tests
from thrifty.errors import InvalidInputError, InvalidParameterError

LIMIT, N_ROWS, N_DRAWS, LEVEL = 0.05, 2_000, 200, 0.9


def certificate(lost, chance, has_all, *, max_loss=LIMIT, strata=None, **how):
    """Certificate of one point that loses some rows, on those that bought everything."""
    nobody, labels = np.zeros(has_all.sum(), dtype=bool), np.zeros(len(lost)) if strata is None else strata
    classes = {} if strata is None else {"strata": strata[has_all].astype(np.uint8), "settings": {}}
    full = np.ones(len(nobody), dtype=bool)
    frontier = Frontier.from_evidence(
        [Evidence.of_point(1.0, [True], [False], full_quality=[True])], against_full=True
    )
    there = frontier.on([Evidence.of_point(1.0, ~lost[has_all], nobody, full_quality=full, **classes)])
    sample = Sampled(len(lost), labels[~has_all], chance[has_all], approximate=False)
    given = {"confidence": LEVEL, "measure": "share", "largest": None, **how}
    return certify_sampled(there, sample, max_loss=max_loss, **given)


def draw(seed, gamma, share):
    """Rows of which some are lost; these bought everything with odds that are smaller by a factor than is said."""
    rng = np.random.default_rng(seed)
    chance, lost = np.where(rng.random(N_ROWS) < 0.5, 0.6, 0.2), rng.random(N_ROWS) < share
    odds = chance / (1.0 - chance) / np.where(lost, gamma, 1.0)
    return lost, chance, rng.random(N_ROWS) < odds / (1.0 + odds)


def passing(gamma, share=1.02 * LIMIT, sensitivity=1.0):
    """Share of draws in which a point passes that loses more than the limit, or another share."""
    n_passed = 0
    for seed in range(N_DRAWS):
        lost, chance, has_all = draw(seed, gamma, share)
        sample = Sampled(N_ROWS, np.zeros((~has_all).sum()), chance[has_all], approximate=False)
        every = {None: np.ones(has_all.sum(), dtype=bool)}
        passed, _ = sampled_tests(lost[None, has_all] * 1.0, sample, every, LIMIT, LEVEL, sensitivity)
        n_passed += passed[0]
    return n_passed / N_DRAWS


def test_certificates_with_known_probabilities_are_wrong_as_seldom_as_they_say():
    most = binom.ppf(0.999, N_DRAWS, 1 - LEVEL) / N_DRAWS
    assert passing(1.0) < most
    assert passing(1.0, share=0.015) > 0.9  # one that loses less is found


def test_odds_that_differ_by_a_factor_break_a_certificate_that_allows_none_and_keep_one_that_does():
    assert passing(3.0) > 0.5
    assert passing(3.0, sensitivity=3.0) < binom.ppf(0.999, N_DRAWS, 1 - LEVEL) / N_DRAWS


def test_a_certificate_names_the_largest_factor_at_which_it_passes():
    rows = draw(0, 1.0, 0.01)
    largest = certificate(*rows).sensitivity
    assert largest > 1.5
    assert not certificate(*rows, sensitivity=largest).is_fallback
    assert certificate(*rows, sensitivity=1.02 * largest).is_fallback


@pytest.mark.parametrize("n_lost", [0, 4, 30])
def test_where_every_row_bought_everything_the_bound_is_little_above_the_exact_one(n_lost):
    lost, all_rows = np.arange(1000) < n_lost, np.ones(1000, dtype=bool)
    bound = certificate(lost, np.ones(1000), all_rows).bound
    exact = float(clopper_pearson_bound(n_lost, 1000, LEVEL))
    assert exact <= bound < 1.5 * exact + 0.002


def test_rows_that_lack_something_count_as_rows_but_not_as_losses():
    lost, chance, has_all = draw(1, 1.0, 0.0)
    issued = certificate(lost, chance, has_all)
    assert (issued.n_rows, issued.n_complete, issued.n_losses) == (N_ROWS, has_all.sum(), 0)
    assert issued.least_propensity == 0.2
    assert f"{has_all.sum():,} of which bought everything" in str(issued)


def test_too_few_rows_and_other_factors_are_refused():
    lost, chance, has_all = (each[:60] for each in draw(2, 1.0, 0.0))
    with pytest.raises(InvalidInputError, match="one may stand for 5 rows"):
        certificate(lost, chance, has_all)
    with pytest.raises(InvalidParameterError, match="sensitivity must be at least 1"):
        certificate(*draw(2, 1.0, 0.0), sensitivity=0.5)
