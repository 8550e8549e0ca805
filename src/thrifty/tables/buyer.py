"""Buying for a system that reads tables: what a source answers is read as the cells of a table are.

Text becomes the number of its category before a model sees it. A cell that cannot be read is a purchase that failed, of
its row alone, in the words in which a table is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints, Words
from thrifty.chain.buying import BuysFromSources
from thrifty.chain.chain import Chain
from thrifty.chain.columns import ColumnType, Levels, kind_of_table
from thrifty.chain.purchases import PurchaseReader
from thrifty.chain.sources import Delivery, FeatureSource, Ledger, Reader
from thrifty.errors import InvalidInputError
from thrifty.prices.billing import PriceList
from thrifty.tables.schema import Schema
from thrifty.tasks.task import Task

__all__ = ["TableBuyer"]


@dataclass(frozen=True, eq=False)
class TableBuyer(BuysFromSources):
    """A chain that buys cells as a schema reads them; made by ``of``.

    Attributes
    ----------
    chain : Chain
        What answers.
    schema : Schema
        How cells are read.
    unseen_is_missing : bool
        Whether text that was not there when the schema was learned counts as missing.
    """

    chain: Chain
    schema: Schema
    unseen_is_missing: bool
    price_list: PriceList
    task: Task
    names: tuple[str, ...] | None
    kind: str | None
    levels: Levels | None
    types: tuple[ColumnType, ...] | None

    @classmethod
    def of(cls, chain: Chain, schema: Schema, *, unseen_is_missing: bool = False) -> "TableBuyer":
        """What buys for a chain that reads tables by a schema."""
        texts = {place: schema.categories[schema.names[place]] for place in schema.categorical}
        return cls(
            replace(chain, names=schema.names),
            schema,
            unseen_is_missing,
            chain.price_list,
            chain.task,
            schema.names,
            chain.kind,
            Levels(texts) if texts else None,
            chain.types,
        )

    def is_number(self, column: int) -> bool:
        """Whether a column holds plain numbers, and neither text nor dates nor truth values."""
        schema, name = self.schema, self.schema.names[column]
        return name not in schema.categories and name not in (*schema.dates, *schema.truths)

    @property
    def bought_by_place(self) -> Bools:
        """Columns a row holds that was answered at each place."""
        return self.chain.bought_by_place

    @property
    def n_stages(self) -> int:
        """Number of stages in front of the full model."""
        return self.chain.n_stages

    def answer(self, reader: Reader) -> Floats:
        """Outputs of every row."""
        return self.chain.answer(reader)

    def route_and_outputs(self, reader: Reader, rows: Ints) -> tuple[Ints, Floats]:
        """Who answers some rows, -1 being nobody, and with what."""
        return self.chain.route_and_outputs(reader, rows)

    def with_prices(self, prices: Mapping[Any, Any] | None) -> "TableBuyer":
        """The same, with other prices by row."""
        if prices is None:
            return self
        chain = self.chain.with_prices(prices)
        return replace(self, chain=chain, price_list=chain.price_list)

    def buying(self, source: Any, ledger: Ledger | None, row_keys: Words | None = None) -> PurchaseReader:
        """Read cells from a source that counts its columns as the fit does."""
        keeps_text = self.chain.levels is not None
        cells = _CellSource(source, self.schema, keeps_text, self.unseen_is_missing)
        return self.chain.buying(cells, ledger, row_keys)


@dataclass(frozen=True, eq=False)
class _CellSource:
    """A source whose answers are read by a schema; where the chain reads text itself, they are only checked."""

    source: FeatureSource
    schema: Schema
    keeps_text: bool
    unseen_is_missing: bool

    @property
    def by_group(self) -> bool:
        """Whether the source is asked for one purchase at a time."""
        return bool(getattr(self.source, "by_group", False))

    def __len__(self) -> int:
        return len(self.source)

    def fetch(self, rows: Ints, columns: Ints) -> Any:
        """Ask the source, and read what it answers."""
        answer = self.source.fetch(rows, columns)
        said = answer if isinstance(answer, Delivery) else Delivery(answer)
        names = tuple(self.schema.names[column] for column in columns)
        frame = _frame(said.values, len(rows), names)
        if frame is None:
            return answer  # refused by whoever asked, who knows what was asked for
        schema = replace(self.schema, names=names, row_key="")
        cells = schema.cells(frame, unseen_is_missing=self.unseen_is_missing)
        failed = dict(said.failed)
        for one in cells.unreadable.values():
            for place in np.flatnonzero(one.rows).tolist():
                why = one.why(one.values[place], int(rows[place]) + 1)
                if len(rows) == 1:
                    raise InvalidInputError(why)
                failed.setdefault(int(rows[place]), why)
        values = frame.to_numpy(dtype=object) if self.keeps_text else cells.numbers
        return Delivery(values, failed, said.paid)


def _frame(values: Any, n_rows: int, names: tuple[str, ...]) -> Any:
    """What a source answered as a data frame of the columns asked for; None where it is something else."""
    import pandas as pd

    if kind_of_table(values):
        if sorted(map(str, values.columns)) != sorted(names):
            return None
        columns: Mapping[str, Any] = {name: values[name].to_list() for name in names}
        return pd.DataFrame(columns)
    cells = np.asarray(values)
    if cells.shape != (n_rows, len(names)):
        return None
    return pd.DataFrame(cells, columns=list(names)).infer_objects()
