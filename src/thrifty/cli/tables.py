"""``thrifty fit``, ``predict``, ``explain``, ``frontier`` and ``report``: from a table to a system and its answers."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from thrifty.cli.console import (
    check_output,
    note,
    notes_of_warnings,
    print_json,
    progress,
    say,
    write_file,
)
from thrifty.exceptions import InvalidInputError

__all__ = ["Method", "explain", "fit", "frontier", "predict", "report"]

_EXPLAINED = 20
"""Rows that are explained unless all are asked for."""


class Unseen(StrEnum):
    """What becomes of text that was not in the training table."""

    refuse = "refuse"
    missing = "missing"


class Method(StrEnum):
    """What is fitted in front of the full model."""

    cascade = "cascade"
    dynamod_gbrt = "dynamod-gbrt"
    dynamod_lin = "dynamod-lin"
    greedy_miser = "greedy-miser"
    confidence = "confidence"


class Structure(StrEnum):
    """In how many orders a cascade buys."""

    line = "line"
    graph = "graph"
    auto = "auto"


class Answers(StrEnum):
    """What the target holds."""

    classes = "classes"
    number = "number"
    ranking = "ranking"


class Metric(StrEnum):
    """How the order of a query's documents is judged."""

    ndcg = "ndcg"
    ap = "ap"


SystemFile = Annotated[Path, typer.Argument(help="File that `thrifty fit` wrote.", metavar="SYSTEM")]
NewRows = Annotated[Path, typer.Argument(help="Table of new rows, CSV or parquet.", metavar="TABLE")]
Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        help="Full name of a type that the full model may be made of. May be repeated.",
        metavar="TYPE",
    ),
]
PublicKey = Annotated[
    Path | None,
    typer.Option(help="PEM file of an ed25519 key; a SYSTEM that it was not signed for is refused."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print numbers for programs on standard output.")]
UnseenText = Annotated[
    Unseen, typer.Option(help="What to do with text, in a cell that is read, that the fit has not seen.")
]
Budget = Annotated[
    float | None, typer.Option(help="Mean cost per row to spend, in place of the one that was fitted for.")
]
Confidence = Annotated[
    float | None,
    typer.Option(
        help="Probability with which --max-loss is proved (0.95 without it), or new rows keep to --budget, which is "
        "met as measured without it."
    ),
]
MaxLoss = Annotated[
    list[str] | None,
    typer.Option(
        help="Share of answers that may be worse than the full model's, in place of a budget, such as 0.02; or of the "
        "rows of a class, such as sick=0.02, which may be repeated.",
        metavar="SHARE|CLASS=SHARE",
    ),
]
MinRecall = Annotated[
    list[str] | None,
    typer.Option(
        help="Least share of the rows of a class that is answered with it, such as sick=0.9. May be repeated.",
        metavar="CLASS=SHARE",
    ),
]


def fit(
    table: Annotated[Path, typer.Argument(help="Training table, CSV or parquet.", metavar="TABLE")],
    target: Annotated[
        str, typer.Option(help="Name of the column with the label, the number to predict, or the relevance.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File to write the system to, for example system.thrifty.")
    ],
    costs: Annotated[
        Path | None,
        typer.Option(
            help="File with lines of feature, cost and, if need be, group. Without it each costs 1."
        ),
    ] = None,
    full: Annotated[
        str,
        typer.Option(
            help="The full model: auto, forest, svm, boosting, xgboost, lightgbm, or a .skops file with a fitted one.",
            metavar="KIND|FILE",
        ),
    ] = "auto",
    full_features: Annotated[
        list[str] | None,
        typer.Option(
            help="Column that the full model reads. May be repeated; without it, all of them.",
            metavar="COLUMN",
        ),
    ] = None,
    full_cost: Annotated[
        float, typer.Option(help="Price of one call of the full model, on top of the columns it reads.")
    ] = 0.0,
    budget: Annotated[
        float | None,
        typer.Option(help="Mean cost per row to spend. Without a wish, the most accurate point is kept."),
    ] = None,
    max_loss: MaxLoss = None,
    confidence: Confidence = None,
    min_recall: MinRecall = None,
    task: Annotated[
        Answers | None,
        typer.Option(
            help="What the target holds: classes, number, or ranking, which is relevance to the queries in --query. "
            "Without it, a column of more than 30 different numbers is predicted as a number, and every other one as "
            "classes.",
            metavar="TASK",
        ),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="What an answer loses. Of numbers: squared, as without it, or absolute. Of classes: error, as without "
            "it, log, brier, or a .csv or .json file of what each mistake costs. Of documents: pointwise, as without "
            "it, pairwise or listwise.",
            metavar="LOSS|FILE",
        ),
    ] = None,
    query: Annotated[
        str,
        typer.Option(
            help="Column with the query of each row, which has the documents of each query ranked by --target. It is "
            "no feature; rows of a query stand together.",
            metavar="COLUMN",
        ),
    ] = "",
    metric: Annotated[
        Metric | None,
        typer.Option(
            help="How the order of a query is judged: ndcg, as without it, or ap.", metavar="METRIC"
        ),
    ] = None,
    k: Annotated[
        int | None, typer.Option(min=1, help="First places of a query that count (10 without it).")
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="How much larger than the full model's the error of a number may be before it counts as worse, in "
            "units of the spread of the target, or how much lower the metric of a query may be (0.01 without it)."
        ),
    ] = None,
    method: Annotated[
        Method,
        typer.Option(
            help="What to fit in front of the full model: cascade, or dynamod-gbrt, dynamod-lin, greedy-miser or "
            "confidence as in the paper.",
            metavar="METHOD",
        ),
    ] = Method.cascade,
    structure: Annotated[
        Structure,
        typer.Option(
            help="Whether a cascade buys for all rows in one order (line), for each row in its own (graph), or in "
            "whichever way is clearly better (auto). The last two take longer to fit."
        ),
    ] = Structure.line,
    ignore: Annotated[
        list[str] | None,
        typer.Option(help="Column that is not a feature. May be repeated.", metavar="COLUMN"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of all random choices.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Number of fits that run side by side.")] = 2,
    trust: Trust = None,
    private_key: Annotated[
        Path | None, typer.Option(help="PEM file of an ed25519 key, which signs the system.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Fit a system on labels, numbers or documents of queries. It is one file, which answers at any budget."""
    from thrifty.bundle.signature import check_private_key
    from thrifty.cli.summary import fit_in_words, fit_numbers
    from thrifty.tables.by_class import read_max_loss, read_shares
    from thrifty.tables.fit import Wish, fit_table
    from thrifty.tables.formats import read_table
    from thrifty.tables.storage import table_system_to_bytes

    floors = read_shares("--min-recall", min_recall or ())
    wish = Wish(budget, read_max_loss(max_loss), confidence, floors or None)
    check_output(out)
    key = None if private_key is None else check_private_key(private_key)
    with notes_of_warnings(), progress() as show:
        fitted = fit_table(
            read_table(table),
            target,
            wish,
            task=None if task is None else task.value,
            loss=loss,
            tolerance=tolerance,
            query=query,
            metric=None if metric is None else metric.value,
            k=k,
            method=method.value,
            structure=structure.value,
            costs=costs,
            full=full,
            full_cost=full_cost,
            full_features=full_features or (),
            ignore=ignore or (),
            seed=seed,
            n_jobs=jobs,
            trusted=trust or (),
            progress=show,
        )
        data = table_system_to_bytes(fitted.system, private_key=key)
    write_file(out, data)
    for text in fitted.notes:
        note(text)
    if json:
        print_json(fit_numbers(fitted, out))
    else:
        fit_in_words(fitted, out)


def predict(
    system: SystemFile,
    table: NewRows,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File of answers, CSV or parquet; - is standard output.")
    ],
    budget: Budget = None,
    max_loss: MaxLoss = None,
    confidence: Confidence = None,
    min_recall: MinRecall = None,
    hold_budget: Annotated[
        bool,
        typer.Option(
            "--hold-budget", help="Spend the budget on just these rows: at most, and nearly all of it."
        ),
    ] = False,
    unseen: UnseenText = Unseen.refuse,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Write text of a CSV file as it is, also where a spreadsheet would run it as a formula.",
        ),
    ] = False,
    trust: Trust = None,
    public_key: PublicKey = None,
    json: AsJson = False,
) -> None:
    """Answer every row of a table. Written are the answer, a label's probability, the stage it came from, its cost."""
    import pandas as pd

    from thrifty.cli.summary import answers_in_words, answers_numbers
    from thrifty.tables.by_class import read_max_loss, read_shares
    from thrifty.tables.formats import listed, read_table, table_bytes
    from thrifty.tables.storage import load_table_system

    allowed, floors = read_max_loss(max_loss), read_shares("--min-recall", min_recall or ())
    on_screen = str(out) == "-"
    if on_screen and json:
        raise InvalidInputError("-o - and --json both want standard output. Name a file for the answers.")
    if hold_budget and floors:
        raise InvalidInputError("--hold-budget keeps no floor of recall. Leave --min-recall out.")
    if hold_budget and max_loss:
        raise InvalidInputError("--hold-budget holds a budget, and --max-loss names none. Give one of them.")
    if hold_budget and confidence is not None:
        raise InvalidInputError(
            "--hold-budget keeps a budget for sure, without --confidence. Leave one of them out."
        )
    if not on_screen:
        check_output(out)
    with notes_of_warnings():
        known = load_table_system(system, trusted=trust or (), public_key=public_key)
        held = (known.about.budget if budget is None else budget) if hold_budget else None
        if hold_budget and held is None:
            raise InvalidInputError(
                f"{system} was fitted without a budget, so there is none to hold. Name one with --budget."
            )
        frame = read_table(table, as_text=known.schema.text_columns)
        cells = known.read(frame, unseen_is_missing=unseen is Unseen.missing)
        if held is not None:
            known = known.held(cells, held)
        elif budget is not None or max_loss or confidence is not None or floors:
            known = known.at(budget=budget, max_loss=allowed, confidence=confidence, min_recall=floors)
        answers = pd.DataFrame(known.answers(cells))
        if known.schema.query in frame.columns:
            answers.insert(0, "query", frame[known.schema.query].to_numpy())
    extra = known.schema.extra_columns(frame)
    if extra:
        note(f"columns of {table} that the system does not read: {listed(extra)}")
    starved = known.starved(cells, answers["stage"].to_numpy())
    if starved:
        note(
            f"{starved:,} row{'s were' if starved > 1 else ' was'} answered by the full model although more than half "
            f"of the cells that it reads were missing"
        )
    if on_screen:
        typer.echo(table_bytes(answers, "answers.csv", raw=raw), nl=False)
        return
    write_file(out, table_bytes(answers, out, raw=raw))
    if json:
        print_json(answers_numbers(known, answers, out, held))
    else:
        answers_in_words(known, answers, out, budget=budget, held=held, max_loss=allowed)


def explain(
    system: SystemFile,
    table: NewRows,
    row: Annotated[int | None, typer.Option(min=1, help="Number of the only row to explain, from 1.")] = None,
    budget: Budget = None,
    max_loss: MaxLoss = None,
    confidence: Confidence = None,
    everything: Annotated[
        bool, typer.Option("--all", help=f"Explain every row, and not only the first {_EXPLAINED}.")
    ] = False,
    unseen: UnseenText = Unseen.refuse,
    trust: Trust = None,
    public_key: PublicKey = None,
    json: AsJson = False,
) -> None:
    """Explain the answers row by row. Told are what was bought in which order, what each stage said, and the end."""
    import numpy as np

    from thrifty.cli.explanation import explanation_in_words, explanation_numbers
    from thrifty.tables.by_class import read_max_loss
    from thrifty.tables.formats import read_table
    from thrifty.tables.storage import load_table_system

    with notes_of_warnings():
        known = load_table_system(system, trusted=trust or (), public_key=public_key)
        if budget is not None or max_loss or confidence is not None:
            known = known.at(budget=budget, max_loss=read_max_loss(max_loss), confidence=confidence)
        cells = known.read(
            read_table(table, as_text=known.schema.text_columns), unseen_is_missing=unseen is Unseen.missing
        )
        n_rows = len(cells)
        if row is not None and row > n_rows:
            raise InvalidInputError(
                f"--row must be at most {n_rows:,}, the number of rows of {table}; got {row:,}."
            )
        n_shown = n_rows if everything else min(n_rows, _EXPLAINED)
        cells = cells.take(np.arange(n_shown) if row is None else np.array([row - 1]))
        found = known.explain(cells)
    numbers = cells.row_numbers.tolist()
    if json:
        print_json({"rows": [explanation_numbers(*one) for one in zip(numbers, found, strict=True)]})
    else:
        for number, one in zip(numbers, found, strict=True):
            for line in explanation_in_words(number, one):
                say(line)
    if row is None and n_shown < n_rows:
        note(
            f"the first {n_shown} of {n_rows:,} rows are explained; --all explains them all, --row N one of them"
        )


def frontier(
    system: SystemFile,
    plot: Annotated[Path | None, typer.Option(help="Picture to write: png, svg or pdf.")] = None,
    trust: Trust = None,
    public_key: PublicKey = None,
    json: AsJson = False,
) -> None:
    """Show what other budgets buy. The efficient operating points are listed, on the rows that they are judged on."""
    from thrifty.cli.points import frontier_in_words, frontier_numbers, frontier_picture, judged
    from thrifty.tables.storage import load_table_system

    if plot is not None:
        check_output(plot)
    with notes_of_warnings():
        known = judged(load_table_system(system, trusted=trust or (), public_key=public_key))
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
    table: Annotated[
        Path,
        typer.Argument(help="Table with labels that was not fitted on, CSV or parquet.", metavar="TABLE"),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Page to write.")] = Path("report.html"),
    target: Annotated[
        str | None,
        typer.Option(
            help="Column with the label, for an estimator that was saved by itself and does not know it.",
            metavar="COLUMN",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    unit: Annotated[str, typer.Option(help="Unit of the prices, for the page.")] = "",
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="Column of the table to tell the rows apart by. May be repeated.", metavar="COLUMN"
        ),
    ] = None,
    trust: Trust = None,
    public_key: PublicKey = None,
    json: AsJson = False,
) -> None:
    """Measure a system on labelled rows. One page is written that explains every operating point."""
    from thrifty.cli.points import judged
    from thrifty.cli.report import facts_of, report_in_words, report_numbers, with_target
    from thrifty.report.page import write_report
    from thrifty.tables.formats import read_table
    from thrifty.tables.storage import load_table_system

    check_output(out)
    with notes_of_warnings(), progress() as show:
        show("measuring", 0, 1)
        known = judged(load_table_system(system, trusted=trust or (), public_key=public_key))
        known = with_target(known, target)
        frame = read_table(table, as_text=known.schema.text_columns)
        words = title or f"What {system.stem} does on {table.name}"
        facts, measured = facts_of(known, frame, by or (), words, unit)
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
