"""Tables as people have them: text, categories, dates, truth values and nullable numbers in the estimators of trees."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import thrifty
from thrifty import (
    BudgetedClassifier,
    BudgetedRegressor,
    DynaModGbrtClassifier,
    DynaModGbrtRegressor,
    DynaModLinClassifier,
    GreedyMiserClassifier,
    GreedyMiserRegressor,
)
from thrifty.chain.levels import learn_levels
from thrifty.cli import main
from thrifty.exceptions import InvalidInputError
from thrifty.tables.storage import load_table_system

N, NEW = 400, slice(400, None)


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


SIZES = {"sizes": [(10, 3)], "stages": 2, "cv": 2, "random_state": 0}
SMALL = {"n_trees": 5, "max_iter": 1, "random_state": 0, "cv": 2}
ESTIMATORS = [
    BudgetedClassifier(over_text(LogisticRegression()), **SIZES),
    BudgetedRegressor(over_text(Ridge()), **SIZES),
    DynaModGbrtClassifier(over_text(LogisticRegression()), gate_reads_score=True, **SMALL),
    DynaModGbrtRegressor(over_text(Ridge()), **SMALL),
    GreedyMiserClassifier(n_trees=5),
    GreedyMiserRegressor(n_trees=5),
]


class Source:
    """Text and dates that are bought."""

    def __init__(self, table):
        self.table = table

    def __len__(self):
        return len(self.table)

    def fetch(self, rows, columns):
        return self.table.iloc[rows, columns]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: type(one).__name__)
def test_raw_tables_are_read_from_every_door_and_come_back_from_files(estimator, tmp_path):
    y = (
        WORTH
        if isinstance(estimator, BudgetedRegressor | DynaModGbrtRegressor | GreedyMiserRegressor)
        else RICH
    )
    model = estimator.fit(X[:N], y[:N])
    assert 1 in model.features_
    assert any(stage_sets(stage) for stage in model.chain_.stages)
    said = model.predict(X[NEW])
    thrifty.save(model, tmp_path / "model.thrifty")
    loaded = thrifty.load(tmp_path / "model.thrifty")
    for again in (
        loaded.predict(X[NEW]),
        model.chain_.predict(X[NEW][X.columns[::-1]]),
        model.predict_from(Source(X[NEW])),
        np.concatenate([model.predict(X[row : row + 1]) for row in range(N, N + 5)]),
    ):
        np.testing.assert_array_equal(again, said[: len(again)])
    unseen = X[NEW].assign(work="never seen")
    np.testing.assert_array_equal(
        model.route(unseen), model.route(unseen.assign(work=np.array([None] * len(unseen))))
    )


def stage_sets(stage):
    trees = [getattr(stage, name, None) for name in ("trees", "cheap", "gate")]
    return any(getattr(one, "sets", None) is not None for one in trees)


def test_polars_and_pandas_tables_give_the_same_answers_with_the_default_full_model():
    answers = []
    for table in (X, pl.from_pandas(X), X.astype({"work": "category"})):
        model = DynaModGbrtClassifier(**SMALL).fit(table[:N], RICH[:N])
        assert model.chain_.full.reads_numbers
        answers.append(model.predict_proba(table[N:]))
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_array_equal(answers[0], answers[2])


def test_dates_are_days_since_1970():
    table = pd.DataFrame(
        {"day": pd.to_datetime(["1970-01-02 00:00", None, "1970-01-03 12:00"]), "a": ["x", "y", "x"]}
    )
    for one in (table, pl.from_pandas(table)):
        levels = learn_levels(one)
        np.testing.assert_array_equal(levels.numbers(one), [[1, 0], [np.nan, 1], [2.5, 0]])


def test_linear_estimators_refuse_text_and_name_the_way_out():
    with pytest.raises(
        InvalidInputError, match=r"'work' holds text such as .*OneHotEncoder.*BudgetedClassifier"
    ):
        DynaModLinClassifier().fit(X.drop(columns="since"), RICH)


@pytest.mark.filterwarnings("ignore::thrifty.exceptions.FullModelNotWorthItWarning")
def test_commands_and_python_answer_a_table_of_text_alike(small_fits, tmp_path):
    table = X.drop(columns=["since", "owns"]).astype({"sex": object})
    table[:N].assign(pay=RICH[:N]).to_csv(tmp_path / "train.csv", index=False)
    out, new = tmp_path / "fitted.thrifty", read_table(table[NEW], tmp_path)
    wish = ["--target", "pay", "--full", "boosting", "--budget", "2", "--seed", "0", "--jobs", "1"]
    assert main(["fit", str(tmp_path / "train.csv"), *wish, "-o", str(out)]) == 0
    fitted = BudgetedClassifier(budget=2, random_state=0).fit(table[:N], RICH[:N])
    thrifty.save(fitted, tmp_path / "saved.thrifty")
    for file in (out, tmp_path / "saved.thrifty"):
        system = load_table_system(file)
        said = system.answers(system.read(new))
        np.testing.assert_array_equal(said["answer"], fitted.predict(table[NEW]))
        np.testing.assert_array_equal(said["cost"], fitted.cost(table[NEW]))
        np.testing.assert_array_equal(said["probability"], fitted.predict_proba(table[NEW]).max(axis=1))


def read_table(table, folder):
    """A table as it comes back from a file."""
    table.to_csv(folder / "new.csv", index=False)
    return pd.read_csv(folder / "new.csv")


def test_a_chain_behind_stages_shares_their_levels():
    inner = GreedyMiserClassifier(n_trees=5).fit(X[:N], RICH[:N])
    fewer = (X["work"] != "work 3").to_numpy() & (np.arange(len(X)) < N)
    with pytest.raises(InvalidInputError, match="both must have the same levels"):
        GreedyMiserClassifier(n_trees=5).fit(X[fewer], RICH[fewer]).with_full(inner)
    outer = DynaModGbrtClassifier(FrozenEstimator(inner), **SMALL).fit(X[fewer], RICH[fewer])
    assert outer.chain_.levels == inner.chain_.levels
    everything = outer.at(threshold=-np.inf)
    np.testing.assert_array_equal(everything.predict(X[NEW]), inner.predict(X[NEW]))
