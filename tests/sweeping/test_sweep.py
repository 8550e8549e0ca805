import warnings
from concurrent.futures import CancelledError

import numpy as np
import pandas as pd
import pytest
from joblib import Parallel
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from thrifty import BudgetedClassifier, ConfidenceRouter, DynaModGbrtClassifier, DynaModLinClassifier, sweep
from thrifty.bundle import from_bytes
from thrifty.dynamod.sweeping import run
from thrifty.errors import InvalidInputError
from thrifty.evidence.stopping import threshold_curve

pytestmark = pytest.mark.slow

GRID = {"gamma": [1.0, 10.0], "p_full": [0.2, 0.6]}


def gates_of(found):
    return [cell.evidence.gate.tolist() for cell in found.cells]


def direct(estimator, cell, rows, **fit):
    """The same setting, fitted the ordinary way."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.set_params(**cell.settings, random_state=0).fit(rows.X, rows.y, **fit)


def test_a_cell_is_the_ordinary_fit_of_its_settings(trees, fitting, rows):
    found = sweep(trees, GRID, *fitting)
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
    front = DynaModGbrtClassifier(tail, n_trees=5, max_depth=2, max_iter=2)
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

    sweep(DynaModGbrtClassifier(Counted(), n_trees=2, cv=3), GRID, *fitting)
    assert Counted.fits == 4


def test_a_function_is_asked_once_about_each_row_and_a_few_more(trees, fitting, rows):
    asked = []

    def remote(table):
        asked.append(len(table))
        return np.clip(0.5 - table[:, 0] / 5.0, 0.05, 0.95)

    found = sweep(trees.set_params(full=remote), GRID, *fitting)
    assert sorted(asked) == [50, len(rows.y_val), len(rows.y)]
    asked.clear()
    found.on(rows.X_test, rows.y_test)
    assert asked == [len(rows.y_test)]


def test_the_frontier_is_made_of_every_threshold_of_every_cell(trees, fitting):
    found = sweep(trees, GRID, *fitting)
    best = -1.0
    for cell in found.cells:
        seen, right = cell.evidence, cell.evidence.quality.astype(float)
        curve = threshold_curve(seen.gate[:, 0], *seen.cost, right[:, 0], right[:, 1])
        best = max(best, curve.score[curve.cost <= 8.0].max(initial=-1.0))
    assert found.frontier.best(budget=8.0).score == pytest.approx(best, abs=1e-12)


def test_the_estimator_of_a_point_does_on_rows_what_the_point_says(trees, fitting, rows):
    found = sweep(trees, GRID, *fitting)
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


def test_a_point_of_another_sweep_is_refused(trees, fitting):
    one, two = (sweep(trees, {"gamma": [gamma]}, *fitting) for gamma in (1.0, 10.0))
    with pytest.raises(InvalidInputError, match="not one of this sweep"):
        one.estimator(two.frontier[0])


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
    assert [cell.fitted for cell in one.cells] == [cell.fitted for cell in two.cells]


def test_an_f0_with_decision_values_is_attached_with_its_calibration(trees, fitting, rows, tmp_path):
    given = trees.set_params(full=SVC(gamma="scale"))
    fresh = sweep(given, {"gamma": [1.0]}, *fitting, store=tmp_path / "s.db")
    resumed = sweep(given, {"gamma": [1.0]}, *fitting, store=tmp_path / "s.db")
    one, two = (found.estimator(found.frontier[-1]).at(threshold=-np.inf) for found in (fresh, resumed))
    np.testing.assert_array_equal(one.predict_proba(rows.X_test), two.predict_proba(rows.X_test))
    np.testing.assert_array_equal(
        one.predict_proba(rows.X_test),
        direct(trees, fresh.cells[0], rows).at(threshold=-np.inf).predict_proba(rows.X_test),
    )


def test_an_f0_without_a_seed_gets_one(trees, fitting, rows, tmp_path):
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
        return [from_bytes(cell.fitted) for cell in found.cells]

    warm, cold = fits(True), fits(False)
    np.testing.assert_array_equal(warm[-1].gate_coef_, cold[-1].gate_coef_)
    assert sum(fit.n_iter_ for fit in warm) < 0.7 * sum(fit.n_iter_ for fit in cold)
    assert all(a.trace_[-1, 1] < b.trace_[-1, 1] + 0.005 for a, b in zip(warm, cold, strict=True))
    assert {fit.init for fit in warm} == {"logistic"}


def test_progress_counts_to_the_end(trees, fitting):
    seen = []
    sweep(trees, GRID, *fitting, progress=lambda *step: seen.append(step))
    assert seen == [
        ("judging the full model", 0, 1),
        ("judging the full model", 1, 1),
        *(("fitting", done, 4) for done in range(5)),
    ]


def test_a_frame_lists_the_cells(trees, fitting):
    found = sweep(trees, GRID, *fitting)
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
        ({"estimator": BudgetedClassifier(max_loss=0.1)}, "max_loss=0.1 chooses one operating point"),
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


def test_cells_that_a_cluster_forgets_are_given_to_it_again(trees, fitting, monkeypatch):
    given = []

    class Forgetful(Parallel):
        def __call__(self, jobs):
            given.append(len(jobs))
            yield from super().__call__(jobs[: len(given)])
            if len(given) < len(GRID["gamma"]) * len(GRID["p_full"]):
                raise CancelledError("lost dependencies")

    right = sweep(trees, GRID, *fitting)
    monkeypatch.setattr(run, "Parallel", Forgetful)
    found = sweep(trees, GRID, *fitting)
    assert given == [4, 3, 1]
    assert [cell.fitted for cell in found.cells] == [cell.fitted for cell in right.cells]


def test_a_cluster_that_forgets_again_and_again_is_given_up(trees, fitting, monkeypatch):
    class Lost(Parallel):
        def __call__(self, jobs):
            raise CancelledError("lost dependencies")

    monkeypatch.setattr(run, "Parallel", Lost)
    with pytest.raises(CancelledError):
        sweep(trees, GRID, *fitting)
