"""C99 source of a device model: tables of 16-bit slots, and one fixed program that walks them.

A tree is written in preorder, so that the left child follows its parent and only the way to the right child takes a
number. A *narrow* node takes two slots:

    cut << 8 | place        left is a leaf << 15 | right is a leaf << 14 | slots to the right

and compares the code at a place with its cut. A column has two places, ``2 * column + missing goes left``, whose codes
differ where the column is missing: one is larger than every cut, the other the smallest. A *wide* node takes four
slots, for more than 255 places, 254 thresholds of a column or 16,383 slots of a tree. Leaves stand in the place of
nodes. ``cut`` is the number of the threshold among those of its column; a node that asks for a set of
levels has the largest cut and the number of the set behind it.

In the layout "code" every tree is a function instead, of nested comparisons of floats, or of whole numbers where a
processor has no floats, which returns the first slot of a leaf, or its only value.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import numpy as np

from thrifty.arrays import Floats
from thrifty.device.model import DeviceModel, leaf_unit, node_sets, point_table, score_unit
from thrifty.errors import InvalidInputError
from thrifty.rows import key_words
from thrifty.trees import TreeEnsemble

__all__ = ["Plan", "Source", "TestRow", "plan_of", "source_of"]

NARROW_PLACES, NARROW_CUTS, NARROW_SLOTS = 256, 254, 2**14 - 1
"""Places of codes, thresholds of a column and slots of a tree that narrow nodes can count."""

WIDE_CUTS = 2**16 - 2
"""Thresholds of a column that wide nodes can count."""


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


@dataclass(frozen=True)
class Source:
    """The two files, and what their tables take.

    Attributes
    ----------
    header, program : str
        Text of ``thrifty_model.h`` and ``thrifty_model.c``.
    flash_bytes, table_bytes, state_bytes : int
        Bytes of tables and program, of the tables alone, and of a session.
    """

    header: str
    program: str
    flash_bytes: int
    table_bytes: int
    state_bytes: int


@dataclass
class _Tables:
    """Constant tables, as they are written one after the other."""

    texts: list[str] = field(default_factory=list)
    n_bytes: int = 0

    def add(self, kind: str, name: str, values: Iterable[Any], n_bytes: int) -> None:
        """Write an array; one without elements gets a zero, since C has none."""
        items = [str(one) for one in values] or ["0"]
        lines, line = [], ""
        for item in items:
            if len(line) + len(item) > 110:
                lines.append(line)
                line = ""
            line += f"{item}, "
        body = "\n    ".join([*lines, line.rstrip(", ")])
        self.texts.append(f"TABLE {kind} {name}[] = {{\n    {body}\n}};")
        self.n_bytes += n_bytes * len(items)


class _Codes:
    """Numbers of thresholds and sets, over all trees of a model."""

    def __init__(self, model: DeviceModel) -> None:
        n_order, n_scores = len(model.order), model.n_scores
        self.model, self.n_order = model, n_order
        self.n_levels = [len(model.levels.get(int(column), ())) for column in model.order]
        found: list[list[Floats]] = [[] for _ in range(n_order)]
        for trees in model.ensembles:
            is_set = np.zeros(len(trees.feature), dtype=bool)
            if trees.sets is not None:
                is_set[trees.sets.nodes] = True
            for column in np.unique(trees.feature[~is_set]).tolist():
                if column < n_order and not self.n_levels[column]:
                    found[column].append(trees.threshold[~is_set & (trees.feature == column)])
        self.cuts = [
            np.unique(ordered(round_down(np.concatenate(one)))) if one else np.zeros(0, int) for one in found
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
        widest = max(
            [len(one) for one in self.cuts] + [len(one) for stage in self.score_cuts for one in stage]
        )
        self.most_codes = max(widest, max(self.n_levels, default=0))
        self.total = sum(map(len, self.cuts))
        self.are_short = not any((one & 0xFFFF).any() for one in self.cuts)
        if self.most_codes > WIDE_CUTS:
            raise InvalidInputError(
                f"a column must have at most {WIDE_CUTS:,} thresholds or levels to be exported; got "
                f"{self.most_codes:,}."
            )

    def of_nodes(self, trees: TreeEnsemble, stage: int, is_code: bool) -> tuple[Any, Any, Any]:
        """Place of the code that each node reads, its cut, and number of its set, -1 where it compares."""
        n_order = self.n_order
        if is_code:
            place = np.r_[self.model.order, len(self.model.names) + np.arange(self.model.n_scores)][
                trees.feature
            ]
        else:
            place = np.where(
                trees.feature < n_order, 2 * trees.feature + trees.missing_left, n_order + trees.feature
            )
        cut, number = np.zeros(len(trees.feature), int), np.full(len(trees.feature), -1)
        for node, levels in node_sets(trees, self.model).items():
            number[node] = self._set(levels, self.n_levels[trees.feature[node]])
        for column in np.unique(trees.feature[number < 0]).tolist():
            nodes = np.flatnonzero((trees.feature == column) & (number < 0))
            limits = trees.threshold[nodes]
            if column >= n_order:
                cut[nodes] = np.searchsorted(self.score_cuts[stage][column - n_order], limits)
            elif is_code:
                cut[nodes] = ordered(round_down(limits))
            else:
                cut[nodes] = np.searchsorted(self.cuts[column], ordered(round_down(limits)))
        return place, cut, number

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


def slots_of(
    trees: TreeEnsemble, place: Any, cut: Any, number: Any, is_wide: bool, narrow_unit: float | None
) -> Any:
    """The slots of all trees."""
    header = 4 if is_wide else 2
    if narrow_unit:
        values = np.rint(trees.values / narrow_unit).astype(np.int64).astype(np.uint16)
    else:
        values = np.ascontiguousarray(trees.values, dtype="<f4").view("<u2")
    of_leaf = (1 if narrow_unit else 2) * trees.n_outputs
    values = values.reshape(len(trees.values), of_leaf)
    n_nodes, children = len(trees.feature), trees.children.tolist()
    set_of, codes, places = number.tolist(), cut.tolist(), place.tolist()
    size, starts = [0] * n_nodes, [0] * n_nodes
    for node in range(n_nodes - 1, -1, -1):
        below = (of_leaf if child < 0 else size[child] for child in children[node])
        size[node] = header + (set_of[node] >= 0) + sum(below)
    out = []
    for tree in range(trees.n_trees):
        first, end = int(trees.node_offsets[tree]), int(trees.node_offsets[tree + 1])
        length = size[first] if end > first else of_leaf
        slots = np.zeros(length, dtype=np.uint16)
        if end == first:
            slots[:] = values[trees.leaf_offsets[tree]]
        for node in range(first, end):
            at, (left, right) = starts[node], children[node]
            below_it = at + header + (set_of[node] >= 0)
            beyond = below_it + (of_leaf if left < 0 else size[left])
            for child, where in ((left, below_it), (right, beyond)):
                if child < 0:
                    slots[where : where + of_leaf] = values[~child]
                else:
                    starts[child] = where
            code, jump, leaves = codes[node], beyond - at, (left < 0) << 15 | (right < 0) << 14
            if set_of[node] >= 0:
                code = 0xFFFF if is_wide else 0xFF
                slots[at + header] = set_of[node]
            if is_wide:
                slots[at : at + 4] = places[node], code, jump & 0xFFFF, leaves | jump >> 16
            else:
                slots[at : at + 2] = code << 8 | places[node], leaves | jump
        out.append(np.array([length & 0xFFFF, length >> 16][: 1 + is_wide], dtype=np.uint16))
        out.append(slots)
    return np.concatenate([np.zeros(0, np.uint16), *out])


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

    ``pool`` has the first slots of leaves so far, each once; without one, functions return the value of a leaf.
    """
    # The cut of a score is its number, which is a float, too.
    limits = np.where(place < n_columns, round_down(trees.threshold), cut)
    kind, values = ("<i2", np.rint(trees.values / unit)) if unit else ("<f4", trees.values)
    slots = [row.tobytes() for row in np.ascontiguousarray(values, dtype=kind)]

    def body(child: int, indent: str) -> list[str]:
        if child < 0:
            if pool is None:
                return [f"{indent}return {int(values[~child, 0])};"]
            if slots[~child] not in pool:
                pool[slots[~child]] = sum(map(len, pool)) // 2
            return [f"{indent}return {pool[slots[~child]]};"]
        at = f"v[{place[child]}]"
        if number[child] >= 0:
            asked = f"in_set({at}, {number[child]}, {int(trees.missing_left[child])})"
        else:
            name = "AT_MOST_OR_MISSING" if trees.missing_left[child] else "AT_MOST"
            asked = f"{name}({at}, {int(cut[child])}, {c_float(limits[child])})"
        left, right = trees.children[child].tolist()
        return [f"{indent}if ({asked}) {{", *body(left, indent + " "), f"{indent}}}", *body(right, indent)]

    return ["\n".join(body(int(root), "    ")) for root in trees.roots]


def slot_counts(trees: TreeEnsemble, number: Any, is_wide: bool, is_narrow_leaf: bool) -> Any:
    """Slots of each tree, without the number of them in front."""
    of_node = np.r_[0, np.cumsum((4 if is_wide else 2) + (number >= 0))]
    of_leaf = (1 if is_narrow_leaf else 2) * trees.n_outputs
    return np.diff(of_node[trees.node_offsets]) + of_leaf * np.diff(trees.leaf_offsets)


@dataclass(frozen=True)
class Plan:
    """Tables of a model but for the slots, which are counted.

    Attributes
    ----------
    tables, functions : list of str
        Text of the tables, and bodies of the functions of trees.
    flags : dict of str to int
        What the program is compiled for.
    flash_bytes, table_bytes, state_bytes : int
        Bytes of tables and program, of the tables alone, and of a session.
    n_codes : int
        Number of the codes of a session.
    code_type : str
        Their type.
    price : float
        Price of a purchase, where all have one.
    slots : callable
        Makes the slots of all trees.
    """

    tables: list[str]
    functions: list[str]
    flags: dict[str, int]
    flash_bytes: int
    table_bytes: int
    state_bytes: int
    n_codes: int
    code_type: str
    price: float
    slots: Callable[[], Any]


def plan_of(model: DeviceModel, leaves: str, layout: str = "table") -> Plan:
    """Plan the tables of a model whose leaves are of some type, and what they take."""
    codes, is_narrow_leaf, is_code = _Codes(model), leaves == "int16", layout == "code"
    n_order, n_scores = len(model.order), model.n_scores
    numbered = [
        (trees, *codes.of_nodes(trees, stage, is_code))
        for stage, one in enumerate(model.stages)
        for trees in (one.trees, one.gate)
        if trees is not None
    ]
    unit = score_unit(model)
    least = [least for one in model.stages for least in ([unit] if one.gate is None else [unit, 0.0])]
    units = [
        leaf_unit(one[0], of_sums) if is_narrow_leaf else None
        for one, of_sums in zip(numbered, least, strict=True)
    ]
    is_value = is_code and is_narrow_leaf and all(trees.n_outputs == 1 for trees, *_ in numbered)

    def counted(is_wide: bool) -> list[Any]:
        return [slot_counts(trees, number, is_wide, is_narrow_leaf) for trees, _, _, number in numbered]

    longest = max((int(one.max(initial=0)) for one in counted(False)), default=0)
    is_wide = not is_code and (
        2 * n_order + n_scores > NARROW_PLACES or codes.most_codes > NARROW_CUTS or longest > NARROW_SLOTS
    )
    functions: list[str] = []
    if is_code:
        pool: dict[bytes, int] = {}
        starts = [0]
        for one, of_leaf in zip(numbered, units, strict=True):
            functions += tree_functions(*one, None if is_value else pool, of_leaf, len(model.names))
            starts.append(len(functions))
        n_slots = sum(map(len, pool)) // 2
    else:
        starts = np.cumsum(
            [0, *(int(one.sum()) + (1 + is_wide) * len(one) for one in counted(is_wide))]
        ).tolist()
        n_slots = starts[-1]

    def slots() -> Any:
        if is_code:
            return np.frombuffer(b"".join(pool), dtype="<u2")
        return np.concatenate(
            [slots_of(*one, is_wide, of_leaf) for one, of_leaf in zip(numbered, units, strict=True)]
        )

    tables = _Tables()
    has_sets, has_gates = bool(codes.sets), any(one.gate is not None for one in model.stages)
    if has_sets:
        masks = list(codes.sets)
        tables.add("uint8_t", "sets", b"".join(masks), 1)
        tables.add("uint32_t", "set_starts", np.cumsum([0, *map(len, masks)]), 4)
    is_short, price = codes.are_short, np.float32(model.cost[-1] / max(n_order, 1))
    if not is_code:
        cuts = np.concatenate([np.zeros(0, int), *codes.cuts]) >> 16 * is_short
        tables.add("thrifty_cut", "cuts", cuts.tolist(), 2 if is_short else 4)
        index = 16 if len(cuts) < 2**16 else 32
        first = np.cumsum([0, *(len(one) for one in codes.cuts)])
        tables.add(f"uint{index}_t", "first_cut", first.tolist(), index // 8)
    column = 8 if len(model.names) < 2**8 else 16
    tables.add(f"uint{column}_t", "order", model.order.tolist(), column // 8)
    if any(codes.n_levels):
        tables.add("uint16_t", "n_levels", codes.n_levels, 2)
    is_mixed = any(one.is_mixed for one in model.points)
    is_even = np.array_equal(price * np.arange(n_order + 1, dtype=np.float32), model.cost.astype(np.float32))
    flags = {
        "IS_CODE": int(is_code),
        "WIDE": int(is_wide),
        "LEAF_BITS": 16 if is_narrow_leaf else 32,
        "SHORT_CUTS": int(is_short),
        "EVEN_COSTS": int(is_even),
        "HAS_SETS": int(has_sets),
        "HAS_LEVELS": int(any(codes.n_levels)),
        "HAS_GATES": int(has_gates),
        "GATE_IN_LEAVES": int(any(one.gate_first for one in model.stages)),
        "LEAF_IN_CODE": int(is_value),
        "RESTARTS": int(not all(one.carries for one in model.stages[1:])),
        "HAS_CALIBRATION": int(any(one.slope != 1.0 or one.shift.any() for one in model.stages)),
        "IS_MIXED": int(is_mixed),
        "IS_NUMBER": int(not model.classes),
    }
    _write_stages(tables, model, codes, starts, units, flags)
    _write_points(tables, model, is_mixed)
    n_sums = n_scores + flags["GATE_IN_LEAVES"]
    # The sums of the first stage go on from what they would start from.
    base = model.base if model.stages[0].carries else model.stages[0].start
    base = np.r_[np.zeros(n_sums - len(base)), base]
    tables.add("thrifty_sum", "base", _sums(model, base, is_narrow_leaf), 4 if is_narrow_leaf else 8)
    if not is_even:
        tables.add("float", "costs", map(c_float, model.cost), 4)
    code_type = "int32_t" if is_code else "uint16_t" if is_wide else "uint8_t"
    code_bytes, n_codes = np.dtype(code_type[:-2]).itemsize, len(model.names) if is_code else 2 * n_order
    n_codes += n_scores * has_gates
    sum_bytes = 4 if is_narrow_leaf else 8
    state = -(-(sum_bytes * n_sums + code_bytes * max(n_codes, 1)) // 2) * 2 + 8
    table_bytes = tables.n_bytes + 2 * max(n_slots, 1)
    return Plan(
        tables.texts,
        functions,
        flags,
        table_bytes + program_bytes(flags, n_scores, len(model.stages)),
        table_bytes,
        -(-state // sum_bytes) * sum_bytes,
        max(n_codes, 1),
        code_type,
        float(price),
        slots,
    )


def program_bytes(flags: dict[str, int], n_scores: int, n_stages: int) -> int:
    """Bytes of the program on a Cortex-M4F by GCC 12 with ``-Os``, without the functions of libgcc that it calls.

    A sum of what each part of the program adds, as measured, and at most 150 bytes too large. The compiler works out
    beforehand what a single stage does.
    """
    is_narrow_leaf, has_classes, is_alone = flags["LEAF_BITS"] == 16, n_scores > 1, n_stages == 1
    start = {True: ((905, 960), (690, 730)), False: ((1080, 1235), (750, 860))}
    calibration = {True: ((125, 205), (100, 260)), False: ((85, 70), (110, 190))}
    parts = {
        "WIDE": ((15, 15), (15, 15)),
        "HAS_SETS": ((115, 115), (115, 140)),
        "HAS_GATES": ((215, 245), (140, 190)),
        "GATE_IN_LEAVES": ((80, 130), (80, 100)),
        "HAS_CALIBRATION": calibration[is_narrow_leaf],
        "IS_MIXED": ((232, 226), (262, 262)),
        "RESTARTS": ((60, 60), (0, 0)),
        "IS_NUMBER": ((-80, 0), (-40, 0)),
    }
    found = [start[is_narrow_leaf], *(n_bytes for name, n_bytes in parts.items() if flags[name])]
    return sum(n_bytes[is_alone][has_classes] for n_bytes in found)


def source_of(
    model: DeviceModel, identity: str, version: str, leaves: str, layout: str, rows: Sequence[TestRow]
) -> Source:
    """Header and program of a model.

    Parameters
    ----------
    model : DeviceModel
        What to write.
    identity, version : str
        Identity of the system, and version of thrifty.
    leaves : {"float32", "int16"}
        Type of the values of leaves; 16 bits hold values that ``with_leaves`` has rounded.
    layout : {"table", "code"}
        Whether trees are tables or functions.
    rows : sequence of TestRow
        Rows of the self-test.
    """
    plan, tables = plan_of(model, leaves, layout), _Tables()
    if not plan.flags["LEAF_IN_CODE"]:
        tables.add("uint16_t", "slots", plan.slots().tolist(), 2)
    tables.texts += plan.tables
    if rows:
        tables.texts.append(_test_rows(rows, len(model.names)))
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
        "UNIT": c_double(score_unit(model)),
        "ENUMS": _enums(model),
        "FLAGS": "\n".join(
            [
                *(f"#define THRIFTY_{name} {value}" for name, value in plan.flags.items()),
                "#if !THRIFTY_COMPARES_FLOATS",
                f"#define THRIFTY_MISSING {np.iinfo(plan.code_type[:-2]).max}",
                "#define IS_MISSING(code) ((code) == THRIFTY_MISSING)",
                "#else",
                '#define THRIFTY_MISSING __builtin_nanf("")',
                "#define IS_MISSING(code) ((code) != (code))",
                "#endif",
                f"typedef int{16 if plan.flags['SHORT_CUTS'] else 32}_t thrifty_cut;",
            ]
        ),
        "TABLES": "\n\n".join(tables.texts),
        "TREES": _tree_texts(plan.functions, "int32_t" if plan.flags["LEAF_IN_CODE"] else "uint32_t"),
        "PRICE": c_float(plan.price),
        "SPREAD": c_double(model.spread),
        "CENTRE": c_double(model.centre),
    }
    return Source(
        _filled("runtime.h", parts),
        _filled("runtime.c", parts),
        plan.flash_bytes,
        plan.table_bytes,
        plan.state_bytes,
    )


def _types(plan: Plan) -> str:
    """Types of the codes and of the sums of a session."""
    codes = f"#define THRIFTY_COMPARES_FLOATS 0\ntypedef {plan.code_type} thrifty_code;"
    if plan.flags["IS_CODE"]:
        codes = (
            "/* Whether trees compare floats, or whole numbers in their place. */\n"
            "#if defined(__GNUC__) && "
            "((defined(__ARM_FP) && (__ARM_FP & 4)) || defined(__SSE2__) || defined(__wasm__))\n"
            f"#define THRIFTY_COMPARES_FLOATS 1\ntypedef float thrifty_code;\n#else\n{codes}\n#endif"
        )
    return f"{codes}\ntypedef {'int32_t' if plan.flags['LEAF_BITS'] == 16 else 'double'} thrifty_sum;\n"


def _sums(model: DeviceModel, numbers: Floats, is_narrow_leaf: bool) -> list[str]:
    """Numbers that sums start from, as C writes them."""
    unit = score_unit(model)
    return [str(round(one / unit)) if is_narrow_leaf else c_double(one) for one in numbers.tolist()]


def _tree_texts(functions: list[str], kind: str) -> str:
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
    return re.sub(r"@([A-Z_]+)@", lambda found: str(parts[found[1]]), text)


def _write_stages(
    tables: _Tables,
    model: DeviceModel,
    codes: _Codes,
    firsts: Sequence[int],
    units: Sequence[float | None],
    flags: dict[str, int],
) -> None:
    """Write the stages, their numbers, and the cuts of scores that gates read."""
    numbers: list[float] = []
    cuts: list[float] = []
    starts: list[str] = []
    stages, cut_starts, written, unit = [], [0], 0, score_unit(model)
    is_calibrated, is_narrow_leaf = flags["HAS_CALIBRATION"], flags["LEAF_BITS"] == 16
    for place, stage in enumerate(model.stages):
        of_leaf = units[written] or unit
        reals = [stage.margin, *([stage.slope] if is_calibrated else ())]
        counts = [firsts[written], len(numbers), *([len(starts)] if flags["RESTARTS"] else ())]
        carries = stage.carries or place == 0
        starts += [] if carries else _sums(model, stage.start, is_narrow_leaf)
        numbers += stage.shift.tolist() if is_calibrated else []
        written += 1
        gate, score_start, n_gate, gate_unit = 0, len(cut_starts) - 1, 0, 1.0
        if stage.gate is not None:
            numbers.append(stage.gate_start)
            gate, n_gate, gate_unit = firsts[written], stage.gate.n_trees, units[written] or 1.0
            written += 1
            for some in codes.score_cuts[place]:
                cuts += some.tolist()
                cut_starts.append(len(cuts))
            cut_starts.append(len(cuts))
        if flags["HAS_GATES"]:
            reals += [gate_unit] if is_narrow_leaf else []
            counts += [gate, score_start, n_gate]
        counts += [stage.trees.n_trees, stage.n_held, int(of_leaf / unit) if is_narrow_leaf else 1]
        by_margin = {0.0: 0, -1.0: 1 + (stage.gate is not None or stage.gate_first)}.get(stage.margin, 2)
        kinds = [*([int(carries)] if flags["RESTARTS"] else ()), int(stage.gate_first), by_margin]
        stages.append("{" + ", ".join([*map(c_double, reals), *map(str, counts + kinds)]) + "}")
    if is_calibrated or flags["HAS_GATES"]:
        tables.add("double", "numbers", map(c_double, numbers), 8)
    if flags["RESTARTS"]:
        tables.add("thrifty_sum", "starts", starts, 4 if is_narrow_leaf else 8)
    n_bytes = 8 * len(reals) + 16 + 10 * flags["HAS_GATES"] + 5 * flags["RESTARTS"]
    tables.add("thrifty_stage", "stages", stages, -(-n_bytes // 8) * 8)
    if flags["HAS_GATES"]:
        tables.add("double", "score_cuts", map(c_double, cuts), 8)
        tables.add("uint32_t", "score_starts", cut_starts, 4)


def _write_points(tables: _Tables, model: DeviceModel, is_mixed: bool) -> None:
    """Write the operating points, and the rows of thresholds that they use."""
    thresholds, points = point_table(model)
    written = [
        f"{{{lower}, {upper}" + (f", UINT64_C({seed:#x}), UINT64_C({limit})}}" if is_mixed else "}")
        for lower, upper, seed, limit in points
    ]
    tables.add("double", "thresholds", map(c_double, thresholds.ravel()), 8)
    tables.add("thrifty_point", "points", written, 24 if is_mixed else 4)


def c_double(value: float) -> str:
    """A double as C writes it, to the last bit; one that no score reaches is the largest of the target."""
    if abs(value) > np.finfo(np.float32).max:  # AVR has no larger ones
        return "DBL_MAX" if value > 0 else "-DBL_MAX"
    return float(value).hex()


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

    parts = [enum("Columns.", [named("COLUMN", one) for one in model.names])]
    for column, levels in sorted(model.levels.items()):
        name = re.sub(r"[^0-9A-Za-z]+", "_", model.names[column])
        parts.append(enum(f"Levels of {name}.", [named(f"LEVEL_{name.upper()}", one) for one in levels]))
    if model.classes:
        parts.append(enum("Classes.", [named("CLASS", one) for one in model.classes]))
    return "\n".join(parts)


def _test_rows(rows: Sequence[TestRow], n_columns: int) -> str:
    """Rows of the self-test as C writes them."""
    lines = []
    for row in rows:
        missing = np.isnan(row.values)
        values = ", ".join(c_float(one) for one in np.where(missing, 0.0, row.values))
        flags = ", ".join(str(int(one)) for one in missing)
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
