"""ONNX graphs of a device model: one for each stage, so that columns are bought lazily, and one of the whole system.

Trees are nodes ``TreeEnsemble`` of ai.onnx.ml 5 in double precision. A leaf of that operator has one value, so that
trees with several outputs are written once for each. ONNX Runtime sends a missing value into a set of more than 32
levels even where the node sends it elsewhere. So a missing level is -1 here, and a member of the sets it belongs to.

Where the mixture of a tree of purchases answers, rows are at nodes: what a row holds and where it may go are looked up
by the number of its node, in constants that are padded where nodes differ. Sums of the mixture are the last terms of
cumulative sums, which have an order; a component that is left out adds zero.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from thrifty.arrays import Int32s
from thrifty.device.model import DeviceModel, DeviceStage, DeviceTree, node_sets, point_table
from thrifty.engine.trees import TreeEnsemble
from thrifty.engine.walk.mixture import FLOOR, NEGLIGIBLE, SERIES, TurnByGain
from thrifty.errors import InvalidInputError

OPSET, ML_OPSET, IR_VERSION = 21, 5, 10
"""Versions of the operators, of those of ai.onnx.ml, and of the format."""

AT_MOST, MEMBER = 0, 6
"""Questions of nodes, as ``TreeEnsemble`` numbers them."""

MISSING, NOTHING = -1.0, -2.0
"""Number of a missing level, and one that no row has: a set must have a member."""


class _Graph:
    """Nodes and constants of a graph, as they are added."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix  # of names, which a graph shares with those within it
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, kind: Any = np.float64) -> str:
        """Name of a constant."""
        from onnx import numpy_helper

        name = f"{self.prefix}constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype=kind), name))
        return name

    def add(self, operator: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """Name of the first output of a new node."""
        from onnx import helper

        domain = "ai.onnx.ml" if operator == "TreeEnsemble" else ""
        names = [out or f"{self.prefix}{operator}_{len(self.nodes)}"] + ["order"] * (operator == "TopK")
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

    def last_sum(self, terms: str, n_terms: int, axis: int) -> str:
        """Sum along an axis, whose terms are added in their order."""
        sums = self.add("CumSum", terms, self.constant(axis, np.int64))
        return self.add("Gather", sums, self.constant(n_terms - 1, np.int64), axis=axis)

    def file(self, inputs: dict[str, Any], outputs: dict[str, Any], about: dict[str, Any]) -> bytes:
        """The graph as a file; inputs and outputs have a type and a shape."""
        from onnx import helper

        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        graph = self.graph(inputs, outputs)
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="thrifty")
        helper.set_model_props(model, {"thrifty": json.dumps(about)})
        data: bytes = model.SerializeToString()
        return data

    def graph(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        """The graph; inputs and outputs have a type and a shape."""
        from onnx import TensorProto, helper

        ends = [
            [
                helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape)
                for name, (kind, shape) in some
            ]
            for some in (inputs.items(), outputs.items())
        ]
        read = {name for node in self.nodes for name in node.input}
        constants = [constant for constant in self.constants if constant.name in read]
        return helper.make_graph(self.nodes, "thrifty", *ends, initializer=constants)


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
        n_held = len(model.order) if model.tree else stage.n_held
        inputs: dict[str, Any] = {"x": ("DOUBLE", ["rows", n_held])}
        outputs = {"scores": shape, "gate": ("DOUBLE", ["rows"])}
        if model.tree and place < model.tree.n_mixed:
            inputs["node"] = outputs["next"] = ("INT64", ["rows"])
            levels = _levels(graph, model.tree, n_held, "x")
            sums, following = _mixture(graph, model.tree, place, levels, "node")
            graph.add("Identity", following, out="next")
            scores = _calibrated(graph, stage, sums)
            gate = _uncertainty(graph, model, scores)
        else:
            carried = graph.constant([model.base])
            if stage.carries and place:
                carried, inputs["carried"] = "carried", shape
            sums, scores, gate = _stage(graph, model, stage, "x", carried)
            graph.add("Identity", sums, out="sums")
            outputs["sums"] = shape
        _scaled(graph, model, scores, "scores")
        graph.add("Reshape", gate, graph.constant([-1], np.int64), out="gate")
        held = [model.names[column] for column in model.order[:n_held]]
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
        "n_held": None if model.tree else [stage.n_held for stage in model.stages],
        "nodes": _held_names(model, model.tree) if model.tree else None,
        "cost": model.cost.tolist(),
        **({} if model.costs is None else {"resources": model.resources, "costs": model.costs.tolist()}),
        "thresholds": np.clip(thresholds, -largest, largest).tolist(),
        # Words of 64 bits, which not every reader of JSON keeps.
        "points": [
            {"lower": lower, "upper": upper, "seed": str(seed), "limit": str(limit)}
            for lower, upper, seed, limit in points
        ],
    }


def _held_names(model: DeviceModel, tree: DeviceTree) -> list[list[list[str]]]:
    """Columns that a row holds at each node of each stage."""
    names = [model.names[column] for column in model.order]
    return [[[names[place] for place in node.held] for node in level] for level in tree.levels]


def _whole(model: DeviceModel, about: dict[str, Any]) -> bytes:
    """The graph that takes every row through all stages, and says at which it stops."""
    graph, n_stages = _Graph(), len(model.stages)
    in_order = graph.add("Gather", "x", graph.constant(model.order, np.int64), axis=1)
    limits = _limits(graph, model)
    carried, stops, scores, paid, paid_in = graph.constant([model.base]), [], [], [], []
    flat = graph.constant([-1], np.int64)
    node, n_before = graph.add("Mul", "key", graph.constant(0, np.int64)), 1
    levels = _levels(graph, model.tree, len(model.order), in_order) if model.tree else ""
    for place, stage in enumerate(model.stages):
        at_node = graph.add("Add", node, graph.constant(n_before if model.tree else stage.n_held, np.int64))
        cost = graph.add("Gather", graph.constant(model.cost), at_node)
        paid.append(graph.add("Reshape", cost, graph.constant([-1, 1], np.int64)))
        if model.costs is not None:
            paid_in.append(graph.add("Gather", graph.constant(model.costs), at_node))
        if model.tree and place < model.tree.n_mixed:
            sums, node = _mixture(graph, model.tree, place, levels, node)
            score = _calibrated(graph, stage, sums)
            gate = _uncertainty(graph, model, score)
            n_before += len(model.tree.levels[place])
        else:
            n_held = len(model.order) if model.tree else stage.n_held
            held = graph.add("Gather", in_order, graph.constant(np.arange(n_held), np.int64), axis=1)
            carried, score, gate = _stage(graph, model, stage, held, carried)
            node = graph.add("Mul", "key", graph.constant(0, np.int64))
        goes_on = graph.add("Greater", gate, graph.column(limits, place))
        stops.append(graph.add("Not", goes_on))
        scores.append(score)
    route, last, cost = graph.constant([[n_stages]], np.int64), scores[-1], paid[-1]
    for place in range(n_stages - 1, -1, -1):
        route = graph.add("Where", stops[place], graph.constant(place, np.int64), route)
        last = graph.add("Where", stops[place], scores[place], last)
        cost = graph.add("Where", stops[place], paid[place], cost)
    if paid_in:
        costs = paid_in[-1]
        for place in range(n_stages - 1, -1, -1):
            costs = graph.add("Where", stops[place], paid_in[place], costs)
        graph.add("Identity", costs, out="costs")
    graph.add("Reshape", route, flat, out="route")
    graph.add("Reshape", cost, flat, out="cost")
    _scaled(graph, model, last, "scores")
    outputs = {"route": ("INT64", ["rows"]), "scores": ("DOUBLE", ["rows", model.n_scores])}
    if model.classes and model.n_scores == 1:
        second = graph.cast(graph.add("Greater", last, graph.constant(0.0)), "INT64")
        graph.add("Reshape", second, flat, out="label")
    elif model.classes:
        graph.add("ArgMax", last, axis=1, keepdims=0, out="label")
    outputs |= {"label": ("INT64", ["rows"])} if model.classes else {}
    inputs = {"x": ("DOUBLE", ["rows", len(model.names)]), "key": ("INT64", ["rows"]), "point": ("INT64", [])}
    outputs |= {"costs": ("DOUBLE", ["rows", len(model.resources)])} if model.resources else {}
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
    scores = _calibrated(graph, stage, sums)
    if stage.gate is not None:
        read = graph.add("Concat", x, scores, axis=1)
        summed = _trees(graph, model, stage, stage.gate, read)
        gate = graph.add("Add", graph.constant(stage.gate_start), summed)
    if stage.margin:
        doubt = graph.add("Mul", graph.constant(stage.margin), _uncertainty(graph, model, scores))
        gate = graph.add("Sub", gate, doubt)
    return sums, scores, gate


def _calibrated(graph: _Graph, stage: DeviceStage, sums: str) -> str:
    """Calibrated scores."""
    scores = graph.add("Mul", sums, graph.constant(stage.slope))
    return graph.add("Add", scores, graph.constant([stage.shift]))


# -- trees of purchases ----------------------------------------------------------------------------


def _padded(lists: Sequence[Any], value: Any) -> Any:
    """Lists of different lengths as an array."""
    width = max(*map(len, lists), 1)
    return np.array([[*one, *[value] * (width - len(one))] for one in lists])


def _levels(graph: _Graph, tree: DeviceTree, n_order: int, x: str) -> str:
    """Rows of the chances of the mixture that belong to cells; a last column has that behind them, of ones."""
    mixture = tree.mixture
    ends, starts = [np.empty(0)] * n_order, np.zeros(n_order, dtype=int)
    starts[mixture.columns] = mixture.starts
    for at, place in enumerate(mixture.columns.tolist()):
        ends[place] = mixture.ends[mixture.offsets[at] : mixture.offsets[at + 1]]
    cells = graph.add("Unsqueeze", x, graph.constant([2], np.int64))
    above = graph.cast(graph.add("Greater", cells, graph.constant(_padded(ends, np.inf))), "INT64")
    level = graph.add("ReduceSum", above, graph.constant([2], np.int64), keepdims=0)
    missing = graph.constant([[len(own) + 1 for own in ends]], np.int64)
    level = graph.add("Where", graph.add("IsNaN", x), missing, level)
    level = graph.add("Add", level, graph.constant([starts], np.int64))
    ones = graph.add("Mul", graph.column(level, 0), graph.constant(0, np.int64))
    ones = graph.add("Add", ones, graph.constant(len(mixture.tables), np.int64))
    return graph.add("Concat", level, ones, axis=1)


def _mixture(graph: _Graph, tree: DeviceTree, place: int, levels: str, node: str) -> tuple[str, str]:
    """Sums of a stage of the mixture for rows at its nodes, and the nodes that they would go on to."""
    mixture, nodes = tree.mixture, tree.levels[place]
    n_order = max(int(one.held.max(initial=0)) for one in tree.nodes) + 1
    chances = graph.constant(np.vstack([mixture.tables, np.ones((1, len(mixture.share)))]), np.float32)
    weight = graph.constant([mixture.share])
    for factor in _padded([one.held.tolist() for one in nodes], n_order).T:
        at = graph.add("Gather", graph.constant(factor, np.int64), node)
        at = graph.add("Reshape", at, graph.constant([-1, 1], np.int64))
        cell = graph.add("GatherElements", levels, at, axis=1)
        chance = graph.add("Gather", chances, graph.add("Reshape", cell, graph.constant([-1], np.int64)))
        weight = graph.add("Mul", weight, graph.cast(chance, "DOUBLE"))
    total = graph.last_sum(weight, len(mixture.share), 1)
    scale = graph.add("Div", graph.constant(1.0), total)
    scale = graph.add("Where", graph.add("Greater", total, graph.constant(0.0)), scale, graph.constant(0.0))
    weight = graph.add("Mul", weight, graph.add("Reshape", scale, graph.constant([-1, 1], np.int64)))
    least = np.zeros_like(_padded(_members(mixture.label), 0), dtype=np.float64)
    least[:, 0] = FLOOR * mixture.prior
    scores = _logarithm(graph, _by_group(graph, weight, mixture.label, least))
    if mixture.n_classes == 2:
        scores = graph.add("Sub", graph.column(scores, 1), graph.column(scores, 0))
    matters = graph.add("Greater", weight, graph.constant(NEGLIGIBLE))
    near = graph.add("Where", matters, weight, graph.constant(0.0))
    return scores, _next_node(graph, tree, place, near, node)


def _members(group: Int32s) -> list[list[int]]:
    """Components of each group."""
    return [np.flatnonzero(group == one).tolist() for one in np.unique(group)]


def _by_group(graph: _Graph, weight: str, group: Int32s, start: Any = 0.0) -> str:
    """Sums of the weights of components of each group, from some numbers on."""
    members = _padded(_members(group), len(group))
    zero = graph.add("Mul", graph.column(weight, 0), graph.constant(0.0))
    terms = graph.add("Concat", weight, zero, axis=1)
    terms = graph.add("Gather", terms, graph.constant(members, np.int64), axis=1)
    return graph.last_sum(graph.add("Add", terms, graph.constant(start)), members.shape[1], 2)


def _impurity_kept(graph: _Graph, weight: str, group: Int32s) -> str:
    """Sum of the squared masses of groups over their sum, of each row."""
    mass, n_groups = _by_group(graph, weight, group), len(np.unique(group))
    total = graph.last_sum(mass, n_groups, 1)
    kept = graph.add("Div", graph.last_sum(graph.add("Mul", mass, mass), n_groups, 1), total)
    is_any = graph.add("Greater", total, graph.constant(0.0))
    return graph.add("Where", is_any, kept, graph.constant(0.0))


def _logarithm(graph: _Graph, value: str) -> str:
    """Logarithms of numbers from 2^-64 to one, as ``log_of`` of the mixture adds them up."""
    power, root = graph.constant(0.0), graph.constant(0.7071067811865476)

    def doubled(n_times: int, is_small: str) -> tuple[str, str]:
        larger = graph.add("Mul", value, graph.constant(2.0**n_times))
        less = graph.add("Sub", power, graph.constant(float(n_times)))
        return graph.add("Where", is_small, larger, value), graph.add("Where", is_small, less, power)

    for n_times in (32, 16, 8, 4, 2, 1):  # as often as leaves the number below the root, and once more
        larger = graph.add("Mul", value, graph.constant(2.0**n_times))
        value, power = doubled(n_times, graph.add("Less", larger, root))
    value, power = doubled(1, graph.add("Less", value, root))
    one = graph.constant(1.0)
    ratio = graph.add("Div", graph.add("Sub", value, one), graph.add("Add", value, one))
    square, total = graph.add("Mul", ratio, ratio), graph.constant(0.0)
    for n in range(SERIES, 0, -2):
        total = graph.add("Add", graph.add("Mul", total, square), graph.constant(1.0 / n))
    total = graph.add("Mul", graph.add("Mul", graph.constant(2.0), ratio), total)
    return graph.add("Add", total, graph.add("Mul", power, graph.constant(0.6931471805599453)))


def _next_node(graph: _Graph, tree: DeviceTree, place: int, near: str, node: str) -> str:
    """Nodes that rows go on to: those whose best column gains most for its price."""
    mixture, nodes = tree.mixture, tree.levels[place]
    turns = [node.turn or TurnByGain(np.zeros(1, int), np.empty((1, 0), int), np.ones(1)) for node in nodes]
    following = graph.constant(_padded([turn.nodes.tolist() for turn in turns], 0), np.int64)
    if all(len(turn.nodes) == 1 for turn in turns):
        return graph.add("Reshape", graph.add("Gather", following, node), graph.constant([-1], np.int64))
    wanted = np.unique(np.concatenate([turn.tells[turn.tells >= 0] for turn in turns]))
    number = {int(column): at for at, column in enumerate(wanted.tolist())} | {-1: len(wanted)}
    at = mixture.places(wanted)
    rows = np.concatenate([mixture.starts[one] + np.arange(mixture.n_levels[one]) for one in at])
    first = np.cumsum([0, *mixture.n_levels[at]])
    of_column = _padded([list(range(*ends)) for ends in pairwise(first.tolist())], len(rows))
    # One level after another, which takes the memory of one: row by row its chances, and what is kept behind it.
    body = _Graph("level_")
    chance = body.cast("chance", "DOUBLE")
    body.add("Identity", _impurity_kept(body, body.add("Mul", near, chance), mixture.group), out="kept")
    chances = graph.constant(mixture.tables[rows], np.float32)
    ends = {"chance": ("FLOAT", [len(mixture.share)])}, {"kept": ("DOUBLE", None)}
    kept = graph.add("Scan", chances, body=body.graph(*ends), num_scan_inputs=1)
    now = _impurity_kept(graph, near, mixture.group)
    nothing = graph.add(
        "Unsqueeze", graph.add("Mul", now, graph.constant(0.0)), graph.constant([0], np.int64)
    )
    terms = graph.add("Concat", kept, nothing, axis=0)
    terms = graph.add("Gather", terms, graph.constant(of_column, np.int64), axis=0)
    gain = graph.add("Sub", graph.last_sum(terms, of_column.shape[1], 1), now)
    gain = graph.add("Max", gain, graph.constant(0.0))
    gain = graph.add("Concat", gain, graph.add("Sub", nothing, graph.constant(1.0)), axis=0)
    gain = graph.add("Transpose", gain, perm=[1, 0])
    # Where a node has fewer choices, or a choice fewer columns, than others: a gain of minus one.
    width = max(turn.tells.shape[1] for turn in turns)
    tells = [
        [[number[one] for one in told] + [len(wanted)] * (width - len(told)) for told in turn.tells.tolist()]
        for turn in turns
    ]
    told = graph.constant(_padded(tells, [len(wanted)] * width), np.int64)
    told = graph.add("Reshape", graph.add("Gather", told, node), graph.constant([0, -1], np.int64))
    gain = graph.add("GatherElements", gain, told, axis=1)
    gain = graph.add("Reshape", gain, graph.constant([0, -1, width], np.int64))
    best = graph.add("ReduceMax", gain, graph.constant([2], np.int64), keepdims=0)
    prices = graph.constant(_padded([turn.prices.tolist() for turn in turns], 1.0))
    worth = graph.add("Div", best, graph.add("Gather", prices, node))
    choice = graph.add("ArgMax", worth, axis=1, keepdims=1)
    taken = graph.add("GatherElements", graph.add("Gather", following, node), choice, axis=1)
    return graph.add("Reshape", taken, graph.constant([-1], np.int64))


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
