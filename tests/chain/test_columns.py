"""Columns are known by their names, where they have some; what names cannot settle is refused or mentioned."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from thrifty import ConfidenceRouter, evidence_of, hold_budget, point_of
from thrifty.errors import InvalidInputError

NAMES = ["age", "dose", "rate", "size"]
X = np.random.default_rng(0).normal(size=(150, 4)).round(3) * [1, 10, 1, 5]
LABELS = np.where(X[:, 0] + X[:, 1] / 10 - X[:, 2] > 0, "yes", "no")
FRAME = pd.DataFrame(X, columns=NAMES)


class Cohort(pd.DataFrame):
    """A data frame of somebody's own."""

    @property
    def _constructor(self):
        return Cohort


KINDS = {
    "pandas": pd.DataFrame,
    "a class made from it": Cohort,
    "polars": lambda frame: pl.DataFrame(frame.to_dict("list")),
    "arrow": pa.Table.from_pandas,
}


def router(full=None):
    return ConfidenceRouter(full or LogisticRegression(), features=[0], cv=2, random_state=0)


@pytest.fixture(scope="module")
def fitted():
    return {"named": router().fit(FRAME, LABELS), "nameless": router().fit(X, LABELS)}


# An arrow table reaches the full model as an array, as everything does that thrifty has no name for.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:X does not have valid feature names, but LogisticRegression")
@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_every_kind_with_columns_in_another_order_are_read_by_name(fitted, kind):
    clf, turned = fitted["named"], KINDS[kind](FRAME[NAMES[::-1]])
    for door in (
        lambda table: point_of(clf, table, LABELS).quality,
        lambda table: evidence_of(clf, table, LABELS).quality,
        lambda table: hold_budget(clf, table, 2.0).threshold_,
        lambda table: clf.chain_.predict_proba(table),
    ):
        np.testing.assert_array_equal(door(turned), door(FRAME))
    with pytest.raises(InvalidInputError, match="must be in the same order as they were in fit"):
        clf.predict(turned)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (FRAME.rename(columns={"rate": "speed"}), "it lacks 'rate'; it has, unknown to the fit, 'speed'"),
        (FRAME.drop(columns="rate"), "it lacks 'rate'. "),
        (FRAME.assign(extra=1.0), "it has, unknown to the fit, 'extra'. "),
        (FRAME[[*NAMES, "rate"]], "more than once 'rate'|unique column names.*\n.*rate"),
        (FRAME.set_axis(["age", 1, "rate", "size"], axis=1), "all input features have string names"),
    ],
)
def test_columns_that_names_cannot_settle_are_refused_by_name(fitted, table, says):
    for door in (point_of, evidence_of):
        with pytest.raises(InvalidInputError, match=says):
            door(fitted["named"], table, LABELS)


def test_names_on_one_side_alone_are_mentioned_as_scikit_learn_does(fitted):
    with pytest.warns(UserWarning, match="X does not have valid feature names, but .* was fitted with"):
        point_of(fitted["named"], X, LABELS)
    with pytest.warns(UserWarning, match="X has feature names, but .* was fitted without"):
        point_of(fitted["nameless"], FRAME, LABELS)
    with pytest.warns(UserWarning, match="feature names") as seen:
        fitted["named"].certified(X + 0.01, LABELS, max_loss=0.5)
    told = [str(one.message) for one in seen if "LogisticRegression" not in str(one.message)]
    assert len(told) == 1, "one call, one remark, besides those of the full model"


def test_a_chain_in_the_place_of_the_full_model_must_know_the_same_columns(fitted):
    turned = router().fit(FRAME[NAMES[::-1]], LABELS)
    for inner in (turned.chain_, FrozenEstimator(turned)):
        with pytest.raises(InvalidInputError, match="in another order: 'size' where X has 'age'"):
            router(inner).fit(FRAME, LABELS)
        with pytest.raises(InvalidInputError, match="in another order: 'size' where X has 'age'"):
            fitted["named"].with_full(inner)


def test_a_system_that_was_fitted_on_polars_answers_a_file_without_a_remark(answers_to):
    # Warnings are errors here: the full model knows the names of its columns and is given them.
    clf = router().fit(pl.DataFrame(X, schema=NAMES), LABELS)
    np.testing.assert_array_equal(answers_to(clf, FRAME[NAMES[::-1]])["answer"], clf.chain_.predict(FRAME))


class Laboratory:
    def __init__(self, table, columns=None):
        self.table = table
        if columns is not None:
            self.columns = columns

    def __len__(self):
        return len(self.table)

    def fetch(self, rows, columns):
        return self.table.iloc[rows, columns].to_numpy()


def test_a_source_that_names_its_columns_is_asked_by_its_own_numbers(fitted):
    turned, expected = FRAME[NAMES[::-1]], fitted["named"].predict(FRAME)
    for source in (Laboratory(turned, NAMES[::-1]), Laboratory(FRAME, NAMES), Laboratory(FRAME)):
        np.testing.assert_array_equal(fitted["named"].buy(source, on_failure="raise").answer, expected)
    np.testing.assert_array_equal(
        fitted["named"].buy(Laboratory(turned, turned.columns), on_failure="raise").answer, expected
    )
    with pytest.raises(InvalidInputError, match="the source must have the columns of the fit.*lacks 'rate'"):
        fitted["named"].buy(Laboratory(FRAME, ["age", "dose", "speed", "size"]))
