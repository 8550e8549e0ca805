import tracemalloc

import numpy as np
import pytest

from thrifty.engine.evidence import measures
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.frontier import Frontier
from thrifty.errors import InvalidInputError


def gate(seed, n=400, skill=0.7, stop_cost=1.0, full=None):
    rng = np.random.default_rng(seed)
    right = rng.random(n) < skill
    full = rng.random(n) < 0.9 if full is None else full
    return Evidence.of_gate(
        rng.normal(size=n) - right, stop_cost=stop_cost, go_cost=5.0, stop_quality=right, go_quality=full
    )


def held_out(seed, n=400):
    return Frontier.from_evidence([gate(seed), gate(seed + 1, stop_cost=1.5)]).on(
        [gate(seed + 2, n), gate(seed + 3, n, stop_cost=1.5)]
    )


def test_every_draw_takes_as_many_rows_as_there_are_and_each_equally_often(monkeypatch):
    monkeypatch.setattr(measures, "_CELLS", 50 * 30)
    blocks = list(measures.draws_of(50, 1000, seed=3))
    assert [places.stop - places.start for places, _ in blocks][:2] == [30, 30]
    counts = np.hstack([block for _, block in blocks])
    assert counts.shape == (50, 1000)
    np.testing.assert_array_equal(counts.sum(axis=0), 50)
    # Each row is taken once per draw on average, with a variance of 1 - 1/n: five standard errors.
    np.testing.assert_allclose(counts.mean(axis=1), 1.0, atol=5 / np.sqrt(1000))
    assert counts.var() == pytest.approx(1 - 1 / 50, rel=0.05)


def test_resampled_means_are_means_over_the_drawn_rows():
    frontier = held_out(0, n=60)
    costs, scores = measures.resampled(
        frontier.evidence, frontier.source, frontier.thresholds, n_boot=7, seed=1
    )
    ((_, counts),) = measures.draws_of(60, 7, seed=1)
    for draw in range(7):
        rows = np.repeat(np.arange(60), counts[:, draw].astype(int))
        for place, point in enumerate(frontier):
            one = frontier.evidence[point.source]
            sent = (one.gate[:, 0] > point.threshold).astype(int)
            right, cost = one.quality[np.arange(60), sent], one.cost[sent]
            assert scores[place, draw] == pytest.approx(right[rows].mean())
            assert costs[place, draw] == pytest.approx(cost[rows].mean())


def test_a_band_is_as_wide_as_the_standard_error_of_a_share_says():
    frontier = held_out(0)
    band = frontier.band(0.95, n_boot=2000, seed=0)
    error = np.sqrt(frontier.score * (1 - frontier.score) / frontier.n_rows)
    np.testing.assert_allclose((band.score_high - band.score_low) / (2 * 1.96 * error), 1.0, atol=0.12)
    spread = 4.0 * np.sqrt(frontier.share * (1 - frontier.share) / frontier.n_rows)
    inner = (frontier.source == 0) & (frontier.share > 0.05) & (frontier.share < 0.95)
    np.testing.assert_allclose(
        (band.cost_high - band.cost_low)[inner] / (2 * 1.96 * spread[inner]), 1.0, atol=0.12
    )
    assert np.all((band.score_low <= frontier.score) & (frontier.score <= band.score_high))


@pytest.mark.slow
def test_a_band_covers_the_true_score_about_as_often_as_it_says():
    chosen = Frontier.from_evidence([Evidence.of_point(1.0, np.ones(200, bool), np.zeros(200, bool))])
    rng = np.random.default_rng(0)
    covered = 0
    for repeat in range(300):
        right = rng.random(200) < 0.8
        band = chosen.on([Evidence.of_point(1.0, right, np.zeros(200, bool))]).band(
            0.9, n_boot=200, seed=repeat
        )
        covered += bool(band.score_low[0] <= 0.8 <= band.score_high[0])
    # Percentile intervals of a share run a little short; three binomial standard errors are 0.05.
    assert 0.82 <= covered / 300 <= 0.96


def test_a_band_is_the_same_for_the_same_seed_whatever_the_blocks_of_points(monkeypatch):
    frontier = held_out(4)
    band, other = frontier.band(n_boot=100, seed=5), frontier.band(n_boot=100, seed=6)
    monkeypatch.setattr("thrifty.engine.evidence.frontier._POINTS", 3)
    again = frontier.band(n_boot=100, seed=5)
    np.testing.assert_allclose(again.score_low, band.score_low, rtol=1e-12)
    np.testing.assert_allclose(again.cost_high, band.cost_high, rtol=1e-12)
    assert not np.array_equal(band.score_low, other.score_low)


@pytest.mark.slow
def test_a_band_of_many_points_on_many_rows_stays_small_in_memory():
    rng = np.random.default_rng(0)
    g, right = rng.normal(size=10_000), rng.random(10_000) < 0.5
    better = right | (rng.random(10_000) < 0.6)
    one = Evidence.of_gate(g, stop_cost=1.0, go_cost=5.0, stop_quality=right, go_quality=better)
    frontier = Frontier.from_evidence([one])
    assert len(frontier) > 1000
    tracemalloc.start()
    frontier.band(n_boot=1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # All draws of all rows at once would take 80 MB, two means of all points under all draws 50 MB more.
    assert peak < 45e6


def test_a_comparison_with_itself_is_zero_under_every_draw():
    frontier = held_out(1)
    same = frontier.compare({"itself": frontier}, [2, 3, 4], n_boot=200)["itself"]
    assert not same.difference.any()
    assert not same.low.any()
    assert not same.high.any()
    assert (same.mean, same.mean_low, same.mean_high) == (0.0, 0.0, 0.0)


def test_the_band_of_a_difference_follows_the_rows_on_which_two_systems_differ():
    rng = np.random.default_rng(0)
    base = rng.random(1000) < 0.7
    better = base | (rng.random(1000) < 0.1)
    frontiers = {
        name: Frontier.from_evidence([Evidence.of_point(1.0, right, np.zeros(1000, bool))])
        for name, right in (("base", base), ("better", better))
    }
    found = frontiers["better"].compare({"base": frontiers["base"]}, [1.0], n_boot=3000)["base"]
    per_row = better.astype(float) - base
    error = per_row.std() / np.sqrt(1000)
    assert found.difference[0] == pytest.approx(per_row.mean())
    assert found.high[0] - found.low[0] == pytest.approx(2 * 1.96 * error, rel=0.1)
    unpaired = np.sqrt((base.var() + better.var()) / 1000)
    assert found.high[0] - found.low[0] < 0.7 * 2 * 1.96 * unpaired
    assert str(found).startswith(f"difference {per_row.mean():+.4f} (95 % interval +0.0")


def test_a_comparison_uses_for_each_budget_the_point_that_best_gives():
    ours, theirs = held_out(1), held_out(9)
    budgets = [1.7, 2.5, 4.0, 9.0]
    found = ours.compare({"theirs": theirs}, budgets, n_boot=50)["theirs"]
    for place, budget in enumerate(budgets):
        mine, other = ours.best(budget=budget), theirs.best(budget=budget)
        assert found.difference[place] == pytest.approx(mine.score - other.score)
        assert found.cost_difference[place] == pytest.approx(mine.cost - other.cost)
    assert found.mean == pytest.approx(found.difference.mean())
    assert found.mean_low <= found.mean <= found.mean_high


def test_what_cannot_be_compared_is_refused_by_name():
    ours = held_out(1)
    with pytest.raises(InvalidInputError, match=r"same rows; this one has 400, the others \{'short': 300\}"):
        ours.compare({"short": held_out(1, n=300)}, [2.0])
    dear = Frontier.from_evidence([gate(0, stop_cost=3.0)])
    with pytest.raises(InvalidInputError, match=r"others\['dear'\]: budget must be at least 3, .*got 2.0"):
        ours.compare({"dear": dear}, [2.0, 4.0])
    with pytest.raises(InvalidInputError, match="at least one budget"):
        ours.compare({"dear": dear}, [])
    with pytest.raises(InvalidInputError, match=r"level must lie between 0 and 1; got 95"):
        ours.band(95)
    with pytest.raises(
        InvalidInputError, match=r"n_boot must be at least 40 for a band of level 0.95.*got 10"
    ):
        ours.band(0.95, n_boot=10)
