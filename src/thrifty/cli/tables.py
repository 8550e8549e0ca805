"""``thrifty fit``, ``predict``, ``frontier`` and ``report``: from the user's table to a system, and what it does."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from thrifty.cli.output import check_output, note, notes_of_warnings, print_json, say, write_file
from thrifty.cli.progress import progress
from thrifty.exceptions import InvalidInputError

__all__ = ["fit", "frontier", "predict", "report"]

SystemFile = Annotated[Path, typer.Argument(help="File that `thrifty fit` wrote.", metavar="SYSTEM")]
Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust", help="Type that f0 may be made of, by its full name; may be repeated.", metavar="TYPE"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print numbers for programs, on standard output.")]


class Unseen(StrEnum):
    """What becomes of text that was not in the training table."""

    refuse = "refuse"
    missing = "missing"


def fit(
    table: Annotated[Path, typer.Argument(help="Training table, CSV or parquet.", metavar="TABLE")],
    target: Annotated[str, typer.Option(help="Column with the label.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write, system.thrifty for example.")],
    costs: Annotated[
        Path | None, typer.Option(help="File with feature, cost and, if need be, group; default 1 each.")
    ] = None,
    full: Annotated[
        str,
        typer.Option(
            help="f0: auto, forest, svm, boosting, xgboost, or a .skops file with a fitted classifier.",
            metavar="KIND|FILE",
        ),
    ] = "auto",
    budget: Annotated[float | None, typer.Option(help="Mean cost per row to spend.")] = None,
    max_loss: Annotated[
        float | None, typer.Option(help="Share of answers that may become worse than f0's, proved.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="How surely --max-loss is proved.")] = 0.95,
    full_cost: Annotated[float, typer.Option(help="Price of one call of f0, on top of what it reads.")] = 0.0,
    ignore: Annotated[
        list[str] | None, typer.Option(help="Column that is no feature; may be repeated.", metavar="COLUMN")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Fits side by side.")] = 2,
    store: Annotated[
        Path | None, typer.Option(help="Folder that keeps finished fits; the same command goes on from it.")
    ] = None,
    trust: Trust = None,
    json: AsJson = False,
) -> None:
    """Fit many systems on a table, choose one, and write it to a file."""
    from thrifty.cli.words import fit_in_words, fit_numbers
    from thrifty.tables.files import read_table
    from thrifty.tables.fit import Wish, fit_table
    from thrifty.tables.storage import table_system_to_bytes

    wish = Wish(budget, max_loss, confidence)
    check_output(out)
    with notes_of_warnings(), progress() as show:
        fitted = fit_table(
            read_table(table),
            target,
            wish,
            costs=costs,
            full=full,
            full_cost=full_cost,
            ignore=ignore or (),
            seed=seed,
            n_jobs=jobs,
            store=store,
            trusted=trust or (),
            progress=show,
        )
        data = table_system_to_bytes(fitted.system)
    write_file(out, data)
    for text in fitted.notes:
        note(text)
    if json:
        print_json(fit_numbers(fitted, out))
    else:
        fit_in_words(fitted, out)


def predict(
    system: SystemFile,
    table: Annotated[Path, typer.Argument(help="New rows, CSV or parquet.", metavar="TABLE")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File of answers, CSV or parquet; - is the screen.")
    ],
    unseen: Annotated[
        Unseen, typer.Option(help="Text that was not there when the system was fitted.")
    ] = Unseen.refuse,
    budget: Annotated[
        float | None, typer.Option(help="Send on as many of just these rows as this mean cost pays for.")
    ] = None,
    hold_budget: Annotated[
        bool,
        typer.Option("--hold-budget", help="The same, with the budget that the system was fitted for."),
    ] = False,
    trust: Trust = None,
    json: AsJson = False,
) -> None:
    """Answer every row of a table: answer, probability, stage and cost."""
    import pandas as pd

    from thrifty.cli.words import answers_in_words, answers_numbers
    from thrifty.tables.files import listed, read_table, table_bytes
    from thrifty.tables.storage import load_table_system

    on_screen = str(out) == "-"
    if on_screen and json:
        raise InvalidInputError("-o - and --json both want standard output. Name a file for the answers.")
    if hold_budget and budget is not None:
        raise InvalidInputError(
            f"--hold-budget holds the budget of the fit and --budget {budget:g} another one. Give one of them."
        )
    if not on_screen:
        check_output(out)
    with notes_of_warnings():
        known = load_table_system(system, trusted=trust or ())
        held = known.about.budget if hold_budget else budget
        if hold_budget and held is None:
            raise InvalidInputError(
                f"{system} was fitted with --max-loss, so there is no budget to hold. Name one with --budget."
            )
        frame = read_table(table, as_text=known.schema.text_columns)
        X = known.table(frame, unseen_is_missing=unseen is Unseen.missing)
        if held is not None:
            known = known.for_rows(X, held)
        answers = pd.DataFrame(known.answers(X))
    extra = known.schema.extra_columns(frame)
    if extra:
        note(f"columns of {table} that the system does not read: {listed(extra)}")
    if on_screen:
        typer.echo(table_bytes(answers, "answers.csv"), nl=False)
        return
    write_file(out, table_bytes(answers, out))
    if json:
        print_json(answers_numbers(answers, out, held))
    else:
        answers_in_words(answers, out, held)


def frontier(
    system: SystemFile,
    plot: Annotated[Path | None, typer.Option(help="Picture to write: png, svg or pdf.")] = None,
    trust: Trust = None,
    json: AsJson = False,
) -> None:
    """Show what other budgets would buy: the efficient points on the rows the system was chosen on."""
    from thrifty.cli.words import frontier_in_words, frontier_numbers, frontier_picture
    from thrifty.tables.storage import load_table_system

    if plot is not None:
        check_output(plot)
    with notes_of_warnings():
        known = load_table_system(system, trusted=trust or ())
    if plot is not None:
        write_file(plot, frontier_picture(known, plot))
    if json:
        print_json(frontier_numbers(known))
    else:
        frontier_in_words(known, system)
        if plot is not None:
            say(f"wrote {plot}")


def report(
    system: SystemFile,
    table: Annotated[Path, typer.Argument(help="Labelled rows that were not fitted on.", metavar="TABLE")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Page to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    unit: Annotated[str, typer.Option(help="Unit of the prices, for the page.")] = "",
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="Column of the table to tell the rows apart by; may be repeated.", metavar="COLUMN"
        ),
    ] = None,
    trust: Trust = None,
    json: AsJson = False,
) -> None:
    """Measure every point on labelled rows and write one page that explains them."""
    from thrifty.cli.reporting import facts_of, report_numbers
    from thrifty.cli.words import report_in_words
    from thrifty.report.page import write_report
    from thrifty.tables.files import read_table
    from thrifty.tables.storage import load_table_system

    check_output(out)
    with notes_of_warnings(), progress() as show:
        show("measuring", 0, 1)
        known = load_table_system(system, trusted=trust or ())
        frame = read_table(table, as_text=known.schema.text_columns)
        facts, measured = facts_of(
            known, frame, by or (), title or f"What {system.stem} does on {table.name}", unit
        )
        show("measuring", 1, 1)
    try:
        written = write_report(out, facts)
    except OSError as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"{out} cannot be written: {error.strerror or error}.") from error
    if json:
        print_json(report_numbers(known, measured, written))
    else:
        report_in_words(known, measured, written)
