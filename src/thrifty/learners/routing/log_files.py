"""Files of models with their prices, and logs with a line for each row and model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thrifty.engine.table.files import read_table
from thrifty.errors import InvalidInputError

KNOWN = ("id", "text", "model", "quality", "cost", "answer", "evidence", "propensity")
"""Columns of a log; all others are features, but ``cost_dollars`` and so on are costs in several resources."""

COLUMN_OF = {"quality": "quality", "loss": "loss", "runtime": "seconds"}
"""Column of what a model's answer is worth, by the ``outcome`` of a router."""


def read_models(path: Path) -> dict[str, Any]:
    """Prices by the names of models, from a file with a line for each."""
    frame = read_table(path, as_text=["model"])
    named: tuple[tuple[str, ...], ...] = ("price",), ("input", "output")
    kinds = [columns for columns in named if {*columns} <= {*frame.columns}]
    others = [name for name in map(str, frame.columns) if name != "model"]
    if "model" in frame.columns and not kinds and len(others) > 1 and _are_numbers(frame[others]):
        kinds = [tuple(others)]
    if "model" not in frame.columns or not kinds:
        raise InvalidInputError(
            f"{path} must have the columns model and price, or model, input and output, or model and a column of "
            f"numbers for each resource; it has "
            f"{', '.join(map(str, frame.columns))}."
        )
    names = [str(name) for name in frame["model"]]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInputError(f"{path} has two lines for the model {twice!r}. Keep one of them.")
    values = frame[list(kinds[0])].to_numpy()
    if kinds[0] not in named:
        return {
            name: dict(zip(kinds[0], line.tolist(), strict=True))
            for name, line in zip(names, values, strict=True)
        }
    return {
        name: tuple(map(float, line)) if len(line) == 2 else float(line[0])
        for name, line in zip(names, values, strict=True)
    }


def _are_numbers(frame: Any) -> bool:
    return all(kind.kind in "iuf" for kind in frame.dtypes)


def resources_of_log(frame: Any) -> dict[str, str]:
    """Columns of costs in several resources by their names, such as ``cost_dollars``; empty where there is one."""
    named = {
        str(name)[5:]: str(name) for name in frame.columns if str(name).startswith("cost_") and str(name)[5:]
    }
    return named if len(named) > 1 and "cost" not in frame.columns else {}


def pivot_runs(frame: Any, path: Path, steps: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """As ``pivot_log``, from a log of run times: columns id, model and seconds, empty where a run did not end in time.

    Lines whose model is a group of columns say what its computation took, and in the column solved whether that has
    solved the row. ``quality`` then has the seconds of models and, of groups, those of rows solved.
    """
    import pandas as pd

    missing = [name for name in ("id", "model", "seconds") if name not in frame.columns]
    if missing:
        raise InvalidInputError(
            f"{path} must have a column {missing[0]!r}: a log of run times has id, model and seconds, and features; it "
            f"has {', '.join(map(str, frame.columns))}."
        )
    frame = frame.assign(quality=frame["seconds"].fillna(np.inf), model=frame["model"].astype(str))
    is_step = frame["model"].isin(list(steps))
    computed, solved = frame[is_step], frame.get("solved")
    X, arrays = pivot_log(frame[~is_step].drop(columns=["seconds", "solved"], errors="ignore"), path)
    rows, steps = frame.loc[~is_step, "id"].drop_duplicates(), list(dict.fromkeys(computed["model"]))
    arrays["quality"] = pd.DataFrame(arrays["quality"], columns=arrays["models"])
    if steps:
        seconds = computed.pivot(index="id", columns="model", values="seconds")
        arrays["cost"] = seconds.reindex(index=rows, columns=steps).reset_index(drop=True)
    if steps and solved is not None:
        ends = computed.assign(solved=solved[is_step].fillna(0).astype(float) > 0)
        ends = ends.pivot(index="id", columns="model", values="solved").reindex(index=rows, columns=steps)
        arrays["quality"][steps] = np.where(ends.fillna(False).to_numpy(bool), 0.0, np.inf)
    return X, arrays


def pivot_log(
    frame: Any, path: Path, prices: dict[str, Any] | None = None, *, outcome: str = "quality"
) -> tuple[Any, dict[str, Any]]:
    """Rows, None where they have nothing but an id, and arrays of rows x models, from a line for each row and model.

    With ``outcome="loss"``, the column loss is what the argument ``quality`` of a router of losses takes.
    """
    columns = set(frame.columns)
    key = "id" if "id" in columns else "text"
    missing = [name for name in ("model", COLUMN_OF[outcome], key) if name not in columns]
    if missing:
        raise InvalidInputError(
            f"{path} must have a column {missing[0]!r}: a log has model, {COLUMN_OF[outcome]}, and text or id; it has "
            f"{', '.join(map(str, frame.columns))}."
        )
    if outcome == "loss":
        if "quality" in columns:
            raise InvalidInputError(
                f"{path} must have one of the columns quality and loss. Leave one of them out."
            )
        frame = frame.rename(columns={"loss": "quality"})
        columns = set(frame.columns)
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
    by_resource = resources_of_log(frame)
    features = [name for name in frame.columns if name not in {*KNOWN, *by_resource.values()}]
    X = first[features].reset_index(drop=True) if features else None
    X = first["text"].astype(str).tolist() if "text" in columns else X
    arrays: dict[str, Any] = {"models": names}
    columns_of = {"quality": "quality", "cost": "cost", "answers": "answer", "evidence": "evidence"}

    def pivoted(column: str, kind: type) -> Any:
        wide = frame.pivot(index=key, columns="model", values=column).loc[rows, names]
        try:
            return wide.to_numpy(dtype=kind)
        except (TypeError, ValueError) as error:
            named = COLUMN_OF[outcome] if column == "quality" else column
            way = " Write 1 for a right answer and 0 for a wrong one." if named == "quality" else ""
            raise InvalidInputError(f"{path}: column {named} must hold numbers: {error}.{way}") from error

    for argument, column in {**columns_of, "propensity": "propensity"}.items():
        if column in columns:
            arrays[argument] = pivoted(column, object if argument == "answers" else float)
    if by_resource:
        arrays["cost"] = {resource: pivoted(column, float) for resource, column in by_resource.items()}
    return X, arrays
