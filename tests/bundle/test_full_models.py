import subprocess
import sys
import warnings
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest
import skops.io
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer  # noqa: F401 - also used by the other process
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.tree._tree import Tree

from thrifty import Chain, ConfidenceRouter, DynaModLinClassifier, Policy
from thrifty.bundle import from_bytes, to_bytes
from thrifty.bundle.full_models import content_digest, probe_table
from thrifty.chain.stage import LinearStage
from thrifty.errors import InvalidInputError
from thrifty.full.model import AbsentFull, CallableFull, EstimatorFull, PrecomputedFull, as_full_model
from thrifty.full.trees import TreeClassifier
from thrifty.prices.billing import PriceList
from thrifty.tasks.classes import BinaryTask

TREE = "sklearn.tree._tree.Tree"
TASK = BinaryTask(np.arange(2))


def in_front_of(full, task=TASK):
    """A chain that sends every row to the full model."""
    stage = LinearStage(np.array([0]), np.zeros((1, 2)), np.zeros(2))
    prices = PriceList(np.ones(12), np.arange(12))
    return Chain((stage,), full, prices, task, Policy.of(np.array([-np.inf])))


def asking(model):
    """A chain that sends every row to a fitted classifier, as the library would wrap it."""
    return in_front_of(as_full_model(model, TASK, 12))


@pytest.fixture(scope="module")
def models(rows):
    found = {
        "forest": RandomForestClassifier(5, random_state=0),
        "extra": ExtraTreesClassifier(5, random_state=0, criterion="log_loss"),
        "tree": DecisionTreeClassifier(max_depth=3),
        "svm": make_pipeline(StandardScaler(), SVC()),
        "histogram": HistGradientBoostingClassifier(max_iter=5, random_state=0, early_stopping=True),
        "logistic": LogisticRegression(),
        "scaled": make_pipeline(StandardScaler(), RandomForestClassifier(3, random_state=0)),
    }
    return {name: model.fit(*rows) for name, model in found.items()}


@pytest.mark.parametrize("name", ["forest", "extra", "tree", "svm", "histogram", "logistic", "scaled"])
def test_a_plain_model_of_scikit_learn_goes_inside_and_needs_no_trust(name, models, rows):
    chain = asking(models[name])
    after = from_bytes(to_bytes(chain))
    np.testing.assert_array_equal(after.predict_proba(rows[0]), chain.predict_proba(rows[0]), strict=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [GradientBoostingClassifier(n_estimators=2), BaggingClassifier(DecisionTreeClassifier())]
)
def test_trees_in_a_model_that_was_not_reviewed_must_be_trusted_by_name(model, rows):
    chain = asking(model.fit(*rows))
    data = to_bytes(chain)
    with pytest.raises(InvalidInputError, match=rf"not trusted by themselves: {TREE}.*trusted=\['{TREE}'\]"):
        from_bytes(data)
    after = from_bytes(data, trusted=[TREE])
    np.testing.assert_array_equal(after.predict_proba(rows[0]), chain.predict_proba(rows[0]))


@pytest.mark.parametrize(("package", "kind"), [("xgboost", "XGBClassifier"), ("lightgbm", "LGBMClassifier")])
def test_a_booster_goes_inside_and_is_named_when_it_is_not_trusted(package, kind, rows):
    settings = {"n_estimators": 3, "n_jobs": 1, **({"verbose": -1} if package == "lightgbm" else {})}
    model = getattr(pytest.importorskip(package), kind)(**settings).fit(*rows)
    data = to_bytes(asking(model))
    with pytest.raises(InvalidInputError, match=f"{package}.sklearn.{kind}"):
        from_bytes(data)
    types = [f"{package}.sklearn.{kind}", f"{package}.{'core' if package == 'xgboost' else 'basic'}.Booster"]
    after = from_bytes(data, trusted=[*types, "collections.OrderedDict"])
    np.testing.assert_array_equal(after.full.estimator.predict_proba(rows[0]), model.predict_proba(rows[0]))


def test_types_may_be_trusted_by_name_or_as_themselves(rows):
    data = to_bytes(asking(GradientBoostingClassifier(n_estimators=2).fit(*rows)))
    for trusted in (TREE, [TREE], Tree, (Tree,)):
        assert isinstance(from_bytes(data, trusted=trusted).full.estimator, GradientBoostingClassifier)
    with pytest.raises(InvalidInputError, match="trusted must hold names of types"):
        from_bytes(data, trusted=[7])


def test_the_callers_own_model_takes_the_place_of_the_one_inside_which_is_then_not_even_read(models):
    chain = asking(models["forest"])
    other = models["logistic"]
    after = from_bytes(to_bytes(chain), full=other)
    assert after.full.estimator is other


def test_calibration_is_kept_with_the_model_inside_and_by_reference(fitted, rows):
    before = fitted["confidence"]
    assert before.chain_.full.calibration[0] != 1.0
    for full, given in (("inside", None), ("reference", before.chain_.full.estimator)):
        after = from_bytes(to_bytes(before, full=full), full=given)
        np.testing.assert_array_equal(
            after.predict_proba(rows[0]), before.predict_proba(rows[0]), strict=True
        )


def test_without_a_full_model_there_is_nobody_to_ask_until_one_is_given(fitted, rows):
    before = fitted["boosted"]
    data = to_bytes(before, full="absent")
    after = from_bytes(data)
    assert isinstance(after.chain_.full, AbsentFull)
    np.testing.assert_array_equal(after.cost(rows[0]), before.cost(rows[0]))
    with pytest.raises(InvalidInputError, match="there is none"):
        after.predict(rows[0])
    again = from_bytes(data, full=before.chain_.full)
    np.testing.assert_array_equal(again.predict_proba(rows[0]), before.predict_proba(rows[0]), strict=True)
    probabilities = before.chain_.full.outputs(rows[0], rows[0])
    again = from_bytes(data).with_full(probabilities, rows[0])
    np.testing.assert_array_equal(again.predict_proba(rows[0]), before.predict_proba(rows[0]), strict=True)


def test_a_chain_given_as_the_full_model_becomes_part_of_the_chain(fitted, rows):
    front, tail = fitted["linear"], fitted["uniform"]
    data = to_bytes(front, full="absent")
    assert from_bytes(data).chain_.n_stages == 1
    with pytest.raises(InvalidInputError, match="One route has one price list"):
        from_bytes(data, full=tail)
    tail = replace(tail.chain_, price_list=front.chain_.price_list)
    joined = from_bytes(data, full=tail)
    assert joined.chain_.behind is tail
    assert joined.chain_.n_stages == 2
    assert set(joined.route(rows[0])) == {0, 1, 2}
    np.testing.assert_array_equal(joined.predict_proba(rows[0]), front.with_full(tail).predict_proba(rows[0]))


def test_a_reference_needs_the_very_model_it_was_saved_with(fitted, rows):
    before = fitted["boosted"]
    f0 = before.chain_.full.estimator
    data = to_bytes(before, full="reference")
    assert len(data) < len(to_bytes(before))
    after = from_bytes(data, full=FrozenEstimator(f0))
    np.testing.assert_array_equal(after.predict_proba(rows[0]), before.predict_proba(rows[0]), strict=True)
    with pytest.raises(InvalidInputError, match="refers to its full model, Pipeline, and does not hold it"):
        from_bytes(data)
    flipped = rows[1].copy()
    flipped[:1] = 1 - flipped[:1]
    other = make_pipeline(StandardScaler(), SVC()).fit(rows[0], flipped)
    for wrong in (
        other,
        LogisticRegression().fit(*rows),
        lambda X: np.full(len(X), 0.5),
        fitted["uniform"].chain_,
    ):
        with pytest.raises(InvalidInputError, match="refers to another full model, Pipeline"):
            from_bytes(data, full=wrong)
    with pytest.raises(InvalidInputError, match="probabilities belong to rows"):
        from_bytes(data, full=np.full(4, 0.5))
    with pytest.raises(InvalidInputError, match="fitted on 3 features"):
        from_bytes(data, full=LogisticRegression().fit(rows[0][:, :3], rows[1]))


def test_a_function_goes_by_reference_only_and_is_known_by_its_answers(rows):
    def sigmoid(X):
        return 1.0 / (1.0 + np.exp(-np.clip(X[:, 0], -30, 30)))

    chain = in_front_of(CallableFull(sigmoid, TASK))
    with pytest.raises(InvalidInputError, match="sigmoid is code, and a bundle holds only data"):
        to_bytes(chain)
    data = to_bytes(chain, full="reference")
    after = from_bytes(data, full=lambda X: np.abs(sigmoid(X) - 1e-9))
    np.testing.assert_allclose(after.predict_proba(rows[0]), chain.predict_proba(rows[0]), atol=1e-8)
    with pytest.raises(InvalidInputError, match="their answers differ"):
        from_bytes(data, full=lambda X: sigmoid(X[:, 1:]))

    def broken(X):
        raise ConnectionError("no line")

    with pytest.raises(InvalidInputError, match="ConnectionError: no line.*Save with full='absent'"):
        to_bytes(in_front_of(CallableFull(broken, TASK)), full="reference")


def test_an_estimator_that_skops_cannot_write_is_known_by_its_answers_too(rows):
    model = make_pipeline(StandardScaler(), Odd(), LogisticRegression()).fit(*rows)
    chain = asking(model)
    with pytest.raises(InvalidInputError, match="skops cannot write the Pipeline"):
        to_bytes(chain)
    after = from_bytes(to_bytes(chain, full="reference"), full=model)
    np.testing.assert_array_equal(after.predict_proba(rows[0]), chain.predict_proba(rows[0]), strict=True)


class Odd(FunctionTransformer):
    def __getstate__(self):
        raise TypeError("holds a connection")


def test_precomputed_probabilities_go_by_reference_too(rows):
    values = np.linspace(0.1, 0.9, len(rows[0]))
    chain = in_front_of(as_full_model(values, TASK, 12, numbers=rows[0]))
    data = to_bytes(chain, full="reference")
    for given in (values, chain.full):
        after = from_bytes(data, full=given)
        np.testing.assert_array_equal(after.predict_proba(rows[0][::-3]), chain.predict_proba(rows[0][::-3]))
    with pytest.raises(InvalidInputError, match="their values differ"):
        from_bytes(data, full=values[::-1])
    with pytest.raises(InvalidInputError, match=f"probabilities of {len(values)} rows; full holds 4"):
        from_bytes(data, full=values[:4])
    by_place = to_bytes(in_front_of(PrecomputedFull(chain.full.values)), full="reference")
    np.testing.assert_array_equal(from_bytes(by_place, full=values).full.values, chain.full.values)


def test_probabilities_inside_are_still_known_by_their_rows(rows):
    values = np.linspace(0.1, 0.9, len(rows[0]))
    before = DynaModLinClassifier(values, gamma=0.05, random_state=0).fit(*rows).at(threshold=-np.inf)
    after = from_bytes(to_bytes(before))
    some = rows[0][5:60:7]
    np.testing.assert_array_equal(after.predict_proba(some), before.predict_proba(some), strict=True)
    with pytest.raises(InvalidInputError, match="are not those they belong to"):
        after.predict_proba(some + 1.0)


IN_ANOTHER_PROCESS = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("theirs", sys.argv[1])
theirs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(theirs)
X, y = theirs.load_breast_cancer(return_X_y=True)
rows = theirs.StandardScaler().fit_transform(X[::2, :12]), y[::2]
for model in theirs.recognised(rows).values():
    print(theirs.content_digest(model.set_params(n_jobs=2) if "Forest" in str(model) else model))
"""


def recognised(rows):
    found = {
        "forest": RandomForestClassifier(5, random_state=0),
        "boosting": GradientBoostingClassifier(n_estimators=3, random_state=0),
        "histogram": HistGradientBoostingClassifier(max_iter=5, random_state=0),
        "svm": make_pipeline(StandardScaler(), SVC()),
        "logistic": LogisticRegression(),
        "calibrated": CalibratedClassifierCV(SVC(), ensemble=False),
        "perceptron": MLPClassifier((3,), solver="lbfgs", random_state=0),
    }
    quiet = {"lightgbm": ("LGBMClassifier", {"verbose": -1}), "xgboost": ("XGBClassifier", {"verbosity": 0})}
    for package, (kind, setting) in quiet.items():
        if find_spec(package):
            found[package] = getattr(import_module(package), kind)(n_estimators=3, n_jobs=1, **setting)
    return {name: model.fit(*rows) for name, model in found.items()}


@pytest.mark.slow
def test_a_fingerprint_is_the_same_in_another_process_and_after_a_round_trip(rows):
    command = [sys.executable, "-W", "ignore", "-c", IN_ANOTHER_PROCESS, __file__]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        here = recognised(rows)
    for (name, model), digest in zip(here.items(), answer.stdout.split(), strict=True):
        assert content_digest(model) == digest, name
        data = skops.io.dumps(model)
        again = skops.io.loads(data, trusted=skops.io.get_untrusted_types(data=data))
        assert content_digest(again) == digest, name
        model.predict(rows[0])
        assert content_digest(model) == digest, name


def test_made_up_questions_differ_from_column_to_column_and_row_to_row():
    table = probe_table(50)
    assert table.shape == (64, 50)
    assert len(np.unique(table, axis=0)) == 64
    assert np.all(np.std(table, axis=0) > 0)
    np.testing.assert_array_equal(probe_table(3), table[:, :3])


def test_a_function_as_the_cheap_model_of_a_router_is_refused(rows):
    router = ConfidenceRouter(LogisticRegression(), lambda X: np.linspace(0.1, 0.9, len(X)), p_full=0.4).fit(
        *rows
    )
    for full in ("inside", "reference", "absent"):
        with pytest.raises(InvalidInputError, match="a cheap model must be an estimator"):
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
        np.testing.assert_array_equal(after.predict_proba(rows[0]), chain.predict_proba(rows[0]), strict=True)


def test_the_full_model_reads_the_kind_of_table_it_was_fitted_on(fitted, rows):
    before = fitted["frame"]
    after = from_bytes(to_bytes(before))
    assert after.chain_.kind == "pandas"
    assert list(after.chain_.full.estimator.feature_names_in_) == list(before.feature_names_in_)
    assert isinstance(after, DynaModLinClassifier)


def test_trees_are_recognised_before_and_after_a_file_and_an_old_reference_still_finds_them(models, rows):
    for name in ("forest", "tree", "histogram", "scaled"):
        data = to_bytes(asking(models[name]), full="reference")
        loaded = from_bytes(to_bytes(asking(models[name])))
        assert type(loaded.full.estimator) is TreeClassifier
        for reference in (data, to_bytes(loaded, full="reference")):
            for given in (models[name], loaded.full.estimator):
                assert from_bytes(reference, full=given).full.estimator is given
        with pytest.raises(InvalidInputError, match="refers to another full model"):
            from_bytes(data, full=RandomForestClassifier(5, random_state=1).fit(*rows))


def test_a_reference_by_content_that_an_earlier_version_wrote_still_finds_its_forest(models, rows, forge):
    def by_content(manifest):
        full = manifest["chain"]["full"]
        full.update(how="content", digest=content_digest(models["forest"]))

    data = forge.with_fact(to_bytes(asking(models["forest"]), full="reference"), by_content)
    assert from_bytes(data, full=models["forest"]).full.estimator is models["forest"]
    with pytest.raises(InvalidInputError, match="their content differ"):
        from_bytes(data, full=RandomForestClassifier(5, random_state=1).fit(*rows))
