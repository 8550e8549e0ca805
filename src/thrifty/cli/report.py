"""Steps of ``thrifty report``: the facts of a report from a system and labelled rows, and its summary in words."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from thrifty.arrays import Labels
from thrifty.cli.console import number, quantity, say, size_of
from thrifty.cli.points import is_priced, parts_in_words
from thrifty.cli.summary import asked_for, full_name, key_of, n_fitted, seed_of
from thrifty.cli.system import at_hand, column_name, method_of, named_row_key, promised, refuse_unreadable
from thrifty.errors import InvalidInputError
from thrifty.evidence.observe import chain_of
from thrifty.full.candidates import KINDS
from thrifty.reporting.facts import Facts
from thrifty.reporting.measure import measure
from thrifty.tables.frames import listed
from thrifty.tasks.task import ERRORS

__all__ = ["measured_on", "report_in_words", "target_columns"]


def target_columns(system: Any, target: str | None, query: str | None = None) -> tuple[str, str]:
    """Names of the columns of labels, numbers or relevance, and of queries: as the file knows them, or the user says.

    The target is named where the file does not know it; queries may be named where it holds a ranker by itself.
    """
    known, queries = column_name(system, "target"), column_name(system, "query")
    if query is not None and (known or not queries):
        told = f"the file knows {queries!r}" if queries else "the file ranks nothing"
        raise InvalidInputError(
            f"--query is for a ranker that was saved by itself; got --query {query}, and {told}. Leave it out."
        )
    if known and target not in (None, known):
        raise InvalidInputError(
            f"--target must be {known!r}, the column that the system was fitted to predict, or be left out; got "
            f"{target!r}."
        )
    if not known and target is None:
        raise InvalidInputError(
            f"the file holds a {method_of(system)} that was saved by itself and does not say which column holds "
            f"what it predicts. Name the column with --target."
        )
    return target or known, query or queries


def measured_on(
    system: Any, frame: Any, labels: Labels, by: Sequence[str], title: str, unit: str
) -> tuple[Facts, dict[str, Any]]:
    """What the page says; and the point in force on these rows beside what was promised, for programs."""
    unknown = [name for name in by if name not in frame.columns]
    if unknown:
        raise InvalidInputError(
            f"--by names {listed(unknown)}, not a column of the table, which has {listed(frame.columns)}."
        )
    chain, seed, kind = chain_of(system), seed_of(system), full_name(system)
    cells = chain.schema.cells(frame, row_key=named_row_key(system, None))
    refuse_unreadable(chain, cells)
    groups = {name: frame[name].astype("object").map(str).to_numpy() for name in by}
    facts = measure(system, at_hand(system, cells), labels, by=groups, seed=seed)
    numbers = _numbers(system, facts)
    facts = replace(
        facts,
        title=title,
        method=f"thrifty ({method_of(system)})",
        full_name=KINDS.get(kind, kind),
        unit=unit,
        date=dt.date.today().isoformat(),
        notes=tuple(_notes(system, numbers).items()),
    )
    return facts, numbers


def _numbers(system: Any, facts: Facts) -> dict[str, Any]:
    """The point in force, where the page opens."""
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
    """How the point in force did on the new rows, and where the page and its picture are."""
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
        say(
            f"{on}: {parts_in_words(cost, -score)} (promised {parts_in_words(promise['cost'], -promise[key])}); the "
            f"full model for every row: {parts_in_words(full_cost, -full)}."
        )
    else:
        low, high = promise["interval"]
        say(
            f"{on}: {chain_of(system).task.quality_name} {score:.4f} (promised for so many {low:.4f} to {high:.4f}) at "
            f"a mean cost of {quantity(cost)} (promised {quantity(promise['cost'])}); the full model for every row: "
            f"{full:.4f} at {quantity(full_cost)}."
        )
    if "queries" in numbers:
        theirs = quantity(full_cost * numbers["rows"] / numbers["queries"])
        say(
            f"Mean cost of a query {quantity(numbers['cost_per_query'])}; the full model for every row: {theirs}."
        )
    for name in [one for one in ERRORS if one.lower() in numbers]:
        ours, others = (number(numbers[f"{who}{name.lower()}"]) for who in ("", "full_"))
        say(f"{name} {ours}; the full model for every row: {others}.")
    measures = [
        f"{name} {one['value']:.4f} ({one['interval'][0]:.4f} to {one['interval'][1]:.4f})"
        for name, one in numbers["measures"].items()
    ]
    if measures:
        say(f"Measures on these rows: {', '.join(measures)}.")
    say("wrote " + ", ".join(f"{path} ({size_of(Path(path))})" for path in numbers["files"]))


def _notes(system: Any, numbers: dict[str, Any]) -> dict[str, str]:
    """Lines on how the page was measured: the goal, the point in force and what was promised, rows and seed."""
    asked, promise = asked_for(system), numbers["promised"]
    (low, high), (least, most) = promise["interval"], promise["cost_interval"]
    name = chain_of(system).task.quality_name
    goals = [
        f"{goal.replace('_', ' ')} {_shown(value)}" for goal, value in asked.items() if value is not None
    ]
    force = {
        "in force": f"{name} {numbers[key_of(system)]:.4f} at {numbers['cost']:.4g} on these rows; promised "
        f"{low:.4f} to {high:.4f} at {promise['cost']:.4g} (mean cost of all new rows {least:.4g} to {most:.4g})"
    }
    if not n_fitted(system):
        return force  # an estimator that was saved by itself does not say what it was fitted with
    return {
        "asked for": next(iter(goals), name),
        **force,
        "rows of the fit": f"{n_fitted(system):,}",
        "seed": str(seed_of(system)),
    }


def _shown(value: Any) -> str:
    """A budget or a loss; losses by class, one after the other."""
    if isinstance(value, dict):
        return ", ".join(f"{share:g} of {name}" for name, share in value.items())
    return f"{value:g}"
