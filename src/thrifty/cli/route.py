"""``thrifty route``: learn which of many models to ask from a log of what they answered."""

from pathlib import Path
from typing import Annotated, Any

import typer

from thrifty.cli.console import notes_of_warnings, print_json, print_table, print_text, size_of
from thrifty.cli.options import AsJson, Seed
from thrifty.errors import InvalidInputError
from thrifty.files import check_output


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
    from thrifty.cli.system import frontier_numbers
    from thrifty.engine.table.files import read_table
    from thrifty.learners.routing.log_files import pivot_log, read_models
    from thrifty.learners.routing.router import ModelRouter

    if prices is not None:
        raise InvalidInputError(
            "--prices are of columns, and those of a log are free. Give the models with their prices as --models."
        )
    check_output(out)
    with notes_of_warnings():
        frame = read_table(log)
        price_of = None if models is None else read_models(models)
        X, arrays = pivot_log(frame, log, price_of)
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
                "expected_quality": router.expected_score_,
                "frontier": frontier_numbers(router, frontier, len(X))["frontier"],
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
    lines += [
        (names[model], f"{frontier.single_cost[model]:.4g}", f"{frontier.single_quality[model]:.3f}")
        for model in frontier.single_cost.argsort(kind="stable")
    ]
    lines.append(("this router", f"{router.expected_cost_:.4g}", f"{router.expected_score_:.3f}"))
    print_table(lines)
    print_text(f"Out of fold: {router.explain()}.")
    print_text(f"wrote {out} ({size_of(out)})")
