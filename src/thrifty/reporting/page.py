"""From a system and labelled rows to one HTML page that needs nothing else: no network, no library, no server.

Words that come from outside (names of columns, labels, titles) enter the page in two ways only: escaped, or inside a
block of JSON that the script reads as data and puts on the page as text. Should either ever fail, the page's own policy
allows no script but the one whose checksum it names, and no request to anywhere.
"""

import base64
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty.errors import InvalidInputError
from thrifty.evidence.frontier import Frontier
from thrifty.evidence.observe import evidence_of
from thrifty.files import check_output, write_atomically
from thrifty.plots import COLOURS, Constant, Curve, Mark, check_installed, draw_report, file_bytes
from thrifty.reporting.facts import Facts
from thrifty.reporting.measure import check_prices, measure
from thrifty.reporting.words import (
    article,
    at_point,
    constant_text,
    cost_digits,
    error_text,
    fixed,
    groups_in_words,
    lead_of_bill,
    measure_text,
    money,
    parts_of,
    percent,
    percent_digits,
    plain_number,
    reaches,
    score_text,
    tiles_at,
    words_of,
)

__all__ = ["facts_of", "majority_is_in_view", "page_of", "picture_of", "report", "write_page"]

_PRINTED = 24
"""Lines of the table of points that a printed page shows."""


def report(
    system: Any,
    X: Any,
    y: ArrayLike,
    path: str | os.PathLike[str],
    *,
    by: Mapping[str, ArrayLike] | Sequence[str] = (),
    rivals: Mapping[str, Any] | None = None,
    title: str = "What accuracy costs",
    unit: str = "",
) -> list[Path]:
    """Measure a fitted system on labelled rows, and write one HTML page that explains every operating point.

    The page opens at the operating point in force. It needs no network, library or server; its main picture is
    written beside it. Files that are there already are replaced in one step each.

    Parameters
    ----------
    system : fitted estimator or Chain
        What is reported. Its operating points are those of ``frontier_``; its certificate is shown if it has one.
    X : table of shape (n_samples, n_features)
        Rows that neither the system nor its full model was fitted on.
    y : array-like of shape (n_samples,), or (n_samples, 2) of documents
        Labels or numbers; of documents, relevance and query.
    path : path
        The page, ``report.html`` say; the picture is ``report.png`` beside it.
    by : sequence of str, or dict of str to array-like of shape (n_samples,)
        Groups of rows to tell apart: columns of ``X`` by name, or labels of the rows, by site say.
    rivals : dict of str to fitted estimator or Chain, optional
        Other systems, to compare with on the same rows.
    title, unit : str
        Title of the page, and unit of the prices.

    Returns
    -------
    list of Path
        What was written.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from thrifty import BudgetedClassifier, report
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> X = X.iloc[:, :4].round(2)
    >>> clf = BudgetedClassifier(LogisticRegression(), sizes=[(4, 2)], cv=2, random_state=0).fit(X[:300], y[:300])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in report(clf, X[300:], y[300:], f"{folder}/report.html")]
    ['report.html', 'report.png']
    """
    page = Path(path)
    check_output(page)
    check_installed()
    return write_page(page, facts_of(system, X, y, by=by, rivals=rivals, title=title, unit=unit))


def facts_of(
    system: Any,
    X: Any,
    y: ArrayLike,
    *,
    by: Mapping[str, ArrayLike] | Sequence[str] = (),
    rivals: Mapping[str, Any] | None = None,
    **how: Any,
) -> Facts:
    """What the page of ``report`` says; ``how`` is passed on to ``measure``."""
    groups, others = _groups(by, X), dict(rivals or {})
    for name, one in {"system": system, **{f"rivals[{key!r}]": one for key, one in others.items()}}.items():
        _check_system(name, one)
    frontier, chosen = _frontier_on(system, X, y)
    return measure(
        frontier,
        y,
        chosen=chosen,
        estimators=[system],
        X=X,
        slices=groups,
        rivals={name: _frontier_on(rival, X, y)[0] for name, rival in others.items()},
        certificate=getattr(system, "certificate_", None),
        deployed=system if chosen is not None and hasattr(system, "chain_") else None,
        method=type(system).__name__,
        full_name=_full_name(system),
        **how,
    )


def _check_system(name: str, system: Any) -> None:
    """Refuse what has no page before rows are read."""
    served = getattr(system, "chain_", getattr(system, "forest_", system))
    if not hasattr(served, "price_list"):
        got = type(system).__name__ if hasattr(system, "fit") else repr(system)
        raise InvalidInputError(f"{name} must be a fitted estimator or a Chain; got {got}. Call fit first.")
    check_prices(served.price_list)


def _groups(by: Mapping[str, ArrayLike] | Sequence[str], X: Any) -> dict[str, ArrayLike]:
    """Labels of the rows by the name of the group."""
    if isinstance(by, Mapping):
        return dict(by)
    names = [by] if isinstance(by, str) else list(by)
    columns = [str(name) for name in getattr(X, "columns", ())]
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise InvalidInputError(
            f"by names {', '.join(map(repr, unknown))}, which is no column of X. Name columns of a data frame, or give "
            f"labels of the rows: by={{{unknown[0]!r}: labels}}."
        )
    return {name: np.asarray(X[name]) for name in names}


def _frontier_on(system: Any, X: Any, y: ArrayLike) -> tuple[Frontier, Frontier | None]:
    """Operating points on the rows of the report, and as they were chosen; None where no such rows are known."""
    try:
        chosen: Frontier = system.frontier_
    except (
        AttributeError,
        InvalidInputError,
    ):  # a chain, a single point, or a file without the rows of the choice
        return Frontier.from_evidence([evidence_of(system, X, y)]), None
    seen = evidence_of(system, X, y, settings=dict(chosen.evidence[0].settings))
    # A gate that was fitted with one threshold is shown with that one.
    return chosen.on([replace(seen, points=chosen.evidence[0].points)]), chosen


def _full_name(system: Any) -> str:
    """Class of the full model, where it is an estimator."""
    innermost = getattr(getattr(system, "chain_", system), "innermost", None)
    model = getattr(innermost, "estimator", None)
    model = getattr(model, "estimator", model) if type(model).__name__ == "FrozenEstimator" else model
    return "" if model is None else type(model).__name__


def write_page(path: str | os.PathLike[str], facts: Facts, *, picture: bool = True) -> list[Path]:
    """Write facts as one self-contained HTML page and, unless ``picture`` is False, its main picture beside it."""
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
    return (files("thrifty.reporting") / name).read_text(encoding="utf-8")


def _checksum(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _as_json(facts: Facts) -> str:
    """Facts as JSON that cannot end the block it stands in, whatever the words."""
    numbers = facts.as_dict()
    # What the script is told in words it needs no numbers of.
    del numbers["errors"], numbers["measures"]
    for group in numbers["groupings"]:
        del group["right"], group["full_right"]
    entries = {
        **numbers,
        "cost_digits": cost_digits(facts),
        "is_number": facts.is_number,
        "words": words_of(facts),
        "constant": constant_text(facts),
        "tiles": [(name, head) for name, head, _ in tiles_at(facts, facts.start)],
        "told": [at_point(facts, place) for place in range(len(facts.points))],
        "groups": groups_in_words(facts),
        "majority_is_in_view": majority_is_in_view(facts),
    }
    text = json.dumps(_rounded(entries), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
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
        text += f", {percent(abs(less))} {'less' if less >= 0 else 'more'} than the full model"
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
        yield "saved", percent(1 - own / whole) if whole > 0 else ""
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


# -- the picture beside the page ---------------------------------------------------------------


def majority_is_in_view(facts: Facts) -> bool:
    """Whether a picture can reach to the constant answer and leave half of its height to the points."""
    points = facts.points
    known = [*points.low, *points.high, *([] if facts.full is None else [facts.full.accuracy])]
    if facts.bill is not None:
        return max(known) - min(known) >= (facts.majority.accuracy - min(known)) / 2
    return max(known) - min(known) >= (max(known) - facts.majority.accuracy) / 2


def picture_of(facts: Facts) -> bytes:
    """Score over mean cost with band, rivals, the full model and the marked points, as the bytes of a PNG file."""
    points, words, full = facts.points, words_of(facts), facts.full
    places = sorted(
        (place for place in range(len(points)) if points.efficient[place]), key=points.cost.__getitem__
    )

    def pick(values: tuple[float, ...]) -> list[float]:
        return [values[place] for place in places]

    curves = {facts.method: Curve(pick(points.cost), pick(points.accuracy), steps=True)}
    for rival in facts.rivals:
        cost, accuracy = zip(*sorted(zip(rival.cost, rival.accuracy, strict=True)), strict=True)
        curves[rival.name] = Curve(cost, accuracy, steps=True)
    in_view = majority_is_in_view(facts)
    constant = None
    if in_view or facts.bill is None:  # else it is far above, and the page's first lines say what it costs
        constant = Constant(facts.majority.accuracy, constant_text(facts), in_view)
    unit = f", {facts.unit}" if facts.unit else ""
    vertical = f"test {facts.score}" if facts.bill is None else f"mean cost of mistakes per row{unit}"
    figure = draw_report(
        curves,
        (pick(points.low), pick(points.high)),
        labels=(words["across"] + unit, vertical),
        title=facts.title,
        full=None if full is None else (full.cost, full.accuracy),
        constant=constant,
        marks=_marks(facts),
    )
    return file_bytes(figure)


def _marks(facts: Facts) -> list[Mark]:
    """Points with a name: the deployed one stands on top of the others and flies a flag."""
    certified = None if facts.certified is None else facts.certified.point
    least = None if facts.bill is None else facts.bill.least
    known = (
        (certified, "certified", "D", "#1e6b37", 8),
        (least, "least total cost", "v", COLOURS[3], 9),
        (facts.deployed, "deployed", "o", "#b3261e", 10),
    )
    found = []
    for place, name, marker, colour, size in known:
        if place is not None:
            is_deployed = name == "deployed"
            size = 15 if place == facts.deployed and not is_deployed else size
            flag = ", ".join(facts.marks(place)) if is_deployed else ""
            cost, score = facts.points.cost[place], facts.points.accuracy[place]
            found.append(Mark(cost, score, name, marker, colour, size, flag))
    return found
