import dataclasses
import warnings
from types import SimpleNamespace

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from thrifty import (
    BudgetedClassifier,
    ConfidenceRouter,
    DynaModGbrtClassifier,
    DynaModLinClassifier,
    Evidence,
    Frontier,
    Prices,
    StageOptions,
    evidence_of,
    sweep,
)
from thrifty.engine.evidence.thresholds import threshold_curve
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod import BoostedOptions, LinearOptions
from thrifty.learners.dynamod.sweep import _cells_of, _series

pytestmark = pytest.mark.slow

GRID = {"gamma": [1.0, 10.0], "p_full": [0.2, 0.6]}
SIZES = {"stages": [StageOptions(3, [(5, 2)]), StageOptions(3, [(10, 3)])]}


def _rows(n_columns):
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X[:, :n_columns])
    return SimpleNamespace(
        X=X[:250], y=y[:250], X_val=X[250:400], y_val=y[250:400], X_test=X[400:], y_test=y[400:]
    )


@pytest.fixture(scope="session")
def rows():
    return _rows(10)


@pytest.fixture
def fitting(rows):
    """What every sweep of these tests is given: training and validation rows."""
    return rows.X, rows.y, rows.X_val, rows.y_val


@pytest.fixture
def f0():
    return make_pipeline(StandardScaler(), LogisticRegression())


@pytest.fixture
def trees(f0):
    return DynaModGbrtClassifier(f0, options=BoostedOptions(n_trees=5, max_depth=2, max_iter=2))


@pytest.fixture(scope="module")
def swept(rows):
    """A sweep of four cells, which nothing changes, and the steps of its progress."""
    full = make_pipeline(StandardScaler(), LogisticRegression())
    estimator = DynaModGbrtClassifier(full, options=BoostedOptions(n_trees=5, max_depth=2, max_iter=2))
    steps = []
    given = rows.X, rows.y, rows.X_val, rows.y_val
    return sweep(estimator, GRID, *given, progress=lambda *step: steps.append(step)), steps


@pytest.fixture
def linear(f0):
    return DynaModLinClassifier(f0, options=LinearOptions(max_iter=20))


@pytest.fixture
def cascade():
    return BudgetedClassifier(GaussianNB(), stages=StageOptions(max_stages=3, sizes=[(5, 2)]), cv=3)


@pytest.fixture
def assert_same_evidence():
    """``assert_same_evidence(one, other)``: every array and everything else is equal."""

    def compare(one, other):
        for entry in dataclasses.fields(Evidence):
            a, b = getattr(one, entry.name), getattr(other, entry.name)
            if isinstance(a, np.ndarray):
                np.testing.assert_array_equal(a, b, entry.name)
            elif entry.name == "task":
                assert type(a) is type(b)
                np.testing.assert_array_equal(getattr(a, "classes", None), getattr(b, "classes", None))
            else:
                assert a == b, entry.name

    return compare


def gates_of(found):
    return [cell.evidence.gate.tolist() for cell in found.cells]


def direct(estimator, cell, rows, **fit):
    """The same setting, fitted the ordinary way."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.set_params(**cell.settings, random_state=0).fit(rows.X, rows.y, **fit)


def test_a_cell_is_the_ordinary_fit_of_its_settings(trees, swept, rows):
    found, _ = swept
    assert [cell.settings for cell in found.cells] == [
        {"gamma": gamma, "p_full": cap} for gamma in (1.0, 10.0) for cap in (0.2, 0.6)
    ]
    for cell in found.cells:
        g, f1 = direct(trees, cell, rows).scores(rows.X_val)
        np.testing.assert_array_equal(cell.evidence.gate[:, 0], g)
        np.testing.assert_array_equal(cell.evidence.quality[:, 0], (f1 > 0) == (rows.y_val == 1))


def test_weights_count_and_a_row_of_weight_zero_is_not_there(trees, fitting, rows):
    weight = np.arange(len(rows.y)) % 3
    (cell,) = sweep(trees, {"gamma": [1.0]}, *fitting, sample_weight=weight).cells
    np.testing.assert_array_equal(
        cell.evidence.gate[:, 0], direct(trees, cell, rows, sample_weight=weight).scores(rows.X_val)[0]
    )


@pytest.mark.parametrize("frozen", [False, True])
def test_a_chain_behind_the_cells_keeps_its_own_costs(f0, fitting, rows, frozen):
    tail = DynaModLinClassifier(f0, gamma=0.02, random_state=0)
    if frozen:
        tail = FrozenEstimator(tail.fit(rows.X_val, rows.y_val))
    front = DynaModGbrtClassifier(tail, options=BoostedOptions(n_trees=5, max_depth=2, max_iter=2))
    found = sweep(front, {"gamma": [10.0]}, *fitting)
    (cell,) = found.cells
    plain = direct(front, cell, rows)
    np.testing.assert_array_equal(cell.evidence.gate[:, 0], plain.scores(rows.X_val)[0])
    everyone_goes_on = plain.at(threshold=-np.inf)
    np.testing.assert_array_equal(cell.evidence.cost_at(1), everyone_goes_on.cost(rows.X_val))
    np.testing.assert_array_equal(
        cell.evidence.quality[:, 1], everyone_goes_on.predict(rows.X_val) == rows.y_val
    )
    point = found.frontier[-1]
    chosen = found.estimator(point)
    assert chosen.chain_.n_stages == 2
    np.testing.assert_array_equal(
        chosen.predict(rows.X_test), plain.at(threshold=point.threshold).predict(rows.X_test)
    )


def test_f0_is_fitted_once_per_fold_for_the_whole_sweep(fitting):
    class Counted(LogisticRegression):
        fits = 0

        def fit(self, X, y, sample_weight=None):
            type(self).fits += 1
            return super().fit(X, y, sample_weight)

    sweep(DynaModGbrtClassifier(Counted(), options=BoostedOptions(n_trees=2), cv=3), GRID, *fitting)
    assert Counted.fits == 4


def test_a_function_is_asked_once_about_each_row(trees, fitting, rows):
    asked = []

    def remote(table):
        asked.append(len(table))
        return np.clip(0.5 - table[:, 0] / 5.0, 0.05, 0.95)

    found = sweep(trees.set_params(full=remote), GRID, *fitting)
    assert sorted(asked) == [len(rows.y_val), len(rows.y)]
    asked.clear()
    found.on(rows.X_test, rows.y_test)
    assert asked == [len(rows.y_test)]


def test_the_frontier_is_made_of_every_threshold_of_every_cell(swept):
    found, _ = swept
    best = -1.0
    for cell in found.cells:
        seen, right = cell.evidence, cell.evidence.quality.astype(float)
        curve = threshold_curve(seen.gate[:, 0], *seen.cost, right[:, 0], right[:, 1])
        best = max(best, curve.score[curve.cost <= 8.0].max(initial=-1.0))
    assert found.frontier.best(budget=8.0).score == pytest.approx(best, abs=1e-12)


def test_the_estimator_of_a_point_does_on_rows_what_the_point_says(swept, rows):
    found, _ = swept
    tested = found.on(rows.X_test, rows.y_test)
    assert len(tested) == len(found.frontier)
    for point, there in zip(found.frontier, tested, strict=True):
        chosen = found.estimator(point)
        assert chosen.gamma == point.settings["gamma"]
        assert chosen.threshold_ == point.threshold
        assert np.mean(chosen.predict(rows.X_val) == rows.y_val) == pytest.approx(point.score, abs=1e-12)
        assert chosen.cost(rows.X_val).mean() == pytest.approx(point.cost)
        assert np.mean(chosen.predict(rows.X_test) == rows.y_test) == pytest.approx(there.score, abs=1e-12)
        assert chosen.cost(rows.X_test).mean() == pytest.approx(there.cost)
        assert found.estimator(there).threshold_ == point.threshold


def test_a_point_of_another_sweep_is_refused(trees, swept, fitting):
    other = sweep(trees, {"gamma": [100.0]}, *fitting)
    with pytest.raises(InvalidInputError, match="not one of this sweep"):
        swept[0].estimator(other.frontier[0])


def test_probabilities_as_f0_need_those_of_the_validation_rows(trees, fitting, rows, f0):
    model = f0.fit(rows.X_test, rows.y_test)
    train, val, test = (model.predict_proba(X)[:, 1] for X in (rows.X, rows.X_val, rows.X_test))
    given = trees.set_params(full=train)
    with pytest.raises(
        InvalidInputError, match="the full model's on the 150 validation rows. Give them as full_val"
    ):
        sweep(given, GRID, *fitting)
    found = sweep(given, GRID, *fitting, full_val=val)
    frozen = sweep(trees.set_params(full=FrozenEstimator(model)), GRID, *fitting)
    assert gates_of(found) == gates_of(frozen)
    assert found.frontier.score.tolist() == frozen.frontier.score.tolist()
    assert found.on(rows.X_test, rows.y_test, full_probability=test).score.tolist() == (
        frozen.on(rows.X_test, rows.y_test).score.tolist()
    )
    dearest = found.frontier[-1]
    answers = [one.estimator(dearest).predict_proba(rows.X_val) for one in (found, frozen)]
    np.testing.assert_allclose(*answers, rtol=1e-12)
    with pytest.raises(
        InvalidInputError, match="169 of the 169 rows asked about are not those they belong to"
    ):
        found.on(rows.X_test, rows.y_test)


def test_probabilities_of_rows_of_weight_zero_are_not_read(trees, fitting, rows, f0):
    model = f0.fit(rows.X_test, rows.y_test)
    train, val = (model.predict_proba(X)[:, 1] for X in (rows.X, rows.X_val))
    weight = (np.arange(len(rows.y)) % 4 > 0).astype(float)
    changed = np.where(weight > 0, train, 0.9)
    one, two = (
        sweep(trees.set_params(full=given), {"gamma": [1.0]}, *fitting, sample_weight=weight, full_val=val)
        for given in (train, changed)
    )
    assert gates_of(one) == gates_of(two)


def test_an_f0_with_decision_values_is_attached_with_its_calibration(trees, fitting, rows, tmp_path):
    given = trees.set_params(full=SVC(gamma="scale"))
    fresh = sweep(given, {"gamma": [1.0]}, *fitting, memory=tmp_path)
    resumed = sweep(given, {"gamma": [1.0]}, *fitting, memory=tmp_path)
    one, two = (found.estimator(found.frontier[-1]).at(threshold=-np.inf) for found in (fresh, resumed))
    np.testing.assert_array_equal(one.predict_proba(rows.X_test), two.predict_proba(rows.X_test))
    np.testing.assert_array_equal(
        one.predict_proba(rows.X_test),
        direct(trees, fresh.cells[0], rows).at(threshold=-np.inf).predict_proba(rows.X_test),
    )


def test_an_f0_without_a_seed_gets_one(trees, fitting):
    forest = trees.set_params(full=RandomForestClassifier(n_estimators=5))
    one, two = (sweep(forest, {"gamma": [1.0]}, *fitting) for _ in range(2))
    assert gates_of(one) == gates_of(two)
    assert forest.full.random_state is None


@pytest.mark.parametrize(
    ("estimator", "grid"),
    [
        (ConfidenceRouter(LogisticRegression()), [{"features": [0, 1]}, {"features": [2]}]),
    ],
)
def test_every_estimator_with_one_stage_can_be_swept(estimator, grid, fitting, rows):
    found = sweep(estimator, grid, *fitting)
    point = found.frontier[0]
    chosen = found.estimator(point)
    assert np.mean(chosen.predict(rows.X_val) == rows.y_val) == pytest.approx(point.score, abs=1e-12)
    assert len(found.on(rows.X_test, rows.y_test)) == len(found.frontier)


def test_frames_with_costs_by_name_and_sparse_tables_are_read(f0, linear, rows):
    names = [f"c{i}" for i in range(10)]
    frames = [pd.DataFrame(X, columns=names) for X in (rows.X, rows.X_val)]
    priced = linear.set_params(feature_costs={name: 1.0 + (name == "c7") for name in names})
    found = sweep(priced, {"gamma": [0.01]}, frames[0], rows.y, frames[1], rows.y_val)
    assert found.estimator(found.frontier[0]).feature_names_in_.tolist() == names
    plain = linear.set_params(feature_costs=None, full=LogisticRegression())
    dense = sweep(plain, {"gamma": [0.01]}, rows.X, rows.y, rows.X_val, rows.y_val)
    thin = sweep(
        plain, {"gamma": [0.01]}, sparse.csr_array(rows.X), rows.y, sparse.csr_array(rows.X_val), rows.y_val
    )
    np.testing.assert_allclose(
        thin.cells[0].evidence.gate, dense.cells[0].evidence.gate, rtol=1e-3, atol=1e-3
    )


def test_a_neighbours_solution_saves_rounds_and_ends_about_as_low():
    X, y = load_digits(return_X_y=True)
    y = y % 2
    full = np.where(np.arange(len(y)) % 30 == 0, 1 - y, y) * 0.9 + 0.05
    fitting = X[:250], y[:250], X[250:350], y[250:350]
    grid = {"gamma": [0.005, 0.01, 0.02, 0.04]}

    def fits(warm_start):
        linear = DynaModLinClassifier(full[:250])
        found = sweep(linear, grid, *fitting, full_val=full[250:350], warm_start=warm_start)
        return [cell.fitted for cell in found.cells]

    warm, cold = fits(True), fits(False)
    np.testing.assert_array_equal(warm[-1].gate_coef_, cold[-1].gate_coef_)
    assert sum(fit.n_iter_ for fit in warm) < 0.7 * sum(fit.n_iter_ for fit in cold)
    assert all(a.trace_[-1, 1] < b.trace_[-1, 1] + 0.005 for a, b in zip(warm, cold, strict=True))
    assert {fit.options for fit in warm} == {None}


def test_progress_counts_to_the_end(swept):
    assert swept[1] == [
        ("cross-fitting the full model", 0, 1),
        ("cross-fitting the full model", 1, 1),
        *(("fitting", done, 4) for done in range(5)),
    ]


def test_a_frame_lists_the_cells(swept):
    found, _ = swept
    frame = found.to_frame()
    assert frame["gamma"].tolist() == [1.0, 1.0, 10.0, 10.0]
    assert frame["n_points"].sum() == len(found.frontier)
    assert (frame["seconds"] > 0).all()
    assert repr(found).startswith("Sweep(4 cells of DynaModGbrtClassifier, ")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"estimator": LogisticRegression()},
            "an estimator of thrifty, such as .*; got LogisticRegression",
        ),
        ({"estimator": DynaModLinClassifier}, "got the class DynaModLinClassifier"),
        ({"y_val": np.zeros(3)}, r"y_val must hold one label per row, shape \(150,\)"),
        ({"y_val": np.full(150, 7)}, "y_val must hold the labels .* got 7 in row 0"),
        ({"X_val": np.zeros((150, 3))}, "X has 3 features"),
        ({"X_val": np.full((150, 10), np.nan)}, "NaN"),
    ],
)
def test_what_does_not_fit_is_refused_before_f0_is_asked(linear, rows, changed, sentence):
    def never(table):
        raise AssertionError("f0 was asked")

    given = {
        "estimator": linear.set_params(full=never),
        "grid": {"gamma": [0.1]},
        **{name: getattr(rows, name) for name in ("X", "y", "X_val", "y_val")},
        **changed,
    }
    given["estimator"] = changed.get("estimator", linear)
    with pytest.raises(InvalidInputError, match=sentence):
        sweep(**given)


def test_a_seed_that_is_no_number_is_refused(trees, fitting):
    with pytest.raises(InvalidInputError, match="random_state is a RandomState"):
        sweep(trees.set_params(random_state=np.random.RandomState(0)), GRID, *fitting)


# -- every estimator and every full model -------------------------------------------------------


def by_hand(estimator, rows, **settings):
    """The setting, fitted the ordinary way, with the seed of a sweep."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.set_params(**settings, random_state=0).fit(rows.X, rows.y)


def assert_points_hold(found, X, y, frontier):
    """The estimator of each point does on the rows what the frontier says."""
    for point in frontier:
        chosen = found.estimator(point)
        assert np.mean(chosen.predict(X) == y) == pytest.approx(point.score, abs=1e-12)
        assert chosen.cost(X).mean() == pytest.approx(point.cost)


def test_cascades_that_were_interrupted_end_as_fits_by_hand(
    assert_same_evidence, cascade, fitting, rows, tmp_path, monkeypatch
):
    class EnoughError(Exception):
        pass

    def stop(what, done, total):
        if what == "fitting" and done == 1:
            raise EnoughError

    with pytest.raises(EnoughError):
        sweep(cascade, SIZES, *fitting, memory=tmp_path, progress=stop)
    fitted, real = [], BudgetedClassifier.fit
    monkeypatch.setattr(
        BudgetedClassifier,
        "fit",
        lambda self, *a, **k: (fitted.append(self.stages.sizes), real(self, *a, **k))[1],
    )
    monkeypatch.setattr("thrifty.learners.dynamod.sweep.cross_fit_full", None)
    resumed = sweep(cascade, SIZES, *fitting, memory=tmp_path)
    assert fitted == [[(10, 3)]]
    monkeypatch.undo()

    seen = []
    for cell in resumed.cells:
        hand = by_hand(cascade, rows, stages=StageOptions(**cell.settings["stages"]))
        seen.append(evidence_of(hand, rows.X_val, rows.y_val, settings=cell.settings))
        assert_same_evidence(cell.evidence, seen[-1])
    frontier = Frontier.from_evidence(seen)
    for name in ("source", "thresholds", "cost", "score"):
        np.testing.assert_array_equal(getattr(resumed.frontier, name), getattr(frontier, name))
    assert_points_hold(resumed, rows.X_val, rows.y_val, resumed.frontier)
    assert_points_hold(resumed, rows.X_test, rows.y_test, resumed.on(rows.X_test, rows.y_test))


def test_a_cascade_of_a_sweep_goes_on_to_other_points_by_the_validation_rows(cascade, fitting, rows):
    found = sweep(cascade, {"stages": [StageOptions(3, [(5, 2)])]}, *fitting)
    chosen = found.estimator(found.frontier[-1])
    assert chosen.full is not None
    assert len(chosen.frontier_) == len(found.frontier)
    np.testing.assert_array_equal(chosen.frontier_.score, found.frontier.score)
    assert chosen.at(budget=1.5).cost(rows.X_test).mean() < 3.0
    certified = chosen.certified(rows.X_test, rows.y_test, max_loss=0.2)
    assert certified.certificate_.max_loss == 0.2


def test_the_full_model_is_judged_once_for_all_cascades(fitting):
    class Counted(GaussianNB):
        fits = 0

        def fit(self, X, y, sample_weight=None):
            type(self).fits += 1
            return super().fit(X, y, sample_weight)

    sizes = [StageOptions(2, [(2, 2)]), StageOptions(2, [(3, 2)])]
    sweep(BudgetedClassifier(Counted(), cv=3), {"stages": sizes}, *fitting)
    assert Counted.fits == 4


def test_the_full_model_is_given_the_columns_it_reads_and_no_others(assert_same_evidence, fitting, rows):
    names = [f"c{number}" for number in range(10)]
    frames = [pd.DataFrame(X, columns=names) for X in (rows.X, rows.X_val, rows.X_test)]
    asked = set()

    def remote(table):
        asked.add(tuple(table.columns))
        return np.clip(0.5 - table["c7"].to_numpy() / 5.0, 0.05, 0.95)

    front = DynaModGbrtClassifier(
        remote, options=BoostedOptions(n_trees=5, max_depth=2), prices=Prices(full_features=["c7", "c2"])
    )
    found = sweep(front, {"gamma": [1.0, 10.0]}, frames[0], rows.y, frames[1], rows.y_val)
    for cell in found.cells:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            hand = front.set_params(**cell.settings, random_state=0).fit(frames[0], rows.y)
        assert_same_evidence(cell.evidence, evidence_of(hand, frames[1], rows.y_val, settings=cell.settings))
    assert_points_hold(found, frames[2], rows.y_test, found.on(frames[2], rows.y_test))
    assert asked == {("c7", "c2")}


def test_a_cascade_stands_in_front_of_cells_and_behind_them(assert_same_evidence, cascade, fitting, rows, f0):
    gate = DynaModLinClassifier(f0, gamma=0.02, random_state=0)
    for front, tail in (
        (cascade, gate),
        (DynaModGbrtClassifier(options=BoostedOptions(n_trees=5, max_depth=2)), cascade),
    ):
        tail.set_params(random_state=0)
        estimator = front.set_params(full=FrozenEstimator(tail.fit(rows.X_test, rows.y_test)))
        found = sweep(estimator, [{}], *fitting)
        hand = by_hand(estimator, rows)
        assert_same_evidence(found.cells[0].evidence, evidence_of(hand, rows.X_val, rows.y_val))
        chosen = found.estimator(found.frontier[-1])
        assert chosen.chain_.n_stages > chosen.chain_.n_own_stages
        assert_points_hold(found, rows.X_val, rows.y_val, found.frontier)


def test_the_points_of_a_cascade_are_told_by_the_validation_rows(cascade, fitting, rows, f0):
    found = sweep(cascade.set_params(full=f0), [{}], *fitting)
    point = found.frontier[-1]
    chosen = found.estimator(point)
    assert chosen.expected_score_ == pytest.approx(point.score)
    assert chosen.expected_cost_ == pytest.approx(point.cost)
    assert chosen.at(budget=float(point.cost)).expected_cost_ == pytest.approx(point.cost)


# -- the plan ----------------------------------------------------------------------------------------


def plan(estimator, grid):
    return _series(_cells_of(estimator, grid))


def test_along_gamma_each_linear_cell_starts_from_the_next_larger_one():
    cells = _cells_of(DynaModLinClassifier(), {"gamma": [0.01, 1.0, 0.1], "p_full": [0.2, 0.6]})
    series = [[cells[number][1] for number in one] for one in _series(cells)]
    assert series == [[{"gamma": gamma, "p_full": cap} for gamma in (1.0, 0.1, 0.01)] for cap in (0.2, 0.6)]


@pytest.mark.parametrize(
    "estimator",
    [
        DynaModGbrtClassifier(),
        DynaModLinClassifier(options=LinearOptions(init="gaussian")),
        DynaModLinClassifier(options=LinearOptions(refit=True)),
        DynaModLinClassifier(options=LinearOptions(gate_reads_margin=True)),
    ],
)
def test_what_a_neighbour_cannot_help_starts_by_itself(estimator):
    assert plan(estimator, {"gamma": [0.01, 0.1]}) == [[0], [1]]


def test_a_setting_given_twice_is_one_cell():
    assert len(plan(DynaModGbrtClassifier(), [{"gamma": 1}, {"gamma": 2}, {"gamma": 1}])) == 2


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [
        ([], "grid must hold at least one setting"),
        ({"gamma": 3}, "grid must be a dict of lists"),
        ("gamma", "grid must be a dict of lists"),
        ([1, 2], "grid must be a dict of lists"),
        ({"gamme": [1]}, "does not know"),
        ({"gamma": [1, -1]}, "gamma must be a finite number >= 0; got -1"),
        ({"full": [None]}, "grid must not vary 'full'"),
        ({"full__C": [1]}, "grid must not vary 'full__C'"),
        ({"prices": [Prices(full=1)]}, "grid must not vary 'prices'"),
        ({"feature_costs": [None]}, "grid must not vary 'feature_costs'"),
        ({"budget": [1, 2]}, "grid must not vary 'budget', which chooses among the operating points"),
    ],
)
def test_a_bad_grid_is_refused_before_anything_is_fitted(grid, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        plan(DynaModGbrtClassifier(), grid)


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [
        ({"stages": [StageOptions(sizes=[(5, 2)]), StageOptions(sizes=[5])]}, "sizes must be a list of"),
        (
            {"stages": [StageOptions(sizes=[(5, 99)])]},
            r"max_depth in sizes must be a whole number in \[1, 12\]; got 99",
        ),
        ({"stages": [StageOptions(0)]}, "max_stages must be a whole number >= 1; got 0"),
        ({"max_loss": [0.1]}, "grid holds a setting that the estimator does not know"),
    ],
)
def test_a_bad_grid_of_cascades_is_refused_before_anything_is_fitted(grid, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        plan(BudgetedClassifier(), grid)


def test_a_model_in_the_grid_is_refused():
    with pytest.raises(InvalidInputError, match="settings must be a dict of what JSON can hold"):
        plan(ConfidenceRouter(), {"cheap": [DynaModLinClassifier()]})


# -- the cache ---------------------------------------------------------------------------------------


def test_a_finished_sweep_is_read_from_its_cache_without_fitting_anything(
    trees, fitting, rows, monkeypatch, tmp_path, assert_same_evidence
):
    fresh = sweep(trees, {"gamma": [1.0, 10.0]}, *fitting, memory=tmp_path)
    monkeypatch.setattr(DynaModGbrtClassifier, "fit", None)
    monkeypatch.setattr("thrifty.learners.dynamod.sweep.cross_fit_full", None)
    again = sweep(trees, {"gamma": [1.0, 10.0]}, *fitting, memory=tmp_path)
    for one, other in zip(again.cells, fresh.cells, strict=True):
        assert_same_evidence(one.evidence, other.evidence)
    there = [found.on(rows.X_test, rows.y_test).score.tolist() for found in (again, fresh)]
    assert there[0] == there[1]


@pytest.fixture
def counted_fits(monkeypatch):
    """The gammas of the fits that were made."""
    fitted, real = [], DynaModGbrtClassifier.fit
    monkeypatch.setattr(
        DynaModGbrtClassifier,
        "fit",
        lambda self, *a, **k: (fitted.append(self.gamma), real(self, *a, **k))[1],
    )
    return fitted


def test_a_larger_grid_fits_only_what_is_new(trees, fitting, counted_fits, tmp_path):
    sweep(trees, {"gamma": [1.0]}, *fitting, memory=tmp_path)
    counted_fits.clear()
    sweep(trees, {"gamma": [1.0, 10.0]}, *fitting, memory=tmp_path)
    assert counted_fits == [10.0]


@pytest.mark.parametrize(
    "change",
    [
        lambda g: g["X"].__setitem__((0, 0), 1.0),
        lambda g: g["y_val"].__setitem__(0, 1 - g["y_val"][0]),
        lambda g: g.update(sample_weight=np.full(250, 2.0)),
        lambda g: g["estimator"].set_params(feature_costs=np.full(10, 2.0)),
        lambda g: g["estimator"].set_params(options__n_trees=6),
        lambda g: g["estimator"].set_params(full=LogisticRegression(C=0.5)),
    ],
)
def test_other_data_prices_or_models_find_nothing_in_the_cache(trees, rows, tmp_path, counted_fits, change):
    given = {"estimator": trees, "X": rows.X.copy(), "y": rows.y.copy(), "X_val": rows.X_val.copy()}
    given |= {"y_val": rows.y_val.copy(), "grid": {"gamma": [1.0]}, "memory": tmp_path}
    sweep(**given)
    change(given)
    counted_fits.clear()
    sweep(**given)
    assert counted_fits == [1.0]


def test_a_full_model_that_cannot_be_pickled_is_refused_with_a_cache(trees, fitting, tmp_path):
    with pytest.raises(InvalidInputError, match="memory needs a full model .* can be pickled"):
        sweep(trees.set_params(full=lambda X: np.full(len(X), 0.5)), GRID, *fitting, memory=tmp_path)


def test_a_failed_cell_is_named_and_those_before_it_are_kept(linear, fitting, monkeypatch, tmp_path):
    real, fitted = DynaModLinClassifier.fit, []

    def fragile(self, X, y, sample_weight=None):
        fitted.append(self.gamma)
        if self.gamma == 0.01:
            raise ZeroDivisionError("by nothing")
        return real(self, X, y, sample_weight)

    monkeypatch.setattr(DynaModLinClassifier, "fit", fragile)
    with pytest.raises(
        InvalidInputError, match=r"the cell {'gamma': 0.01} failed: ZeroDivisionError: by nothing"
    ):
        sweep(linear, {"gamma": [0.005, 0.01, 0.02]}, *fitting, memory=tmp_path)
    assert fitted == [0.02, 0.01]
    monkeypatch.setattr(
        DynaModLinClassifier, "fit", lambda self, *a, **k: (fitted.append(self.gamma), real(self, *a, **k))[1]
    )
    fitted.clear()
    sweep(linear, {"gamma": [0.005, 0.01, 0.02]}, *fitting, memory=tmp_path)
    assert fitted == [0.01, 0.005]


# -- workers -----------------------------------------------------------------------------------------


def test_processes_and_threads_find_bit_by_bit_what_one_process_finds(trees, linear, cascade, fitting):
    for estimator, grid in (
        (trees, GRID),
        (linear, {"gamma": [0.01, 0.1], "p_full": [0.2, 0.6]}),
        (cascade, SIZES),
    ):
        # A process of its own has one BLAS thread; here there are two.
        with threadpool_limits(2, user_api="blas"):
            alone = sweep(estimator, grid, *fitting, n_jobs=1)
        assert gates_of(sweep(estimator, grid, *fitting, n_jobs=2)) == gates_of(alone)
    with joblib.parallel_config("threading", n_jobs=2):
        assert gates_of(sweep(cascade, SIZES, *fitting)) == gates_of(alone)
