"""Prices, names and levels, tasks and evidence as parts of a file, and back.

What a file says about the columns of a table: prices, names, levels, and the kind of table.

What a file says about answers: labels and what mistakes between them cost, numbers, or the order of documents.

The evidence about a chain, as JSON and arrays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from thrifty.arrays import Codes, Floats, Ints, Labels, Numbers
from thrifty.bundle.fields import Fields, Packer
from thrifty.chain.chain import Chain
from thrifty.chain.stage import Stage, nodes_of
from thrifty.errors import InvalidInputError
from thrifty.evidence.evidence import Evidence, QueryEvidence
from thrifty.prices.billing import Discounts, ForgottenFunction, PriceList, RowPrices, free_columns
from thrifty.tables.columns import HOLDS, ColumnType, Levels, is_known_type, level_text
from thrifty.tasks.classes import classification
from thrifty.tasks.mistakes import CostMatrix, read_loss
from thrifty.tasks.ranking import GRADIENTS, MEASURES, RankingTask, queries_of
from thrifty.tasks.regression import RegressionTask
from thrifty.tasks.task import Task
from thrifty.trees import TreeEnsemble

__all__ = [
    "MOST_CLASSES",
    "check_sets",
    "pack_evidence",
    "pack_levels",
    "pack_loss",
    "pack_table",
    "pack_task",
    "pack_types",
    "unpack_classes",
    "unpack_evidence",
    "unpack_kind",
    "unpack_levels",
    "unpack_names",
    "unpack_prices",
    "unpack_strata",
    "unpack_task",
    "unpack_types",
]


def pack_table(system: Any, packer: Packer) -> dict[str, Any]:
    """What every system knows of its tables: prices, labels and columns."""
    prices: PriceList = system.price_list
    return {
        "prices": packer.floats(prices.prices),
        "group_of": packer.columns(prices.group_of),
        "full_cost": packer.value(float(prices.full_cost)),
        "full_columns": None if prices.full_columns is None else packer.columns(prices.full_columns),
        **_pack_discounts(prices, packer),
        **_pack_row_prices(prices, packer),
        "classes": packer.value(np.asarray(system.classes)),
        "names": None if system.names is None else [str(name) for name in system.names],
        "kind": getattr(system, "kind", None),
    }


def unpack_names(fields: Fields, n_features: int) -> tuple[str, ...] | None:
    """Names of the columns, if they have any."""
    names = fields.raw("names")
    if names is None:
        return None
    if not isinstance(names, list) or len(names) != n_features or not all(isinstance(n, str) for n in names):
        raise fields.refusal("names", f"name {n_features} columns", names)
    return tuple(names)


def unpack_kind(fields: Fields) -> str | None:
    """The kind of table."""
    kind = fields.raw("kind")
    if kind not in (None, "pandas", "polars"):
        raise fields.refusal("kind", "be a kind of table", kind)
    return str(kind) if kind else None


# -- prices --------------------------------------------------------------------------------------


def unpack_prices(fields: Fields) -> PriceList:
    """The price list, checked."""
    prices = fields.array("prices", np.float64, (None,))
    group_of = fields.array("group_of", np.int64, (None,)).astype(np.intp)
    full_cost = fields.number("full_cost")
    if full_cost < 0 or np.any(prices < 0):
        raise fields.refusal("prices", "be at least 0", "a negative one")
    with np.errstate(over="ignore"):
        if not np.isfinite(prices.sum() + full_cost):
            raise fields.refusal("prices", "have a finite sum", "an infinite one")
    if not len(group_of) or np.any((group_of < 0) | (group_of >= len(prices))):
        raise fields.refusal("group_of", f"name purchases in [0, {len(prices)})", group_of[:5].tolist())
    columns = None
    if fields.has("full_columns") and fields.raw("full_columns") is not None:
        columns = fields.columns("full_columns", len(group_of))
    discounts = _unpack_discounts(fields, prices)
    by_row = _unpack_row_prices(fields, prices, group_of, discounts)
    return PriceList(prices, group_of, full_cost, columns, discounts, by_row)


def _pack_discounts(prices: PriceList, packer: Packer) -> dict[str, Any]:
    if prices.discounts is None:
        return {}
    return {
        "discount_of": packer.columns(prices.discounts.of),
        "savings": packer.floats(prices.discounts.savings),
    }


def _unpack_discounts(fields: Fields, prices: Floats) -> Discounts | None:
    if not fields.has("savings"):
        return None
    savings = fields.array("savings", np.float64, (None,))
    of = fields.array("discount_of", np.int64, (len(prices),)).astype(np.intp)
    if np.any((of < -1) | (of >= len(savings))):
        raise fields.refusal("discount_of", f"name discounts in [0, {len(savings)}), or -1", of[:5].tolist())
    if np.any(~np.isfinite(savings) | (savings < 0)) or np.any(prices[of >= 0] < savings[of[of >= 0]]):
        raise fields.refusal("savings", "lie between 0 and the price of each purchase", savings[:5].tolist())
    return Discounts(of, savings)


def _pack_row_prices(prices: PriceList, packer: Packer) -> dict[str, Any]:
    if prices.by_row is None:
        return {}
    return {
        "priced_by_row": packer.columns(prices.by_row.purchases),
        "row_prices": packer.columns(prices.by_row.price_column),  # -1 is a function, which no file keeps
    }


def _unpack_row_prices(
    fields: Fields, prices: Floats, group_of: Ints, discounts: Discounts | None
) -> RowPrices | None:
    if not fields.has("priced_by_row"):
        return None
    purchases = fields.columns("priced_by_row", len(prices))
    columns = fields.array("row_prices", np.int64, (len(purchases),)).astype(np.intp)
    if not len(purchases) or np.any(np.diff(purchases) <= 0):
        raise fields.refusal("priced_by_row", "name purchases, each once and rising", purchases[:5].tolist())
    free = free_columns(prices, group_of, purchases)
    if not len(free) or not np.isin(columns, [-1, *free]).all():
        raise fields.refusal("row_prices", "name columns that are free, or -1", columns[:5].tolist())
    names = unpack_names(fields, len(group_of))
    first = [int(np.flatnonzero(group_of == purchase)[0]) for purchase in purchases]
    priced = [column if names is None else names[column] for column in first]
    reads = tuple(free if column < 0 else np.array([column]) for column in columns)
    functions = [
        ForgottenFunction(name) if told < 0 else None for name, told in zip(priced, columns, strict=True)
    ]
    of = np.full(len(purchases), -1) if discounts is None else discounts.of[purchases]
    least = np.zeros(len(of)) if discounts is None else np.where(of >= 0, discounts.savings[of], 0.0)
    return RowPrices(purchases, reads, least, tuple(functions))


# -- levels --------------------------------------------------------------------------------------


def pack_levels(levels: Levels | None) -> dict[str, Any]:
    """Levels by the number of their column, where there are any."""
    if levels is None:
        return {}
    return {"levels": {str(column): list(levels.of_column[column]) for column in levels.columns}}


def unpack_levels(fields: Fields, n_features: int) -> Levels | None:
    """Levels of each column of text or categories; files of earlier versions know none."""
    if not fields.has("levels"):
        return None
    found = fields.raw("levels")
    known = {str(column) for column in range(n_features)}
    right = isinstance(found, dict) and found.keys() <= known
    for texts in found.values() if right else ():
        right = right and isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        right = right and len(set(texts)) == len(texts)
    if not right:
        raise fields.refusal("levels", f"be lists of distinct text for some of {n_features} columns", found)
    return Levels({int(column): tuple(texts) for column, texts in found.items()})


# -- types ---------------------------------------------------------------------------------------

_PLAIN = (str, bool, int, float)


def pack_types(types: Sequence[ColumnType] | None) -> dict[str, Any]:
    """How the columns of a data frame were declared: every declaration once, and the number of each column's.

    Categories that are neither text, numbers nor truth values, such as intervals, are written as text.
    """
    if types is None:
        return {}
    # By what they are written as: 1 and 1.0 are the same number, and not the same category.
    distinct = {repr(one): one for one in types}
    number_of = {written: number for number, written in enumerate(distinct)}
    declared = [_pack_type(one) for one in distinct.values()]
    return {"types": {"of": [number_of[repr(one)] for one in types], "declared": declared}}


def _pack_type(one: ColumnType) -> dict[str, Any]:
    packed: dict[str, Any] = {"holds": one.holds, "dtype": one.dtype, "missing": one.missing}
    if one.categories is None:
        return packed
    is_plain = all(
        type(category) in _PLAIN and (type(category) is not float or np.isfinite(category))
        for category in one.categories
    )
    categories = list(one.categories) if is_plain else [level_text(category) for category in one.categories]
    return {**packed, "categories": categories, "ordered": one.ordered}


def unpack_types(
    fields: Fields, n_features: int, kind: str | None, levels: Levels | None
) -> tuple[ColumnType, ...] | None:
    """How the columns were declared; files of earlier versions tell at most which hold dates."""
    if not fields.has("types"):
        if not fields.has("dates"):
            return None
        dates = set(fields.columns("dates", n_features).tolist())
        time = ColumnType("time", "Datetime[us]" if kind == "polars" else "datetime64[ns]")
        texts = () if levels is None else levels.columns
        known = {**dict.fromkeys(texts, ColumnType("mixed")), **dict.fromkeys(dates, time)}
        return tuple(known.get(column, ColumnType("number")) for column in range(n_features))
    part = fields.inside("types")
    of, declared = part.raw("of"), part.items("declared")
    kinds = [_unpack_type(one) for one in declared]
    is_right = isinstance(of, list) and len(of) == n_features
    if not is_right or not all(type(one) is int and 0 <= one < len(kinds) for one in of):
        raise part.refusal("of", f"number a declaration for each of {n_features} columns", of)
    return tuple(kinds[one] for one in of)


def _unpack_type(part: Fields) -> ColumnType:
    holds, dtype, missing = part.text("holds"), part.text("dtype"), part.text("missing")
    if holds not in HOLDS or missing not in ("nan", "None"):
        raise part.refusal(
            "holds", f"be one of {', '.join(HOLDS)}, and missing nan or None", (holds, missing)
        )
    if dtype and not is_known_type(dtype):
        raise part.refusal("dtype", "be a type of columns", dtype[:100])
    if not part.has("categories"):
        return ColumnType(holds, dtype, missing=missing)
    found = part.raw("categories")
    is_right = isinstance(found, list) and all(type(one) in _PLAIN for one in found)
    if not is_right or len(set(found)) < len(found):
        raise part.refusal("categories", "be distinct texts, numbers or truth values", found)
    return ColumnType(holds, dtype, tuple(found), part.flag("ordered"), missing)


def check_sets(fields: Fields, stages: Sequence[Stage], n_levels: Mapping[int, int]) -> None:
    """Refuse trees that ask for levels which a column has not; ``n_levels`` is their number, by column."""
    for stage in (node for each in stages for node in nodes_of(each)):
        # Behind the columns of a stage a gate may read scores, which are no levels either.
        known = np.array([n_levels.get(int(column), 0) for column in stage.columns] + [0])
        turn = getattr(stage, "turn", None)
        for trees in [*getattr(stage, "__dict__", {}).values(), getattr(turn, "trees", None)]:
            if not isinstance(trees, TreeEnsemble) or trees.sets is None:
                continue
            place = np.minimum(trees.feature[trees.sets.nodes], len(stage.columns))
            allowed = np.repeat(known[place], np.diff(trees.sets.offsets))
            if np.any(known[place] == 0) or np.any(trees.sets.levels >= allowed):
                raise fields.refusal("stages", "ask for levels of columns that have them", "other sets")


MOST_CLASSES = 100_000


def pack_task(task: Task, packer: Packer) -> dict[str, Any]:
    """What an answer is, where the labels do not say it."""
    if not isinstance(task, RegressionTask):
        return {}
    numbers = {name: packer.value(getattr(task, name)) for name in ("centre", "spread", "tolerance")}
    if isinstance(task, RankingTask):
        words = {"gradients": task.gradients, "measure": task.measure, "k": task.k}
        return {"task": {"kind": "order", **words, **numbers}}
    if task.kind == "pinball":
        numbers["quantile"] = packer.value(task.quantile)
    return {"task": {"kind": "number", "error": task.kind, **numbers}}


def pack_loss(task: Task, packer: Packer) -> Any:
    """What answers lose, as it was given: a name, or a matrix of costs."""
    mistakes = getattr(task, "mistakes", None)
    if mistakes is None:
        return "error"
    return packer.floats(mistakes.costs) if isinstance(mistakes, CostMatrix) else mistakes.kind


def unpack_task(fields: Fields) -> Task:
    """What an answer is: a number, where the file says so, else one of its labels."""
    if not fields.has("task"):
        return _unpack_labels_task(fields)
    part = fields.inside("task")
    kind = part.text("kind")
    if kind not in ("number", "order"):
        raise part.refusal("kind", "be number or order", kind)
    centre, spread, tolerance = part.number("centre"), part.number("spread"), part.number("tolerance")
    if not (np.isfinite([centre, spread, tolerance]).all() and spread > 0 and tolerance >= 0):
        raise part.refusal("spread", "be positive, and all numbers finite", spread)
    if kind == "order":
        return _unpack_ranking(part, RankingTask("squared", centre, spread, tolerance))
    error = part.text("error")
    if error not in ("squared", "absolute", "pinball"):
        raise part.refusal("error", "be squared, absolute or pinball", error)
    if error == "pinball":
        quantile = part.number("quantile")
        if not 0.0 < quantile < 1.0:
            raise part.refusal("quantile", "lie between 0 and 1", quantile)
        return RegressionTask("pinball", centre, spread, tolerance, quantile)
    return RegressionTask("squared" if error == "squared" else "absolute", centre, spread, tolerance)


def _unpack_ranking(part: Fields, task: RankingTask) -> RankingTask:
    """The same gains, with what trees lower and how an order is judged."""
    gradients, measure, k = part.text("gradients"), part.text("measure"), part.raw("k")
    if gradients not in GRADIENTS:
        raise part.refusal("gradients", f"be one of {', '.join(GRADIENTS)}", gradients)
    if measure not in MEASURES:
        raise part.refusal("measure", f"be one of {', '.join(MEASURES)}", measure)
    if type(k) is not int or k < 1:
        raise part.refusal("k", "be a whole number of at least 1", k)
    return replace(task, gradients=gradients, measure=measure, k=k)


def _unpack_labels_task(fields: Fields) -> Task:
    """The task of some labels, and what answers lose; files of earlier versions count errors."""
    task = classification(unpack_classes(fields))
    if not fields.has("loss"):
        return task
    loss, n_classes = fields.value("loss"), len(task.classes)
    if not isinstance(loss, str):
        loss = fields.array("loss", np.float64, (n_classes, n_classes))
    try:
        return replace(task, mistakes=read_loss(loss, task.classes))
    except InvalidInputError as error:
        raise fields.refusal("loss", "be a loss", error) from None


def unpack_classes(fields: Fields) -> Labels:
    """Distinct labels, two of them or more."""
    classes = fields.value("classes")
    if not isinstance(classes, np.ndarray) or classes.ndim != 1 or not 2 <= len(classes) <= MOST_CLASSES:
        raise fields.refusal("classes", f"be from two to {MOST_CLASSES} labels", classes)
    plain = all(isinstance(label, str | int | float | np.generic) for label in classes.tolist())
    if not plain or len(set(classes.tolist())) < len(classes):
        raise fields.refusal("classes", "be distinct labels", classes[:5].tolist())
    return classes


def pack_evidence(evidence: Evidence, packer: Packer) -> dict[str, Any]:
    """The evidence as JSON; settings are what a file says elsewhere."""

    def quality(values: Numbers) -> dict[str, int]:
        return packer.array(np.asarray(values, dtype=np.bool_ if values.dtype == bool else np.float64))

    full = evidence.full_quality
    return {
        "gate": packer.floats(evidence.gate),
        "quality": quality(evidence.quality),
        "cost": packer.floats(evidence.cost),
        "full_quality": None if full is None else quality(full),
        "points": packer.optional(evidence.points),
        "weight": packer.optional(evidence.weight),
        **{name: None if rows is None else packer.array(rows) for name, rows in _known_of(evidence).items()},
        **({"documents": packer.floats(evidence.targets)} if isinstance(evidence, QueryEvidence) else {}),
    }


def _known_of(evidence: Evidence) -> dict[str, Labels | None]:
    return {name: getattr(evidence, name) for name in ("rows", "seen", "strata", "right")}


def unpack_evidence(fields: Fields, chain: Chain) -> Evidence:
    """The evidence about a chain, every part of it checked."""
    n_stages = chain.n_own_stages
    gate = fields.array("gate", np.float64, (None, n_stages))
    n_rows = len(gate)
    if not n_rows:
        raise fields.refusal("gate", "have a row", "none")

    def quality(name: str, shape: tuple[int, ...]) -> Any:
        kind = getattr(getattr(fields.value(name), "dtype", None), "kind", "f")
        return fields.array(name, np.bool_ if kind == "b" else np.float64, shape)

    per_row = getattr(fields.value("cost"), "ndim", 0) == 2
    cost = fields.array("cost", np.float64, (n_rows, n_stages + 1) if per_row else (n_stages + 1,))
    if np.any(cost < 0):
        raise fields.refusal("cost", "be at least 0", float(cost.min()))
    points = fields.optional_floats("points", None, n_stages, finite=False)
    if points is None and n_stages > 1:
        raise fields.refusal("points", f"be there for {n_stages} stages", "None")
    weight = fields.optional_floats("weight", n_rows)
    if weight is not None and (np.any(weight < 0) or not np.any(weight > 0)):
        raise fields.refusal("weight", "be at least 0, and not all 0", float(weight.min()))
    kind: type[Evidence] = Evidence
    known: dict[str, Any] = {}
    n_fingerprints = n_rows
    if isinstance(chain.task, RankingTask):
        documents = _unpack_documents(fields, n_rows)
        kind, known = QueryEvidence, {"document_targets": documents}
        n_fingerprints = len(np.unique(queries_of(documents)))
    return kind(
        gate,
        quality("quality", (n_rows, n_stages + 1)),
        cost,
        None if fields.raw("full_quality") is None else quality("full_quality", (n_rows,)),
        points,
        weight,
        tuple(chain.columns.tolist()),
        rows=_unpack_known(fields, "rows", np.uint64, n_fingerprints, 2),
        seen=_unpack_known(fields, "seen", np.uint64, None),
        strata=unpack_strata(fields, n_rows, len(chain.classes)),
        right=_unpack_known(fields, "right", np.bool_, n_rows, n_stages + 1),
        tolerance=chain.task.tolerance,
        task=chain.task,
        **known,
    )


def _unpack_documents(fields: Fields, n_rows: int) -> Floats:
    """Query and grade of each document, as the task encodes them."""
    documents = fields.array("documents", np.float64, (n_rows,))
    if np.any(documents < 0) or np.any(documents != np.round(documents)):
        raise fields.refusal("documents", "be whole numbers of at least 0", float(documents.min()))
    return documents


def _unpack_known(fields: Fields, name: str, dtype: Any, *shape: int | None) -> Any:
    """What is known of rows, where it is: files of earlier versions keep less."""
    kept = fields.has(name) and fields.raw(name) is not None
    return fields.array(name, dtype, shape) if kept else None


def unpack_strata(fields: Fields, n_rows: int, n_classes: int) -> Codes | None:
    """Number of the class of each row, where the file keeps it."""
    strata: Codes | None = _unpack_known(fields, "strata", np.min_scalar_type(n_classes - 1), n_rows)
    if strata is not None and strata.max() >= n_classes:
        raise fields.refusal("strata", f"number {n_classes} classes", int(strata.max()))
    return strata
