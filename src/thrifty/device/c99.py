"""C99 source of a device model: tables of splits and leaves, and one fixed program that walks them.

The splits of a tree are written in preorder, so that the left child of a split follows it, and so are its leaves.
Each split has a *place*, the number of its column in the order of purchase, a *cut*, and a *link*:

    (splits on its left + 1) << 2 | right is a leaf << 1 | missing goes left

which is how many splits, and how many leaves, the way to the right skips. A third flag, where a file has sets of
levels, says that the cut is the number of a set. Every table takes the smallest type that holds it.

A cut is the threshold itself, a float as a whole number in the same order, of 16 bits where the other 16 are zero; or,
where that takes fewer bytes, its number among the thresholds of its column, which a device looks up once for each
value.

The nodes of a tree of purchases, one stage after the other, have lists of the places that they hold and of the choices
that lead on; the levels of all columns have a row of chances, one for each component of the mixture.

In the layout "code" every tree is a function instead, of nested comparisons of floats, or of whole numbers where a
processor has no floats, which returns the first value of a leaf, or its only one.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import numpy as np

from thrifty.arrays import Floats
from thrifty.device.model import DeviceModel, DeviceTree, leaf_unit, node_sets, point_table, score_unit
from thrifty.engine.trees import TreeEnsemble
from thrifty.engine.walk.mixture import FLOOR, NEGLIGIBLE, SERIES
from thrifty.errors import InvalidInputError
from thrifty.rows import key_words

LOOKUP_BYTES = 95
"""Bytes of the program that looks cuts up."""

MOST_LOOKED_UP = 0.9
"""Share of the bytes of thresholds that numbers of them may take, since looking them up takes instructions."""

MOST_LEVELS = 2**16 - 2
"""Levels of a column that a code of 16 bits can count."""


@dataclass(frozen=True)
class TestRow:
    """A row whose way is known, for the self-test.

    Attributes
    ----------
    key : int
        Key of the row.
    values : ndarray of shape (n_columns,)
        Cells in single precision; NaN is missing.
    end, n_held, label : int
        How the session ends, after how many purchases, with which class.
    """

    key: int
    values: Floats
    end: int
    n_held: int
    label: int


@dataclass
class _Tables:
    """Constant tables, as they are written one after the other."""

    texts: list[str] = field(default_factory=list)
    n_bytes: int = 0

    def add(self, kind: str, name: str, values: Iterable[Any], n_bytes: int | None = None) -> None:
        """Write an array, of elements of some bytes where C does not know them; an empty one gets a zero."""
        items = [str(value) for value in values] or ["0"]
        lines, line = [], ""
        for item in items:
            if len(line) + len(item) > 110:
                lines.append(line)
                line = ""
            line += f"{item}, "
        body = "\n    ".join([*lines, line.rstrip(", ")])
        self.texts.append(f"TABLE {kind} {name}[] = {{\n    {body}\n}};")
        self.n_bytes += (n_bytes or bytes_of(kind)) * len(items)


class _Codes:
    """Numbers of thresholds and sets, over all trees of a model."""

    def __init__(self, model: DeviceModel) -> None:
        n_order, n_scores = len(model.order), model.n_scores
        self.model, self.n_order = model, n_order
        self.n_levels = [len(model.levels.get(int(column), ())) for column in model.order]
        thresholds: list[list[Floats]] = [[] for _ in range(n_order)]
        for trees in model.ensembles:
            is_set = np.zeros(len(trees.feature), dtype=bool)
            if trees.sets is not None:
                is_set[trees.sets.nodes] = True
            for column in np.unique(trees.feature[~is_set]).tolist():
                if column < n_order and not self.n_levels[column]:
                    thresholds[column].append(trees.threshold[~is_set & (trees.feature == column)])
        self.cuts = [
            np.unique(ordered(round_down(np.concatenate(parts)))) if parts else np.zeros(0, int)
            for parts in thresholds
        ]
        # Scores are compared in double precision, and every gate has cuts of its own.
        self.score_cuts = [
            [
                np.unique(stage.gate.threshold[stage.gate.feature == n_order + k])
                if stage.gate is not None
                else np.zeros(0)
                for k in range(n_scores)
            ]
            for stage in model.stages
        ]
        self.sets: dict[bytes, int] = {}
        self.most_score_cuts = max(len(cuts) for stage in self.score_cuts for cuts in stage)
        self.most_levels = max(self.n_levels, default=0)
        self.are_short = not any((cuts & 0xFFFF).any() for cuts in self.cuts)
        if self.most_levels > MOST_LEVELS:
            raise InvalidInputError(
                f"a column must have at most {MOST_LEVELS:,} levels to be exported; got {self.most_levels:,}."
            )

    def of_nodes(self, trees: TreeEnsemble, stage: int) -> tuple[Any, Any]:
        """Cut of each node, a float as a whole number or the number of a score's; and number of its set, or -1."""
        number = np.full(len(trees.feature), -1)
        for node, levels in node_sets(trees, self.model).items():
            number[node] = self._set(levels, self.n_levels[trees.feature[node]])
        cut = ordered(round_down(trees.threshold))
        for k, cuts in enumerate(self.score_cuts[stage]):
            nodes = trees.feature == self.n_order + k
            cut[nodes] = np.searchsorted(cuts, trees.threshold[nodes])
        return cut, number

    def looked_up(self, trees: TreeEnsemble, cut: Any) -> Any:
        """Number of each cut among those of its column."""
        numbers = cut.copy()
        for column, cuts in enumerate(self.cuts):
            nodes = trees.feature == column
            numbers[nodes] = np.searchsorted(cuts, cut[nodes])
        return numbers

    def _set(self, levels: Any, n_levels: int) -> int:
        bits = np.zeros(-(-n_levels // 8) * 8, dtype=np.uint8)
        bits[levels] = 1
        mask = np.packbits(bits, bitorder="little").tobytes()
        return self.sets.setdefault(mask, len(self.sets))


def round_down(thresholds: Floats) -> Any:
    """The largest floats of single precision that are at most some thresholds: they part the same floats."""
    with np.errstate(over="ignore"):
        single = thresholds.astype(np.float32)
    above = single.astype(np.float64) > thresholds
    single[above] = np.nextafter(single[above], np.float32(-np.inf))
    return single


def ordered(single: Any) -> Any:
    """Floats as whole numbers in the same order; both zeros are 0."""
    bits = single.astype(np.float32).view(np.uint32).astype(np.int64)
    size = bits & 0x7FFFFFFF
    return np.where(bits >> 31 == 1, -size, size)


def preorder(trees: TreeEnsemble) -> tuple[Any, Any, Any]:
    """Nodes and leaves of all trees in preorder, and the number of nodes on the left of each node, plus one."""
    n_nodes, children = len(trees.feature), trees.children.tolist()
    size, skipped = [1] * n_nodes, np.ones(n_nodes, dtype=int)
    for node in range(n_nodes - 1, -1, -1):
        left, right = (0 if child < 0 else size[child] for child in children[node])
        size[node] += left + right
        skipped[node] += left
    place, leaf = [0] * n_nodes, [0] * n_nodes  # of the node, and of the first leaf below it
    nodes, leaves = np.zeros(n_nodes, dtype=int), np.zeros(len(trees.values), dtype=int)
    for root, first_node, first_leaf in zip(
        trees.roots.tolist(), trees.node_offsets.tolist(), trees.leaf_offsets.tolist(), strict=False
    ):
        if root < 0:
            leaves[first_leaf] = ~root
        else:
            place[root], leaf[root] = first_node, first_leaf
    for node, (left, right) in enumerate(children):
        nodes[place[node]] = node
        for child, n_before, n_leaves in ((left, 1, 0), (right, skipped[node], skipped[node])):
            if child < 0:
                leaves[leaf[node] + n_leaves] = ~child
            else:
                place[child], leaf[child] = place[node] + n_before, leaf[node] + n_leaves
    return nodes, leaves, skipped


def tree_functions(
    trees: TreeEnsemble,
    place: Any,
    cut: Any,
    number: Any,
    pool: dict[bytes, int] | None,
    unit: float | None,
    n_columns: int,
) -> list[str]:
    """Bodies of the functions of all trees.

    ``pool`` has the leaves so far, each once, and the number of its first value; without it, functions return the
    value of a leaf.
    """
    values = leaf_values(trees, unit)
    leaves = [row.tobytes() for row in values]
    # The cut of a score is its number, which is a float, too.
    limits = np.where(place < n_columns, round_down(trees.threshold), cut)

    def body(child: int, indent: str) -> list[str]:
        if child < 0:
            if pool is None:
                return [f"{indent}return {int(values[~child, 0])};"]
            if leaves[~child] not in pool:
                pool[leaves[~child]] = sum(map(len, pool)) // values.itemsize
            return [f"{indent}return {pool[leaves[~child]]};"]
        at = f"v[{place[child]}]"
        if number[child] >= 0:
            asked = f"in_set({at}, {number[child]}, {int(trees.missing_left[child])})"
        else:
            name = "AT_MOST_OR_MISSING" if trees.missing_left[child] else "AT_MOST"
            asked = f"{name}({at}, {int(cut[child])}, {c_float(limits[child])})"
        left, right = trees.children[child].tolist()
        return [f"{indent}if ({asked}) {{", *body(left, indent + " "), f"{indent}}}", *body(right, indent)]

    return ["\n".join(body(int(root), "    ")) for root in trees.roots]


class _TreeCode:
    """Trees as functions, and the leaves that they return the place of; without a pool, they return values."""

    def __init__(
        self,
        model: DeviceModel,
        nodes: Sequence[tuple[Any, Any]],
        units: Sequence[float | None],
        types: dict[str, str],
        *,
        returns_values: bool,
    ) -> None:
        place = np.r_[model.order, len(model.names) + np.arange(model.n_scores)]
        pool: dict[bytes, int] = {}
        shared = None if returns_values else pool
        self.functions: list[str] = []
        self.firsts = [[0]]
        for trees, (cut, number), unit in zip(model.ensembles, nodes, units, strict=True):
            at = place[trees.feature]
            self.functions += tree_functions(trees, at, cut, number, shared, unit, len(model.names))
            self.firsts[0].append(len(self.functions))
        self.looks_up, self.n_bytes = False, sum(map(len, pool))
        self._pool, self._type = shared, types["leaf"]

    def texts(self) -> list[str]:
        """Text of the table of leaves."""
        written = _Tables()
        if self._pool is not None:
            values = np.frombuffer(b"".join(self._pool), dtype="<i2" if self._type == "int16_t" else "<f4")
            written.add(self._type, "leaves", map(c_number, values))
        return written.texts


class _TreeTables:
    """Trees as tables of splits and leaves; adds the types of these tables to those of the program."""

    functions: Sequence[str] = ()

    def __init__(
        self,
        model: DeviceModel,
        nodes: Sequence[tuple[Any, Any]],
        units: Sequence[float | None],
        types: dict[str, str],
        *,
        codes: _Codes,
        n_codes: int,
    ) -> None:
        ensembles = model.ensembles
        counts = [[trees.n_trees, len(trees.feature), trees.values.size] for trees in ensembles]
        self.firsts = np.cumsum([[0, 0, 0], *counts], axis=0).T.tolist()
        n_trees, n_splits, n_values = (first[-1] for first in self.firsts)
        largest = max(int(np.diff(trees.node_offsets).max(initial=0)) for trees in ensembles)
        types["cut"], self.looks_up = cut_type(codes, n_splits)
        types["place"], types["size"] = unsigned(n_codes - 1), unsigned(largest)
        types["link"] = unsigned((largest + 1 << 2 + bool(codes.sets)) - 1)
        if self.looks_up:
            types["code"] = types["cut"]
        self.n_bytes = n_splits * sum(bytes_of(types[name]) for name in ("place", "link", "cut"))
        self.n_bytes += n_trees * bytes_of(types["size"]) + n_values * bytes_of(types["leaf"])
        self._model, self._nodes, self._units, self._codes, self._types = model, nodes, units, codes, types

    def texts(self) -> list[str]:
        """Text of the tables of splits, leaves, and numbers of splits."""
        codes, types = self._codes, self._types
        columns: dict[str, list[Any]] = {
            name: [np.zeros(0, int)] for name in ("size", "place", "link", "cut")
        }
        leaves: list[Any] = []
        for trees, (cut, number), unit in zip(self._model.ensembles, self._nodes, self._units, strict=True):
            nodes, order, skipped = preorder(trees)
            is_set, is_column = number >= 0, trees.feature < codes.n_order
            if self.looks_up:
                cut = codes.looked_up(trees, cut)
            elif types["cut"] == "int16_t":
                cut = np.where(is_column, cut >> 16, cut)
            flags = trees.missing_left | (trees.children[:, 1] < 0) << 1 | is_set << 2
            link = skipped << (3 if codes.sets else 2) | flags
            columns["size"].append(np.diff(trees.node_offsets))
            columns["place"].append(trees.feature[nodes])
            columns["link"].append(link[nodes])
            columns["cut"].append(np.where(is_set, number, cut)[nodes])
            leaves += leaf_values(trees, unit)[order].ravel().tolist()
        tables = _Tables()
        for name, parts in columns.items():
            tables.add(types[name], f"{name}s", np.concatenate(parts).tolist())
        tables.add(types["leaf"], "leaves", map(c_number, leaves))
        return tables.texts


@dataclass(frozen=True)
class SourcePlan:
    """Tables of a model, and what they take; those of its trees are written on request.

    Attributes
    ----------
    tables : list of str
        Text of the tables but for those of the trees.
    trees : _TreeCode or _TreeTables
        Functions and tables of the trees.
    flags : dict of str to int
        Macros that the program is compiled with.
    types : dict of str to str
        Types of C, by the name that the program has for them.
    flash_bytes, table_bytes, state_bytes : int
        Bytes of tables and program, of the tables alone, and of a session.
    n_codes : int
        Number of the codes of a session.
    price : float
        Price of a purchase, where all have one.
    """

    tables: list[str]
    trees: _TreeCode | _TreeTables
    flags: dict[str, int]
    types: dict[str, str]
    flash_bytes: int
    table_bytes: int
    state_bytes: int
    n_codes: int
    price: float


def plan_of(model: DeviceModel, leaves: str, layout: str = "table") -> SourcePlan:
    """Plan the tables of a model whose leaves are of some type, and what they take."""
    codes, is_narrow_leaf, is_code = _Codes(model), leaves == "int16", layout == "code"
    n_order, n_scores, unit = len(model.order), model.n_scores, score_unit(model)
    # Every ensemble, those of gates included, and the least unit of its leaves.
    nodes, units = [], []
    for place, stage in enumerate(model.stages):
        for ensemble, least in ((stage.trees, unit), (stage.gate, 0.0)):
            if ensemble is not None:
                nodes.append(codes.of_nodes(ensemble, place))
                units.append(leaf_unit(ensemble, least) if is_narrow_leaf else None)
    has_sets, has_gates = bool(codes.sets), any(stage.gate is not None for stage in model.stages)
    is_value = is_code and is_narrow_leaf and all(ensemble.n_outputs == 1 for ensemble in model.ensembles)
    n_codes = max((len(model.names) if is_code else n_order) + n_scores * has_gates, 1)
    types = {"leaf": "int16_t" if is_narrow_leaf else "float", "code": "int32_t"}
    trees: _TreeCode | _TreeTables
    if is_code:
        trees = _TreeCode(model, nodes, units, types, returns_values=is_value)
    else:
        trees = _TreeTables(model, nodes, units, types, codes=codes, n_codes=n_codes)
    n_numbers = [2**8, len(nodes) * (n_scores + 1), *(first[-1] for first in trees.firsts)]
    types["number"] = unsigned(max(n_numbers))

    tables = _Tables()
    if has_sets:
        masks = list(codes.sets)
        tables.add("uint8_t", "sets", b"".join(masks))
        tables.add("uint32_t", "set_starts", np.cumsum([0, *map(len, masks)]))
    if trees.looks_up:
        tables.add("int32_t", "limits", np.concatenate(codes.cuts).tolist())
        first = np.cumsum([0, *map(len, codes.cuts)])
        tables.add(unsigned(int(first[-1])), "first_limit", first.tolist())
    tables.add(unsigned(len(model.names)), "order", model.order.tolist())
    if any(codes.n_levels):
        tables.add("uint16_t", "n_levels", codes.n_levels)
    is_mixed = any(point.is_mixed for point in model.points)
    price = np.float32(model.cost[-1] / max(n_order, 1))
    is_even = np.array_equal(price * np.arange(n_order + 1, dtype=np.float32), model.cost.astype(np.float32))
    flags = {
        "IS_CODE": int(is_code),
        "LOOKS_UP": int(trees.looks_up),
        "SHORT_CUTS": int(types.get("cut") == "int16_t"),
        "LEAF_BITS": 16 if is_narrow_leaf else 32,
        "EVEN_COSTS": int(is_even),
        "HAS_SETS": int(has_sets),
        "HAS_LEVELS": int(any(codes.n_levels)),
        "HAS_GATES": int(has_gates),
        "GATE_IN_LEAVES": int(any(stage.gate_first for stage in model.stages)),
        "LEAF_IN_CODE": int(is_value),
        "RESTARTS": int(not all(stage.carries for stage in model.stages[1:])),
        "HAS_CALIBRATION": int(any(stage.slope != 1.0 or stage.shift.any() for stage in model.stages)),
        "IS_MIXED": int(is_mixed),
        "IS_NUMBER": int(not model.classes),
        "HAS_TREE": int(model.tree is not None),
    }
    sum_bytes, n_sums = 4 if is_narrow_leaf else 8, n_scores + flags["GATE_IN_LEAVES"]
    _write_stages(tables, model, codes, trees.firsts, units, flags, bytes_of(types["number"]))
    _write_points(tables, model, is_mixed)
    # The sums of the first stage go on from what they would start from.
    base = model.base if model.stages[0].carries else model.stages[0].start
    base = np.r_[np.zeros(n_sums - len(base)), base]
    tables.add("thrifty_sum", "base", _sums(model, base, is_narrow_leaf), sum_bytes)
    if not is_even or model.tree:
        tables.add("float", "costs", map(c_float, model.cost))
    if model.costs is not None:
        tables.add("float", "costs_in", map(c_float, model.costs.ravel()))
    if model.tree:
        _write_tree(tables, model.tree, n_order)
    state = -(-(sum_bytes * n_sums + bytes_of(types["code"]) * n_codes) // 2) * 2 + 8
    state += 0 if model.tree is None else 10 * len(model.tree.mixture.share) + n_order + 8
    table_bytes = tables.n_bytes + trees.n_bytes
    return SourcePlan(
        tables=tables.texts,
        trees=trees,
        flags=flags,
        types=types,
        flash_bytes=table_bytes
        + program_bytes(flags, n_scores, len(model.stages))
        + COST_IN_BYTES * bool(model.resources),
        table_bytes=table_bytes,
        state_bytes=-(-state // sum_bytes) * sum_bytes,
        n_codes=n_codes,
        price=float(price),
    )


def cut_type(codes: _Codes, n_splits: int) -> tuple[str, bool]:
    """Type of the cuts of splits, and whether they are numbers to look up: thresholds of 32 bits that recur."""
    n_limits, n_sets = [len(cuts) for cuts in codes.cuts], len(codes.sets)
    if codes.are_short and max(codes.most_score_cuts, n_sets) < 2**15:
        return "int16_t", False
    number = unsigned(1 + max([*n_limits, codes.most_score_cuts, codes.most_levels, n_sets]))
    n_bytes = bytes_of(number) * n_splits + 4 * sum(n_limits) + 2 * len(n_limits) + LOOKUP_BYTES
    looks_up = number != "uint32_t" and n_bytes < MOST_LOOKED_UP * 4 * n_splits
    return number if looks_up else "int32_t", looks_up


def leaf_values(trees: TreeEnsemble, unit: float | None) -> Any:
    """Values of the leaves in single precision, or in 16-bit multiples of a unit, shape (n_leaves, n_outputs)."""
    if unit is None:
        return np.ascontiguousarray(trees.values, dtype="<f4")
    return np.ascontiguousarray(np.rint(trees.values / unit), dtype="<i2")


def unsigned(largest: int) -> str:
    """The smallest type of C for whole numbers up to the largest."""
    return f"uint{8 if largest < 2**8 else 16 if largest < 2**16 else 32}_t"


def bytes_of(kind: str) -> int:
    """Bytes of a type of C."""
    return {"float": 4, "double": 8}.get(kind) or int(re.sub(r"\D", "", kind)) // 8


def program_bytes(flags: dict[str, int], n_scores: int, n_stages: int) -> int:
    """Bytes of the program on a Cortex-M4F by GCC 12 with ``-Os``, without the functions of libgcc that it calls.

    A sum of the bytes that each part of the program adds, by number of stages (several, one) and of scores (one,
    several): ``python benchmarks/device.py limits`` prints them beside those of the compiler, and
    ``tests/device/test_flash.py`` holds that the sum is at most 2 % too large.
    """
    is_narrow_leaf, has_classes, is_alone = flags["LEAF_BITS"] == 16, n_scores > 1, n_stages == 1
    start = {True: ((800, 885), (640, 745)), False: ((895, 1035), (755, 880))}
    calibration = {True: ((107, 229), (99, 217)), False: ((85, 128), (118, 135))}
    gates = {True: ((240, 270), (166, 131)), False: ((160, 245), (95, 82))}
    parts = {
        "LOOKS_UP": ((LOOKUP_BYTES, LOOKUP_BYTES), (LOOKUP_BYTES, LOOKUP_BYTES)),
        "HAS_SETS": ((118, 120), (114, 122)),
        "HAS_GATES": gates[is_narrow_leaf],
        "GATE_IN_LEAVES": ((185, 160), (98, 83)),
        "HAS_CALIBRATION": calibration[is_narrow_leaf],
        "IS_MIXED": ((227, 229), (264, 271)),
        "RESTARTS": ((60, 60), (0, 0)),
        "IS_NUMBER": ((-36, 0), (-29, 0)),
    }
    sizes = [start[is_narrow_leaf], *(n_bytes for name, n_bytes in parts.items() if flags[name])]
    return sum(n_bytes[is_alone][has_classes] for n_bytes in sizes)


def source_of(
    model: DeviceModel, identity: str, version: str, leaves: str, layout: str, rows: Sequence[TestRow]
) -> tuple[str, str, SourcePlan]:
    """Text of ``thrifty_model.h`` and of ``thrifty_model.c``, and their plan.

    Parameters
    ----------
    model : DeviceModel
        The model to write.
    identity, version : str
        Identity of the system, and version of thrifty.
    leaves : {"float32", "int16"}
        Type of the values of leaves; 16 bits hold values that ``with_leaves`` has rounded.
    layout : {"table", "code"}
        Whether trees are tables or functions.
    rows : sequence of TestRow
        Rows of the self-test.
    """
    plan = plan_of(model, leaves, layout)
    texts = [*plan.trees.texts(), *plan.tables]
    if rows:
        texts.append(_test_rows(rows, len(model.names)))
    banner = f"Written by thrifty {version} from the system {identity}. Do not edit."
    parts = {
        "BANNER": banner,
        "IDENTITY": identity,
        "N_COLUMNS": len(model.names),
        "N_SCORES": model.n_scores,
        "N_STAGES": len(model.stages),
        "N_POINTS": len(model.points),
        "N_ORDER": len(model.order),
        "N_CODES": plan.n_codes,
        "N_SUMS": model.n_scores + plan.flags["GATE_IN_LEAVES"],
        "CODES": _types(plan),
        "STATE": _state(model),
        "TREE": _tree_program(model),
        "UNIT": c_double(score_unit(model)),
        "ENUMS": _enums(model),
        "FLAGS": "\n".join(
            [
                *(f"#define THRIFTY_{name} {value}" for name, value in plan.flags.items()),
                *(f"typedef {kind} thrifty_{name};" for name, kind in plan.types.items() if name != "code"),
            ]
        ),
        "TABLES": "\n\n".join(texts),
        "TREES": _tree_texts(plan.trees.functions, "int32_t" if plan.flags["LEAF_IN_CODE"] else "uint32_t"),
        "PRICE": c_float(plan.price),
        "COST_IN": _COST_IN if model.resources else "",
        "COST_IN_PROGRAM": _COST_IN_PROGRAM.replace("@N@", str(len(model.resources)))
        if model.resources
        else "",
        "SPREAD": c_double(model.spread),
        "CENTRE": c_double(model.centre),
    }
    return _filled("runtime.h", parts), _filled("runtime.c", parts), plan


def _state(model: DeviceModel) -> str:
    """What a session keeps for a tree of purchases."""
    if model.tree is None:
        return ""
    n_components = len(model.tree.mixture.share)
    return (
        f"    double weight[{n_components}]; /* of components that the row may be of, and their numbers */\n"
        f"    uint16_t near[{n_components}], n_near;\n"
        f"    uint16_t node, next, visited;\n"
        f"    uint8_t level[{len(model.order)}]; /* of columns */\n"
    )


def _tree_program(model: DeviceModel) -> str:
    """The part of the program that chooses purchases."""
    if model.tree is None:
        return ""
    sizes = {"N_COMPONENTS": len(model.tree.mixture.share), "N_CLASSES": len(model.classes)}
    sizes["N_MIXED"] = model.tree.n_mixed
    defined = "\n".join(f"#define {name} {value}u" for name, value in sizes.items())
    return f"{defined}\n" + _filled("tree.c", {"SERIES": SERIES, "NEGLIGIBLE": c_double(NEGLIGIBLE)})


def _types(plan: SourcePlan) -> str:
    """Types of the codes and of the sums of a session."""
    codes = f"#define THRIFTY_COMPARES_FLOATS 0\ntypedef {plan.types['code']} thrifty_code;"
    if plan.flags["IS_CODE"]:
        codes = (
            "/* Whether trees compare floats, or whole numbers instead. */\n"
            "#if defined(__GNUC__) && "
            "((defined(__ARM_FP) && (__ARM_FP & 4)) || defined(__SSE2__) || defined(__wasm__))\n"
            f"#define THRIFTY_COMPARES_FLOATS 1\ntypedef float thrifty_code;\n#else\n{codes}\n#endif"
        )
    return f"{codes}\ntypedef {'int32_t' if plan.flags['LEAF_BITS'] == 16 else 'double'} thrifty_sum;\n"


def _sums(model: DeviceModel, numbers: Floats, is_narrow_leaf: bool) -> list[str]:
    """Numbers that sums start from, as C writes them."""
    unit = score_unit(model)
    return [str(round(number / unit)) if is_narrow_leaf else c_double(number) for number in numbers.tolist()]


def _tree_texts(functions: Sequence[str], kind: str) -> str:
    """Functions that return the first slot of a leaf or its value, and a table of them."""
    names = ", ".join(f"tree_{number}" for number in range(len(functions)))
    return "\n\n".join(
        [
            *(
                f"static {kind} tree_{number}(const thrifty_code *v)\n{{\n    (void)v;\n{body}\n}}"
                for number, body in enumerate(functions)
            ),
            f"typedef {kind} (*thrifty_tree)(const thrifty_code *);",
            f"TABLE thrifty_tree trees[] = {{{names or '0'}}};",
        ]
    )


def _filled(name: str, parts: dict[str, Any]) -> str:
    text = files("thrifty.device").joinpath(name).read_text(encoding="utf-8")
    return re.sub(r"@([A-Z_]+)@", lambda match: str(parts[match[1]]), text)


def _write_stages(
    tables: _Tables,
    model: DeviceModel,
    codes: _Codes,
    firsts: Sequence[Sequence[int]],
    units: Sequence[float | None],
    flags: dict[str, int],
    number_bytes: int,
) -> None:
    """Write the stages, their numbers, and the cuts of scores that gates read."""
    numbers: list[float] = []
    cuts: list[float] = []
    starts: list[str] = []
    stages, cut_starts, written, unit = [], [0], 0, score_unit(model)
    is_calibrated, is_narrow_leaf = flags["HAS_CALIBRATION"], flags["LEAF_BITS"] == 16
    for place, stage in enumerate(model.stages):
        of_leaf = units[written] or unit
        reals = [stage.margin] * flags["GATE_IN_LEAVES"] + [stage.slope] * is_calibrated
        trees = [f"{{{', '.join(str(first[written]) for first in firsts)}}}"]
        counts = [len(numbers), *([len(starts)] if flags["RESTARTS"] else ())]
        carries = stage.carries or place == 0
        starts += [] if carries else _sums(model, stage.start, is_narrow_leaf)
        numbers += stage.shift.tolist() if is_calibrated else []
        written += 1
        score_start, n_gate, gate_unit = len(cut_starts) - 1, 0, 1.0
        if stage.gate is not None:
            numbers.append(stage.gate_start)
            trees.append(f"{{{', '.join(str(first[written]) for first in firsts)}}}")
            n_gate, gate_unit = stage.gate.n_trees, units[written] or 1.0
            written += 1
            for some in codes.score_cuts[place]:
                cuts += some.tolist()
                cut_starts.append(len(cuts))
            cut_starts.append(len(cuts))
        if flags["HAS_GATES"]:
            reals += [gate_unit] if is_narrow_leaf else []
            trees += [] if n_gate else trees
            counts += [score_start, n_gate]
        counts += [stage.trees.n_trees, stage.n_held, int(of_leaf / unit) if is_narrow_leaf else 1]
        kinds = [int(carries)] * flags["RESTARTS"] + [int(stage.gate_first), int(stage.margin != 0.0)]
        stages.append("{" + ", ".join([*map(c_double, reals), *trees, *map(str, counts + kinds)]) + "}")
    if is_calibrated or flags["HAS_GATES"]:
        tables.add("double", "numbers", map(c_double, numbers))
    if flags["RESTARTS"]:
        tables.add("thrifty_sum", "starts", starts, 4 if is_narrow_leaf else 8)
    has_gates, restarts = flags["HAS_GATES"], flags["RESTARTS"]
    n_numbers = len(firsts) * (1 + has_gates) + 1 + restarts + has_gates
    n_bytes = 8 * len(reals) + number_bytes * n_numbers + 2 * (3 + has_gates) + 2 + restarts
    alignment = 8 if reals else number_bytes
    tables.add("thrifty_stage", "stages", stages, -(-n_bytes // alignment) * alignment)
    if flags["HAS_GATES"]:
        tables.add("double", "score_cuts", map(c_double, cuts))
        tables.add("uint32_t", "score_starts", cut_starts)


def _write_tree(tables: _Tables, tree: DeviceTree, n_order: int) -> None:
    """Write the nodes of a tree of purchases, and the mixture."""
    mixture, nodes = tree.mixture, tree.nodes
    # Turns number the nodes of the next stage; here all nodes have one numbering.
    first = np.cumsum([0] + [len(level) for level in tree.levels])
    choices = [
        (first[place + 1] + int(number), [int(one) for one in tells if one >= 0], price)
        for place, level in enumerate(tree.levels[:-1])
        for node in level
        for number, tells, price in (
            [(0, [], 1.0)]
            if node.turn is None
            else zip(node.turn.nodes.tolist(), node.turn.tells.tolist(), node.turn.prices, strict=True)
        )
    ]
    n_choices = [1 if node.turn is None else len(node.turn.nodes) for node in nodes[:-1]]
    ends = [np.zeros(0)] * n_order
    for at, place in enumerate(mixture.columns.tolist()):
        ends[place] = mixture.ends[mixture.offsets[at] : mixture.offsets[at + 1]]
    starts = np.zeros(n_order, dtype=int)
    starts[mixture.columns] = mixture.starts
    tables.add("uint16_t", "held", np.concatenate([node.held for node in nodes]).tolist())
    tables.add("uint32_t", "node_starts", np.cumsum([0] + [len(node.held) for node in nodes]).tolist())
    tables.add("uint16_t", "n_held_by", [0, *(len(node.held) for node in nodes)])
    tables.add("uint32_t", "choice_starts", np.cumsum([0, *n_choices]).tolist())
    tables.add("uint16_t", "choice_nodes", [node for node, *_ in choices])
    tables.add("double", "choice_prices", [c_double(price) for *_, price in choices])
    tables.add("uint32_t", "tell_starts", np.cumsum([0] + [len(told) for _, told, _ in choices]).tolist())
    tables.add("uint16_t", "tells", [place for _, told, _ in choices for place in told])
    tables.add("int32_t", "ends", ordered(round_down(np.concatenate(ends))).tolist())
    tables.add("uint32_t", "end_starts", np.cumsum([0] + [len(some) for some in ends]).tolist())
    tables.add("uint32_t", "chance_starts", starts.tolist())
    tables.add("float", "chances", map(c_float, mixture.tables.ravel().tolist()))
    tables.add("double", "component_share", map(c_double, mixture.share))
    tables.add("double", "least_chance", map(c_double, FLOOR * mixture.prior))
    tables.add("uint16_t", "component_class", mixture.label.tolist())
    tables.add("uint16_t", "component_group", mixture.group.tolist())


def _write_points(tables: _Tables, model: DeviceModel, is_mixed: bool) -> None:
    """Write the operating points, and the rows of thresholds that they use."""
    thresholds, points = point_table(model)
    written = [
        f"{{{lower}, {upper}" + (f", UINT64_C({seed:#x}), UINT64_C({limit})}}" if is_mixed else "}")
        for lower, upper, seed, limit in points
    ]
    tables.add("double", "thresholds", map(c_double, thresholds.ravel()))
    tables.add("thrifty_point", "points", written, 24 if is_mixed else 4)


def c_double(value: float) -> str:
    """A double as C writes it, to the last bit; one that no score reaches is the largest of the target."""
    if abs(value) > np.finfo(np.float32).max:  # AVR has no larger ones
        return "DBL_MAX" if value > 0 else "-DBL_MAX"
    return float(value).hex()


def c_number(value: float) -> str:
    """A leaf as C writes it: a whole number, or a float."""
    return str(value) if isinstance(value, int | np.integer) else c_float(value)


def c_float(value: float) -> str:
    """A float of single precision as C writes it."""
    if np.isinf(value):
        return "__builtin_inff()" if value > 0 else "-__builtin_inff()"
    return f"{float(np.float32(value)).hex()}f"


def _enums(model: DeviceModel) -> str:
    """Enumerations of columns, levels and classes under names that C can read."""
    taken: set[str] = set()

    def named(prefix: str, text: str) -> str:
        name = f"THRIFTY_{prefix}_" + (re.sub(r"[^0-9A-Za-z]+", "_", text).strip("_").upper() or "EMPTY")
        unique, number = name, 2
        while unique in taken:
            unique, number = f"{name}_{number}", number + 1
        taken.add(unique)
        return unique

    def enum(comment: str, names: list[str]) -> str:
        lines = ",\n".join(f"    {name} = {number}" for number, name in enumerate(names))
        return f"/* {comment} */\nenum {{\n{lines}\n}};\n"

    parts = [enum("Columns.", [named("COLUMN", name) for name in model.names])]
    for column, levels in sorted(model.levels.items()):
        name = re.sub(r"[^0-9A-Za-z]+", "_", model.names[column])
        parts.append(enum(f"Levels of {name}.", [named(f"LEVEL_{name.upper()}", level) for level in levels]))
    if model.classes:
        parts.append(enum("Classes.", [named("CLASS", label) for label in model.classes]))
    if model.resources:
        parts.append(enum("Resources.", [named("RESOURCE", name) for name in model.resources]))
    return "\n".join(parts)


_COST_IN = """
/* The same in one of the resources. */
float thrifty_cost_in(const thrifty_session *session, int resource);"""

_COST_IN_PROGRAM = """

float thrifty_cost_in(const thrifty_session *session, int resource)
{
#if THRIFTY_HAS_TREE
    const unsigned held = session->n_held > n_held_by[session->visited] ? session->node + 1u : session->visited;
#else
    const unsigned held = session->n_held;
#endif
    return costs_in[held * @N@u + (unsigned)resource];
}"""

COST_IN_BYTES = 60
"""Bytes of ``thrifty_cost_in`` (no command chose it)."""


def _test_rows(rows: Sequence[TestRow], n_columns: int) -> str:
    """Rows of the self-test as C writes them."""
    lines = []
    for row in rows:
        missing = np.isnan(row.values)
        values = ", ".join(c_float(value) for value in np.where(missing, 0.0, row.values))
        flags = ", ".join(str(int(flag)) for flag in missing)
        word = int(key_words([row.key])[0])
        lines.append(
            f"    {{UINT64_C({word}), {{{values}}}, {{{flags}}}, {row.end}, {row.n_held}, {row.label}}}"
        )
    return (
        "#ifdef THRIFTY_SELF_TEST\n"
        f"#define N_TEST_ROWS {len(rows)}\n"
        "typedef struct {\n    uint64_t key;\n"
        f"    float values[{n_columns}];\n    uint8_t missing[{n_columns}];\n    int end, n_held, label;\n"
        "} thrifty_test_row;\n\n"
        "TABLE thrifty_test_row test_rows[] = {\n" + ",\n".join(lines) + "\n};\n#endif"
    )
