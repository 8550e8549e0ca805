"""A table system as the parts of a file, and back: an estimator, with what a table needs besides.

Reading trusts nothing: every part has the form it must have and fits the others, or is refused by name.
"""

from dataclasses import asdict, fields
from typing import Any

import numpy as np

from thrifty.arrays import Labels
from thrifty.bundle.column_codec import check_sets
from thrifty.bundle.context import Reading, Writing
from thrifty.bundle.fields import Fields, Packer
from thrifty.bundle.objects import Kind, pack_object, unpack_object
from thrifty.bundle.task_codec import MOST_CLASSES
from thrifty.estimators.base import ChainEstimator
from thrifty.tables.promise import Promise
from thrifty.tables.schema import Schema
from thrifty.tables.spread import N_BINS, Spread
from thrifty.tables.system import About, TableSystem
from thrifty.tasks.ranking import RankingTask
from thrifty.tasks.task import ERRORS

__all__ = ["TABLE"]

_MOST_ROWS = 2**63


def _pack(system: TableSystem, writing: Writing) -> dict[str, Any]:
    packer = writing.packer
    return {
        "schema": _pack_schema(system.schema, packer),
        "estimator": pack_object(system.estimator, writing),
        "promise": {name: packer.value(value) for name, value in asdict(system.promised).items()},
        "about": {name: packer.value(value) for name, value in asdict(system.about).items()},
        "spread": None if system.spread is None else _pack_spread(system.spread, packer),
    }


def _unpack(parts: Fields, reading: Reading) -> TableSystem:
    schema = _unpack_schema(parts.inside("schema"))
    estimator = unpack_object(parts.inside("estimator"), reading)
    if not isinstance(estimator, ChainEstimator) or getattr(estimator, "evidence_", None) is None:
        raise parts.refusal("estimator", "be an estimator with its evidence", type(estimator).__name__)
    _check_fits(parts, schema, estimator)
    about = parts.inside("about")
    return TableSystem(
        schema,
        estimator,
        About(
            about.text("full")[:200],
            about.text("method")[:200],
            _count(about, "seed"),
            _count(about, "n_rows"),
            _optional(about, "budget"),
            _max_loss(about),
        ),
        _unpack_promise(parts.inside("promise"), len(schema.classes)),
        # Files that were written before drift was watched do not have it.
        _unpack_spread(parts.inside("spread"), schema)
        if parts.has("spread") and parts.raw("spread") is not None
        else None,
    )


def _check_fits(parts: Fields, schema: Schema, estimator: ChainEstimator) -> None:
    chain = estimator.chain_
    if schema.is_number != (len(chain.classes) == 0):
        raise parts.refusal("schema", "hold classes where the estimator does", schema.classes[:5].tolist())
    if bool(schema.query) != isinstance(chain.task, RankingTask):
        raise parts.refusal("schema", "name the column of queries where the estimator ranks", schema.query)
    if chain.price_list.n_features != len(schema.names) or chain.names not in (None, schema.names):
        raise parts.refusal("schema", "name the columns of the estimator", schema.names[:5])
    if chain.levels is None:  # the schema counts the levels, not the estimator
        known = {place: len(schema.categories[schema.names[place]]) for place in schema.categorical}
        check_sets(parts, chain.stages, known)


def _unpack_promise(parts: Fields, n_classes: int) -> Promise:
    values: dict[str, Any] = {}
    for entry in fields(Promise):
        if entry.default is None and not parts.has(entry.name):
            continue  # files that were written before numbers could be predicted
        if entry.name.endswith(("errors", "measures")):
            values[entry.name] = _unpack_numbers(parts, entry.name)
        elif entry.name == "n_rows":
            values["n_rows"] = max(_count(parts, "n_rows"), 1)
        elif entry.name.endswith("recall"):
            found = parts.value(entry.name)
            right = isinstance(found, tuple) and len(found) == n_classes
            if found is not None and not (right and all(type(one) is float for one in found)):
                raise parts.refusal(entry.name, f"be {n_classes} numbers", found)
            values[entry.name] = found
        else:
            optional = entry.default is None
            values[entry.name] = _optional(parts, entry.name) if optional else parts.number(entry.name)
    return Promise(**values)


def _unpack_numbers(parts: Fields, name: str) -> Any:
    """Errors or measures by name: three numbers each, or one each for what the promise is compared with."""
    found = parts.value(name)
    if found is None:
        return None
    width = 3 if name in ("errors", "measures") else 1
    names = "measures by name" if name.endswith("measures") else f"each of {', '.join(ERRORS)}"
    for known, value in found.items() if isinstance(found, dict) else [("", found)]:
        each = value if width > 1 else (value,)
        right = isinstance(each, tuple) and len(each) == width and all(type(one) is float for one in each)
        is_known = bool(known) if name.endswith("measures") else known in ERRORS
        if not is_known or not right or not np.isfinite(each).all():
            raise parts.refusal(name, f"be finite numbers, {width} for {names}", found)
    return found


def _optional(parts: Fields, name: str) -> float | None:
    return None if parts.raw(name) is None else parts.number(name)


def _max_loss(about: Fields) -> Any:
    """One number, or numbers by the names of classes."""
    found = about.value("max_loss")
    if not isinstance(found, dict):
        return _optional(about, "max_loss")
    if not all(type(name) is str and type(limit) is float for name, limit in found.items()):
        raise about.refusal("max_loss", "be numbers by names of classes", found)
    return found


def _count(parts: Fields, name: str) -> int:
    found = parts.whole(name)
    if not 0 <= found < _MOST_ROWS:
        raise parts.refusal(name, "be at least 0 and of 63 bits", found)
    return found


# -- how columns were spread ---------------------------------------------------------------------------


def _pack_spread(spread: Spread, packer: Packer) -> dict[str, Any]:
    return {"edges": packer.floats(spread.edges), "shares": packer.floats(spread.shares)}


def _unpack_spread(parts: Fields, schema: Schema) -> Spread:
    edges = parts.array("edges", np.float64, (len(schema.names), N_BINS - 1), finite=False)
    shares = parts.array("shares", np.float64, (len(schema.names), N_BINS))
    if not np.all(edges[:, :-1] <= edges[:, 1:]):
        raise parts.refusal("edges", "rise in every column", edges[:1].tolist())
    if not np.all(shares >= 0) or not np.all(np.isclose(shares.sum(axis=1), 1) | (shares == 0).all(axis=1)):
        raise parts.refusal("shares", "be shares that sum to 1 in every column", shares[:1].tolist())
    return Spread(edges, shares)


# -- schemas ---------------------------------------------------------------------------------------


def _pack_schema(schema: Schema, packer: Packer) -> dict[str, Any]:
    return {
        "names": list(schema.names),
        "categories": [[name, list(found)] for name, found in schema.categories.items()],
        "target": schema.target,
        "classes": packer.value(np.asarray(schema.classes)),
        **({"query": schema.query} if schema.query else {}),
        **({"dates": list(schema.dates)} if schema.dates else {}),
        **({"row_key": schema.row_key} if schema.row_key else {}),
        **({"truths": list(schema.truths)} if schema.truths else {}),
    }


def _unpack_schema(parts: Fields) -> Schema:
    names = _texts(parts, "names", parts.raw("names"))
    categories = {}
    found = parts.raw("categories")
    if not isinstance(found, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in found):
        raise parts.refusal("categories", "be a list of pairs", found)
    for name, values in found:
        if name not in names or name in categories:
            raise parts.refusal("categories", "name columns of the table, each once", name)
        categories[name] = tuple(_texts(parts, "categories", values))
        if list(values) != sorted(values):
            raise parts.refusal("categories", "be in order", len(values))
    target = parts.text("target")
    query = parts.text("query") if parts.has("query") else ""
    row_key = parts.text("row_key") if parts.has("row_key") else ""
    for name, column in (("target", target), ("query", query), ("row_key", row_key)):
        if column in names:
            raise parts.refusal(name, "be no feature", column)
    classes = parts.value("classes")
    is_number = isinstance(classes, np.ndarray) and classes.shape == (0,) and classes.dtype == np.float64
    dates = _texts(parts, "dates", parts.raw("dates")) if parts.has("dates") else []
    if not set(dates) <= set(names) - set(categories):
        raise parts.refusal("dates", "name columns of the table that hold no categories", dates[:5])
    truths = _texts(parts, "truths", parts.raw("truths")) if parts.has("truths") else []
    if not set(truths) <= set(names) - set(categories) - set(dates):
        raise parts.refusal("truths", "name columns that hold neither categories nor dates", truths[:5])
    known = np.empty(0) if is_number else _label_list(parts, "classes")
    return Schema(
        tuple(names), categories, target, known, query, tuple(dates), row_key=row_key, truths=tuple(truths)
    )


def _texts(parts: Fields, name: str, found: Any) -> list[str]:
    if not isinstance(found, list) or not found or not all(isinstance(one, str) for one in found):
        raise parts.refusal(name, "be a list of text", found)
    if len(set(found)) < len(found):
        raise parts.refusal(name, "be distinct", found)
    return found


def _label_list(parts: Fields, name: str) -> Labels:
    found = parts.value(name)
    if not isinstance(found, np.ndarray) or found.ndim != 1 or found.dtype.kind not in "biufU":
        raise parts.refusal(name, "be a list of labels", found)
    if not 2 <= len(found) <= MOST_CLASSES or not np.all(found[:-1] < found[1:]):
        raise parts.refusal(
            name, f"be from two to {MOST_CLASSES} distinct labels in order", found[:5].tolist()
        )
    return found


TABLE = Kind("table", TableSystem, _pack, _unpack)
"""How a file holds a table system."""
