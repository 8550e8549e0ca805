"""Routers as the commands use them: rows of a table or of a log, what the router asks about them, its operating points.

``thrifty.cli.system`` has the same functions for systems with a chain; ``thrifty.cli.tables`` calls one or the other.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from thrifty.cli.console import print_table, print_text
from thrifty.cli.options import Goal
from thrifty.engine.plots import file_bytes
from thrifty.engine.table.files import read_table
from thrifty.errors import InvalidInputError
from thrifty.learners.routing.log_files import pivot_log
from thrifty.reporting.facts import Facts
from thrifty.reporting.routers import measure_router


class Rows(NamedTuple):
    """Rows of a table; of a log, with what the models returned.

    Attributes
    ----------
    X : list of str, or data frame
        Texts, or numbers.
    log : dict of arrays, or None
        Arguments of ``ModelRouter.replay``, where the table is a log.
    frame : data frame
        The table.
    path : Path
        Its file.
    """

    X: Any
    log: dict[str, Any] | None
    frame: Any
    path: Path

    @property
    def numbers(self) -> list[int]:
        """Numbers of the rows, from 1."""
        return list(range(1, len(self.X) + 1))


def read_rows(router: Any, table: Path, **_: Any) -> Rows:
    """Rows of a table and, where it is a log with a line for each row and model, what the models returned."""
    frame, state = read_table(table), router._fitted()
    if {"model", "quality"} <= {*frame.columns}:
        X, arrays = pivot_log(frame, table)
        place_of = {name: place for place, name in enumerate(arrays.pop("models"))}
        missing = [name for name in state.pool if name not in place_of]
        if missing:
            raise InvalidInputError(
                f"{table} must have lines of the model {missing[0]!r}, which may be asked."
            )
        whole = {}
        for argument, values in arrays.items():
            whole[argument] = np.full((len(X), len(state.names)), None if values.dtype == object else np.nan)
            known = [place for place, name in enumerate(state.names) if name in place_of]
            whole[argument][:, known] = values[:, [place_of[state.names[place]] for place in known]]
        return Rows(X, whole, frame, table)
    columns = ["text"] if state.reader is not None else list(state.columns or frame.columns)
    lacking = [name for name in columns if name not in frame.columns]
    if lacking:
        raise InvalidInputError(f"{table} must have a column {lacking[0]!r}, as the log of the fit.")
    X = frame["text"].astype(str).tolist() if state.reader is not None else frame[columns]
    return Rows(X, None, frame, table)


# -- what commands show ----------------------------------------------------------------------------


def answers_table(router: Any, rows: Rows) -> Any:
    """First model to ask about each row; of a log, what is asked, paid and got."""
    import pandas as pd

    if rows.log is None:
        return pd.DataFrame({"model": router.predict(rows.X)})
    replay = router.replay(rows.X, **rows.log)
    asked = [" ".join(filter(None, names)) for names in replay.asked.tolist()]
    columns = {"asked": asked, "model": replay.model, "cost": replay.cost, "quality": replay.quality}
    return pd.DataFrame(columns | ({} if replay.ips is None else {"ips": replay.ips}))


def notes_of_answers(*_: Any) -> list[str]:
    """No notes: a router reads every column of its rows."""
    return []


def answers_numbers(_: Any, answers: Any, out: Path, __: float | None) -> dict[str, Any]:
    """Summary of a table of answers, for ``--json``."""
    numbers = {"file": str(out), "rows": len(answers), "models": answers["model"].value_counts().to_dict()}
    if "quality" in answers:
        numbers["rows_of_known_quality"] = int(answers["quality"].notna().sum())
    return numbers | {
        name: float(answers[name].mean()) for name in ("cost", "quality", "ips") if name in answers
    }


def answers_in_words(numbers: dict[str, Any], _: Goal) -> None:
    """Print the number of rows and of the models asked; of a log, cost and quality."""
    shares = ", ".join(f"{name} {n:,}" for name, n in numbers["models"].items())
    print_text(f"wrote {numbers['rows']:,} rows to {numbers['file']}: {shares}")
    if "quality" in numbers:
        n_known = numbers["rows_of_known_quality"]
        words = f" in the {n_known:,} rows that asked the same model" if n_known < numbers["rows"] else ""
        words = f" (doubly robust; inverse propensity {numbers['ips']:.3f})" if "ips" in numbers else words
        print_text(f"quality {numbers['quality']:.3f}{words} for {numbers['cost']:.4g} a row")


def explanations(router: Any, rows: Rows, places: slice) -> list[Any]:
    """What is asked about rows first; of a log, what is asked, paid and decided."""
    log = {name: values[places] for name, values in (rows.log or {}).items() if name != "propensity"}
    texts = router.explain(rows.X[places] if isinstance(rows.X, list) else rows.X.iloc[places], **log)
    return [Steps(str(text)) for text in texts]


class Steps(NamedTuple):
    """Explanation of a row."""

    text: str

    def __str__(self) -> str:
        return self.text

    def as_dict(self) -> dict[str, Any]:
        """Its lines, for ``--json``."""
        return {"steps": self.text.splitlines()}


def expected_of(_: Any) -> None:
    """Nothing: ``ModelRouter.explain`` tells what is expected."""


def frontier_numbers(router: Any, _: None = None) -> dict[str, Any]:
    """Operating points, for ``--json``."""
    frontier = router.frontier_
    return {"frontier": _frontier_numbers(frontier)}


def frontier_in_words(router: Any, _: None, path: Path) -> None:
    """Print a table of operating points, then the point in force."""
    frontier = frontier_numbers(router)["frontier"]
    points = list(zip(frontier["rule"], frontier["cost"], frontier["quality"], strict=True))
    print_text(f"{path}: {len(points):,} efficient points")
    print_table(
        [
            ("rule", "cost", "quality"),
            *((rule, f"{cost:.4g}", f"{quality:.3f}") for rule, cost, quality in points),
        ]
    )
    print_text(f"Out of fold: {router.explain()}.")


def frontier_picture(router: Any, _: None, kind: str) -> bytes:
    """Plot of quality against mean cost."""
    return file_bytes(router.frontier_.plot().figure, kind)


def measured(router: Any, rows: Rows, by: Sequence[str]) -> tuple[Facts, dict[str, Any], list[str]]:
    """Results of a router on a log, for the page; what is printed besides, as numbers and in words."""
    if rows.log is None:
        raise InvalidInputError(
            f"{rows.path} must be a log to report on, with a line for each row and model: columns model and quality."
        )
    frame, log = rows.frame, {name: values for name, values in rows.log.items() if name != "propensity"}
    unknown = [name for name in by if name not in frame.columns]
    if unknown:
        raise InvalidInputError(f"--by must name a column of {rows.path}; got {unknown[0]!r}.")
    groups = frame[frame["quality"].notna()].drop_duplicates("id" if "id" in frame.columns else "text")
    facts = measure_router(router, rows.X, **log, by={name: groups[name].to_numpy() for name in by})
    models = {
        purchase.name: {"share": share, "cost": spent}
        for purchase, share, spent in zip(
            facts.purchases, facts.bought[facts.start], facts.spent[facts.start], strict=True
        )
    }
    shares = [f"{name} {100 * model['share']:.1f} %" for name, model in models.items() if model["share"]]
    return facts, {"models": models}, [f"Asked: {', '.join(shares)}.", f"Out of fold: {router.explain()}."]


def _frontier_numbers(frontier: Any) -> dict[str, Any]:
    return {
        "cost": frontier.cost,
        "quality": frontier.quality,
        "rule": list(frontier.rule),
        "aiq": frontier.aiq,
    }
