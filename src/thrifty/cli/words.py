"""Results in words for people, and as numbers for programs."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.cli.output import quantity, say, size_of
from thrifty.tables.files import listed
from thrifty.tables.fit import Fitted
from thrifty.tables.full_models import KINDS
from thrifty.tables.system import TableSystem

__all__ = [
    "answers_in_words",
    "answers_numbers",
    "fit_in_words",
    "fit_numbers",
    "frontier_in_words",
    "frontier_numbers",
    "frontier_picture",
    "report_in_words",
]

_SHOWN = 14
_NEW_ROWS = 1000


def fit_in_words(fitted: Fitted, out: Path) -> None:
    """What was chosen, what it promises, and where it is."""
    system, promise, about = fitted.system, fitted.system.promise, fitted.system.about
    competition = fitted.competition
    kind = KINDS.get(about.full, about.full)
    if competition is None:
        say(f"f0 is {kind}.")
    else:
        rivals = ", ".join(f"{name} {score:.3f}" for name, score in competition.accuracy.items())
        say(f"f0 is {kind}: best of {rivals} (cross-validated on {competition.n_rows:,} rows).")
    say(_chosen(system))
    rows = about.n_prove or about.n_choose
    low, high = promise.interval(_NEW_ROWS)
    say(
        f"Accuracy {promise.accuracy:.4f} ({promise.low:.4f} to {promise.high:.4f}) at a mean cost of "
        f"{quantity(promise.cost)}; f0 for every row: {promise.full_accuracy:.4f} at {quantity(promise.full_cost)}. "
        f"Measured on {rows:,} rows that nothing was fitted on."
    )
    say(
        f"The accuracy of {_NEW_ROWS:,} new rows lies between {low:.4f} and {high:.4f}, 19 times out of 20: the "
        f"interval before, and the chance of the new rows."
    )
    for sentence in _caveats(system):
        say(sentence)
    say(f"wrote {out} ({size_of(out)}, {len(system.systems)} of {fitted.n_systems} systems)")


def fit_numbers(fitted: Fitted, out: Path) -> dict[str, Any]:
    """The same as numbers."""
    system, competition = fitted.system, fitted.competition
    return {
        "file": str(out),
        "full": system.about.full,
        "full_candidates": None if competition is None else competition.accuracy,
        "asked": {"budget": system.about.budget, "max_loss": system.about.max_loss},
        **_numbers_of(system),
        "notes": list(fitted.notes),
    }


def answers_in_words(answers: Any, out: Path, held: float | None) -> None:
    """How many rows, who answered them, what they cost."""
    facts = answers_numbers(answers, out, held)
    say(
        f"wrote {out}: {facts['rows']:,} answers, {100 * facts['share_sent']:.1f} % of them by f0, "
        f"mean cost {quantity(facts['mean_cost'])}"
    )
    if held is not None:
        say(
            f"The budget of {quantity(held)} was held on these rows together: in another file a row may be answered "
            f"by another stage."
        )


def answers_numbers(answers: Any, out: Path, held: float | None) -> dict[str, Any]:
    """The same as numbers."""
    return {
        "file": str(out),
        "rows": len(answers),
        "share_sent": float((answers["stage"] == "full").mean()),
        "mean_cost": float(answers["cost"].mean()),
        "mean_cost_error": float(answers["cost"].std(ddof=0) / np.sqrt(len(answers))),
        "held_budget": held,
        "routes_depend_on_batch": held is not None,
        "answers": {str(label): int(number) for label, number in answers["answer"].value_counts().items()},
    }


def frontier_in_words(system: TableSystem, path: Path) -> None:
    """A table of efficient points, the chosen one marked."""
    from rich.console import Console
    from rich.table import Table

    frontier, promise = system.frontier, system.promise
    table = Table()
    for name in ("mean cost", "accuracy", "sent to f0", "columns bought"):
        table.add_column(name, justify="right")
    for point in (frontier[place] for place in _evenly(frontier.cost)):
        table.add_row(
            quantity(point.cost), f"{point.score:.4f}", f"{100 * point.share:.1f} %", str(point.n_features)
        )
    say(f"{path}: {len(frontier):,} efficient points on {frontier.n_rows:,} rows of the choice")
    Console().print(table)
    say(
        f"Chosen: mean cost {quantity(promise.cost)}, accuracy {promise.accuracy:.4f} ({promise.low:.4f} to "
        f"{promise.high:.4f}); f0 for every row: {promise.full_accuracy:.4f} at {quantity(promise.full_cost)}."
    )
    say(_chosen(system))
    if system.certificate is not None:
        say(f"It {system.certificate}.")


def frontier_numbers(system: TableSystem) -> dict[str, Any]:
    """Every point, and the chosen one."""
    return {
        "rows": system.frontier.n_rows,
        "chosen": _numbers_of(system),
        "points": [_named(system, point.as_dict()) for point in system.frontier],
    }


def frontier_picture(system: TableSystem, path: Path) -> bytes:
    """Accuracy against mean cost, the chosen point and f0 marked."""
    from thrifty.exceptions import InvalidInputError
    from thrifty.report.tradeoff import new_figure

    kind = path.suffix.lower().lstrip(".") or "png"
    if kind not in ("png", "svg", "pdf"):
        raise InvalidInputError(f"--plot writes png, svg or pdf; got {path.name!r}.")
    frontier, promise = system.frontier, system.promise
    figure, (ax,) = new_figure()
    ax.step(
        frontier.cost, frontier.score, where="post", color="#0b5fa5", linewidth=1.5, label="efficient points"
    )
    ax.plot(promise.cost, promise.accuracy, "o", color="#c8501e", markersize=7, label="chosen")
    ax.plot(
        promise.full_cost, promise.full_accuracy, "*", color="black", markersize=12, label="f0 for every row"
    )
    ax.set_xlabel("mean cost per row")
    ax.set_ylabel("accuracy on the rows of the choice")
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    sink = io.BytesIO()
    figure.savefig(sink, format=kind)
    return sink.getvalue()


def report_in_words(system: TableSystem, measured: dict[str, Any], written: Sequence[Path]) -> None:
    """The chosen point on the new rows, and where the page and its picture are."""
    promise = system.promise
    low, high = promise.interval(measured["rows"])
    say(
        f"On {measured['rows']:,} rows: accuracy {measured['accuracy']:.4f} (promised for so many {low:.4f} to "
        f"{high:.4f}) at a mean cost of {quantity(measured['cost'])} (promised {quantity(promise.cost)}); "
        f"f0 for every row: {measured['full_accuracy']:.4f} at {quantity(promise.full_cost)}."
    )
    say("wrote " + ", ".join(f"{path} ({size_of(path)})" for path in written))


def _chosen(system: TableSystem) -> str:
    bought, promise = system.bought, system.promise
    buys = f"buys {listed(bought, 8)}" if bought else "buys nothing"
    sends = f"sends {100 * promise.share:.1f} % of the rows to f0 ({quantity(promise.full_cost)} per row)"
    if system.tie is not None:
        sends += f", {100 * system.tie.share:.0f} % of those that tie at the cut among them"
    return (
        f"The cheap model {buys} ({len(bought)} of {len(system.schema.names)} columns, {quantity(promise.cheap_cost)} "
        f"per row) and {sends if promise.share else 'answers every row: none is sent to f0'}."
    )


def _caveats(system: TableSystem) -> list[str]:
    """How exactly the budget will be met, or what was proved."""
    promise = system.promise
    if system.certificate is not None:
        return [f"The system {system.certificate}."]
    spread = promise.spread(_NEW_ROWS)
    if spread == 0:
        return []
    low, high = promise.cost - 1.96 * spread, promise.cost + 1.96 * spread
    told = (
        f"The mean cost of {_NEW_ROWS:,} new rows lies between {quantity(low)} and {quantity(high)}, 19 times out "
        f"of 20; `thrifty predict --hold-budget` holds the budget on just the rows at hand."
    )
    return [told]


def _numbers_of(system: TableSystem) -> dict[str, Any]:
    promise, about = system.promise, system.about
    return {
        "accuracy": promise.accuracy,
        "accuracy_interval": [promise.low, promise.high],
        "accuracy_interval_1000_rows": list(promise.interval(_NEW_ROWS)),
        "mean_cost": promise.cost,
        "mean_cost_spread_1000_rows": promise.spread(_NEW_ROWS),
        "share_sent": promise.share,
        "tie": None if system.tie is None else {"share": system.tie.share},
        "cheap_cost": promise.cheap_cost,
        "full_cost": promise.full_cost,
        "full_accuracy": promise.full_accuracy,
        "bought": system.bought,
        "settings": system.systems[system.chosen].settings,
        "rows": {"learn": about.n_learn, "choose": about.n_choose, "prove": about.n_prove},
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


def _evenly(cost: NDArray[np.float64]) -> list[int]:
    """Places of points that evenly spaced budgets lead to, the ends included."""
    budgets = np.linspace(cost[0], cost[-1], _SHOWN)
    places = np.searchsorted(cost, budgets * (1 + 1e-12), side="right") - 1
    return sorted(set(np.clip(places, 0, len(cost) - 1).tolist()))
