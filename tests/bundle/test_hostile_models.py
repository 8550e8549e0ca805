"""Models in files that skops wrote, or should have written: nothing is unpacked, built or asked unseen."""

import copy
import io
import json
import pickle
import zipfile

import numpy as np
import pytest
import skops.io
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from thrifty import Chain, Policy
from thrifty.bundle import from_bytes, to_bytes
from thrifty.bundle.archives import check_archive, check_sound, dump_model, load_model
from thrifty.chain.stage import LinearStage
from thrifty.errors import InvalidInputError
from thrifty.full.model import AbsentFull, EstimatorFull, PrecomputedFull
from thrifty.full.trees import TreeClassifier
from thrifty.prices.billing import PriceList
from thrifty.tasks.classes import BinaryTask, classification

TREE = "sklearn.tree._tree.Tree"
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
        InvalidInputError, match="cannot be read|not trusted|fitted classifier|must be a classifier|in a form"
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


@pytest.mark.parametrize(
    "change",
    [
        {"_y": np.full(285, 10**7)},
        {"_y": np.full(285, -1)},
        {"_y": np.zeros(3, int)},
        {"_fit_X": np.zeros((285, 1))},
        {"_fit_X": np.zeros((285, 12), int)},
        {"n_features_in_": 10**6},
    ],
    ids=str,
)
def test_neighbours_that_do_not_agree_are_refused_before_compiled_code_reads_them(change, rows):
    model = KNeighborsClassifier(algorithm="brute").fit(*rows)
    assert len(rows[0]) == 285
    load_model(skops.io.dumps(model), max_bytes=1 << 20)
    vars(model).update(change)
    with pytest.raises(InvalidInputError, match="a KNeighborsClassifier in the bundle"):
        load_model(skops.io.dumps(model), max_bytes=1 << 20)


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


def with_arrays(data, change):
    """An archive in which ``change`` has looked at every array."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    return archive_of(
        [
            (name, npy(change(np.load(io.BytesIO(raw)))) if name.endswith("npy") else raw)
            for name, raw in members
        ]
    )


def nodes_changed(data, change):
    return with_arrays(data, lambda array: change(array.copy()) if array.dtype.names else array)


def with_value(name, value):
    def change(nodes):
        nodes[name][: None if name == "bitset_idx" else 1] = value
        return nodes

    return change


DAMAGE = {
    "a number for a table": lambda nodes: nodes[0],
    "two dimensions": lambda nodes: nodes[None],
    "no node": lambda nodes: nodes[:0],
    "fewer nodes": lambda nodes: nodes[:-1],
    "no fields": lambda nodes: nodes[nodes.dtype.names[0]].copy(),
}


@pytest.fixture(scope="module")
def archives(rows):
    """What versions that left trees to skops wrote into their files."""
    chance = np.random.default_rng(0).random(len(rows[0]))
    only_categories = np.zeros_like(rows[0])
    only_categories[:, 3] = 3 * (chance < 0.1 + 0.8 * rows[1]) + np.arange(len(chance)) % 3
    models = {
        "forest": RandomForestClassifier(3, max_depth=3, random_state=0),
        "tree": DecisionTreeClassifier(max_depth=3),
        "boosting": HistGradientBoostingClassifier(max_iter=3, max_depth=3),
        "categories": HistGradientBoostingClassifier(max_iter=3, max_depth=3, categorical_features=[3]),
        "pipeline": make_pipeline(StandardScaler(), RandomForestClassifier(2, max_depth=3, random_state=0)),
    }
    tables = {"categories": only_categories}
    fitted = {name: model.fit(tables.get(name, rows[0]), rows[1]) for name, model in models.items()}
    return {name: (model, skops.io.dumps(model)) for name, model in fitted.items()}


@pytest.mark.parametrize("name", ["forest", "tree", "boosting", "categories", "pipeline"])
def test_trees_that_skops_wrote_are_read_as_our_own_and_nothing_of_them_is_built(
    name, archives, rows, monkeypatch
):
    model, data = archives[name]
    monkeypatch.setattr("skops.io.loads", None)
    found = load_model(data, max_bytes=1 << 24)
    assert type(found) is TreeClassifier
    np.testing.assert_array_equal(found.predict_proba(rows[0]), model.predict_proba(rows[0]), strict=True)
    assert (found.model.categories is not None) == (name == "categories")


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["forest", "tree", "boosting", "categories", "pipeline"])
def test_damaged_trees_that_skops_wrote_are_refused_in_words(name, damage, archives):
    with pytest.raises(InvalidInputError, match=r"a \w+ in the file cannot be read: .*damaged"):
        load_model(nodes_changed(archives[name][1], DAMAGE[damage]), max_bytes=1 << 24)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("forest", "left_child", 10**6),
        ("forest", "right_child", 0),
        ("forest", "feature", 99),
        ("forest", "feature", -5),
        ("boosting", "left", 10**6),
        ("boosting", "right", 0),
        ("boosting", "feature_idx", 99),
        ("boosting", "is_categorical", 1),
        ("categories", "bitset_idx", 10**6),
    ],
)
def test_trees_that_skops_wrote_and_that_point_outside_themselves_are_refused(name, field, value, archives):
    with pytest.raises(InvalidInputError, match="cannot be read"):
        load_model(nodes_changed(archives[name][1], with_value(field, value)), max_bytes=1 << 24)


@pytest.mark.parametrize("damage", ["a number for a table", "two dimensions", "no fields", "fewer nodes"])
def test_trees_that_are_trusted_by_name_are_looked_at_before_they_are_built(damage, rows):
    data = skops.io.dumps(GradientBoostingClassifier(n_estimators=2, max_depth=2).fit(*rows))
    load_model(data, max_bytes=1 << 24, trusted=[TREE])
    with pytest.raises(InvalidInputError, match=r"a Tree in the bundle|cannot be read"):
        load_model(nodes_changed(data, DAMAGE[damage]), max_bytes=1 << 24, trusted=[TREE])


def test_an_attribute_in_the_place_of_a_method_is_not_built(rows):
    forest = RandomForestClassifier(3, max_depth=2, random_state=0).fit(*rows)
    expected = forest.predict_proba(rows[0])
    forest._validate_X_predict = np.add
    found = load_model(dump_model(forest).tobytes(), max_bytes=2**30)
    np.testing.assert_array_equal(found.predict_proba(rows[0]), expected)
    forest.estimators_[1] = FunctionTransformer()
    with pytest.raises(InvalidInputError, match="must be a list of trees"):
        load_model(dump_model(forest).tobytes(), max_bytes=2**30)


def test_a_model_that_was_never_fitted_is_refused():
    chain = Chain((), AbsentFull(), PriceList(np.ones(3), np.arange(3)), TASK, Policy.of(np.empty(0)))
    with pytest.raises(InvalidInputError, match="not fitted"):
        from_bytes(to_bytes(chain), full=LogisticRegression())


def asking(model, labels):
    """A chain that sends every row to the model."""
    task = classification(np.unique(labels))
    stage = LinearStage(np.array([0]), np.zeros((1, 1 + task.n_scores)), np.zeros(1 + task.n_scores))
    prices = PriceList(np.ones(12), np.arange(12))
    return Chain((stage,), EstimatorFull(model, task), prices, task, Policy.of(np.array([-np.inf])))


@pytest.mark.parametrize("change", [{"coef_": np.zeros((1, 3))}, {"coef_": np.array(["a"])}, {"coef_": None}])
def test_a_model_from_a_file_that_fails_when_it_is_asked_fails_in_words(change, rows):
    model = LogisticRegression().fit(*rows)
    vars(model).update(change)
    chain = from_bytes(to_bytes(asking(model, rows[1])))
    with pytest.raises(InvalidInputError, match="LogisticRegression, which was read from a file, failed"):
        chain.predict_proba(rows[0])


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_sums_that_are_no_numbers_are_refused_and_not_returned_as_nan(rows, forge):
    labels = np.arange(len(rows[0])) % 3
    model = HistGradientBoostingClassifier(max_iter=2, max_depth=2).fit(rows[0], labels)
    data = to_bytes(asking(model, labels))
    assert np.isfinite(from_bytes(data).predict_proba(rows[0])).all()
    for score in range(3):

        def leaves(facts, score=score):
            return facts["chain"]["full"]["trees"]["ensembles"][score]["trees"]["values"]

        manifest, blobs = forge.taken_apart(data)
        n_leaves = len(blobs[leaves(manifest)["$array"]]) // 8
        data = forge.with_array(data, leaves, np.full((n_leaves, 1), 1.7e308))
    chain = from_bytes(data)
    for asked in (rows[0], rows[0][:1]):
        with pytest.raises(InvalidInputError, match=r"have no answer|must give probabilities"):
            chain.predict_proba(asked)
