"""C99 source of a device model: tables of 16-bit slots, and one fixed program that walks them.

A tree is written in preorder, so that the left child follows its parent and only the way to the right child takes a
number. A *narrow* node takes two slots:

    cut << 8 | place        left is a leaf << 15 | right is a leaf << 14 | slots to the right

and compares the code at a place with its cut. A column has two places, ``2 * column + missing goes left``, whose codes
differ where the column is missing: one is larger than every cut, the other the smallest. A *wide* node takes four
slots, for more than 255 places, 254 thresholds of a column or 16,383 slots of a tree. Leaves stand in the place of
nodes. ``cut`` is the number of the threshold among those of its column; a node that asks for a set of
levels has the largest cut and the number of the set behind it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import numpy as np

from thrifty.arrays import Floats
from thrifty.chain.policy import Policy
from thrifty.device.model import DeviceModel, leaf_unit
from thrifty.errors import InvalidInputError
from thrifty.rows import key_words
from thrifty.trees import TreeEnsemble

__all__ = ["Source", "TestRow", "source_of"]

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
    table_bytes, state_bytes : int
        Bytes of all constant tables, and of a session.
    most_steps : int
        Comparisons of a row that passes every stage by the longest ways.
    """

    header: str
    program: str
    table_bytes: int
    state_bytes: int
    most_steps: int


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
        self.n_order = n_order
        self.n_levels = [len(model.levels.get(int(column), ())) for column in model.order]
        found: list[list[Floats]] = [[] for _ in range(n_order)]
        for trees in model.ensembles:
            is_set = np.zeros(len(trees.feature), dtype=bool)
            if trees.sets is not None:
                is_set[trees.sets.nodes] = True
            for column in np.unique(trees.feature[~is_set]).tolist():
                if column < n_order and not self.n_levels[column]:
                    found[column].append(trees.threshold[~is_set & (trees.feature == column)])
        self.cuts = [ordered(round_down(np.concatenate(one))) if one else np.zeros(0, int) for one in found]
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
        if self.most_codes > WIDE_CUTS:
            raise InvalidInputError(
                f"a column must have at most {WIDE_CUTS:,} thresholds or levels to be exported; got "
                f"{self.most_codes:,}."
            )

    def of_nodes(self, trees: TreeEnsemble, stage: int) -> tuple[Any, Any, Any]:
        """Place of the code that each node reads, number of its cut, and number of its set, -1 where it compares."""
        n_order = self.n_order
        place = np.where(
            trees.feature < n_order, 2 * trees.feature + trees.missing_left, n_order + trees.feature
        )
        cut, number = np.zeros(len(trees.feature), int), np.full(len(trees.feature), -1)
        given = (
            {}
            if trees.sets is None
            else dict(zip(trees.sets.nodes.tolist(), range(len(trees.sets.nodes)), strict=True))
        )
        rounded = round_down(trees.threshold)
        for node, column in enumerate(trees.feature.tolist()):
            if column >= self.n_order:
                cuts = self.score_cuts[stage][column - self.n_order]
                cut[node] = np.searchsorted(cuts, trees.threshold[node])
            elif self.n_levels[column]:
                which = given.get(node)
                if which is None:  # a comparison of numbers of levels is a set, too
                    levels: Any = np.flatnonzero(np.arange(self.n_levels[column]) <= trees.threshold[node])
                else:
                    assert trees.sets is not None
                    levels = trees.sets.levels[trees.sets.offsets[which] : trees.sets.offsets[which + 1]]
                number[node] = self._set(levels, self.n_levels[column])
            else:
                cut[node] = np.searchsorted(self.cuts[column], ordered(rounded[node : node + 1])[0])
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
    """Floats as whole numbers in the same order, each once; both zeros are 0."""
    bits = single.astype(np.float32).view(np.uint32).astype(np.int64)
    size = bits & 0x7FFFFFFF
    return np.unique(np.where(bits >> 31 == 1, -size, size))


def slots_of(
    trees: TreeEnsemble, place: Any, cut: Any, number: Any, is_wide: bool, narrow_unit: float | None
) -> Any:
    """The slots of all trees, or None where narrow nodes cannot hold them."""
    per_value = 1 if narrow_unit else 2
    of_leaf, header = per_value * trees.n_outputs, 4 if is_wide else 2
    if narrow_unit:
        values = np.rint(trees.values / narrow_unit).astype(np.int64).astype(np.uint16)
    else:
        values = np.ascontiguousarray(trees.values, dtype="<f4").view("<u2")
    values = values.reshape(len(trees.values), of_leaf)
    n_nodes, children = len(trees.feature), trees.children
    own = header + (number >= 0)
    size = np.zeros(n_nodes, dtype=np.int64)
    for node in range(n_nodes - 1, -1, -1):
        size[node] = own[node] + sum(of_leaf if child < 0 else size[child] for child in children[node])
    out, starts = [], np.zeros(n_nodes, dtype=np.int64)
    for tree in range(trees.n_trees):
        first, end = int(trees.node_offsets[tree]), int(trees.node_offsets[tree + 1])
        length = int(size[first]) if end > first else of_leaf
        if not is_wide and length > NARROW_SLOTS:
            return None
        slots = np.zeros(length, dtype=np.uint16)
        if end == first:
            slots[:] = values[trees.leaf_offsets[tree]]
        starts[first:end] = 0
        for node in range(first, end):
            at, (left, right) = int(starts[node]), children[node].tolist()
            below = at + int(own[node])
            beyond = below + (of_leaf if left < 0 else int(size[left]))
            for child, where in ((left, below), (right, beyond)):
                if child < 0:
                    slots[where : where + of_leaf] = values[~child]
                else:
                    starts[child] = where
            code, jump = int(cut[node]), beyond - at
            leaves = (left < 0) << 15 | (right < 0) << 14
            if is_wide:
                code = 0xFFFF if number[node] >= 0 else code
                slots[at : at + 4] = place[node], code, jump & 0xFFFF, leaves | jump >> 16
            else:
                code = 0xFF if number[node] >= 0 else code
                slots[at : at + 2] = code << 8 | int(place[node]), leaves | jump
            if number[node] >= 0:
                slots[at + header] = number[node]
        out.append(np.array([length & 0xFFFF, length >> 16][: 1 + is_wide], dtype=np.uint16))
        out.append(slots)
    return np.concatenate([np.zeros(0, np.uint16), *out])


def depth_of(trees: TreeEnsemble) -> int:
    """Comparisons on the longest way down each tree, over all trees."""
    depth = np.zeros(len(trees.feature), dtype=np.int64)
    total = 0
    for node in range(len(trees.feature) - 1, -1, -1):
        depth[node] = 1 + max((depth[child] for child in trees.children[node] if child >= 0), default=0)
    for first, end in zip(trees.node_offsets[:-1], trees.node_offsets[1:], strict=True):
        total += int(depth[first]) if end > first else 0
    return total


def source_of(
    model: DeviceModel, identity: str, version: str, leaves: str, rows: Sequence[TestRow]
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
    rows : sequence of TestRow
        Rows of the self-test.
    """
    codes, is_narrow_leaf = _Codes(model), leaves == "int16"
    n_order, n_scores = len(model.order), model.n_scores
    numbered = [
        (trees, stage, *codes.of_nodes(trees, stage), leaf_unit(trees) if is_narrow_leaf else None)
        for stage, one in enumerate(model.stages)
        for trees in (one.trees, one.gate)
        if trees is not None
    ]
    is_wide = (
        2 * n_order + n_scores > NARROW_PLACES or codes.most_codes > NARROW_CUTS or len(codes.sets) > 2**16
    )
    written: list[Any] = []
    for trees, _, place, cut, number, unit in numbered:
        slots = None if is_wide else slots_of(trees, place, cut, number, False, unit)
        if slots is None and not is_wide:
            is_wide = True
            break
        written.append(slots)
    if is_wide:
        written = [
            slots_of(trees, place, cut, number, True, unit) for trees, _, place, cut, number, unit in numbered
        ]
    tables = _Tables()
    starts = np.cumsum([0, *(len(one) for one in written)])
    tables.add("uint16_t", "slots", np.concatenate(written), 2)
    has_sets, has_gates = bool(codes.sets), any(one.gate is not None for one in model.stages)
    if has_sets:
        masks = list(codes.sets)
        tables.add("uint8_t", "sets", b"".join(masks), 1)
        tables.add("uint32_t", "set_starts", np.cumsum([0, *map(len, masks)]), 4)
    tables.add("int32_t", "cuts", (one for some in codes.cuts for one in some.tolist()), 4)
    first_cuts = np.cumsum([0, *(len(one) for one in codes.cuts)])
    described = [
        f"{{{column}, {n_levels}, {first}}}"
        for column, n_levels, first in zip([*model.order, 0], [*codes.n_levels, 0], first_cuts, strict=True)
    ]
    tables.add("thrifty_column", "columns", described, 8)
    _write_stages(tables, model, codes, starts, has_gates, is_narrow_leaf)
    _write_points(tables, model)
    tables.add("double", "base", map(c_double, model.base), 8)
    tables.add("float", "costs", (c_float(one) for one in model.cost), 4)
    if rows:
        tables.texts.append(_test_rows(rows, len(model.names)))
    banner = f"Written by thrifty {version} from the system {identity}. Do not edit."
    code_bytes, n_codes = 2 if is_wide else 1, max(2 * n_order + n_scores * has_gates, 1)
    parts = {
        "BANNER": banner,
        "IDENTITY": identity,
        "N_COLUMNS": len(model.names),
        "N_SCORES": n_scores,
        "N_STAGES": len(model.stages),
        "N_POINTS": len(model.points),
        "N_ORDER": n_order,
        "N_CODES": n_codes,
        "CODES": f"typedef uint{8 * code_bytes}_t thrifty_code;\n",
        "ENUMS": _enums(model),
        "TABLES": "\n\n".join(
            [
                f"#define THRIFTY_WIDE {int(is_wide)}",
                f"#define THRIFTY_LEAF_BITS {16 if is_narrow_leaf else 32}",
                f"#define THRIFTY_MISSING {2 ** (8 * code_bytes) - 1}u",
                f"#define THRIFTY_HAS_SETS {int(has_sets)}",
                f"#define THRIFTY_HAS_LEVELS {int(any(codes.n_levels))}",
                f"#define THRIFTY_HAS_GATES {int(has_gates)}",
                f"#define THRIFTY_IS_NUMBER {int(not model.classes)}",
                *tables.texts,
            ]
        ).replace("\n\n#define", "\n#define"),
        "SPREAD": c_double(model.spread),
        "CENTRE": c_double(model.centre),
    }
    state = 8 * n_scores + code_bytes * n_codes + 8
    return Source(
        _filled("runtime.h", parts),
        _filled("runtime.c", parts),
        tables.n_bytes,
        -(-state // 8) * 8,
        sum(map(depth_of, model.ensembles)),
    )


def _filled(name: str, parts: dict[str, Any]) -> str:
    text = files("thrifty.device").joinpath(name).read_text(encoding="utf-8")
    return re.sub(r"@([A-Z_]+)@", lambda found: str(parts[found[1]]), text)


def _write_stages(
    tables: _Tables, model: DeviceModel, codes: _Codes, starts: Any, has_gates: bool, is_narrow_leaf: bool
) -> None:
    """Write the stages, their numbers, and the cuts of scores that gates read."""
    numbers: list[float] = []
    cuts: list[float] = []
    stages, cut_starts, written = [], [0], 0
    for place, stage in enumerate(model.stages):
        first = len(numbers)
        numbers += [*stage.shift, *([] if stage.carries else stage.start), stage.gate_start]
        trees = int(starts[written])
        written += 1
        gate, n_gate, gate_unit, score_start = 0, 0, 1.0, len(cut_starts) - 1
        if stage.gate is not None:
            gate, n_gate = int(starts[written]), stage.gate.n_trees
            gate_unit = leaf_unit(stage.gate) if is_narrow_leaf else 1.0
            written += 1
            for some in codes.score_cuts[place]:
                cuts += some.tolist()
                cut_starts.append(len(cuts))
            cut_starts.append(len(cuts))
        unit = leaf_unit(stage.trees) if is_narrow_leaf else 1.0
        flags = f"{int(stage.carries)}, {int(stage.gate_first)}"
        reals = ", ".join(map(c_double, (stage.slope, stage.margin, unit, gate_unit)))
        counts = f"{stage.trees.n_trees}, {n_gate}, {stage.n_held}"
        stages.append(f"{{{trees}, {gate}, {first}, {score_start}, {counts}, {flags}, {reals}}}")
    tables.add("double", "numbers", map(c_double, numbers), 8)
    tables.add("thrifty_stage", "stages", stages, 56)
    if has_gates:
        tables.add("double", "score_cuts", map(c_double, cuts), 8)
        tables.add("uint32_t", "score_starts", cut_starts, 4)


def _write_points(tables: _Tables, model: DeviceModel) -> None:
    """Write the operating points, and the rows of thresholds that they use."""
    rows: dict[bytes, int] = {}
    kept: list[Floats] = []

    def row_of(thresholds: Floats) -> int:
        if thresholds.tobytes() not in rows:
            rows[thresholds.tobytes()] = len(kept)
            kept.append(thresholds)
        return rows[thresholds.tobytes()]

    points = []
    for policy in model.points:
        lower, upper = row_of(policy.thresholds[policy.lower]), row_of(policy.thresholds[policy.upper])
        seed = f"UINT64_C({seed_word(policy.seed):#x})"
        points.append(f"{{{lower}, {upper}, {seed}, UINT64_C({chance_limit(policy)})}}")
    tables.add("double", "thresholds", (c_double(one) for row in kept for one in row), 8)
    tables.add("thrifty_point", "points", points, 24)


def seed_word(seed: int) -> int:
    """The word of a seed that ``key_chance`` adds to that of the key."""
    word, mask = seed, 2**64 - 1
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        word = (word ^ (word >> shift)) * factor & mask
    return word


def chance_limit(policy: Policy) -> int:
    """Number of the 2^53 chances below the share, as ``Policy.follows_upper`` compares them."""
    low, high = 0, 2**53
    while low < high:
        middle = (low + high) // 2
        if (np.float64(middle) + 0.5) / 2.0**53 < policy.share:
            low = middle + 1
        else:
            high = middle
    return low


def c_double(value: float) -> str:
    """A double as C writes it, to the last bit; one that no score reaches is the largest of the target."""
    if abs(value) > np.finfo(np.float32).max:  # AVR has no larger ones
        return "DBL_MAX" if value > 0 else "-DBL_MAX"
    return float(value).hex()


def c_float(value: float) -> str:
    """A float of single precision as C writes it."""
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
