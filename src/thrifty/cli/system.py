"""Systems as the commands use them: read rows, move to another operating point, and print results in words or as JSON.

A file of ``thrifty fit`` holds an estimator with a ``record_``: names of columns that are not features, the full model,
the goal. Commands also take estimators and chains saved from Python, which lack it, and routers of ``thrifty route``,
whose rows are texts or numbers, or a log of what the models returned.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from thrifty.arrays import Labels
from thrifty.cli.console import print_note, print_table, print_text, size_of
from thrifty.cli.options import Goal, is_many
from thrifty.engine.evidence.budgets import hold_budget
from thrifty.engine.evidence.collect import chain_of
from thrifty.engine.evidence.frontier import Frontier
from thrifty.engine.plots import draw_in_force, file_bytes, new_figure
from thrifty.engine.prices.billing import amount_text, costs_text
from thrifty.engine.table.files import name_of, read_table
from thrifty.engine.table.reader import Cells, Schema
from thrifty.engine.table.table import Table
from thrifty.engine.table.training import targets_of
from thrifty.engine.tasks.ranking import RankingTask
from thrifty.engine.tasks.task import Task
from thrifty.engine.walk.chain import explain_rows
from thrifty.errors import InvalidInputError, listed
from thrifty.learners.cascade.estimators import BudgetedCascade
from thrifty.learners.estimators.base import ChainEstimator
from thrifty.learners.routing.frontier import RouterFrontier
from thrifty.learners.routing.log_files import COLUMN_OF, pivot_log, pivot_runs
from thrifty.learners.routing.model_cascade import ModelCascade
from thrifty.learners.routing.router import ModelRouter
from thrifty.learners.table_fit import labels_by_name, record_of
from thrifty.progress import Progress
from thrifty.reporting.facts import Facts
from thrifty.reporting.measure import expected, measure
from thrifty.reporting.page import groups_of
from thrifty.reporting.words import (
    expected_in_words,
    interval_in_words,
    lot_text,
    quantity,
    results_table,
    unit_of,
)
from thrifty.scale.fit import Each, frontier_on, sample_rows
from thrifty.scale.folder import each_of_files, find_files
from thrifty.scale.scorer import Scorer, answers_of, csv_types, resource_columns, stage_names

_MOVABLE = (ChainEstimator, ModelRouter, ModelCascade)
_NEW_ROWS = 1000
_MAX_POINTS, _N_POINTS = 100, 14


# -- attributes of a system -----------------------------------------------------------------------


def method_of(system: Any) -> str:
    """Name of the method in front of the full model."""
    return "cascade" if isinstance(system, BudgetedCascade) else type(system).__name__


def column_name(system: Any, part: str) -> str:
    """Name of the column of the "target", "row_key" or "query"; empty if the file has none."""
    if part != "query":
        return str(getattr(record_of(system), part))
    is_ranking = isinstance(_task_of(system), RankingTask)
    # Chains of rankers have no name for it.
    return str(getattr(system, "query_name_", "") or "qid") if is_ranking else ""


def _schema_of(system: Any) -> Schema:
    return system.schema_ if isinstance(system, ModelCascade) else chain_of(system).schema


def _task_of(system: Any) -> Task:
    return system.task_ if isinstance(system, ModelCascade) else chain_of(system).task


def named_row_key(system: Any, row_key: str | None) -> str | None:
    """Column with the keys of the rows: that of the command line, else that of the fit."""
    return row_key or column_name(system, "row_key") or None


class Rows(NamedTuple):
    """Rows of a table.

    Attributes
    ----------
    frame : data frame
        The table.
    X : Cells, data frame, ndarray or list of str
        Its columns of the fit; of a router, numbers or texts.
    path : Path
        Its file.
    labels : ndarray or dict, optional
        Targets of the rows, where they are labelled; of a router, the arguments of ``replay`` where they are a log.
    """

    frame: Any
    X: Any
    path: Path
    labels: Any = None

    @property
    def numbers(self) -> list[int]:
        """Numbers of the rows, from 1."""
        return list(map(int, getattr(self.X, "row_numbers", range(1, len(self.X) + 1))))


def read_rows(
    system: Any,
    path: Path,
    *,
    row_key: str | None = None,
    target: str = "",
    unseen_is_missing: bool = False,
) -> Rows:
    """Read a table of new rows, or for a router a log with a line for each row and model."""
    if isinstance(system, ModelRouter):
        frame = read_table(path)
        is_log = {"model", COLUMN_OF[system.outcome]} <= {*frame.columns}
        return Rows(frame, *(_read_log(system, frame, path) if is_log else (system.rows_of(frame), path)))
    schema, keys = _schema_of(system), named_row_key(system, row_key)
    # Levels, keys with leading zeros and labels that are text must not be read as numbers.
    labels = [target or column_name(system, "target")] if _task_of(system).classes.dtype.kind in "UO" else []
    frame = read_table(path, as_text=[*schema.text_columns, keys or "", *labels])
    cells = schema.cells(frame, unseen_is_missing=unseen_is_missing, row_key=keys)
    return Rows(frame, cells, path)


def _read_log(router: ModelRouter, frame: Any, path: Path) -> tuple[Any, Path, dict[str, Any]]:
    """Rows, path and values of a log, with a column for each model of the router."""
    names = list(router.model_prices)
    steps = router.state_.groups
    if router.cutoff is None:
        X, arrays = pivot_log(frame, path, outcome=router.outcome)
    else:
        X, arrays = pivot_runs(frame, path, steps)
    place_of = {name: place for place, name in enumerate(arrays.pop("models"))}
    missing = [name for name in router.state_.models if name not in place_of]
    if missing:
        raise InvalidInputError(f"{path} must have lines of the model {missing[0]!r}, which may be asked.")
    if X is None:
        X = frame["id"].drop_duplicates().tolist()
    logged = [place for place, name in enumerate(names) if name in place_of]

    def of_router(values: Any) -> Any:
        if isinstance(values, dict):  # costs by resource
            return {resource: of_router(of_one) for resource, of_one in values.items()}
        if hasattr(values, "columns"):  # run times
            return values.reindex(columns=list(dict.fromkeys([*names, *values.columns])))
        whole = np.full((len(values), len(names)), None if values.dtype == object else np.nan)
        whole[:, logged] = values[:, [place_of[names[place]] for place in logged]]
        return whole

    return X, path, {argument: of_router(values) for argument, values in arrays.items()}


def labelled_rows(
    system: Any, path: Path, target: str | None, query: str | None, by: Sequence[str], n_sample: int
) -> Rows:
    """Read a table of rows with their targets; of a folder of files, a sample of at most so many."""
    if isinstance(system, ModelRouter):
        if target or query:
            raise InvalidInputError("--target and --query are for estimators; a router reads a log.")
        return read_rows(system, path)
    if target is None and getattr(system, "reference_", None) is not None:  # whose answers are the targets
        return read_rows(system, path)
    schema = _schema_of(system)
    target, query = target_columns(system, target, query)
    if is_many(path):
        each = partitions_of(system, path, target, [*([query] if query else []), *by])
        # Documents of a query are drawn together.
        frame, n_rows = sample_rows(each, [query] if query else schema.names, target, n_sample)
        rows = Rows(frame, schema.cells(frame), path)
        if len(frame) < n_rows:
            print_note(f"{len(frame):,} of {n_rows:,} rows are measured, drawn by what they hold")
    else:
        rows = read_rows(system, path, target=target)
    return rows._replace(labels=targets_of(rows.frame, target, _task_of(system).classes, query))


def partitions_of(system: Any, table: Path, target: str, others: Sequence[str] = (), **options: Any) -> Each:
    """Partitions of files of labelled rows, with the columns of the fit, the target and some others."""
    chain, names = chain_of(system), list(dict.fromkeys([target, *others]))
    types = csv_types(chain, names) | ({} if chain.classes.dtype.kind in "UO" else {target: "double"})
    columns = [*chain.schema.names, *(name for name in names if name not in chain.schema.names)]
    return each_of_files(find_files(table), columns, types=types, **options)[0]


def expected_of(system: Any) -> Facts:
    """Expected results of new rows at the operating point in force; an error where nothing was measured."""
    _frontier_of(system)
    return expected(system)


def _frontier_of(system: Any) -> Frontier:
    """Operating points of a system; an error where nothing was measured."""
    if isinstance(system, _MOVABLE) and hasattr(system, "frontier_"):
        frontier: Frontier = system.frontier_
        return frontier
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
    is_movable = isinstance(system, _MOVABLE)
    parameters = signature(system.at).parameters if is_movable else {}
    for name, value in goals.items():
        if name not in parameters:
            raise InvalidInputError(
                f"--{name.replace('_', '-')} is not for a {method_of(system)}, which is what the file holds. Leave it "
                f"out."
            )
        if isinstance(value, dict) and name not in ("budget", "cap"):
            goals[name] = labels_by_name(name, value, chain_of(system).classes)
    return goals


def count_mostly_missing(system: Any, cells: Cells, stage: Labels) -> int:
    """Number of rows answered by the full model with more than half of its cells missing."""
    asked = cells.numbers[np.ix_(stage == "full", chain_of(system).price_list.read_by_full)]
    return int((np.isnan(asked).mean(axis=1) > 0.5).sum())


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
    print_text(
        f"Expected of new {unit}, estimated out of fold on {facts.n_queries or facts.n_rows:,} {unit}:"
    )
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
        "share_by_lot": facts.by_lot,
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
    drawn = f" In the mix in force {lot_text(facts)}." if facts.by_lot else ""
    return (
        f"The {method_of(system)} in front of the full model has {n_stages} stage{'s' if n_stages > 1 else ''} and "
        f"{buys} ({len(bought)} of {len(chain.schema.names)} columns); "
        f"{sends if share else f'it answers every {row}'}.{drawn}"
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


MUCH_DEARER = 1.05
"""Expected cost of new rows, as a multiple of that of the rows of the fit, from which on a note says so."""


# -- predict ---------------------------------------------------------------------------------------


def files_in_words(totals: dict[str, Any], scorer: Scorer, out: Path) -> None:
    """Print the number of rows of scored files, the share of the full model, and their cost."""
    dearest = "the full model" if scorer.router is None else scorer.dearest[1]
    print_text(
        f"wrote {totals['rows']:,} answers in {totals['parts']:,} parts to {out}, {totals['scored_parts']:,} of them "
        f"by this run at {totals['rows_per_second']:,.0f} rows a second"
    )
    costs = {name[5:]: totals[f"mean_{name}"] for name in scorer.resource_columns}
    cost = costs_text(costs) if costs else f"{totals['mean_cost']:.4g}"
    print_text(f"mean cost {cost} a row; {totals['share_full']:.1%} of rows to {dearest}")


def at_held_budget(system: Any, rows: Rows, budget: Any, path: Path) -> tuple[Any, float]:
    """The system at the point that spends a budget, or that of its fit, on just these rows; and the budget."""
    if isinstance(system, ModelRouter | ModelCascade):
        raise InvalidInputError(f"--hold-budget is not for a {method_of(system)}. Leave it out.")
    held = getattr(system, "budget", None) if budget is None else budget
    if held is None:
        raise InvalidInputError(
            f"{path} was fitted without a budget, so there is none to hold. Name one with --budget."
        )
    return hold_budget(system, chain_of(system).schema.table_of(rows.X), held), held


def answers_table(system: Any, rows: Rows) -> Any:
    """Answer, probability, stage and cost of each row, after its query, as a data frame.

    Of a router: the first model to ask and the expected cost; of a log, what is asked, paid and got.
    """
    import pandas as pd

    if isinstance(system, ModelCascade):
        return pd.DataFrame(system.answers(_read_whole(system, rows.X)))
    if isinstance(system, ModelRouter):
        if rows.labels is None:
            model, cost = system.first_asked(rows.X)
            return pd.DataFrame({"model": model, **system.cost_columns(cost)})
        replay = system.replay(rows.X, **rows.labels)
        asked = [" ".join(filter(None, names)) for names in replay.asked.tolist()]
        paid = system.cost_columns(replay.cost if replay.costs is None else replay.costs)
        columns = {"asked": asked, "model": replay.model, **paid, "quality": replay.quality}
        return pd.DataFrame(columns | ({} if replay.ips is None else {"ips": replay.ips}))
    chain, query = chain_of(system), column_name(system, "query")
    answers = pd.DataFrame(answers_of(chain, rows.X))
    answers["stage"] = np.array(stage_names(chain), dtype=object)[answers["stage"]]
    if query in rows.frame.columns:
        answers.insert(0, "query", rows.frame[query].to_numpy())
    return answers


def _read_whole(system: ModelCascade, cells: Cells) -> Table:
    """Rows with all of their columns, which models read; one that cannot be read is refused."""
    cells.refuse_unreadable()
    return system.schema_.table_of(cells)


def notes_of_answers(system: Any, rows: Rows, answers: Any, row_key: str | None) -> list[str]:
    """Notes on columns that were not read, rows of which the full model saw little, and rows dearer than expected."""
    if isinstance(system, ModelRouter):
        expected = system.policy_.expected_cost + system.state_.mixing_cost(system.policy_)
        cost = float(answers["cost"].mean()) if len(answers) else 0.0
        if "quality" in answers or cost <= MUCH_DEARER * expected:
            return []
        note = (
            f"the rows of {name_of(rows.path)} are expected to cost {cost:.3g} in the mean, those of the fit "
            f"{expected:.3g}: they seem harder. A smaller --budget costs less."
        )
        return [note]
    others = (*(column_name(system, part) for part in ("target", "query")), named_row_key(system, row_key))
    extra = [name for name in rows.frame.columns if name not in {*rows.X.names, *others}]
    table = name_of(rows.path)
    notes = [f"columns of {table} that the system does not read: {listed(extra)}"] if extra else []
    n_rows = (
        0 if "stage" not in answers else count_mostly_missing(system, rows.X, answers["stage"].to_numpy())
    )
    if n_rows:
        notes.append(
            f"{n_rows:,} row{'s were' if n_rows > 1 else ' was'} answered by the full model although more than half of "
            f"the cells that it reads were missing"
        )
    return notes


def answers_in_words(numbers: dict[str, Any], goal: Goal) -> None:
    """Print the number of rows, the shares of models or of the full model, and their cost; of a log, the quality."""
    if "models" in numbers:
        shares = ", ".join(f"{name} {n:,}" for name, n in numbers["models"].items())
        print_text(f"wrote {numbers['rows']:,} rows to {numbers['file']}: {shares}")
        paid_of_router = amount_text(numbers.get("costs", numbers["cost"]))
        if "quality" not in numbers:
            print_text(f"{'mean' if 'answers' in numbers else 'expected'} cost {paid_of_router} a row")
            return
        n_known = numbers["rows_of_known_quality"]
        words = f" in the {n_known:,} rows that asked the same model" if n_known < numbers["rows"] else ""
        words = f" (doubly robust; inverse propensity {numbers['ips']:.3f})" if "ips" in numbers else words
        print_text(f"quality {numbers['quality']:.3f}{words} for {paid_of_router} a row")
        return
    budget, max_loss = goal.budget, goal.max_loss
    held, expected = numbers["held_budget"], numbers["expected_cost"]
    paid = (
        quantity(numbers["mean_cost"]) if "mean_costs" not in numbers else costs_text(numbers["mean_costs"])
    )
    if "queries" in numbers:
        paid += f" per document and {quantity(numbers['mean_cost_per_query'])} per query"
    print_text(
        f"wrote {numbers['file']}: {numbers['rows']:,} answers, {100 * numbers['share_full']:.1f} % of them by the "
        f"full model, mean cost {paid}"
    )
    if isinstance(budget, float) and expected is not None and expected < 0.99 * budget:
        paid = f"{quantity(expected)} per row"
        reason = f"more than {paid} buys nothing more"
        if goal.mix is False:
            reason = f"without a mix, {paid} is the dearest operating point within it"
        print_text(f"The budget of {budget:g} is not spent: {reason}.")
    if held is not None:
        shown = costs_text(held) if isinstance(held, dict) else quantity(held)
        print_text(
            f"The budget of {shown} was held on these rows together: in another file a row may be answered "
            f"by another stage."
        )
    if max_loss is not None:
        allowed = max_loss if isinstance(max_loss, dict) else f"{max_loss:g}"
        print_text(f"A loss of at most {allowed} is estimated on the rows of the fit, and not proved.")


def answers_numbers(system: Any, answers: Any, out: Path, held: float | None) -> dict[str, Any]:
    """Summary of a table of answers, for ``--json``."""
    numbers: dict[str, Any] = {"file": str(out), "rows": len(answers)}
    if "model" in answers:
        numbers["models"] = answers["model"].value_counts().to_dict()
        if "answer" in answers:
            numbers |= _counted(system, answers["answer"])
        if "quality" in answers:
            numbers["rows_of_known_quality"] = int(answers["quality"].notna().sum())
        measured = [name for name in ("cost", "quality", "ips") if name in answers]
        costs = {
            name[5:]: float(answers[name].mean()) for name in answers.columns if name.startswith("cost_")
        }
        return {**numbers, **answers[measured].mean(), **({"costs": costs} if costs else {})}
    is_known = held is None and hasattr(system, "frontier_")
    numbers |= {
        "share_full": float((answers["stage"] == "full").mean()),
        "mean_cost": float(answers["cost"].mean()),
        "mean_cost_error": float(answers["cost"].std(ddof=0) / np.sqrt(len(answers))),
        "expected_cost": system.expected_cost_ if is_known else None,
        "expected_score": float(system.expected_score_) if is_known else None,
        "held_budget": held,
        "routes_depend_on_batch": held is not None,
    }
    if by_resource := resource_columns(chain_of(system)):
        numbers["mean_costs"] = {name[5:]: float(answers[name].mean()) for name in by_resource}
    if "query" in answers:
        spent = answers.groupby("query", sort=False)["cost"].sum()
        numbers |= {"queries": len(spent), "mean_cost_per_query": float(spent.mean())}
    return numbers | _counted(system, answers["answer"])


def _counted(system: Any, answers: Any) -> dict[str, Any]:
    """Numbers of rows with each label, or least, mean and largest number."""
    if len(_task_of(system).classes):
        return {"answers": {str(label): int(count) for label, count in answers.value_counts().items()}}
    return {"answers": answers.agg(["min", "mean", "max"]).to_dict()}


# -- explain ---------------------------------------------------------------------------------------


def explanations(system: Any, rows: Rows, places: slice) -> Sequence[Any]:
    """Purchases of rows in their order, the answer of each stage or model, and why they stopped."""
    if isinstance(system, ModelRouter):
        log = {
            name: {resource: of_one[places] for resource, of_one in values.items()}
            if isinstance(values, dict)
            else values[places]
            for name, values in (rows.labels or {}).items()
            if name != "propensity"
        }
        X = rows.X.iloc[places] if hasattr(rows.X, "iloc") else rows.X[places]
        return list(system.explain(X, **log))
    cells = rows.X.take(np.arange(len(rows.X))[places])
    if isinstance(system, ModelCascade):
        explained: Sequence[Any] = system.explain(_read_whole(system, cells))
        return explained
    chain = chain_of(system)
    return explain_rows(chain, chain.reader(cells), chain.schema.names)


# -- frontier --------------------------------------------------------------------------------------


def frontier_on_table(
    system: Any, path: Path | None, target: str | None, *, n_jobs: int, progress: Progress
) -> tuple[Frontier, int]:
    """Frontier of the fit, or with means over all rows of a table, which may be larger than memory; number of rows."""
    frontier = _frontier_of(system)
    if path is None:
        return frontier, frontier.n_rows
    if isinstance(system, ModelRouter):
        raise InvalidInputError(
            "the points of a router are measured on a log by `thrifty report`. Leave TABLE out."
        )
    if isinstance(system, ModelCascade):
        rows = labelled_rows(system, path, target, None, (), 0)
        return frontier.on([system.evidence_on(_read_whole(system, rows.X), rows.labels)]), len(rows.X)
    name, _ = target_columns(system, target)
    each = partitions_of(system, path, name, n_jobs=n_jobs, progress=progress)
    means, n_rows = frontier_on(system, each, name)
    return replace(frontier, means=means, held_out=True), n_rows


def frontier_in_words(system: Any, frontier: Frontier, n_rows: int, path: Path) -> None:
    """Print a table of efficient points, then the point in force."""
    if isinstance(frontier, RouterFrontier):
        print_text(f"{path}: {len(frontier):,} efficient points on {n_rows:,} rows")
        costs: Any = frontier.cost.tolist()
        if frontier.resources is not None and frontier.costs is not None:
            costs = [frontier.resources.named(line) for line in frontier.costs]
        points = zip(frontier.rule, costs, frontier.score, strict=True)
        cells = [(rule, amount_text(cost), f"{quality:.3f}") for rule, cost, quality in points]
        print_table([("rule", "cost", frontier.score_name), *cells])
        print_text(f"Out of fold: {system.explain()}.")
        return
    facts = expected_of(system)
    places, chosen = np.arange(len(frontier)), frontier.chosen.cost
    if len(places) > _MAX_POINTS:  # every threshold of a gate: those that evenly spaced budgets lead to
        places = np.unique(frontier.within(np.linspace(chosen[0], chosen[-1], _N_POINTS)))
    shown = "" if len(places) == len(frontier) else f"; {len(places)} of them, --json lists all"
    print_text(f"{path}: {len(frontier):,} efficient points on {n_rows:,} {unit_of(facts)}{shown}")
    score = chain_of(system).task.quality_name
    heads = ["tests", "mistakes", "total cost"] if frontier.is_priced else ["mean cost", score]
    resources, costs = chain_of(system).price_list.resources, frontier.costs
    if resources is not None and costs is not None:
        heads[:1] = [f"mean cost in {name}" for name in resources.names]
    lines = [[*heads, "answered by the full model"]]
    for place in places.tolist():
        point = frontier[place]
        scores = [f"{point.score:.4f}"]
        if frontier.is_priced:
            scores = [quantity(-point.score), quantity(point.cost - point.score)]
        share = "" if point.share is None else f"{100 * point.share:.1f} %"
        paid = [point.cost] if costs is None else costs[place]
        lines.append([*map(quantity, paid), *scores, share])
    print_table(lines)
    print_text("In force; `thrifty predict --budget` moves to any other point:")
    print_table(results_table(facts))
    print_text(_built_in_words(system, facts))
    _print_certificate(system)


def frontier_numbers(system: Any, frontier: Frontier, n_rows: int) -> dict[str, Any]:
    """Efficient points and the point in force, for ``--json``."""
    if isinstance(frontier, RouterFrontier):
        points = {"cost": frontier.cost, frontier.score_name: frontier.score, "rule": frontier.rule}
        if frontier.resources is not None and frontier.costs is not None:
            points["costs"] = dict(zip(frontier.resources.names, frontier.costs.T.tolist(), strict=True))
        return {"frontier": {**points, "aiq": frontier.aiq}}
    facts = expected_of(system)
    return {
        unit_of(facts): n_rows,
        "chosen": system_numbers(system, facts),
        "points": [_named(system, point.as_dict()) for point in frontier],
        **({} if frontier.costs is None else {"costs": _by_name(system, frontier.costs)}),
        "least_total": int(frontier.least_total) if frontier.is_priced else None,
    }


def _by_name(system: Any, costs: Any) -> dict[str, list[float]]:
    """Columns of costs by the names of several resources."""
    resources = chain_of(system).price_list.resources
    assert resources is not None  # there are several
    return dict(zip(resources.names, costs.T.tolist(), strict=True))


def frontier_picture(system: Any, frontier: Frontier, kind: str) -> bytes:
    """Plot of the score, or the cost of mistakes, against mean cost, with the point in force and the full model."""
    figure, (ax,) = new_figure()
    frontier.plot(ax, label="efficient points")
    sign, full = -1.0 if frontier.is_priced else 1.0, None
    if isinstance(system, ChainEstimator) and system.evidence_.full_quality is not None:
        full = chain_of(system).price_list.cost_of_full, sign * system.evidence_.full_score
    plan = system.router_ if isinstance(system, ModelCascade) else system  # by the score of the frontier
    cost = plan.expected_cost_
    if isinstance(cost, dict):  # by resource
        cost = (plan.policy_ if isinstance(plan, ModelRouter) else chain_of(plan).policy).expected_cost
    draw_in_force(ax, cost, sign * plan.expected_score_, full=full, label="in force")
    return file_bytes(figure, kind)


# -- report ----------------------------------------------------------------------------------------


def target_columns(system: Any, target: str | None, query: str | None = None) -> tuple[str, str]:
    """Names of the columns of the target and of queries, from the file or from the options.

    The target is named where the file does not know it; queries may be named where it holds a ranker by itself.
    """
    fitted, queries = column_name(system, "target"), column_name(system, "query")
    if query is not None and (fitted or not queries):
        holds = f"the file names {queries!r}" if queries else "the file holds no ranker"
        raise InvalidInputError(
            f"--query is for a ranker that was saved from Python; got --query {query}, and {holds}. Leave it out."
        )
    if fitted and target not in (None, fitted):
        raise InvalidInputError(
            f"--target must be {fitted!r}, the column that the system was fitted to predict, or be left out; got "
            f"{target!r}."
        )
    if not fitted and target is None:
        raise InvalidInputError(
            f"the file holds a {method_of(system)} that was saved from Python, and has no name of the column that "
            f"it predicts. Give it with --target."
        )
    return target or fitted, query or queries


def measured(system: Any, rows: Rows, by: Sequence[str]) -> tuple[Facts, dict[str, Any], list[str]]:
    """Results on labelled rows, for the page; what is printed besides, as numbers and in words."""
    if isinstance(system, ModelRouter):
        return _measured_on_log(system, rows, by)
    groups = groups_of(by, rows.frame)
    if isinstance(system, ModelCascade):
        return _asked(system, measure(system, _read_whole(system, rows.X), rows.labels, by=groups))
    expected = expected_of(system)
    chain = chain_of(system)
    # An unreadable cell is refused in a column that a stage or the full model reads, and missing in all others.
    reader, every = chain.reader(rows.X), np.arange(len(rows.X))
    reader.block(every, chain.columns)
    reader.part(every, chain.price_list.full_columns)
    facts = measure(system, chain.schema.table_of(rows.X), rows.labels, by=groups)
    words = expected_in_words(facts, expected)
    notes = (*facts.notes, ("Expected at the fit", words), ("Date", dt.date.today().isoformat()))
    ends = expected.interval(facts.n_queries or facts.n_rows)
    numbers = {"expected": {**expected.results(0), "score_interval": list(ends)}}
    return replace(facts, notes=notes), numbers, [f"The fit expected {words}."]


def _measured_on_log(
    router: ModelRouter, rows: Rows, by: Sequence[str]
) -> tuple[Facts, dict[str, Any], list[str]]:
    """As ``measured``, of a router on a log."""
    if rows.labels is None:
        raise InvalidInputError(
            f"{rows.path} must be a log to report on, with a line for each row and model: columns model and "
            f"{COLUMN_OF[router.outcome]}."
        )
    frame, log = rows.frame, {name: values for name, values in rows.labels.items() if name != "propensity"}
    unknown = [name for name in by if name not in frame.columns]
    if unknown:
        raise InvalidInputError(f"--by must name a column of {rows.path}; got {unknown[0]!r}.")
    of_step = frame["model"].astype(str).isin(router.state_.groups)
    read = frame[COLUMN_OF[router.outcome]].notna() if router.cutoff is None else ~of_step
    groups = frame[read].drop_duplicates("id" if "id" in frame.columns else "text")
    facts = measure(
        router, rows.X, log.pop("quality"), **log, by={name: groups[name].to_numpy() for name in by}
    )
    return _asked(router, facts)


def _asked(system: Any, facts: Facts) -> tuple[Facts, dict[str, Any], list[str]]:
    """Shares of rows that ask each model, and what is expected of the plan, beside a report."""
    models = {
        purchase.name: {"share": share, "cost": spent}
        for purchase, share, spent in zip(
            facts.purchases, facts.bought[facts.start], facts.spent[facts.start], strict=True
        )
    }
    shares = [f"{name} {100 * model['share']:.1f} %" for name, model in models.items() if model["share"]]
    return facts, {"models": models}, [f"Asked: {', '.join(shares)}.", f"Out of fold: {system.explain()}."]


def report_in_words(facts: Facts, sentences: Sequence[str], out: Path) -> None:
    """Print the results of the point in force on the new rows, some sentences, and the path of the page."""
    queries = "" if facts.n_queries is None else f" of {facts.n_queries:,} queries"
    print_text(f"On {facts.n_rows:,} rows{queries}:")
    print_table(results_table(facts, facts.start))
    for sentence in sentences:
        print_text(sentence)
    print_text(f"wrote {out} ({size_of(out)})")
