"""A training table with all that a fit needs: columns, prices, labels and the full model, checked beforehand."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags

from thrifty.arrays import Ints, Labels
from thrifty.chain.columns import FrameOfFit
from thrifty.errors import InvalidInputError
from thrifty.full.foreign import models_of
from thrifty.prices.billing import PriceList, RowsOfFit
from thrifty.rows import fingerprints
from thrifty.tables.by_class import is_matrix_file, read_matrix
from thrifty.tables.formats import listed
from thrifty.tables.full_models import KINDS, load_full, recipe
from thrifty.tables.price_file import read_prices
from thrifty.tables.reader import Cells
from thrifty.tables.schema import Schema, is_number, learn_schema
from thrifty.tasks.classes import classification
from thrifty.tasks.mistakes import read_loss
from thrifty.tasks.ranking import ranking_of
from thrifty.tasks.regression import RegressionLoss, regression_of
from thrifty.tasks.task import Task

__all__ = ["TrainingTable", "prepare"]

FEWEST = 30
"""Distinct rows of each class, or queries, that a fit needs: three in every tenth part. Of numbers, twice that."""


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """A checked table to fit on.

    Attributes
    ----------
    schema : Schema
        How the table is read.
    prices : PriceList
        What its columns cost, and which of them the full model reads.
    cells : Cells
        Its columns.
    y : ndarray of shape (n_rows,), or (n_rows, 2) of documents
        Numbers, or labels as the models know them: 0 and 1, unless the full model comes from a file and knows others;
        of documents that are ranked, relevance and query.
    task : Task
        What an answer is, with these labels.
    frozen : FrozenEstimator, optional
        The full model, where it comes from a file.
    notes : tuple of str
        What the user should know.
    """

    schema: Schema
    prices: PriceList
    cells: Cells
    y: Labels
    task: Task
    frozen: FrozenEstimator | None
    notes: tuple[str, ...]

    @property
    def X(self) -> Any:  # noqa: N802
        """The table as the models read it: with names only if the full model knows its columns by name."""
        is_named = hasattr(getattr(self.frozen, "estimator", None), "feature_names_in_")
        return self.cells.table(FrameOfFit("pandas", self.schema.names, None, None) if is_named else None)

    @property
    def class_names(self) -> list[str]:
        """Names of the classes, as users write them; none where numbers are predicted."""
        return [str(label) for label in self.schema.classes.tolist()]

    @property
    def strata(self) -> Ints:
        """Group of each row of which every part of the table should hold its share."""
        return self.task.strata(self.task.encode("y", self.y, len(self.y)))

    @property
    def queries(self) -> Ints | None:
        """Number of the query of each row; None where nothing is ranked."""
        return self.task.query_of(self.task.encode("y", self.y, len(self.y)))

    @property
    def has_missing(self) -> bool:
        """Whether a cell is missing that the full model reads."""
        return bool(np.isnan(self.cells.numbers[:, self.prices.read_by_full]).any())


def prepare(
    frame: Any,
    target: str,
    *,
    costs: str | os.PathLike[str] | None,
    full: str,
    full_cost: float,
    full_features: Sequence[str],
    ignore: Sequence[str],
    trusted: Iterable[str],
    task: str | None = None,
    loss: str | None = None,
    tolerance: float | None = None,
    query: str = "",
    metric: str | None = None,
    k: int | None = None,
    row_key: str = "",
) -> TrainingTable:
    """Check all that can be refused about a table, its prices and its full model; arguments as in ``fit_table``."""
    frozen = load_full(full, trusted) if _is_file(full) else None
    schema = learn_schema(frame, target, ignore, task, query, row_key)
    _check_features(schema, full_features)
    notes = []
    if frozen is not None:
        schema, read = _as_model_reads(schema, frozen.estimator, full_features, Path(full).name)
        if len(read) < len(schema.names):
            unread = [name for name in schema.names if name not in read]
            notes.append(f"{full} does not read {listed(unread)}: only the stages before it may buy them")
    else:
        read = list(full_features) or list(schema.names)
    columns = np.array([place for place, name in enumerate(schema.names) if name in read], dtype=np.intp)
    cells = schema.cells(frame)
    prices = read_prices(
        costs,
        schema.names,
        known=ignore,
        full_cost=full_cost,
        full_columns=columns,
        rows=RowsOfFit(cells.numbers, numbers=cells.row_numbers),
    )
    if schema.dates:
        notes.append(f"dates are read as days since 1970-01-01: {listed(schema.dates)}")
    if costs is None:
        notes.append("no --costs file: every column costs 1")
    cells.refuse_unreadable()
    if frozen is not None and schema.categories and _reads_text(frozen.estimator, schema.raw(frame)[read]):
        cells = replace(cells, raw=schema.raw(frame))
    y, answers = _targets(schema, frame, frozen is not None, loss, tolerance, metric, k)
    if frozen is not None:
        models_of(answers).check_fitted(frozen.estimator, Path(full).name)
    if schema.is_number and not query and task is None:
        notes.append(
            f"column {target!r} holds numbers, and numbers are predicted; --task classes would predict labels"
        )
    table = TrainingTable(schema, prices, cells, y, answers, frozen, tuple(notes))
    _refuse_few(table)
    if frozen is not None or full != "auto":
        refuse_missing(table, recipe(full, 0, 1, answers) if frozen is None else frozen, full)
    return table


def _targets(
    schema: Schema,
    frame: Any,
    has_own_labels: bool,
    loss: str | None,
    tolerance: float | None,
    metric: str | None,
    k: int | None,
) -> tuple[Labels, Task]:
    """What the models learn to answer, and the task that it poses."""
    labels = schema.labels(frame)
    if schema.query:
        allowed = 0.01 if tolerance is None else tolerance
        return labels, ranking_of(
            labels, loss or "pointwise", f"{metric or 'ndcg'}@{10 if k is None else k}", allowed
        )
    if metric is not None or k is not None:
        given = f"--k {k}" if metric is None else f"--metric {metric}"
        raise InvalidInputError(
            f"{given.split()[0]} is for documents that are ranked; got {given} without --query. Leave it out, or name "
            f"the column of the queries with --query."
        )
    if schema.is_number:
        kind, quantile = _loss_of_numbers(loss, schema.target)
        allowed = 0.01 if tolerance is None else tolerance
        return labels, regression_of(labels, kind, tolerance=allowed, quantile=quantile)
    if tolerance is not None or (loss or "").partition(":")[0] in get_args(RegressionLoss):
        given = f"--loss {loss}" if tolerance is None else f"--tolerance {tolerance:g}"
        raise InvalidInputError(
            f"{given.split()[0]} is for a target of numbers; got {given}, and column {schema.target!r} holds classes. "
            f"Leave it out, or say --task number."
        )
    mistakes = None
    if loss is not None:
        mistakes = read_loss(
            read_matrix(loss, schema.classes) if is_matrix_file(loss) else loss, schema.classes
        )
    if has_own_labels:
        return labels, classification(schema.classes, mistakes)
    return np.searchsorted(schema.classes, labels), classification(np.arange(len(schema.classes)), mistakes)


def _loss_of_numbers(loss: str | None, target: str) -> tuple[RegressionLoss, float | None]:
    """The error that counts, from how it is written on the command line, and the quantile of the pinball loss."""
    kind, _, share = (loss or "squared").partition(":")
    quantile = float(share) if is_number(share) else np.nan
    if kind == "pinball" and 0.0 < quantile < 1.0:
        return "pinball", quantile
    if loss in (None, "squared", "absolute"):
        return "absolute" if loss == "absolute" else "squared", None
    raise InvalidInputError(
        f"--loss must be squared, absolute, or pinball:Q with a quantile Q between 0 and 1, such as pinball:0.9, where "
        f"numbers are predicted; got --loss {loss}, and column {target!r} holds numbers. Correct it, leave it out, or "
        f"say --task classes."
    )


def refuse_missing(table: TrainingTable, full: Any, kind: str) -> None:
    """Refuse missing cells where the full model cannot read them."""
    # Next to text a full model says by itself what it cannot read.
    if table.cells.raw is None and table.has_missing and not get_tags(full).input_tags.allow_nan:
        rows, columns = np.arange(len(table.cells)), table.prices.read_by_full
        table.cells.refuse_missing(rows, columns, f"the full model ({kind})")


def _reads_text(model: Any, frame: Any) -> bool:
    """Whether a fitted model answers a row of text as it came: one that was fitted on numbers cannot."""
    whole = frame.dropna()
    try:
        model.predict((whole if len(whole) else frame).head(1))
    except Exception:  # whatever the model makes of a table that it does not read
        return False
    return True


def _refuse_few(table: TrainingTable) -> None:
    if table.schema.query:
        n_queries = len(np.unique(table.y[:, 1]))
        if n_queries < FEWEST:
            raise InvalidInputError(
                f"the table must have at least {FEWEST} queries, to learn from some and to be judged on others; column "
                f"{table.schema.query!r} names {n_queries:,}. Give more queries, or name another column with --query."
            )
    if table.schema.is_number:
        distinct = len(np.unique(fingerprints(table.cells.numbers)))
        if distinct < 2 * FEWEST:
            raise InvalidInputError(
                f"the table must have at least {2 * FEWEST} different rows, to learn from some and to be judged on "
                f"others; it has {distinct:,} among {len(table.y):,}. Give more rows, or columns that tell them apart."
            )
        return
    for label, name in zip(np.unique(table.y), table.schema.classes.tolist(), strict=True):
        distinct = len(np.unique(fingerprints(table.cells.numbers[table.y == label])))
        if distinct < FEWEST:
            n_rows, n_labels = int((table.y == label).sum()), len(table.schema.classes)
            raise InvalidInputError(
                f"the table must have at least {FEWEST} different rows of each class, to learn from some and to be "
                f"judged on others; {name!r}, one of {n_labels:,} labels, has {distinct:,} among {n_rows:,}. Give more "
                f"rows, columns that tell them apart, or fewer classes."
            )


def _is_file(full: str) -> bool:
    if full == "auto" or full in KINDS:
        return False
    if not full.endswith(".skops"):
        raise InvalidInputError(
            f"--full must be auto, one of {', '.join(KINDS)}, or a .skops file; got {full!r}."
        )
    return True


def _check_features(schema: Schema, full_features: Sequence[str]) -> None:
    unknown = [name for name in full_features if name not in schema.names]
    if unknown:
        raise InvalidInputError(
            f"--full-features names {listed(unknown)}, not a feature of the table, which has {listed(schema.names)}."
        )
    if len(set(full_features)) < len(full_features):
        raise InvalidInputError(f"--full-features must name every column once; got {listed(full_features)}.")


def _as_model_reads(
    schema: Schema, model: Any, full_features: Sequence[str], name: str
) -> tuple[Schema, Sequence[str]]:
    """The schema with the columns of a fitted model first, in its order, and the names of those columns."""
    known = getattr(model, "feature_names_in_", None)
    read = [str(one) for one in known] if known is not None else list(full_features or schema.names)
    if known is None:
        width = getattr(model, "n_features_in_", len(read))
        if width != len(read):
            raise InvalidInputError(
                f"{name} was fitted on {width} columns without names, and {len(read)} are given to it. Name those that "
                f"it reads, in its order, with --full-features."
            )
    absent = [one for one in read if one not in schema.names]
    if absent:
        raise InvalidInputError(
            f"{name} reads {listed(absent)}, not a feature of the table, which has {listed(schema.names)}."
        )
    if full_features and set(full_features) != set(read):
        raise InvalidInputError(
            f"{name} reads {listed(read)}, and --full-features names {listed(full_features)}. Leave the option out."
        )
    return replace(schema, names=(*read, *(one for one in schema.names if one not in read))), read
