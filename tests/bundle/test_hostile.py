"""Files that are sealed as they should be, by somebody who means harm: every part is refused by name."""

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from thrifty import Chain, DynaModGbrtClassifier, Policy
from thrifty.bundle import from_bytes, to_bytes
from thrifty.chain.stage import LinearStage
from thrifty.errors import InvalidInputError
from thrifty.full.model import PrecomputedFull
from thrifty.prices.billing import PriceList
from thrifty.tasks.classes import BinaryTask


def refused(data, match, **options):
    with pytest.raises(InvalidInputError, match=match) as caught:
        from_bytes(data, **options)
    assert "\n" not in str(caught.value)


def part_of(manifest, path):
    for step in path:
        manifest = manifest[step]
    return manifest


def at(*path):
    """Where an array is referred to."""
    return lambda manifest: part_of(manifest, path)


def setting(path, value):
    """A change of one fact."""

    def change(manifest):
        part_of(manifest, path[:-1])[path[-1]] = value

    return change


def array_of(data, forge, reference, dtype):
    manifest, blobs = forge.taken_apart(data)
    number = reference(manifest)["$array"]
    return np.frombuffer(blobs[number], dtype).reshape(manifest["entries"][number]["shape"]).copy()


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
def gated(fitted):
    """A cascade with gates of its own: the trees of each stage, read as if their output were the gate's."""
    chain = fitted["cascade"].chain_
    stages = tuple(
        replace(stage, gate=replace(stage.trees, n_features=len(stage.columns) + 1)) for stage in chain.stages
    )
    return replace(chain, stages=stages)


@pytest.fixture(scope="module")
def linear():
    stage = LinearStage(np.array([1, 2]), np.ones((2, 2)), np.zeros(2))
    prices = PriceList(np.ones(3), np.arange(3), 0.5, np.array([0, 2]))
    full = PrecomputedFull(np.array([[0.5, 0.5]]), np.array([7], dtype=np.uint64))
    task, blend = BinaryTask(np.arange(2)), np.array([0.0, 0.5, 0.5])
    return to_bytes(Chain((stage,), full, prices, task, Policy.of(np.zeros(1)), np.zeros(1), blend))


# -- trees ---------------------------------------------------------------------------------------


def tree_part(name, which="cheap"):
    return at("chain", "stages", 0, which, name)


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


def test_a_learned_gate_is_kept_and_may_read_the_columns_and_the_score_alone(gated, forge, rows):
    data = to_bytes(gated)
    np.testing.assert_array_equal(from_bytes(data).route(rows[0]), gated.route(rows[0]))
    place = next(i for i, stage in enumerate(gated.stages) if len(stage.gate.feature))
    reads, width = at("chain", "stages", place, "gate", "feature"), len(gated.stages[place].columns)
    feature = array_of(data, forge, reads, "<i4")
    feature[0] = width  # the score that the row carries
    from_bytes(forge.with_array(data, reads, feature))
    feature[0] = width + 1
    refused(forge.with_array(data, reads, feature), f"a column outside 0 .. {width}")


# -- stages, prices and labels -------------------------------------------------------------------


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
    refused(forge.with_array(linear, at("chain", "stages", 0, name), array), match)


@pytest.mark.parametrize(("name", "array", "match"), [
    ("prices", -np.ones(3), "at least 0"),
    ("prices", np.full(3, np.inf), "finite"),
    ("prices", np.ones(2), "name purchases"),
    ("group_of", np.array([0, 1, -1]), "name purchases"),
    ("group_of", np.empty(0, np.int64), "name purchases"),
    ("classes", np.array([1, 1]), "distinct labels"),
    ("classes", np.array([1]), "from two to"),
    ("full_columns", np.array([0, 3]), "distinct column numbers"),
    ("full_columns", np.array([-1]), "distinct column numbers"),
    ("full_columns", np.array([1, 1]), "distinct column numbers"),
    ("full_columns", np.array([0.0]), "of type int64"),
    ("full_columns", np.array([True, False, True]), "of type int64"),
    ("base", np.zeros(2), "base .* shape"),
    ("base", np.array([np.nan]), "base .* finite"),
    ("base", np.array([[0.0]]), "base .* shape"),
    ("base", np.array([0]), "base .* of type float64"),
    ("blend", np.zeros(2), "blend .* shape"),
    ("blend", np.array([0.0, np.inf, 1.0]), "blend .* finite"),
    ("blend", np.zeros(3, dtype="<f4"), "blend .* of type float64"),
])  # fmt: skip
def test_prices_classes_bases_and_blends_that_make_no_sense_are_refused(name, array, match, linear, forge):
    refused(forge.with_array(linear, at("chain", name), array), match)


@pytest.mark.parametrize(("name", "array", "match"), [
    ("values", np.array([1.5]), r"probabilities in \[0, 1\]"),
    ("values", np.array([[0.5, np.nan]]), "finite"),
    ("values", np.array([[[0.5]]]), "be probabilities"),
    ("values", np.array([[0.2, 0.3, 0.5]]), "one probability of the second class per row"),
    ("values", np.array([0.5, 0.5]), "keys .* shape"),
    ("values", np.empty((0, 2)), "at least one row"),
    ("values", np.array(["0.5"]), "values .* of type float64"),
    ("keys", np.array([7]), "keys .* of type uint64"),
    ("keys", np.array([7.0]), "keys .* of type uint64"),
    ("keys", np.array([[7]], dtype=np.uint64), "keys .* shape"),
    ("keys", np.array([7, 8], dtype=np.uint64), "keys .* shape"),
])  # fmt: skip
def test_probabilities_and_keys_that_are_none_are_refused(name, array, match, linear, forge):
    refused(forge.with_array(linear, at("chain", "full", name), array), match)


@pytest.mark.parametrize(("array", "match"), [
    (np.zeros(1), "calibration .* shape"),
    (np.zeros(3), "calibration .* shape"),
    (np.array([1.0, np.nan]), "calibration .* finite"),
    (np.array([1, 0]), "calibration .* of type float64"),
])  # fmt: skip
def test_a_calibration_of_another_form_is_refused(array, match, fitted, cascade, forge):
    refused(forge.with_array(cascade, at("chain", "stages", 0, "calibration"), array), match)
    refused(forge.with_array(to_bytes(fitted["linear"]), at("chain", "full", "calibration"), array), match)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "value", "match"), [
    (("kind",), "pickle", "be chain or estimator"),
    (("class",), "object", "be one of"),
    (("class",), "BudgetedClassifier", "suit the kind of chain"),
    (("chain", "stages", 0, "type"), "os.system", "be one of BoostedScorer"),
    (("chain", "stages"), 3, "be a list"),
    (("chain", "stages"), [], "thresholds .* shape"),
    (("chain", "stages"), [{}] * 2000, "be at most 1000"),
    (("chain", "stages", 0), 7, "must be an object"),
    (("chain", "names"), ["a"], "name 12 columns"),
    (("chain", "names"), [1] * 12, "name 12 columns"),
    (("chain", "kind"), "dask", "be a kind of table"),
    (("chain", "full_cost"), -1.0, "at least 0"),
    (("chain", "full", "type"), "pickle", "known form of the full model"),
    (("chain", "full_columns"), [0, 1], "be an array"),
    (("chain", "base"), 0.0, "be an array"),
    (("chain", "blend"), "full", "be an array"),
    (("chain", "prices"), {"$array": 10**9}, "refers to array"),
    (("chain", "prices"), {"$array": -1}, "refers to array"),
    (("chain", "prices"), {"$array": True}, "refers to array"),
    (("chain", "prices"), {"$pickle": "gASV"}, "in a form it must not have"),
    (("chain", "prices"), {"$float": "1e999"}, "in a form it must not have"),
    (("chain", "prices"), {"$dict": [[[], 1]]}, "in a form it must not have"),
    (("chain", "prices"), {"$scalar": 0}, "is an array of shape"),
    (("parameters", "n_trees"), {"value": {"a": 1, "b": 2}}, "in a form it must not have"),
    (("parameters", "__class__"), {"value": 1}, "be a parameter of"),
    (("parameters", "full"), {"not_stored": 3, "sparse": True, "allow_nan": True}, "be text"),
    (("attributes", "predict"), 1, "be a learned attribute"),
    (("attributes", "__dict__"), 1, "be a learned attribute"),
    (("attributes", "chain_"), 1, "be a learned attribute"),
    (("attributes", "classes_"), 1, "be a learned attribute"),
    (("attributes", "evidence_"), 1, "be a learned attribute"),
    (("attributes", "frontier_"), 1, "be a learned attribute"),
    (("evidence",), [], "must be an object"),
    (("memory",), 1, "must be an object"),
    (("memory",), {}, "certificate .* be there"),
])  # fmt: skip
def test_facts_that_are_not_facts_are_refused(path, value, match, boosted, forge):
    refused(forge.with_fact(boosted, setting(path, value)), match)


# -- policies ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("where", [("chain", "policy"), ("memory", "policy")])
@pytest.mark.parametrize(("name", "value", "match"), [
    ("lower", 99, r"lower .*\[0, "),
    ("lower", -1, r"lower .*\[0, "),
    ("upper", 10**30, r"lower .*\[0, "),
    ("upper", True, "whole number"),
    ("upper", 0.0, "whole number"),
    ("share", 1.5, "share"),
    ("share", -0.1, "share"),
    ("share", {"$float": "nan"}, "share"),
    ("share", "0.5", "share"),
    ("seed", -1, "seed"),
    ("seed", 2**63, "seed"),
    ("thresholds", None, "be an array"),
    ("thresholds", [[0.0]], "be an array"),
    ("cost", 3, "be an array"),
])  # fmt: skip
def test_a_policy_whose_numbers_are_none_is_refused(where, name, value, match, cascade, forge):
    refused(forge.with_fact(cascade, setting((*where, name), value)), match)


@pytest.mark.slow
@pytest.mark.parametrize("where", [("chain", "policy"), ("memory", "policy")])
@pytest.mark.parametrize(("name", "change", "match"), [
    ("thresholds", lambda old: np.where(old == old[0, 0], np.nan, old), "thresholds .* be numbers"),
    ("thresholds", lambda old: old[:, :-1], "thresholds .* shape"),
    ("thresholds", lambda old: np.hstack([old, old]), "thresholds .* shape"),
    ("thresholds", lambda old: old[:-1], "thresholds .* shape"),
    ("thresholds", lambda old: old.ravel(), "thresholds .* shape"),
    ("thresholds", lambda old: old.astype(np.float32), "thresholds .* of type float64"),
    ("cost", lambda old: old[::-1].copy(), "cost .* rise"),
    ("cost", lambda old: -old[::-1], "cost .* rise"),
    ("cost", lambda old: np.r_[old[:-1], np.inf], "cost .* be finite"),
    ("cost", lambda old: np.r_[np.nan, old[1:]], "cost .* be finite"),
    ("cost", lambda old: old[:0], "thresholds .* shape"),
    ("score", lambda old: np.r_[old[:-1], np.inf], "score .* be finite"),
    ("score", lambda old: old[:2], "score .* shape"),
    ("score", lambda old: old.astype(str), "score .* of type float64"),
])  # fmt: skip
def test_a_policy_whose_points_are_none_is_refused(where, name, change, match, cascade, forge):
    reference = at(*where, name)
    shown = array_of(cascade, forge, reference, "<f8")
    refused(forge.with_array(cascade, reference, change(shown)), match)


def test_a_policy_of_another_chain_is_refused(cascade, boosted, forge):
    for change in (
        lambda manifest: manifest["chain"]["stages"].pop(),
        lambda manifest: manifest["chain"]["stages"].append(manifest["chain"]["stages"][-1]),
    ):
        refused(forge.with_fact(cascade, change), "thresholds .* shape")
        refused(forge.with_fact(boosted, change), "thresholds .* shape|have a stage")


def test_a_cascade_whose_points_have_no_cost_is_refused(cascade, forge):
    reference = at("memory", "policy", "cost")
    unknown = np.full_like(array_of(cascade, forge, reference, "<f8"), np.nan)
    refused(forge.with_array(cascade, reference, unknown), "be known at every point")


# -- cascades and chains within one another ------------------------------------------------------


def test_stages_that_do_not_build_on_one_another_are_refused(cascade, forge):
    refused(forge.with_fact(cascade, lambda manifest: manifest["chain"]["stages"].reverse()), "include those")


def test_an_estimator_is_not_taken_for_another(cascade, forge):
    refused(
        forge.with_fact(cascade, lambda manifest: manifest.update({"class": "ConfidenceRouter"})),
        "suit the kind of chain",
    )


def test_chains_within_chains_without_end_are_refused(linear, forge):
    def change(manifest):
        inner = manifest["chain"]
        for _ in range(30):
            inner = {
                **manifest["chain"],
                "full": {"type": "chain", "object": {"kind": "chain", "chain": inner}},
            }
        manifest["chain"] = inner

    refused(forge.with_fact(linear, change), "at most 8 chains and estimators within one another")


def inner(manifest):
    return manifest["chain"]["full"]["object"]


@pytest.mark.parametrize(("change", "match"), [
    (lambda part: part.update(kind="estimator"), "class .* be there"),
    (lambda part: part["chain"].update(full_cost=3.0), "One route has one price list"),
    (lambda part: part["chain"].update(classes={"$objects": ["no", "yes"]}), "Both must agree"),
    (lambda part: part["chain"].update(full_columns=part["chain"]["group_of"]), None),
    (lambda part: part["chain"]["policy"].update(lower=50), "lower"),
    (lambda part: part["chain"]["stages"].pop(), "thresholds .* shape"),
    (lambda part: part.pop("chain"), "chain .* be there"),
    (lambda part: part["chain"].update(full=3), "must be an object"),
])  # fmt: skip
def test_a_chain_behind_a_stage_must_suit_it(change, match, fitted, forge):
    data = forge.with_fact(to_bytes(fitted["nested"], full="absent"), lambda m: change(inner(m)))
    if match is None:  # the numbers 0, 1, ..., which name every column: what None says too
        assert from_bytes(data).chain_.n_stages == fitted["nested"].chain_.n_stages
        return
    refused(data, match)


def test_a_chain_behind_a_stage_for_other_columns_is_refused(fitted, linear, forge):
    manifest, blobs = forge.taken_apart(linear)
    front, front_blobs = forge.taken_apart(to_bytes(fitted["linear"], full="absent"))

    def moved(node):
        if isinstance(node, dict):
            return {
                key: value + len(front_blobs) if key == "$array" else moved(value)
                for key, value in node.items()
            }
        return [moved(item) for item in node] if isinstance(node, list) else node

    behind = {"kind": "chain", "chain": moved(manifest["chain"])}
    front["chain"]["full"] = {"type": "chain", "object": behind}
    front["entries"] += manifest["entries"]
    refused(forge.sealed(front, front_blobs + blobs), "be a chain for 12 columns")


# -- what operating points were judged on --------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("name", "made", "match"), [
    ("gate", lambda k: np.zeros((0, k)), "have a row"),
    ("gate", lambda k: np.zeros((4, k - 1)), "gate .* shape"),
    ("gate", lambda k: np.zeros(k), "gate .* shape"),
    ("gate", lambda k: np.zeros((4, k)), "(quality|weight) .* shape"),
    ("gate", lambda k: np.full((4, k), np.nan), "gate .* finite"),
    ("quality", lambda k: np.ones((4, k + 1), dtype=bool), "quality .* shape"),
    ("quality", lambda k: np.ones((4, k + 1), dtype=np.int64), "quality .* of type float64"),
    ("full_quality", lambda k: np.ones(4, dtype=bool), "full_quality .* shape"),
    ("cost", np.ones, "cost .* shape"),
    ("cost", lambda k: -np.ones(k + 1), "cost .* at least 0"),
    ("cost", lambda k: np.full(k + 1, np.inf), "cost .* finite"),
    ("cost", lambda k: np.ones((4, k + 1)), "cost .* shape"),
    ("points", lambda k: np.full((1, k), np.nan), "points must hold"),
    ("points", lambda k: np.zeros((0, k)), "points must hold"),
    ("points", lambda k: np.zeros((1, k - 1)), "points .* shape"),
    ("points", np.zeros, "points .* shape"),
])  # fmt: skip
def test_evidence_of_another_form_is_refused(name, made, match, fitted, proved, forge):
    n_stages = fitted["proved"].n_stages_
    assert n_stages > 1
    refused(forge.with_array(proved, at("evidence", name), made(n_stages)), match)


@pytest.mark.parametrize(("weight", "match"), [
    (np.zeros(1), "weight .* shape"),
    (np.nan, "weight .* finite"),
    (-1.0, "weight .* at least 0"),
    (0.0, "not all 0"),
])  # fmt: skip
def test_weights_that_weigh_nothing_are_refused(weight, match, fitted, forge):
    weighted = copy.copy(fitted["proved"])
    twice = np.full(weighted.evidence_.n_rows, 2.0)
    weighted.evidence_ = replace(weighted.evidence_, weight=twice)
    wrong = np.full_like(twice, weight) if np.isscalar(weight) else weight
    refused(forge.with_array(to_bytes(weighted, full="absent"), at("evidence", "weight"), wrong), match)


@pytest.mark.parametrize(("path", "value", "match"), [
    (("evidence", "points"), None, "points .* be there"),
    (("evidence", "gate"), None, "be an array"),
    (("evidence", "quality"), True, "be an array"),
    (("evidence", "cost"), [1.0], "be an array"),
    (("memory", "blend"), 1.0, "blend .* be an array"),
    (("memory", "certificate"), 3, "certificate .* be one"),
    (("memory", "certificate"), {"$dict": []}, "certificate .* be one"),
])  # fmt: skip
def test_a_memory_of_another_form_is_refused(path, value, match, proved, forge):
    refused(forge.with_fact(proved, setting(path, value)), match)


@pytest.mark.parametrize("part", ["policy", "blend"])
def test_a_memory_that_lacks_a_part_is_refused_by_its_name(part, proved, forge):
    wrong = forge.with_fact(proved, lambda manifest: manifest["memory"].pop(part))
    refused(wrong, f"{part} .* be there")


@pytest.mark.parametrize(("name", "value"), [
    ("max_loss", "0.2"), ("n_rows", 3.0), ("n_rows", True), ("n_losses", None), ("bound", 1), ("is_fallback", 0),
    ("failed_losses", "many"), ("failed_bound", 7), ("point", {"$dict": []}), ("point", 3),
])  # fmt: skip
def test_a_certificate_that_is_none_is_refused(name, value, proved, forge):
    def change(manifest):
        entries = manifest["memory"]["certificate"]["$dict"]
        entry = next(pair for pair in entries if pair[0] == name)
        entry[1] = value

    refused(forge.with_fact(proved, change), "certificate")


def test_a_file_without_a_memory_answers_and_says_what_it_cannot_do(fitted, forge, rows):
    before = fitted["cascade"]
    data = forge.with_fact(to_bytes(before), lambda manifest: manifest.update(memory=None, evidence=None))
    again = from_bytes(data)
    np.testing.assert_array_equal(again.predict_proba(rows[0]), before.predict_proba(rows[0]))
    with pytest.raises(InvalidInputError, match="needs the rows"):
        again.at(max_loss=0.1)


def test_prices_whose_sum_is_infinite_are_refused(fitted, forge):
    data = to_bytes(fitted["boosted"], full="absent")
    n_prices = fitted["boosted"].chain_.price_list.prices.size
    with pytest.raises(InvalidInputError, match="prices .* must have a finite sum"):
        from_bytes(forge.with_array(data, lambda facts: facts["chain"]["prices"], np.full(n_prices, 1.7e308)))


@pytest.fixture(scope="module")
def of_levels():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"kind": [f"kind {one}" for one in rng.integers(0, 6, 200)], "size": rng.normal(size=200)}
    )
    y = table["kind"].isin(["kind 1", "kind 4"]) ^ (table["size"] > 1)
    return to_bytes(
        DynaModGbrtClassifier(n_trees=3, gamma=0.0, max_iter=1, tol=1.0, cv=2, random_state=0).fit(table, y)
    )


SETS = ("chain", "stages", 0, "cheap", "sets")
LEVELS = ("chain", "levels")


@pytest.mark.slow
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
    array = array_of(of_levels, forge, at(*SETS, name), "<i4")
    assert len(array) > 1
    refused(forge.with_array(of_levels, at(*SETS, name), change(array).astype("<i4")), told)


@pytest.mark.parametrize(
    ("levels", "told"),
    [
        ({"1": [f"kind {one}" for one in range(6)]}, "ask for levels of columns that have them"),
        ({"0": ["kind 0", "kind 1"]}, "ask for levels of columns that have them"),
        ({"0": ["kind 0", "kind 0"]}, "be lists of distinct text"),
        ({"9": ["kind 0"]}, "be lists of distinct text"),
        (["kind 0"], "be lists of distinct text"),
    ],
)
def test_levels_that_are_not_those_of_the_sets_are_refused(of_levels, forge, levels, told):
    refused(forge.with_fact(of_levels, setting(LEVELS, levels)), told)
