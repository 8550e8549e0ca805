"""Models in files that skops wrote, or should have written: nothing is unpacked, built or asked unseen."""

import copy
import io
import json
import pickle
import zipfile

import numpy as np
import pytest
import skops.io
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from thrifty import Chain, InvalidInputError, Policy
from thrifty.bundle import from_bytes, to_bytes
from thrifty.bundle.archive import check_archive, dump_model, load_model
from thrifty.bundle.soundness import check_sound, why_not_plain
from thrifty.chain.stage import LinearStage
from thrifty.full.model import AbsentFull, PrecomputedFull
from thrifty.objective.costs import PriceList
from thrifty.tasks.binary import BinaryTask

TASK = BinaryTask(np.arange(2))


def archive_of(members, method=zipfile.ZIP_DEFLATED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return stream.getvalue()


def npy(array, **options):
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


@pytest.mark.parametrize(("members", "match"), [
    ([("../../evil.npy", b"")], "named '../../evil.npy'"),
    ([("/etc/passwd", b"")], "named '/etc/passwd'"),
    ([("model.pkl", pickle.dumps(1))], "named 'model.pkl'"),
    ([("a.npy", npy(np.array([object()], dtype=object), allow_pickle=True))], "not numbers or text"),
    ([("a.npy", npy(np.zeros(3))[:-1])], "over other bytes"),
    ([("a.npy", npy(np.zeros(3)).replace(b"(3,)", b"(9,)"))], "over other bytes"),
    ([("a.npy", b"no array")], "cannot be unpacked"),
    ([("a.bin", bytes(3_000_000))], "would unpack to more"),
    ([("a.npz", archive_of([("b.npy", npy(np.zeros(200_000)))]))], "would unpack to more"),
    ([("a.npz", archive_of([("b.npz", archive_of([]))]))], "named 'b.npz'"),
    ([("a.npz", archive_of([("b.bin", b"")]))], "named 'b.bin'"),
    ([("a.json", b"{}")], None),
])  # fmt: skip
def test_an_archive_that_skops_did_not_write_is_refused_before_it_is_unpacked(members, match):
    data = archive_of(members)
    if match is None:
        check_archive(data, max_bytes=1_000_000)
        return
    with pytest.raises(InvalidInputError, match=match):
        check_archive(data, max_bytes=1_000_000)


def test_an_archive_may_not_hold_one_name_twice_or_other_compression():
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = archive_of([("a.bin", b"1"), ("a.bin", b"2")])
    with pytest.raises(InvalidInputError, match="two members of one name"):
        check_archive(twice, max_bytes=1000)
    with pytest.raises(InvalidInputError, match="compressed in a way"):
        check_archive(archive_of([("a.bin", b"1")], zipfile.ZIP_BZIP2), max_bytes=1000)
    with pytest.raises(InvalidInputError, match="cannot be unpacked"):
        check_archive(b"PK no archive", max_bytes=1000)


@pytest.mark.parametrize("schema", [
    b"", b"[]", b"{}", b'{"protocol": 2}', b"[" * 99_999,
    json.dumps({"protocol": 2, "__class__": "system", "__module__": "os", "__loader__": "FunctionNode",
                "content": {"module_path": "os", "function": "system"}}).encode(),
    json.dumps({"protocol": 2, "__class__": "str", "__module__": "builtins", "__loader__": "JsonNode",
                "content": '"a string"'}).encode(),
])  # fmt: skip
def test_a_model_that_is_none_is_refused(schema, forge):
    blob = np.frombuffer(archive_of([("schema.json", schema)]), np.uint8)
    stage = LinearStage(np.array([1, 2]), np.ones((2, 2)), np.zeros(2))
    prices = PriceList(np.ones(3), np.arange(3))
    chain = Chain((stage,), PrecomputedFull(np.array([[0.5, 0.5]])), prices, TASK, Policy.of(np.zeros(1)))
    manifest, blobs = forge.taken_apart(to_bytes(chain))
    number = manifest["chain"]["full"]["values"]["$array"]
    manifest["chain"]["full"] = {"type": "estimator", "calibration": None, "skops": {"$array": number}}
    manifest["entries"][number].update(dtype="|u1", shape=[len(blob)])
    blobs[number] = blob.tobytes()
    with pytest.raises(
        InvalidInputError, match="cannot be read|not trusted|fitted classifier|must be a classifier"
    ) as caught:
        from_bytes(forge.sealed(manifest, blobs))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("attribute", "change"), [
    ("_n_support", lambda old: old * 1000),
    ("_n_support", lambda old: -old),
    ("_n_support", lambda old: old.astype(np.int64)),
    ("_n_support", lambda old: np.array([old.sum()], np.int32)),
    ("support_vectors_", lambda old: old[:-1]),
    ("support_vectors_", lambda old: old[:, :1]),
    ("support_vectors_", lambda old: old.ravel()),
    ("_dual_coef_", lambda old: old[:, :3]),
    ("_intercept_", lambda old: old[:0]),
    ("_probA", lambda old: np.zeros(9)),
    ("support_", lambda old: old[:2]),
    ("n_features_in_", lambda old: 1000),
    ("_sparse", lambda old: True),
    ("kernel", lambda old: "precomputed"),
])  # fmt: skip
def test_support_vectors_that_do_not_agree_are_refused_before_compiled_code_reads_them(
    attribute, change, rows
):
    model = SVC().fit(*rows)
    check_sound(model)
    setattr(model, attribute, change(getattr(model, attribute)))
    data = skops.io.dumps(model)
    with pytest.raises(InvalidInputError, match="a SVC in the bundle"):
        load_model(data, max_bytes=1 << 20)


def test_a_sparse_svm_that_points_outside_its_columns_is_refused(rows):
    from scipy import sparse

    model = SVC().fit(sparse.csr_matrix(rows[0]), rows[1])
    check_sound(model)
    model.support_vectors_.indices[0] = 10**6
    with pytest.raises(InvalidInputError, match="a SVC in the bundle"):
        check_sound(model)


def test_trees_of_scikit_learn_that_point_outside_themselves_are_refused_even_if_trusted(rows):
    forest = RandomForestClassifier(2, max_depth=2, random_state=0).fit(*rows)
    check_sound(forest)
    for name, value in (("left_child", 10**6), ("right_child", 0), ("feature", 99), ("feature", -5)):
        tree = forest.estimators_[1].tree_
        state = copy.deepcopy(tree.__getstate__())
        nodes = state["nodes"].copy()
        nodes[name][0] = value
        tree.__setstate__({**state, "nodes": nodes})
        with pytest.raises(InvalidInputError, match="a Tree in the bundle"):
            check_sound(forest)
        tree.__setstate__(state)
    check_sound(forest)


def test_trees_of_histograms_that_point_outside_themselves_are_refused_even_if_trusted(rows):
    model = HistGradientBoostingClassifier(max_iter=2, max_depth=2).fit(*rows)
    check_sound(model)
    for name, value in (("left", 10**6), ("right", 0), ("feature_idx", 99), ("is_categorical", 1)):
        predictor = model._predictors[1][0]
        before = predictor.nodes.copy()
        predictor.nodes[name][0] = value
        with pytest.raises(InvalidInputError, match="a TreePredictor in the bundle"):
            check_sound(model)
        predictor.nodes = before
    check_sound(model)


def test_a_tree_that_is_deeper_than_it_claims_is_refused(rows):
    model = DecisionTreeClassifier(max_depth=3).fit(*rows)
    state = model.tree_.__getstate__()
    for claimed in (2, 0, -1):
        model.tree_.__setstate__({**state, "max_depth": claimed})
        with pytest.raises(InvalidInputError, match="deeper than"):
            check_sound(model)
    model.tree_.__setstate__({**state, "max_depth": 50})
    check_sound(model)


def no_columns(model):
    del model.estimators_[1].n_features_in_


def other_columns(model):
    model.estimators_[1].n_features_in_ = 13


def a_function_for_a_method(model):
    model.estimators_[1]._validate_X_predict = np.add


def a_type_for_a_method(model):
    model._validate_X_predict = dict


def another_model_for_a_tree(model):
    model.estimators_[1] = FunctionTransformer()


@pytest.mark.parametrize(
    "change",
    [no_columns, other_columns, a_function_for_a_method, a_type_for_a_method, another_model_for_a_tree],
)
def test_a_forest_that_is_not_plain_is_not_read_without_trust(change, rows):
    forest = RandomForestClassifier(3, max_depth=2, random_state=0).fit(*rows)
    assert why_not_plain(forest, set()) is None
    change(forest)
    with pytest.raises(InvalidInputError):
        load_model(dump_model(forest).tobytes(), max_bytes=2**30)


def test_boosting_whose_columns_are_changed_on_the_way_is_not_read_without_trust(rows):
    def model(**attributes):
        fitted = HistGradientBoostingClassifier(max_iter=2, max_depth=2).fit(*rows)
        vars(fitted).update(attributes)
        return fitted

    assert why_not_plain(model(), set()) is None
    fewer = FunctionTransformer(np.atleast_1d)
    for changed in (model(_preprocessor=fewer), model(_in_fit=True), model(n_features_in_=np.int64(12))):
        problem, types = why_not_plain(changed, set())
        assert "boosting" in problem or "FunctionTransformer" in problem
        assert types == ["sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"]
        assert why_not_plain(changed, set(types)) is None
    # Trees that two models share are checked against the columns of both.
    narrow, wide = model(), model()
    narrow.n_features_in_ = 1
    narrow._predictors = wide._predictors
    assert "columns that it is not given" in why_not_plain([wide, narrow], set())[0]


def test_a_model_that_was_never_fitted_is_refused():
    chain = Chain((), AbsentFull(), PriceList(np.ones(3), np.arange(3)), TASK, Policy.of(np.empty(0)))
    with pytest.raises(InvalidInputError, match="not fitted"):
        from_bytes(to_bytes(chain), full=LogisticRegression())
