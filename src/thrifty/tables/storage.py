"""Table systems in files: parts of a file, save and load.

A table system as the parts of a file, and back: an estimator, with what a table needs besides.

Reading trusts nothing: every part has the form it must have and fits the others, or is refused by name.

Files of estimators, chains and table systems: what `thrifty.save` writes and `thrifty.load` reads.
"""

from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from thrifty.arrays import Labels
from thrifty.bundle import from_bytes, to_bytes
from thrifty.bundle.archives import UntrustedTypesError, type_names
from thrifty.bundle.codecs import MOST_CLASSES, check_sets
from thrifty.bundle.container import DEFAULT_MAX_BYTES
from thrifty.bundle.context import FullMode, Reading, Writing
from thrifty.bundle.fields import Fields, Packer
from thrifty.bundle.objects import Kind, pack_object, unpack_object
from thrifty.errors import InvalidInputError
from thrifty.estimators.base import ChainEstimator
from thrifty.files import AnyPath, read_capped, write_atomically
from thrifty.tables.full_models import TRUSTED
from thrifty.tables.promise import Promise
from thrifty.tables.schema import Schema
from thrifty.tables.spread import N_BINS, Spread
from thrifty.tables.system import About, TableSystem, as_table_system
from thrifty.tasks.ranking import RankingTask
from thrifty.tasks.task import ERRORS

__all__ = ["TABLE", "load", "load_table_system", "save", "table_system_from_bytes", "table_system_to_bytes"]

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


def save(
    thing: Any,
    path: AnyPath,
    *,
    full: FullMode = "inside",
    evidence: bool = True,
    private_key: Any = None,
) -> None:
    """Write a fitted estimator, a chain or a table system into one file, without pickle.

    Parameters
    ----------
    thing : fitted estimator of thrifty, Chain or TableSystem
        What to save. Constructor arguments and learned attributes that are plain data are kept; models among the
        arguments are not, beyond their place in the chain.
    path : path
        The file; an old one is replaced in one step, or left as it is if anything fails.
    full : {"inside", "reference", "absent"}, default="inside"
        What becomes of the full model (f0): written into the file, recognised by its fingerprint and given again
        when loading, or left out.
    evidence : bool, default=True
        Whether to keep the rows that operating points were judged on; a file without them is smaller, answers alike,
        and has no ``frontier_``.
    private_key : Ed25519PrivateKey of cryptography, PEM bytes or path of a PEM file, optional
        Signs the file, for those who load it with the ``public_key`` that belongs to it. Needs ``thrifty[signing]``.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from thrifty import DynaModLinClassifier, load, save
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> f0 = make_pipeline(StandardScaler(), LogisticRegression())
    >>> clf = DynaModLinClassifier(f0, gamma=0.02, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "cancer.thrifty"
    ...     save(clf, path)
    ...     again = load(path)
    >>> bool((again.predict(X) == clf.predict(X)).all())
    True
    """
    write_atomically(
        path, to_bytes(thing, full=full, evidence=evidence, private_key=private_key, kinds=(TABLE,))
    )


def load(
    path: AnyPath,
    *,
    full: Any = None,
    trusted: Iterable[str | type] = (),
    max_bytes: int = DEFAULT_MAX_BYTES,
    public_key: Any = None,
) -> Any:
    """Read what ``save`` or `thrifty fit` wrote: an object that answers exactly as the one that was saved.

    Parameters
    ----------
    path : path
        The file.
    full : fitted classifier, FrozenEstimator, callable or Chain, optional
        The full model (f0). Needed, and checked against its fingerprint, where the file refers to it; otherwise it
        takes the place of whatever full model the file holds.
    trusted : names of types, or types, default=()
        What a model in the file may be made of, besides what skops trusts by itself.
    max_bytes : int, default=2**30
        Files that are larger, or that hold a model that would unpack to more, are refused.
    public_key : Ed25519PublicKey of cryptography, PEM bytes or path of a PEM file, optional
        Refuses, before anything in it is read, a file that was not signed with the ``private_key`` that belongs to
        it. Needs ``thrifty[signing]``.
    """
    data = read_capped(path, max_bytes)
    return from_bytes(
        data, full=full, trusted=trusted, max_bytes=max_bytes, public_key=public_key, kinds=(TABLE,)
    )


def load_table_system(
    path: AnyPath,
    *,
    trusted: Iterable[str] = (),
    max_bytes: int = DEFAULT_MAX_BYTES,
    public_key: Any = None,
) -> TableSystem:
    """Read a system as the commands do: the kinds of full models that `thrifty fit` makes are trusted.

    An estimator or a chain that was saved by itself is read too, if it knows its columns by name.

    Parameters
    ----------
    path : path
        The file.
    trusted : names of types
        What the full model may be made of besides those.
    max_bytes : int, default=2**30
        Larger files are refused.
    public_key : key, as in ``load``
        Refuses files that were not signed with the private key that belongs to it.
    """
    try:
        data = read_capped(path, max_bytes)
        return table_system_from_bytes(data, trusted=trusted, max_bytes=max_bytes, public_key=public_key)
    except UntrustedTypesError as error:
        raise InvalidInputError(
            f"the full model in {path} is made of types that are not trusted by themselves: {', '.join(error.types)}. "
            f"If you know where the file comes from, add {' '.join(f'--trust {name}' for name in error.types)}."
        ) from None


def table_system_to_bytes(system: TableSystem, *, private_key: Any = None) -> bytes:
    """What ``save`` would write."""
    return to_bytes(system, private_key=private_key, kinds=(TABLE,))


def table_system_from_bytes(
    data: bytes,
    *,
    trusted: Iterable[str] = (),
    max_bytes: int = DEFAULT_MAX_BYTES,
    public_key: Any = None,
) -> TableSystem:
    """What ``load_table_system`` would read from a file of these bytes."""
    trusted = (*TRUSTED, *type_names(trusted))
    found = from_bytes(data, trusted=trusted, max_bytes=max_bytes, public_key=public_key, kinds=(TABLE,))
    return found if isinstance(found, TableSystem) else as_table_system(found)
