"""What other budgets buy: the efficient points of a system in words, as numbers and as a picture."""

from pathlib import Path
from typing import Any

import numpy as np

from thrifty.cli.console import quantity, say
from thrifty.cli.summary import (
    built_in_words,
    certificate_of,
    measures_of,
    named,
    numbers_of,
    paid_in_words,
    print_table,
    share_text,
    unit_of,
)
from thrifty.cli.system import column_name, frontier_of, is_number, promised
from thrifty.errors import InvalidInputError
from thrifty.evidence.frontier import Frontier, OperatingPoint
from thrifty.evidence.observe import chain_of
from thrifty.plots import file_bytes, new_figure

__all__ = [
    "frontier_in_words",
    "frontier_numbers",
    "frontier_picture",
    "is_priced",
    "parts_in_words",
]

_SHOWN = 14
_RESAMPLES = 400
_COLOURS = {"accuracy": "#0b5fa5", "balanced accuracy": "#3f7d20"}


def frontier_in_words(system: Any, path: Path) -> None:
    """A table of efficient points, then the one in force."""
    frontier, promise = frontier_of(system), promised(system)
    say(f"{path}: {len(frontier):,} efficient points on {frontier.n_rows:,} {unit_of(system)}")
    known = _measures(system)
    points = [frontier[place] for place in np.unique(frontier.within(_budgets(frontier)))]
    rows = [(*_scores(system, point), *known.get(point.cost, ())) for point in points]
    name, priced = chain_of(system).task.quality_name, is_priced(system)
    score = ("tests", "mistakes", "total cost") if priced else ("mean cost", name)
    measured = ("balanced accuracy", "lowest recall") if known else ()
    print_table((*score, "answered by the full model", *measured), rows)
    low, high = map(quantity, system.expected_cost_interval_)
    ways = "`thrifty predict --budget` moves to any other point."
    if priced:
        least = _least(frontier)
        say(f"Least total cost: {parts_in_words(least.cost, -least.score)}.")
        full = promise.full_accuracy
        theirs = "unknown" if full is None else parts_in_words(promise.full_cost, -full)
        say(
            f"In force: {parts_in_words(promise.cost, -promise.accuracy)} (tests {low} to {high}, mistakes "
            f"{quantity(-promise.high)} to {quantity(-promise.low)}); the full model for every row: {theirs}. {ways}"
        )
    else:
        paid = paid_in_words(promise.cost, promise.query_cost, f" ({low} to {high})")
        say(
            f"In force: mean cost {paid}, {name} {promise.accuracy:.4f} "
            f"({promise.low:.4f} to {promise.high:.4f}); the full model for every row: "
            f"{share_text(promise.full_accuracy)} at {quantity(promise.full_cost)}. {ways}"
        )
    told = [
        f"{name} {share_text(one['value'])} ({' to '.join(map(share_text, one['interval']))})"
        for name, one in measures_of(system).items()
        if priced or name != "accuracy"
    ]
    if told:
        say(f"Measures of the point in force: {', '.join(told)}.")
    say(built_in_words(system))
    if certificate_of(system) is not None:
        say(f"The system {certificate_of(system)}.")


def frontier_numbers(system: Any) -> dict[str, Any]:
    """Every efficient point, the one in force, and measures at evenly spaced budgets."""
    frontier = frontier_of(system)
    table = _table(system)
    return {
        unit_of(system): frontier.n_rows,
        "chosen": numbers_of(system),
        "points": [named(system, point.as_dict()) for point in frontier],
        "least_total": _total_numbers(_least(frontier)) if is_priced(system) else None,
        "measures": None if table is None else table.to_dict(orient="records"),
    }


def frontier_picture(system: Any, path: Path) -> bytes:
    """The score, or what mistakes cost, against mean cost; the point in force and the full model are marked."""
    kind = path.suffix.lower().lstrip(".") or "png"
    if kind not in ("png", "svg", "pdf"):
        raise InvalidInputError(f"--plot writes png, svg or pdf; got {path.name!r}.")
    frontier, promise, priced = frontier_of(system), promised(system), is_priced(system)
    table = _table(system)
    figure, (ax, *beside) = new_figure(2 if priced and table is not None else 1)
    sign = -1.0 if priced else 1.0
    frontier.plot(ax, color="#0b5fa5", linewidth=1.5, label="efficient points")
    if column_name(system, "query"):
        ax.set_xlabel("mean cost per document")
    ax.plot(
        promise.cost,
        sign * promise.accuracy,
        "o",
        color="#c8501e",
        markersize=4 if priced else 7,
        label="in force",
    )
    if promise.full_accuracy is not None:
        at = (promise.full_cost, sign * promise.full_accuracy)
        ax.plot(*at, "*", color="black", markersize=12, label="full model for every row")
    if table is not None:
        _draw_measures(beside[0] if beside else ax, table, list(_COLOURS)[0 if beside else 1 :])
    ax.legend(frameon=False, fontsize=8, loc="upper right" if priced else "lower right")
    return file_bytes(figure, kind)


def _draw_measures(ax: Any, table: Any, names: list[str]) -> None:
    """A line with a band for each measure; on axes of its own where the others show money."""
    for name in names:
        band = {"color": _COLOURS[name], "alpha": 0.15, "linewidth": 0, "step": "post"}
        ax.fill_between(table["cost"], table[f"{name}_low"], table[f"{name}_high"], **band)
        ax.step(table["cost"], table[name], where="post", color=_COLOURS[name], linestyle="--", label=name)
    if len(names) > 1:
        ax.set_xlabel("mean cost of tests per row")
        ax.set_ylabel("share of rows")
        ax.legend(frameon=False, fontsize=8, loc="lower right")


def is_priced(system: Any) -> bool:
    """Whether mistakes have prices."""
    return chain_of(system).task.mistake_price is not None


def _budgets(frontier: Frontier) -> Any:
    return np.linspace(frontier.cost[0], frontier.cost[-1], _SHOWN)


def _table(system: Any) -> Any:
    """Measures at evenly spaced budgets, one line per point; None where the file does not tell."""
    frontier = frontier_of(system)
    seen = frontier.evidence[0]
    if is_number(system) or seen.strata is None:
        return None
    table = frontier.measures(_budgets(frontier), n_boot=_RESAMPLES)
    return table.drop_duplicates("cost")


def _measures(system: Any) -> dict[float, tuple[str, str]]:
    """Balanced accuracy with its interval and the lowest recall, by the cost of the point."""
    table = _table(system)
    if table is None:
        return {}
    recalls = [
        name for name in table if name.startswith("recall of ") and not name.endswith(("_low", "_high"))
    ]
    found = {}
    for line in table.to_dict(orient="records"):
        value, low, high = (f"{line[f'balanced accuracy{end}']:.3f}" for end in ("", "_low", "_high"))
        worst = min(recalls, key=line.__getitem__)
        found[line["cost"]] = (
            f"{value} ({low} to {high})",
            f"{line[worst]:.3f} ({worst.removeprefix('recall of ')})",
        )
    return found


def _scores(system: Any, point: OperatingPoint) -> tuple[str, ...]:
    share = f"{100 * point.share:.1f} %"
    if not is_priced(system):
        return quantity(point.cost), f"{point.score:.4f}", share
    return quantity(point.cost), quantity(-point.score), quantity(point.cost - point.score), share


def _least(frontier: Frontier) -> OperatingPoint:
    """The point whose tests and mistakes cost least together."""
    return frontier[frontier.least_total]


def parts_in_words(tests: float, mistakes: float) -> str:
    """A total and its two parts."""
    return f"{quantity(tests)} for tests + {quantity(mistakes)} for mistakes = {quantity(tests + mistakes)}"


def _total_numbers(point: OperatingPoint) -> dict[str, float]:
    return {"tests": point.cost, "mistakes": -point.score, "total": point.cost - point.score}
