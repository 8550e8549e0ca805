"""From a system and labelled rows to the facts of a report, and what the command says about them."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Labels
from thrifty.cli.console import number, quantity, say, size_of
from thrifty.cli.full_models import KINDS
from thrifty.cli.points import is_priced, parts_in_words
from thrifty.cli.summary import asked_for, full_name, key_of, n_fitted, seed_of
from thrifty.cli.system import (
    answers_of,
    at_hand,
    column_name,
    evidence_on,
    is_number,
    method_of,
    named_row_key,
    promised,
)
from thrifty.errors import InvalidInputError
from thrifty.evidence.evidence import Evidence, QueryEvidence
from thrifty.evidence.observe import chain_of, point_of
from thrifty.reporting.facts import Facts
from thrifty.reporting.measure import measure
from thrifty.tables.frames import listed
from thrifty.tables.reader import Cells
from thrifty.tasks.task import ERRORS, mean_errors

__all__ = ["facts_of", "report_in_words", "report_numbers", "target_columns"]


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


def facts_of(
    system: Any, frame: Any, labels: Labels, by: Sequence[str], title: str, unit: str
) -> tuple[Facts, dict[str, Any]]:
    """What the page says, and how the operating point in force did on these rows."""
    unknown = [name for name in by if name not in frame.columns]
    if unknown:
        raise InvalidInputError(
            f"--by names {listed(unknown)}, not a column of the table, which has {listed(frame.columns)}."
        )
    chain = chain_of(system)
    cells = chain.schema.cells(frame, row_key=named_row_key(system, None))
    seen = evidence_on(system, cells, labels)
    answers = answers_of(system, cells)
    measured: dict[str, Any] = {
        "rows": len(labels),
        **_queries(system, labels, answers["cost"]),
        **_scores(system, cells, labels, answers["answer"], seen),
        "cost": float(answers["cost"].mean()),
        "share_full": float(np.mean(answers["stage"] == "full")),
    }
    facts = measure(
        system,
        chain.schema.table_of(cells),
        labels,
        by={name: frame[name].astype("object").map(str).to_numpy() for name in by},
        seed=seed_of(system),
    )
    facts = replace(
        facts,
        title=title,
        method=f"thrifty ({method_of(system)})",
        full_name=KINDS.get(full_name(system), full_name(system)),
        unit=unit,
        date=dt.date.today().isoformat(),
        notes=tuple(_notes(system, measured).items()),
    )
    place = facts.start  # the deployed point, where the page opens
    measured["measures"] = {
        one.name: {"value": one.value[place], "interval": [one.low[place], one.high[place]], "full": one.full}
        for one in facts.measures
        if one.low and one.name not in ERRORS
    }
    return facts, measured


def report_in_words(system: Any, measured: dict[str, Any], written: Sequence[Path]) -> None:
    """How the point in force did on the new rows, and where the page and its picture are."""
    promise, key = promised(system), key_of(system)
    if is_priced(system):
        parts = {
            "": (measured["cost"], -measured[key]),
            "promised ": (promise.cost, -promise.accuracy),
            "the full model for every row: ": (promise.full_cost, -measured[f"full_{key}"]),
        }
        told = [f"{name}{parts_in_words(*one)}" for name, one in parts.items()]
        say(f"On {measured['rows']:,} rows: {told[0]} ({told[1]}); {told[2]}.")
    else:
        _say_scores(system, measured)
    if "queries" in measured:
        theirs = quantity(promise.full_cost * measured["rows"] / measured["queries"])
        ours = quantity(measured["cost_per_query"])
        say(f"Mean cost of a query {ours}; the full model for every row: {theirs}.")
    for name in [one for one in ERRORS if one.lower() in measured]:
        ours, theirs = (number(measured[f"{who}{name.lower()}"]) for who in ("", "full_"))
        say(f"{name} {ours}; the full model for every row: {theirs}.")
    measures = [
        f"{name} {one['value']:.4f} ({one['interval'][0]:.4f} to {one['interval'][1]:.4f})"
        for name, one in measured["measures"].items()
    ]
    if measures:
        say(f"Measures on these rows: {', '.join(measures)}.")
    say("wrote " + ", ".join(f"{path} ({size_of(path)})" for path in written))


def _say_scores(system: Any, measured: dict[str, Any]) -> None:
    promise, key = promised(system), key_of(system)
    low, high = promise.interval(_counted(measured))
    queries = f" of {measured['queries']:,} queries" if "queries" in measured else ""
    say(
        f"On {measured['rows']:,} rows{queries}: {chain_of(system).task.quality_name} {measured[key]:.4f} "
        f"(promised for so many {low:.4f} to {high:.4f}) at a mean cost of {quantity(measured['cost'])} (promised "
        f"{quantity(promise.cost)}); the full model for every row: {measured[f'full_{key}']:.4f} at "
        f"{quantity(promise.full_cost)}."
    )


def report_numbers(system: Any, measured: dict[str, Any], written: Sequence[Path]) -> dict[str, Any]:
    """The point in force on the new rows beside what was promised, for programs."""
    return {
        "files": [str(path) for path in written],
        **measured,
        "promised": {
            key_of(system): promised(system).accuracy,
            "interval": list(promised(system).interval(_counted(measured))),
            "cost": promised(system).cost,
            "cost_interval": list(system.expected_cost_interval_),
        },
    }


def _counted(measured: dict[str, Any]) -> int:
    """How many rows a mean of scores is over: queries, where documents are ranked."""
    return int(measured.get("queries", measured["rows"]))


def _queries(system: Any, labels: Labels, cost: Floats) -> dict[str, float]:
    """How many queries the documents belong to, and what each of them costs."""
    if not column_name(system, "query"):
        return {}
    n_queries = len(np.unique(labels[:, 1]))
    return {"queries": n_queries, "cost_per_query": float(cost.sum() / n_queries)}


def _scores(system: Any, cells: Cells, labels: Labels, answers: Labels, seen: Evidence) -> dict[str, float]:
    """How good the answers are on these rows, and those of the full model: the score, and mean errors of numbers."""
    task, key, full = chain_of(system).task, key_of(system), float(np.mean(np.asarray(seen.full_quality)))
    if isinstance(seen, QueryEvidence):
        own = seen.value(task.scores(answers[:, None])[:, 0])
        return {key: float(np.nanmean(own)), f"full_{key}": seen.full_score}
    if seen.right is not None:
        lost = point_of(system, at_hand(system, cells), labels).quality[:, 0]
        return {key: float(lost.mean()), f"full_{key}": full}
    if not is_number(system):
        return {key: float(np.mean(answers == labels)), f"full_{key}": full}
    y = task.encode(column_name(system, "target") or "y", labels, len(labels))
    scores = task.scores(answers[:, None])
    found = {
        key: float(task.score(y, task.quality_of_scores(y, scores).mean())),
        f"full_{key}": float(task.score(y, full)),
    }
    for who, said in (("", scores), ("full_", seen.full_scores)):
        if said is not None:
            found |= {f"{who}{name.lower()}": error for name, error in mean_errors(task, y, said).items()}
    return found


def _notes(system: Any, measured: dict[str, Any]) -> dict[str, str]:
    asked, promise = asked_for(system), promised(system)
    low, high = promise.interval(_counted(measured))
    least, most = system.expected_cost_interval_
    name = chain_of(system).task.quality_name
    goals = [
        f"{goal.replace('_', ' ')} {_shown(value)}" for goal, value in asked.items() if value is not None
    ]
    force = {
        "in force": f"{name} {measured[key_of(system)]:.4f} at {measured['cost']:.4g} on these rows; promised "
        f"{low:.4f} to {high:.4f} at {promise.cost:.4g} (mean cost of all new rows {least:.4g} to {most:.4g})"
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
