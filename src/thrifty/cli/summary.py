"""Output of ``thrifty fit``, ``predict``, ``frontier`` and ``report``: in words, and as numbers for ``--json``."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from thrifty.arrays import Labels
from thrifty.cli.console import number, print_text, quantity, size_of
from thrifty.cli.system import (
    column_name,
    frontier_of,
    full_name,
    goal_of,
    is_number,
    is_priced,
    key_of,
    method_of,
    n_fitted,
    named_row_key,
    promised,
    reader_of_all_cells,
    refuse_unreadable,
    seed_of,
    unit_of,
)
from thrifty.errors import InvalidInputError
from thrifty.evidence.certificate import Certificate
from thrifty.evidence.frontier import Frontier, OperatingPoint
from thrifty.evidence.observe import chain_of
from thrifty.evidence.promise import Promise
from thrifty.full.candidates import KINDS, KindComparison
from thrifty.plots import COLOURS, draw_marks, draw_measures, file_bytes, new_figure
from thrifty.reporting.facts import Facts
from thrifty.reporting.measure import measure
from thrifty.tables.frames import listed
from thrifty.tasks.ranking import check_metric
from thrifty.tasks.task import ERRORS

__all__ = [
    "answers_in_words",
    "answers_numbers",
    "fit_in_words",
    "fit_numbers",
    "frontier_in_words",
    "frontier_numbers",
    "frontier_picture",
    "measured_on",
    "report_in_words",
    "target_columns",
]

_NEW_ROWS = 1000
_N_POINTS = 14
_N_BOOT = 400


# -- fit -------------------------------------------------------------------------------------------


def fit_in_words(system: Any, numbers: dict[str, Any]) -> None:
    """Print the summary of a fit: the system, its expected results, and the path of the file."""
    kind, key, unit = KINDS.get(numbers["full"], numbers["full"]), key_of(system), unit_of(system)
    if numbers["full_candidates"] is None:
        print_text(f"The full model is {kind}.")
    else:
        rivals = ", ".join(f"{name} {score:.3f}" for name, score in numbers["full_candidates"].items())
        on = f"cross-validated on {numbers['full_candidates_rows']:,} rows"
        print_text(f"The full model is {kind}: best of {rivals} ({on}).")
    print_text(_built_in_words(system, numbers))
    name, (low, high) = chain_of(system).task.quality_name, numbers[f"{key}_interval"]
    paid = _paid_in_words(numbers["mean_cost"], numbers.get("mean_cost_per_query"))
    print_text(
        f"{name[:1].upper()}{name[1:]} {numbers[key]:.4f} ({low:.4f} to {high:.4f}) at a mean cost of {paid}, measured "
        f"on {numbers.get('queries', numbers['rows']['measured']):,} {unit} by models that had not seen them."
    )
    _print_promise(system, numbers)
    low, high = numbers[f"{key}_interval_1000_{unit}"]
    print_text(
        f"19 times out of 20, {_NEW_ROWS:,} new {unit} have {'a' if name[:1] in 'Dm' else 'an'} {name} of {low:.4f} to "
        f"{high:.4f}. {_strays(system, numbers)}"
    )
    if numbers["certificate"] is not None:
        print_text(f"The system {numbers['certificate']['sentence']}.")
    print_text(f"wrote {numbers['file']} ({size_of(Path(numbers['file']))})")


def fit_numbers(
    system: Any, comparison: KindComparison | None, notes: Sequence[str], out: Path
) -> dict[str, Any]:
    """Summary of a fit for ``--json``."""
    return {
        "file": str(out),
        "bytes": out.stat().st_size,
        "full_candidates": None if comparison is None else comparison.scores,
        "full_candidates_rows": None if comparison is None else comparison.n_rows,
        **_numbers_of(system),
        "notes": list(notes),
    }


def _paid_in_words(cost: float, query_cost: float | None, interval: str = "") -> str:
    """Mean cost with its interval in words; per document and per query for rankings."""
    if query_cost is None:
        return quantity(cost) + interval
    return f"{quantity(cost)}{interval} per document and {quantity(query_cost)} per query"


def _built_in_words(system: Any, numbers: dict[str, Any]) -> str:
    """Stages in front of the full model and their purchases, in words."""
    bought, stages, share = numbers["bought"], numbers["stages"], numbers["share_full"]
    order = "by row, of" if chain_of(system).has_forks else "in this order,"
    buys = f"buys, {order} {listed(bought, 8)}" if bought else "buys nothing"
    rows, row = ("documents", "document") if column_name(system, "query") else ("rows", "row")
    sends = f"{100 * share:.1f} % of the {rows} are answered by the full model"
    return (
        f"The {numbers['method']} in front of the full model has {stages} stage{'s' if stages > 1 else ''} and {buys} "
        f"({len(bought)} of {len(chain_of(system).schema.names)} columns); "
        f"{sends if share else f'it answers every {row}'}."
    )


def _strays(system: Any, numbers: dict[str, Any]) -> str:
    """Interval of the mean cost of new rows, in words."""
    unit, what = unit_of(system), "per document " if column_name(system, "query") else ""
    cost, spread = numbers["mean_cost"], 1.96 * numbers[f"mean_cost_spread_1000_{unit}"]
    theirs = _between(max(cost - spread, 0.0), cost + spread)
    of_all = _between(*numbers["mean_cost_interval"])
    if theirs == of_all:
        same = "as is" if theirs.startswith("is ") else "and so does"
        sentence = f"Their mean cost {what}{theirs}, {same} that of all new {unit}"
    else:
        sentence = (
            f"Their mean cost {what}{theirs} by the chance of {unit} alone, and that of all new {unit} {of_all}, what "
            f"serves being fitted on few {unit} included"
        )
    return f"{sentence}; `thrifty predict --hold-budget` holds a budget on just the rows at hand."


def _between(low: float, high: float) -> str:
    """Interval of a cost in words; a single number if both ends are equal."""
    ends = quantity(low), quantity(high)
    return f"is {ends[0]}" if ends[0] == ends[1] else f"lies between {ends[0]} and {ends[1]}"


def _print_promise(system: Any, numbers: dict[str, Any]) -> None:
    """Print a table that compares the system, the full model for every row, and the best constant answer."""
    key, queries = key_of(system), column_name(system, "query")
    constant = "a random order" if queries else "a constant" if is_number(system) else "majority class"
    scores = (numbers[key], numbers[f"full_{key}"], promised(system).majority)
    rows = [
        (chain_of(system).task.quality_name, *map(_share_text, scores)),
        ("mean cost", quantity(numbers["mean_cost"]), quantity(numbers["full_cost"]), "0"),
    ]
    if queries:
        costs = (numbers["mean_cost_per_query"], numbers["full_cost_per_query"])
        rows.append(("mean cost of a query", *map(quantity, costs), "0"))
    for name, one in numbers.get("measures", {}).items():
        if name != "accuracy":
            ends = " to ".join(map(_share_text, one["interval"]))
            rows.append((name, f"{_share_text(one['value'])} ({ends})", _share_text(one["full"]), "-"))
    for name in ERRORS:
        low = name.lower()
        if numbers.get(low) is not None:
            ends = " to ".join(map(number, numbers[f"{low}_interval"]))
            others = (numbers[f"full_{low}"], numbers[f"constant_{low}"])
            rows.append((name, f"{number(numbers[low])} ({ends})", *map(_error, others)))
    _print_table(("", "this system", "full model", constant), rows)


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with numbers aligned to the right."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for place, name in enumerate(header):
        table.add_column(name, justify="right" if place or name else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _share_text(value: float | None) -> str:
    """Four decimals, or a dash for what is not known."""
    # Not "-0.0000", where a constant is the mean but for rounding.
    return "-" if value is None else f"{round(value, 4) + 0.0:.4f}"


def _error(value: float | None) -> str:
    return "-" if value is None else number(value)


def _numbers_of(system: Any) -> dict[str, Any]:
    """Expected results at the operating point in force, for ``--json``."""
    promise = promised(system)
    certificate: Certificate | None = getattr(system, "certificate_", None)

    score, unit = key_of(system), unit_of(system)
    return {
        "full": full_name(system),
        "method": method_of(system),
        "asked": goal_of(system),
        score: promise.accuracy,
        f"{score}_interval": [promise.low, promise.high],
        f"{score}_interval_1000_{unit}": list(promise.interval(_NEW_ROWS)),
        "mean_cost": promise.cost,
        "mean_cost_interval": list(system.expected_cost_interval_),
        f"mean_cost_spread_1000_{unit}": promise.spread(_NEW_ROWS),
        "share_full": promise.share,
        f"full_{score}": promise.full_accuracy,
        "full_cost": promise.full_cost,
        **(
            _order_numbers(system)
            if column_name(system, "query")
            else _error_numbers(promise)
            if is_number(system)
            else _class_numbers(promise, chain_of(system).classes.tolist())
        ),
        "stages": chain_of(system).n_own_stages,
        "bought": [chain_of(system).schema.names[column] for column in chain_of(system).columns],
        "settings": dict(system.evidence_.settings),
        "rows": {"table": n_fitted(system), "measured": round(promise.n_rows * (promise.documents or 1.0))},
        "seed": seed_of(system),
        "certificate": None
        if certificate is None
        else {"sentence": str(certificate), **_named(system, certificate.as_dict())},
    }


def _class_numbers(promise: Promise, classes: Sequence[Any]) -> dict[str, Any]:
    """Measures of labels, with intervals and those of the full model; recalls by class; the majority class."""
    ours, theirs = promise.measures or {}, promise.full_measures or {}
    recalls = {str(label): f"recall of {label!r}" for label in classes}
    return {
        "auc": ours.get("AUC", (None,))[0],
        "recall": {label: ours[name][0] for label, name in recalls.items() if name in ours} or None,
        "measures": {
            name: {"value": value, "interval": [low, high], "full": theirs.get(name)}
            for name, (value, low, high) in ours.items()
        },
        "full_auc": theirs.get("AUC"),
        "full_recall": {label: theirs[name] for label, name in recalls.items() if name in theirs} or None,
        "majority_accuracy": promise.majority,
    }


def _order_numbers(system: Any) -> dict[str, Any]:
    """Further numbers of a ranking: k, mean cost of a query, and the metric of random orders."""
    promise = promised(system)
    per_query = promise.documents or float("nan")
    return {
        "k": check_metric(system.metric)[1],
        "mean_cost_per_query": promise.query_cost,
        "full_cost_per_query": promise.full_cost * per_query,
        f"random_{key_of(system)}": promise.majority,
        "queries": promise.n_rows,
    }


def _error_numbers(promise: Promise) -> dict[str, Any]:
    """Mean errors of the system, with intervals, of the full model and of a constant; null where they are unknown."""
    found: dict[str, Any] = {}
    for name in ERRORS:
        value, low, high = (promise.measures or {}).get(name, (None, None, None))
        found[name.lower()] = value
        found[f"{name.lower()}_interval"] = None if value is None else [low, high]
        found[f"full_{name.lower()}"] = (promise.full_measures or {}).get(name)
        found[f"constant_{name.lower()}"] = (promise.constant_measures or {}).get(name)
    return found


def _named(system: Any, entries: dict[str, Any]) -> dict[str, Any]:
    """Columns by name, and values as JSON can hold them."""
    if "features" in entries:
        entries = {
            **entries,
            "features": [chain_of(system).schema.names[column] for column in entries["features"]],
        }
    if isinstance(entries.get("point"), dict):
        entries = {**entries, "point": _named(system, entries["point"])}
    return entries


# -- predict ---------------------------------------------------------------------------------------


def answers_in_words(numbers: dict[str, Any], *, budget: float | None = None, max_loss: Any = None) -> None:
    """Print the number of rows, the shares of stages and full model, and their cost."""
    held, promised_cost = numbers["held_budget"], numbers["promised_cost"]
    paid, by_full = (
        _paid_in_words(numbers["mean_cost"], numbers.get("mean_cost_per_query")),
        100 * numbers["share_full"],
    )
    print_text(
        f"wrote {numbers['file']}: {numbers['rows']:,} answers, {by_full:.1f} % of them by the full model, mean cost "
        f"{paid}"
    )
    if budget is not None and promised_cost is not None and promised_cost < 0.99 * budget:
        print_text(
            f"More than {quantity(promised_cost)} per row buys nothing more: the budget of {budget:g} is not spent."
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
    promise = _promise_or_none(system) if held is None else None
    return {
        "file": str(out),
        "rows": len(answers),
        "share_full": float((answers["stage"] == "full").mean()),
        "mean_cost": float(answers["cost"].mean()),
        "mean_cost_error": float(answers["cost"].std(ddof=0) / np.sqrt(len(answers))),
        "promised_cost": None if promise is None else promise.cost,
        f"promised_{key_of(system)}": None if promise is None else promise.accuracy,
        "held_budget": held,
        "routes_depend_on_batch": held is not None,
        **_query_costs(answers),
        "answers": _spread_of(answers["answer"])
        if is_number(system)
        else {str(label): int(count) for label, count in answers["answer"].value_counts().items()},
    }


def _promise_or_none(system: Any) -> Promise | None:
    """Promise in the file; None for an estimator saved from Python."""
    return promised(system) if hasattr(system, "promise_") else None


def _query_costs(answers: Any) -> dict[str, float]:
    """Cost of each query, if the table of answers has a column of queries."""
    if "query" not in answers:
        return {}
    spent = answers.groupby("query", sort=False)["cost"].sum()
    return {"queries": len(spent), "mean_cost_per_query": float(spent.mean())}


def _spread_of(answers: Any) -> dict[str, float]:
    """Quantiles of numbers."""
    return {name: float(getattr(answers, name)()) for name in ("min", "mean", "max")}


# -- frontier --------------------------------------------------------------------------------------


def frontier_in_words(system: Any, numbers: dict[str, Any], path: Path) -> None:
    """Print a table of efficient points, then the point in force."""
    frontier, chosen, key = frontier_of(system), numbers["chosen"], key_of(system)
    unit, name, priced = unit_of(system), chain_of(system).task.quality_name, is_priced(system)
    print_text(f"{path}: {len(frontier):,} efficient points on {numbers[unit]:,} {unit}")
    known = _measures(numbers["measures"] or [])
    points = [numbers["points"][place] for place in np.unique(frontier.within(_budgets(frontier)))]
    rows = [(*_scores(point, priced=priced), *known.get(point["cost"], ())) for point in points]
    score = ("tests", "mistakes", "total cost") if priced else ("mean cost", name)
    measured = ("balanced accuracy", "lowest recall") if known else ()
    _print_table((*score, "answered by the full model", *measured), rows)
    spent = " to ".join(map(quantity, chosen["mean_cost_interval"]))
    ways = "`thrifty predict --budget` moves to any other point."
    cost, full, full_cost = chosen["mean_cost"], chosen[f"full_{key}"], chosen["full_cost"]
    low, high = chosen[f"{key}_interval"]
    if priced:
        least = numbers["least_total"]
        print_text(f"Least total cost: {_parts_in_words(least['tests'], least['mistakes'])}.")
        theirs = "unknown" if full is None else _parts_in_words(full_cost, -full)
        print_text(
            f"In force: {_parts_in_words(cost, -chosen[key])} (tests {spent}, mistakes {quantity(-high)} to "
            f"{quantity(-low)}); the full model for every row: {theirs}. {ways}"
        )
    else:
        paid = _paid_in_words(cost, chosen.get("mean_cost_per_query"), f" ({spent})")
        print_text(
            f"In force: mean cost {paid}, {name} {chosen[key]:.4f} ({low:.4f} to {high:.4f}); the full model for every "
            f"row: {_share_text(full)} at {quantity(full_cost)}. {ways}"
        )
    measures = [
        f"{name} {_share_text(one['value'])} ({' to '.join(map(_share_text, one['interval']))})"
        for name, one in chosen.get("measures", {}).items()
        if priced or name != "accuracy"
    ]
    if measures:
        print_text(f"Measures of the point in force: {', '.join(measures)}.")
    print_text(_built_in_words(system, chosen))
    if chosen["certificate"] is not None:
        print_text(f"The system {chosen['certificate']['sentence']}.")


def frontier_numbers(system: Any) -> dict[str, Any]:
    """Efficient points, the point in force, and measures at evenly spaced budgets, for ``--json``."""
    frontier = frontier_of(system)
    table = _table(system)
    return {
        unit_of(system): frontier.n_rows,
        "chosen": _numbers_of(system),
        "points": [_named(system, point.as_dict()) for point in frontier],
        "least_total": _total(frontier[frontier.least_total]) if is_priced(system) else None,
        "measures": None if table is None else table.to_dict(orient="records"),
    }


def frontier_picture(system: Any, path: Path) -> bytes:
    """Plot of the score, or the cost of mistakes, against mean cost, with the point in force and the full model."""
    kind = path.suffix.lower().lstrip(".") or "png"
    if kind not in ("png", "svg", "pdf"):
        raise InvalidInputError(f"--plot writes png, svg or pdf; got {path.name!r}.")
    frontier, promise, priced = frontier_of(system), promised(system), is_priced(system)
    table, sign = _table(system), -1.0 if priced else 1.0
    figure, (ax, *beside) = new_figure(2 if priced and table is not None else 1)
    frontier.plot(ax, color=COLOURS[0], linewidth=1.5, label="efficient points")
    full = promise.full_accuracy
    draw_marks(
        ax,
        (promise.cost, sign * promise.accuracy),
        None if full is None else (promise.full_cost, sign * full),
        xlabel="mean cost per document" if column_name(system, "query") else "",
        falls=priced,
    )
    if beside:
        draw_measures(beside[0], table, ["accuracy", "balanced accuracy"])
    elif table is not None:
        draw_measures(ax, table, ["balanced accuracy"])
    return file_bytes(figure, kind)


def _budgets(frontier: Frontier) -> Any:
    return np.linspace(frontier.cost[0], frontier.cost[-1], _N_POINTS)


def _table(system: Any) -> Any:
    """Measures at evenly spaced budgets, one line per point; None where the file has none."""
    frontier = frontier_of(system)
    seen = frontier.evidence[0]
    if is_number(system) or seen.strata is None:
        return None
    table = frontier.measures(_budgets(frontier), n_boot=_N_BOOT)
    return table.drop_duplicates("cost")


def _measures(lines: list[dict[str, Any]]) -> dict[float, tuple[str, str]]:
    """Balanced accuracy with its interval and the lowest recall, by the cost of the point."""
    found = {}
    for line in lines:
        recalls = [
            name for name in line if name.startswith("recall of ") and not name.endswith(("_low", "_high"))
        ]
        value, low, high = (f"{line[f'balanced accuracy{end}']:.3f}" for end in ("", "_low", "_high"))
        worst = min(recalls, key=line.__getitem__)
        found[line["cost"]] = (
            f"{value} ({low} to {high})",
            f"{line[worst]:.3f} ({worst.removeprefix('recall of ')})",
        )
    return found


def _scores(point: dict[str, Any], *, priced: bool) -> tuple[str, ...]:
    cost, score, share = point["cost"], point["score"], f"{100 * point['share']:.1f} %"
    if not priced:
        return quantity(cost), f"{score:.4f}", share
    return quantity(cost), quantity(-score), quantity(cost - score), share


def _parts_in_words(tests: float, mistakes: float) -> str:
    """A total cost and its two parts, in words."""
    return f"{quantity(tests)} for tests + {quantity(mistakes)} for mistakes = {quantity(tests + mistakes)}"


def _total(point: OperatingPoint) -> dict[str, float]:
    return {"tests": point.cost, "mistakes": -point.score, "total": point.cost - point.score}


# -- report ----------------------------------------------------------------------------------------


def target_columns(system: Any, target: str | None, query: str | None = None) -> tuple[str, str]:
    """Names of the columns of the target and of queries, from the file or from the options.

    The target is named where the file does not know it; queries may be named where it holds a ranker by itself.
    """
    known, queries = column_name(system, "target"), column_name(system, "query")
    if query is not None and (known or not queries):
        found = f"the file knows {queries!r}" if queries else "the file ranks nothing"
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
            f"the file holds a {method_of(system)} that was saved from Python and does not say which column holds "
            f"what it predicts. Name the column with --target."
        )
    return target or known, query or queries


def measured_on(
    system: Any, frame: Any, labels: Labels, by: Sequence[str], title: str, unit: str
) -> tuple[Facts, dict[str, Any]]:
    """Facts of the page, and for ``--json`` the results of the point in force beside those expected at the fit."""
    unknown = [name for name in by if name not in frame.columns]
    if unknown:
        raise InvalidInputError(
            f"--by names {listed(unknown)}, not a column of the table, which has {listed(frame.columns)}."
        )
    chain, seed, kind = chain_of(system), seed_of(system), full_name(system)
    cells = chain.schema.cells(frame, row_key=named_row_key(system, None))
    refuse_unreadable(chain, cells)
    groups = {name: frame[name].astype("object").map(str).to_numpy() for name in by}
    facts = measure(system, reader_of_all_cells(system, cells), labels, by=groups, seed=seed)
    numbers = _report_numbers(system, facts)
    facts = replace(
        facts,
        title=title,
        method=f"thrifty ({method_of(system)})",
        full_name=KINDS.get(kind, kind),
        unit=unit,
        date=dt.date.today().isoformat(),
        notes=tuple(_page_notes(system, numbers).items()),
    )
    return facts, numbers


def _report_numbers(system: Any, facts: Facts) -> dict[str, Any]:
    """Results of the point in force, which the page shows first."""
    key, place, n_queries, n_rows = (
        key_of(system),
        facts.start,
        facts.measured.n_queries,
        facts.measured.n_rows,
    )
    score, full = facts.points.score[place], None if facts.full is None else facts.full.score
    if facts.kind == "bill":
        score, full = -score, None if full is None else -full
    curves = {one.name: one for one in facts.measures}
    if facts.kind == "labels" and key != "accuracy":
        score, lost = -curves["log-loss"].value[place], curves["log-loss"].full
        full = None if lost is None else -lost
    numbers: dict[str, Any] = {"rows": n_rows}
    if n_queries is not None:
        numbers |= {
            "queries": n_queries,
            "cost_per_query": facts.points.cost[place] * n_rows / n_queries,
        }
    numbers |= {key: score, f"full_{key}": full}
    for name in ERRORS:
        if name in curves:
            numbers |= {
                name.lower(): curves[name].value[place],
                f"full_{name.lower()}": curves[name].full,
            }
    promise = promised(system)
    return numbers | {
        "cost": facts.points.cost[place],
        "share_full": facts.points.share(place),
        "measures": {
            name: {
                "value": one.value[place],
                "interval": [one.low[place], one.high[place]],
                "full": one.full,
            }
            for name, one in curves.items()
            if one.low and name not in ERRORS
        },
        "promised": {
            key: promise.accuracy,
            "interval": list(promise.interval(n_queries or n_rows)),
            "cost": promise.cost,
            "cost_interval": list(system.expected_cost_interval_),
        },
    }


def report_in_words(system: Any, numbers: dict[str, Any]) -> None:
    """Print the results of the point in force on the new rows, and the path of the page."""
    promise, key = numbers["promised"], key_of(system)
    score, cost, full, full_cost = (
        numbers[key],
        numbers["cost"],
        numbers[f"full_{key}"],
        promised(system).full_cost,
    )
    queries = f" of {numbers['queries']:,} queries" if "queries" in numbers else ""
    on = f"On {numbers['rows']:,} rows{queries}"
    if is_priced(system):
        print_text(
            f"{on}: {_parts_in_words(cost, -score)} (promised {_parts_in_words(promise['cost'], -promise[key])}); the "
            f"full model for every row: {_parts_in_words(full_cost, -full)}."
        )
    else:
        low, high = promise["interval"]
        print_text(
            f"{on}: {chain_of(system).task.quality_name} {score:.4f} (promised for so many {low:.4f} to {high:.4f}) at "
            f"a mean cost of {quantity(cost)} (promised {quantity(promise['cost'])}); the full model for every row: "
            f"{full:.4f} at {quantity(full_cost)}."
        )
    if "queries" in numbers:
        theirs = quantity(full_cost * numbers["rows"] / numbers["queries"])
        print_text(
            f"Mean cost of a query {quantity(numbers['cost_per_query'])}; the full model for every row: {theirs}."
        )
    for name in [one for one in ERRORS if one.lower() in numbers]:
        ours, others = (number(numbers[f"{who}{name.lower()}"]) for who in ("", "full_"))
        print_text(f"{name} {ours}; the full model for every row: {others}.")
    measures = [
        f"{name} {one['value']:.4f} ({one['interval'][0]:.4f} to {one['interval'][1]:.4f})"
        for name, one in numbers["measures"].items()
    ]
    if measures:
        print_text(f"Measures on these rows: {', '.join(measures)}.")
    print_text(f"wrote {numbers['file']} ({size_of(Path(numbers['file']))})")


def _page_notes(system: Any, numbers: dict[str, Any]) -> dict[str, str]:
    """Lines on how the page was measured: goal, point in force, results expected at the fit, rows and seed."""
    asked, promise = goal_of(system), numbers["promised"]
    (low, high), (least, most) = promise["interval"], promise["cost_interval"]
    name = chain_of(system).task.quality_name
    goals = [
        f"{goal.replace('_', ' ')} {_goal_text(value)}" for goal, value in asked.items() if value is not None
    ]
    force = {
        "in force": f"{name} {numbers[key_of(system)]:.4f} at {numbers['cost']:.4g} on these rows; promised "
        f"{low:.4f} to {high:.4f} at {promise['cost']:.4g} (mean cost of all new rows {least:.4g} to {most:.4g})"
    }
    if not n_fitted(system):
        return force  # an estimator that was saved from Python does not say what it was fitted with
    return {
        "asked for": next(iter(goals), name),
        **force,
        "rows of the fit": f"{n_fitted(system):,}",
        "seed": str(seed_of(system)),
    }


def _goal_text(value: Any) -> str:
    """A budget or a loss as text; losses by class are joined."""
    if isinstance(value, dict):
        return ", ".join(f"{share:g} of {name}" for name, share in value.items())
    return f"{value:g}"
