import builtins
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.frontier import Frontier, efficient
from thrifty.errors import InvalidInputError

POINTS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=40)


@pytest.mark.slow
@given(POINTS)
def test_a_point_is_efficient_iff_no_other_is_as_cheap_and_as_good(points):
    cost, score = np.array(points, dtype=float).T
    kept = {(cost[i], score[i]) for i in efficient(cost, score)}
    undominated = {
        (c, s)
        for c, s in zip(cost, score, strict=True)
        if not np.any((cost <= c) & (score >= s) & ((cost < c) | (score > s)))
    }
    assert kept == undominated


# -- the frontier of some systems --------------------------------------------------------------------


def system(seed, n=60, stop_cost=1.0, skill=0.7, **more):
    """A gate that knows something about where its cheap side errs, in front of an f0 that is right on most rows."""
    rng = np.random.default_rng(seed)
    right = rng.random(n) < skill
    g = rng.normal(size=n) - 1.5 * right
    known = {"go_cost": 5.0, "go_quality": rng.random(n) < 0.9} | more
    return Evidence.of_gate(np.round(g, 1), stop_cost=stop_cost, stop_quality=right, **known)


def two_rows():
    """A score of 0.5 at cost 2, and of 1 at cost 3."""
    cheap, full = [True, False], [True, True]
    return Evidence.of_gate([1.0, 2.0], stop_cost=2.0, go_cost=4.0, stop_quality=cheap, go_quality=full)


def systems(seed, n=60):
    """Two gates, one point, and a cascade of two stages with six points; f0 is the same behind all of them."""
    rng = np.random.default_rng(seed)
    full = rng.random(n) < 0.9
    gates = [
        system(seed + place, n, 1.0 + place, skill, settings={"gamma": place}, go_quality=full)
        for place, skill in enumerate((0.6, 0.75))
    ]
    point = Evidence.of_point(
        rng.uniform(1, 3, n),
        rng.random(n) < 0.8,
        rng.random(n) < 0.2,
        full_quality=full,
        settings={"price": 1},
    )
    right = np.column_stack([rng.random((n, 2)) < [0.55, 0.8], full])
    cascade = Evidence(
        np.round(rng.normal(size=(n, 2)) - right[:, :2], 1),
        right,
        np.array([0.8, 2.5, 5.0]),
        full_quality=full,
        points=np.array(
            [[np.inf, np.inf], [0.6, 0.4], [0.2, 0.4], [-0.5, 0.0], [-1.0, -0.7], [-np.inf, -np.inf]]
        ),
        settings={"stages": 2},
    )
    return [*gates, point, cascade]


def at_hand(one, thresholds):
    """Whether each row is sent on at a point, what it pays and whether it is right, by a loop over the stages."""
    place = np.zeros(one.n_rows, dtype=int)
    for stage in range(one.n_stages):
        goes_on = (place == stage) & (one.gate[:, stage] > thresholds[stage])
        place[goes_on] += 1
    cost = np.broadcast_to(one.cost, one.quality.shape)
    rows = np.arange(one.n_rows)
    return place == one.n_stages, cost[rows, place], one.quality[rows, place]


def points_by_hand(evidence):
    for place, one in enumerate(evidence):
        points = one.points
        if points is None:
            points = np.array([np.inf, *sorted(set(one.gate[:, 0].tolist()))[::-1], -np.inf])[:, None]
        for thresholds in points:
            _, cost, right = at_hand(one, thresholds)
            yield place, thresholds, cost.mean(), right.mean()


@pytest.mark.slow
@given(st.integers(0, 10_000))
def test_a_frontier_holds_exactly_the_undominated_points_of_all_its_systems(seed):
    evidence = systems(seed, n=20)
    every = {(round(cost, 9), round(score, 9)) for _, _, cost, score in points_by_hand(evidence)}
    undominated = {
        (c, s) for c, s in every if not any(d <= c and t >= s and (d, t) != (c, s) for d, t in every)
    }
    frontier = Frontier.from_evidence(evidence)
    assert {(round(point.cost, 9), round(point.score, 9)) for point in frontier} == undominated
    assert len(frontier) == len(undominated)
    assert np.all(np.diff(frontier.cost) > 0)
    assert np.all(np.diff(frontier.score) > 0)


@pytest.mark.slow
@given(st.integers(0, 10_000))
def test_the_same_points_on_the_same_rows_have_the_same_numbers(seed):
    evidence = systems(seed)
    frontier = Frontier.from_evidence(evidence)
    again = frontier.on(evidence)
    np.testing.assert_allclose(again.cost, frontier.cost, rtol=1e-12)
    np.testing.assert_allclose(again.score, frontier.score, rtol=1e-12)
    np.testing.assert_allclose(again.share, frontier.share, rtol=1e-12)
    assert not again.held_out


def test_on_other_rows_the_points_stay_as_chosen_and_so_does_the_choice():
    chosen_on, other = systems(0), systems(100, n=45)
    frontier = Frontier.from_evidence(chosen_on)
    there = frontier.on(other)
    assert there.held_out
    assert (there.n_rows, len(there)) == (45, len(frontier))
    for here, point in zip(frontier, there, strict=True):
        assert (here.source, here.thresholds) == (point.source, point.thresholds)
        assert (here.cost, here.score) == (point.chosen_cost, point.chosen_score)
        sent, cost, right = at_hand(other[point.source], point.thresholds or (0.5,))
        assert (point.score, point.share, point.cost) == pytest.approx(
            (right.mean(), sent.mean(), cost.mean())
        )
    for budget in (2.0, 3.0, 4.5):
        here, point = frontier.best(budget=budget), there.best(budget=budget)
        assert (here.source, here.thresholds) == (point.source, point.thresholds)
    assert np.any(np.diff(there.score) < 0), "the example must show that chosen points need not be efficient"


@pytest.mark.slow
@given(st.integers(0, 10_000), st.floats(1.0, 6.0))
def test_the_best_point_for_a_budget_is_the_brute_force_best(seed, budget):
    evidence = systems(seed, n=20)
    affordable = [
        (-score, cost) for _, _, cost, score in points_by_hand(evidence) if cost <= budget * (1 + 1e-12)
    ]
    frontier = Frontier.from_evidence(evidence)
    point = frontier.best(budget=budget)
    assert (-point.score, point.cost) == pytest.approx(min(affordable))
    assert frontier.cheapest(score=point.score).cost == pytest.approx(point.cost)


def test_the_cheapest_point_of_a_loss_has_a_standard_error_of_the_difference_to_spare():
    chance = np.random.default_rng(0)
    full, gate = chance.random(500) < 0.9, chance.random((500, 1))
    quality = np.column_stack([chance.random(500) < 0.85, full])
    evidence = Evidence(gate, quality, np.array([1.0, 10.0]), full_quality=full)
    frontier = Frontier.from_evidence([evidence])
    leads = [evidence.at_point(np.array(point.thresholds))[2] - full.astype(float) for point in frontier]
    spare = [lead.mean() - lead.std() / np.sqrt(500) for lead in leads]
    for loss in (0.04, 0.02):
        first = next(place for place, each in enumerate(spare) if each >= -loss)
        assert frontier.cheapest(loss=loss).cost == frontier.cost[first]
        assert frontier.cost[first] > min(frontier.cost[[lead.mean() >= -loss for lead in leads]])
    with pytest.raises(InvalidInputError, match="no point loses at most -0.5 with .*: the least is"):
        frontier.cheapest(loss=-0.5)
    with pytest.raises(InvalidInputError, match="either a score or a loss"):
        frontier.cheapest()


def test_a_wish_out_of_reach_is_refused_with_the_nearest_that_is_not():
    frontier = Frontier.from_evidence([two_rows()])
    with pytest.raises(
        InvalidInputError, match=r"budget must be at least 2, .* \(its score is 0.5\); got 1.5"
    ):
        frontier.best(budget=1.5)
    with pytest.raises(
        InvalidInputError, match=r"no point reaches a score of 1.1: the best point scores 1, .* cost of 3"
    ):
        frontier.cheapest(score=1.1)
    with pytest.raises(InvalidInputError, match="budget must be a finite number"):
        frontier.best(budget=np.nan)
    with pytest.raises(InvalidInputError, match="score must hold finite numbers; got nan"):
        frontier.cheapest(score=np.nan)


def test_a_budget_that_misses_a_cost_by_its_last_digit_still_affords_the_point():
    one = Evidence.of_point(np.full(10, 0.1), np.ones(10, bool), np.zeros(10, bool))
    assert Frontier.from_evidence([one]).best(budget=0.1).cost == pytest.approx(0.1)


def test_systems_that_end_in_the_same_f0_leave_one_point_for_it():
    full = np.random.default_rng(0).random(90) < 0.9
    gates = [
        system(seed, 90, 1 / 3 + seed / 7, skill=0.3, go_quality=full, go_cost=np.pi) for seed in range(20)
    ]
    frontier = Frontier.from_evidence(gates, against_full=True)
    assert np.sum(frontier.score == 1.0) == 1


def test_evidence_of_other_systems_are_refused():
    frontier = Frontier.from_evidence(systems(0))
    with pytest.raises(InvalidInputError, match="made from 4 systems; got the evidence of 2"):
        frontier.on(systems(1)[:2])
    with pytest.raises(InvalidInputError, match=r"evidence\[0\] must be of the same system"):
        frontier.on([systems(1)[place] for place in (1, 0, 2, 3)])
    with pytest.raises(InvalidInputError, match=r"same rows; got evidence of \[45, 60\] rows"):
        Frontier.from_evidence([system(0), system(1, n=45)])
    with pytest.raises(InvalidInputError, match="at least one system; got none"):
        Frontier.from_evidence([])


def test_a_frontier_against_f0_scores_the_rows_that_are_not_worse():
    evidence = systems(3, n=200)
    frontier = Frontier.from_evidence(evidence, against_full=True).on(systems(4, n=150))
    assert frontier.compares_with_full
    np.testing.assert_array_equal(frontier.losses_against_full(), np.rint(150 * (1 - frontier.score)))
    plain = Frontier.from_evidence(evidence).on(systems(4, n=150))
    rows = systems(4, n=150)
    for place, point in enumerate(plain):
        one = rows[point.source]
        _, _, right = at_hand(one, point.thresholds or (0.5,))
        assert plain.losses_against_full()[place] == np.sum(one.full_quality & ~right)


def test_a_point_says_its_thresholds_and_a_single_one_where_there_is_one_gate():
    evidence = systems(3)
    frontier = Frontier.from_evidence(evidence)
    assert set(frontier.source) == {0, 1, 2, 3}, "the example must show every kind"
    for point in frontier:
        one = evidence[point.source]
        assert len(point.thresholds) == (0 if one.is_fixed else one.n_stages)
        assert point.threshold == (point.thresholds[0] if len(point.thresholds) == 1 else None)


def test_a_point_as_a_dict_has_words_for_infinite_thresholds():
    frontier = Frontier.from_evidence(systems(0))
    assert replace(frontier[0], thresholds=(-np.inf,)).as_dict()["threshold"] == "-inf"
    nobody = replace(frontier[0], thresholds=(-np.inf, 0.5))
    assert nobody.as_dict()["thresholds"] == ["-inf", 0.5]
    json.dumps(nobody.as_dict(), allow_nan=False)


def test_a_frontier_says_what_it_is():
    frontier = Frontier.from_evidence([two_rows()])
    assert repr(frontier) == (
        "Frontier(2 points of 1 system on 2 rows: score 0.5000 at cost 2 to 1.0000 at 3)"
    )
    assert [point.share for point in frontier] == [0.0, 0.5]


def test_a_frame_has_one_line_per_point_and_no_unexplained_gap():
    pd = pytest.importorskip("pandas")
    frontier = Frontier.from_evidence(systems(2))
    frame = frontier.to_frame()
    assert len(frame) == len(frontier)
    for name, values in frame.filter(like="setting.").items():
        for value, point in zip(values, frontier, strict=True):
            told = point.settings.get(name.removeprefix("setting."))
            assert pd.isna(value) if told is None else value == told
    assert {"cost", "score", "share", "n_features", "source", "chosen_cost", "chosen_score"} <= set(frame)
    assert not frame[["cost", "score", "share"]].isna().any().any()
    for line, point in zip(frame.itertuples(), frontier, strict=True):
        assert line.threshold is None if point.threshold is None else line.threshold == point.threshold
    gates = Frontier.from_evidence(systems(2)[:2]).to_frame()
    assert pd.api.types.is_float_dtype(gates["threshold"])


def test_a_plot_shows_every_point_on_the_axes_given():
    figure_module = pytest.importorskip("matplotlib.figure")
    frontier = Frontier.from_evidence(systems(2))
    ax = figure_module.Figure().add_subplot()
    assert frontier.plot(ax, label="chosen") is ax
    frontier.on(systems(3)).plot(ax)
    np.testing.assert_allclose(ax.lines[0].get_xdata(), frontier.cost)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), frontier.score)
    assert (len(ax.lines), ax.lines[0].get_label()) == (2, "chosen")


@pytest.mark.parametrize(("method", "package"), [("to_frame", "pandas"), ("plot", "matplotlib")])
def test_a_missing_library_is_named_with_the_way_to_get_it(monkeypatch, method, package):
    real = builtins.__import__

    def without(name, *rest):
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InvalidInputError, match=f"need.? {package}; install it with"):
        getattr(Frontier.from_evidence(systems(0)), method)()
