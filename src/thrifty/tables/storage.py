"""A table system as one file: the container of bundles, with what a table needs besides.

f0 is written once and all systems share it. What follows from other parts is not written: costs follow from the prices,
the columns a system buys from its trees. Reading trusts nothing: every part has the form it must have and fits the
others, or is refused by name.
"""

from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.bundle.archive import UntrustedTypesError, type_names
from thrifty.bundle.container import DEFAULT_MAX_BYTES
from thrifty.bundle.context import Columns, Reading, Writing
from thrifty.bundle.fields import Fields
from thrifty.bundle.fulls import pack_full, unpack_full
from thrifty.bundle.kinds import Kind, register_kind
from thrifty.bundle.objects import pack_object, unpack_object
from thrifty.bundle.systems import pack_tie, unpack_tie
from thrifty.bundle.values import Packer
from thrifty.bundle.whole import from_bytes, to_bytes
from thrifty.evidence.certificate import Certificate
from thrifty.evidence.outcomes import RowOutcomes
from thrifty.exceptions import InvalidInputError
from thrifty.files import AnyPath, read_capped, write_atomically
from thrifty.tables.candidates import Candidate
from thrifty.tables.full_models import TRUSTED
from thrifty.tables.schema import MOST_CATEGORIES, Schema
from thrifty.tables.system import About, Promise, TableSystem

__all__ = ["load_table_system", "save_table_system", "table_system_from_bytes", "table_system_to_bytes"]

_MOST_SYSTEMS = 1000


def save_table_system(system: TableSystem, path: AnyPath) -> None:
    """Write the system; an old file is replaced in one step, or left as it is if anything fails."""
    write_atomically(path, table_system_to_bytes(system))


def load_table_system(
    path: AnyPath, *, trusted: Iterable[str] = (), max_bytes: int = DEFAULT_MAX_BYTES
) -> TableSystem:
    """Read what `thrifty fit` wrote, as the commands do; ``thrifty.load`` reads the same files.

    Parameters
    ----------
    path : path
        The file.
    trusted : names of types
        What f0 may be made of, besides what the kinds of ``full_models`` are made of and what skops trusts by itself.
    max_bytes : int, default=2**30
        Larger files are refused.
    """
    try:
        return table_system_from_bytes(read_capped(path, max_bytes), trusted=trusted, max_bytes=max_bytes)
    except UntrustedTypesError as error:
        raise InvalidInputError(
            f"f0 in {path} is made of types that are not trusted by themselves: {', '.join(error.types)}. If you know "
            f"where the file comes from, add {' '.join(f'--trust {name}' for name in error.types)}."
        ) from None


def table_system_to_bytes(system: TableSystem) -> bytes:
    """What ``save_table_system`` would write."""
    return to_bytes(system)


def table_system_from_bytes(
    data: bytes, *, trusted: Iterable[str] = (), max_bytes: int = DEFAULT_MAX_BYTES
) -> TableSystem:
    """What ``load_table_system`` would read from a file of these bytes."""
    found = from_bytes(data, trusted=(*TRUSTED, *type_names(trusted)), max_bytes=max_bytes)
    if not isinstance(found, TableSystem):
        raise InvalidInputError(
            f"the file holds a {type(found).__name__}, not what `thrifty fit` writes. In Python, thrifty.load reads it."
        )
    return found


def _pack(system: TableSystem, writing: Writing) -> dict[str, Any]:
    """The table system as JSON; f0 once, in the way that was asked for."""
    packer, first = writing.packer, system.system
    without_full = replace(writing, full="absent")
    columns = Columns(first.price_list.n_features, first.names, first.kind)
    return {
        "schema": _pack_schema(system.schema, packer),
        "labels": packer.value(np.asarray(first.classes)),
        "named": first.kind == "pandas",
        "full": pack_full(first.full, replace(writing, columns=columns)),
        "full_right": packer.array(np.asarray(system.outcomes[0].go_right, dtype=np.bool_)),
        "systems": [
            {
                "object": pack_object(one.estimator, without_full),
                "settings": packer.value(dict(one.settings)),
                "gate": packer.floats(outcomes.g),
                "cheap_right": packer.array(np.asarray(outcomes.stop_right, dtype=np.bool_)),
            }
            for one, outcomes in zip(system.systems, system.outcomes, strict=True)
        ],
        "chosen": system.chosen,
        "threshold": packer.value(float(system.threshold)),
        **pack_tie(system.tie, packer),
        "promise": {name: packer.value(float(value)) for name, value in asdict(system.promise).items()},
        "about": {name: packer.value(value) for name, value in asdict(system.about).items()},
        "certificate": None if system.certificate is None else packer.value(system.certificate.as_dict()),
    }


def _unpack(parts: Fields, reading: Reading) -> TableSystem:
    schema = _unpack_schema(parts.inside("schema"))
    named = parts.flag("named")
    columns = Columns(len(schema.names), schema.names if named else None, "pandas" if named else None)
    labels = _two_labels(parts, "labels")
    full = unpack_full(parts.inside("full"), replace(reading, columns=columns, classes=labels))
    behind = replace(reading, full=full)
    full_right = parts.array("full_right", np.bool_, (None,))
    entries = parts.items("systems")
    if not 1 <= len(entries) <= _MOST_SYSTEMS:
        raise parts.refusal("systems", f"be 1 to {_MOST_SYSTEMS}", len(entries))
    systems = [_unpack_candidate(one, behind, labels, columns) for one in entries]
    _same_prices(parts, systems)
    outcomes = [_unpack_outcomes(entry, one, full_right) for entry, one in zip(entries, systems, strict=True)]
    chosen = parts.whole("chosen")
    if not 0 <= chosen < len(systems):
        raise parts.refusal("chosen", f"name one of {len(systems)} systems", chosen)
    return TableSystem(
        schema=schema,
        systems=tuple(systems),
        outcomes=tuple(outcomes),
        chosen=chosen,
        threshold=parts.number("threshold", finite=False),
        tie=unpack_tie(parts),
        promise=_unpack_promise(parts.inside("promise")),
        about=_unpack_about(parts.inside("about")),
        certificate=_unpack_certificate(parts, len(systems)),
    )


def _unpack_candidate(entry: Fields, reading: Reading, labels: NDArray[Any], columns: Columns) -> Candidate:
    estimator = unpack_object(entry.inside("object"), reading)
    system = getattr(estimator, "system_", None)
    fits = (
        system is not None
        and system.n_stages == 1
        and system.price_list.n_features == columns.n_features
        and system.names == columns.names
        and system.kind == columns.kind
        and np.array_equal(system.classes, labels)
    )
    if not fits:
        raise entry.refusal("object", "be one stage for the table's columns and labels", "another system")
    settings = entry.value("settings")
    if not isinstance(settings, dict) or not all(isinstance(name, str) for name in settings):
        raise entry.refusal("settings", "be named values", settings)
    return Candidate(estimator, settings)


def _same_prices(parts: Fields, systems: list[Candidate]) -> None:
    first = systems[0].estimator.system_.price_list
    for one in systems:
        prices = one.estimator.system_.price_list
        same = np.array_equal(prices.prices, first.prices) and np.array_equal(prices.group_of, first.group_of)
        if not same or prices.full_cost != first.full_cost:
            raise parts.refusal("systems", "have one price list", "several")


def _unpack_outcomes(entry: Fields, one: Candidate, full_right: NDArray[np.bool_]) -> RowOutcomes:
    system = one.estimator.system_
    return RowOutcomes(
        g=entry.array("gate", np.float64, full_right.shape),
        stop_cost=float(system.cost_by_route[0]),
        go_cost=float(system.cost_by_route[-1]),
        stop_right=entry.array("cheap_right", np.bool_, full_right.shape),
        go_right=full_right,
        features=system.stages[0].scorer.columns,
        settings=one.settings,
    )


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


def _two_labels(parts: Fields, name: str) -> NDArray[Any]:
    found = parts.value(name)
    if not isinstance(found, np.ndarray) or found.shape != (2,) or found.dtype.kind not in "biufU":
        raise parts.refusal(name, "be two labels", found)
    if not found[0] < found[1]:
        raise parts.refusal(name, "be two distinct labels in order", found.tolist())
    return found


def _unpack_promise(parts: Fields) -> Promise:
    return Promise(**{entry.name: parts.number(entry.name) for entry in fields(Promise)})


def _unpack_about(parts: Fields) -> About:
    def asked(name: str) -> float | None:
        return None if parts.raw(name) is None else parts.number(name)

    counts = {name: parts.whole(name) for name in ("seed", "n_learn", "n_choose", "n_prove")}
    if not all(0 <= count < 2**63 for count in counts.values()):
        raise parts.refusal("counts", "be at least 0 and of 63 bits", counts)
    return About(full=parts.text("full")[:200], **counts, budget=asked("budget"), max_loss=asked("max_loss"))


def _unpack_certificate(parts: Fields, n_systems: int) -> Certificate | None:
    entries = parts.value("certificate")
    if entries is None:
        return None
    try:
        certificate = Certificate.from_dict(entries)
        str(certificate)
        point = certificate.point
        sound = point is None or (0 <= int(point.source) < n_systems and float(point.cost) >= 0.0)
    except (TypeError, ValueError, AttributeError) as error:
        raise parts.refusal("certificate", f"be one ({type(error).__name__})", entries) from None
    if not sound:
        raise parts.refusal("certificate", f"be about one of {n_systems} systems", entries)
    return certificate


register_kind(Kind("table", TableSystem, _pack, _unpack))
