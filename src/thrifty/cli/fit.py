"""``thrifty fit`` and ``route``: learn a system from a training table, or a router from a log, and save it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from thrifty.cli.console import (
    notes_of_warnings,
    print_json,
    print_note,
    print_table,
    print_text,
    progress,
    size_of,
)
from thrifty.cli.options import (
    AsJson,
    Cap,
    Confidence,
    Delay,
    Explore,
    FormerCosts,
    FullCost,
    Goal,
    Ignore,
    MaxLoss,
    MinRecall,
    NoMix,
    PricesFile,
    RowKey,
    Seed,
    is_many,
    read_prices,
)
from thrifty.errors import InvalidInputError
from thrifty.files import check_output
from thrifty.progress import Progress

NEAR = 0.01
"""Share of a budget that may be left without a note."""


class Structure(StrEnum):
    """Order of purchases; see ``StageOptions``."""

    line = "line"
    tree = "tree"
    auto = "auto"


class MissingLabels(StrEnum):
    """Treatment of receipts without a label; see ``fit_table``."""

    refuse = "refuse"
    drop = "drop"
    weight = "weight"


class TargetKind(StrEnum):
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
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File to write the system to, for example system.thrifty.")
    ],
    target: Annotated[
        str,
        typer.Option(
            help="Column to predict: class labels, numbers, or relevance grades of documents. With --labels, it may be "
            "left out.",
            metavar="COLUMN",
        ),
    ] = "",
    prices: PricesFile = None,
    costs: FormerCosts = None,
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
    full_cost: FullCost = None,
    delay: Delay = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            help="Mean cost per row; or that of a resource of the prices, such as minutes=15; repeat for "
            "several resources. Without --budget, --max-loss and --min-recall, the cheapest operating point that is "
            "level with the best score is chosen.",
            metavar="AMOUNT|RESOURCE=AMOUNT",
        ),
    ] = None,
    max_loss: MaxLoss = None,
    confidence: Confidence = None,
    min_recall: MinRecall = None,
    no_mix: NoMix = False,
    explore: Explore = 0.0,
    cap: Cap = None,
    task: Annotated[
        TargetKind | None,
        typer.Option(
            help="Kind of target: classes, number, or ranking (relevance to the queries in --query). By default a "
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
            help="Order of purchases: the same for all rows (line), a tree in which each row chooses by what it "
            "holds (tree), or whichever is better (auto)."
        ),
    ] = Structure.auto,
    ignore: Ignore = None,
    row_key: RowKey = None,
    bought: Annotated[
        str | None,
        typer.Option(
            help="Which cells were bought: 'known' (those that are not blank), or a table of true and false with a "
            "line for each row. Without it a blank is an answer that a purchase will give again.",
            metavar="known|FILE",
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="Table of labels: a column named as --row-key, and the target. TABLE then holds receipts "
            "of `thrifty buy`, and the fit learns from what was bought.",
            metavar="FILE",
        ),
    ] = None,
    missing_labels: Annotated[
        MissingLabels,
        typer.Option(
            help="Receipts without a label: an error (refuse), left out (drop), or stood for by the others (weight), "
            "by the probability of a label: the column 'propensity' of --labels, or an estimate."
        ),
    ] = MissingLabels.refuse,
    sample: Annotated[
        int,
        typer.Option(
            min=100,
            help="Rows to learn from, drawn by content, where TABLE is a folder of files; operating points "
            "are measured on all other rows, which also prove --max-loss.",
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
    from thrifty.bundle.container import check_key
    from thrifty.bundle.save_load import save
    from thrifty.cli.system import fit_in_words, system_numbers
    from thrifty.learners.cascade.estimators import StageOptions
    from thrifty.learners.table_fit import fit_table
    from thrifty.reporting.measure import expected
    from thrifty.scale.folder import find_files

    goal = Goal.read(budget, max_loss, min_recall, no_mix=no_mix, explore=explore, cap=cap)
    if no_mix and confidence is not None:
        raise InvalidInputError("--no-mix is for a budget that is met on average. Leave --confidence out.")
    if goal.min_recall and (goal.max_loss is not None or confidence is not None):
        raise InvalidInputError(
            "--min-recall can be combined with --budget only. Leave --max-loss and --confidence out."
        )
    check_output(out)
    key = None if private_key is None else check_key("private_key", private_key)
    sampling: list[str] = []
    with notes_of_warnings(), progress() as show:
        by_column, model = read_prices(prices, costs, full_cost), _read_full(full)
        if delay:
            from dataclasses import replace

            by_column = replace(by_column, delays=delay)
        rows: Any = table
        evaluate = None
        if labels is not None:
            if bought not in (None, "known"):
                raise InvalidInputError(
                    "--bought FILE is for tables of your own: receipts say what was bought."
                )
            rows = find_files(table) if is_many(table) else table
        elif not target:
            raise InvalidInputError(
                "--target must name the column to predict, or --labels a table of outcomes."
            )
        elif is_many(table):
            if query:
                raise InvalidInputError(
                    "--query needs each query as a whole, and partitions may split it. Give one file to learn a "
                    "ranking from."
                )
            if confidence is not None and goal.max_loss is None:
                raise InvalidInputError(
                    "--confidence proves --max-loss where TABLE is a folder of files; a budget is met on the mean of "
                    "their rows. Leave it out, or give one file."
                )
            left_out = [target, *filter(None, [row_key]), *(ignore or ())]
            rows, evaluate, n_rows = _sample(table, target, left_out, sample, jobs, show)
            if evaluate is not None:
                sampling.append(
                    f"learned on {len(rows):,} of {n_rows:,} rows, drawn by what they hold; scores and the costs of "
                    f"budgets are those of the others"
                )
        estimator = fit_table(
            rows,
            target,
            prices=by_column,
            full=model,
            full_features=full_features or (),
            full_name="" if model is full else Path(full).name,
            **goal.as_dict(),
            confidence=confidence,
            task=None if task is None else task.value,
            query=query,
            loss=loss,
            metric=metric,
            tolerance=tolerance,
            stages=StageOptions(structure=structure.value),
            ignore=ignore or (),
            row_key=row_key or "",
            bought=bought,
            labels=labels,
            missing_labels=missing_labels.value,
            n_jobs=jobs,
            random_state=seed,
            progress=show,
            evaluate=evaluate,
        )
        save(estimator, out, private_key=key)
    facts = expected(estimator)
    notes = _notes_of_columns(estimator, "" if model is full else full)
    if prices is None and costs is None:
        notes.append("no --prices file: every column costs 1")
    notes += [*sampling, *_notes_of_goal(estimator, facts, goal, confidence)]
    if not len(estimator.chain_.classes) and not query and task is None:
        notes.append(
            f"column {target!r} holds numbers, and numbers are predicted; --task classes would predict labels"
        )
    for text in notes:
        print_note(text)
    if json:
        record = estimator.record_
        print_json(
            {
                "file": str(out),
                "bytes": out.stat().st_size,
                "full_candidates": record.full_scores or None,
                "full_candidates_rows": record.full_rows or None,
                **system_numbers(estimator, facts),
                "notes": notes,
            }
        )
    else:
        fit_in_words(estimator, facts, out)


def _read_full(full: str) -> Any:
    """Full model: its kind, or the fitted model in a file."""
    from sklearn.frozen import FrozenEstimator

    from thrifty.bundle.save_load import load_model
    from thrifty.engine.full.crossfit import KINDS
    from thrifty.engine.full.model import is_estimator

    if full == "auto" or full in KINDS:
        return full
    if not full.endswith((".thrifty", ".txt", ".json", ".ubj")):
        raise InvalidInputError(
            f"--full must be auto, one of {', '.join(KINDS)}, or a file with a fitted model: .thrifty, .txt of "
            f"LightGBM, .json or .ubj of XGBoost; got {full!r}."
        )
    model = load_model(full)
    if not is_estimator(model):
        raise InvalidInputError(
            f"--full must be a file with a fitted model; {Path(full).name} holds a {type(model).__name__}."
        )
    return FrozenEstimator(model)


def _sample(
    table: Path, target: str, left_out: list[str], n_sample: int, jobs: int, show: Progress
) -> tuple[Any, Any, int]:
    """Rows to learn from, the evaluation of a fit on all other rows (None where there are none), and number of rows."""
    from functools import partial

    from thrifty.engine.table.table import refuse_unknown
    from thrifty.scale.fit import evaluate, sample_rows
    from thrifty.scale.folder import each_of_files, find_files

    each, names = each_of_files(find_files(table), n_jobs=jobs, progress=show)
    refuse_unknown("target", [target], names)
    rows, n_rows = sample_rows(each, [name for name in names if name not in left_out], target, n_sample)
    return rows, partial(evaluate, each=each, target=target) if len(rows) < n_rows else None, n_rows


def _notes_of_columns(estimator: Any, full: str) -> list[str]:
    """Notes on columns that the full model in a file does not read, and on dates."""
    from thrifty.errors import listed

    chain, notes = estimator.chain_, []
    schema, read = chain.schema, chain.price_list.full_columns
    unread = [name for place, name in enumerate(schema.names) if read is not None and place not in read]
    if full and unread:
        notes.append(f"{full} does not read {listed(unread)}: only the stages before it may buy them")
    dates = [
        name for place, name in enumerate(schema.names) if schema.type_of(place).holds in ("day", "time")
    ]
    if dates:
        notes.append(f"dates are read as days since 1970-01-01: {listed(dates)}")
    return notes


def _notes_of_goal(estimator: Any, facts: Any, goal: Goal, confidence: float | None) -> list[str]:
    """Notes on how the goal was met."""
    certificate, budget = estimator.certificate_, goal.budget
    # A cascade of which no point could be proved warns by itself.
    is_fallback = certificate is not None and certificate.is_fallback
    if goal.max_loss is not None and facts.share[0] == 1.0 and not is_fallback:
        limits = goal.max_loss if isinstance(goal.max_loss, dict) else {"": goal.max_loss}
        asked = " ".join(f"{name}{'=' if name else ''}{share:g}" for name, share in limits.items())
        reason = "can be met only by sending every row to the full model, which saves nothing"
        return [f"--max-loss {asked} {reason}. Give more rows, or allow a larger loss"]
    if isinstance(budget, float) and confidence is None and facts.cost.value[0] < (1 - NEAR) * budget:
        paid = f"{facts.cost.value[0]:.4g} per row"
        reason = f"more than {paid} bought nothing that showed"
        if goal.mix is False:
            reason = f"without a mix, {paid} is the dearest operating point within it"
        return [f"the budget of {budget:g} is not spent: {reason}"]
    return []


def route(
    log: Annotated[
        Path,
        typer.Argument(
            help="Log, CSV or parquet, a line for each row and model: columns model, quality (in [0, 1]) and text, or "
            "id and columns of numbers; optionally cost, answer, evidence, propensity. In place of quality, loss: what "
            "an answer loses, in the unit of the costs.",
            metavar="LOG",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write the router to.")],
    models: Annotated[
        Path | None,
        typer.Option(
            help="Models with their prices, CSV: columns model and price (per call), or model, input and output (per "
            "million tokens), or model and a column for each of several resources. By default, the column cost of the "
            "log, or its columns cost_dollars, cost_seconds and so on."
        ),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            help="Prices of the columns of the log, in the unit of the costs of models; CSV or JSON as for `fit`. "
            "By default, columns are free."
        ),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            help="Mean cost per row; or that of a resource, such as seconds=2; repeat for several resources. By "
            "default, the best quality at any cost.",
            metavar="AMOUNT|RESOURCE=AMOUNT",
        ),
    ] = None,
    cap: Cap = None,
    parallel: Annotated[
        bool,
        typer.Option(
            "--parallel",
            help="Models may be asked at once, so that their seconds are the longest of them: for costs in several "
            "resources, one of them seconds.",
        ),
    ] = False,
    max_asks: Annotated[int, typer.Option(min=1, help="Models that may be asked about one row.")] = 3,
    confidence: Annotated[
        float | None,
        typer.Option(help="Confidence with which new rows keep to --budget; by default on average."),
    ] = None,
    cutoff: Annotated[
        float | None,
        typer.Option(
            help="The log is of run times: a column seconds instead of quality, empty where a run did not end. Seconds "
            "that a row may take; one that is not solved by then counts as ten times as many."
        ),
    ] = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Learn from a log which of many models to ask about each row, within a budget, and write a router."""
    from thrifty.bundle.save_load import save
    from thrifty.cli.options import read_amounts
    from thrifty.cli.system import frontier_numbers
    from thrifty.engine.prices.billing import amount_text
    from thrifty.engine.prices.prices import Prices
    from thrifty.engine.table.files import read_table
    from thrifty.learners.routing.log_files import pivot_log, pivot_runs, read_models
    from thrifty.learners.routing.router import ModelRouter

    check_output(out)
    with notes_of_warnings():
        frame = read_table(log)
        price_of = None if models is None else read_models(models)
        of_columns = None if prices is None else Prices.read(prices)
        outcome = "runtime" if cutoff is not None else "loss" if "loss" in frame.columns else "quality"
        if cutoff is None:
            X, arrays = pivot_log(frame, log, price_of, outcome=outcome)
        else:
            steps = [] if of_columns is None else [*of_columns.costs, *(of_columns.groups or {}).values()]
            X, arrays = pivot_runs(frame, log, steps)
        names = arrays.pop("models")
        if cutoff is None and price_of is None and "cost" not in arrays:
            raise InvalidInputError(
                f"{log} has no column cost: give the models with their prices as --models."
            )
        priced: Any = names if price_of is None else {name: price_of[name] for name in names}
        if of_columns is not None and hasattr(X, "columns"):
            of_columns = of_columns.of_columns(list(X.columns))
        wanted = read_amounts("--budget", budget)
        settings: Any = {"prices": of_columns, "outcome": outcome, "cutoff": cutoff}
        settings |= {"ask": "parallel" if parallel else "in turn", "cap": read_amounts("--cap", cap)}
        router = ModelRouter(priced, wanted, max_asks, confidence, seed, **settings).fit(X, **arrays)
        n_rows = len(arrays["quality"])
        save(router, out)
    frontier, resources = router.frontier_, router.state_.resources
    singles: Any = frontier.single_cost
    if resources is not None and frontier.single_costs is not None:
        singles = [resources.named(costs) for costs in frontier.single_costs]
    what = "loss" if outcome == "loss" else "quality"

    def of_quality(quality: Any) -> float:
        return float(quality if outcome != "loss" else (1.0 - quality) * router.largest_loss_)

    if json:
        print_json(
            {
                "models": list(names),
                "pool": router.pool_,
                "rows": n_rows,
                "expected_cost": router.expected_cost_,
                f"expected_{what}": of_quality(router.expected_score_),
                "frontier": frontier_numbers(router, frontier, n_rows)["frontier"],
                "singles": {
                    name: {"cost": cost, what: of_quality(quality)}
                    for name, cost, quality in zip(names, singles, frontier.single_quality, strict=True)
                },
            }
        )
        return
    print_text(f"{n_rows:,} rows, {len(names)} models; chooses from {', '.join(router.pool_)}.")
    lines = [("", "cost", what)]
    lines += [
        (names[model], amount_text(singles[model]), f"{of_quality(frontier.single_quality[model]):.3f}")
        for model in frontier.single_cost.argsort(kind="stable")
    ]
    lines.append(
        ("this router", amount_text(router.expected_cost_), f"{of_quality(router.expected_score_):.3f}")
    )
    print_table(lines)
    print_text(f"Out of fold: {router.explain()}.")
    print_text(f"wrote {out} ({size_of(out)})")
