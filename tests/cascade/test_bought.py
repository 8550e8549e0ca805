"""Fits on tables in which not everything was bought."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from thrifty import (
    BudgetedClassifier,
    BudgetedRanker,
    BudgetedRegressor,
    Prices,
    StageOptions,
    audit,
    load,
    save,
)
from thrifty.engine.full import crossfit
from thrifty.engine.table.table import Table
from thrifty.engine.trees import bin_columns
from thrifty.errors import InformativeBlanksWarning, InvalidInputError, MissingSupportWarning
from thrifty.learners.cascade import bought as module
from thrifty.learners.estimators.checks import check_training_rows
from thrifty.reporting.measure import measure

SMALL = {"stages": StageOptions(max_stages=4, sizes=[(12, 3)]), "cv": 2, "random_state": 0}
PRICES = [0.0, 1.0, 1.0, 1.0]


def table(seed, n_rows=600):
    """Two classes, a free column and three that cost; who is suspected gets the last two more often."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n_rows)
    X = rng.normal(size=(n_rows, 4)) + y[:, None] * [0.3, 0.8, 0.8, 0.8]
    mask = np.ones(X.shape, dtype=bool)
    mask[:, 1] = rng.random(n_rows) < 0.7
    mask[:, 2:] = rng.random((n_rows, 2)) < np.where(y, 0.8, 0.3)[:, None]
    return X, y, mask


def classifier(**settings):
    full = HistGradientBoostingClassifier(max_iter=20, max_depth=3)
    return BudgetedClassifier(full, feature_costs=PRICES, **SMALL, **settings)


@pytest.fixture(scope="module", autouse=True)
def small(while_fits_are_small):
    with while_fits_are_small():
        yield


@pytest.fixture(scope="module")
def fitted():
    X, y, mask = table(0, 1200)
    return classifier().fit(np.where(mask, X, np.nan), y, bought=mask)


def test_a_table_in_which_everything_was_bought_gives_the_same_fit(monkeypatch):
    monkeypatch.setattr(crossfit, "EVALUATED_ROWS", 100)  # one fold of two is held out
    X, y, mask = table(0, 300)
    plain, asked = classifier().fit(X, y), classifier().fit(X, y, bought=np.ones_like(mask))
    assert len(plain.evidence_.gate) < 200
    for name in ("gate", "quality", "cost", "points", "optimism"):
        np.testing.assert_array_equal(getattr(plain.evidence_, name), getattr(asked.evidence_, name))


def test_a_promise_is_kept_where_blanks_depend_on_the_target(fitted):
    X, y, mask = table(0, 1200)
    new, target, _ = table(1, 4000)
    with pytest.warns(InformativeBlanksWarning):
        believing = classifier().fit(np.where(mask, X, np.nan), y)
    for budget in (1.0, 2.0):
        ours, plain = fitted.at(budget=budget), believing.at(budget=budget)
        assert abs(ours.expected_score_ - ours.score(new, target)) < 0.04
        assert plain.expected_score_ - plain.score(new, target) > 0.04
        assert ours.cost(new).mean() == pytest.approx(budget, rel=0.2)


def test_promises_come_from_few_folds_where_rows_are_many(monkeypatch):
    monkeypatch.setattr(crossfit, "EVALUATED_ROWS", 300)
    X, y, mask = table(0, 1200)
    fitted = classifier().fit(np.where(mask, X, np.nan), y, bought=mask)
    assert len(fitted.evidence_.gate) == len(fitted.evidence_.rows) == 600
    new, truth, _ = table(1, 4000)
    assert fitted.expected_score_ == pytest.approx(fitted.score(new, truth), abs=0.03)


def test_what_cells_hold_that_were_not_bought_does_not_matter(fitted):
    X, y, mask = table(0, 1200)
    noise = np.where(mask, X, 1e6 * np.random.default_rng(3).normal(size=X.shape))
    frame = pd.DataFrame(np.where(mask, X, np.nan))
    known = classifier().fit(frame.to_numpy(), y, bought="known")
    np.testing.assert_array_equal(known.evidence_.quality, fitted.evidence_.quality)
    hidden = classifier().fit(noise, y, bought=mask)
    np.testing.assert_array_equal(hidden.evidence_.quality, fitted.evidence_.quality)


def rows_to_prove_with(n_rows=3000):
    """Rows of which some bought everything, and the probability of that."""
    X, y, _ = table(7, n_rows)
    chance = np.where(y == 1, 0.6, 0.3)
    mask, propensity = np.ones(X.shape, dtype=bool), np.ones(X.shape)
    mask[:, 1:], propensity[:, 1] = (np.random.default_rng(8).random(n_rows) < chance)[:, None], chance
    return np.where(mask, X, np.nan), y, mask, propensity


def test_rows_that_were_partly_bought_certify_what_complete_ones_do(fitted, tmp_path):
    X, y, mask, propensity = rows_to_prove_with()
    given = {"max_loss": 0.08, "confidence": 0.9, "bought": mask}
    known, estimated = fitted.certified(X, y, propensity=propensity, **given), fitted.certified(X, y, **given)
    issued = known.certificate_
    assert issued.n_complete == mask.all(axis=1).sum() < issued.n_rows == len(X)
    assert issued.sensitivity >= 1.0
    new, target, _ = table(1, 4000)
    lost = (known.predict(new) != target) & (fitted.chain_.full.estimator.predict(new) == target)
    assert lost.mean() < 0.08
    assert known.cost(new).mean() < fitted.certified(new, target, max_loss=0.03).cost(new).mean()
    assert not issued.approximate
    assert "approximate" not in str(issued)
    save(estimated, tmp_path / "system.thrifty")
    told = load(tmp_path / "system.thrifty")
    assert told.certificate_ == estimated.certificate_
    assert "with approximate 90 % confidence" in measure(told, new[:500], target[:500], n_boot=50).certificate
    assert "approximate=True" in repr(told.certificate_)


def test_certificates_that_cannot_be_had_from_rows_that_were_partly_bought_are_refused(fitted):
    X, y, mask, propensity = rows_to_prove_with(400)
    with pytest.raises(InvalidInputError, match="budget cannot be proved on rows that did not buy"):
        fitted.certified(X, y, budget=2.0, bought=mask)
    with pytest.raises(InvalidInputError, match="bought must be given with propensity"):
        fitted.certified(X, y, max_loss=0.1, propensity=propensity)
    with pytest.raises(InvalidInputError, match="no row bought everything"):
        fitted.certified(X, y, max_loss=0.1, bought=np.tile([True, True, True, False], (400, 1)))


def training_rows(X, y):
    return check_training_rows(classifier(), X, y, None, 2, 0)


def test_cells_are_completed_by_rows_of_the_same_fold_that_bought_them():
    X, y, mask = table(0)
    rows = training_rows(np.where(mask, X, np.nan), y)
    copies = module.donors_of(rows, bin_columns(rows.X), mask, 0)
    for donor in copies:
        places = np.arange(X.shape[1])
        assert mask[donor, places].all()
        np.testing.assert_array_equal(donor[mask], np.tile(np.arange(len(X))[:, None], 4)[mask])
        np.testing.assert_array_equal(rows.folds[donor], np.tile(rows.folds[:, None], 4))
    assert not np.array_equal(*copies[:2])
    np.testing.assert_array_equal(copies, module.donors_of(rows, bin_columns(rows.X), mask, 0))


def test_trees_are_grown_class_by_class_where_one_tells_too_little_and_not_where_columns_repeat_each_other():
    rng = np.random.default_rng(0)
    y, mask = rng.integers(0, 4, 2000), rng.random((2000, 6)) < 0.5
    repeats = rng.integers(0, 60, 2000)[:, None] + 5 * y[:, None] + rng.integers(0, 4, (2000, 6))
    parity = np.tile(rng.integers(0, 2, (2000, 3)), 2)
    parity[:, 3:] ^= (y % 2)[:, None]  # two columns tell together what none tells alone
    shares = []
    for codes in (repeats, 3 * parity + rng.integers(0, 2, (2000, 6))):
        chain = module._Chain(np.column_stack([codes, y]), np.zeros(6, dtype=bool), np.arange(2000) % 5, 4)
        shares.append(chain.share_by_class(mask, np.random.default_rng(1)))
    assert shares == [0.0, 1.0]


def test_a_column_that_repeats_another_is_completed_by_it():
    rng = np.random.default_rng(0)
    values, y = rng.normal(size=800), rng.integers(0, 2, 800)
    X, mask = np.column_stack([values, values]), np.ones((800, 2), dtype=bool)
    mask[:, 1] = rng.random(800) < 0.5
    rows = check_training_rows(BudgetedClassifier(), X, y, None, 2, 0)
    donor = module.donors_of(rows, bin_columns(np.where(mask, X, np.nan)), mask, 0)[0]
    assert np.corrcoef(values[donor[:, 1]], values)[0, 1] > 0.99


def test_the_correction_is_right_where_completed_rows_are_wrong_and_probabilities_right():
    rng = np.random.default_rng(0)
    n_rows, errors = 4000, []
    for _ in range(20):
        real = (rng.random(n_rows) < 0.8).astype(float)  # quality behind a purchase; completed rows show .6
        chance = rng.uniform(0.3, 0.9, n_rows)
        holds = np.column_stack([np.ones(n_rows, dtype=bool), rng.random(n_rows) < chance])
        completed = np.where(holds[:, 1], real, (rng.random((3, n_rows)) < 0.6).astype(float))
        place, stratum = np.ones((3, n_rows), dtype=np.intp), np.zeros(n_rows, dtype=np.intp)
        cells, weight = [np.zeros((3, n_rows), dtype=np.intp)], np.ones(n_rows)
        chances = np.column_stack([np.ones(n_rows), chance])
        biases = module.biases_of(place, completed, cells, stratum, holds, chances, weight)
        errors.append(completed.mean() + biases[0].sum() - 0.8)
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(20) + 0.003
    assert np.mean(errors) > -0.05 > 0.6 * 0.4 + 0.8 * 0.6 - 0.8


def test_a_bias_that_is_hardly_known_is_shrunk_to_nothing():
    sure, unsure = (
        module.shrunk_sum(np.array([0.02]), np.array([1e-4])),
        module.shrunk_sum(np.array([0.02]), np.array([1.0])),
    )
    assert sure[0] == pytest.approx(0.02, rel=1e-3)
    assert abs(unsure[0]) < 1e-4
    assert unsure[1] == pytest.approx(module.BIAS, rel=1e-2)


def test_points_that_few_rows_support_are_left_out():
    X, y, mask = table(1)
    mask[:, 1:] = np.eye(3, dtype=bool)[np.random.default_rng(1).integers(0, 3, len(X))]  # never two together
    with pytest.warns(MissingSupportWarning, match="fewer than"):
        alone = classifier().fit(np.where(mask, X, np.nan), y, bought=mask)
    assert alone.frontier_.cost.max() < 1.5


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_cells_of_other_rows_keep_their_types(kind):
    frame = kind({"level": ["a", "b", "c"], "number": [1, 2, 3]})
    numbers = np.array([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]])
    taken = Table.of(frame).for_fit(numbers).with_cells_of(np.array([[2, 0], [1, 1], [0, 2], [0, 0]]))
    assert taken.values(0) == ["c", "b", "a", "a"]
    assert taken.values(1) == [1, 2, 3, 1]
    assert list(taken.types) == list(Table.of(frame).types)
    np.testing.assert_array_equal(taken.numbers[:, 1], [1.0, 2.0, 3.0, 1.0])
    np.testing.assert_array_equal(taken.numbers_of(np.arange(4)), [0, 1, 2, 0])


def test_the_full_model_need_not_read_blanks_that_are_completed():
    X, y, mask = table(0, 300)
    plain = BudgetedClassifier(LogisticRegression(), feature_costs=PRICES, **SMALL)
    assert plain.fit(np.where(mask, X, np.nan), y, bought=mask).score(X, y) > 0.7
    spoilt = np.where(mask, X, np.nan)
    spoilt[0, 0] = np.nan  # a cell that was bought, and came back blank
    with pytest.raises(InvalidInputError, match="LogisticRegression, does not accept missing"):
        plain.fit(spoilt, y, bought=mask)


def test_columns_of_levels_are_completed():
    X, y, mask = table(0, 400)
    frame = pd.DataFrame(
        {"known": X[:, 0], "level": np.where(X[:, 1] > 0.5, "high", "low"), "number": X[:, 2]}
    )
    blank = frame.mask(pd.DataFrame(~mask[:, :3], columns=frame.columns))
    settings = {"feature_costs": {"known": 0, "level": 1, "number": 1}, **SMALL}
    fitted = BudgetedClassifier(**settings).fit(blank, y, bought=blank.notna())
    assert fitted.score(frame, y) > 0.62


@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
def test_numbers_and_rankings():
    X, y, mask = table(0, 400)
    number = X @ [1.0, 1.0, 1.0, 1.0]
    fitted = BudgetedRegressor(feature_costs=PRICES, **SMALL).fit(X, number, bought=mask)
    assert fitted.score(X, number) > 0.4
    query = np.repeat(np.arange(40), 10)
    ranker = BudgetedRanker(feature_costs=PRICES, **SMALL).fit(X, y, qid=query, bought=mask)
    assert ranker.score(X, y, qid=query) > 0.5


@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
def test_a_grid_search_takes_the_rows_of_a_mask():
    X, y, mask = table(0, 300)
    by_promise = lambda fitted, X, y: fitted.expected_score_  # noqa: E731 - scores on incomplete rows say little
    search = GridSearchCV(
        classifier(),
        {"full__max_depth": [2, 3]},
        cv=2,
        scoring=by_promise,
        error_score="raise",
    )
    search.fit(np.where(mask, X, np.nan), y, bought=mask)
    assert search.best_estimator_.score(X, y) > 0.6


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ("all", "'known'"),
        (np.ones((3, 4)), "a line for each"),
        (np.ones((300, 2)), "4 columns"),
        (np.tile([True, True, True, False], (300, 1)), "column 3"),
    ],
)
def test_a_mask_that_cannot_be_read_is_refused(mask, message):
    X, y, _ = table(0, 300)
    with pytest.raises(InvalidInputError, match=message):
        classifier().fit(X, y, bought=mask)


def test_probabilities_must_be_positive_where_rows_have_bought():
    X, y, mask = table(0, 300)
    with pytest.raises(InvalidInputError, match=r"propensity must lie in \(0, 1\]"):
        classifier().fit(X, y, bought=mask, propensity=np.zeros(X.shape))


def test_a_tree_of_purchases_is_refused_in_words():
    X, y, mask = table(0, 300)
    tree = BudgetedClassifier(feature_costs=PRICES, stages=StageOptions(structure="tree"))
    with pytest.raises(InvalidInputError, match="structure must be line or auto with bought="):
        tree.fit(X, y, bought=mask)


def test_blanks_that_tell_nothing_are_not_warned_of(recwarn):
    X, y, _ = table(0, 400)
    X[np.random.default_rng(5).random(X.shape) < 0.3] = np.nan
    BudgetedClassifier(feature_costs=PRICES, **SMALL).fit(X, y)
    assert not [one for one in recwarn if one.category is InformativeBlanksWarning]


@pytest.mark.slow
def test_the_report_and_an_audit_warn_too_also_of_a_system_from_a_file(tmp_path):
    X, y, mask = table(0, 600)
    blank = pd.DataFrame(np.where(mask, X, np.nan), columns=list("abcd"))
    with pytest.warns(InformativeBlanksWarning):
        fitted = classifier().fit(blank, y)
    assert {*fitted.informative_blanks_} >= {"c", "d"}
    save(fitted, tmp_path / "system.thrifty")
    notes = dict(measure(load(tmp_path / "system.thrifty"), blank, y, n_boot=50).notes)
    assert "fit with bought='known'" in notes["Blanks"]
    told = classifier().fit(blank, y, bought="known")
    assert not told.informative_blanks_
    assert "Blanks" not in dict(measure(told, blank, y, n_boot=50).notes)
    full = HistGradientBoostingClassifier(max_iter=20).fit(blank, y)
    with pytest.warns(InformativeBlanksWarning):
        audit(full, blank, dict(zip("abcd", PRICES, strict=True)), y)


def of_groups(X, y, mask):
    prices = Prices({"a": 0, "b": 1, "c": 1, "d": 1}, groups={"c": "panel", "d": "panel"})
    mask = mask.copy()
    mask[:, 3] = mask[:, 2]
    return X, y, {"bought": np.delete(mask, 3, axis=1)}, {"prices": prices}


def of_discounts(X, y, mask):
    prices = Prices({"a": 0, "b": 1, "c": 1, "d": 1}, discounts={"one visit": (["c", "d"], 0.5)})
    return X, y, {"bought": pd.DataFrame(mask, columns=X.columns)}, {"prices": prices}


def of_weights(X, y, mask):
    return X, y, {"bought": mask, "sample_weight": np.where(y, 1.0, 2.0)}, {}


def of_dates(X, y, mask):
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta((100 * X["b"]).round(), unit="D")
    return X.assign(b=days.where(mask[:, 1])), y, {"bought": "known"}, {}


def of_several_classes(X, y, mask):
    return X, y + (X["a"] > 1), {"bought": mask}, {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
@pytest.mark.filterwarnings("ignore::thrifty.errors.MissingSupportWarning")
@pytest.mark.parametrize("kind", [of_groups, of_discounts, of_weights, of_dates, of_several_classes])
def test_what_fits_take_otherwise_they_take_with_a_mask(kind):
    X, y, mask = table(0, 500)
    X, y, given, settings = kind(pd.DataFrame(X.round(3), columns=list("abcd")), y, mask)
    blank = X.where(mask) if given["bought"] is not None else X
    settings = {"feature_costs": dict(zip("abcd", PRICES, strict=True)), **settings}
    if "prices" in settings:
        del settings["feature_costs"]
    fitted = BudgetedClassifier(**settings, **SMALL).fit(blank, y, **given)
    assert fitted.score(X, y) > 0.6
    assert abs(fitted.expected_score_ - fitted.score(X, y)) < 0.2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
def test_a_pipeline_hands_the_mask_on():
    X, y, mask = table(0, 300)
    steps = make_pipeline(FunctionTransformer(), classifier())
    steps.fit(np.where(mask, X, np.nan), y, budgetedclassifier__bought=mask)
    plain = classifier().fit(np.where(mask, X, np.nan), y, bought=mask)
    np.testing.assert_array_equal(steps[-1].evidence_.gate, plain.evidence_.gate)
