"""ONNX graphs of a device model: one for each stage, so that columns are bought lazily, and one of the whole system.

Trees are nodes ``TreeEnsemble`` of ai.onnx.ml 5 in double precision. A leaf of that operator has one value, so that
trees with several outputs are written once for each. ONNX Runtime sends a missing value into a set of more than 32
levels even where the node sends it elsewhere. So a missing level is -1 here, and a member of the sets it belongs to.
"""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from thrifty.device.model import DeviceModel, DeviceStage, node_sets, point_table
from thrifty.engine.trees import TreeEnsemble
from thrifty.errors import InvalidInputError

OPSET, ML_OPSET, IR_VERSION = 21, 5, 10
"""Versions of the operators, of those of ai.onnx.ml, and of the format."""

AT_MOST, MEMBER = 0, 6
"""Questions of nodes, as ``TreeEnsemble`` numbers them."""

MISSING, NOTHING = -1.0, -2.0
"""Number of a missing level, and one that no row has: a set must have a member."""


class _Graph:
    """Nodes and constants of a graph, as they are added."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, kind: Any = np.float64) -> str:
        """Name of a constant."""
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype=kind), name))
        return name

    def add(self, operator: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """Name of the first output of a new node."""
        from onnx import helper

        domain = "ai.onnx.ml" if operator == "TreeEnsemble" else ""
        names = [out or f"{operator}_{len(self.nodes)}"] + ["order"] * (operator == "TopK")
        names[1:] = [f"{names[0]}_{name}" for name in names[1:]]
        self.nodes.append(helper.make_node(operator, inputs, names, domain=domain, **attributes))
        return names[0]

    def cast(self, value: str, kind: str, out: str = "") -> str:
        """Numbers as another type."""
        from onnx import TensorProto

        return self.add("Cast", value, to=getattr(TensorProto, kind), out=out)

    def column(self, table: str, number: int) -> str:
        """One column of a table, as a table."""
        return self.add("Gather", table, self.constant([number], np.int64), axis=1)

    def file(self, inputs: dict[str, Any], outputs: dict[str, Any], about: dict[str, Any]) -> bytes:
        """The graph as a file; inputs and outputs have a type and a shape."""
        from onnx import TensorProto, helper

        ends = [
            [
                helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape)
                for name, (kind, shape) in some
            ]
            for some in (inputs.items(), outputs.items())
        ]
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        read = {name for node in self.nodes for name in node.input}
        constants = [constant for constant in self.constants if constant.name in read]
        graph = helper.make_graph(self.nodes, "thrifty", *ends, initializer=constants)
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="thrifty")
        helper.set_model_props(model, {"thrifty": json.dumps(about)})
        data: bytes = model.SerializeToString()
        return data


def onnx_files(model: DeviceModel, identity: str, version: str) -> dict[str, bytes]:
    """Files of every stage and of the whole system, by name.

    ``thrifty_stage_N.onnx`` reads ``x``, the columns that a row holds in the order of purchase, and ``carried`` where
    the stage before gave it; ``thrifty_model.onnx`` reads all columns in the order of the table, the key of every row,
    and the number of an operating point. Their metadata ``thrifty`` is JSON.
    """
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise InvalidInputError(
            "exporting to ONNX needs the package onnx. Install it, or thrifty with the extra onnx."
        ) from error

    about = _metadata(model, identity, version)
    files = {}
    for place, stage in enumerate(model.stages):
        graph, shape = _Graph(), ("DOUBLE", ["rows", model.n_scores])
        inputs: dict[str, Any] = {"x": ("DOUBLE", ["rows", stage.n_held])}
        carried = graph.constant([model.base])
        if stage.carries and place:
            carried, inputs["carried"] = "carried", shape
        sums, scores, gate = _stage(graph, model, stage, "x", carried)
        graph.add("Identity", sums, out="sums")
        _scaled(graph, model, scores, "scores")
        graph.add("Reshape", gate, graph.constant([-1], np.int64), out="gate")
        outputs = {"scores": shape, "gate": ("DOUBLE", ["rows"]), "sums": shape}
        held = [model.names[column] for column in model.order[: stage.n_held]]
        files[f"thrifty_stage_{place}.onnx"] = graph.file(
            inputs, outputs, about | {"stage": place, "held": held}
        )
    return files | {"thrifty_model.onnx": _whole(model, about)}


def _metadata(model: DeviceModel, identity: str, version: str) -> dict[str, Any]:
    """Names, levels, prices and policy."""
    thresholds, points = point_table(model)
    largest = np.finfo(np.float64).max
    return {
        "identity": identity,
        "version": version,
        "columns": model.names,
        "levels": {model.names[column]: levels for column, levels in model.levels.items()},
        "classes": model.classes,
        "order": [model.names[column] for column in model.order],
        "n_held": [stage.n_held for stage in model.stages],
        "cost": model.cost.tolist(),
        "thresholds": np.clip(thresholds, -largest, largest).tolist(),
        # Words of 64 bits, which not every reader of JSON keeps.
        "points": [
            {"lower": lower, "upper": upper, "seed": str(seed), "limit": str(limit)}
            for lower, upper, seed, limit in points
        ],
    }


def _whole(model: DeviceModel, about: dict[str, Any]) -> bytes:
    """The graph that takes every row through all stages, and says at which it stops."""
    graph, n_stages = _Graph(), len(model.stages)
    in_order = graph.add("Gather", "x", graph.constant(model.order, np.int64), axis=1)
    limits = _limits(graph, model)
    carried, stops, scores = graph.constant([model.base]), [], []
    for place, stage in enumerate(model.stages):
        held = graph.add("Gather", in_order, graph.constant(np.arange(stage.n_held), np.int64), axis=1)
        carried, score, gate = _stage(graph, model, stage, held, carried)
        goes_on = graph.add("Greater", gate, graph.column(limits, place))
        stops.append(graph.add("Not", goes_on))
        scores.append(score)
    route, last = graph.constant([[n_stages]], np.int64), scores[-1]
    for place in range(n_stages - 1, -1, -1):
        route = graph.add("Where", stops[place], graph.constant(place, np.int64), route)
        last = graph.add("Where", stops[place], scores[place], last)
    flat = graph.constant([-1], np.int64)
    graph.add("Reshape", route, flat, out="route")
    paid = model.cost[[stage.n_held for stage in model.stages] + [len(model.order)]]
    graph.add("Gather", graph.constant(paid), "route", out="cost")
    _scaled(graph, model, last, "scores")
    outputs = {"route": ("INT64", ["rows"]), "scores": ("DOUBLE", ["rows", model.n_scores])}
    if model.classes and model.n_scores == 1:
        second = graph.cast(graph.add("Greater", last, graph.constant(0.0)), "INT64")
        graph.add("Reshape", second, flat, out="label")
    elif model.classes:
        graph.add("ArgMax", last, axis=1, keepdims=0, out="label")
    outputs |= {"label": ("INT64", ["rows"])} if model.classes else {}
    inputs = {"x": ("DOUBLE", ["rows", len(model.names)]), "key": ("INT64", ["rows"]), "point": ("INT64", [])}
    return graph.file(inputs, outputs | {"cost": ("DOUBLE", ["rows"])}, about)


def _limits(graph: _Graph, model: DeviceModel) -> str:
    """Thresholds of each row at an operating point, by its key."""
    thresholds, points = point_table(model)
    lower, upper, seeds, limits = (list(column) for column in zip(*points, strict=True))
    table = graph.constant(thresholds)

    def at_point(values: Iterable[int], kind: Any = np.int64) -> str:
        return graph.add("Gather", graph.constant(np.array(list(values), dtype=kind), kind), "point")

    def mixed(word: str) -> str:
        """The word as ``key_chance`` mixes it: sums and products are signed here, shifts are not."""
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            bits = graph.cast(word, "UINT64")
            moved = graph.add("BitShift", bits, graph.constant(shift, np.uint64), direction="RIGHT")
            bits = graph.add("BitwiseXor", bits, moved)
            signed = np.uint64(factor).astype(np.int64)
            word = graph.add("Mul", graph.cast(bits, "INT64"), graph.constant(signed, np.int64))
        return word

    seed = at_point(np.array(seeds, dtype=np.uint64).astype(np.int64))
    word = mixed(graph.add("Add", mixed(graph.add("Add", "key", graph.constant(1, np.int64))), seed))
    bits = graph.cast(word, "UINT64")
    chance = graph.cast(
        graph.add("BitShift", bits, graph.constant(11, np.uint64), direction="RIGHT"), "INT64"
    )
    follows = graph.add(
        "Reshape", graph.add("Less", chance, at_point(limits)), graph.constant([-1, 1], np.int64)
    )
    rows = [graph.add("Gather", table, at_point(row)) for row in (upper, lower)]
    return graph.add("Where", follows, *rows)


def _stage(
    graph: _Graph, model: DeviceModel, stage: DeviceStage, x: str, carried: str
) -> tuple[str, str, str]:
    """Sums to carry on, calibrated scores and gate of a stage, from the columns a row holds."""
    n_scores = model.n_scores
    is_level = np.array([column in model.levels for column in model.order[: stage.n_held]], dtype=bool)
    if is_level.any():
        is_missing = graph.add("And", graph.add("IsNaN", x), graph.constant(is_level, bool))
        x = graph.add("Where", is_missing, graph.constant(MISSING), x)
    sums = _trees(graph, model, stage, stage.trees, x)
    gate = graph.constant([[0.0]])
    sums = graph.add("Add", carried if stage.carries else graph.constant([stage.start]), sums)
    if stage.gate_first:
        gate = graph.column(sums, 0)
        sums = graph.add("Gather", sums, graph.constant(np.arange(n_scores) + 1, np.int64), axis=1)
    scores = graph.add("Mul", sums, graph.constant(stage.slope))
    scores = graph.add("Add", scores, graph.constant([stage.shift]))
    if stage.gate is not None:
        read = graph.add("Concat", x, scores, axis=1)
        summed = _trees(graph, model, stage, stage.gate, read)
        gate = graph.add("Add", graph.constant(stage.gate_start), summed)
    if stage.margin:
        doubt = graph.add("Mul", graph.constant(stage.margin), _uncertainty(graph, model, scores))
        gate = graph.add("Sub", gate, doubt)
    return sums, scores, gate


def _uncertainty(graph: _Graph, model: DeviceModel, scores: str) -> str:
    """Minus the margin between the two best classes; 0 for a number."""
    if not model.classes:
        return graph.add("Mul", graph.column(scores, 0), graph.constant(0.0))
    if model.n_scores == 1:
        return graph.add("Neg", graph.add("Abs", scores))
    best = graph.add("TopK", scores, graph.constant([2], np.int64))
    return graph.add("Sub", graph.column(best, 1), graph.column(best, 0))


def _scaled(graph: _Graph, model: DeviceModel, scores: str, out: str) -> None:
    """Scores as a user sees them: those of classes, or the predicted number."""
    if model.classes:
        graph.add("Identity", scores, out=out)
        return
    wide = graph.add("Mul", scores, graph.constant(model.spread))
    graph.add("Add", wide, graph.constant(model.centre), out=out)


def _trees(graph: _Graph, model: DeviceModel, stage: DeviceStage, trees: TreeEnsemble, x: str) -> str:
    """Sums of the leaves that rows reach; scores follow the columns that the stage holds."""
    from onnx import numpy_helper

    values, roots = trees.values, trees.roots
    if not trees.n_trees:
        values, roots = np.zeros((1, trees.n_outputs)), np.array([~0])
    # A tree without splits is a split whose sides are one leaf.
    bare = np.flatnonzero(roots < 0)
    n_nodes, n_leaves = len(trees.feature), len(values)
    children = np.concatenate([trees.children.reshape(-1, 2), np.repeat(roots[bare], 2).reshape(-1, 2)])
    roots = roots.copy()
    roots[bare] = n_nodes + np.arange(len(bare))
    n_order = len(model.order)
    feature = np.where(trees.feature < n_order, trees.feature, trees.feature - n_order + stage.n_held)
    sets = node_sets(trees, model)
    modes = np.full(len(children), AT_MOST, dtype=np.uint8)
    modes[list(sets)] = MEMBER
    members: list[Any] = []
    for node in sorted(sets):
        missing = [MISSING] if trees.missing_left[node] else []
        members += [
            *missing,
            *sets[node].tolist(),
            *([] if missing or len(sets[node]) else [NOTHING]),
            np.nan,
        ]
    copies = np.arange(trees.n_outputs)
    is_leaf = children < 0
    step = np.where(is_leaf, n_leaves, len(children))
    target = np.concatenate([np.where(is_leaf, ~children, children) + copy * step for copy in copies])

    def padded(array: Any, value: Any) -> Any:
        return np.tile(np.r_[array, np.full(len(bare), value)], len(copies))

    return graph.add(
        "TreeEnsemble",
        x,
        n_targets=len(copies),
        aggregate_function=1,
        post_transform=0,
        tree_roots=np.concatenate([roots + copy * len(children) for copy in copies]).tolist(),
        nodes_featureids=padded(feature, 0).astype(np.int64).tolist(),
        nodes_splits=numpy_helper.from_array(padded(trees.threshold, np.inf)),
        nodes_modes=numpy_helper.from_array(np.tile(modes, len(copies))),
        nodes_truenodeids=target[:, 0].tolist(),
        nodes_falsenodeids=target[:, 1].tolist(),
        nodes_trueleafs=np.tile(is_leaf[:, 0], len(copies)).astype(np.int64).tolist(),
        nodes_falseleafs=np.tile(is_leaf[:, 1], len(copies)).astype(np.int64).tolist(),
        nodes_missing_value_tracks_true=padded(trees.missing_left, 0).astype(np.int64).tolist(),
        leaf_targetids=np.repeat(copies, n_leaves).tolist(),
        leaf_weights=numpy_helper.from_array(values.T.ravel()),
        **({"membership_values": numpy_helper.from_array(np.array(members * len(copies)))} if sets else {}),
    )
