"""``thrifty audit``: what a fitted model spends per row, and what a cascade in front of it would save."""

from pathlib import Path
from typing import Annotated, Any

import typer

from thrifty.cli.console import notes_of_warnings, print_json, print_text, progress
from thrifty.cli.options import AsJson, FormerCosts, FullCost, Ignore, PricesFile, Seed, read_prices
from thrifty.errors import InvalidInputError
from thrifty.files import check_output, write_atomically


def audit(
    model: Annotated[
        Path,
        typer.Argument(
            help="Fitted model: .thrifty, .txt of LightGBM, or .json or .ubj of XGBoost.", metavar="MODEL"
        ),
    ],
    table: Annotated[
        Path, typer.Argument(help="Rows that MODEL was not fitted on, CSV or parquet.", metavar="TABLE")
    ],
    target: Annotated[
        str | None,
        typer.Option(
            help="Column with the label or number. Without it, no losses and no cascade are measured.",
            metavar="COLUMN",
        ),
    ] = None,
    prices: PricesFile = None,
    costs: FormerCosts = None,
    full_cost: FullCost = None,
    ignore: Ignore = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="HTML page to write.")] = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Audit a fitted model: what it spends per row, which columns it hardly needs, and what a cascade would save."""
    from sklearn.base import is_regressor

    from thrifty.auditing.audit import audit as audit_model
    from thrifty.bundle.save_load import load_model
    from thrifty.engine.table.files import read_table
    from thrifty.engine.table.training import labels_of, numbers_of

    if out is not None:
        check_output(out)
    with notes_of_warnings(), progress() as show:
        show("auditing", 0, 1)
        fitted = load_model(model)
        frame = read_table(table, as_text=_text_columns(fitted))
        y = None
        if target is not None:
            y = (numbers_of if is_regressor(fitted) else labels_of)(frame, target)
        rows = _features(fitted, frame, [*(ignore or ()), *([target] if target else [])])
        by_column = read_prices(prices, costs, full_cost)
        by_column = by_column.of_columns(list(rows.columns), known=list(frame.columns))
        result = audit_model(fitted, rows, y=y, prices=by_column, random_state=seed)
        show("auditing", 1, 1)
    if out is not None:
        head = f"<!doctype html><meta charset=utf-8><title>Audit of {result.model}</title>"
        page = f"{head}{result._repr_html_()}\n"
        write_atomically(out, page.encode())
    if json:
        print_json(result.as_dict())
    else:
        for line in str(result).splitlines():
            print_text(line)
        if out is not None:
            print_text(f"wrote {out}")


def _features(model: Any, frame: Any, left_out: list[str]) -> Any:
    """Columns that a model was fitted on, if it has their names; else all but those left out."""
    import numpy as np

    from thrifty.auditing.audit import names_of
    from thrifty.engine.table.names import refuse_unknown

    refuse_unknown("--target or --ignore", left_out, frame.columns)
    rows = frame.drop(columns=left_out)
    fitted = names_of(model, rows)
    rows = rows[fitted] if fitted is not None and set(fitted) <= set(rows.columns) else rows
    levels: Any = getattr(model, "levels", None)
    for place in levels.columns if levels is not None and rows.shape[1] == model.n_features else ():
        column, texts = rows.iloc[:, place].dropna(), levels.of_column[place]
        if len(column) and np.isnan(levels.codes(place, column.tolist())).all():
            raise InvalidInputError(
                f"column {rows.columns[place]!r} must hold the categories that the model was fitted on, such as "
                f"{', '.join(map(repr, texts[:5]))}; got {column.iloc[0]!r} and no cell that is one of them. Give the "
                f"table as it was fitted on it."
            )
    return rows


def _text_columns(model: Any) -> set[str]:
    """Columns with categories, such as 007, that would change if they were read as numbers."""
    levels, names = getattr(model, "levels", None), getattr(model, "names", None)
    if levels is None or names is None:
        return set()
    texts = {
        names[column]
        for column, categories in levels.of_column.items()
        if any(text.isdigit() and text != str(int(text)) for text in categories)
    }
    return texts | {name.replace("_", " ") for name in texts}  # LightGBM writes "_" for a blank
