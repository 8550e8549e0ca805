"""Files that are sealed as they should be, and wrong: every part is refused by name."""

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from thrifty import Chain, DynaModGbrtClassifier, Policy
from thrifty.bundle import from_bytes, to_bytes
from thrifty.engine.full.model import EstimatorFull, PrecomputedFull
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.tasks.classes import BinaryTask
from thrifty.engine.walk.stage import LinearStage
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod import BoostedOptions


def refused(data, match, **options):
    with pytest.raises(InvalidInputError, match=match) as caught:
        from_bytes(data, **options)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def boosted(fitted):
    return to_bytes(fitted["boosted"], full="absent")


@pytest.fixture(scope="module")
def cascade(fitted):
    return to_bytes(fitted["cascade"], full="absent")


@pytest.fixture(scope="module")
def proved(fitted):
    return to_bytes(fitted["proved"], full="absent")


@pytest.fixture(scope="module")
def linear():
    stage = LinearStage(np.array([1, 2]), np.ones((2, 2)), np.zeros(2))
    prices = PriceList(np.ones(3), np.arange(3), 0.5, np.array([0, 2]))
    full = PrecomputedFull(np.array([[0.5, 0.5]]), np.array([7], dtype=np.uint64))
    task, blend = BinaryTask(np.arange(2)), np.array([0.0, 0.5, 0.5])
    return to_bytes(Chain((stage,), full, prices, task, Policy.of(np.zeros(1)), np.zeros(1), blend))


# -- trees ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "value"), [
    ("feature", 2**31 - 1), ("feature", -1), ("node_offsets", -1), ("leaf_offsets", 2**31 - 1),
    ("threshold", np.nan), ("values", np.inf), ("values", np.nan),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["SavedTrees", "TreeEnsemble"])
def test_a_tree_that_points_outside_itself_is_refused(name, value, kind, cascade, boosted, forge):
    data = cascade if kind == "SavedTrees" else boosted
    array = forge.array_of(data, kind, name)
    array.flat[1] = value
    refused(forge.with_array(data, kind, name, array), "proper trees|rise from 0|must be finite|trees must")


def test_offsets_whose_differences_wrap_around_claim_no_memory(cascade, forge):
    nodes = forge.array_of(cascade, "SavedTrees", "node_offsets")
    leaves = forge.array_of(cascade, "SavedTrees", "leaf_offsets")
    nodes[1:3] = [2**31 - 1, -(2**31)]
    leaves[1:3] = [-(2**31), -(2**31) + 2]
    data = forge.with_array(cascade, "SavedTrees", "node_offsets", nodes)
    refused(forge.with_array(data, "SavedTrees", "leaf_offsets", leaves), "rise from 0")


@pytest.fixture(scope="module")
def of_levels():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"kind": [f"kind {one}" for one in rng.integers(0, 6, 200)], "size": rng.normal(size=200)}
    )
    y = table["kind"].isin(["kind 1", "kind 4"]) ^ (table["size"] > 1)
    model = DynaModGbrtClassifier(
        options=BoostedOptions(n_trees=3, max_iter=1, tol=1.0), gamma=0.0, cv=2, random_state=0
    )
    return to_bytes(model.fit(table, y), full="absent")


def test_a_tree_that_leads_back_to_itself_is_refused(of_levels, forge):
    children = forge.array_of(of_levels, "TreeEnsemble", "children")
    for child in (0, 1, -(2**31), 2**31 - 1):
        wrong = children.copy()
        wrong[1] = child
        refused(forge.with_array(of_levels, "TreeEnsemble", "children", wrong), "proper trees")


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("levels", lambda levels: np.r_[levels[:-1], 6], "ask for levels of columns that have them"),
        ("levels", lambda levels: np.r_[-1, levels[1:]], "do not rise from zero"),
        ("levels", lambda levels: levels[:-1], "end at the last level"),
        ("offsets", lambda offsets: np.r_[0, 2**31 - 1, offsets[2:]], "not in the order of their nodes"),
        ("offsets", lambda offsets: offsets[:0], "do not begin at zero"),
        ("nodes", lambda nodes: np.r_[nodes[:-1], 2**31 - 1], "belongs to no node"),
    ],
)
def test_damaged_sets_of_levels_are_refused(of_levels, forge, name, change, told):
    array = forge.array_of(of_levels, "LevelSets", name)
    assert len(array) > 1
    refused(forge.with_array(of_levels, "LevelSets", name, change(array).astype("<i4")), told)


@pytest.mark.parametrize(
    ("levels", "told"),
    [
        ([[1, {"$tuple": [f"kind {one}" for one in range(6)]}]], "ask for levels of columns that have them"),
        ([[0, {"$tuple": ["kind 0", "kind 1"]}]], "ask for levels of columns that have them"),
        ([[0, {"$tuple": ["kind 0", "kind 0"]}]], "must be distinct"),
        ([[9, {"$tuple": ["kind 0"]}]], "levels must be of columns"),
        ([["0", {"$tuple": ["kind 0"]}]], "be of type int"),
        ([[0, ["kind 0"]]], "be a tuple"),
    ],
)
def test_levels_that_are_not_those_of_the_sets_are_refused(of_levels, forge, levels, told):
    refused(forge.with_field(of_levels, "Levels", "of_column", {"$dict": levels}), told)


# -- full models as arrays ---------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name", "change", "match"), [
    ("LinearScores", "coef", lambda old: old[:, :-1], "do not give 1 scores of 12 columns"),
    ("LinearScores", "coef", lambda old: np.vstack([old, old]), "do not give 1 scores"),
    ("LinearScores", "intercept", lambda old: old * np.nan, "be finite"),
    ("Scale", "scale", lambda old: old * 0, "divides by zero"),
    ("Scale", "shift", lambda old: old[:-1], "for every column"),
    ("KernelScores", "vectors", lambda old: old[:, :-1], "vectors of a kernel machine"),
    ("KernelScores", "weights", lambda old: old[:, :-1], "weights of a kernel machine"),
    ("KernelScores", "n_support", lambda old: old + np.array([1, -1]), None),
    ("KernelScores", "n_support", lambda old: old + np.array([1, 0]), "are not those of the classes"),
    ("KernelScores", "n_support", lambda old: np.array([-1, 1 + old.sum()]), "are not those of the classes"),
])  # fmt: skip
def test_arrays_of_a_stored_model_that_do_not_fit_together_are_refused(
    kind, name, change, match, rows, forge
):
    last = SVC() if kind == "KernelScores" else LogisticRegression()
    model = make_pipeline(StandardScaler(), last).fit(*rows)
    stage = LinearStage(np.array([0]), np.ones((1, 2)), np.zeros(2))
    task = BinaryTask(np.arange(2))
    full = EstimatorFull(model, task, None if kind != "KernelScores" else np.array([1.0, 0.0]))
    chain = Chain((stage,), full, PriceList(np.ones(12), np.arange(12)), task, Policy.of(np.array([-np.inf])))
    data = to_bytes(chain)
    wrong = forge.with_array(data, kind, name, change(forge.array_of(data, kind, name)))
    if match is None:  # another machine, but a machine
        assert from_bytes(wrong).predict(rows[0]).shape == (len(rows[0]),)
        return
    refused(wrong, match)


# -- stages, prices and labels -------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name", "array", "match"), [
    ("LinearStage", "columns", np.array([1, 3]), "columns must lie in"),
    ("LinearStage", "columns", np.array([-1, 2]), "columns must lie in"),
    ("LinearStage", "columns", np.array([1, 1]), "columns must lie in"),
    ("LinearStage", "columns", np.array([1.0, 2.0]), "be of type int64"),
    ("LinearStage", "columns", np.array([[1, 2]]), "weights for each column|columns must lie in"),
    ("LinearStage", "coef", np.ones((2, 3)), "weights for each column"),
    ("LinearStage", "coef", np.full((2, 2), np.nan), "finite"),
    ("LinearStage", "coef", np.ones((2, 2), dtype="<f4"), "of type float64"),
    ("LinearStage", "intercept", np.array(["a", "b"]), "of type float64"),
    ("PriceList", "prices", -np.ones(3), "at least 0"),
    ("PriceList", "prices", np.full(3, np.inf), "finite"),
    ("PriceList", "prices", np.full(3, 1.7e308), "have a finite sum"),
    ("PriceList", "prices", np.ones(2), "name purchases"),
    ("PriceList", "group_of", np.array([0, 1, -1]), "name purchases"),
    ("PriceList", "group_of", np.empty(0, np.int64), "name purchases"),
    ("PriceList", "full_columns", np.array([0, 3]), "distinct columns"),
    ("PriceList", "full_columns", np.array([1, 1]), "distinct columns"),
    ("BinaryTask", "classes", np.array([1, 1]), "distinct labels"),
    ("BinaryTask", "classes", np.array([1]), "from two to"),
    ("BinaryTask", "classes", np.array([1, 2, 3]), "does not answer with 3 classes"),
    ("Chain", "base", np.zeros(2), "base must have 1"),
    ("Chain", "base", np.array([np.nan]), "base .* finite"),
    ("Chain", "blend", np.zeros(2), "blend must have 3"),
    ("PrecomputedFull", "values", np.array([1.5]), r"probabilities in \[0, 1\]"),
    ("PrecomputedFull", "values", np.array([[0.5, np.nan]]), "finite"),
    ("PrecomputedFull", "values", np.array([[[0.5]]]), "values must be outputs"),
    ("PrecomputedFull", "values", np.empty((0, 2)), "values must be outputs|keys must be"),
    ("PrecomputedFull", "keys", np.array([7]), "be of type uint64"),
    ("PrecomputedFull", "keys", np.array([7, 8], dtype=np.uint64), "keys must be 1"),
])  # fmt: skip
def test_arrays_that_do_not_fit_together_are_refused(kind, name, array, match, linear, forge):
    refused(forge.with_array(linear, kind, name, array), match)


@pytest.mark.parametrize(("kind", "name", "value", "match"), [
    ("SavedEstimator", "class", "os.system", "must be one of the known classes"),
    ("SavedEstimator", "class", ["Chain"], "must be one of the known classes"),
    ("SavedEstimator", "name", "object", "be one of"),
    ("SavedEstimator", "name", "BudgetedClassifier", "suit the kind of chain"),
    ("SavedEstimator", "chain", 7, "be a Chain"),
    ("SavedEstimator", "chain", {"$object": 0}, "be a Chain|from several places"),
    ("SavedEstimator", "chain", {"$object": 10**9}, "refers to object"),
    ("SavedEstimator", "chain", {"$object": True}, "refers to object"),
    ("SavedEstimator", "more", 1, "be no field of this class"),
    ("SavedEstimator", "parameters", {"$dict": [["__class__", 1]]}, "be a parameter of"),
    ("SavedEstimator", "attributes", {"$dict": [["predict", 1]]}, "be a learned attribute"),
    ("SavedEstimator", "attributes", {"$dict": [["__dict__", 1]]}, "be a learned attribute"),
    ("SavedEstimator", "attributes", {"$dict": [["chain_", 1]]}, "be a learned attribute"),
    ("SavedEstimator", "attributes", {"$dict": [["frontier_", 1]]}, "be a learned attribute"),
    ("SavedEstimator", "attributes", {"$dict": [[1, 1]]}, "be of type str"),
    ("SavedEstimator", "evidence", [], "be a Evidence"),
    ("SavedEstimator", "certificate", 3, "be a Certificate"),
    ("Chain", "stages", 3, "be a tuple"),
    ("Chain", "stages", {"$tuple": []}, "threshold for each of the 0 stages"),
    ("Chain", "stages", {"$tuple": [7]}, "be a Stage"),
    ("Chain", "names", {"$tuple": ["a"]}, "names must name 12"),
    ("Chain", "names", {"$tuple": [1] * 12}, "be of type str"),
    ("Chain", "kind", "dask", "be a kind of table"),
    ("Chain", "full", 3, "be a FullModel"),
    ("Chain", "task", None, "be a Task"),
    ("PriceList", "full_cost", -1.0, "at least 0"),
    ("PriceList", "full_cost", 1, "be a finite number"),
    ("PriceList", "full_cost", {"$float": "nan"}, "be a finite number"),
    ("PriceList", "prices", None, "be an array"),
    ("PriceList", "prices", {"$array": 10**9}, "refers to array"),
    ("PriceList", "prices", {"$array": -1}, "refers to array"),
    ("PriceList", "prices", {"$pickle": "gASV"}, "in a form it must not have"),
    ("PriceList", "prices", {"$float": "1e999"}, "in a form it must not have"),
    ("PriceList", "prices", {"$dict": [[[], 1]]}, "in a form it must not have"),
    ("PriceList", "prices", {"$scalar": 0}, "in a form it must not have|from several places"),
])  # fmt: skip
def test_facts_that_are_not_facts_are_refused(kind, name, value, match, boosted, forge):
    refused(forge.with_field(boosted, kind, name, value), match)


@pytest.mark.parametrize("objects", [None, {}, [], [7], [{}], [{"class": "Chain"}]])
def test_a_list_of_objects_that_is_none_is_refused(objects, boosted, forge):
    data = forge.with_fact(boosted, lambda manifest: manifest.update(objects=objects))
    refused(data, "must list from 1|must be one of the known classes|must be there")


def test_what_a_class_does_not_keep_or_know_cannot_be_put_into_it(proved, forge):
    for name in ("is_fixed", "scores", "__class__"):
        refused(forge.with_field(proved, "Evidence", name, None), "be no field of this class")


# -- policies ------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(("name", "value", "match"), [
    ("lower", 99, "lower and upper"),
    ("lower", -1, "lower and upper"),
    ("upper", 10**30, "lower and upper"),
    ("upper", True, "be of type int"),
    ("upper", 0.0, "be of type int"),
    ("share", 1.5, "share"),
    ("share", {"$float": "nan"}, "share"),
    ("seed", -1, "seed"),
    ("seed", 2**63, "seed"),
    ("thresholds", None, "be an array"),
    ("cost", 3, "be an array"),
])  # fmt: skip
def test_a_policy_whose_numbers_are_none_is_refused(which, name, value, match, cascade, forge):
    refused(forge.with_field(cascade, "Policy", name, value, which), match)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(("name", "change", "match"), [
    ("thresholds", lambda old: np.where(old == old[0, 0], np.nan, old), "thresholds must be a number"),
    ("thresholds", lambda old: old[:, :-1], "threshold for each|a policy must have"),
    ("thresholds", lambda old: old[:-1], "known for each point"),
    ("thresholds", lambda old: old.ravel(), "thresholds must be a number|does not hold together"),
    ("thresholds", lambda old: old.astype(np.float32), "be of type float64"),
    ("cost", lambda old: old[::-1].copy(), "cost must rise"),
    ("cost", lambda old: np.r_[old[:-1], np.inf], "be finite"),
    ("cost", lambda old: np.r_[np.nan, old[1:]], "be finite"),
    ("cost", lambda old: old * np.nan, "be known at every point|suit the kind of chain"),
    ("score", lambda old: old[:2], "known for each point"),
])  # fmt: skip
def test_a_policy_whose_points_are_none_is_refused(which, name, change, match, cascade, forge):
    shown = forge.array_of(cascade, "Policy", name, which)
    refused(forge.with_array(cascade, "Policy", name, change(shown), which), match)


# -- cascades and chains within one another ------------------------------------------------------


def test_stages_that_do_not_build_on_one_another_are_refused(cascade, forge):
    def turned(manifest):
        forge.objects(manifest, "Chain")[0]["stages"]["$tuple"].reverse()

    refused(forge.with_fact(cascade, turned), "include those")


def test_an_object_stands_in_one_place(cascade, forge):
    def twice(manifest):
        stages = forge.objects(manifest, "Chain")[0]["stages"]["$tuple"]
        stages[1] = stages[0]

    refused(forge.with_fact(cascade, twice), "from several places")


def test_an_object_cannot_refer_to_itself_or_to_a_later_one(cascade, forge):
    def later(manifest):
        chain = forge.objects(manifest, "Chain")[0]
        chain["full"] = {"$object": manifest["objects"].index(chain)}

    refused(forge.with_fact(cascade, later), "refers to object")


def test_chains_within_chains_without_end_are_refused(linear, forge):
    manifest, blobs = forge.taken_apart(linear)
    objects, entries = manifest["objects"], manifest["entries"]
    n_objects, n_arrays = len(objects), len(entries)

    def moved(node, by, arrays):
        if isinstance(node, dict):
            return {
                key: value + (arrays if key == "$array" else by)
                if key in ("$array", "$object")
                else moved(value, by, arrays)
                for key, value in node.items()
            }
        return [moved(item, by, arrays) for item in node] if isinstance(node, list) else node

    whole, every, last = list(objects), list(entries), n_objects - 1
    for level in range(1, 30):
        part = moved(copy.deepcopy(objects), level * n_objects, level * n_arrays)
        part[-1]["full"] = {"$object": last}
        whole, every = whole + part, every + copy.deepcopy(entries)
        last = len(whole) - 1
    manifest.update(objects=whole, entries=every)
    refused(forge.sealed(manifest, blobs * 30), "at most 8 chains and estimators within one another")


# -- what operating points were judged on --------------------------------------------------------


@pytest.mark.parametrize(("name", "made", "match"), [
    ("gate", lambda k: np.zeros((0, k)), "gate|shape|stages|row"),
    ("gate", lambda k: np.zeros((4, k - 1)), "shape|stages"),
    ("gate", np.zeros, "gate"),
    ("gate", lambda k: np.full((4, k), np.nan), "be finite"),
    ("quality", lambda k: np.ones((4, k + 1), dtype=bool), "quality"),
    ("quality", lambda k: np.ones((4, k + 1), dtype=np.int64), "be of type float64"),
    ("full_quality", lambda k: np.ones(4, dtype=bool), "full_quality"),
    ("cost", np.ones, "cost"),
    ("cost", lambda k: -np.ones(k + 1), "costs of at least 0"),
    ("cost", lambda k: np.full(k + 1, np.inf), "be finite"),
    ("points", lambda k: np.full((1, k), np.nan), "points must hold"),
    ("points", lambda k: np.zeros((0, k)), "points must hold"),
    ("points", lambda k: np.zeros((1, k - 1)), "points"),
])  # fmt: skip
def test_evidence_of_another_form_is_refused(name, made, match, fitted, proved, forge):
    n_stages = fitted["proved"].n_stages_
    assert n_stages > 1
    refused(forge.with_array(proved, "Evidence", name, made(n_stages)), match)


@pytest.mark.parametrize("weight", [np.zeros(1), -1.0, 0.0])
def test_weights_that_weigh_nothing_are_refused(weight, fitted, forge):
    weighted = copy.copy(fitted["proved"])
    twice = np.full(weighted.evidence_.n_rows, 2.0)
    weighted.evidence_ = replace(weighted.evidence_, weight=twice)
    wrong = np.full_like(twice, weight) if np.isscalar(weight) else weight
    data = forge.with_array(to_bytes(weighted, full="absent"), "Evidence", "weight", wrong)
    refused(data, "a weight of at least 0 for each row")


@pytest.mark.parametrize(("name", "value"), [
    ("max_loss", "0.2"), ("n_rows", 3.0), ("n_rows", True), ("n_losses", "none"), ("bound", 1), ("is_fallback", 0),
    ("failed_losses", "many"), ("failed_bound", 7), ("point", {"$dict": []}), ("point", 3),
])  # fmt: skip
def test_a_certificate_that_is_none_is_refused(name, value, proved, forge):
    def change(manifest):
        forge.objects(manifest, "Certificate")[0][name] = value

    refused(forge.with_fact(proved, change), f"{name} of Certificate in the file must")
