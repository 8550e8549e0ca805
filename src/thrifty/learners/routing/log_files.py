"""Files of models with their prices, and logs with a line for each row and model."""

from pathlib import Path
from typing import Any

from thrifty.engine.table.files import read_table
from thrifty.errors import InvalidInputError

KNOWN = ("id", "text", "model", "quality", "cost", "answer", "evidence", "propensity")
"""Columns of a log; all others are features."""


def read_models(path: Path) -> dict[str, Any]:
    """Prices by the names of models, from a file with a line for each."""
    frame = read_table(path, as_text=["model"])
    kinds = [columns for columns in (("price",), ("input", "output")) if {*columns} <= {*frame.columns}]
    if "model" not in frame.columns or not kinds:
        raise InvalidInputError(
            f"{path} must have the columns model and price, or model, input and output; it has "
            f"{', '.join(map(str, frame.columns))}."
        )
    names = [str(name) for name in frame["model"]]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInputError(f"{path} has two lines for the model {twice!r}. Keep one of them.")
    values = frame[list(kinds[0])].to_numpy()
    return {
        name: tuple(map(float, line)) if len(line) == 2 else float(line[0])
        for name, line in zip(names, values, strict=True)
    }


def pivot_log(frame: Any, path: Path, prices: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    """Rows, None where they have nothing but an id, and arrays of rows x models, from a line for each row and model."""
    columns = set(frame.columns)
    key = "id" if "id" in columns else "text"
    missing = [name for name in ("model", "quality", key) if name not in columns]
    if missing:
        raise InvalidInputError(
            f"{path} must have a column {missing[0]!r}: a log has model, quality, and text or id; it has "
            f"{', '.join(map(str, frame.columns))}."
        )
    frame = frame[frame["quality"].notna()]  # lines of a gateway's log that were not judged
    frame = frame.assign(model=frame["model"].astype(str))
    names = sorted(frame["model"].unique())
    unknown = [name for name in names if prices is not None and name not in prices]
    if unknown:
        raise InvalidInputError(f"the prices have no line for the model {unknown[0]!r} of {path}.")
    doubled = frame.duplicated([key, "model"])
    if doubled.any():
        line = frame[doubled].iloc[0]
        raise InvalidInputError(
            f"{path} has several lines for the model {line['model']!r} and the {key} {str(line[key])[:60]!r}. Keep one "
            f"of them, or give each question an id."
        )
    rows = frame[key].drop_duplicates()
    first = frame.drop_duplicates(key)
    features = [name for name in frame.columns if name not in KNOWN]
    X = first[features].reset_index(drop=True) if features else None
    X = first["text"].astype(str).tolist() if "text" in columns else X
    arrays: dict[str, Any] = {"models": names}
    columns_of = {"quality": "quality", "cost": "cost", "answers": "answer", "evidence": "evidence"}
    for argument, column in {**columns_of, "propensity": "propensity"}.items():
        if column not in columns:
            continue
        wide = frame.pivot(index=key, columns="model", values=column).loc[rows, names]
        try:
            arrays[argument] = wide.to_numpy(dtype=object if argument == "answers" else float)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"{path}: column {column} must hold numbers: {error}") from error
    return X, arrays
