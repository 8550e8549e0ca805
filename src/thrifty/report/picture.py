"""The report's main picture as a PNG, for slides and mails."""

import io

from thrifty.report.facts import Facts
from thrifty.report.tradeoff import Curve, draw_tradeoff, new_figure

__all__ = ["picture_of"]

_MARKERS = 40


def picture_of(facts: Facts) -> bytes:
    """Accuracy over mean cost with band, rivals and the full model, as the bytes of a PNG file."""
    points = facts.points
    efficient = [place for place in range(len(points)) if points.efficient[place]]
    # A marker for each of many points would hide the line.
    every = -(-len(efficient) // _MARKERS)
    places = sorted([*efficient[::every], efficient[-1]], key=lambda place: points.cost[place])

    def pick(values: tuple[float, ...]) -> list[float]:
        return [values[place] for place in places]

    curves = {_plain(facts.method): Curve(pick(points.cost), pick(points.accuracy))}
    for rival in facts.rivals:
        order = sorted(range(len(rival.cost)), key=lambda place: rival.cost[place])
        curves[_plain(rival.name)] = Curve(
            [rival.cost[place] for place in order], [rival.accuracy[place] for place in order]
        )
    figure, (ax,) = new_figure(width=7.2, height=4.6)
    ax.fill_between(
        pick(points.cost), pick(points.low), pick(points.high), color="#0b5fa5", alpha=0.15, linewidth=0
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
