"""A router for people who only logged which of two models was right."""

import numpy as np
import pandas as pd
import pytest

import thrifty
from thrifty import ConfidenceRouter, Prices, certify
from thrifty.errors import InvalidInputError
from thrifty.routing.logged import evidence_of_answers


def log(seed, n_rows=2000):
    """The weak model is right where x0 is negative, the strong one nearly everywhere; x1 says nothing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    weak = rng.random(n_rows) < np.where(X[:, 0] < 0, 0.97, 0.3)
    strong = rng.random(n_rows) < 0.95
    return X, weak, strong


@pytest.fixture(scope="module")
def router():
    return ConfidenceRouter.from_answers(*log(0), prices=Prices(0.0, full=10.0), budget=5.0, random_state=0)


def test_half_the_price_keeps_nearly_all_of_the_stronger_models_answers(router):
    X, weak, strong = log(1)
    asked = router.predict(X) == "strong"
    right = np.where(asked, strong, weak)
    assert abs(router.cost(X).mean() - 5.0) < 0.4
    np.testing.assert_array_equal(router.cost(X), 10.0 * asked)
    assert right.mean() > strong.mean() - 0.02
    chance = asked.mean() * strong.mean() + (1 - asked.mean()) * weak.mean()
    assert right.mean() > chance + 0.1


def test_what_the_router_expects_is_what_new_rows_get(router):
    X, weak, strong = log(2, 4000)
    at = router.at(budget=3.0)
    right = np.where(at.predict(X) == "strong", strong, weak)
    assert right.mean() == pytest.approx(at.expected_score_, abs=0.03)


def test_without_a_budget_rows_go_where_the_stronger_model_gains():
    X, weak, strong = log(3)
    router = ConfidenceRouter.from_answers(X, weak, strong, random_state=0)
    asked = router.predict(X) == "strong"
    assert asked[X[:, 0] > 0.2].mean() > 0.95 > 0.5 > asked[X[:, 0] < -0.2].mean()


def test_a_loss_is_proved_on_new_rows_of_the_log_and_rows_of_the_fit_prove_nothing(router):
    certificate = certify(router.frontier_.on([evidence_of_answers(router, *log(4))]), max_loss=0.1)
    assert not certificate.is_fallback
    assert certificate.point.cost < 8.0
    with pytest.raises(InvalidInputError, match="the fit"):
        certify(router.frontier_.on([evidence_of_answers(router, *log(0))]), max_loss=0.1)


def test_a_file_routes_as_before_and_moves_to_other_budgets(router, tmp_path):
    X, *_ = log(5, 200)
    thrifty.save(router, tmp_path / "router.thrifty")
    again = thrifty.load(tmp_path / "router.thrifty")
    np.testing.assert_array_equal(again.predict(X), router.predict(X))
    np.testing.assert_array_equal(again.at(budget=2.0).cost(X), router.at(budget=2.0).cost(X))


def test_graded_answers_and_data_frames_are_read():
    X, weak, strong = log(6, 400)
    frame = pd.DataFrame(X, columns=["length", "words", "hour"])
    router = ConfidenceRouter.from_answers(frame, weak * 0.5, strong * 1.0, budget=0.4, random_state=0)
    assert router.cost(frame).mean() == pytest.approx(0.4, abs=0.15)
    assert "length" in str(router.explain(frame[:3])[0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda X, weak, strong: (X, weak[:-1], strong),
            r"weak_right must have one entry .* got shape \(49,\)",
        ),
        (lambda X, weak, strong: (X, weak * 2.0, strong), r"weak_right must .* in \[0, 1\]; got 2.0 in row"),
        (lambda X, weak, strong: (X, weak, np.full(50, np.nan)), "strong_right must .* got nan in row 0"),
        (lambda X, weak, strong: (X, ["yes"] * 50, strong), "weak_right must hold true or false"),
        (lambda X, weak, strong: (X[:0], weak[:0], strong[:0]), "0 sample"),
    ],
)
def test_a_log_that_cannot_be_meant_is_refused(change, words):
    with pytest.raises(InvalidInputError, match=words):
        ConfidenceRouter.from_answers(*change(*log(7, 50)))
