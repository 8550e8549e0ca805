"""``thrifty route``: learn which of many models to ask from a log of what they answered."""

from pathlib import Path
from typing import Annotated, Any

import typer

from thrifty.cli.console import notes_of_warnings, print_json, print_table, print_text, size_of
from thrifty.cli.options import AsJson, Seed
from thrifty.errors import InvalidInputError
from thrifty.files import check_output, write_atomically

_KNOWN = ("id", "text", "model", "quality", "cost", "answer", "evidence", "propensity")


def route(
    log: Annotated[
        Path,
        typer.Argument(
            help="Log, CSV or parquet, a line for each row and model: columns model, quality (in [0, 1]) and text, or "
            "id and columns of numbers; optionally cost, answer, evidence, propensity.",
            metavar="LOG",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write the router to.")],
    models: Annotated[
        Path | None,
        typer.Option(
            help="Models with their prices, CSV: columns model and price (per call), or model, input and output (per "
            "million tokens). By default, the column cost of the log."
        ),
    ] = None,
    prices: Annotated[Path | None, typer.Option(hidden=True)] = None,
    budget: Annotated[
        float | None, typer.Option(help="Mean cost per row. By default, the best quality at any cost.")
    ] = None,
    max_asks: Annotated[int, typer.Option(min=1, help="Models that may be asked about one row.")] = 3,
    confidence: Annotated[
        float | None,
        typer.Option(help="Confidence with which new rows keep to --budget; by default on average."),
    ] = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Learn from a log which of many models to ask about each row, within a budget, and write a router."""
    from thrifty.bundle.save_load import save
    from thrifty.engine.table.files import read_table
    from thrifty.learners.routing.router import ModelRouter

    if prices is not None:
        raise InvalidInputError(
            "--prices are of columns, and those of a log are free. Give the models with their prices as --models."
        )
    check_output(out)
    with notes_of_warnings():
        frame = read_table(log)
        price_of = _read_models(models)
        X, arrays = _pivot(frame, log, price_of)
        names = arrays.pop("models")
        if price_of is None and "cost" not in arrays:
            raise InvalidInputError(
                f"{log} has no column cost: give the models with their prices as --models."
            )
        priced: Any = names if price_of is None else {name: price_of[name] for name in names}
        router = ModelRouter(priced, budget, max_asks, confidence, seed).fit(X, **arrays)
        save(router, out)
    frontier = router.frontier_
    if json:
        print_json(
            {
                "models": list(names),
                "pool": router.pool_,
                "rows": len(X),
                "expected_cost": router.expected_cost_,
                "expected_quality": router.expected_quality_,
                "frontier": _frontier_numbers(frontier),
                "singles": {
                    name: {"cost": cost, "quality": quality}
                    for name, cost, quality in zip(
                        names, frontier.single_cost, frontier.single_quality, strict=True
                    )
                },
            }
        )
        return
    print_text(f"{len(X):,} rows, {len(names)} models; chooses from {', '.join(router.pool_)}.")
    lines = [("", "cost", "quality")]
    order = frontier.single_cost.argsort(kind="stable")
    lines += [
        (names[one], f"{frontier.single_cost[one]:.4g}", f"{frontier.single_quality[one]:.3f}")
        for one in order
    ]
    lines.append(("this router", f"{router.expected_cost_:.4g}", f"{router.expected_quality_:.3f}"))
    print_table(lines)
    print_text(f"Out of fold: {router.explain()}.")
    print_text(f"wrote {out} ({size_of(out)})")


def _read_models(path: Path | None) -> dict[str, Any] | None:
    """Prices by the names of models."""
    from thrifty.engine.table.files import read_table

    if path is None:
        return None
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


def _pivot(frame: Any, path: Path, prices: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
    """Rows, and arrays of rows x models, from a line for each row and model."""
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
    features = [name for name in frame.columns if name not in _KNOWN]
    X = first["text"].astype(str).tolist() if "text" in columns else first[features].reset_index(drop=True)
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


# -- other commands, for a file that holds a router --------------------------------------------------


def _rows_of(router: Any, table: Path) -> tuple[Any, dict[str, Any] | None]:
    """Rows of a table and, where it is a log with a line for each row and model, what the models returned."""
    import numpy as np

    from thrifty.engine.table.files import read_table

    frame, state = read_table(table), router._fitted()
    if {"model", "quality"} <= {*frame.columns}:
        X, arrays = _pivot(frame, table, None)
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
        return X, whole
    columns = ["text"] if state.reader is not None else list(state.columns or frame.columns)
    lacking = [name for name in columns if name not in frame.columns]
    if lacking:
        raise InvalidInputError(f"{table} must have a column {lacking[0]!r}, as the log of the fit.")
    return frame["text"].astype(str).tolist() if state.reader is not None else frame[columns], None


def predict_router(router: Any, table: Path, out: Path, json: bool) -> None:
    """Write the first model to ask about each row; of a log, what would have been asked, paid and got."""
    import pandas as pd

    from thrifty.engine.table.files import table_bytes

    X, log = _rows_of(router, table)
    if log is None:
        found = {"model": router.predict(X)}
    else:
        replay = router.replay(X, **log)
        asked = [" ".join(filter(None, names)) for names in replay.asked.tolist()]
        found = {"asked": asked, "model": replay.model, "cost": replay.cost, "quality": replay.quality}
        found |= {} if replay.ips is None else {"ips": replay.ips}
    answers = pd.DataFrame(found)
    if str(out) == "-":
        typer.echo(table_bytes(answers, "answers.csv"), nl=False)
        return
    write_atomically(out, table_bytes(answers, out))
    numbers = {"rows": len(answers), "out": str(out), "models": answers["model"].value_counts().to_dict()}
    numbers |= {name: float(answers[name].mean()) for name in ("cost", "quality", "ips") if name in answers}
    if json:
        print_json(numbers)
        return
    shares = ", ".join(f"{name} {n:,}" for name, n in numbers["models"].items())
    print_text(f"wrote {len(answers):,} rows to {out}: {shares}")
    if log is not None:
        n_known = int(answers["quality"].notna().sum())
        words = f" in the {n_known:,} rows that asked the same model" if n_known < len(answers) else ""
        words = f" (doubly robust; inverse propensity {numbers['ips']:.3f})" if "ips" in numbers else words
        print_text(f"quality {numbers['quality']:.3f}{words} for {numbers['cost']:.4g} a row")


def explain_router(router: Any, table: Path, rows: slice, json: bool) -> None:
    """Explain rows: what is asked first; of a log, what would have been asked, paid and decided."""
    X, log = _rows_of(router, table)
    log = {name: values[rows] for name, values in (log or {}).items() if name != "propensity"}
    texts = router.explain(X[rows] if isinstance(X, list) else X.iloc[rows], **log)
    found = [(row + 1, text.splitlines()) for row, text in zip(range(len(X))[rows], texts, strict=True)]
    if json:
        print_json({"rows": [{"row": number, "steps": lines} for number, lines in found]})
        return
    for number, lines in found:
        print_text(f"Row {number}")
        for line in lines:
            print_text(f"  {line}")


def frontier_router(router: Any, plot: Path | None, json: bool) -> None:
    """List the operating points of a router."""
    from thrifty.engine.plots import file_bytes

    frontier = router.frontier_
    if plot is not None:
        write_atomically(plot, file_bytes(frontier.plot().figure, plot.suffix[1:] or "png"))
    if json:
        print_json({"frontier": _frontier_numbers(frontier)})
        return
    lines = [("rule", "cost", "quality")]
    lines += [
        (rule, f"{cost:.4g}", f"{quality:.3f}")
        for rule, cost, quality in zip(frontier.rule, frontier.cost, frontier.quality, strict=True)
    ]
    print_table(lines)
    print_text(f"Out of fold: {router.explain()}.")


def report_router(
    router: Any, table: Path, out: Path, by: list[str] | None, title: str, unit: str, json: bool
) -> None:
    """Replay a router on a log, and write a page on its bill, the models asked and their quality."""
    from dataclasses import replace

    from thrifty.engine.table.files import read_table
    from thrifty.reporting.page import page_of
    from thrifty.reporting.routers import measure_router
    from thrifty.reporting.words import results_table

    X, log = _rows_of(router, table)
    if log is None:
        raise InvalidInputError(
            f"{table} must be a log to report on, with a line for each row and model: columns model and quality."
        )
    log.pop("propensity", None)
    frame = read_table(table)
    key = "id" if "id" in frame.columns else "text"
    unknown = [name for name in by or () if name not in frame.columns]
    if unknown:
        raise InvalidInputError(f"--by must name a column of {table}; got {unknown[0]!r}.")
    groups = frame[frame["quality"].notna()].drop_duplicates(key)
    facts = measure_router(router, X, **log, by={name: groups[name].to_numpy() for name in by or ()})
    write_atomically(out, page_of(replace(facts, title=title, unit=unit)).encode())
    models = {
        one.name: {"share": share, "cost": spent}
        for one, share, spent in zip(
            facts.purchases, facts.bought[facts.start], facts.spent[facts.start], strict=True
        )
    }
    if json:
        print_json({"file": str(out), **facts.results(facts.start), "models": models})
        return
    print_text(f"On {facts.n_rows:,} rows:")
    print_table(results_table(facts, facts.start))
    shares = [f"{name} {100 * one['share']:.1f} %" for name, one in models.items() if one["share"]]
    print_text(f"Asked: {', '.join(shares)}.")
    print_text(f"Out of fold: {router.explain()}.")
    print_text(f"wrote {out} ({size_of(out)})")


def _frontier_numbers(frontier: Any) -> dict[str, Any]:
    return {
        "cost": frontier.cost,
        "quality": frontier.quality,
        "rule": list(frontier.rule),
        "aiq": frontier.aiq,
    }
