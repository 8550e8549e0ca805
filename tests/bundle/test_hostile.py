"""Files that are sealed as they should be, by somebody who means harm."""

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

from thrifty import GatedSystem, InvalidInputError, Stage
from thrifty.bundle import from_bytes, to_bytes
from thrifty.bundle.archive import check_archive, dump_model, load_model
from thrifty.bundle.reviewed import why_not_plain
from thrifty.bundle.soundness import check_sound
from thrifty.full.model import AbsentFull, PrecomputedFull
from thrifty.learning.pairs.linear import LinearScorer
from thrifty.objective.costs import PriceList


def refused(data, match, **options):
    with pytest.raises(InvalidInputError, match=match) as caught:
        from_bytes(data, **options)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def boosted(fitted):
    return to_bytes(fitted["boosted"], full="absent")


@pytest.fixture(scope="module")
def linear():
    scorer = LinearScorer(np.array([1, 2]), np.ones((2, 2)), np.zeros(2))
    prices = PriceList(np.ones(3), np.arange(3))
    return to_bytes(GatedSystem((Stage(scorer),), PrecomputedFull(np.array([0.5])), prices, np.arange(2)))


def tree_part(name, which="cheap"):
    return lambda manifest: manifest["system"]["stages"][0]["scorer"][which][name]


def array_of(data, forge, reference, dtype):
    manifest, blobs = forge.taken_apart(data)
    number = reference(manifest)["$array"]
    return np.frombuffer(blobs[number], dtype).reshape(manifest["entries"][number]["shape"]).copy()


def test_a_tree_that_leads_back_to_itself_is_refused(boosted, forge):
    children = array_of(boosted, forge, tree_part("children"), "<i4")
    children[1] = 0
    refused(forge.with_array(boosted, tree_part("children"), children), "does not come after its parent")


@pytest.mark.parametrize(("name", "dtype", "value"), [
    ("feature", "<i4", 2**31 - 1),
    ("feature", "<i4", -1),
    ("children", "<i4", -(2**31)),
    ("children", "<i4", 2**31 - 1),
    ("node_offsets", "<i4", -1),
    ("leaf_offsets", "<i4", 2**31 - 1),
    ("threshold", "<f8", np.nan),
    ("values", "<f8", np.inf),
])  # fmt: skip
@pytest.mark.parametrize("which", ["gate", "cheap"])
def test_a_tree_that_points_outside_itself_is_refused(name, dtype, value, which, boosted, forge):
    array = array_of(boosted, forge, tree_part(name, which), dtype)
    array.flat[1] = value
    refused(forge.with_array(boosted, tree_part(name, which), array), "proper trees|rise from 0")


def test_offsets_whose_differences_wrap_around_claim_no_memory(boosted, forge):
    nodes = array_of(boosted, forge, tree_part("node_offsets"), "<i4")
    leaves = array_of(boosted, forge, tree_part("leaf_offsets"), "<i4")
    nodes[1:3] = [2**31 - 1, -(2**31)]
    leaves[1:3] = [-(2**31), -(2**31) + 2]
    data = forge.with_array(boosted, tree_part("node_offsets"), nodes)
    refused(forge.with_array(data, tree_part("leaf_offsets"), leaves), "rise from 0")


@pytest.mark.parametrize(("name", "array", "match"), [
    ("columns", np.array([1, 3]), "distinct column numbers"),
    ("columns", np.array([-1, 2]), "distinct column numbers"),
    ("columns", np.array([1, 1]), "distinct column numbers"),
    ("columns", np.array([1.0, 2.0]), "of type int64"),
    ("columns", np.array([[1, 2]]), "of type int64 and shape"),
    ("coef", np.ones((2, 3)), "shape"),
    ("coef", np.ones((1, 2)), "shape"),
    ("coef", np.full((2, 2), np.nan), "finite"),
    ("coef", np.ones((2, 2), dtype="<f4"), "of type float64"),
    ("intercept", np.array(["a", "b"]), "of type float64"),
])  # fmt: skip
def test_arrays_that_do_not_fit_together_are_refused(name, array, match, linear, forge):
    refused(
        forge.with_array(linear, lambda manifest: manifest["system"]["stages"][0]["scorer"][name], array),
        match,
    )


@pytest.mark.parametrize(("name", "array", "match"), [
    ("prices", -np.ones(3), "at least 0"),
    ("prices", np.full(3, np.inf), "finite"),
    ("prices", np.ones(2), "name purchases"),
    ("group_of", np.array([0, 1, -1]), "name purchases"),
    ("group_of", np.empty(0, np.int64), "name purchases"),
    ("classes", np.array([1, 1]), "two distinct labels"),
    ("classes", np.array([1, 2, 3]), "two labels"),
])  # fmt: skip
def test_price_lists_and_classes_that_make_no_sense_are_refused(name, array, match, linear, forge):
    refused(forge.with_array(linear, lambda manifest: manifest["system"][name], array), match)


def test_probabilities_that_are_none_are_refused(linear, forge):
    refused(
        forge.with_array(linear, lambda m: m["system"]["full"]["values"], np.array([1.5])), "be probabilities"
    )


@pytest.mark.parametrize(("path", "value", "match"), [
    (("kind",), "pickle", "be system or estimator"),
    (("class",), "object", "be one of"),
    (("system", "stages", 0, "scorer", "type"), "os.system", "be one of BoostedScorer"),
    (("system", "stages", 0, "threshold"), {"$float": "nan"}, "be a number"),
    (("system", "stages", 0, "threshold"), "0", "be a number"),
    (("system", "stages", 0, "threshold"), True, "be a number"),
    (("system", "stages"), 3, "be a list"),
    (("system", "stages"), [], "have a stage"),
    (("system", "stages"), [{}] * 2000, "be at most 1000"),
    (("system", "stages", 0), 7, "must be an object"),
    (("system", "names"), ["a"], "name 12 columns"),
    (("system", "names"), [1] * 12, "name 12 columns"),
    (("system", "kind"), "dask", "be a kind of table"),
    (("system", "full_cost"), -1.0, "at least 0"),
    (("system", "full", "type"), "pickle", "known form of f0"),
    (("system", "prices"), {"$array": 10**9}, "refers to array"),
    (("system", "prices"), {"$array": -1}, "refers to array"),
    (("system", "prices"), {"$array": True}, "refers to array"),
    (("system", "prices"), {"$pickle": "gASV"}, "in a form it must not have"),
    (("system", "prices"), {"$float": "1e999"}, "in a form it must not have"),
    (("system", "prices"), {"$dict": [[[], 1]]}, "in a form it must not have"),
    (("system", "prices"), {"$scalar": 0}, "is an array of shape"),
    (("parameters", "n_trees"), {"value": {"a": 1, "b": 2}}, "in a form it must not have"),
    (("parameters", "__class__"), {"value": 1}, "be a parameter of"),
    (("parameters", "full"), {"not_stored": 3, "sparse": True, "allow_nan": True}, "be text"),
    (("attributes", "predict"), 1, "be a learned attribute"),
    (("attributes", "__dict__"), 1, "be a learned attribute"),
    (("attributes", "system_"), 1, "be a learned attribute"),
    (("attributes", "classes_"), 1, "be a learned attribute"),
])  # fmt: skip
def test_facts_that_are_not_facts_are_refused(path, value, match, boosted, forge):
    def change(manifest):
        for step in path[:-1]:
            manifest = manifest[step]
        manifest[path[-1]] = value

    refused(forge.with_fact(boosted, change), match)


def test_systems_within_systems_without_end_are_refused(linear, forge):
    def change(manifest):
        inner = manifest["system"]
        for _ in range(30):
            inner = {
                **manifest["system"],
                "full": {"type": "system", "object": {"kind": "system", "system": inner}},
            }
        manifest["system"] = inner

    refused(forge.with_fact(linear, change), "at most 8 of them within one another")


# -- models that skops wrote, or should have written --------------------------------------------


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
def test_a_model_that_is_none_is_refused(schema, linear, forge):
    blob = np.frombuffer(archive_of([("schema.json", schema)]), np.uint8)
    manifest, blobs = forge.taken_apart(linear)
    number = manifest["system"]["full"].pop("values")["$array"]
    manifest["system"]["full"] = {
        "type": "estimator",
        "slope": 1.0,
        "intercept": 0.0,
        "skops": {"$array": number},
    }
    manifest["entries"][number].update(dtype="|u1", shape=[len(blob)])
    blobs[number] = blob.tobytes()
    refused(
        forge.sealed(manifest, blobs), "cannot be read|not trusted|fitted classifier|must be a classifier"
    )


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


def test_a_model_that_was_never_fitted_is_refused(linear, forge):
    system = GatedSystem((), AbsentFull(), PriceList(np.ones(3), np.arange(3)), np.arange(2))
    with pytest.raises(InvalidInputError, match="not fitted"):
        from_bytes(to_bytes(system), full=LogisticRegression())
