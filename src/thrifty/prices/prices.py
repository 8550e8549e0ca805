"""What a user writes about prices: numbers, names, groups, discounts and files, read from files too."""

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from thrifty.errors import InvalidInputError
from thrifty.prices.costs import PriceList
from thrifty.prices.row_prices import ForgottenFunction

__all__ = ["Prices"]

ALL_OTHERS = "*"
"""What a file writes in the place of a name to price the columns that it does not name."""

_COLUMNS = ("feature", "cost", "group", "discount", "saving", "by_row")


@dataclass(frozen=True)
class Prices:
    """Prices of features, in the forms that a plain array or dict cannot say; given as ``feature_costs``.

    Parameters
    ----------
    costs : array-like of shape (n_features,), number, dict by column name, Series, or None
        Price of each column; None is ``default`` each, or 1 each.
    default : float, optional
        Price of every column that a dict does not name; without it every column must be named.
    groups : array-like of shape (n_features,) or dict by column name, optional
        Columns with the same label are one purchase; as ``feature_groups``.
    discounts : dict, optional
        ``{label: (columns, saving)}``: of these columns every one that is bought after the first costs ``saving`` less,
        as where blood is drawn once for several tests (Turney, 1995). Columns are names or numbers.
    by_row : dict, optional
        ``{column: column of prices}``: for each row, the price of the purchase that delivers the first is what the
        second holds. A column of prices is free, and has a price in every row. Or ``{column: function}``: it is given
        the columns of some rows that are free, as a table of the kind of the fit, and returns a price for each row.
        What ``costs`` says of such a purchase, or the mean over the rows of the fit, stands for a row that is not known
        yet. Files keep no functions: a loaded system is given them again, by its ``with_prices``.

    Examples
    --------
    >>> from thrifty import Prices
    >>> blood = (["glucose", "insulin"], 2.10)  # drawn once for both
    >>> prices = Prices({"glucose": 17.61, "insulin": 22.78}, default=1.0, discounts={"blood": blood})
    """

    costs: Any = None
    default: float | None = None
    groups: Any = None
    discounts: Mapping[str, tuple[Sequence[Any], float]] = field(default_factory=dict)
    by_row: Mapping[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, price_list: PriceList) -> "Prices":
        """The prices of a price list, by the numbers of its columns."""
        by_column = price_list.discounts.of[price_list.group_of] if price_list.discounts is not None else ()
        savings = () if price_list.discounts is None else price_list.discounts.savings.tolist()
        return cls(
            price_list.prices[price_list.group_of],
            groups=price_list.group_of.tolist(),
            discounts={
                str(number): (np.flatnonzero(by_column == number).tolist(), saving)
                for number, saving in enumerate(savings)
            },
            by_row=_by_first_column(price_list),
        )

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of prices.

        Parameters
        ----------
        path : path
            A CSV file with the columns feature and cost and, where there are any, group, discount (a label), saving
            and by_row (the column that holds the price of each row; the cost may then be empty); the feature ``*``
            prices all that are not named. Or a JSON file: an object of prices by name, or one with the parts costs,
            default, groups, discounts and by_row.
        """
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInputError(f"the prices in {path} cannot be read: {error}.") from error
        try:
            return cls._from_json(text) if path.suffix.lower() == ".json" else cls.from_rows(_csv_rows(text))
        except InvalidInputError as error:
            raise InvalidInputError(f"{path}: {error}") from None

    @classmethod
    def _from_json(cls, text: str) -> Self:
        try:
            facts = json.loads(text)
        except ValueError as error:
            raise InvalidInputError(f"this is no JSON: {error}.") from None
        if not isinstance(facts, dict):
            raise InvalidInputError(f"a JSON file of prices must hold an object; got {type(facts).__name__}.")
        parts = facts if isinstance(facts.get("costs"), dict) else {"costs": facts}
        unknown = sorted(set(parts) - {"costs", "default", "groups", "discounts", "by_row"})
        if unknown:
            raise InvalidInputError(
                f"the parts of a file of prices are costs, default, groups, discounts and by_row; got {unknown[0]!r}."
            )
        costs = dict(parts["costs"])
        default = parts.get("default", costs.pop(ALL_OTHERS, None))
        return cls(costs, default, parts.get("groups"), parts.get("discounts", {}), parts.get("by_row", {}))

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[str]]) -> Self:
        """The prices in the cells of a table, the line of names included where there is one."""
        rows = [row for row in rows if any(row)]
        named = bool(rows) and len(rows[0]) >= 2 and _number(rows[0][1]) is None
        columns = _columns_of(rows[0]) if named else _COLUMNS[:3]
        rows = rows[1:] if named else rows
        if not rows:
            raise InvalidInputError(
                "there are no prices. Write lines of feature, cost and, if need be, group."
            )
        costs: dict[str, float] = {}
        groups: dict[str, str] = {}
        saved: dict[str, dict[str, float]] = {}
        by_row: dict[str, str] = {}
        for row in rows:
            cells = _cells(row, columns)
            name = cells["feature"]
            if name in costs or name in by_row:
                raise InvalidInputError(f"there are two prices for {name!r}. Keep one of them.")
            if cells.get("by_row"):
                by_row[name] = cells["by_row"]
            if not cells.get("by_row") or cells["cost"] not in ("", "None", "nan"):
                costs[name] = _amount_in(cells["cost"], "cost", name)
            if cells.get("group"):
                groups[name] = cells["group"]
            if bool(cells.get("discount")) != bool(cells.get("saving")):
                raise InvalidInputError(
                    f"a discount has a label and a saving; {name!r} has only one of them. Write both, or neither."
                )
            if cells.get("discount"):
                saving = _amount_in(cells["saving"], "saving", name)
                saved.setdefault(cells["discount"], {})[name] = saving
        for label, by_name in saved.items():
            if len(set(by_name.values())) > 1:
                raise InvalidInputError(
                    f"the discount {label!r} must save the same on each of its features; got {by_name}."
                )
        discounts = {label: (list(by_name), next(iter(by_name.values()))) for label, by_name in saved.items()}
        default = costs.pop(ALL_OTHERS, None)
        return cls(costs, default, groups or None, discounts, by_row)

    def as_dict(self) -> dict[str, Any]:
        """The arguments that make these prices, as plain data: None stands for a function."""
        told = {column: None if callable(told) else told for column, told in self.by_row.items()}
        return asdict(replace(self, by_row=told))

    @classmethod
    def from_dict(cls, arguments: Mapping[str, Any]) -> Self:
        """The prices that such arguments make; where there was a function, one that asks for it."""
        by_row = arguments.get("by_row", {})
        told = {
            column: ForgottenFunction(column) if told is None else told for column, told in by_row.items()
        }
        return cls(**{**arguments, "by_row": told})


def _csv_rows(text: str) -> list[list[str]]:
    try:
        return [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text))]
    except csv.Error as error:
        raise InvalidInputError(f"this is no CSV: {error}.") from None


def _columns_of(names: Sequence[str]) -> tuple[str, ...]:
    """What the columns of a table of prices hold, from its line of names; the first three may be called anything."""
    columns = [*_COLUMNS[:3][: len(names)], *(name.strip().lower() for name in names[3:])]
    if len(names) > 2 and names[2].strip().lower() in ("discount", "by_row"):
        columns = [*_COLUMNS[:2], *(name.strip().lower() for name in names[2:])]
    unknown = [name for name in columns if name not in _COLUMNS]
    if unknown or len(set(columns)) < len(columns):
        raise InvalidInputError(
            f"the columns of a table of prices are {', '.join(_COLUMNS)}; got {', '.join(map(str, names))}."
        )
    return tuple(columns)


def _cells(row: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    """The cells of a line by what they are."""
    if not 2 <= len(row) <= len(columns):
        raise InvalidInputError(
            f"a line of prices has from two to {len(columns)} cells, {', '.join(columns)}; got {len(row)} in that of "
            f"{row[0]!r}. Write decimals with a point."
        )
    # A cell that a data frame lacked has come as a word.
    return {
        name: "" if cell in ("None", "nan") and name not in _COLUMNS[:2] else cell
        for name, cell in zip(columns, row, strict=False)
    }


def _amount_in(cell: str, what: str, name: str) -> float:
    amount = _number(cell)
    if amount is None:
        raise InvalidInputError(f"the {what} of {name!r} must be a number; got {cell!r}.")
    if not 0.0 <= amount < np.inf:
        raise InvalidInputError(
            f"the {what} of {name!r} must be finite and at least 0; got {cell}. 0 is a feature that is at hand."
        )
    return amount


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _by_first_column(price_list: PriceList) -> dict[int, Any]:
    """Who tells each price that differs by row, by the number of the first column of its purchase."""
    by_row = price_list.by_row
    if by_row is None:
        return {}
    found = zip(by_row.purchases, by_row.told_by.tolist(), by_row.functions, strict=True)
    return {
        int(np.flatnonzero(price_list.group_of == purchase)[0]): column if function is None else function
        for purchase, column, function in found
    }
