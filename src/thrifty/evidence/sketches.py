"""Small pictures for notebooks, as SVG written by hand: they need no library, and take the colours of their page."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from thrifty.arrays import Floats

__all__ = ["Mark", "bars", "staircase", "table"]

_WIDTH, _HEIGHT = 360, 170
_LEFT, _BOTTOM, _TOP, _RIGHT = 52, 34, 12, 14
_LINE = 19
_STYLE = 'xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="11" fill="currentColor"'
_ACCENT = "#2f7fc1"


@dataclass(frozen=True)
class Mark:
    """A point that a staircase shows besides its own: where it is, and what it is called."""

    cost: float
    score: float
    label: str
    colour: str


def staircase(cost: Floats, score: Floats, marks: Sequence[Mark], title: str, axis: str) -> str:
    """Score against mean cost as steps, the cheaper point up to the next, with some points marked.

    Parameters
    ----------
    cost, score : ndarray of shape (n_points,)
        The points, by rising cost.
    marks : sequence of Mark
        Further points, with labels in a line below.
    title, axis : str
        What the picture shows, for readers who cannot see it; what the score is.
    """
    every_cost = np.r_[cost, [mark.cost for mark in marks]]
    every_score = np.r_[score, [mark.score for mark in marks]]
    # Costs start at nothing: savings are seen as lengths.
    right = max(float(every_cost.max()), 1e-300) * 1.04
    low, high = float(every_score.min()), float(every_score.max())
    room = max(high - low, 1e-9 * max(abs(high), 1.0))
    low, high = low - 0.08 * room, high + 0.08 * room

    def place(one_cost: float, one_score: float) -> tuple[float, float]:
        across = _LEFT + (_WIDTH - _LEFT - _RIGHT) * one_cost / right
        return across, _TOP + (_HEIGHT - _TOP - _BOTTOM) * (high - one_score) / (high - low)

    corners = [place(float(cost[0]), float(score[0]))]
    for one_cost, one_score in zip(cost[1:].tolist(), score[1:].tolist(), strict=True):
        across, up = place(one_cost, one_score)
        corners += [(across, corners[-1][1]), (across, up)]
    path = " ".join(f"{across:.1f},{up:.1f}" for across, up in corners)
    parts = [_axes(right, low, high, axis)]
    parts.append(f'<polyline points="{path}" fill="none" stroke="{_ACCENT}" stroke-width="2"/>')
    if len(corners) == 1:
        parts.append(f'<circle cx="{corners[0][0]:.1f}" cy="{corners[0][1]:.1f}" r="3" fill="{_ACCENT}"/>')
    for mark in marks:
        across, up = place(mark.cost, mark.score)
        parts.append(f'<circle cx="{across:.1f}" cy="{up:.1f}" r="4.5" fill="{mark.colour}"/>')
    for number, mark in enumerate(marks):
        down = _HEIGHT + 8 + _LINE * number
        parts.append(f'<circle cx="{_LEFT}" cy="{down}" r="4.5" fill="{mark.colour}"/>')
        parts.append(f'<text x="{_LEFT + 10}" y="{down + 4}">{escape(mark.label)}</text>')
    height = _HEIGHT + _LINE * len(marks)
    return _framed(_WIDTH, height, title, "".join(parts))


def _axes(right: float, low: float, high: float, axis: str) -> str:
    bottom, end = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    lines = (
        f'<path d="M{_LEFT},{_TOP} V{bottom} H{end}" fill="none" stroke="currentColor" stroke-opacity="0.5"/>'
    )
    # Where all scores are nearly the same, four digits would name both ends alike.
    digits = 4 if high - low > 1e-3 * max(abs(high), abs(low)) else 6
    written = [
        (_LEFT - 5, _TOP + 9, "end", f"{high:.{digits}g}"),
        (_LEFT - 5, bottom, "end", f"{low:.{digits}g}"),
        (_LEFT, bottom + 13, "middle", "0"),
        (end, bottom + 13, "end", f"{right:.3g}"),
        ((_LEFT + end) / 2, bottom + 26, "middle", f"mean cost per row (upwards: {axis})"),
    ]
    return lines + "".join(
        f'<text x="{across:g}" y="{down:g}" text-anchor="{anchor}">{escape(text)}</text>'
        for across, down, anchor, text in written
    )


def bars(names: Sequence[str], shares: Sequence[float], notes: Sequence[str], title: str) -> str:
    """A line for each name: a bar as long as its share, which lies in [0, 1], and a note behind it."""
    parts = []
    for number, (name, share, note) in enumerate(zip(names, shares, notes, strict=True)):
        top = 4 + _LINE * number
        shown = name if len(name) <= 22 else name[:21] + "…"
        parts.append(f'<text x="136" y="{top + 12}" text-anchor="end">{escape(shown)}</text>')
        parts.append(
            f'<rect x="142" y="{top + 2}" width="120" height="13" fill="currentColor" fill-opacity="0.08"/>'
        )
        parts.append(f'<rect x="142" y="{top + 2}" width="{120 * share:.1f}" height="13" fill="{_ACCENT}"/>')
        parts.append(f'<text x="268" y="{top + 12}">{escape(note)}</text>')
    return _framed(440, 8 + _LINE * len(names), title, "".join(parts))


def _framed(width: int, height: int, title: str, inside: str) -> str:
    return (
        f'<svg {_STYLE} role="img" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'style="max-width:100%;height:auto"><title>{escape(title)}</title>{inside}</svg>'
    )


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """An HTML table of text; the first column is words, the others are numbers."""

    def line(cells: Sequence[str], tag: str) -> str:
        sides = ("left", *("right" for _ in cells[1:]))
        inside = "".join(
            f'<{tag} style="text-align:{side};padding:1px 10px 1px 0;font-weight:normal">{escape(cell)}</{tag}>'
            for cell, side in zip(cells, sides, strict=True)
        )
        return f"<tr>{inside}</tr>"

    body = "".join(line(cells, "td") for cells in lines)
    style = "border-collapse:collapse;font-size:12px"
    return f'<table style="{style}"><thead>{line(head, "th")}</thead><tbody>{body}</tbody></table>'
