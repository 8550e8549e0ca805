"""Exported C and ONNX, run here: the same purchases, routes, labels and scores as the system in Python."""

import subprocess
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import thrifty
from tests.device.conftest import SMALL, on_thresholds
from tests.device.targets import in_onnx, needs, on_host, run
from thrifty import (
    BudgetedRegressor,
    DynaModGbrtClassifier,
    DynaModLinClassifier,
    StageOptions,
)
from thrifty.cli import main
from thrifty.device.model import with_leaves
from thrifty.engine.table.table import Table
from thrifty.engine.trees.other_libraries import additive_trees
from thrifty.engine.walk.stage import nodes_of
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod import BoostedOptions


def assert_same_ways(system, folder, X, point=0, **settings):
    chain = with_leaves(getattr(system, "chain_", system), settings.get("leaves", "float32"))
    if point:
        chain = chain.at(chain.policy.within(settings["budgets"][point - 1]))
    X = X.astype(np.float32)
    exported = thrifty.export(system, folder / "c", **settings)
    there = on_host(exported.files[1], folder, X, point)
    if find_spec("onnxruntime") and settings.get("layout") != "code":  # graphs have no layout
        given = {"budgets": settings.get("budgets", ()), "point": point}
        in_graphs = in_onnx(exported.system, folder / "onnx", X, **given)
        np.testing.assert_array_equal(in_graphs.view(np.int64), there.view(np.int64))
    walk = chain.walker.walk(Table(X.astype(np.float64), None), np.arange(len(X)), chain.policy)
    n_stages, task = len(chain.stages), chain.task
    route = np.where(there[:, 0] == -2, n_stages, there[:, 1])
    np.testing.assert_array_equal(route, walk.route)
    nodes = [nodes_of(stage) for stage in chain.stages]
    for row, place in enumerate(np.minimum(walk.route, n_stages - 1)):
        bought = there[row, 5 : 5 + int(there[row, 3])] - 1
        held = nodes[place][0 if walk.node is None else walk.node[row]].columns.tolist()
        assert sorted(bought) == sorted(held)
        assert walk.node is not None or bought.tolist() == chain.walker.held_at(place).tolist()
    scores = there[:, 5 + X.shape[1] :]
    if len(task.classes):
        np.testing.assert_array_equal(there[:, 2], task.best(walk.scores))
        np.testing.assert_array_equal(scores, walk.scores)
    else:
        np.testing.assert_array_equal(scores, walk.scores * task.spread + task.centre)
    answered = walk.route < n_stages
    paid = chain.cost_by_place[chain.places(walk)][answered]
    np.testing.assert_allclose(there[answered, 4], paid, rtol=1e-6)
    return route


@pytest.mark.parametrize(("leaves", "layout"), [("float32", "table"), ("int16", "table"), ("int16", "code")])
def test_two_classes_at_a_mix_of_points(mixed, mixed_rows, tmp_path, leaves, layout):
    assert mixed.chain_.policy.is_mixed
    route = assert_same_ways(mixed, tmp_path, mixed_rows, leaves=leaves, layout=layout)
    assert len(np.unique(route)) > 2


def test_other_points_are_switched_to_at_run_time(mixed, cancer, tmp_path):
    assert_same_ways(mixed.chain_, tmp_path, cancer[0], point=2, budgets=[1.2, 3.5])


def test_several_classes(wine, tmp_path):
    assert_same_ways(wine[0], tmp_path, wine[1])


def test_onnx_with_two_threads_has_the_same_routes_and_scores_but_for_rounding(wine, tmp_path):
    one, two = (in_onnx(wine[0].chain_, tmp_path / "c", wine[1][:5], n_threads) for n_threads in (1, 2))
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-12)


def test_numbers(tmp_path):
    X, y = load_diabetes(return_X_y=True)
    full = y + np.random.default_rng(1).normal(scale=30, size=len(y))
    reg = BudgetedRegressor(full, budget=3.1, stages=StageOptions(4, [(20, 3)]), **SMALL).fit(X, y)
    assert_same_ways(reg, tmp_path, on_thresholds(reg.chain_, X, np.random.default_rng(0)))


@pytest.mark.parametrize("layout", ["table", "code"])
def test_a_pair_of_dynamod(cancer, tmp_path, layout):
    X, y = cancer
    one = DynaModGbrtClassifier(
        LogisticRegression(solver="newton-cholesky"),
        gamma=0.05,
        options=BoostedOptions(n_trees=10, max_iter=3, tol=1.0),
        **SMALL,
    ).fit(X, y)
    assert_same_ways(one, tmp_path, X, layout=layout)


@pytest.mark.parametrize("system", ["towns", "many_towns"], ids=["12 levels", "300 levels"])
def test_sets_of_levels_with_unknown_and_missing_ones(request, tmp_path, system):
    clf, numbers = request.getfixturevalue(system)
    assert_same_ways(clf, tmp_path, numbers)
    header = (tmp_path / "c" / "thrifty_model.h").read_text()
    program = (tmp_path / "c" / "thrifty_model.c").read_text()
    assert "#define THRIFTY_HAS_SETS 1\n" in program
    assert "THRIFTY_COLUMN_SIZE_M = 1" in header
    assert "THRIFTY_LEVEL_TOWN_TOWN_3" in header


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["table", "code"])
@pytest.mark.parametrize("classes", ["two classes", "ten classes"])
def test_rows_of_a_tree_of_purchases_choose_what_they_buy_next(request, tmp_path, classes, layout):
    clf, X = request.getfixturevalue("trees_of_purchases")[classes]
    assert clf.chain_.policy.is_mixed
    route = assert_same_ways(clf, tmp_path, X, layout=layout)
    assert len(np.unique(route)) > 2
    assert "#define THRIFTY_HAS_TREE 1\n" in (tmp_path / "c" / "thrifty_model.c").read_text()


def test_a_session_of_a_tree_takes_the_bytes_that_are_announced_and_needs_no_library(
    trees_of_purchases, tmp_path
):
    needs("gcc", "nm")
    for name, (clf, _) in trees_of_purchases.items():
        exported = thrifty.export(clf, tmp_path / name)
        assert exported.flash_bytes is None
        program = '#include "thrifty_model.h"\nint size[sizeof(thrifty_session) == %d ? 1 : -1];\n'
        (tmp_path / "size.c").write_text(program % exported.state_bytes)
        run("gcc", "-std=c99", f"-I{tmp_path / name}", "-c", tmp_path / "size.c", "-o", tmp_path / "size.o")
        run("gcc", "-std=c99", "-O3", "-ffreestanding", "-c", exported.files[1], "-o", tmp_path / "model.o")
        assert not run("nm", "-u", tmp_path / "model.o", capture_output=True).stdout.strip()


def test_a_session_refuses_what_was_not_asked_for_and_infinite_values(mixed, tmp_path):
    needs("gcc")
    exported = thrifty.export(mixed, tmp_path / "c")
    (tmp_path / "refusals.c").write_text(
        '#include "thrifty_model.h"\n'
        "int main(void) { thrifty_session s; thrifty_start(&s, 1);\n"
        "  if (thrifty_label(&s) != -1 || thrifty_give(&s, 1e39f * 10) != THRIFTY_REFUSED) return 1;\n"
        "  while (thrifty_next(&s) >= 0) if (thrifty_give_missing(&s)) return 2;\n"
        "  return thrifty_give(&s, 1.0f) == THRIFTY_REFUSED ? 0 : 3; }\n"
    )
    program = tmp_path / "refusals"
    sources = [exported.files[1], tmp_path / "refusals.c"]
    run("gcc", "-std=c99", "-w", f"-I{tmp_path / 'c'}", *sources, "-o", program)
    assert subprocess.run([program], check=False).returncode == 0


@pytest.mark.parametrize("kind", ["16 bits", "32 bits", "looked up", "code"])
def test_thresholds_beyond_single_precision_and_sums_of_the_largest_leaves(mixed, mixed_rows, tmp_path, kind):
    rng, stages = np.random.default_rng(0), []
    for stage in mixed.chain_.stages:
        threshold, values = stage.trees.threshold.copy(), np.sign(stage.trees.values)
        if kind == "16 bits":
            threshold = (
                (threshold.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32).astype(float)
            )
        elif kind == "32 bits":
            threshold *= 1 + 1e-3 * rng.normal(size=len(threshold))
        extremes = (np.inf, -np.inf, 1e300, -1e300, 1e-300, -1e-300, 0.1)
        for limit in extremes[:2] if kind == "16 bits" else extremes:
            threshold[rng.random(len(threshold)) < 0.05] = limit
        stages.append(replace(stage, trees=replace(stage.trees, threshold=threshold, values=values)))
    X = mixed_rows.copy()
    for value in (np.float32(0.1), -0.0, 1e-45, -1e-45, np.finfo(np.float32).max, np.finfo(np.float32).min):
        X[rng.random(X.shape) < 0.02] = value
    X[rng.random(X.shape) < 0.02] = np.uint32(0xFFC00000).view(np.float32)  # NaN of another sign
    chain = replace(mixed.chain_, stages=tuple(stages))
    assert_same_ways(chain, tmp_path, X, leaves="int16", layout="code" if kind == "code" else "table")
    program = (tmp_path / "c" / "thrifty_model.c").read_text()
    for name, flag in {"16 bits": "SHORT_CUTS", "looked up": "LOOKS_UP", "code": "IS_CODE"}.items():
        assert f"#define THRIFTY_{flag} {int(kind == name)}\n" in program


def test_trees_of_more_splits_and_columns_of_more_thresholds_than_a_byte_can_count(mixed, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.integers(400, size=(1000, 30)) / 10, rng.integers(2, size=1000)
    forest = RandomForestClassifier(3, max_leaf_nodes=300, random_state=0).fit(X[:, :1], y)
    trees = additive_trees(forest, 1).trees
    stages = [replace(one, trees=replace(trees, n_features=len(one.columns))) for one in mixed.chain_.stages]
    X[rng.random(X.shape) < 0.03] = np.nan
    assert_same_ways(replace(mixed.chain_, stages=tuple(stages)), tmp_path, X[:300], leaves="int16")
    program = (tmp_path / "c" / "thrifty_model.c").read_text()
    for kind in ("cut", "size", "link"):
        assert f"typedef uint16_t thrifty_{kind};" in program


def test_a_compiler_that_drops_missing_values_is_refused(mixed, tmp_path):
    needs("gcc")
    source = thrifty.export(mixed, tmp_path / "c").files[1]
    asked = ["gcc", "-std=c99", "-O2", "-ffast-math", "-c", source, "-o", tmp_path / "model.o"]
    refused = subprocess.run(asked, check=False, capture_output=True, text=True)
    assert refused.returncode
    assert "without -ffast-math" in refused.stderr


def test_the_command_writes_source_and_counts_rows_that_move(mixed, cancer, tmp_path, capsys):
    thrifty.save(mixed, tmp_path / "system.thrifty", full="absent")
    pd.DataFrame(cancer[0], columns=[f"x{column}" for column in range(30)]).to_csv(
        tmp_path / "rows.csv", index=False
    )
    given = ["export", str(tmp_path / "system.thrifty"), "-o", str(tmp_path / "c"), "--leaves", "int16"]
    loaded = thrifty.load(tmp_path / "system.thrifty")
    whole = [thrifty.export(one, tmp_path / name) for name, one in {"a": mixed, "b": loaded}.items()]
    assert whole[0].identity == whole[1].identity
    limit = ["--max-flash", "8k"]
    assert main([*given, *limit, "--budget", "1.5", "--rows", str(tmp_path / "rows.csv")]) == 0
    assert len(thrifty.load(tmp_path / "c" / "system.thrifty").stages) > 1
    shown = capsys.readouterr().out
    assert "bytes on a Cortex-M4" in shown
    assert "rows of the table" in shown
    assert "in the mean of the table" in shown
    assert "#define THRIFTY_N_POINTS 2" in (tmp_path / "c" / "thrifty_model.h").read_text()
    if find_spec("onnx"):
        assert main([*given[:3], str(tmp_path / "graphs"), "--to", "onnx"]) == 0
        assert "thrifty_stage_0.onnx" in capsys.readouterr().out
    assert main(given) == 2
    assert "is not empty" in capsys.readouterr().err


def test_what_a_device_cannot_do_is_refused_before_anything_is_written(
    mixed, trees_of_purchases, cancer, tmp_path
):
    X, y = cancer
    linear = DynaModLinClassifier(GaussianNB(), gamma=0.1, **SMALL).fit(X[:, :4], y)
    cases = {
        "has a LinearStage": (linear, {}),
        "must be .c. or .onnx.": (mixed, {"to": "java"}),
        "settings of C": (mixed, {"to": "onnx", "max_flash": "8k"}),
        "float32. or .int16": (mixed, {"leaves": "int8"}),
        "only the compiler knows": (mixed, {"layout": "code", "max_flash": "8k"}),
        "budget must be at least": (mixed, {"budgets": [0.01]}),
        "needs a chain": (LogisticRegression(), {}),
        "chain in front of a chain": (mixed.chain_.with_full(mixed.chain_), {}),
        "settings of lines": (trees_of_purchases["two classes"][0], {"leaves": "int16"}),
    }
    for told, (system, settings) in cases.items():
        with pytest.raises(InvalidInputError, match=told):
            thrifty.export(system, tmp_path / "c", **settings)
    assert not (tmp_path / "c").exists()
