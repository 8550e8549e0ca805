"""Full models in files: as arrays of ours, or outside and given again."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import thrifty
from thrifty import Chain, ConfidenceRouter, DynaModLinClassifier, Policy, Prices
from thrifty.bundle import from_bytes, to_bytes
from thrifty.engine.full.model import AbsentFull, CallableFull, EstimatorFull, PrecomputedFull, as_full_model
from thrifty.engine.full.stored import StoredModel
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.tasks.classes import BinaryTask
from thrifty.engine.walk.stage import LinearStage
from thrifty.errors import FullModelOutsideWarning, InvalidInputError

TASK = BinaryTask(np.arange(2))


def in_front_of(full, task=TASK, threshold=-np.inf):
    """A chain that sends every row to a full model."""
    stage = LinearStage(np.array([0]), np.ones((1, 2)), np.zeros(2))
    return Chain(
        (stage,), full, PriceList(np.ones(12), np.arange(12)), task, Policy.of(np.array([threshold]))
    )


def asking(model):
    return in_front_of(as_full_model(model, TASK, 12))


def test_what_is_inside_is_arrays_of_ours_whatever_the_model_was(rows):
    for model in (RandomForestClassifier(5), make_pipeline(StandardScaler(), SVC()), LogisticRegression()):
        chain = asking(model.fit(*rows))
        after = from_bytes(to_bytes(chain))
        assert type(after.full.estimator) is StoredModel
        np.testing.assert_allclose(after.predict_proba(rows[0]), chain.predict_proba(rows[0]), rtol=1e-10)


# -- outside ---------------------------------------------------------------------------------------


def test_a_model_without_a_form_stays_outside_and_must_be_given_again(rows, tmp_path):
    model, path = GaussianNB().fit(*rows), tmp_path / "outside.thrifty"
    before = DynaModLinClassifier(FrozenEstimator(model), gamma=0.05, random_state=0).fit(*rows)
    before = before.at(threshold=float(np.median(before.scores(rows[0])[0])))
    with pytest.warns(FullModelOutsideWarning, match="the full model, a GaussianNB, has no form in a file"):
        thrifty.save(before, path)
    after = thrifty.load(path, full=model)
    np.testing.assert_array_equal(after.predict_proba(rows[0]), before.predict_proba(rows[0]))
    # Without it, what needs no full model works.
    alone = thrifty.load(path)
    np.testing.assert_array_equal(alone.route(rows[0]), before.route(rows[0]))
    np.testing.assert_array_equal(alone.cost(rows[0]), before.cost(rows[0]))
    stops = rows[0][before.route(rows[0]) == 0]
    np.testing.assert_array_equal(alone.predict(stops), before.predict(stops))
    with pytest.raises(
        InvalidInputError, match=r"rows are sent to the full model, a GaussianNB, .*load\(path, full=model\)"
    ):
        alone.predict(rows[0])
    np.testing.assert_array_equal(alone.with_full(model).predict(rows[0]), before.predict(rows[0]))
    # A system that was loaded without its full model still names it when it is saved again.
    assert (
        from_bytes(to_bytes(alone), full=model).predict(rows[0]).tolist() == before.predict(rows[0]).tolist()
    )


@pytest.mark.parametrize("full", ["inside", "outside"])
def test_another_model_than_the_one_outside_is_refused_by_name_with_both_answers(full, rows):
    model = KNeighborsClassifier(15).fit(*rows) if full == "inside" else LogisticRegression().fit(*rows)
    if full == "inside":
        with pytest.warns(FullModelOutsideWarning):
            data = to_bytes(asking(model))
    else:
        data = to_bytes(asking(model), full="outside")
    assert from_bytes(data, full=FrozenEstimator(model)).predict(rows[0]).shape == (len(rows[0]),)
    flipped = rows[1].copy()
    flipped[:40] = 1 - flipped[:40]
    name = type(model).__name__
    for wrong in (
        type(model)().fit(rows[0], flipped),
        lambda X: np.full(len(X), 0.5),
        GaussianNB().fit(*rows),
    ):
        told = (
            rf"another full model, a {name}, than the .* given: .* it answered [\d., e-]+\.\.\., and the one"
        )
        with pytest.raises(InvalidInputError, match=told):
            from_bytes(data, full=wrong)
    with pytest.raises(InvalidInputError, match="precomputed probabilities need the rows"):
        from_bytes(data, full=np.full(4, 0.5))
    with pytest.raises(InvalidInputError, match="fitted on 3 features"):
        from_bytes(data, full=LogisticRegression().fit(rows[0][:, :3], rows[1]))


def test_a_function_is_known_by_its_answers(rows):
    def sigmoid(X):
        return 1.0 / (1.0 + np.exp(-np.clip(X[:, 0], -30, 30)))

    chain = in_front_of(CallableFull(sigmoid, TASK))
    with pytest.warns(FullModelOutsideWarning, match="sigmoid"):
        data = to_bytes(chain)
    after = from_bytes(data, full=lambda X: np.abs(sigmoid(X) - 1e-9))  # the last digits of another machine
    np.testing.assert_allclose(after.predict_proba(rows[0]), chain.predict_proba(rows[0]), atol=1e-8)
    with pytest.raises(InvalidInputError, match="another full model"):
        from_bytes(data, full=lambda X: sigmoid(X[:, 1:]))

    def broken(X):
        raise ConnectionError("no line")

    # One that cannot read made-up rows is taken at its word.
    data = to_bytes(in_front_of(CallableFull(broken, TASK)), full="outside")
    assert from_bytes(data, full=sigmoid).predict(rows[0]).shape == (len(rows[0]),)


def test_a_calibration_of_the_fit_comes_back_to_a_model_outside(rows):
    for calibration in (None, np.array([0.5, -1.0])):
        model = make_pipeline(StandardScaler(), SVC()).fit(*rows)
        chain = in_front_of(
            EstimatorFull(model, TASK, np.array([1.0, 0.0]) if calibration is None else calibration)
        )
        after = from_bytes(to_bytes(chain, full="outside"), full=model)
        np.testing.assert_array_equal(after.predict_proba(rows[0]), chain.predict_proba(rows[0]))


def test_a_file_without_its_full_model_takes_any(fitted, rows):
    data = to_bytes(fitted["boosted"], full="absent")
    with pytest.raises(InvalidInputError, match="sent to a full model, and there is none"):
        from_bytes(data).at(threshold=-np.inf).predict(rows[0])
    given = LogisticRegression().fit(*rows)
    after = from_bytes(data, full=given)
    expected = fitted["boosted"].with_full(given)
    np.testing.assert_array_equal(after.predict_proba(rows[0]), expected.predict_proba(rows[0]))


def test_a_model_is_given_to_the_end_of_a_chain_of_chains_and_a_chain_may_be_given(fitted, rows):
    nested = to_bytes(fitted["chain"], full="absent")
    f0 = fitted["chain"].chain_.innermost.estimator
    after = from_bytes(nested, full=f0)
    np.testing.assert_array_equal(after.route(rows[0]), fitted["chain"].route(rows[0]))
    front = in_front_of(AbsentFull(), threshold=0.0)
    tail = fitted["confidence"]
    joined = from_bytes(to_bytes(front), full=in_front_of(tail.chain_.full))
    assert joined.n_stages == 2


def test_probabilities_inside_are_still_known_by_their_rows(rows):
    values = np.linspace(0.1, 0.9, len(rows[0]))
    before = DynaModLinClassifier(values, gamma=0.05, random_state=0).fit(*rows).at(threshold=-np.inf)
    after = from_bytes(to_bytes(before))
    some = rows[0][5:60:7]
    np.testing.assert_array_equal(after.predict_proba(some), before.predict_proba(some), strict=True)
    with pytest.raises(InvalidInputError, match="are not those they belong to"):
        after.predict_proba(some + 1.0)


def test_a_cheap_model_that_has_no_form_is_refused_because_it_serves(rows):
    router = ConfidenceRouter(
        LogisticRegression(), lambda X: np.linspace(0.1, 0.9, len(X)), prices=Prices(0.0, full=1.0)
    )
    with pytest.raises(InvalidInputError, match="a cheap model must be an estimator"):
        to_bytes(router.fit(*rows))
    router = ConfidenceRouter(LogisticRegression(), GaussianNB(), prices=Prices(0.0, full=1.0)).fit(*rows)
    for full in ("inside", "outside", "absent"):
        with pytest.raises(
            InvalidInputError, match="a GaussianNB has no form in a file, and the cheap model"
        ):
            to_bytes(router, full=full)


def test_the_full_model_must_suit_the_columns_and_the_classes(rows):
    labels = BinaryTask(np.array(["no", "yes"]))
    chain = in_front_of(EstimatorFull(LogisticRegression().fit(*rows), labels), labels)
    with pytest.raises(InvalidInputError, match="fitted on the classes"):
        from_bytes(to_bytes(chain))


def test_a_calibration_is_kept_as_it_is_whoever_gave_it(rows):
    for calibration in (None, np.array([1.0, 0.0]), np.array([0.5, -1.0])):
        chain = in_front_of(EstimatorFull(LogisticRegression().fit(*rows), TASK, calibration))
        after = from_bytes(to_bytes(chain))
        np.testing.assert_allclose(after.predict_proba(rows[0]), chain.predict_proba(rows[0]), rtol=1e-12)


def test_the_full_model_reads_the_kind_of_table_it_was_fitted_on(fitted):
    before = fitted["frame"]
    after = from_bytes(to_bytes(before))
    assert after.chain_.kind == "pandas"
    assert list(after.chain_.full.estimator.feature_names_in_) == list(before.feature_names_in_)


def test_precomputed_outputs_without_rows_are_known_by_their_place():
    values = np.array([[0.9, 0.1], [0.25, 0.75]])
    after = from_bytes(to_bytes(in_front_of(PrecomputedFull(values))))
    np.testing.assert_array_equal(after.full.by_place(2), values)
