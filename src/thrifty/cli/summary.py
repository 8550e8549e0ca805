"""What fits, answers, explanations and frontiers say: in words for people, as numbers for programs."""

import io
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from thrifty.chain.explain import Explanation, StageView
from thrifty.cli.console import quantity, say, size_of
from thrifty.exceptions import InvalidInputError
from thrifty.report.tradeoff import new_figure
from thrifty.tables.fit import Fitted
from thrifty.tables.formats import listed
from thrifty.tables.full_models import KINDS
from thrifty.tables.system import TableSystem

__all__ = [
    "answers_in_words",
    "answers_numbers",
    "explanation_in_words",
    "explanation_numbers",
    "fit_in_words",
    "fit_numbers",
    "frontier_in_words",
    "frontier_numbers",
    "frontier_picture",
]

_SHOWN = 14
_NEW_ROWS = 1000


# -- fit -------------------------------------------------------------------------------------------


def fit_in_words(fitted: Fitted, out: Path) -> None:
    """What was fitted, what to expect of it, and where it is."""
    system, promise, competition = fitted.system, fitted.system.promised, fitted.competition
    kind = KINDS.get(system.about.full, system.about.full)
    if competition is None:
        say(f"The full model is {kind}.")
    else:
        rivals = ", ".join(f"{name} {score:.3f}" for name, score in competition.accuracy.items())
        say(f"The full model is {kind}: best of {rivals} (cross-validated on {competition.n_rows:,} rows).")
    say(_built(system))
    say(
        f"Accuracy {promise.accuracy:.4f} ({promise.low:.4f} to {promise.high:.4f}) at a mean cost of "
        f"{quantity(promise.cost)}, measured on {promise.n_rows:,} rows by models that had not seen them."
    )
    _print_promise(system)
    low, high = promise.interval(_NEW_ROWS)
    say(
        f"19 times out of 20, {_NEW_ROWS:,} new rows have an accuracy of {low:.4f} to {high:.4f}. {_strays(system)}"
    )
    if system.certificate is not None:
        say(f"The system {system.certificate}.")
    say(f"wrote {out} ({size_of(out)})")


def fit_numbers(fitted: Fitted, out: Path) -> dict[str, Any]:
    """All that a fit has to tell, for programs."""
    competition = fitted.competition
    return {
        "file": str(out),
        "full_candidates": None if competition is None else competition.accuracy,
        **_numbers_of(fitted.system),
        "notes": list(fitted.notes),
    }


def _built(system: TableSystem) -> str:
    bought, stages, promise = system.bought, system.chain.n_own_stages, system.promised
    buys = f"buys, in this order, {listed(bought, 8)}" if bought else "buys nothing"
    sends = f"{100 * promise.share:.1f} % of the rows are answered by the full model"
    many = "s" if stages > 1 else ""
    return (
        f"The {system.about.method} in front of the full model has {stages} stage{many} and {buys} ({len(bought)} of "
        f"{len(system.schema.names)} columns); {sends if promise.share else 'it answers every row'}."
    )


def _strays(system: TableSystem) -> str:
    """How far the mean cost of new rows may be from the one that was measured."""
    promise = system.promised
    spread = 1.96 * promise.spread(_NEW_ROWS)
    low, high = quantity(max(promise.cost - spread, 0.0)), quantity(promise.cost + spread)
    told = f"Their mean cost lies between {low} and {high} by the chance of rows alone"
    low, high = map(quantity, system.estimator.expected_cost_interval_)
    told += (
        f", and that of all new rows between {low} and {high}, what serves being fitted on few rows included"
    )
    return f"{told}; `thrifty predict --hold-budget` holds a budget on just the rows at hand."


def _print_promise(system: TableSystem) -> None:
    """A small table: the system, the full model for every row, and the majority class for every row."""
    promise, classes = system.promised, system.schema.classes.tolist()
    lines: list[tuple[str, Any, Any, Any]] = [
        ("accuracy", promise.accuracy, promise.full_accuracy, promise.majority),
        ("AUC", promise.auc, promise.full_auc, None),
    ]
    for place, label in enumerate(classes):
        ours, theirs = (None if one is None else one[place] for one in (promise.recall, promise.full_recall))
        lines.append((f"recall of {label!r}", ours, theirs, None))
    rows = [(name, *map(_share, values)) for name, *values in lines]
    rows.insert(1, ("mean cost", quantity(promise.cost), quantity(promise.full_cost), "0"))
    _print_table(("", "this system", "full model", "majority class"), rows)


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for number, name in enumerate(header):
        table.add_column(name, justify="right" if number or name else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _numbers_of(system: TableSystem) -> dict[str, Any]:
    promise, about, classes = system.promised, system.about, system.schema.classes.tolist()

    def by_class(recall: Sequence[float] | None) -> dict[str, float] | None:
        return (
            None if recall is None else {str(label): one for label, one in zip(classes, recall, strict=True)}
        )

    return {
        "full": about.full,
        "method": about.method,
        "asked": {"budget": about.budget, "max_loss": about.max_loss},
        "accuracy": promise.accuracy,
        "accuracy_interval": [promise.low, promise.high],
        "accuracy_interval_1000_rows": list(promise.interval(_NEW_ROWS)),
        "mean_cost": promise.cost,
        "mean_cost_interval": list(system.estimator.expected_cost_interval_),
        "mean_cost_spread_1000_rows": promise.spread(_NEW_ROWS),
        "share_full": promise.share,
        "auc": promise.auc,
        "recall": by_class(promise.recall),
        "full_accuracy": promise.full_accuracy,
        "full_cost": promise.full_cost,
        "full_auc": promise.full_auc,
        "full_recall": by_class(promise.full_recall),
        "majority_accuracy": promise.majority,
        "stages": system.chain.n_own_stages,
        "bought": system.bought,
        "settings": dict(system.estimator.evidence_.settings),
        "rows": {"table": about.n_rows, "measured": promise.n_rows},
        "seed": about.seed,
        "certificate": None
        if system.certificate is None
        else {"sentence": str(system.certificate), **_named(system, system.certificate.as_dict())},
    }


def _named(system: TableSystem, entries: dict[str, Any]) -> dict[str, Any]:
    """Columns by name, and nothing that JSON has no word for."""
    if "features" in entries:
        entries = {**entries, "features": [system.schema.names[column] for column in entries["features"]]}
    if isinstance(entries.get("point"), dict):
        entries = {**entries, "point": _named(system, entries["point"])}
    return entries


# -- predict and explain ---------------------------------------------------------------------------


def answers_in_words(
    system: TableSystem,
    answers: Any,
    out: Path,
    *,
    budget: float | None,
    held: float | None,
    max_loss: float | None,
) -> None:
    """How many rows, who answered them, what they cost."""
    facts = answers_numbers(system, answers, out, held)
    say(
        f"wrote {out}: {facts['rows']:,} answers, {100 * facts['share_full']:.1f} % of them by the full model, "
        f"mean cost {quantity(facts['mean_cost'])}"
    )
    promise = system.promise
    if budget is not None and held is None and promise is not None and promise.cost < 0.99 * budget:
        say(
            f"More than {quantity(promise.cost)} per row buys nothing more: the budget of {budget:g} is not spent."
        )
    if held is not None:
        say(
            f"The budget of {quantity(held)} was held on these rows together: in another file a row may be answered "
            f"by another stage."
        )
    if max_loss is not None:
        proved = f"The system {system.certificate}." if system.certificate is not None else None
        say(proved or f"A loss of at most {max_loss:g} is estimated on the rows of the fit, and not proved.")


def answers_numbers(system: TableSystem, answers: Any, out: Path, held: float | None) -> dict[str, Any]:
    """What a table of answers says, for programs."""
    promise = system.promise if held is None else None
    return {
        "file": str(out),
        "rows": len(answers),
        "share_full": float((answers["stage"] == "full").mean()),
        "mean_cost": float(answers["cost"].mean()),
        "mean_cost_error": float(answers["cost"].std(ddof=0) / np.sqrt(len(answers))),
        "promised_cost": None if promise is None else promise.cost,
        "promised_accuracy": None if promise is None else promise.accuracy,
        "held_budget": held,
        "routes_depend_on_batch": held is not None,
        "answers": {str(label): int(number) for label, number in answers["answer"].value_counts().items()},
    }


def explanation_in_words(row: int, found: Explanation) -> list[str]:
    """The way of one row, a sentence per stage."""
    lines = [f"Row {row}"]
    for number, stage in enumerate(found.stages):
        bought = f"buys {listed(stage.bought, 12)}" if stage.bought else "buys nothing new"
        lines.append(
            f"  Stage {number} {bought} ({quantity(stage.cost)} spent so far) and says {stage.answer!r} with "
            f"probability {stage.probability:.3f}: {_verdict(stage)}."
        )
    if found.asked_full:
        lines.append(
            f"  The full model reads the rest of its columns ({quantity(found.cost)} spent in all) and the answer is "
            f"{found.answer!r} with probability {found.probability:.3f}."
        )
    lines.append(f"  Answer: {found.answer!r} for {quantity(found.cost)}, {_saved(found.saved)}.")
    return lines


def _verdict(stage: StageView) -> str:
    if np.isinf(stage.threshold):
        return "every row goes on from here" if stage.goes_on else "every row that gets here stops"
    return "not sure enough, so the row goes on" if stage.goes_on else "sure enough, so the row stops here"


def _saved(saved: float) -> str:
    if saved == 0:
        return "what the full model costs"
    return f"{quantity(abs(saved))} {'less' if saved > 0 else 'more'} than the full model alone"


def explanation_numbers(row: int, found: Explanation) -> dict[str, Any]:
    """The way of one row, for programs; an infinite threshold is text."""
    facts = {"row": row, **asdict(found)}
    for stage in facts["stages"]:
        stage["goes_on"] = stage["gate"] > stage["threshold"]
        if not np.isfinite(stage["threshold"]):
            stage["threshold"] = str(stage["threshold"])
    return facts


# -- frontier --------------------------------------------------------------------------------------


def frontier_in_words(system: TableSystem, path: Path) -> None:
    """A table of efficient points, then the one in force."""
    frontier, promise = system.frontier, system.promised
    low, high = map(quantity, system.estimator.expected_cost_interval_)
    budgets = np.linspace(frontier.cost[0], frontier.cost[-1], _SHOWN)
    points = [frontier[place] for place in np.unique(frontier.within(budgets))]
    say(f"{path}: {len(frontier):,} efficient points on {frontier.n_rows:,} rows")
    rows = [(quantity(point.cost), f"{point.score:.4f}", f"{100 * point.share:.1f} %") for point in points]
    _print_table(("mean cost", "accuracy", "answered by the full model"), rows)
    say(
        f"In force: mean cost {quantity(promise.cost)} ({low} to {high}), accuracy {promise.accuracy:.4f} "
        f"({promise.low:.4f} to {promise.high:.4f}); the full model for every row: {_share(promise.full_accuracy)} at "
        f"{quantity(promise.full_cost)}. `thrifty predict --budget` moves to any other point."
    )
    say(_built(system))
    if system.certificate is not None:
        say(f"The system {system.certificate}.")


def frontier_numbers(system: TableSystem) -> dict[str, Any]:
    """Every efficient point, and the one in force."""
    return {
        "rows": system.frontier.n_rows,
        "chosen": _numbers_of(system),
        "points": [_named(system, point.as_dict()) for point in system.frontier],
    }


def frontier_picture(system: TableSystem, path: Path) -> bytes:
    """Accuracy against mean cost, with the point in force and the full model marked."""
    kind = path.suffix.lower().lstrip(".") or "png"
    if kind not in ("png", "svg", "pdf"):
        raise InvalidInputError(f"--plot writes png, svg or pdf; got {path.name!r}.")
    frontier, promise = system.frontier, system.promised
    figure, (ax,) = new_figure()
    ax.step(
        frontier.cost, frontier.score, where="post", color="#0b5fa5", linewidth=1.5, label="efficient points"
    )
    ax.plot(promise.cost, promise.accuracy, "o", color="#c8501e", markersize=7, label="in force")
    if promise.full_accuracy is not None:
        at = (promise.full_cost, promise.full_accuracy)
        ax.plot(*at, "*", color="black", markersize=12, label="full model for every row")
    ax.set_xlabel("mean cost per row")
    ax.set_ylabel("accuracy")
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    sink = io.BytesIO()
    figure.savefig(sink, format=kind)
    return sink.getvalue()
