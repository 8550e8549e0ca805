"""Files of estimators, chains and table systems: what `thrifty.save` writes and `thrifty.load` reads.

A table system is written as an estimator is, with what a table needs besides. Reading trusts nothing: every part has
the form it must have and fits the others, or is refused by name.
"""

from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np

from thrifty import bundle
from thrifty.arrays import Labels
from thrifty.bundle.archive import UntrustedTypesError, type_names
from thrifty.bundle.container import DEFAULT_MAX_BYTES
from thrifty.bundle.context import Columns, FullMode, Reading, Writing
from thrifty.bundle.fields import Fields, Packer
from thrifty.bundle.format_1 import old_tie
from thrifty.bundle.fulls import unpack_full
from thrifty.bundle.objects import Kind, pack_object, unpack_object
from thrifty.chain.policy import Policy
from thrifty.estimators.base import ChainClassifier
from thrifty.evidence.certificate import Certificate
from thrifty.evidence.evidence import Evidence
from thrifty.exceptions import InvalidInputError
from thrifty.files import AnyPath, read_capped
from thrifty.tables.full_models import TRUSTED
from thrifty.tables.promise import Promise
from thrifty.tables.schema import MOST_CATEGORIES, Schema
from thrifty.tables.system import About, TableSystem, as_table_system
from thrifty.tasks.binary import BinaryTask

__all__ = ["TABLE", "load", "load_table_system", "save", "table_system_from_bytes", "table_system_to_bytes"]

_MOST_ROWS = 2**63


def save(thing: Any, path: AnyPath, *, full: FullMode = "inside") -> None:
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
    bundle.save(thing, path, full=full, kinds=(TABLE,))


def load(
    path: AnyPath,
    *,
    full: Any = None,
    trusted: Iterable[str | type] = (),
    max_bytes: int = DEFAULT_MAX_BYTES,
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
    """
    return bundle.load(path, full=full, trusted=trusted, max_bytes=max_bytes, kinds=(TABLE,))


def load_table_system(
    path: AnyPath, *, trusted: Iterable[str] = (), max_bytes: int = DEFAULT_MAX_BYTES
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
    """
    try:
        return table_system_from_bytes(read_capped(path, max_bytes), trusted=trusted, max_bytes=max_bytes)
    except UntrustedTypesError as error:
        raise InvalidInputError(
            f"the full model in {path} is made of types that are not trusted by themselves: {', '.join(error.types)}. "
            f"If you know where the file comes from, add {' '.join(f'--trust {name}' for name in error.types)}."
        ) from None


def table_system_to_bytes(system: TableSystem) -> bytes:
    """What ``save`` would write."""
    return bundle.to_bytes(system, kinds=(TABLE,))


def table_system_from_bytes(
    data: bytes, *, trusted: Iterable[str] = (), max_bytes: int = DEFAULT_MAX_BYTES
) -> TableSystem:
    """What ``load_table_system`` would read from a file of these bytes."""
    trusted = (*TRUSTED, *type_names(trusted))
    found = bundle.from_bytes(data, trusted=trusted, max_bytes=max_bytes, kinds=(TABLE,))
    return found if isinstance(found, TableSystem) else as_table_system(found)


# -- table systems ---------------------------------------------------------------------------------


def _pack(system: TableSystem, writing: Writing) -> dict[str, Any]:
    packer = writing.packer
    return {
        "schema": _pack_schema(system.schema, packer),
        "estimator": pack_object(system.estimator, writing),
        "promise": {name: packer.value(value) for name, value in asdict(system.promised).items()},
        "about": {name: packer.value(value) for name, value in asdict(system.about).items()},
    }


def _unpack(parts: Fields, reading: Reading) -> TableSystem:
    schema = _unpack_schema(parts.inside("schema"))
    if parts.has("systems"):
        return _old_system(parts, schema, reading)
    estimator = unpack_object(parts.inside("estimator"), reading)
    if not isinstance(estimator, ChainClassifier) or getattr(estimator, "evidence_", None) is None:
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
            _optional(about, "max_loss"),
        ),
        _unpack_promise(parts.inside("promise")),
    )


def _check_fits(parts: Fields, schema: Schema, estimator: ChainClassifier) -> None:
    chain = estimator.chain_
    if chain.price_list.n_features != len(schema.names) or chain.names not in (None, schema.names):
        raise parts.refusal("schema", "name the columns of the estimator", schema.names[:5])


def _unpack_promise(parts: Fields) -> Promise:
    values: dict[str, Any] = {}
    for entry in fields(Promise):
        if entry.name == "n_rows":
            values["n_rows"] = max(_count(parts, "n_rows"), 1)
        elif entry.name.endswith("recall"):
            found = parts.value(entry.name)
            sound = isinstance(found, tuple) and len(found) == 2 and all(type(one) is float for one in found)
            if found is not None and not sound:
                raise parts.refusal(entry.name, "be two numbers", found)
            values[entry.name] = found
        else:
            optional = entry.default is None
            values[entry.name] = _optional(parts, entry.name) if optional else parts.number(entry.name)
    return Promise(**values)


def _optional(parts: Fields, name: str) -> float | None:
    return None if parts.raw(name) is None else parts.number(name)


def _count(parts: Fields, name: str) -> int:
    found = parts.whole(name)
    if not 0 <= found < _MOST_ROWS:
        raise parts.refusal(name, "be at least 0 and of 63 bits", found)
    return found


# -- the first format: one of several systems was chosen, all of them in front of one full model ---------------


def _old_system(parts: Fields, schema: Schema, reading: Reading) -> TableSystem:
    named = parts.flag("named")
    columns = Columns(len(schema.names), schema.names if named else None, "pandas" if named else None)
    task = BinaryTask(_two_labels(parts, "labels"))
    full = unpack_full(parts.inside("full"), replace(reading, columns=columns, task=task))
    entries, chosen = parts.items("systems"), parts.whole("chosen")
    if not 0 <= chosen < len(entries):
        raise parts.refusal("chosen", f"name one of {len(entries)} systems", chosen)
    entry = entries[chosen]
    estimator = unpack_object(entry.inside("object"), replace(reading, full=full))
    if not isinstance(estimator, ChainClassifier) or estimator.chain_.task != task:
        raise entry.refusal("object", "be an estimator for the table's labels", type(estimator).__name__)
    _check_fits(parts, schema, estimator)
    if estimator.chain_.n_stages != 1 or estimator.chain_.kind != columns.kind:
        raise entry.refusal("object", "have one stage and read the table's kind", estimator.chain_.n_stages)
    threshold, tie = parts.number("threshold", finite=False), old_tie(parts)
    policy = Policy.of(np.array([threshold]))
    if tie is not None:
        lower, share, seed = tie
        mixed = Policy.of(np.array([threshold]), np.array([lower]), share=share, seed=seed)
        policy = replace(mixed, whole_rows=True)
    chain = estimator.chain_ = estimator.chain_.at(policy)
    full_right = parts.array("full_right", np.bool_, (None,))
    stop, go = chain.cost_by_route
    estimator.evidence_ = Evidence.of_gate(
        entry.array("gate", np.float64, full_right.shape),
        stop_cost=float(stop),
        go_cost=float(go),
        stop_quality=entry.array("cheap_right", np.bool_, full_right.shape),
        go_quality=full_right,
        features=tuple(chain.columns.tolist()),
        settings=_old_settings(entry),
    )
    estimator.certificate_ = _old_certificate(parts)
    return TableSystem(schema, estimator, *_old_words(parts, estimator))


def _old_words(parts: Fields, estimator: ChainClassifier) -> tuple[About, Promise]:
    about, promise = parts.inside("about"), parts.inside("promise")
    n_learn, n_choose, n_prove = (_count(about, name) for name in ("n_learn", "n_choose", "n_prove"))
    known: dict[str, Any] = {
        name: promise.number(name)
        for name in ("accuracy", "low", "high", "cost", "share", "full_cost", "full_accuracy")
    }
    share = min(max(known["share"], 0.0), 1.0)
    spread = (known["full_cost"] - promise.number("cheap_cost")) * float(np.sqrt(share * (1.0 - share)))
    return (
        About(
            about.text("full")[:200],
            type(estimator).__name__,
            _count(about, "seed"),
            n_learn + n_choose + n_prove,
            _optional(about, "budget"),
            _optional(about, "max_loss"),
        ),
        Promise(**known, cost_spread=spread, n_rows=max(n_prove or n_choose, 1)),
    )


def _old_settings(entry: Fields) -> dict[str, Any]:
    settings = entry.value("settings")
    if not isinstance(settings, dict) or not all(isinstance(name, str) for name in settings):
        raise entry.refusal("settings", "be named values", settings)
    return settings


def _old_certificate(parts: Fields) -> Certificate | None:
    entries = parts.value("certificate")
    if entries is None:
        return None
    try:
        certificate = Certificate.from_dict(entries)
        str(certificate)
    except (TypeError, ValueError, AttributeError) as error:
        raise parts.refusal("certificate", f"be one ({type(error).__name__})", entries) from None
    point = certificate.point
    return certificate if point is None else replace(certificate, point=replace(point, source=0))


# -- schemas ---------------------------------------------------------------------------------------


def _pack_schema(schema: Schema, packer: Packer) -> dict[str, Any]:
    return {
        "names": list(schema.names),
        "categories": [[name, list(found)] for name, found in schema.categories.items()],
        "target": schema.target,
        "classes": packer.value(np.asarray(schema.classes)),
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
        if len(values) > MOST_CATEGORIES or list(values) != sorted(values):
            raise parts.refusal("categories", f"be at most {MOST_CATEGORIES}, in order", len(values))
    target = parts.text("target")
    if target in names:
        raise parts.refusal("target", "be no feature", target)
    return Schema(tuple(names), categories, target, _two_labels(parts, "classes"))


def _texts(parts: Fields, name: str, found: Any) -> list[str]:
    if not isinstance(found, list) or not found or not all(isinstance(one, str) for one in found):
        raise parts.refusal(name, "be a list of text", found)
    if len(set(found)) < len(found):
        raise parts.refusal(name, "be distinct", found)
    return found


def _two_labels(parts: Fields, name: str) -> Labels:
    found = parts.value(name)
    if not isinstance(found, np.ndarray) or found.shape != (2,) or found.dtype.kind not in "biufU":
        raise parts.refusal(name, "be two labels", found)
    if not found[0] < found[1]:
        raise parts.refusal(name, "be two distinct labels in order", found.tolist())
    return found


TABLE = Kind("table", TableSystem, _pack, _unpack)
"""How a file holds a table system."""
