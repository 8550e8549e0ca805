"""The report's main picture as a PNG, for slides and mails."""

import io

from thrifty.report.facts import Facts
from thrifty.report.tradeoff import Curve, draw_tradeoff, new_figure

__all__ = ["picture_of"]

_ROOM = 0.015
"""Part of the largest cost that two markers are apart at least."""


def picture_of(facts: Facts) -> bytes:
    """Accuracy over mean cost with band, rivals and the full model, as the bytes of a PNG file."""
    points = facts.points
    efficient = [place for place in range(len(points)) if points.efficient[place]]
    by_cost = sorted(efficient, key=lambda place: points.cost[place])
    # Markers of points that crowd would hide the line.
    room = _ROOM * points.cost[by_cost[-1]]
    places = by_cost[:1]
    for place in by_cost:
        if points.cost[place] - points.cost[places[-1]] >= room:
            places.append(place)

    def pick(values: tuple[float, ...]) -> list[float]:
        return [values[place] for place in places]

    curves = {_plain(facts.method): Curve(pick(points.cost), pick(points.accuracy), steps=True)}
    for rival in facts.rivals:
        order = sorted(range(len(rival.cost)), key=lambda place: rival.cost[place])
        cost, accuracy = ([values[place] for place in order] for values in (rival.cost, rival.accuracy))
        curves[_plain(rival.name)] = Curve(cost, accuracy, steps=True)
    figure, (ax,) = new_figure(width=7.2, height=4.6)
    ax.fill_between(
        pick(points.cost),
        pick(points.low),
        pick(points.high),
        color="#0b5fa5",
        alpha=0.15,
        linewidth=0,
        step="post",
    )
    full = None if facts.full is None else (facts.full.cost, facts.full.accuracy)
    draw_tradeoff(ax, curves, full=full, title=_plain(facts.title))
    if facts.unit:
        ax.set_xlabel(f"mean cost per row, {_plain(facts.unit)}")
    stream = io.BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def _plain(text: str) -> str:
    """Text as it is: matplotlib would read what stands between dollar signs as mathematics, and hide a leading _."""
    return (text if text[:1] != "_" else " " + text).replace("$", r"\$")
