"""Output of ``thrifty frontier``: efficient points of a system in words, as numbers and as a picture."""

from pathlib import Path
from typing import Any

import numpy as np

from thrifty.cli.console import quantity, say
from thrifty.cli.summary import (
    built_in_words,
    key_of,
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
from thrifty.plots import COLOURS, draw_marks, draw_measures, file_bytes, new_figure

__all__ = [
    "frontier_in_words",
    "frontier_numbers",
    "frontier_picture",
    "is_priced",
    "parts_in_words",
]

_SHOWN = 14
_RESAMPLES = 400


def frontier_in_words(system: Any, numbers: dict[str, Any], path: Path) -> None:
    """A table of efficient points, then the one in force."""
    frontier, chosen, key = frontier_of(system), numbers["chosen"], key_of(system)
    unit, name, priced = unit_of(system), chain_of(system).task.quality_name, is_priced(system)
    say(f"{path}: {len(frontier):,} efficient points on {numbers[unit]:,} {unit}")
    known = _measures(numbers["measures"] or [])
    points = [numbers["points"][place] for place in np.unique(frontier.within(_budgets(frontier)))]
    rows = [(*_scores(point, priced=priced), *known.get(point["cost"], ())) for point in points]
    score = ("tests", "mistakes", "total cost") if priced else ("mean cost", name)
    measured = ("balanced accuracy", "lowest recall") if known else ()
    print_table((*score, "answered by the full model", *measured), rows)
    spent = " to ".join(map(quantity, chosen["mean_cost_interval"]))
    ways = "`thrifty predict --budget` moves to any other point."
    cost, full, full_cost = chosen["mean_cost"], chosen[f"full_{key}"], chosen["full_cost"]
    low, high = chosen[f"{key}_interval"]
    if priced:
        least = numbers["least_total"]
        say(f"Least total cost: {parts_in_words(least['tests'], least['mistakes'])}.")
        theirs = "unknown" if full is None else parts_in_words(full_cost, -full)
        say(
            f"In force: {parts_in_words(cost, -chosen[key])} (tests {spent}, mistakes {quantity(-high)} to "
            f"{quantity(-low)}); the full model for every row: {theirs}. {ways}"
        )
    else:
        paid = paid_in_words(cost, chosen.get("mean_cost_per_query"), f" ({spent})")
        say(
            f"In force: mean cost {paid}, {name} {chosen[key]:.4f} ({low:.4f} to {high:.4f}); the full model for every "
            f"row: {share_text(full)} at {quantity(full_cost)}. {ways}"
        )
    told = [
        f"{name} {share_text(one['value'])} ({' to '.join(map(share_text, one['interval']))})"
        for name, one in chosen.get("measures", {}).items()
        if priced or name != "accuracy"
    ]
    if told:
        say(f"Measures of the point in force: {', '.join(told)}.")
    say(built_in_words(system, chosen))
    if chosen["certificate"] is not None:
        say(f"The system {chosen['certificate']['sentence']}.")


def frontier_numbers(system: Any) -> dict[str, Any]:
    """Every efficient point, the one in force, and measures at evenly spaced budgets."""
    frontier = frontier_of(system)
    table = _table(system)
    return {
        unit_of(system): frontier.n_rows,
        "chosen": numbers_of(system),
        "points": [named(system, point.as_dict()) for point in frontier],
        "least_total": _total(frontier[frontier.least_total]) if is_priced(system) else None,
        "measures": None if table is None else table.to_dict(orient="records"),
    }


def frontier_picture(system: Any, path: Path) -> bytes:
    """The score, or what mistakes cost, against mean cost; the point in force and the full model are marked."""
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


def parts_in_words(tests: float, mistakes: float) -> str:
    """A total and its two parts."""
    return f"{quantity(tests)} for tests + {quantity(mistakes)} for mistakes = {quantity(tests + mistakes)}"


def _total(point: OperatingPoint) -> dict[str, float]:
    return {"tests": point.cost, "mistakes": -point.score, "total": point.cost - point.score}
