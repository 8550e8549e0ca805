"""Tables as people have them: text, categories, dates, truth values and nullable numbers in the estimators of trees."""

from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import thrifty
from reproduction.rivals.greedy_miser import GreedyMiserClassifier
from reproduction.settings import estimator_of
from thrifty import (
    BudgetedClassifier,
    BudgetedRegressor,
    DynaModGbrtClassifier,
    DynaModGbrtRegressor,
    DynaModLinClassifier,
    StageOptions,
)
from thrifty.bundle.save_load import load
from thrifty.cli import main
from thrifty.engine.table.columns import learn_levels
from thrifty.engine.table.table import Table
from thrifty.errors import InvalidInputError
from thrifty.scale.scorer import answers_of

N, FEW, NEW = 400, 300, slice(400, None)


def people(n=500):
    """A table like a census: what people do, who they are, since when, and what they earn."""
    rng = np.random.default_rng(0)
    number, worth = rng.integers(0, 12, n), 2 * rng.normal(size=12)
    work = np.array([f"work {one}" for one in number], dtype=object)
    work[rng.random(n) < 0.05] = None
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 70, n),
            "work": work,
            "sex": pd.Categorical(rng.choice(["f", "m"], n)),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D"),
            "owns": rng.random(n) < 0.5,
            "children": pd.array(rng.integers(0, 4, n), dtype="Int64"),
        }
    )
    return table, worth[number] + (table["age"].to_numpy() - 40) / 10 + (table["sex"] == "m").to_numpy()


X, WORTH = people()
RICH = np.where(WORTH > 0, "rich", "poor")


def over_text(model):
    """A full model that reads the text itself."""
    one_hot = OneHotEncoder(handle_unknown="ignore")
    columns = [("text", one_hot, ["work", "sex"]), ("age", StandardScaler(), ["age"])]
    return make_pipeline(ColumnTransformer(columns), model)


SIZES = {"stages": StageOptions(max_stages=2, sizes=[(10, 3)]), "cv": 2, "random_state": 0}
SMALL = {"n_trees": 5, "max_iter": 1, "random_state": 0, "cv": 2}
ESTIMATORS = [
    BudgetedRegressor(over_text(Ridge()), **SIZES),
    estimator_of(DynaModGbrtClassifier, over_text(LogisticRegression()), gate_reads_score=True, **SMALL),
    estimator_of(DynaModGbrtRegressor, over_text(Ridge()), **SMALL),
]


class Source:
    """Text and dates that are bought."""

    def __init__(self, table):
        self.table = table

    def __len__(self):
        return len(self.table)

    def fetch(self, rows, columns):
        return self.table.iloc[rows, columns]


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: type(one).__name__)
def test_raw_tables_are_read_from_every_door_and_come_back_from_files(estimator, tmp_path):
    y = WORTH if isinstance(estimator, BudgetedRegressor | DynaModGbrtRegressor) else RICH
    model = estimator.fit(X[:N], y[:N])
    assert 1 in model.features_
    assert any(stage_sets(stage) for stage in model.chain_.stages)
    said = model.predict(X[NEW])
    thrifty.save(model, tmp_path / "model.thrifty", full="outside")
    loaded = thrifty.load(tmp_path / "model.thrifty", full=model.chain_.full.estimator)
    for again in (
        loaded.predict(X[NEW]),
        model.chain_.predict(X[NEW][X.columns[::-1]]),
        model.buy(Source(X[NEW]), on_failure="raise").answer,
        np.concatenate([model.predict(X[row : row + 1]) for row in range(N, N + 5)]),
    ):
        if y is WORTH:  # a linear full model in another batch
            np.testing.assert_allclose(again, said[: len(again)], rtol=1e-12)
        else:
            np.testing.assert_array_equal(again, said[: len(again)])
    unseen = X[NEW].assign(work="never seen")
    np.testing.assert_array_equal(
        model.route(unseen), model.route(unseen.assign(work=np.array([None] * len(unseen))))
    )


def stage_sets(stage):
    trees = [getattr(stage, name, None) for name in ("trees", "cheap", "gate")]
    return any(getattr(one, "sets", None) is not None for one in trees)


@pytest.mark.slow
def test_polars_and_pandas_tables_give_the_same_answers_with_the_default_full_model():
    answers = []
    for table in (X, pl.from_pandas(X), X.astype({"work": "category"})):
        model = estimator_of(DynaModGbrtClassifier, **SMALL).fit(table[:FEW], RICH[:FEW])
        assert model.chain_.full.reads_numbers
        answers.append(model.predict_proba(table[N:]))
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_array_equal(answers[0], answers[2])


def test_dates_are_days_since_1970():
    table = pd.DataFrame(
        {"day": pd.to_datetime(["1970-01-02 00:00", None, "1970-01-03 12:00"]), "a": ["x", "y", "x"]}
    )
    for one in map(Table.of, (table, pl.from_pandas(table))):
        levels = learn_levels(one)
        np.testing.assert_array_equal(levels.numbers(one), [[1, 0], [np.nan, 1], [2.5, 0]])


def test_linear_estimators_refuse_text_and_name_the_way_out():
    with pytest.raises(
        InvalidInputError, match=r"'work' holds text such as .*OneHotEncoder.*BudgetedClassifier"
    ):
        DynaModLinClassifier().fit(X.drop(columns="since"), RICH)


@pytest.fixture
def files(tmp_path):
    """A table of text and dates in a file, further rows as read from one, and a full model over text."""
    table = X.drop(columns=["owns"]).astype({"sex": object})
    train = read_table(table[:FEW].assign(pay=RICH[:FEW]), tmp_path / "train.csv")
    full = over_text(LogisticRegression()).fit(train.drop(columns=["pay", "since"]), train["pay"])
    return tmp_path, train, read_table(table[NEW], tmp_path / "new.csv"), full


def read_table(table, file):
    """A table as it comes back from a file."""
    table.to_csv(file, index=False)
    return pd.read_csv(file)


def fit_by_command(folder, *options):
    """What `thrifty fit` makes of the training table."""
    wish = ["--target", "pay", "--budget", "2", "--seed", "0", "--jobs", "1", *options]
    assert main(["fit", str(folder / "train.csv"), *wish, "-o", str(folder / "fitted.thrifty")]) == 0
    return load(folder / "fitted.thrifty")


def assert_answers_alike(system, table, model, same):
    said = answers_of(system.chain_, system.chain_.schema.cells(table))
    np.testing.assert_array_equal(said["answer"], model.predict(same))
    np.testing.assert_array_equal(said["cost"], model.cost(same))
    np.testing.assert_array_equal(said["probability"], model.predict_proba(same).max(axis=1))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
def test_a_full_model_of_text_answers_alike_in_python_in_files_in_purchases_and_in_commands(
    small_fits, files
):
    folder, train, new, full = files
    X_train, new = train.drop(columns=["pay", "since"]), new.drop(columns="since")
    model = BudgetedClassifier(FrozenEstimator(full), budget=2, random_state=0).fit(X_train, train["pay"])
    said = model.predict(new)
    assert (model.route(new) == model.n_stages_).any()
    thrifty.save(model, folder / "saved.thrifty", full="outside")
    loaded = thrifty.load(folder / "saved.thrifty", full=full)
    np.testing.assert_array_equal(loaded.predict_proba(new), model.predict_proba(new))
    shops = {name: new[name].to_numpy() for name in new.columns}
    bought = model.buy(
        {name: (lambda rows, one=one: one[rows]) for name, one in shops.items()}, n_rows=len(new)
    ).answer
    np.testing.assert_array_equal(bought, said)
    for row in range(5):
        session = loaded.start(row)
        while (wanted := session.next_purchase) is not None:
            session.give({name: new[name][row] for name in wanted.columns})
        assert session.answer == said[row]
    assert_answers_alike(loaded, new, model, new)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
def test_commands_read_text_as_sets_and_dates_as_days_as_python_does(small_fits, files, capsys, monkeypatch):
    boosting = partial(HistGradientBoostingClassifier, random_state=0)
    monkeypatch.setattr("thrifty.learners.estimators.base.TreesClassifier", boosting)
    folder, train, new, _ = files
    system = fit_by_command(folder, "--full", "boosting", "--budget", "2")
    assert "dates are read as days since 1970-01-01: 'since'" in "".join(capsys.readouterr())
    assert any(stage_sets(stage) for stage in system.chain_.stages)
    X_train, same = (table.assign(since=pd.to_datetime(table["since"])) for table in (train, new))
    fitted = BudgetedClassifier(budget=2, random_state=0).fit(X_train.drop(columns="pay"), train["pay"])
    assert_answers_alike(system, new, fitted, same)
    # The file of a system that was fitted on dates knows which text is dates.
    thrifty.save(fitted, folder / "saved.thrifty")
    assert_answers_alike(load(folder / "saved.thrifty"), new, fitted, same)


@pytest.mark.slow
@pytest.mark.parametrize("full", [None, over_text(LogisticRegression())], ids=["default", "over text"])
def test_sweeps_read_tables_of_text_and_serve_what_was_fitted_by_itself(full):
    recipe = estimator_of(DynaModGbrtClassifier, full, gamma=0.01, **SMALL)
    found = thrifty.sweep(recipe, {"gamma": [0.01]}, X[:FEW], RICH[:FEW], X[FEW:N], RICH[FEW:N], n_jobs=1)
    swept = found.estimator(found.frontier[len(found.frontier) - 1])
    alone = recipe.fit(X[:FEW], RICH[:FEW]).at(threshold=found.frontier.threshold[-1])
    np.testing.assert_array_equal(swept.predict_proba(X[NEW]), alone.predict_proba(X[NEW]))
    assert found.on(X[NEW], RICH[NEW]).n_rows == len(X) - N


def test_a_chain_behind_stages_shares_their_levels():
    inner = GreedyMiserClassifier(n_trees=5).fit(X[:N], RICH[:N])
    fewer = (X["work"] != "work 3").to_numpy() & (np.arange(len(X)) < N)
    with pytest.raises(InvalidInputError, match="both must have the same levels"):
        GreedyMiserClassifier(n_trees=5).fit(X[fewer], RICH[fewer]).with_full(inner)
    outer = estimator_of(DynaModGbrtClassifier, FrozenEstimator(inner), **SMALL).fit(X[fewer], RICH[fewer])
    assert outer.chain_.levels == inner.chain_.levels
    everything = outer.at(threshold=-np.inf)
    np.testing.assert_array_equal(everything.predict(X[NEW]), inner.predict(X[NEW]))
