"""Systems as the commands use them: read rows, move to another operating point, and print results in words or as JSON.

A file of ``thrifty fit`` holds an estimator with a ``record_``: names of columns that are not features, the full model,
the goal. Commands also take estimators and chains saved from Python, which lack it.
"""

import datetime as dt
import sys
from collections.abc import Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

import thrifty.cli.router
from thrifty.arrays import Labels
from thrifty.bundle.save_load import load
from thrifty.cli.console import print_note, print_table, print_text, size_of
from thrifty.cli.options import Goal, is_many
from thrifty.engine.evidence.budgets import hold_budget
from thrifty.engine.evidence.collect import chain_of
from thrifty.engine.evidence.frontier import Frontier
from thrifty.engine.plots import draw_in_force, file_bytes, new_figure
from thrifty.engine.table.files import name_of, read_table
from thrifty.engine.table.reader import Cells
from thrifty.engine.table.table import Table
from thrifty.engine.table.training import targets_of
from thrifty.engine.tasks.ranking import RankingTask
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.explain import Explanation, explain_rows
from thrifty.errors import InvalidInputError, listed
from thrifty.learners.cascade.estimators import BudgetedCascade
from thrifty.learners.estimators.base import ChainEstimator
from thrifty.learners.routing.router import ModelRouter
from thrifty.learners.table_fit import labels_by_name, record_of
from thrifty.progress import Progress
from thrifty.reporting.facts import Facts
from thrifty.reporting.measure import expected, measure
from thrifty.reporting.page import groups_of
from thrifty.reporting.words import expected_in_words, interval_in_words, quantity, results_table, unit_of
from thrifty.scale.fit import Each, frontier_on, sample_rows
from thrifty.scale.folder import each_of_files, find_files
from thrifty.scale.scorer import Scorer, answers_of, csv_types, stage_names

_NEW_ROWS = 1000
_N_POINTS = 14


def view_of(system: Any) -> ModuleType:
    """Module that reads rows for a system and shows what it does with them: ``router`` for a router, else this one."""
    return thrifty.cli.router if isinstance(system, ModelRouter) else sys.modules[__name__]


# -- attributes of a system -----------------------------------------------------------------------


def is_number(system: Any) -> bool:
    """Whether a number is predicted, as in regression and ranking, and not a label."""
    return len(chain_of(system).classes) == 0


def method_of(system: Any) -> str:
    """Name of the method in front of the full model."""
    return "cascade" if isinstance(system, BudgetedCascade) else type(system).__name__


def column_name(system: Any, what: str) -> str:
    """Name of the column of the "target", "row_key" or "query"; empty if the file has none."""
    if what != "query":
        return str(getattr(record_of(system), what))
    is_ranking = isinstance(chain_of(system).task, RankingTask)
    # Chains of rankers have no name for it.
    return str(getattr(system, "query_name_", "") or "qid") if is_ranking else ""


def named_row_key(system: Any, row_key: str | None) -> str | None:
    """Column with the keys of the rows: that of the command line, else that of the fit."""
    return row_key or column_name(system, "row_key") or None


class Rows(NamedTuple):
    """Rows of a table.

    Attributes
    ----------
    frame : data frame
        The table.
    cells : Cells
        Its columns of the fit.
    path : Path
        Its file.
    labels : ndarray, optional
        Targets of the rows, where they are labelled.
    """

    frame: Any
    cells: Cells
    path: Path
    labels: Any = None

    @property
    def numbers(self) -> list[int]:
        """Numbers of the rows, from 1."""
        return list(map(int, self.cells.row_numbers))


def read_rows(
    system: Any,
    path: Path,
    *,
    row_key: str | None = None,
    target: str = "",
    unseen_is_missing: bool = False,
) -> Rows:
    """Read a table of new rows."""
    chain, keys = chain_of(system), named_row_key(system, row_key)
    # Levels, keys with leading zeros and labels that are text must not be read as numbers.
    labels = [target or column_name(system, "target")] if chain.classes.dtype.kind in "UO" else []
    frame = read_table(path, as_text=[*chain.schema.text_columns, keys or "", *labels])
    cells = chain.schema.cells(frame, unseen_is_missing=unseen_is_missing, row_key=keys)
    return Rows(frame, cells, path)


def labelled_rows(
    system: Any, path: Path, target: str | None, query: str | None, by: Sequence[str], n_sample: int
) -> Rows:
    """Read a table of rows with their targets; of a folder of files, a sample of at most so many."""
    schema = chain_of(system).schema
    target, query = target_columns(system, target, query)
    if is_many(path):
        each, _ = partitions_of(system, path, target, [*([query] if query else []), *by])
        # Documents of a query are drawn together.
        frame, n_rows = sample_rows(each, [query] if query else schema.names, target, n_sample)
        rows = Rows(frame, schema.cells(frame), path)
        if len(frame) < n_rows:
            print_note(f"{len(frame):,} of {n_rows:,} rows are measured, drawn by what they hold")
    else:
        rows = read_rows(system, path, target=target)
    return rows._replace(labels=targets_of(rows.frame, target, chain_of(system).classes, query))


def partitions_of(
    system: Any, table: Path, target: str, others: Sequence[str] = (), **options: Any
) -> tuple[Each, list[str]]:
    """Partitions of files of labelled rows, with the columns of the fit, the target and some others."""
    chain, names = chain_of(system), list(dict.fromkeys([target, *others]))
    types = csv_types(chain, names) | ({} if chain.classes.dtype.kind in "UO" else {target: "double"})
    columns = [*chain.schema.names, *(name for name in names if name not in chain.schema.names)]
    return each_of_files(find_files(table), columns, types=types, **options)


def expected_of(system: Any) -> Facts:
    """Expected results of new rows at the operating point in force; an error where nothing was measured."""
    if isinstance(system, ChainEstimator) and hasattr(system, "frontier_"):
        return expected(system)
    raise InvalidInputError(
        f"the file holds a {method_of(system)} that was saved from Python without evidence of held-out rows, from "
        f"which results of new rows are estimated. Save the estimator with evidence=True."
    )


def at_operating_point(system: Any, goal: Goal) -> Any:
    """The system at the operating point for a goal; unchanged without one."""
    goals = goals_for(system, goal)
    return system.at(**goals) if goals else system


def goals_for(system: Any, goal: Goal) -> dict[str, Any]:
    """Arguments of ``at`` for a goal, with limits by label; goals that the system does not know are refused."""
    goals = goal.as_dict()
    is_movable = isinstance(system, ChainEstimator | ModelRouter)
    parameters = signature(system.at).parameters if is_movable else {}
    for name, value in goals.items():
        if name not in parameters:
            raise InvalidInputError(
                f"--{name.replace('_', '-')} is not for a {method_of(system)}, which is what the file holds. Leave it "
                f"out."
            )
        if isinstance(value, dict):
            goals[name] = labels_by_name(name, value, chain_of(system).classes)
    return goals


# -- rows ------------------------------------------------------------------------------------------


def count_mostly_missing(system: Any, cells: Cells, stage: Labels) -> int:
    """Number of rows answered by the full model with more than half of its cells missing."""
    asked = cells.numbers[np.ix_(stage == "full", chain_of(system).price_list.read_by_full)]
    return int((np.isnan(asked).mean(axis=1) > 0.5).sum())


def reader_of_all_cells(system: Any, cells: Cells) -> Table:
    """Reader of all cells, also those that a row does not need; unreadable cells are missing."""
    return chain_of(system).schema.table_of(cells)


def refuse_unreadable(chain: Chain, cells: Cells) -> None:
    """Refuse a table with an unreadable cell in a column that a stage or the full model reads."""
    reader, rows = chain.reader(cells), np.arange(len(cells))
    reader.block(rows, chain.columns)
    reader.part(rows, chain.price_list.full_columns)


# -- fit -------------------------------------------------------------------------------------------


def fit_in_words(system: Any, facts: Facts, out: Path) -> None:
    """Print the summary of a fit: the system, its expected results, and the path of the file."""
    record, chosen = record_of(system), ""
    if record.full_scores:
        rivals = ", ".join(f"{name} {score:.3f}" for name, score in record.full_scores.items())
        chosen = f": best of {rivals} (cross-validated on {record.full_rows:,} rows)"
    print_text(f"The full model is {facts.full_name}{chosen}.")
    print_text(_built_in_words(system, facts))
    unit = unit_of(facts)
    n_judged = facts.n_queries or facts.n_rows
    print_text(f"Expected of new {unit}, estimated out of fold on {n_judged:,} {unit}:")
    print_table(results_table(facts))
    print_text(
        f"19 times out of 20, {_NEW_ROWS:,} new {unit} have {interval_in_words(facts, _NEW_ROWS)}. `thrifty predict "
        f"--hold-budget` holds a budget on just the rows at hand."
    )
    _print_certificate(system)
    print_text(f"wrote {out} ({size_of(out)})")


def system_numbers(system: Any, facts: Facts) -> dict[str, Any]:
    """Expected results at the operating point in force, for ``--json``."""
    certificate, chain = getattr(system, "certificate_", None), chain_of(system)
    return {
        "full": record_of(system).full or facts.full_name,
        "method": method_of(system),
        "asked": dict(record_of(system).goal) or None,
        **facts.results(0),
        f"score_interval_1000_{unit_of(facts)}": list(facts.interval(_NEW_ROWS)),
        "stages": chain.n_own_stages,
        "bought": [chain.schema.names[column] for column in chain.columns],
        "settings": dict(system.evidence_.settings),
        "certificate": None
        if certificate is None
        else {"sentence": str(certificate), **_named(system, certificate.as_dict())},
    }


def _built_in_words(system: Any, facts: Facts) -> str:
    """Stages in front of the full model and their purchases, in words."""
    chain, share = chain_of(system), facts.share[0]
    bought, n_stages = [chain.schema.names[column] for column in chain.columns], chain.n_own_stages
    order = "by row, of" if chain.has_forks else "in this order,"
    buys = f"buys, {order} {listed(bought, 8)}" if bought else "buys nothing"
    row = "row" if facts.n_queries is None else "document"
    sends = f"{100 * share:.1f} % of the {row}s are answered by the full model"
    return (
        f"The {method_of(system)} in front of the full model has {n_stages} stage{'s' if n_stages > 1 else ''} and "
        f"{buys} ({len(bought)} of {len(chain.schema.names)} columns); "
        f"{sends if share else f'it answers every {row}'}."
    )


def _print_certificate(system: Any) -> None:
    certificate = getattr(system, "certificate_", None)
    if certificate is not None:
        print_text(f"The system {certificate}.")


def _named(system: Any, entries: dict[str, Any]) -> dict[str, Any]:
    """Columns by name, and values as JSON can hold them."""
    if "features" in entries:
        names = chain_of(system).schema.names
        entries = {**entries, "features": [names[column] for column in entries["features"]]}
    if isinstance(entries.get("point"), dict):
        entries = {**entries, "point": _named(system, entries["point"])}
    return entries


# -- predict ---------------------------------------------------------------------------------------


def scorer_at(path: Path, goal: Goal, *, public_key: Path | None, **options: Any) -> Scorer:
    """Scorer of the system in a file, at the operating point for a goal."""
    goals = goals_for(load(path, public_key=public_key), goal)
    return Scorer(path, at=goals, public_key=public_key, **options)


def files_in_words(totals: dict[str, Any], scorer: Scorer, out: Path) -> None:
    """Print the number of rows of scored files, the share of the full model, and their cost."""
    dearest = "the full model" if scorer.router is None else scorer.dearest[1]
    print_text(
        f"wrote {totals['rows']:,} answers in {totals['parts']:,} parts to {out}, {totals['scored_parts']:,} of them "
        f"by this run at {totals['rows_per_second']:,.0f} rows a second"
    )
    print_text(f"mean cost {totals['mean_cost']:.4g} a row; {totals['share_full']:.1%} of rows to {dearest}")


def at_held_budget(system: Any, rows: Rows, budget: float | None, path: Path) -> tuple[Any, float]:
    """The system at the point that spends a budget, or that of its fit, on just these rows; and the budget."""
    if isinstance(system, ModelRouter):
        raise InvalidInputError(f"--hold-budget is not for a {method_of(system)}. Leave it out.")
    held = getattr(system, "budget", None) if budget is None else budget
    if held is None:
        raise InvalidInputError(
            f"{path} was fitted without a budget, so there is none to hold. Name one with --budget."
        )
    return hold_budget(system, reader_of_all_cells(system, rows.cells), held), held


def answers_table(system: Any, rows: Rows) -> Any:
    """Answer, probability, stage and cost of each row, after its query, as a data frame."""
    import pandas as pd

    chain, query = chain_of(system), column_name(system, "query")
    answers = pd.DataFrame(answers_of(chain, rows.cells))
    answers["stage"] = np.array(stage_names(chain), dtype=object)[answers["stage"]]
    if query in rows.frame.columns:
        answers.insert(0, "query", rows.frame[query].to_numpy())
    return answers


def notes_of_answers(system: Any, rows: Rows, answers: Any, row_key: str | None) -> list[str]:
    """Notes on columns that were not read, and on rows of which the full model saw little."""
    others = (*(column_name(system, what) for what in ("target", "query")), named_row_key(system, row_key))
    extra = [name for name in rows.frame.columns if name not in {*rows.cells.names, *others}]
    table = name_of(rows.path)
    notes = [f"columns of {table} that the system does not read: {listed(extra)}"] if extra else []
    n_rows = count_mostly_missing(system, rows.cells, answers["stage"].to_numpy())
    if n_rows:
        notes.append(
            f"{n_rows:,} row{'s were' if n_rows > 1 else ' was'} answered by the full model although more than half of "
            f"the cells that it reads were missing"
        )
    return notes


def answers_in_words(numbers: dict[str, Any], goal: Goal) -> None:
    """Print the number of rows, the shares of stages and full model, and their cost."""
    budget, max_loss = goal.budget, goal.max_loss
    held, expected = numbers["held_budget"], numbers["expected_cost"]
    paid = quantity(numbers["mean_cost"])
    if "queries" in numbers:
        paid += f" per document and {quantity(numbers['mean_cost_per_query'])} per query"
    print_text(
        f"wrote {numbers['file']}: {numbers['rows']:,} answers, {100 * numbers['share_full']:.1f} % of them by the "
        f"full model, mean cost {paid}"
    )
    if budget is not None and expected is not None and expected < 0.99 * budget:
        print_text(
            f"More than {quantity(expected)} per row buys nothing more: the budget of {budget:g} is not spent."
        )
    if held is not None:
        print_text(
            f"The budget of {quantity(held)} was held on these rows together: in another file a row may be answered "
            f"by another stage."
        )
    if max_loss is not None:
        allowed = max_loss if isinstance(max_loss, dict) else f"{max_loss:g}"
        print_text(f"A loss of at most {allowed} is estimated on the rows of the fit, and not proved.")


def answers_numbers(system: Any, answers: Any, out: Path, held: float | None) -> dict[str, Any]:
    """Summary of a table of answers, for ``--json``."""
    is_known = held is None and hasattr(system, "frontier_")
    found = {
        "file": str(out),
        "rows": len(answers),
        "share_full": float((answers["stage"] == "full").mean()),
        "mean_cost": float(answers["cost"].mean()),
        "mean_cost_error": float(answers["cost"].std(ddof=0) / np.sqrt(len(answers))),
        "expected_cost": float(system.expected_cost_) if is_known else None,
        "expected_score": float(system.expected_score_) if is_known else None,
        "held_budget": held,
        "routes_depend_on_batch": held is not None,
    }
    if "query" in answers:
        spent = answers.groupby("query", sort=False)["cost"].sum()
        found |= {"queries": len(spent), "mean_cost_per_query": float(spent.mean())}
    if is_number(system):
        numbers = answers["answer"]
        return found | {"answers": {name: float(getattr(numbers, name)()) for name in ("min", "mean", "max")}}
    counts = answers["answer"].value_counts()
    return found | {"answers": {str(label): int(count) for label, count in counts.items()}}


# -- explain ---------------------------------------------------------------------------------------


def explanations(system: Any, rows: Rows, places: slice) -> list[Explanation]:
    """Purchases of rows in their order, the answer of each stage, and why they stopped."""
    chain, cells = chain_of(system), rows.cells.take(np.arange(len(rows.cells))[places])
    return explain_rows(chain, chain.reader(cells), chain.schema.names)


# -- frontier --------------------------------------------------------------------------------------


def frontier_in_words(
    system: Any, facts: Facts, path: Path, frontier: Frontier | None = None, n_rows: int | None = None
) -> None:
    """Print a table of efficient points, as of the fit or on ``n_rows`` other rows, then the point in force."""
    frontier = frontier or system.frontier_
    n_rows = n_rows or frontier.n_rows
    places, chosen = np.arange(len(frontier)), frontier.chosen.cost
    if len(places) > _N_POINTS:  # those that evenly spaced budgets lead to
        places = np.unique(frontier.within(np.linspace(chosen[0], chosen[-1], _N_POINTS)))
    shown = "" if len(places) == len(frontier) else f"; {len(places)} of them, --json lists all"
    print_text(f"{path}: {len(frontier):,} efficient points on {n_rows:,} {unit_of(facts)}{shown}")
    score = chain_of(system).task.quality_name
    heads = ["tests", "mistakes", "total cost"] if frontier.is_priced else ["mean cost", score]
    lines = [[*heads, "answered by the full model"]]
    for place in places.tolist():
        point = frontier[place]
        own = [f"{point.score:.4f}"]
        if frontier.is_priced:
            own = [quantity(-point.score), quantity(point.cost - point.score)]
        share = "" if point.share is None else f"{100 * point.share:.1f} %"
        lines.append([quantity(point.cost), *own, share])
    print_table(lines)
    print_text("In force; `thrifty predict --budget` moves to any other point:")
    print_table(results_table(facts))
    print_text(_built_in_words(system, facts))
    _print_certificate(system)


def frontier_numbers(
    system: Any, facts: Facts, frontier: Frontier | None = None, n_rows: int | None = None
) -> dict[str, Any]:
    """Efficient points and the point in force, for ``--json``."""
    frontier = frontier or system.frontier_
    return {
        unit_of(facts): n_rows or frontier.n_rows,
        "chosen": system_numbers(system, facts),
        "points": [_named(system, point.as_dict()) for point in frontier],
        "least_total": int(frontier.least_total) if frontier.is_priced else None,
    }


def frontier_picture(
    system: Any, facts: Facts, kind: str, frontier: Frontier | None = None, n_rows: int | None = None
) -> bytes:
    """Plot of the score, or the cost of mistakes, against mean cost, with the point in force and the full model."""
    del n_rows  # which words tell
    frontier, sign = frontier or system.frontier_, -1.0 if facts.kind == "bill" else 1.0
    figure, (ax,) = new_figure()
    frontier.plot(ax, label="efficient points")
    full = None
    if facts.cost.full is not None and system.evidence_.full_quality is not None:
        full = facts.cost.full, sign * system.evidence_.full_score
    draw_in_force(ax, system.expected_cost_, sign * system.expected_score_, full=full, label="in force")
    return file_bytes(figure, kind)


def measured_frontier(
    system: Any, path: Path, target: str | None, *, n_jobs: int, progress: Progress
) -> dict[str, Any]:
    """Frontier with means over all rows of a table, which may be larger than memory, and their number."""
    if isinstance(system, ModelRouter):
        raise InvalidInputError(
            "the points of a router are measured on a log by `thrifty report`. Leave TABLE out."
        )
    expected_of(system)  # refuses a system without points
    name, _ = target_columns(system, target)
    each, _ = partitions_of(system, path, name, n_jobs=n_jobs, progress=progress)
    means, n_rows = frontier_on(system, each, name)
    return {"frontier": replace(system.frontier_, means=means, held_out=True), "n_rows": n_rows}


# -- report ----------------------------------------------------------------------------------------


def target_columns(system: Any, target: str | None, query: str | None = None) -> tuple[str, str]:
    """Names of the columns of the target and of queries, from the file or from the options.

    The target is named where the file does not know it; queries may be named where it holds a ranker by itself.
    """
    known, queries = column_name(system, "target"), column_name(system, "query")
    if query is not None and (known or not queries):
        found = f"the file names {queries!r}" if queries else "the file holds no ranker"
        raise InvalidInputError(
            f"--query is for a ranker that was saved from Python; got --query {query}, and {found}. Leave it out."
        )
    if known and target not in (None, known):
        raise InvalidInputError(
            f"--target must be {known!r}, the column that the system was fitted to predict, or be left out; got "
            f"{target!r}."
        )
    if not known and target is None:
        raise InvalidInputError(
            f"the file holds a {method_of(system)} that was saved from Python, and has no name of the column that "
            f"it predicts. Give it with --target."
        )
    return target or known, query or queries


def measured(system: Any, rows: Rows, by: Sequence[str]) -> tuple[Facts, dict[str, Any], list[str]]:
    """Results on labelled rows, for the page; what is printed besides, as numbers and in words."""
    groups = groups_of(by, rows.frame)
    expected = expected_of(system)
    refuse_unreadable(chain_of(system), rows.cells)
    facts = measure(system, reader_of_all_cells(system, rows.cells), rows.labels, by=groups)
    words = expected_in_words(facts, expected)
    notes = (("Expected at the fit", words), ("Date", dt.date.today().isoformat()))
    ends = expected.interval(facts.n_queries or facts.n_rows)
    numbers = {"expected": {**expected.results(0), "score_interval": list(ends)}}
    return replace(facts, notes=notes), numbers, [f"The fit expected {words}."]


def report_in_words(facts: Facts, sentences: Sequence[str], out: Path) -> None:
    """Print the results of the point in force on the new rows, some sentences, and the path of the page."""
    queries = "" if facts.n_queries is None else f" of {facts.n_queries:,} queries"
    print_text(f"On {facts.n_rows:,} rows{queries}:")
    print_table(results_table(facts, facts.start))
    for sentence in sentences:
        print_text(sentence)
    print_text(f"wrote {out} ({size_of(out)})")
