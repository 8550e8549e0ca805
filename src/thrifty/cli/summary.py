"""Summaries of ``thrifty fit`` and ``thrifty predict``: in words, and as numbers for ``--json``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thrifty.cli.console import number, quantity, say, size_of
from thrifty.cli.system import column_name, is_number, method_of, promised
from thrifty.evidence.certificate import Certificate
from thrifty.evidence.observe import chain_of
from thrifty.evidence.promise import Promise
from thrifty.full.candidates import KINDS, Competition
from thrifty.tables.frames import listed
from thrifty.tasks.ranking import check_metric
from thrifty.tasks.task import ERRORS

__all__ = [
    "answers_in_words",
    "answers_numbers",
    "asked_for",
    "built_in_words",
    "certificate_of",
    "fit_in_words",
    "fit_numbers",
    "full_name",
    "key_of",
    "n_fitted",
    "named",
    "numbers_of",
    "paid_in_words",
    "print_table",
    "seed_of",
    "share_text",
    "unit_of",
]

_NEW_ROWS = 1000


# -- fit -------------------------------------------------------------------------------------------


def fit_in_words(system: Any, numbers: dict[str, Any]) -> None:
    """What was fitted, what to expect of it, and where it is."""
    kind, key, unit = KINDS.get(numbers["full"], numbers["full"]), key_of(system), unit_of(system)
    if numbers["full_candidates"] is None:
        say(f"The full model is {kind}.")
    else:
        rivals = ", ".join(f"{name} {score:.3f}" for name, score in numbers["full_candidates"].items())
        on = f"cross-validated on {numbers['full_candidates_rows']:,} rows"
        say(f"The full model is {kind}: best of {rivals} ({on}).")
    say(built_in_words(system, numbers))
    name, (low, high) = chain_of(system).task.quality_name, numbers[f"{key}_interval"]
    paid = paid_in_words(numbers["mean_cost"], numbers.get("mean_cost_per_query"))
    say(
        f"{name[:1].upper()}{name[1:]} {numbers[key]:.4f} ({low:.4f} to {high:.4f}) at a mean cost of {paid}, measured "
        f"on {numbers.get('queries', numbers['rows']['measured']):,} {unit} by models that had not seen them."
    )
    _print_promise(system, numbers)
    low, high = numbers[f"{key}_interval_1000_{unit}"]
    say(
        f"19 times out of 20, {_NEW_ROWS:,} new {unit} have {'a' if name[:1] in 'Dm' else 'an'} {name} of {low:.4f} to "
        f"{high:.4f}. {_strays(system, numbers)}"
    )
    if numbers["certificate"] is not None:
        say(f"The system {numbers['certificate']['sentence']}.")
    say(f"wrote {numbers['file']} ({size_of(Path(numbers['file']))})")


def fit_numbers(
    system: Any, competition: Competition | None, notes: Sequence[str], out: Path
) -> dict[str, Any]:
    """All that a fit has to tell."""
    return {
        "file": str(out),
        "bytes": out.stat().st_size,
        "full_candidates": None if competition is None else competition.accuracy,
        "full_candidates_rows": None if competition is None else competition.n_rows,
        **numbers_of(system),
        "notes": list(notes),
    }


def full_name(system: Any) -> str:
    """The kind of the full model, or its class where the file does not tell."""
    name, model = getattr(system, "full_name_", None), chain_of(system).innermost
    return name if isinstance(name, str) else type(getattr(model, "estimator", model)).__name__


def n_fitted(system: Any) -> int:
    """Rows of the training table; 0 where the file does not tell."""
    return int(getattr(system, "n_samples_fit_", 0))


def seed_of(system: Any) -> int:
    """Seed of the fit; 0 where it was no number."""
    seed = getattr(system, "random_state", None)
    return int(seed) if isinstance(seed, int | np.integer) else 0


def asked_for(system: Any) -> dict[str, Any]:
    """The goal of the fit: a budget, or a loss, by the names of classes where it is one of each."""
    goal = getattr(system, "goal_", None)
    return goal if isinstance(goal, dict) else {"budget": getattr(system, "budget", None), "max_loss": None}


def certificate_of(system: Any) -> Certificate | None:
    """What was proved about the operating point in force."""
    certificate: Certificate | None = getattr(system, "certificate_", None)
    return certificate


def bought_by(system: Any) -> list[str]:
    """Names of the columns that the stages buy, in order."""
    chain = chain_of(system)
    return [chain.schema.names[column] for column in chain.columns]


def unit_of(system: Any) -> str:
    """What is counted: queries where documents are ranked, else rows."""
    return "queries" if column_name(system, "query") else "rows"


def paid_in_words(cost: float, query_cost: float | None, interval: str = "") -> str:
    """The mean cost, and where it lies; per document and per query where documents are ranked."""
    if query_cost is None:
        return quantity(cost) + interval
    return f"{quantity(cost)}{interval} per document and {quantity(query_cost)} per query"


def built_in_words(system: Any, numbers: dict[str, Any]) -> str:
    """What stands in front of the full model, and what it buys."""
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
    """How far the mean cost of new rows may be from the one that was measured."""
    unit, what = unit_of(system), "per document " if column_name(system, "query") else ""
    cost, spread = numbers["mean_cost"], 1.96 * numbers[f"mean_cost_spread_1000_{unit}"]
    theirs = _between(max(cost - spread, 0.0), cost + spread)
    of_all = _between(*numbers["mean_cost_interval"])
    if theirs == of_all:
        same = "as is" if theirs.startswith("is ") else "and so does"
        told = f"Their mean cost {what}{theirs}, {same} that of all new {unit}"
    else:
        told = (
            f"Their mean cost {what}{theirs} by the chance of {unit} alone, and that of all new {unit} {of_all}, what "
            f"serves being fitted on few {unit} included"
        )
    return f"{told}; `thrifty predict --hold-budget` holds a budget on just the rows at hand."


def _between(low: float, high: float) -> str:
    """Where a cost lies, in words that go with it; one that does not vary is said once."""
    ends = quantity(low), quantity(high)
    return f"is {ends[0]}" if ends[0] == ends[1] else f"lies between {ends[0]} and {ends[1]}"


def _print_promise(system: Any, numbers: dict[str, Any]) -> None:
    """A small table: the system, the full model for every row, and the best answer that is the same for every row."""
    key, queries = key_of(system), column_name(system, "query")
    constant = "a random order" if queries else "a constant" if is_number(system) else "majority class"
    scores = (numbers[key], numbers[f"full_{key}"], promised(system).majority)
    rows = [
        (chain_of(system).task.quality_name, *map(share_text, scores)),
        ("mean cost", quantity(numbers["mean_cost"]), quantity(numbers["full_cost"]), "0"),
    ]
    if queries:
        costs = (numbers["mean_cost_per_query"], numbers["full_cost_per_query"])
        rows.append(("mean cost of a query", *map(quantity, costs), "0"))
    for name, one in numbers.get("measures", {}).items():
        if name != "accuracy":
            ends = " to ".join(map(share_text, one["interval"]))
            rows.append((name, f"{share_text(one['value'])} ({ends})", share_text(one["full"]), "-"))
    for name in ERRORS:
        low = name.lower()
        if numbers.get(low) is not None:
            ends = " to ".join(map(number, numbers[f"{low}_interval"]))
            others = (numbers[f"full_{low}"], numbers[f"constant_{low}"])
            rows.append((name, f"{number(numbers[low])} ({ends})", *map(_error, others)))
    print_table(("", "this system", "full model", constant), rows)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with its numbers to the right."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for place, name in enumerate(header):
        table.add_column(name, justify="right" if place or name else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def share_text(value: float | None) -> str:
    """Four decimals, or a dash for what is not known."""
    # Not "-0.0000", where a constant is the mean but for rounding.
    return "-" if value is None else f"{round(value, 4) + 0.0:.4f}"


def _error(value: float | None) -> str:
    return "-" if value is None else number(value)


def key_of(system: Any) -> str:
    """What programs call the score: accuracy, r2, d2, ndcg or ap, or minus what answers lose by its whole name."""
    name = chain_of(system).task.quality_name.lower()
    return name.replace(" ", "_") if name.startswith("minus") else name.split()[0].split("@")[0]


def numbers_of(system: Any) -> dict[str, Any]:
    """The operating point in force, for programs."""
    promise, classes = promised(system), chain_of(system).classes.tolist()
    certificate = certificate_of(system)

    def by_class(recall: Sequence[float] | None) -> dict[str, float] | None:
        return (
            None if recall is None else {str(label): one for label, one in zip(classes, recall, strict=True)}
        )

    score, unit = key_of(system), unit_of(system)
    theirs = promise.full_measures or {}
    measures = {
        name: {"value": value, "interval": [low, high], "full": theirs.get(name)}
        for name, (value, low, high) in (promise.measures or {}).items()
    }
    return {
        "full": full_name(system),
        "method": method_of(system),
        "asked": asked_for(system),
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
            else {
                "auc": promise.auc,
                "recall": by_class(promise.recall),
                "measures": measures,
                "full_auc": promise.full_auc,
                "full_recall": by_class(promise.full_recall),
                "majority_accuracy": promise.majority,
            }
        ),
        "stages": chain_of(system).n_own_stages,
        "bought": bought_by(system),
        "settings": dict(system.evidence_.settings),
        "rows": {"table": n_fitted(system), "measured": round(promise.n_rows * (promise.documents or 1.0))},
        "seed": seed_of(system),
        "certificate": None
        if certificate is None
        else {"sentence": str(certificate), **named(system, certificate.as_dict())},
    }


def _order_numbers(system: Any) -> dict[str, Any]:
    """What is known of queries besides: places that count, what a query costs, and orders by chance."""
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
        value, low, high = (promise.errors or {}).get(name, (None, None, None))
        found[name.lower()] = value
        found[f"{name.lower()}_interval"] = None if value is None else [low, high]
        found[f"full_{name.lower()}"] = (promise.full_errors or {}).get(name)
        found[f"constant_{name.lower()}"] = (promise.constant_errors or {}).get(name)
    return found


def named(system: Any, entries: dict[str, Any]) -> dict[str, Any]:
    """Columns by name, and nothing that JSON has no word for."""
    if "features" in entries:
        entries = {
            **entries,
            "features": [chain_of(system).schema.names[column] for column in entries["features"]],
        }
    if isinstance(entries.get("point"), dict):
        entries = {**entries, "point": named(system, entries["point"])}
    return entries


# -- predict ---------------------------------------------------------------------------------------


def answers_in_words(numbers: dict[str, Any], *, budget: float | None = None, max_loss: Any = None) -> None:
    """How many rows, who answered them, what they cost."""
    held, promised_cost = numbers["held_budget"], numbers["promised_cost"]
    paid, by_full = (
        paid_in_words(numbers["mean_cost"], numbers.get("mean_cost_per_query")),
        100 * numbers["share_full"],
    )
    say(
        f"wrote {numbers['file']}: {numbers['rows']:,} answers, {by_full:.1f} % of them by the full model, mean cost "
        f"{paid}"
    )
    if budget is not None and promised_cost is not None and promised_cost < 0.99 * budget:
        say(
            f"More than {quantity(promised_cost)} per row buys nothing more: the budget of {budget:g} is not spent."
        )
    if held is not None:
        say(
            f"The budget of {quantity(held)} was held on these rows together: in another file a row may be answered "
            f"by another stage."
        )
    if max_loss is not None:
        allowed = max_loss if isinstance(max_loss, dict) else f"{max_loss:g}"
        say(f"A loss of at most {allowed} is estimated on the rows of the fit, and not proved.")


def answers_numbers(system: Any, answers: Any, out: Path, held: float | None) -> dict[str, Any]:
    """What a table of answers says, for programs."""
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
    """The promise that the file keeps; None for an estimator that was saved by itself."""
    return promised(system) if hasattr(system, "promise_") else None


def _query_costs(answers: Any) -> dict[str, float]:
    """What queries cost, where the table of answers says which they are."""
    if "query" not in answers:
        return {}
    spent = answers.groupby("query", sort=False)["cost"].sum()
    return {"queries": len(spent), "mean_cost_per_query": float(spent.mean())}


def _spread_of(answers: Any) -> dict[str, float]:
    """Where numbers lie."""
    return {name: float(getattr(answers, name)()) for name in ("min", "mean", "max")}
