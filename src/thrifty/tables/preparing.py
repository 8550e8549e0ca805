"""From a table and a few words to a problem that can be fitted: columns, prices, labels and f0, all checked first."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags

from thrifty.exceptions import InvalidInputError
from thrifty.objective.costs import PriceList
from thrifty.tables.candidates import Rows
from thrifty.tables.files import listed
from thrifty.tables.full_models import KINDS, load_full
from thrifty.tables.prices import read_prices
from thrifty.tables.schema import Schema, learn_schema

__all__ = ["Prepared", "prepare", "refuse_missing"]


@dataclass(frozen=True)
class Prepared:
    """A checked problem.

    Attributes
    ----------
    schema : Schema
        How the table is read.
    prices : PriceList
        What its columns cost.
    rows : Rows
        The table as models read it; labels are 0 and 1 unless f0 knows others.
    frozen : FrozenEstimator, optional
        f0, where it comes from a file.
    has_missing : bool
        Whether a cell is missing.
    notes : tuple of str
        What the user should know.
    """

    schema: Schema
    prices: PriceList
    rows: Rows
    frozen: FrozenEstimator | None
    has_missing: bool
    notes: tuple[str, ...]


def prepare(
    frame: Any,
    target: str,
    *,
    costs: str | os.PathLike[str] | None,
    full: str,
    full_cost: float,
    ignore: Sequence[str],
    trusted: Iterable[str],
) -> Prepared:
    """Check everything that can be refused before anything is fitted; arguments as in ``fit_table``."""
    frozen = load_full(full, trusted) if _is_file(full) else None
    schema = learn_schema(frame, target, ignore)
    unread: list[str] = []
    if frozen is not None:
        schema, unread = _as_model_reads(schema, frozen.estimator, Path(full).name)
    prices = read_prices(costs, schema.names, known=[*ignore, *unread], full_cost=full_cost)
    numbers = schema.numbers(frame)
    labels = schema.labels(frame)
    named = frozen is not None and hasattr(frozen.estimator, "feature_names_in_")
    y = labels if frozen is not None else (labels == schema.classes[1]).astype(np.intp)
    notes = []
    if unread:
        notes.append(f"left out, because {full} does not read them: {listed(unread)}")
    if costs is None:
        notes.append("no --costs file: every column costs 1")
    return Prepared(
        schema=schema,
        prices=prices,
        rows=Rows(numbers if named else numbers.to_numpy(), y),
        frozen=frozen,
        has_missing=bool(numbers.isna().to_numpy().any()),
        notes=tuple(notes),
    )


def refuse_missing(prepared: Prepared, full: Any, kind: str) -> None:
    """Refuse missing cells in the training table where f0 cannot read them."""
    if not prepared.has_missing or get_tags(full).input_tags.allow_nan:
        return
    missing = np.argwhere(np.isnan(np.asarray(prepared.rows.X, dtype=np.float64)))
    row, column = missing[0]
    raise InvalidInputError(
        f"column {prepared.schema.names[column]!r} is missing in row {row + 1}, and f0 ({kind}) reads no missing "
        f"values. Fill it in, or use --full forest or --full boosting."
    )


def _is_file(full: str) -> bool:
    if full == "auto" or full in KINDS:
        return False
    if not full.endswith(".skops"):
        raise InvalidInputError(
            f"--full must be auto, one of {', '.join(KINDS)}, or a .skops file; got {full!r}."
        )
    return True


def _as_model_reads(schema: Schema, model: Any, name: str) -> tuple[Schema, list[str]]:
    """The schema with the columns a fitted f0 reads, in its order, and the columns that are left out."""
    known = getattr(model, "feature_names_in_", None)
    if known is None:
        width = getattr(model, "n_features_in_", len(schema.names))
        if width != len(schema.names):
            raise InvalidInputError(
                f"{name} was fitted on {width} columns without names, and the table has {len(schema.names)} besides "
                f"the label. Name those it does not read with --ignore."
            )
        return schema, []
    wanted = [str(one) for one in known]
    absent = [one for one in wanted if one not in schema.names]
    if absent:
        raise InvalidInputError(
            f"{name} reads {listed(absent)}, not a feature of the table, which has {listed(schema.names)}."
        )
    categories = {one: found for one, found in schema.categories.items() if one in wanted}
    unread = [one for one in schema.names if one not in wanted]
    return replace(schema, names=tuple(wanted), categories=categories), unread
