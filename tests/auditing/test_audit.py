"""An audit: which columns rows read, what that costs, what could be left out, and what a cascade would save."""

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from lightgbm import Booster as LightgbmBooster
from lightgbm import LGBMClassifier, LGBMRanker
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from xgboost import Booster as XgboostBooster
from xgboost import XGBClassifier, XGBRegressor

from thrifty import Audit, BudgetedClassifier, Prices, StageOptions, audit, save
from thrifty.auditing.audit import columns_read
from thrifty.bundle import from_bytes, to_bytes
from thrifty.cli import main
from thrifty.errors import InvalidInputError

SMALL = {"n_estimators": 3, "max_depth": 3, "random_state": 0}
FIT, NEW = slice(0, 300), slice(300, 569)


@pytest.fixture(scope="module", autouse=True)
def small_fits_of_module(while_fits_are_small):
    """What these tests show does not depend on how much is searched for."""
    with while_fits_are_small():
        yield


@pytest.fixture(scope="module", autouse=True)
def small_cascade():
    """Cascades of a few trees: tests look at what is made of them."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(
            "thrifty.auditing.audit._QUICK", {"stages": StageOptions(max_stages=3, sizes=[(4, 2)]), "cv": 2}
        )
        yield


@pytest.fixture(scope="module")
def rows():
    """Eight columns of tumours, one of them with gaps, as numbers with names; and whether they are benign."""
    data = load_breast_cancer(as_frame=True)
    X = data.data.iloc[:, [0, 1, 4, 7, 21, 22, 26, 27]].copy()
    X.columns = [f"column {place}" for place in range(8)]
    X.iloc[::5, 2] = np.nan
    return X, data.target.to_numpy()


def models():
    return {
        "LightGBM": LGBMClassifier(**SMALL, n_jobs=1, verbosity=-1),
        "XGBoost": XGBClassifier(**SMALL, n_jobs=1),
        "histogram boosting": HistGradientBoostingClassifier(max_iter=3, max_depth=3),
        "boosting": make_pipeline(SimpleImputer(), GradientBoostingClassifier(**SMALL)),
        "a forest": RandomForestClassifier(**SMALL),
        "extra trees": ExtraTreesRegressor(**SMALL),
        "a tree in a pipeline": make_pipeline(
            StandardScaler(), SelectKBest(k=5), DecisionTreeClassifier(max_depth=3)
        ),
        "a calibrated forest": CalibratedClassifierCV(RandomForestClassifier(**SMALL), cv=2),
    }


def answers(model, X):
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


@pytest.mark.parametrize("name", models())
def test_rows_differ_in_what_they_are_asked_for_and_no_answer_depends_on_anything_else(name, rows):
    X, y = rows
    model = models()[name]
    if "pipeline" in name:
        X = X.fillna(0.1)
    model.fit(X[FIT], y[FIT])
    read = columns_read(model, X[NEW])
    assert 0.1 < read.mean() < 0.95
    before, others = answers(model, X[NEW]), X.iloc[np.random.default_rng(0).permutation(269)]
    garbled = X[NEW].mask(~read, others.set_axis(X[NEW].index))
    np.testing.assert_array_equal(answers(model, garbled), before)


@pytest.mark.parametrize("name", ["LightGBM", "XGBoost"])
def test_splits_on_categories_are_followed_as_the_library_follows_them(name, rows):
    X, y = rows
    levels = pd.Categorical(np.digitize(X["column 0"], [11, 13, 15, 18]).astype(str))
    table = X.assign(**{"column 0": levels}).iloc[:, :3]
    model = models()[name].set_params(**({"enable_categorical": True} if name == "XGBoost" else {}))
    read = columns_read(model.fit(table[FIT], y[FIT]), table[NEW])
    assert read[:, 0].any()
    other = table[NEW].copy()
    other.loc[~read[:, 0], "column 0"] = other["column 0"].iloc[0]
    np.testing.assert_array_equal(answers(model, other), answers(model, table[NEW]))


def test_a_step_that_mixes_columns_makes_every_row_read_them_all_and_one_hot_columns_are_one_column(rows):
    X, y = rows
    X = X.fillna(0.1)
    mixed = make_pipeline(PCA(3), DecisionTreeClassifier(max_depth=2)).fit(X[FIT], y[FIT])
    assert columns_read(mixed, X[NEW]).all()
    X = X.assign(**{"column 0": np.digitize(X["column 0"], [11, 13, 15])})
    encoder = ColumnTransformer(
        [("one", OneHotEncoder(handle_unknown="ignore"), ["column 0"])], remainder="passthrough"
    )
    forest = make_pipeline(encoder, RandomForestClassifier(**SMALL)).fit(X[FIT], y[FIT])
    read = columns_read(forest, X[NEW])
    assert read.shape == (269, 8)
    assert 0 < read[:, 0].mean() < 1


def test_a_model_without_trees_reads_what_it_has_coefficients_for_or_everything(rows):
    X, y = rows
    X = X.fillna(0.1)
    lasso = LogisticRegression(C=0.02, l1_ratio=1.0, solver="saga", max_iter=20, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        linear = make_pipeline(StandardScaler(), lasso).fit(X[FIT], y[FIT])
    found = audit(linear, X[NEW])
    assert not found.follows_paths
    assert found.mean_cost == found.cost_at_once == np.count_nonzero(linear[-1].coef_) < 8
    assert audit(SVC().fit(X[FIT], y[FIT]), X[NEW]).mean_cost == 8


@pytest.fixture(scope="module")
def forest(rows):
    X, y = rows
    return RandomForestClassifier(**SMALL).fit(X[FIT], y[FIT])


@pytest.fixture(scope="module")
def found(forest, rows):
    X, y = rows
    return audit(forest, X[NEW], {name: 1.0 + place for place, name in enumerate(X.columns)}, y[NEW])


def test_a_row_spends_the_distinct_purchases_on_its_paths_with_groups_discounts_and_the_call(forest, rows):
    X, _ = rows
    prices = Prices(
        np.r_[2.0, 2.0, 1:7], groups=[0, 0, 1, 2, 3, 4, 5, 6], discounts={"lab": ([2, 3], 0.5)}, full=10.0
    )
    read = columns_read(forest, X[NEW])
    paid = 2.0 * read[:, :2].any(axis=1) + read[:, 2:] @ np.arange(1.0, 7.0) - 0.5 * (read[:, 2] & read[:, 3])
    found = audit(forest, X[NEW], prices=prices)
    np.testing.assert_allclose(found.cost, paid + 10.0)
    assert found.cost_of_everything == 2 + 21 - 0.5 + 10
    assert len(found.purchases) == 7


def test_it_tells_losses_drops_and_a_cascade_that_saves(found, forest, rows):
    X, y = rows
    assert found.score == pytest.approx(forest.score(X[NEW], y[NEW]))
    assert max(one.loss for one in found.purchases) > 0.01
    unread = [one for one in found.purchases if one.share == 0]
    assert all(one.loss == 0 for one in unread)
    assert set(unread) <= set(found.drop.purchases)
    assert found.drop.loss <= 0.005
    assert found.drop.cost < found.mean_cost
    assert found.offers[0].score >= found.score
    assert [one.cost for one in found.offers] == sorted((one.cost for one in found.offers), reverse=True)
    assert found.offers[-1].cost < 0.7 * found.mean_cost


def test_it_is_text_a_page_a_data_frame_and_json(found):
    assert isinstance(found, Audit)
    text, page = str(found), found._repr_html_()
    for told in ("RandomForestClassifier", "costs", "column 5", "could do without", "cascade"):
        assert told in text
        assert told in page
    assert (page.count("<table"), page.count("<img")) == (2, 1)
    frame = found.to_frame()
    assert frame["spend"].tolist() == sorted(frame["spend"], reverse=True)
    assert frame["can_drop"].sum() == len(found.drop.purchases)
    assert json.loads(json.dumps(found.as_dict()))["mean_cost"] == found.mean_cost


def test_columns_may_stand_in_any_order_and_tables_be_polars(forest, found, rows):
    X, y = rows
    prices = {name: 1.0 + place for place, name in enumerate(X.columns)}
    again = audit(forest, pl.DataFrame(X[NEW].to_dict("list")).select(list(X.columns[::-1])), prices, y[NEW])
    assert again.as_dict() == found.as_dict()


def test_native_files_and_files_of_ours_are_audited_on_the_command_line(
    rows, found, forest, tmp_path, capsys
):
    X, y = rows
    X[NEW].assign(benign=y[NEW], id=range(269)).to_csv(tmp_path / "new.csv", index=False)
    lines = ["feature,cost", *(f"{name},{1 + place}" for place, name in enumerate(X.columns))]
    (tmp_path / "costs.csv").write_text("\n".join(lines))
    save(forest, tmp_path / "forest.thrifty")
    LGBMClassifier(**SMALL, n_jobs=1, verbosity=-1).fit(X[FIT], y[FIT]).booster_.save_model(
        tmp_path / "light.txt"
    )
    XGBRegressor(**SMALL, n_jobs=1).fit(X[FIT], y[FIT]).get_booster().save_model(tmp_path / "extreme.json")
    for name in ("forest.thrifty", "light.txt", "extreme.json"):
        told = [
            str(tmp_path / name),
            str(tmp_path / "new.csv"),
            "--prices",
            str(tmp_path / "costs.csv"),
            "--json",
        ]
        wish = ["--target", "benign", "-o", str(tmp_path / "page.html")] if name == "forest.thrifty" else []
        assert main(["audit", *told, *wish]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["n_rows"] == 269
        assert 0 < said["mean_cost"] < said["cost_of_everything"] == 36
        if wish:
            wanted = found.as_dict() | {"model": said["model"]}
            assert said["purchases"] == wanted["purchases"]
            assert said["cascade"] == wanted["cascade"]
    assert "<img" in (tmp_path / "page.html").read_text()
    (tmp_path / "model.pkl").write_bytes(b"x")
    assert main(["audit", str(tmp_path / "model.pkl"), str(tmp_path / "new.csv")]) == 2
    assert "never opened" in capsys.readouterr().err


def test_boosters_spend_and_answer_as_the_estimators_around_them(rows):
    X, y = rows
    for model in (models()["LightGBM"], models()["XGBoost"]):
        model.fit(X[FIT], y[FIT])
        booster = model.get_booster() if hasattr(model, "get_booster") else model.booster_
        assert isinstance(booster, LightgbmBooster | XgboostBooster)
        one, other = audit(model, X[NEW], y=y[NEW]), audit(booster, X[NEW], y=y[NEW])
        assert other.as_dict() | {"model": one.model} == one.as_dict()


def test_a_forest_read_from_a_file_reads_what_the_forest_reads(forest, rows):
    X, _ = rows
    ours = from_bytes(to_bytes(forest))
    assert type(ours) is not type(forest)
    np.testing.assert_array_equal(columns_read(ours, X[NEW]), columns_read(forest, X[NEW]))


def test_what_makes_no_sense_is_refused_in_words(forest, rows):
    X, y = rows
    ranker = LGBMRanker(**SMALL, n_jobs=1, verbosity=-1).fit(X[FIT], y[FIT], group=[150, 150])
    cascade = BudgetedClassifier(stages=StageOptions(sizes=[(3, 2)]), cv=2, random_state=0)
    by_row = Prices({**dict.fromkeys(X.columns, 1.0), "column 0": 0.0}, by_row={"column 1": "column 0"})
    refusals = [
        (lambda: audit(RandomForestClassifier(), X), "not fitted"),
        (lambda: audit(RandomForestClassifier, X), "not a class"),
        (lambda: audit("model.pkl", X), "got str"),
        (lambda: audit(cascade.fit(X[FIT].fillna(0), y[FIT]), X[NEW]), "has its own cost"),
        (lambda: audit(forest, X.iloc[:, :5]), "lacks"),
        (lambda: audit(forest, X.to_numpy()[:, :5]), "fitted on 8 columns, but X has 5"),
        (lambda: audit(forest, X[NEW], y=y[:5]), "each of the 269 rows"),
        (lambda: audit(ranker, X[NEW], y=y[NEW]), "Audit it without y"),
        (lambda: audit(forest, X[NEW], prices=by_row), "differ by row"),
        (lambda: audit(forest, "a" + X.astype(str)), "cannot read X"),
    ]
    for act, word in refusals:
        with pytest.raises(InvalidInputError, match=word):
            act()


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_a_booster_with_categories_is_audited_from_a_file_of_text_as_from_its_data_frame(
    library, tmp_path, capsys
):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({name: rng.normal(size=400) for name in ("age", "noise")})
    X["the colour"] = pd.Categorical(rng.choice(["red", "green", "blue"], 400))
    X["zip"] = pd.Categorical(rng.choice(["007", "12", "x"], 400))
    X["grade"] = pd.Categorical(np.where(rng.random(400) < 0.1, None, rng.choice([1, 2, 30], 400)))
    y = ((X["age"] > 0) ^ (X["the colour"] == "red") ^ (X["zip"] == "007")).astype(int)
    new, path = (
        slice(200, 400),
        tmp_path / {"lightgbm": "m.txt", "xgboost": "m.json"}[library],
    )
    how = {"n_estimators": 8, "max_depth": 4, "random_state": 0}
    if library == "xgboost":
        model = XGBClassifier(**how, n_jobs=1, enable_categorical=True).fit(X[:200], y[:200]).get_booster()
        model.save_model(path)
    else:
        fitted = LGBMClassifier(**how, n_jobs=1, verbosity=-1, min_child_samples=5, min_data_per_group=5)
        fitted.fit(X[:200], y[:200])
        model = fitted.booster_
        model.save_model(path)
    X[new].assign(y=y[new]).to_csv(tmp_path / "new.csv", index=False)
    assert main(["audit", str(path), str(tmp_path / "new.csv"), "--target", "y", "--json"]) == 0
    told, wanted = json.loads(capsys.readouterr().out), audit(model, X[new], y=y[new]).as_dict()
    for name in ("n_rows", "mean_cost", "score", "purchases"):
        assert told[name] == wanted[name]
    assert {one["purchase"] for one in told["purchases"] if one["share"] > 0.5} >= {"the colour", "zip"}
    X[new].assign(y=y[new], zip="nowhere").to_csv(tmp_path / "odd.csv", index=False)
    assert main(["audit", str(path), str(tmp_path / "odd.csv"), "--target", "y"]) == 2
    assert (
        "column 'zip' must hold the categories that the model was fitted on, such as '007'"
        in capsys.readouterr().err
    )
