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
from thrifty.reporting.measure import measure


class Rows(NamedTuple):
    """Rows of a table; of a log, with what the models returned.

    Attributes
    ----------
    X : list of str, data frame or ndarray
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
    """Read a table of rows, or a log with a line for each row and model."""
    frame, names = read_table(table), list(router.model_prices)
    if not {"model", "quality"} <= {*frame.columns}:
        return Rows(router.rows_of(frame), None, frame, table)
    X, arrays = pivot_log(frame, table)
    place_of = {name: place for place, name in enumerate(arrays.pop("models"))}
    missing = [name for name in router.pool_ if name not in place_of]
    if missing:
        raise InvalidInputError(f"{table} must have lines of the model {missing[0]!r}, which may be asked.")
    log = {}
    for argument, values in arrays.items():
        log[argument] = np.full((len(X), len(names)), None if values.dtype == object else np.nan)
        logged = [place for place, name in enumerate(names) if name in place_of]
        log[argument][:, logged] = values[:, [place_of[names[place]] for place in logged]]
    return Rows(X, log, frame, table)


# -- what commands show ----------------------------------------------------------------------------


def answers_table(router: Any, rows: Rows) -> Any:
    """First model to ask about each row and its expected cost; of a log, what is asked, paid and got."""
    import pandas as pd

    if rows.log is None:
        return pd.DataFrame(dict(zip(("model", "cost"), router.first_asked(rows.X), strict=True)))
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
    else:
        print_text(f"expected cost {numbers['cost']:.4g} a row")


def explanations(router: Any, rows: Rows, places: slice) -> list[Any]:
    """What is asked about rows first; of a log, what is asked, paid and decided."""
    log = {name: values[places] for name, values in (rows.log or {}).items() if name != "propensity"}
    X = rows.X.iloc[places] if hasattr(rows.X, "iloc") else rows.X[places]
    return list(router.explain(X, **log))


def expected_of(_: Any) -> None:
    """Nothing: ``ModelRouter.explain`` tells what is expected."""


def frontier_numbers(router: Any, _: None = None) -> dict[str, Any]:
    """Operating points, for ``--json``."""
    points = router.frontier_
    numbers = {"cost": points.cost, "quality": points.score, "rule": list(points.rule), "aiq": points.aiq}
    return {"frontier": numbers}


def frontier_in_words(router: Any, _: None, path: Path) -> None:
    """Print a table of operating points, then the point in force."""
    frontier = frontier_numbers(router)["frontier"]
    points = list(zip(frontier["rule"], frontier["cost"], frontier["quality"], strict=True))
    print_text(f"{path}: {len(points):,} efficient points on {router.frontier_.n_rows:,} rows")
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
    facts = measure(
        router, rows.X, log.pop("quality"), **log, by={name: groups[name].to_numpy() for name in by}
    )
    models = {
        purchase.name: {"share": share, "cost": spent}
        for purchase, share, spent in zip(
            facts.purchases, facts.bought[facts.start], facts.spent[facts.start], strict=True
        )
    }
    shares = [f"{name} {100 * model['share']:.1f} %" for name, model in models.items() if model["share"]]
    return facts, {"models": models}, [f"Asked: {', '.join(shares)}.", f"Out of fold: {router.explain()}."]
