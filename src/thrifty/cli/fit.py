"""``thrifty fit``: fit a system on a training table and save it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from thrifty.cli.console import notes_of_warnings, print_json, print_note, progress
from thrifty.cli.options import (
    AsJson,
    Confidence,
    Costs,
    FullCost,
    Ignore,
    MaxLoss,
    MinRecall,
    RowKey,
    Seed,
    is_many,
    labels_by_name,
    read_max_loss,
    read_shares,
)
from thrifty.errors import InvalidInputError
from thrifty.files import check_output


class Structure(StrEnum):
    """Order of purchases; see ``StageOptions``."""

    line = "line"
    neighbours = "neighbours"
    auto = "auto"


class Answers(StrEnum):
    """Kind of target."""

    classes = "classes"
    number = "number"
    ranking = "ranking"


def fit(
    table: Annotated[
        Path,
        typer.Argument(
            help="Training table, CSV or parquet; or a folder, or a pattern in quotes, of CSV, parquet or Arrow files "
            "of any size.",
            metavar="TABLE",
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            help="Column to predict: class labels, numbers, or relevance grades of documents.",
            metavar="COLUMN",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File to write the system to, for example system.thrifty.")
    ],
    costs: Costs = None,
    full: Annotated[
        str,
        typer.Option(
            help="The full model: a kind to fit (forest, svm, boosting, xgboost, lightgbm; auto cross-validates "
            "them), or a file with a fitted model: .thrifty, .txt of LightGBM, .json or .ubj of "
            "XGBoost.",
            metavar="KIND|FILE",
        ),
    ] = "auto",
    full_features: Annotated[
        list[str] | None,
        typer.Option(
            help="Column that the full model reads; repeat for several. By default it reads all features.",
            metavar="COLUMN",
        ),
    ] = None,
    full_cost: FullCost = 0.0,
    budget: Annotated[
        float | None,
        typer.Option(
            help="Mean cost per row to spend. Without --budget, --max-loss and --min-recall, the cheapest operating "
            "point that is level with the best score is chosen."
        ),
    ] = None,
    max_loss: MaxLoss = None,
    confidence: Confidence = None,
    min_recall: MinRecall = None,
    task: Annotated[
        Answers | None,
        typer.Option(
            help="What to predict: classes, number, or ranking (relevance to the queries in --query). By default a "
            "column with more than 30 distinct numbers is predicted as a number, any other as classes.",
            metavar="TASK",
        ),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="Loss of an answer. For classes: error (default), log, brier, or a .csv or .json file with the cost "
            "of every mistake. For numbers: squared (default), absolute, or the pinball loss of a quantile, such as "
            "pinball:0.9. For rankings: pointwise (default), pairwise or listwise.",
            metavar="LOSS|FILE",
        ),
    ] = None,
    query: Annotated[
        str,
        typer.Option(
            help="Column with the query of each row; the documents of each query are then ranked. It is not a "
            "feature, and the rows of a query must follow each other.",
            metavar="COLUMN",
        ),
    ] = "",
    metric: Annotated[
        str | None,
        typer.Option(
            help="Metric of a ranking: ndcg@K or ap@K (average precision) of the first K places; ndcg@10 by default.",
            metavar="METRIC",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="Difference to the full model up to which an answer does not count as worse: of the error of a "
            "number, in units of the target's spread, or of the metric of a query (0.01 by default)."
        ),
    ] = None,
    structure: Annotated[
        Structure,
        typer.Option(
            help="Order of purchases: the same for all rows (line), one of several, chosen by the first purchases, "
            "where that is clearly better (auto), or one for each row, chosen by similar training rows (neighbours)."
        ),
    ] = Structure.auto,
    ignore: Ignore = None,
    row_key: RowKey = None,
    sample: Annotated[
        int,
        typer.Option(
            min=100,
            help="Rows to learn from, drawn by content, where TABLE is a folder of files; all other rows judge the "
            "operating points, and prove --max-loss.",
        ),
    ] = 500_000,
    seed: Seed = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Number of fits that run in parallel.")] = 2,
    private_key: Annotated[
        Path | None, typer.Option(help="PEM file of an ed25519 private key to sign the system with.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Fit a system on a training table. The file written can predict at any budget."""
    from dataclasses import replace

    from thrifty.bundle.save_load import save
    from thrifty.bundle.signing import check_private_key
    from thrifty.cli.fit_steps import (
        choose_full,
        describe,
        fit_and_certify,
        goal_notes,
        load_frozen,
        new_estimator,
        refuse_early,
        refuse_for_many,
    )
    from thrifty.cli.system import fit_in_words, system_numbers
    from thrifty.engine.prices.prices import Prices
    from thrifty.engine.table.files import read_table
    from thrifty.engine.table.names import listed, refuse_unknown
    from thrifty.engine.table.training import training_table
    from thrifty.learners.cascade.estimators import BudgetedClassifier
    from thrifty.reporting.measure import expected
    from thrifty.scale.fit import sample_rows
    from thrifty.scale.folder import each_of_files, find_files
    from thrifty.threads import limited_threads, threads_of

    limits, floors = read_max_loss(max_loss), read_shares("--min-recall", min_recall or ())
    if floors and (limits is not None or confidence is not None):
        raise InvalidInputError(
            "--min-recall can be combined with --budget only. Leave --max-loss and --confidence out."
        )
    check_output(out)
    key = None if private_key is None else check_private_key(private_key)
    with notes_of_warnings(), progress() as show:
        given = Prices({}, default=1.0) if costs is None else Prices.read(costs)
        if is_many(table):
            refuse_for_many(query, confidence if limits is None else None)
            found, names = each_of_files(find_files(table), n_jobs=jobs, progress=show)
            refuse_unknown("--target", [target], names)
            drawn_by = [name for name in names if name not in {target, row_key, *(ignore or ())}]
            frame, n_rows = sample_rows(found, drawn_by, target, sample)
            each = found if len(frame) < n_rows else None
        else:
            each, frame = None, read_table(table)
        features = list(frame.columns.drop([target, query, row_key, *(ignore or ())], errors="ignore"))
        frozen, read = load_frozen(full, features, full_features or ())
        # The columns of a model from a file come first, in its order.
        frame = frame if frozen is None else frame[[*read, *frame.columns.drop(read)]]
        data = training_table(
            frame,
            target,
            task=None if task is None else task.value,
            query=query,
            row_key=row_key or "",
            ignore=ignore or (),
        )
        estimator = new_estimator(
            data,
            target,
            query=query,
            loss=loss,
            tolerance=tolerance,
            metric=metric,
            structure=structure.value,
        ).set_params(
            prices=replace(
                given.of_columns(list(data.X.columns), known=ignore or ()),
                full=full_cost,
                full_features=read,
            ),
            budget=budget,
            n_jobs=jobs,
            random_state=seed,
        )
        floors = labels_by_name("--min-recall", floors, data.classes)
        allowed = labels_by_name("--max-loss", limits, data.classes)
        refuse_early(estimator, data, query, limits, confidence, holds_out=each is None)
        with limited_threads(openmp=threads_of(jobs), blas=threads_of(jobs)):
            name, compared = choose_full(frozen, full, estimator, data, read, show)
            estimator._keeps_scores = True  # for log-loss and AUC, or mean errors, of the summary
            estimator = fit_and_certify(estimator, data, allowed, confidence, show, target, each)
        if floors and isinstance(estimator, BudgetedClassifier):
            estimator = estimator.at(budget=budget, min_recall=floors)
        describe(estimator, data, full=name, max_loss=limits, target=target, row_key=row_key, query=query)
        save(estimator, out, private_key=key)
    unread = [one for one in features if one not in read]
    notes = []
    if frozen is not None and unread:
        notes.append(f"{full} does not read {listed(unread)}: only the stages before it may buy them")
    if data.dates:
        notes.append(f"dates are read as days since 1970-01-01: {listed(data.dates)}")
    if costs is None:
        notes.append("no --costs file: every column costs 1")
    if each is not None:
        notes.append(
            f"learned on {len(frame):,} of {n_rows:,} rows, drawn by what they hold; scores and the costs of budgets "
            f"are those of the others"
        )
    facts = expected(estimator)
    notes += goal_notes(estimator, facts, limits, confidence)
    if not len(data.classes) and not query and task is None:
        notes.append(
            f"column {target!r} holds numbers, and numbers are predicted; --task classes would predict labels"
        )
    for text in notes:
        print_note(text)
    if json:
        print_json(
            {
                "file": str(out),
                "bytes": out.stat().st_size,
                "full_candidates": None if compared is None else compared.scores,
                "full_candidates_rows": None if compared is None else compared.n_rows,
                **system_numbers(estimator, facts),
                "notes": notes,
            }
        )
    else:
        fit_in_words(estimator, facts, compared, out)
