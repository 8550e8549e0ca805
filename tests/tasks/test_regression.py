"""Numbers as answers: losses, calibration, blends, and what is refused."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import d2_absolute_error_score, d2_pinball_score, r2_score

from thrifty.engine.full.adapters import models_of
from thrifty.engine.tasks.regression import (
    PinballLoss,
    SquaredLoss,
    default_regressor,
    linear_weights,
    quantile_of,
    regression_of,
)
from thrifty.errors import InvalidAnswerError, InvalidInputError

RNG = np.random.default_rng(0)
Y = RNG.gamma(2.0, 3.0, size=200) - 4.0
KINDS = ("squared", "absolute")


def pinball_of(quantile):
    return lambda y: PinballLoss(y, quantile)


@pytest.mark.parametrize("loss", [SquaredLoss, PinballLoss, pinball_of(0.9), pinball_of(0.2)])
def test_gradients_are_those_of_the_loss(loss):
    y, scores = Y[:30], RNG.normal(size=(30, 1)) * 5
    step = 1e-6
    numeric = (loss(y).values(scores + step) - loss(y).values(scores - step)) / (2 * step)
    np.testing.assert_allclose(loss(y).derivatives(scores)[0][:, 0], numeric, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [PinballLoss, pinball_of(0.9)])
def test_the_parabola_of_an_error_lies_above_it_and_touches_it(kind):
    y, scores = Y[:40], RNG.normal(size=(40, 1)) * 5
    loss = kind(y)
    gradient, hessian = loss.derivatives(scores)
    for move in (-3.0, -0.1, 0.0, 0.2, 5.0):
        above = loss.values(scores) + gradient[:, 0] * move + hessian[:, 0] * move**2 / 2
        assert np.all(above >= loss.values(scores + move) - 1e-9)


@pytest.mark.parametrize(("loss", "best"), [(SquaredLoss, np.mean), (PinballLoss, np.median)])
def test_the_best_constant_is_the_mean_or_the_median(loss, best):
    weight = np.ones(199)
    np.testing.assert_allclose(loss(Y[:199]).base(weight), best(Y[:199]))
    twice = np.r_[Y[:199], Y[:50]]
    np.testing.assert_allclose(
        loss(Y[:199]).base(np.r_[np.full(50, 2.0), np.ones(149)]), loss(twice).base(np.ones(249))
    )


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_those_of_a_generic_solver(kind):
    scores = np.column_stack([Y + RNG.normal(size=200), RNG.normal(size=200)])
    weight = RNG.uniform(0.5, 2.0, size=200)
    found = linear_weights(scores, Y, weight, kind)

    def total(at):
        error = np.abs(Y - at[0] - scores @ at[1:])
        return weight @ (error**2 if kind == "squared" else error)

    best = minimize(
        total, found + 0.1, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-9, "maxiter": 5000}
    )
    assert total(found) <= best.fun * (1 + 1e-3)


@pytest.mark.parametrize(("kind", "score"), [("squared", r2_score), ("absolute", d2_absolute_error_score)])
def test_quality_is_the_score_that_scikit_learn_tells_of_the_rows_of_the_fit(kind, score):
    task, said = regression_of(Y, kind), Y + RNG.normal(size=200)
    quality = task.quality(task.encode("y", Y, 200), said[:, None])
    np.testing.assert_allclose(quality.mean(), score(Y, said), rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_and_numbers_are_two_ways_to_say_the_same(kind):
    task = regression_of(Y, kind)
    y = task.encode("y", Y, 200)
    np.testing.assert_allclose(task.decode(y), Y)
    np.testing.assert_allclose(task.outputs(task.scores(Y[:, None]))[:, 0], Y)
    np.testing.assert_allclose(task.calibrated(y[:, None], models_of(task).no_calibration)[:, 0], y)
    np.testing.assert_allclose(task.blended(task.full_alone, 0 * y[:, None], y[:, None])[:, 0], y)


@pytest.mark.parametrize("quantile", [0.1, 0.9])
def test_the_pinball_loss_leads_to_the_quantile_whose_score_scikit_learn_tells(quantile):
    task, said = regression_of(Y, "pinball", quantile=quantile), Y + RNG.normal(size=200)
    y, weight = task.encode("y", Y, 200), RNG.uniform(0.5, 2.0, size=200)
    quality = task.quality(y, said[:, None]).mean()
    np.testing.assert_allclose(task.score(y, quality), d2_pinball_score(Y, said, alpha=quantile), rtol=0.01)
    # The unit of a certificate: the best constant loses one of it.
    assert task.loss_unit == "pinball loss in units of that of the best constant"
    assert task.constant_quality(y, np.ones(len(y))) == pytest.approx(0.0, abs=1e-12)
    assert task.constant_quality(y, np.ones(200)) == pytest.approx(0.0, abs=1e-9)
    best = quantile_of(y, weight, quantile)
    losses = [weight @ task.loss(y).values(np.full((200, 1), at)) for at in (best - 0.05, best, best + 0.05)]
    assert losses[1] == min(losses)
    found = linear_weights(RNG.normal(size=(200, 1)), y, weight, "pinball", quantile)
    assert found[0] == pytest.approx(best, abs=0.15)
    # Away from the belief both sides cost, and far away the dearer one by the odds of the quantile.
    away = np.array([[-1e4], [-1e-3], [0.0], [1e-3], [1e4]])
    regret = task.expected_loss(away, np.zeros((5, 1)))
    assert regret[0] / regret[4] == pytest.approx(quantile / (1 - quantile), rel=1e-3)
    assert regret[1] == pytest.approx(regret[3], rel=0.05)


def test_the_pinball_loss_of_the_median_is_the_absolute_error():
    tasks = regression_of(Y, "pinball", quantile=0.5), regression_of(Y, "absolute")
    assert tasks[0].spread == pytest.approx(tasks[1].spread)
    y, scores = tasks[1].encode("y", Y, 200), RNG.normal(size=(200, 1))
    one, other = (task.loss(y) for task in tasks)
    np.testing.assert_allclose(one.values(scores), other.values(scores))
    np.testing.assert_allclose(one.derivatives(scores), other.derivatives(scores))
    np.testing.assert_allclose(*(task.expected_loss(scores, -scores) for task in tasks))


def test_a_useless_score_is_calibrated_to_the_best_constant():
    task = regression_of(Y, "squared")
    y = task.encode("y", Y, 200)
    slope, intercept = task.calibrate(-y[:, None], y, np.ones(200))
    assert slope == 0.0
    np.testing.assert_allclose(intercept, y.mean())


@pytest.mark.parametrize(
    ("y", "says"),
    [
        (np.full(20, 3.0), "y must vary"),
        ([1.0, np.nan, 2.0], "nan in row 1"),
        ([1.0, 2.0, np.inf], "inf in row 2"),
        (["a", "b"], "must hold numbers"),
        (np.ones((3, 2)), "one number per row"),
    ],
)
def test_targets_that_are_no_numbers_are_refused(y, says):
    with pytest.raises(InvalidInputError, match=says):
        regression_of(y, "squared")


def test_other_models_must_predict_numbers():
    task, X = regression_of(Y, "squared"), RNG.normal(size=(200, 2))
    models_of(task).check_fitted(Ridge().fit(X, Y), "full")
    with pytest.raises(InvalidInputError, match="answers with classes"):
        models_of(task).check_fitted(LogisticRegression().fit(X, Y > 0), "full")
    with pytest.raises(InvalidInputError, match="must be a regressor"):
        models_of(task).check_unfitted(LogisticRegression(), "full")
    with pytest.raises(InvalidAnswerError, match="finite numbers; got nan in row 1"):
        models_of(task).read_outputs([1.0, np.nan, 2.0], 3, "the full model")
    with pytest.raises(InvalidAnswerError, match=r"one number per row, shape \(3,\); got shape \(3, 2\)"):
        models_of(task).read_outputs(np.ones((3, 2)), 3, "the full model")


def test_whoever_has_no_model_gets_one_of_the_same_quantile():
    model = default_regressor("pinball", 0, 0.9)
    assert (model.loss, model.quantile) == ("quantile", 0.9)
