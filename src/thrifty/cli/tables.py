"""``thrifty predict``, ``explain``, ``frontier``, ``report`` and ``audit``: a system and a table of rows."""

from pathlib import Path
from typing import Annotated, Any

import typer

from thrifty.cli.console import notes_of_warnings, print_json, print_note, print_text, progress
from thrifty.cli.options import (
    AsJson,
    Budget,
    Cap,
    Explore,
    FormerCosts,
    FullCost,
    Goal,
    Ignore,
    MaxLoss,
    MinRecall,
    NewRows,
    NoMix,
    PricesFile,
    PublicKey,
    RowKey,
    Seed,
    SystemFile,
    Target,
    Unseen,
    UnseenText,
    is_many,
    read_prices,
)
from thrifty.errors import InvalidInputError
from thrifty.files import check_output, write_atomically

_EXPLAINED = 20
"""Number of rows that ``thrifty explain`` explains without ``--all``."""


def predict(
    system: SystemFile,
    table: NewRows,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File of answers, CSV or parquet; - is standard output.")
    ],
    budget: Budget = None,
    max_loss: MaxLoss = None,
    min_recall: MinRecall = None,
    no_mix: NoMix = False,
    explore: Explore = 0.0,
    cap: Cap = None,
    hold_budget: Annotated[
        bool,
        typer.Option(
            "--hold-budget",
            help="Choose the operating point by the rows of TABLE, so that their mean cost is at most the budget.",
        ),
    ] = False,
    row_key: RowKey = None,
    unseen: UnseenText = Unseen.refuse,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes that score a folder of files.")] = 1,
    memory: Annotated[
        str, typer.Option(help="Memory that a process may use to score a folder of files, such as 1GB.")
    ] = "1GB",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a folder of files whose scoring was interrupted.")
    ] = False,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Write text to CSV unchanged, even where a spreadsheet would run it as a formula.",
        ),
    ] = False,
    public_key: PublicKey = None,
    json: AsJson = False,
) -> None:
    """Predict every row of a table. Write its answer, the label's probability, the stage that answered and the cost.

    TABLE may be a folder, or a pattern in quotes such as 'rows/*.parquet', of files of any size. Their answers go into
    the folder OUT: a parquet file for each part of the input.
    """
    import thrifty.cli.system as view
    from thrifty.bundle.save_load import load
    from thrifty.engine.table.files import table_bytes
    from thrifty.files import parse_bytes
    from thrifty.scale.folder import find_files, predict_files
    from thrifty.scale.scorer import Scorer

    goal = Goal.read(budget, max_loss, min_recall, no_mix=no_mix, explore=explore, cap=cap)
    on_screen = str(out) == "-"
    if is_many(table):
        if hold_budget or raw or on_screen:
            raise InvalidInputError(
                "--hold-budget, --raw and -o - are for one table; a folder of files is scored part by part into a "
                "folder of parquet files. Leave them out."
            )
        files, n_bytes = find_files(table), parse_bytes(memory, "--memory")
        with notes_of_warnings(), progress() as show:
            goals = view.goals_for(load(system, public_key=public_key), goal)
            scorer = Scorer(system, at=goals, row_key=row_key, unseen=unseen.value, public_key=public_key)
            totals = predict_files(
                scorer, files, out, n_jobs=jobs, memory=n_bytes, resume=resume, progress=show
            )
        if json:
            print_json({**totals, "out": str(out)})
        else:
            view.files_in_words(totals, scorer, out)
        return
    if on_screen and json:
        raise InvalidInputError("-o - and --json both want standard output. Name a file for the answers.")
    if hold_budget and goal.min_recall:
        raise InvalidInputError("--hold-budget keeps no floor of recall. Leave --min-recall out.")
    if hold_budget and explore:
        raise InvalidInputError("--hold-budget spends the budget on these rows. Leave --explore out.")
    if hold_budget and no_mix:
        raise InvalidInputError("--hold-budget spends the budget by a mix. Leave --no-mix out.")
    if hold_budget and goal.max_loss is not None:
        raise InvalidInputError("--hold-budget holds a budget, and --max-loss names none. Give one of them.")
    if not on_screen:
        check_output(out)
    held = None
    with notes_of_warnings():
        fitted = view.at_operating_point(load(system, public_key=public_key), goal)
        rows = view.read_rows(fitted, table, row_key=row_key, unseen_is_missing=unseen is Unseen.missing)
        if hold_budget:
            fitted, held = view.at_held_budget(fitted, rows, goal.budget, system)
        answers = view.answers_table(fitted, rows)
    for text in view.notes_of_answers(fitted, rows, answers, row_key):
        print_note(text)
    if on_screen:
        typer.echo(table_bytes(answers, "answers.csv", raw=raw), nl=False)
        return
    write_atomically(out, table_bytes(answers, out, raw=raw))
    numbers = view.answers_numbers(fitted, answers, out, held)
    if json:
        print_json(numbers)
    else:
        view.answers_in_words(numbers, goal)


def explain(
    system: SystemFile,
    table: NewRows,
    row: Annotated[int | None, typer.Option(help="Explain only the row with this number, from 1.")] = None,
    budget: Budget = None,
    max_loss: MaxLoss = None,
    no_mix: NoMix = False,
    cap: Cap = None,
    everything: Annotated[
        bool, typer.Option("--all", help=f"Explain every row instead of the first {_EXPLAINED}.")
    ] = False,
    row_key: RowKey = None,
    unseen: UnseenText = Unseen.refuse,
    public_key: PublicKey = None,
    json: AsJson = False,
) -> None:
    """Explain the answers row by row: purchases in their order, the answer of each stage, and why the row stopped."""
    import thrifty.cli.system as view
    from thrifty.bundle.save_load import load
    from thrifty.engine.table.files import name_of

    goal = Goal.read(budget, max_loss, no_mix=no_mix, cap=cap)
    with notes_of_warnings():
        fitted = view.at_operating_point(load(system, public_key=public_key), goal)
        rows = view.read_rows(fitted, table, row_key=row_key, unseen_is_missing=unseen is Unseen.missing)
        n_rows = len(rows.numbers)
        if row is not None and not 1 <= row <= n_rows:
            raise InvalidInputError(
                f"--row must be from 1 to {n_rows:,}, the rows of {name_of(table)} below its header; got {row:,}."
            )
        n_shown = n_rows if everything else min(n_rows, _EXPLAINED)
        places = slice(n_shown) if row is None else slice(row - 1, row)
        numbered = list(zip(rows.numbers[places], view.explanations(fitted, rows, places), strict=True))
    if json:
        print_json({"rows": [{"row": number, **explanation.as_dict()} for number, explanation in numbered]})
    else:
        for number, explanation in numbered:
            print_text(f"Row {number}")
            for line in str(explanation).splitlines():
                print_text(f"  {line}")
    if row is None and n_shown < n_rows:
        print_note(
            f"the first {n_shown} of {n_rows:,} rows are explained; --all explains them all, --row N one of them"
        )


def frontier(
    system: SystemFile,
    table: Annotated[
        Path | None,
        typer.Argument(
            help="Labelled rows to score the points on: a file, a folder, or a pattern in quotes.",
            metavar="TABLE",
        ),
    ] = None,
    target: Target = None,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes that read TABLE.")] = 1,
    plot: Annotated[Path | None, typer.Option(help="Picture to write: png, svg or pdf.")] = None,
    public_key: PublicKey = None,
    json: AsJson = False,
) -> None:
    """List the efficient operating points: mean cost and score at every budget.

    They are estimated on rows of the fit, or measured on all rows of TABLE, which may be larger than memory.
    """
    import thrifty.cli.system as view
    from thrifty.bundle.save_load import load

    kind = ""
    if plot is not None:
        kind = check_output(plot).suffix.lower().lstrip(".") or "png"
        if kind not in ("png", "svg", "pdf"):
            raise InvalidInputError(f"--plot writes png, svg or pdf; got {plot.name!r}.")
    with notes_of_warnings(), progress() as show:
        fitted = load(system, public_key=public_key)
        points, n_rows = view.frontier_on_table(fitted, table, target, n_jobs=jobs, progress=show)
    if plot is not None:
        write_atomically(plot, view.frontier_picture(fitted, points, kind))
    if json:
        print_json(view.frontier_numbers(fitted, points, n_rows))
    else:
        view.frontier_in_words(fitted, points, n_rows, table or system)
        if plot is not None:
            print_text(f"wrote {plot}")


def report(
    system: SystemFile,
    table: Annotated[
        Path,
        typer.Argument(
            help="Labelled rows that are not in the training table, CSV or parquet; for a router, a log.",
            metavar="TABLE",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML page to write.")] = Path("report.html"),
    target: Target = None,
    query: Annotated[
        str | None,
        typer.Option(
            help="Column with the query of each document; only for a ranker that was saved from Python. By default "
            "its name in the fit.",
            metavar="COLUMN",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    unit: Annotated[str, typer.Option(help="Unit of the prices, such as EUR.")] = "",
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="Column of TABLE to report groups of rows by; repeat for several.", metavar="COLUMN"
        ),
    ] = None,
    sample: Annotated[
        int, typer.Option(min=1, help="Rows to measure, drawn by content, where TABLE is a folder of files.")
    ] = 200_000,
    public_key: PublicKey = None,
    json: AsJson = False,
) -> None:
    """Measure a system on labelled rows and write an HTML page that explains every operating point.

    TABLE may be a folder, or a pattern in quotes such as 'rows/*.parquet'; of many rows, a sample is measured.
    """
    from dataclasses import replace

    import thrifty.cli.system as view
    from thrifty.bundle.save_load import load
    from thrifty.reporting.page import page_of

    check_output(out)
    with notes_of_warnings(), progress() as show:
        show("measuring", 0, 1)
        fitted = load(system, public_key=public_key)
        rows = view.labelled_rows(fitted, table, target, query, by or (), sample)
        facts, numbers, sentences = view.measured(fitted, rows, by or ())
        facts = replace(
            facts, title=title or f"What {system.stem} does on {table.name}", unit=unit or facts.unit
        )
        show("measuring", 1, 1)
    write_atomically(out, page_of(facts).encode())
    if json:
        print_json({"file": str(out), **facts.results(facts.start), **numbers})
    else:
        view.report_in_words(facts, sentences, out)


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
    """Audit a fitted model: what it costs per row, which columns it hardly needs, and what a cascade would save."""
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
    from thrifty.engine.table.table import refuse_unknown

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
