"""``thrifty buy``: answer rows of a database, querying only the cells that each answer needs."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote

import typer

from thrifty.cli.console import notes_of_warnings, print_json, print_note, print_text
from thrifty.cli.options import (
    AsJson,
    Budget,
    Cap,
    Explore,
    Goal,
    MaxLoss,
    PublicKey,
    RowKey,
    SystemFile,
    Unseen,
    UnseenText,
)
from thrifty.errors import InvalidInputError, PurchaseFailedError
from thrifty.files import check_output, write_atomically

_FORM = "sqlite:PATH?table=TABLE&key=COLUMN"


class OnFailure(StrEnum):
    """Treatment of a row whose purchase fails."""

    answer = "answer"
    skip = "skip"
    stop = "raise"


@dataclass(frozen=True)
class Database:
    """A table of an SQLite file, with a row for each key."""

    path: Path
    table: str
    key: str

    @classmethod
    def of(cls, address: str) -> "Database":
        """Parse and check an address such as ``sqlite:PATH?table=TABLE&key=COLUMN``."""
        kind, _, rest = address.partition(":")
        path, _, query = rest.partition("?")
        names = dict(parse_qsl(query))
        if kind != "sqlite" or not path or set(names) != {"table", "key"}:
            raise InvalidInputError(
                f"--source must have the form {_FORM}; got {address!r}. Name the file, its table, and the column that "
                f"holds the keys, in quotation marks."
            )
        if not Path(path).is_file():
            raise InvalidInputError(f"--source names {path}, which must be an SQLite file; there is none.")
        return cls(Path(path), names["table"], names["key"])

    def connect(self) -> sqlite3.Connection:
        """Open the file for reading."""
        return sqlite3.connect(f"file:{quote(str(self.path.resolve()))}?mode=ro", uri=True)

    @property
    def has_text_keys(self) -> bool:
        """True if keys are text: those of the table of rows are then read as text too, 007 with its zeros."""
        name, table = (f'"{text.replace(chr(34), chr(34) * 2)}"' for text in (self.key, self.table))
        try:
            with closing(self.connect()) as connection:
                line = connection.execute(f"SELECT typeof({name}) FROM {table} LIMIT 1").fetchone()
        except sqlite3.Error as error:
            raise InvalidInputError(
                f"--source names the table {self.table!r} of {self.path}, which must be there with its key "
                f"{self.key!r}; SQLite reports: {error}."
            ) from error
        return line is not None and line[0] == "text"


def buy(
    system: SystemFile,
    rows: Annotated[
        Path,
        typer.Argument(
            help="Table of the rows to answer, CSV or parquet, with their keys in a column named as in the database; "
            "- is CSV on standard input.",
            metavar="TABLE",
        ),
    ],
    source: Annotated[
        str,
        typer.Option(
            help="Table of an SQLite file to buy cells from, with a row for each key.", metavar=_FORM
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File to write a receipt for each row to, CSV or parquet.")
    ],
    on_failure: Annotated[
        OnFailure,
        typer.Option(
            help="Treatment of a row whose purchase fails: answer by the last stage it reached, skip the cells (read "
            "them as missing), or raise: stop at the first failure."
        ),
    ] = OnFailure.answer,
    budget: Budget = None,
    max_loss: MaxLoss = None,
    explore: Explore = 0.0,
    cap: Cap = None,
    row_key: RowKey = None,
    unseen: UnseenText = Unseen.refuse,
    public_key: PublicKey = None,
    json: AsJson = False,
) -> None:
    """Answer rows of a database, querying only the cells that each answer needs."""
    from thrifty.bundle.save_load import load
    from thrifty.cli.system import at_operating_point, named_row_key
    from thrifty.engine.evidence.collect import chain_of
    from thrifty.engine.purchases.sources import RefusesUnseen, SqlSource
    from thrifty.engine.table.files import name_of, read_table, table_bytes
    from thrifty.engine.table.reader import keys_of
    from thrifty.errors import listed
    from thrifty.reporting.words import quantity

    check_output(out)
    database = Database.of(source)
    with notes_of_warnings():
        fitted = at_operating_point(
            load(system, public_key=public_key), Goal.read(budget, max_loss, explore=explore, cap=cap)
        )
        named = named_row_key(fitted, row_key)
        as_text = {*([database.key] if database.has_text_keys else []), *([named] if named else [])}
        frame = read_table(rows, as_text=tuple(as_text))
        if database.key not in frame.columns:
            raise InvalidInputError(
                f"{name_of(rows)} must have the column {database.key!r}, the key of --source; it has "
                f"{listed(frame.columns)}."
            )
        keys, chain = frame[database.key], chain_of(fitted)
        if chain.names is None:  # columns of a database are found by name
            chain = replace(chain, names=chain.schema.names)
        bought_from = SqlSource(database.connect, database.table, database.key, keys.tolist())
        asked = bought_from if unseen is Unseen.missing else RefusesUnseen(bought_from, chain.schema)
        is_ended = False
        try:
            receipt = chain.buy(asked, on_failure=on_failure.value, row_key=keys_of(frame, named))
        except PurchaseFailedError as error:
            receipt, is_ended = error.receipt, True
    table = _written(receipt, chain.n_stages, database.key, keys)
    write_atomically(out, table_bytes(table, out))
    failures = table["reason"].dropna()
    # Rows that were not asked about any more say that something had failed before them.
    tried = failures[~failures.str.contains("had failed before", regex=False)] if len(failures) else failures
    first = f"row {tried.index[0] + 1}: {tried.iloc[0]}" if len(tried) else ""
    if is_ended:
        raise InvalidInputError(
            f"--on-failure raise stopped at the first failure, {first}. {out} has the receipts so far; --on-failure "
            f"answer continues with the other rows."
        )
    facts: dict[str, Any] = {
        "rows": len(receipt),
        "answered": int(receipt.is_answered.sum()),
        "failed": len(failures),
        "mean_cost": float(receipt.cost.mean()),
        "queries": bought_from.n_questions,
        "out": str(out),
    }
    if json:
        print_json(facts)
        return
    print_text(
        f"wrote {out}: {facts['answered']:,} answers for {facts['rows']:,} rows, mean cost "
        f"{quantity(facts['mean_cost'])}, {facts['queries']:,} queries"
    )
    if first:
        print_note(f"{len(failures):,} rows failed; {first}")


def _written(receipt: Any, n_stages: int, key: str, keys: Any) -> Any:
    """Receipts as a table of plain cells: lists are joined by commas, and the values that were bought come last."""
    from thrifty.engine.purchases.receipt_table import with_values

    table = receipt.to_pandas()
    stage = table.pop("route").astype(str)
    table.insert(2, "stage", stage.replace({str(n_stages): "full", "-1": ""}))
    for name in ("bought", "failed"):
        table[name] = [", ".join(map(str, names)) for names in table[name]]
    table["propensity"] = [
        ", ".join(f"{chance:.9g}" for chance in chances) for chances in table["propensity"]
    ]
    table.insert(0, key if key not in table.columns else f"{key} of the row", keys.to_numpy())
    return with_values(table, receipt.X)
