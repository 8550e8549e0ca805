"""``Receipts``: what systems bought for the rows that they served, and what it told them, for a later fit.

**A table of receipts is a training table without a target, most cells of which were not bought.** A line holds the key
of a row, the values that it bought under the names of their columns, and what the receipt says of it: ``bought`` lists
the columns in the order of purchase, ``propensity`` the probability of each purchase given those before it. Tables of
several months, and of several systems, are one after the other.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from thrifty.arrays import Floats, Ints, Labels
from thrifty.engine.purchases.receipts import Receipt
from thrifty.engine.table.files import name_of, read_table
from thrifty.engine.table.table import Table
from thrifty.errors import InvalidInputError, listed

OWN_COLUMNS = ("answer", "probability", "stage", "cost", "bought", "failed", "reason", "propensity")
"""Columns of a table of receipts that are not values of the row."""

_BETWEEN, _OTHERWISE = ", ", " of the row"


@dataclass(frozen=True, eq=False)
class Receipts:
    """Rows that were served, with what each of them bought; for ``fit(X, y, bought=, propensity=)``.

    Attributes
    ----------
    X : pandas data frame of shape (n_rows, n_features)
        Values that were bought; blank where none was.
    bought : pandas data frame of the same shape, int
        Number of the purchase of the row that brought a column, from 1; 0 where nothing did.
    propensity : pandas data frame of the same shape
        Probability of that purchase, given those before it.
    key : ndarray of shape (n_rows,)
        Keys of the rows.
    answer, cost : ndarray of shape (n_rows,)
        What was answered, and paid.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from thrifty import BudgetedClassifier, Receipts, StageOptions
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> X = X.iloc[:, :6].round(3)
    >>> options = StageOptions(sizes=[(20, 3)], structure="line")
    >>> clf = BudgetedClassifier(stages=options, random_state=0).fit(X[:250], y[:250])
    >>> source = X[250:].to_dict("list")
    >>> receipts = Receipts.of(clf.at(budget=3, explore=0.2).buy(source))
    >>> outcomes = y[250:]
    >>> again = clf.fit(receipts.X, outcomes, bought=receipts.bought, propensity=receipts.propensity)
    """

    X: Any
    bought: Any
    propensity: Any
    key: Labels
    answer: Labels
    cost: Floats

    @classmethod
    def of(cls, *receipts: Receipt) -> Self:
        """Receipts of rows that were served one after the other, also by several systems."""
        import pandas as pd

        parts = []
        for receipt in receipts:
            if receipt.X is None or receipt.order is None:
                raise InvalidInputError(
                    "receipts must be of a system that buys columns; those of a router have answers of models."
                )
            names = [str(name) if isinstance(name, str) else f"x{name}" for name in receipt.names]
            values = Table.of(receipt.X)
            X = pd.DataFrame({name: values.values(place) for place, name in enumerate(names)})
            frames = [pd.DataFrame(part, columns=names) for part in (receipt.order, receipt.propensity)]
            parts.append((X, *frames, receipt.key, receipt.answer, receipt.cost))
        X, bought, propensity = (
            pd.concat([part[place] for part in parts], ignore_index=True) for place in range(3)
        )
        rest = (np.concatenate([part[place] for part in parts]) for place in range(3, 6))
        return cls(X, bought.fillna(0).astype(np.int32), propensity.fillna(1.0), *rest)

    @classmethod
    def read(cls, *paths: str | os.PathLike[str], row_key: str, as_text: Sequence[str] = ()) -> Self:
        """Receipts of tables that ``thrifty buy``, or ``to_pandas``, wrote: CSV or parquet files.

        Parameters
        ----------
        *paths : path
            Files of receipts.
        row_key : str
            Column with the keys of the rows.
        as_text : sequence of str
            Columns whose cells are text even where they look like numbers.
        """
        import pandas as pd

        frames = []
        for path in paths:
            frame = read_table(path, as_text=(row_key, *as_text))
            lacking = [
                name for name in (row_key, "answer", "cost", "bought", "propensity") if name not in frame
            ]
            if lacking:
                raise InvalidInputError(
                    f"{name_of(path)} must hold receipts, as `thrifty buy` writes them; it lacks the column "
                    f"{lacking[0]!r} and has {listed(frame.columns)}."
                )
            frames.append(frame)
        return cls.from_pandas(pd.concat(frames, ignore_index=True), row_key)

    @classmethod
    def from_pandas(cls, table: Any, row_key: str) -> Self:
        """Receipts of a table of ``to_pandas``."""
        import pandas as pd

        names = [name for name in table.columns if name not in (*OWN_COLUMNS, row_key)]
        X = table[names].rename(columns={name: _own_name(name) for name in names})
        place_of = {name: place for place, name in enumerate(X.columns)}
        order = np.zeros(X.shape, dtype=np.int32)
        propensity = np.ones(X.shape)
        for row, (of_row, of_chances) in enumerate(zip(table["bought"], table["propensity"], strict=True)):
            columns, numbers = _list_of(of_row, str), _list_of(of_chances, float)
            unknown = [name for name in columns if name not in place_of]
            if unknown or len(columns) != len(numbers):
                raise InvalidInputError(
                    f"receipts must list in bought columns of the table, separated by commas, and in propensity a "
                    f"number for each; line {row + 1} has {of_row!r} and {of_chances!r}."
                )
            places = [place_of[name] for name in columns]
            order[row, places], propensity[row, places] = np.arange(1, len(places) + 1), numbers
        bought, chances = (pd.DataFrame(part, columns=X.columns) for part in (order, propensity))
        key, answer, cost = (table[name].to_numpy() for name in (row_key, "answer", "cost"))
        return cls(X, bought, chances, key, answer, cost)

    def __len__(self) -> int:
        return len(self.X)

    def __repr__(self) -> str:
        share = float((self.bought.to_numpy() > 0).mean()) if len(self) else 0.0
        return f"Receipts({len(self):,} rows, {share:.1%} of their cells bought, mean cost {np.mean(self.cost):.4g})"

    def to_pandas(self, row_key: str = "key") -> Any:
        """The table, which CSV and parquet files can hold."""
        import pandas as pd

        lists = bought_as_text(self.bought.to_numpy(), self.propensity.to_numpy(), list(self.X.columns))
        own = {"answer": self.answer, "cost": self.cost, "bought": lists[0], "propensity": lists[1]}
        return with_values(pd.DataFrame({row_key: self.key, **own}), self.X)

    def take(self, rows: Ints) -> "Receipts":
        """Some of the rows."""
        X, bought, propensity = (
            frame.iloc[rows].reset_index(drop=True) for frame in (self.X, self.bought, self.propensity)
        )
        return Receipts(X, bought, propensity, self.key[rows], self.answer[rows], self.cost[rows])

    def labels(self, by_key: Mapping[Any, Any]) -> Labels:
        """Labels of the rows, from those by key, compared as text; None where there is none."""
        by_key = {str(key): label for key, label in by_key.items()}
        labels = [by_key.get(str(key)) for key in self.key.tolist()]
        return np.array(labels, dtype=object if None in labels else None)


def bought_as_text(order: Ints, propensity: Floats, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Columns that each row bought, in their order, and the propensities, each as text with commas between."""
    bought, chances = [], []
    for numbers, of_row in zip(order, propensity, strict=True):
        columns = [column for column in np.argsort(numbers, kind="stable").tolist() if numbers[column]]
        bought.append(_BETWEEN.join(str(names[column]) for column in columns))
        chances.append(_BETWEEN.join(f"{of_row[column]:.9g}" for column in columns))
    return bought, chances


def with_values(own: Any, X: Any) -> Any:
    """A table of receipts: its own columns, then the values; one with the name of another is "NAME of the row"."""
    import pandas as pd

    values = Table.of(X)
    names = list(values.columns) if values.kind else [f"x{place}" for place in range(X.shape[1])]
    of_values = zip(columns_of_values(names, own.columns), range(len(names)), strict=True)
    columns = {name: values.values(place) for name, place in of_values}
    return pd.concat([own.reset_index(drop=True), pd.DataFrame(columns)], axis=1)


def columns_of_values(names: Sequence[Any], own: Sequence[str]) -> list[str]:
    """Names of values in a table of receipts: those of its own columns are "NAME of the row"."""
    taken = {*OWN_COLUMNS, *own}
    return [f"{name}{_OTHERWISE}" if str(name) in taken else str(name) for name in names]


def _own_name(name: str) -> str:
    return name.removesuffix(_OTHERWISE) if name.removesuffix(_OTHERWISE) in OWN_COLUMNS else name


def _list_of(cell: Any, kind: Any) -> list[Any]:
    """Entries of a cell: a list, or text with commas between; none where it is blank."""
    if isinstance(cell, str):
        return [kind(entry) for entry in cell.split(_BETWEEN) if entry]
    if cell is None or (isinstance(cell, float) and np.isnan(cell)):
        return []
    return [kind(cell)] if np.isscalar(cell) else [kind(entry) for entry in cell]
