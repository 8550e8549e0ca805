"""``Prices``, the argument of the estimators, and its conversion into a ``PriceList``.

``Prices`` holds what a user writes, in Python or in a file: by column name, by column number, or one entry per column;
with groups, discounts and prices by row. ``check_price_list`` validates it and returns the ``PriceList`` that computes
bills.
"""

import csv
import io
import json
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from thrifty.arrays import Floats, Ints, check_unmasked
from thrifty.engine.prices.billing import (
    MAX_PRICE,
    MIN_PRICE,
    Discounts,
    PriceList,
    Resources,
    RowPrices,
    check_amount,
    free_columns,
    is_price,
)
from thrifty.errors import InvalidInputError, did_you_mean, listed
from thrifty.files import check_path

FeatureCosts = Any  # ArrayLike | Mapping[str, float] | None, or a table of prices of some other library
FeatureGroups = Sequence[object] | Mapping[str, object] | None

PRICE_RULE = f"0, or lie between {MIN_PRICE:g} and {MAX_PRICE:g}"

ALL_OTHERS = "*"
"""Name in a price file for all columns that it does not name."""

_COLUMNS = ("feature", "cost", "group", "discount", "saving", "by_row")


@dataclass(frozen=True)
class Prices:
    """Prices of features and of the full model: the ``prices`` of an estimator.

    Parameters
    ----------
    costs : array-like of shape (n_features,), number, dict by column name, Series, or None
        Price of each column; a number is the price of every column, None is ``default`` each, or 1 each.
    default : float, optional
        Price of every column that a dict does not name; without it every column must be named.
    groups : array-like of shape (n_features,) or dict by column name, optional
        A label per column: columns with the same label are bought together, at one price, which ``costs`` has at each
        of them. Columns that a dict does not name are bought alone.
    discounts : dict, optional
        ``{label: (columns, saving)}``: of these columns every one that is bought after the first costs ``saving`` less,
        as where blood is drawn once for several tests (Turney, 1995). Columns are names or numbers.
    by_row : dict, optional
        ``{column: column of prices}``: the second column holds, for each row, the price of the purchase that delivers
        the first. A column of prices is free, and has a price in every row. Or ``{column: function}``: the function
        gets the free columns of some rows, as a table of the kind of the fit, and returns a price for each row. Before
        a row is known, its price is the one in ``costs``, or the mean over the rows of the fit. Files keep no
        functions: give them to a loaded system again with ``with_prices``.
    full : float, default=0.0
        Price of one call of the full model, on top of the columns that it reads.
    full_features : array-like of column numbers or names, or a mask, default=None
        Columns that the full model reads; it gets only these. None is all columns.
    delays : sequence of str
        Resources that are delays, such as the days until a laboratory answers: purchases that are made together wait
        together, so that the longest delay counts, and those of one round after the other add.

    Notes
    -----
    Where purchases cost several resources, every price, ``default``, saving and ``full`` is a dict by resource, such as
    ``{"dollars": 30, "minutes": 20}``; a resource that it does not name costs 0, and so does the price 0. ``costs`` may
    also be a data frame with a line for each column and a column for each resource.

    Examples
    --------
    >>> from thrifty import Prices
    >>> blood = (["glucose", "insulin"], 2.10)  # drawn once for both
    >>> prices = Prices({"glucose": 17.61, "insulin": 22.78}, default=1.0, discounts={"blood": blood}, full=5.0)
    >>> both = Prices({"age": 0, "ecg": {"dollars": 30, "minutes": 20}}, full={"dollars": 2})
    """

    costs: Any = None
    default: Any = None
    groups: Any = None
    discounts: Mapping[str, Any] = field(default_factory=dict)
    by_row: Mapping[Any, Any] = field(default_factory=dict)
    full: Any = 0.0
    full_features: Any = None
    delays: Sequence[str] = ()

    @classmethod
    def of(cls, price_list: PriceList) -> "Prices":
        """The prices of a price list, by the numbers of its columns."""
        if price_list.resources is not None:
            return cls._of_resources(price_list.resources)
        by_column = price_list.discounts.of[price_list.group_of] if price_list.discounts is not None else ()
        savings = () if price_list.discounts is None else price_list.discounts.savings.tolist()
        by_row: dict[int, Any] = {}  # column or function of each price, by the first column of its purchase
        if (of_rows := price_list.by_row) is not None:
            sources = zip(of_rows.purchases, of_rows.price_column.tolist(), of_rows.functions, strict=True)
            for purchase, column, function in sources:
                first = int(np.flatnonzero(price_list.group_of == purchase)[0])
                by_row[first] = column if function is None else function
        return cls(
            price_list.prices[price_list.group_of],
            groups=price_list.group_of.tolist(),
            discounts={
                str(number): (np.flatnonzero(by_column == number).tolist(), saving)
                for number, saving in enumerate(savings)
            },
            by_row=by_row,
            full=price_list.full_cost,
            full_features=None if price_list.full_columns is None else price_list.full_columns.tolist(),
        )

    @classmethod
    def _of_resources(cls, resources: Resources) -> "Prices":
        parts = [cls.of(each) for each in resources.lists]

        def together(values: Iterable[float]) -> dict[str, float]:
            return dict(zip(resources.names, map(float, values), strict=True))

        discounts = {
            label: (columns, together(part.discounts[label][1] for part in parts))
            for label, (columns, _) in parts[0].discounts.items()
        }
        costs = [together(values) for values in zip(*(part.costs.tolist() for part in parts), strict=True)]
        full = together(part.full for part in parts)
        return replace(parts[0], costs=costs, discounts=discounts, full=full, delays=resources.delays)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of prices.

        Parameters
        ----------
        path : path
            A CSV file with the columns feature and cost and, where there are any, group, discount (a label), saving
            and by_row (the column that holds the price of each row; the cost may then be empty); the feature ``*``
            prices all that are not named. Several columns of numbers instead of cost are prices in several resources,
            which have the names of these columns. Or a JSON file: an object of prices by name, or one with the parts
            costs, default, groups, discounts, by_row, full and full_features.
        """
        path = Path(check_path(path))
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInputError(f"the prices in {path} cannot be read: {error}.") from error
        try:
            if path.suffix.lower() == ".json":
                return cls._from_json(text)
            return cls.from_rows([[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text))])
        except csv.Error as error:
            raise InvalidInputError(f"{path}: this is no CSV: {error}.") from None
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
        names = [field.name for field in fields(cls)]
        unknown = sorted(set(parts) - set(names))
        if unknown:
            raise InvalidInputError(
                f"the parts of a file of prices are {', '.join(names)}; got {unknown[0]!r}."
            )
        costs = dict(parts["costs"])
        default = parts.get("default", costs.pop(ALL_OTHERS, None))
        return cls(**{**parts, "costs": costs, "default": default})

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[str]]) -> Self:
        """The prices in the cells of a table, the line of names included where there is one."""
        rows = [row for row in rows if any(row)]
        if resources := _resource_columns(rows):
            return cls._from_resources(rows, resources)
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

    @classmethod
    def _from_resources(cls, rows: Sequence[Sequence[str]], resources: Sequence[str]) -> Self:
        """The prices in a table with one column for each resource, and perhaps one of groups behind them."""
        costs: dict[str, Any] = {}
        groups: dict[str, str] = {}
        for name, *cells in rows[1:]:
            if name in costs:
                raise InvalidInputError(f"there are two prices for {name!r}. Keep one of them.")
            amounts = (
                _amount_in(cell, resource, name) for resource, cell in zip(resources, cells, strict=False)
            )
            costs[name] = dict(zip(resources, amounts, strict=True))
            if len(cells) > len(resources) and cells[len(resources)] not in ("", "None", "nan"):
                groups[name] = cells[len(resources)]
        default = costs.pop(ALL_OTHERS, None)
        return cls(costs, default, groups or None)

    def of_columns(self, names: Sequence[str], *, known: Sequence[str] = ()) -> Self:
        """These prices for the columns of a table; every one of them must be priced.

        Parameters
        ----------
        names : sequence of str
            The features.
        known : sequence of str
            Other columns of the table, which may have a price.
        """
        unknown = [name for name in (*self.costs, *self.by_row) if name not in {*names, *known}]
        if unknown:
            raise InvalidInputError(
                f"there is a price for {listed(unknown)}, not a feature of the table, which has {listed(names)}."
                f"{did_you_mean(unknown[0], names)}"
            )
        priced = {*self.costs, *self.by_row, *self.by_row.values()}
        missing = [name for name in names if name not in priced]
        if missing and self.default is None:
            raise InvalidInputError(
                f"there is no price for {listed(missing)}. Every feature needs one; 0 is a feature that is at hand, "
                f"and the feature {ALL_OTHERS} prices all that are not named."
            )
        # What one feature alone would have saved is no discount.
        discounts = {
            label: ([name for name in columns if name in names], saving)
            for label, (columns, saving) in self.discounts.items()
        }
        return replace(
            self,
            costs={name: cost for name, cost in self.costs.items() if name in names},
            groups={name: group for name, group in (self.groups or {}).items() if name in names} or None,
            discounts={label: shared for label, shared in discounts.items() if len(shared[0]) > 1},
            by_row={name: column for name, column in self.by_row.items() if name in names},
        )


def _resource_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Resources of a price table: its columns of numbers where there are several; empty if it has one price."""
    if len(rows) < 2:
        return []
    names = rows[0][1:-1] if rows[0][-1].strip().lower() == "group" else rows[0][1:]
    if len(names) < 2 or {name.strip().lower() for name in names} & set(_COLUMNS) or not all(names):
        return []
    cells = [cell for row in rows[1:] for cell in row[1 : len(names) + 1]]
    is_whole = all(len(row) > len(names) for row in rows[1:])
    is_numbers = is_whole and all(_number(cell) is not None for cell in cells)
    return list(names) if is_numbers and all(_number(name) is None for name in names) else []


def _columns_of(names: Sequence[str]) -> tuple[str, ...]:
    """Kinds of the columns of a price table, from its header; features and costs may have other names."""
    columns = [name.strip().lower() for name in names]
    columns[:2] = [
        name if name in _COLUMNS else usual for name, usual in zip(columns, _COLUMNS[:2], strict=False)
    ]
    unknown = [name for name, kind in zip(names, columns, strict=True) if kind not in _COLUMNS]
    if unknown or len(set(columns)) < len(columns) or not {"feature", "cost"} <= set(columns):
        raise InvalidInputError(
            f"the columns of a table of prices are {', '.join(_COLUMNS)}; got {', '.join(map(str, names))}."
            + (f" Remove {unknown[0]!r}, or give it one of these names." if unknown else "")
        )
    return tuple(columns)


def _cells(row: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    """Cells of a line by kind."""
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


# -- checking --------------------------------------------------------------------------------------


def resolve_prices(feature_costs: Any, prices: Any, default: Prices) -> Prices:
    """Prices from the parameters ``feature_costs`` and ``prices`` of an estimator; ``default`` if both are None."""
    if prices is None:
        if isinstance(feature_costs, Prices | str | os.PathLike):
            raise InvalidInputError(
                f"feature_costs takes a price for each column; got a {type(feature_costs).__name__}. Give it as "
                f"prices=..."
            )
        return default if feature_costs is None else replace(default, costs=feature_costs)
    if feature_costs is not None:
        raise InvalidInputError(
            "give feature_costs or prices, not both: prices=Prices(costs, ...) takes the price of each column too."
        )
    if isinstance(prices, str | os.PathLike):
        return Prices.read(prices)
    if not isinstance(prices, Prices):
        raise InvalidInputError(
            f"prices must be a thrifty.Prices or the path of a file of prices; got {prices!r}. Give a price for each "
            f"column as feature_costs=..., or as prices=Prices(costs, ...)."
        )
    return prices


def check_price_list(
    prices: Prices,
    n_features: int,
    feature_names: Sequence[str] | None = None,
    rows: Any = None,
    weight: Floats | None = None,
    budget: Any = None,
) -> PriceList:
    """Validate ``Prices`` and convert them into a ``PriceList``.

    Parameters
    ----------
    prices : Prices
        What purchases and a call of the full model cost.
    n_features : int
        Number of columns.
    feature_names : sequence of str, optional
        Names of the columns, needed to read a dict.
    rows : Table, optional
        The rows of the fit: prices that differ by row must be there.
    weight : ndarray of shape (n_rows,), optional
        Their weights; None is weight one.
    budget : dict by resource, optional
        Budget, by which the exchange rates of several resources are set.
    """
    names = [str(name) for name in feature_names] if feature_names is not None else None
    resources = resources_of(prices)
    unknown = [name for name in prices.delays if name not in resources]
    if unknown or isinstance(prices.delays, str):
        raise InvalidInputError(
            f"delays must list resources of the prices, which are {listed(resources) or 'one without a name'}; got "
            f"{prices.delays!r}."
        )
    if resources:
        return _several(prices, resources, n_features, names, budget)
    group_of = group_per_column(prices.groups, n_features, names)
    purchase_prices, by_row = _prices(prices, group_of, names, rows, weight)
    full = check_amount("the price of the full model (full of Prices)", prices.full)
    if not is_price(full):
        raise InvalidInputError(
            f"the price of the full model (full of Prices) must be {PRICE_RULE}; got {full:g}. Write prices in another "
            f"unit."
        )
    read = check_columns("full_features", prices.full_features, n_features, names)
    full_columns = None if np.array_equal(read, np.arange(n_features)) else read
    groups = set(prices.groups.values()) if isinstance(prices.groups, Mapping) else set()
    discounts = _discounts(prices.discounts, purchase_prices, group_of, names, groups - set(names or ()))
    if by_row is not None:
        by_row = _checked_row_prices(by_row, purchase_prices, group_of, discounts, names)
        if rows is not None:
            by_row.of_rows(rows, np.arange(rows.n_samples), names)
    return PriceList(purchase_prices, group_of, full, full_columns, discounts, by_row)


def resources_of(prices: Prices) -> tuple[str, ...]:
    """Resources that prices name, in the order in which they do; empty where prices are plain numbers."""
    costs = _by_column(prices.costs)
    entries = list(costs.values()) if isinstance(costs, Mapping) else costs if isinstance(costs, list) else []
    discounts = prices.discounts if isinstance(prices.discounts, Mapping) else {}
    savings = [each[1] for each in discounts.values() if isinstance(each, tuple | list) and len(each) == 2]
    dicts = [each for each in (*entries, prices.default, prices.full, *savings) if isinstance(each, Mapping)]
    return tuple(dict.fromkeys(str(name) for entry in dicts for name in entry))


def _by_column(costs: Any) -> Any:
    """A data frame of prices as a dict of dicts, by its index; any other object is returned unchanged."""
    if not (hasattr(costs, "to_dict") and hasattr(costs, "columns") and hasattr(costs, "index")):
        return costs
    lines: dict[Any, Any] = costs.to_dict(orient="index")
    return list(lines.values()) if list(lines) == list(range(len(lines))) else lines


def _several(
    prices: Prices, resources: Sequence[str], n_features: int, names: list[str] | None, budget: Any
) -> PriceList:
    """Price list of the sums of several resources, at exchange rates by their budgets, or else by their totals."""
    if prices.by_row:
        raise InvalidInputError(
            f"prices that differ by row (by_row of Prices) must be in one resource; these prices are in "
            f"{', '.join(resources)}. List mean prices instead."
        )
    lists = tuple(check_price_list(_in_resource(prices, each), n_features, names) for each in resources)
    several = Resources(tuple(resources), lists, np.ones(len(resources)), tuple(prices.delays))
    limits = several.limits({} if budget is None else several.check_budget("budget", budget))
    return several.at_rates(several.rates_for(limits, np.ones(len(resources))))


def _in_resource(prices: Prices, resource: str) -> Prices:
    """The prices in one of several resources."""

    def amount(entry: Any, name: str) -> Any:
        if isinstance(entry, Mapping):
            return entry.get(resource, 0.0)
        if isinstance(entry, int | float) and entry == 0:
            return 0.0
        raise InvalidInputError(
            f"{name} must be a dict by resource, such as {{{resource!r}: 1.0}}, as other prices are; got {entry!r}."
        )

    costs = _by_column(prices.costs)
    if isinstance(costs, Mapping):
        costs = {column: amount(entry, f"the price of {column!r}") for column, entry in costs.items()}
    elif costs is not None:
        every = enumerate(costs if isinstance(costs, list) else [costs])
        of_columns = [amount(entry, f"the price of column {column}") for column, entry in every]
        costs = of_columns if isinstance(costs, list) else of_columns[0]
    discounts = {
        label: (columns, amount(saving, f"the saving of discounts[{label!r}]"))
        for label, (columns, saving) in prices.discounts.items()
    }
    default = None if prices.default is None else amount(prices.default, "default")
    return replace(
        prices,
        costs=costs,
        default=default,
        discounts=discounts,
        full=amount(prices.full, "full"),
        delays=(),
    )


def with_prices(price_list: PriceList, by_row: Any, feature_names: Sequence[str] | None) -> PriceList:
    """Replace some prices of a price list by prices by row, as ``by_row`` of ``Prices``."""
    names = None if feature_names is None else [str(name) for name in feature_names]
    group_of = price_list.group_of
    sources = {group_of[column]: source for column, source in Prices.of(price_list).by_row.items()}
    sources |= _row_price_sources(by_row, group_of, names)
    row_prices = _row_prices(sources, price_list.prices, group_of, names)
    if row_prices is None:
        return price_list
    row_prices = _checked_row_prices(row_prices, price_list.prices, group_of, price_list.discounts, names)
    return replace(price_list, by_row=row_prices)


def _prices(
    wanted: Prices, group_of: Ints, names: list[str] | None, rows: Any, weight: Floats | None
) -> tuple[Floats, RowPrices | None]:
    """The price of each purchase, and the columns or functions of prices that differ by row."""
    sources = _row_price_sources(wanted.by_row, group_of, names)
    # Nothing need be listed for a column of prices, which is free, nor for what it prices: any price will do until the
    # free columns are known, and with them the mean over the rows.
    unnamed = dict.fromkeys((column for column in sources.values() if not callable(column)), 0.0)
    named = set(map(str, wanted.costs)) if isinstance(wanted.costs, Mapping) else set()
    unlisted = {}
    for purchase in sources:
        columns = np.flatnonzero(group_of == purchase).tolist()
        if names is None or named.isdisjoint(names[column] for column in columns):
            unlisted[purchase] = columns
            unnamed |= dict.fromkeys(columns, 1.0) if rows is not None else {}
    prices = _per_purchase(wanted, group_of, names, unnamed)
    by_row = _row_prices(sources, prices, group_of, names)
    if by_row is None or rows is None:
        return prices, by_row
    amounts = by_row.of_rows(rows, np.arange(rows.n_samples), names)
    means = np.average(amounts, axis=0, weights=weight)
    for purchase, mean in zip(by_row.purchases.tolist(), means, strict=True):
        unnamed |= dict.fromkeys(unlisted.get(purchase, ()), float(mean))
    return _per_purchase(wanted, group_of, names, unnamed), by_row


def _per_purchase(
    wanted: Prices, group_of: Ints, names: list[str] | None, unnamed: Mapping[int, float]
) -> Floats:
    """The price of each purchase, which must be the same at all of its columns."""
    costs = costs_per_column(wanted.costs, wanted.default, len(group_of), names, unnamed)
    prices = np.zeros(int(group_of.max()) + 1 if len(group_of) else 0)
    prices[group_of] = costs
    differs = np.flatnonzero(prices[group_of] != costs)
    if differs.size:
        column = int(differs[0])
        raise InvalidInputError(
            f"prices must be the same for all columns of one group, which are one purchase; "
            f"{name_of(column, names)} costs {costs[column]:g} but another column of its group costs "
            f"{prices[group_of[column]]:g}. Give each of them the price of the whole group."
        )
    return prices


def _row_price_sources(by_row: Any, group_of: Ints, names: list[str] | None) -> dict[int, Any]:
    """Purchases whose price differs by row, with the column that holds it or the function that computes it."""
    if not isinstance(by_row, Mapping):
        raise InvalidInputError(
            f"by_row must be a dict {{column: column of prices, or function of rows}}; got {by_row!r}."
        )
    sources: dict[int, Any] = {}
    for bought, named in by_row.items():
        column = column_number(bought, names, len(group_of), "by_row")
        source: Any = named if callable(named) else column_number(named, names, len(group_of), "by_row")
        other = sources.setdefault(int(group_of[column]), source)
        if other != source:
            both = " and ".join(
                "a function" if callable(each) else name_of(each, names) for each in (other, source)
            )
            raise InvalidInputError(
                f"by_row names two columns of prices, {both}, for the purchase that delivers {name_of(column, names)}. "
                f"Keep one of them."
            )
    return sources


def _row_prices(
    sources: Mapping[int, Any], prices: Floats, group_of: Ints, names: list[str] | None
) -> RowPrices | None:
    """Prices by row, with the columns read for each."""
    if not sources:
        return None
    purchases = np.array(sorted(sources), dtype=np.intp)
    free = free_columns(prices, group_of, purchases)
    reads, functions = [], []
    for purchase in purchases.tolist():
        source = sources[purchase]
        if callable(source) and not len(free):
            column = int(np.flatnonzero(group_of == purchase)[0])
            raise InvalidInputError(
                f"by_row has a function for {name_of(column, names)}, which is given the columns that are free, and "
                f"none is. Give the price 0 to the columns that are at hand."
            )
        reads.append(free if callable(source) else np.array([source], dtype=np.intp))
        functions.append(source if callable(source) else None)
    return RowPrices(purchases, tuple(reads), np.zeros(len(purchases)), tuple(functions))


def _checked_row_prices(
    by_row: RowPrices, prices: Floats, group_of: Ints, discounts: Discounts | None, names: list[str] | None
) -> RowPrices:
    """Check prices by row: columns of prices are free, and no discount saves more than a row pays."""
    for column in by_row.price_column[by_row.price_column >= 0].tolist():
        group = int(group_of[column])
        if prices[group] > 0 or group in by_row.purchases:
            problem = "is priced by row itself" if group in by_row.purchases else f"costs {prices[group]:g}"
            raise InvalidInputError(
                f"by_row reads prices from {name_of(column, names)}, which must be free, since a price is looked at "
                f"before anything is bought; it {problem}. Give it the price 0."
            )
    free = by_row.purchases[prices[by_row.purchases] == 0]
    if len(free):
        column = int(np.flatnonzero(group_of == free[0])[0])
        raise InvalidInputError(
            f"{name_of(column, names)} has a price in each row, and 0 is listed for it, which is a feature that is at "
            f"hand. List what it costs on average, or leave its price out: the mean over the rows of the fit is taken."
        )
    if discounts is None:
        return by_row
    of = discounts.of[by_row.purchases]
    return replace(by_row, least=np.where(of >= 0, discounts.savings[of], 0.0))


def _discounts(
    discounts: Any, prices: Floats, group_of: Ints, names: list[str] | None, groups: set[Any]
) -> Discounts | None:
    """Discounts by purchase; each purchase shares at most one, and no price falls below zero."""
    if not discounts:
        return None
    if not isinstance(discounts, Mapping):
        raise InvalidInputError(f"discounts must be a dict {{label: (columns, saving)}}; got {discounts!r}.")
    of, savings = np.full(len(prices), -1, dtype=np.intp), []
    for number, (label, content) in enumerate(discounts.items()):
        try:
            columns, saving = content
            columns = list(columns)
        except (TypeError, ValueError):
            raise InvalidInputError(
                f"discounts[{label!r}] must be (columns, saving); got {content!r}."
            ) from None
        if isinstance(saving, str) and not isinstance(content[0], list | tuple):
            raise InvalidInputError(
                f"discounts[{label!r}] must be a pair of columns and a saving, such as (['a', 'b'], 2.0); got "
                f"{content!r}."
            )
        if named := groups.intersection(column for column in columns if isinstance(column, str)):
            raise InvalidInputError(
                f"discounts[{label!r}] must name columns; {named.pop()!r} is a group. Name one of its columns: the "
                f"whole group is bought with it."
            )
        columns = [column_number(column, names, len(group_of), "discounts") for column in columns]
        amount = check_amount(f"the saving of discounts[{label!r}]", saving)
        purchases = np.unique(group_of[columns]) if columns else np.empty(0, dtype=np.intp)
        if len(purchases) < 2:
            raise InvalidInputError(
                f"discounts[{label!r}] must name at least two purchases, since all but the first are cheaper; got "
                f"{len(purchases)}. Name the columns that share it, or leave the discount out."
            )
        taken = purchases[of[purchases] >= 0]
        if len(taken):
            column = int(np.flatnonzero(group_of == taken[0])[0])
            raise InvalidInputError(
                f"{name_of(column, names)} is in two discounts; a purchase shares at most one."
            )
        dear = purchases[prices[purchases] < amount]
        if len(dear):
            column = int(np.flatnonzero(group_of == dear[0])[0])
            raise InvalidInputError(
                f"discounts[{label!r}] saves {amount:g} on {name_of(column, names)}, which costs "
                f"{prices[dear[0]]:g}: no price may fall below 0. Lower the saving, or raise the price."
            )
        of[purchases] = number
        savings.append(amount)
    return Discounts(of, np.array(savings))


# -- entries by column -----------------------------------------------------------------------------


def costs_per_column(
    feature_costs: FeatureCosts,
    default: float | None,
    n_features: int,
    names: list[str] | None,
    unnamed: Mapping[int, float],
) -> Floats:
    """A price for each column; ``unnamed`` has those of columns that are not named."""
    if feature_costs is None or (unnamed and isinstance(feature_costs, int | float)):
        every = default if feature_costs is None else feature_costs
        costs = np.full(n_features, 1.0 if every is None else check_amount("default", every))
        costs[list(unnamed)] = list(unnamed.values())
        return costs
    check_unmasked("feature_costs", feature_costs)
    feature_costs = _by_index("feature_costs", feature_costs, n_features, names)
    if isinstance(feature_costs, Mapping):
        named = {**unnamed, **_by_name("feature_costs", feature_costs, n_features, names)}
        missing = [i for i in range(n_features) if i not in named]
        if missing and default is None:
            raise InvalidInputError(
                f"feature_costs names no price for {listed([names[i] for i in missing] if names else [])}. Give every "
                f"column a price; 0 is allowed. Or give one to all that are not named: Prices(costs, default=1.0)."
            )
        named |= dict.fromkeys(missing, check_amount("default", default)) if missing else {}
        raw: object = [named[i] for i in range(n_features)]
    else:
        raw = feature_costs
    try:
        costs = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"feature_costs must be numbers; got {feature_costs!r}.") from None
    if costs.ndim == 0:
        costs = np.full(n_features, costs)
    if costs.shape != (n_features,):
        raise InvalidInputError(
            f"feature_costs must have one price per column, {n_features} in all; got shape {costs.shape}."
        )
    bad = np.flatnonzero(~(np.isfinite(costs) & (costs >= 0)))
    if bad.size:
        column = int(bad[0])
        raise InvalidInputError(
            f"feature_costs must be finite and >= 0; {name_of(column, names)} has {costs[column]:g}. "
            f"Use 0 for a feature that is already at hand."
        )
    extreme = np.flatnonzero(~is_price(costs))
    if extreme.size:
        column = int(extreme[0])
        raise InvalidInputError(
            f"feature_costs must be {PRICE_RULE}; {name_of(column, names)} has {costs[column]:g}. Write prices in "
            f"another unit, or use 0 for a feature that is already at hand."
        )
    return costs


def group_per_column(groups: FeatureGroups, n_features: int, names: list[str] | None) -> Ints:
    """The number of the purchase that delivers each column."""
    if groups is None:
        return np.arange(n_features)
    groups = _by_index("groups", groups, n_features, names)
    if isinstance(groups, Mapping):
        named = _by_name("groups", groups, n_features, names)
        # A column without a label is alone: its key is a type no user label can equal.
        labels: list[object] = [("user", named[i]) if i in named else ("alone", i) for i in range(n_features)]
    else:
        try:
            labels = [("user", label) for label in groups]
        except TypeError:
            raise InvalidInputError(
                f"groups must be one label per column or a dict by column name; got {groups!r}."
            ) from None
    if len(labels) != n_features:
        raise InvalidInputError(
            f"groups must have one label per column, {n_features} in all; got {len(labels)}."
        )
    number: dict[object, int] = {}
    try:
        return np.array([number.setdefault(label, len(number)) for label in labels], dtype=np.intp)
    except TypeError:
        shown = groups.values() if isinstance(groups, Mapping) else groups
        raise InvalidInputError(
            f"groups must hold one label for each column, a string or a number; got {listed(shown, 3)}. Columns of one "
            "label are bought together."
        ) from None


def _by_index(argument: str, entries: Any, n_features: int, names: list[str] | None) -> Any:
    """Entries of a pandas Series in the order of the columns, by its index; any other object is returned unchanged."""
    if not (hasattr(entries, "index") and hasattr(entries, "to_dict") and hasattr(entries, "to_numpy")):
        return entries
    wanted = list(range(n_features)) if names is None else names
    labels = [label if names is None else str(label) for label in entries.index]
    columns, distinct = set(wanted), set(labels)
    unknown = [str(label) for label in labels if label not in columns]
    missing = [str(label) for label in wanted if label not in distinct]
    if unknown or missing or len(distinct) < len(labels):
        problem = (
            f"names {listed(unknown)}"
            if unknown
            else f"lacks {listed(missing)}"
            if missing
            else "names one twice"
        )
        raise InvalidInputError(
            f"{argument} is a Series, which is read by its index, and {problem}; the columns are "
            f"{listed([str(label) for label in wanted])}. Index it by column, or give its values with .to_numpy()."
        )
    values = dict(zip(labels, entries.tolist(), strict=True))
    return [values[label] for label in wanted]


def _by_name(
    argument: str, entries: Mapping[str, object], n_features: int, names: list[str] | None
) -> dict[int, object]:
    if names is None:
        raise InvalidInputError(
            f"{argument} is a dict by column name, but X has no column names. "
            f"Pass a data frame, or an array with one entry per column ({n_features})."
        )
    position = {name: i for i, name in enumerate(names)}
    unknown = [str(name) for name in entries if str(name) not in position]
    if unknown:
        raise InvalidInputError(
            f"{argument} names {listed(unknown)}, not a column of X, which has {listed(names)}."
            f"{did_you_mean(unknown[0], names)}"
        )
    return {position[str(name)]: value for name, value in entries.items()}


def column_number(column: Any, names: list[str] | None, n_features: int, what: str) -> int:
    """The number of a column given by name or number in the argument ``what``, checked."""
    verb = "name" if what.endswith("s") else "names"
    if isinstance(column, str):
        if names is None or column not in names:
            raise InvalidInputError(
                f"{what} {verb} {column!r}, not a column of X.{did_you_mean(column, names or ())}"
            )
        return names.index(column)
    try:
        number = operator.index(column)
    except TypeError:
        raise InvalidInputError(f"{what} must name columns by name or number; got {column!r}.") from None
    if not 0 <= number < n_features:
        raise InvalidInputError(f"{what} {verb} column {number}; X has columns 0 to {n_features - 1}.")
    return number


def check_columns(name: str, features: Any, n_features: int, names: Any) -> Ints:
    """Column numbers, in the order given, from numbers, names or a mask; None is every column."""
    if features is None:
        return np.arange(n_features)
    try:
        wanted = np.asarray(features)
    except ValueError:
        wanted = np.empty(0)  # lists of several lengths, refused below
    if wanted.dtype.kind in "OUT" and wanted.ndim == 1:
        position = {column: i for i, column in enumerate(names)} if names is not None else {}
        unknown = [
            column for column in wanted.tolist() if not isinstance(column, str) or column not in position
        ]
        if unknown:
            raise InvalidInputError(f"{name} names {unknown[0]!r}, which is not a column of X.")
        wanted = np.array([position[column] for column in wanted.tolist()], dtype=np.intp)
    if wanted.dtype == bool and wanted.shape == (n_features,):
        wanted = np.flatnonzero(wanted)
    if wanted.dtype.kind not in "iu" or wanted.ndim != 1 or np.any((wanted < 0) | (wanted >= n_features)):
        raise InvalidInputError(
            f"{name} must be column numbers in [0, {n_features}), names, or a mask; got {features!r}."
        )
    if len(np.unique(wanted)) < len(wanted):
        raise InvalidInputError(f"{name} must name each column once; got {features!r}.")
    return wanted.astype(np.intp)


def name_of(column: int, names: list[str] | None) -> str:
    """The name of a column in error messages."""
    return f"column {names[column]!r}" if names else f"column {column}"


# -- prices of models ------------------------------------------------------------------------------


TOKEN_CHARACTERS = 4.0
"""Characters of a token, where nothing says what was billed."""

ModelPrice = float | tuple[float, float] | dict[str, float] | Callable[[Any], float] | None
"""Price per call, or in several resources, per million tokens in and out, a function of the row, or known from logs."""


def check_models(models: Any) -> dict[str, ModelPrice]:
    """Names and prices of the models."""
    if isinstance(models, Mapping):
        pairs = list(models.items())
    elif isinstance(models, Sequence) and not isinstance(models, str):
        pairs = [(name, None) for name in models]
    else:
        raise InvalidInputError(
            f"models must be a dict from names to prices, or a list of names; got {type(models).__name__}."
        )
    names = [name for name, _ in pairs]
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidInputError(f"models must have names that are text; got {name!r}.")
        if names.count(name) > 1:
            raise InvalidInputError(
                f"models must have different names; {name!r} is there {names.count(name)} times."
            )
    if len(names) < 2:
        raise InvalidInputError(f"models must name at least two models to choose from; got {len(names)}.")
    return {name: check_price(name, price) for name, price in pairs}


def check_price(name: str, price: Any) -> ModelPrice:
    """Check the price of one model."""
    if price is None or callable(price):
        return price
    if isinstance(price, Mapping):
        amounts = {
            str(each): check_amount(f"the {each} of {name!r}", amount) for each, amount in price.items()
        }
        if not any(amounts.values()):
            raise InvalidInputError(
                f"the price of {name!r} must be above 0 in some resource; got {dict(price)!r}. A model that is free "
                f"needs no router: give what its time is worth."
            )
        return amounts
    rule = (
        f"the price of {name!r} must be a number > 0 per call, a pair of numbers > 0 per million tokens in and out, or "
        f"a function of the row; got {price!r}. A model that is free needs no router: give what its time is worth."
    )
    parts = list(price) if isinstance(price, tuple | list) else [price]
    is_number = all(
        isinstance(part, int | float | np.number) and not isinstance(part, bool) for part in parts
    )
    if len(parts) not in (1, 2) or not is_number or not all(np.isfinite(part) and part > 0 for part in parts):
        raise InvalidInputError(rule)
    return (
        (float(parts[0]), float(parts[1]))
        if isinstance(price, tuple | list) and len(parts) == 2
        else float(parts[0])
    )


def resources_of_models(cost: Any, prices: Mapping[str, ModelPrice]) -> tuple[str, ...]:
    """Resources that answers of models cost, by what was billed, else by the prices; empty where there is one."""
    if cost is not None:
        return tuple(map(str, cost)) if isinstance(cost, Mapping) else ()
    by_resource = [price for price in prices.values() if isinstance(price, Mapping)]
    if by_resource and len(by_resource) < len(prices):
        raise InvalidInputError(
            f"prices of models must all be dicts by resource, or none; got {dict(prices)!r}. Write "
            f"{{{next(iter(by_resource[0]))!r}: ...}} for each, or give what was billed as cost=."
        )
    return tuple(dict.fromkeys(name for price in by_resource for name in price))


def price_of_answer(price: ModelPrice, x: Any, answer: Any) -> float | dict[str, float] | None:
    """Price of one answer about one row; None where it is known only from what was billed."""
    if isinstance(price, float | dict):
        return price
    if isinstance(price, tuple) and isinstance(answer, str) and isinstance(x, str):
        tokens = len(x) / TOKEN_CHARACTERS, len(answer) / TOKEN_CHARACTERS
        return (price[0] * tokens[0] + price[1] * tokens[1]) / 1e6
    return float(price(x)) if callable(price) else None
