"""What was proved stays about what it was proved for; columns are read in the order in which they were named."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from thrifty import BudgetedClassifier, ConfidenceRouter, Prices, StageOptions, evidence_of, hold_budget
from thrifty.errors import InvalidInputError, NothingSavedWarning

SMALL = {"stages": StageOptions(sizes=[(6, 2)]), "cv": 2, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    X = np.random.default_rng(0).normal(size=(500, 5)) * [1, 10, 100, 1, 1]
    return X, (X[:, 0] + X[:, 3] * X[:, 4] > 0).astype(int)


@pytest.fixture(scope="module")
def cascade(rows):
    X, y = rows
    return BudgetedClassifier(LogisticRegression(), **SMALL).fit(X[:300], y[:300])


@pytest.fixture(scope="module")
def certified(cascade, rows):
    X, y = rows
    return cascade.certified(X[300:], y[300:], max_loss=0.2)


def test_a_full_model_reads_its_columns_in_the_order_in_which_they_were_named(rows):
    X, y = rows
    order = [4, 0, 3]
    model = LogisticRegression().fit(X[:250, order], y[:250])
    router = ConfidenceRouter(
        FrozenEstimator(model),
        LogisticRegression(),
        features=[1],
        prices=Prices(full_features=order),
        random_state=0,
    ).fit(X[250:], y[250:])
    asked = router.at(threshold=-np.inf)
    np.testing.assert_array_equal(asked.predict(X[:50]), model.predict(X[:50, order]))
    with pytest.raises(InvalidInputError, match="each column once"):
        router.set_params(prices=Prices(full_features=[0, 0, 3])).fit(X[250:], y[250:])


@pytest.mark.slow
def test_another_full_model_ends_what_was_proved_against_the_old_one(certified):
    assert certified.certificate_ is not None
    other = certified.with_full(lambda table: np.full(len(table), 0.5))
    assert other.certificate_ is None
    with pytest.raises(InvalidInputError, match="full model"):
        other.at(max_loss=0.2)


def test_a_batch_that_holds_a_budget_is_not_what_was_proved(certified, rows):
    assert hold_budget(certified, rows[0][:50], 2.0).certificate_ is None


def test_every_row_to_the_full_model_goes_past_a_chain_in_its_place(cascade, rows):
    X, y = rows
    outer = ConfidenceRouter(
        FrozenEstimator(cascade.at(budget=1.5)), LogisticRegression(), features=[1], random_state=0
    ).fit(X[:300], y[:300])
    with pytest.warns(NothingSavedWarning):
        proved = outer.certified(X[300:], y[300:], max_loss=0.016)
    assert proved.certificate_.is_fallback
    full = cascade.chain_.innermost
    np.testing.assert_array_equal(proved.predict(X[300:]), full.outputs(X[300:], X[300:]).argmax(axis=1))
    np.testing.assert_array_equal(proved.route(X), np.full(len(X), proved.chain_.n_stages))


def test_where_every_row_goes_to_the_full_model_evidence_and_held_budgets_see_every_point_that_was_learned(
    cascade, rows
):
    X, y = rows
    with pytest.warns(NothingSavedWarning):
        everything = cascade.at(max_loss=1e-6)
    np.testing.assert_array_equal(
        evidence_of(everything, X[:99], y[:99]).quality, evidence_of(cascade, X[:99], y[:99]).quality
    )
    assert hold_budget(everything, X[:99], 2.0).cost(X[:99]).mean() <= 2.0


def test_numbers_of_an_estimator_that_is_not_fitted_are_refused_as_scikit_learn_does():
    with pytest.raises(NotFittedError):
        _ = BudgetedClassifier().expected_cost_
    with pytest.raises(NotFittedError):
        _ = ConfidenceRouter().threshold_
