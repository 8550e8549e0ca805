"""From facts to one HTML page that needs nothing else: no network, no library, no server; a picture lies beside it.

Words that come from outside (names of columns, labels, titles) enter the page in two ways only: escaped, or inside a
block of JSON that the script reads as data and puts on the page as text. Should either ever fail, the page's own policy
allows no script but the one whose checksum it names, and no request to anywhere.
"""

import base64
import hashlib
import json
import math
import os
from collections.abc import Iterator
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from thrifty.files import write_atomically
from thrifty.report.facts import Facts
from thrifty.report.tradeoff import majority_is_in_view, picture_of
from thrifty.report.words import (
    article,
    cost_digits,
    error_digits,
    error_text,
    fixed,
    lead_of_bill,
    measure_text,
    money,
    parts_of,
    percent_digits,
    plain_number,
    reaches,
    score_text,
    words_of,
)

__all__ = ["page_of", "write_report"]

_PRINTED = 24
"""Lines of the table of points that a printed page shows."""


def write_report(path: str | os.PathLike[str], facts: Facts, *, picture: bool = True) -> list[Path]:
    """Write facts as one self-contained HTML page, and its main picture beside it.

    Parameters
    ----------
    path : path
        The page, ``report.html`` say; the picture is ``report.png`` beside it. Old files are replaced in one step each,
        or left as they are if anything fails.
    facts : Facts
        What ``collect_facts`` returned.
    picture : bool, default=True
        Whether to draw the picture, which needs matplotlib. The page draws its own.

    Returns
    -------
    list of Path
        What was written.
    """
    page = Path(path)
    contents = {page: page_of(facts).encode()}
    if picture:
        contents[page.with_suffix(".png")] = picture_of(facts)
    for target, content in contents.items():
        write_atomically(target, content)
    return list(contents)


def page_of(facts: Facts) -> str:
    """The page as text."""
    style, script = _asset("style.css"), _asset("script.js")
    return Template(_asset("template.html")).substitute(
        title=escape(facts.title),
        **{f"word_{name}": escape(text) for name, text in words_of(facts).items()},
        lead=_lead(facts),
        deployed=_deployed(facts),
        warning=_warning(facts),
        certificate=_certificate(facts),
        points=_points_table(facts),
        print_note=escape(_print_note(facts)),
        measured="\n".join(
            f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in _measured(facts)
        ),
        facts=_as_json(facts),
        style=style,
        style_hash=_checksum(style),
        script=script,
        script_hash=_checksum(script),
    )


def _asset(name: str) -> str:
    return (files("thrifty.report") / name).read_text(encoding="utf-8")


def _checksum(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _as_json(facts: Facts) -> str:
    """Facts as JSON that cannot end the block it stands in, whatever the words."""
    entries = {
        **facts.as_dict(),
        "cost_digits": cost_digits(facts),
        "percent_digits": percent_digits(facts),
        "error_digits": error_digits(facts),
        "is_number": facts.is_number,
        "words": words_of(facts),
        "majority_is_in_view": majority_is_in_view(facts),
    }
    text = json.dumps(_rounded(entries), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _rounded(value: Any) -> Any:
    """Numbers to seven digits, which is more than any screen shows and half the size."""
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


def _lead(facts: Facts) -> str:
    if facts.bill is not None:
        return escape(lead_of_bill(facts))
    points, full = facts.points, facts.full
    places = [place for place in range(len(points)) if points.efficient[place]]
    low, high = places[0], places[-1]
    words = []
    if full is not None:
        named = f", {facts.full_name}," if facts.full_name else ""
        words.append(
            f"Asked about every row, the full model (f0){named} {reaches(facts, full.accuracy)} and costs "
            f"{money(facts, full.cost)} per row."
        )
    if low == high:
        words.append(
            f"{facts.method} {reaches(facts, points.accuracy[low])} for {money(facts, points.cost[low])} per row."
        )
    else:
        first = score_text(facts, points.accuracy[low])
        first = f"{article(facts)} {facts.score} of {first}" if facts.is_number else f"{first} right"
        words.append(
            f"{facts.method} answers easy rows from few features and buys more only for the others: "
            f"from {first} for {money(facts, points.cost[low])} "
            f"to {score_text(facts, points.accuracy[high])} for {money(facts, points.cost[high])}."
        )
    words.append(_constant(facts))
    return escape(" ".join(words))


def _constant(facts: Facts) -> str:
    """What an answer that looks at nothing achieves."""
    told = score_text(facts, facts.majority.accuracy)
    if facts.measured.n_queries is not None:
        return (
            f"Orders by chance would have {article(facts)} {facts.score} of {told}. A row is a document; {facts.score} "
            f"is a mean over queries."
        )
    if not facts.is_number:
        return f"Always answering with the most frequent class ({facts.majority.label}) would be right on {told}."
    errors = ", ".join(f"{one.name} {error_text(facts, one.constant)}" for one in facts.errors)
    return (
        f"Always answering with the best constant ({facts.majority.label}) would have {article(facts)} {facts.score} "
        f"of {told}" + (f" ({errors})." if errors else ".")
    )


def _deployed(facts: Facts) -> str:
    place, full = facts.deployed, facts.full
    if place is None:
        return ""
    cost, accuracy = facts.points.cost[place], facts.points.accuracy[place]
    text = f"{reaches(facts, accuracy).removeprefix('is ').removeprefix('has ')} for {money(facts, cost)} per row"
    whole = None if full is None else full.cost
    if facts.bill is not None:
        text, cost = parts_of(facts, cost, accuracy), cost + accuracy
        whole = None if full is None else full.cost + full.accuracy
    if whole:
        less = 1 - cost / whole
        text += f", {_percent(abs(less))} {'less' if less >= 0 else 'more'} than the full model"
    return f'<p class="deployed"><strong>Deployed:</strong> {escape(text)}.</p>'


def _warning(facts: Facts) -> str:
    if facts.measured.held_out:
        return ""
    return (
        '<p class="note"><strong>These numbers are too good.</strong> They are of the rows on which the operating '
        "points were chosen. Score the points on other rows before deciding anything.</p>"
    )


def _certificate(facts: Facts) -> str:
    certified = facts.certified
    if certified is None:
        return ""
    where = ""
    if certified.point is not None:
        cost, accuracy = facts.points.cost[certified.point], facts.points.accuracy[certified.point]
        where = (
            f"<p>On the rows of this report it {escape(reaches(facts, accuracy))} "
            f"for {escape(money(facts, cost))} per row.</p>"
        )
    sentence = certified.sentence
    return (
        '<section class="certificate" aria-labelledby="certificate-title"><h2 id="certificate-title">Certificate</h2>'
        f"<p>The certified point {escape(sentence)}.</p>{where}"
        f'<p class="hint">The certificate bounds {escape(words_of(facts)["certified"])}.</p></section>'
    )


def _points_table(facts: Facts) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text, _ in _cells(facts, facts.start))
    printed = _printed(facts)
    lines = []
    for place in range(len(facts.points)):
        cells = [text for _, text in _cells(facts, place)]
        kinds = [*(mark.split()[0] for mark in facts.marks(place)), *([] if place in printed else ["minor"])]
        kind = f' class="{" ".join(kinds)}"' if kinds else ""
        lines.append(
            f'<tr data-point="{place}"{kind}><th scope="row">{escape(cells[0])}</th>'
            + "".join(f"<td>{escape(text)}</td>" for text in cells[1:])
            + "</tr>"
        )
    body = "\n".join(lines)
    return f'<table class="points">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>'


def _cells(facts: Facts, place: int) -> Iterator[tuple[str, str]]:
    """What the table says about a point: head and text of each column."""
    points, marks = facts.points, ", ".join(facts.marks(place))
    yield "budget", plain_number(facts, points.budget[place]) + (f" ({marks})" if marks else "")
    interval = f"{100 * facts.measured.level:g} % interval"
    if facts.bill is not None:
        yield "total", plain_number(facts, facts.total(place))
        totals = (plain_number(facts, end[place]) for end in (facts.bill.low, facts.bill.high))
        yield interval, " – ".join(totals)  # noqa: RUF001
        yield "tests", plain_number(facts, points.cost[place])
        yield "mistakes", score_text(facts, points.accuracy[place])
    else:
        yield "mean cost", plain_number(facts, points.cost[place])
        yield facts.score if facts.is_number else "right", score_text(facts, points.accuracy[place])
        scores = (score_text(facts, end[place]) for end in (points.low, points.high))
        yield interval, " – ".join(scores)  # noqa: RUF001
    for one in facts.measures:
        curves = (one.value, one.low, one.high)
        value, low, high = (measure_text(facts, one.name, curve[place]) for curve in curves)
        # Beside a bill there is room for what is asked most.
        ends = "" if one.name == "accuracy" else f" ({low.split()[0]} – {high.split()[0]})"  # noqa: RUF001
        yield one.name, value + ends
    if points.auc:
        yield "AUC", fixed(points.auc[place], percent_digits(facts) + 2)
    for one in facts.errors:
        value, low, high = (error_text(facts, values[place]) for values in (one.value, one.low, one.high))
        yield one.name, f"{value} ({low} – {high})"  # noqa: RUF001
    yield "full model", f"{fixed(100 * points.share(place), 1)} %"
    if facts.full is not None:
        own, whole = points.cost[place], facts.full.cost
        if facts.bill is not None:
            own, whole = facts.total(place), facts.full.cost + facts.full.accuracy
        yield "saved", _percent(1 - own / whole) if whole > 0 else ""
    bought = (one.n_columns * facts.share_buying(place, item) for item, one in enumerate(facts.purchases))
    yield "features per row", fixed(sum(bought), 1)
    if facts.measured.n_queries:
        documents = facts.measured.n_rows / facts.measured.n_queries
        yield "cost of a query", plain_number(facts, points.cost[place] * documents)


def _printed(facts: Facts) -> set[int]:
    """Places of the points on paper: those nearest to evenly spaced budgets, and those that mean something."""
    budget = facts.points.budget
    step = (budget[-1] - budget[0]) / (_PRINTED - 1)
    wanted = [budget[0] + step * k for k in range(_PRINTED)] if len(budget) > _PRINTED else budget
    return {
        facts.start,
        *(place for place in range(len(budget)) if facts.marks(place)),
        *(min(range(len(budget)), key=lambda place: abs(budget[place] - one)) for one in wanted),
    }


def _print_note(facts: Facts) -> str:
    printed, n_points = len(_printed(facts)), len(facts.points)
    which = "All points are" if printed == n_points else f"{printed} of {n_points} points are"
    return f"{which} printed. The numbers before the table are for the budget chosen on the screen."


def _measured(facts: Facts) -> Iterator[tuple[str, str]]:
    how = facts.measured
    drawn = "rows" if how.n_queries is None else "queries"
    rows = "" if how.n_queries is None else f" documents of {how.n_queries:,} queries"
    yield (
        "Rows",
        f"{how.n_rows:,}{rows}, "
        + (
            "on which no operating point was chosen"
            if how.held_out
            else "the very rows the operating points were chosen on"
        ),
    )
    on = "" if how.n_chosen is None else f" on {how.n_chosen:,} other {drawn}" if how.held_out else ""
    systems = f"{how.n_systems:,} fitted system{'' if how.n_systems == 1 else 's'}"
    shown = sum(facts.points.efficient)
    fewer = "" if shown == how.n_points else f"; {shown:,} of them are shown, for evenly spaced budgets"
    yield "Operating points", f"{how.n_points:,} efficient points of {systems}, chosen{on}{fewer}"
    scores = "accuracies" if facts.score == "accuracy" else facts.score
    yield (
        "Budget",
        f"compared with the mean cost on the rows of the choice; costs and {scores} are of the rows above",
    )
    yield (
        "Intervals",
        f"{100 * how.level:g} % of {how.n_boot:,} bootstrap resamples of the {drawn} (seed {how.seed}), point by point",
    )
    yield "Version", f"thrifty {how.version}"
    if how.date is not None:
        yield "Date", how.date
    yield from how.notes


def _percent(share: float) -> str:
    return f"{fixed(100 * share, 0)}\N{NO-BREAK SPACE}%"
