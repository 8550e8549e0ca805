import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thrifty.tables.choice import chance_sent
from thrifty.tables.spending import Copies, Spending, spend


def world(seed, n_held=400, n_learned=1600, agreement=0.9, shift=0.3):
    """Scores of a gate and of copies that agree with it up to noise, and are shifted: they learned from fewer rows."""
    chance = np.random.default_rng(seed)

    def copy_of(g):
        return agreement * g + np.sqrt(1 - agreement**2) * chance.normal(size=len(g)) + shift

    held, learned = chance.normal(size=n_held), chance.normal(size=n_learned)
    return held, Copies(copy_of(learned), tuple(copy_of(held) for _ in range(5)))


def true_share(threshold):
    from scipy.stats import norm

    return float(norm.sf(threshold))


def test_the_held_out_rows_alone_give_the_quantile():
    g = np.arange(100.0)
    found = spend(g, 0.25)
    assert np.sum(g > found.threshold) == 25
    assert found.share == 0.25
    assert found.error == pytest.approx(np.sqrt(0.25 * 0.75 / 100))
    assert found.worth == pytest.approx(100)


def test_copies_halve_the_error_and_do_not_bias_it():
    alone, helped, said = [], [], []
    for seed in range(150):
        g, copies = world(seed)
        alone.append(true_share(spend(g, 0.2).threshold) - 0.2)
        found = spend(g, 0.2, copies)
        helped.append(true_share(found.threshold) - 0.2)
        said.append(found.error)
    assert np.std(helped) < 0.8 * np.std(alone)
    # The copies are shifted by 0.3: taken as they are, they would be wrong by 0.07.
    assert abs(np.mean(helped)) < 3 * np.std(helped) / np.sqrt(len(helped))
    assert np.mean(said) == pytest.approx(np.std(helped), rel=0.2)


def test_copies_that_know_nothing_of_the_gate_do_no_harm():
    alone, helped = [], []
    for seed in range(100):
        g, copies = world(seed, agreement=0.0)
        alone.append(true_share(spend(g, 0.2).threshold) - 0.2)
        helped.append(true_share(spend(g, 0.2, copies).threshold) - 0.2)
    assert np.std(helped) < 1.05 * np.std(alone)


@pytest.mark.parametrize(
    ("share", "threshold"), [(0.0, np.inf), (-0.1, np.inf), (1.0, -np.inf), (1.2, -np.inf)]
)
def test_nobody_and_everybody_need_no_rows(share, threshold):
    assert spend(np.arange(5.0), share) == Spending(threshold, float(np.clip(share, 0, 1)), 0.0, np.inf)


@given(
    st.lists(st.integers(-3, 3), min_size=2, max_size=60),
    st.floats(0.01, 0.99),
)
def test_tied_scores_give_the_share_that_was_asked_for_to_within_one_row(scores, share):
    g = np.array(scores, dtype=float)
    found = spend(g, share)
    assert found.share == pytest.approx(chance_sent(g, found.threshold, found.tie).mean())
    assert abs(found.share - share) <= 1 / len(g)


def test_a_tie_is_kept_only_where_no_threshold_does():
    assert spend(np.arange(100.0), 0.253).tie is None
    assert spend(np.repeat([0.0, 1.0], 50), 0.5).tie is None
    found = spend(np.repeat([0.0, 1.0, 2.0], 50), 0.5, seed=9)
    assert (found.threshold, found.tie.lower, found.tie.seed) == (1.5, 0.5, 9)
    assert found.tie.share == pytest.approx(0.5)


def test_copies_help_where_scores_tie_too():
    def tied(seed):
        g, copies = world(seed)
        # Copies have scores of their own: near those of the gate, and never equal to them.
        return np.floor(2 * g) / 2, Copies(
            np.floor(2 * copies.learned) / 2 + 0.01,
            tuple(np.floor(2 * one) / 2 - 0.01 for one in copies.held),
        )

    def true(found):
        grid = np.floor(2 * np.random.default_rng(0).normal(size=200_000)) / 2
        return chance_sent(grid, found.threshold, found.tie).mean() - 0.2

    alone, helped = [], []
    for seed in range(60):
        g, copies = tied(seed)
        alone.append(true(spend(g, 0.2)))
        helped.append(true(spend(g, 0.2, copies)))
    assert np.std(helped) < 0.95 * np.std(alone)
    assert abs(np.mean(helped)) < 3.5 * np.std(helped) / np.sqrt(len(helped))
