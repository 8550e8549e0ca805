"""The report as one self-contained HTML page: no network, no library, no server.

Text from outside (names of columns, labels, titles) enters the page in two ways only: escaped, or inside a block of
JSON that the script reads as data and puts on the page as text. Should either fail, the content security policy of the
page allows only the script whose checksum it names, and no request.
"""

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
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
from thrifty.files import check_output, write_atomically
from thrifty.plots import COLOURS, Curve, Mark, check_installed, draw_report, file_bytes
from thrifty.plots import Constant as ConstantLine
from thrifty.reporting.facts import Facts
from thrifty.reporting.measure import measure, price_list_of
from thrifty.reporting.words import (
    certificate_text,
    constant_text,
    deployed_text,
    is_constant_in_view,
    labels_of,
    lead_text,
    measured_lines,
    point_cells,
    view,
)

__all__ = ["groups_of", "page_of", "picture_of", "report", "write_page"]

_PRINTED = 24
"""Number of lines of the table of points on paper."""


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
    rivals : dict of str to fitted estimator, Chain or Frontier, optional
        Other systems, to compare with on the same rows; a frontier must be scored on them.
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
    >>> clf = BudgetedClassifier(LogisticRegression(), cv=2, random_state=0).fit(X[:300], y[:300])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in report(clf, X[300:], y[300:], f"{folder}/report.html")]
    ['report.html', 'report.png']
    """
    page = Path(path)
    check_output(page)
    check_installed()
    for name, one in {
        "system": system,
        **{f"rivals[{key!r}]": one for key, one in (rivals or {}).items()},
    }.items():
        if not isinstance(one, Frontier):
            price_list_of(name, one)
    facts = measure(system, X, y, by=groups_of(by, X), rivals=rivals)
    return write_page(page, replace(facts, title=title, unit=unit))


def groups_of(by: Mapping[str, ArrayLike] | Sequence[str], X: Any) -> dict[str, ArrayLike]:
    """Labels of the rows by the name of the group, from columns of a table by name, or as they are given."""
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


def write_page(path: str | os.PathLike[str], facts: Facts, *, picture: bool = True) -> list[Path]:
    """Write facts as one self-contained HTML page and, unless ``picture`` is False, its main picture beside it."""
    page = Path(path)
    contents = {page: page_of(facts).encode()}
    if picture:
        contents[page.with_suffix(".png")] = picture_of(facts)
    for target, content in contents.items():
        write_atomically(target, content)
    return list(contents)


# -- the page --------------------------------------------------------------------------------------


def page_of(facts: Facts) -> str:
    """The page as text."""
    style, script = _asset("style.css"), _asset("script.js")
    deployed = escape(deployed_text(facts))
    return Template(_asset("template.html")).substitute(
        title=escape(facts.title),
        **{f"word_{name}": escape(text) for name, text in labels_of(facts).items()},
        lead=escape(lead_text(facts)),
        deployed=f'<p class="deployed"><strong>Deployed:</strong> {deployed}</p>' if deployed else "",
        warning="" if facts.measured.held_out else _WARNING,
        certificate=_certificate(facts),
        points=_points_table(facts),
        print_note=_print_note(facts),
        measured="\n".join(
            f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in measured_lines(facts)
        ),
        facts=_as_json(view(facts)),
        style=style,
        style_hash=_checksum(style),
        script=script,
        script_hash=_checksum(script),
    )


_WARNING = (
    '<p class="note"><strong>These numbers are too good.</strong> They are of the rows on which the operating points '
    "were chosen. Score the points on other rows before deciding anything.</p>"
)


def _asset(name: str) -> str:
    return (files("thrifty.reporting") / name).read_text(encoding="utf-8")


def _checksum(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _as_json(shown: dict[str, Any]) -> str:
    """JSON that is safe inside a script element; numbers to seven digits."""
    text = json.dumps(_rounded(shown), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


def _certificate(facts: Facts) -> str:
    sentences = [escape(text) for text in certificate_text(facts)]
    if not sentences:
        return ""
    paragraphs = "".join(f"<p>{text}</p>" for text in sentences[:-1])
    return (
        '<section class="certificate" aria-labelledby="certificate-title"><h2 id="certificate-title">Certificate</h2>'
        f'{paragraphs}<p class="hint">{sentences[-1]}</p></section>'
    )


def _points_table(facts: Facts) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text, _ in point_cells(facts, facts.start))
    printed = _printed(facts)
    lines = []
    for place in range(len(facts.points)):
        first, *others = (escape(text) for _, text in point_cells(facts, place))
        kinds = [*(mark.split()[0] for mark in facts.marks(place)), *([] if place in printed else ["minor"])]
        kind = f' class="{" ".join(kinds)}"' if kinds else ""
        cells = "".join(f"<td>{text}</td>" for text in others)
        lines.append(f'<tr data-point="{place}"{kind}><th scope="row">{first}</th>{cells}</tr>')
    body = "\n".join(lines)
    return f'<table class="points">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>'


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


# -- the picture beside the page -------------------------------------------------------------------


def picture_of(facts: Facts) -> bytes:
    """Score over mean cost with band, rivals, the full model and the marked points, as the bytes of a PNG file."""
    points, full = facts.points, facts.full
    places = sorted(
        (place for place in range(len(points)) if points.efficient[place]), key=points.cost.__getitem__
    )

    def pick(values: tuple[float, ...]) -> list[float]:
        return [values[place] for place in places]

    curves = {facts.method: Curve(pick(points.cost), pick(points.score), steps=True)}
    for rival in facts.rivals:
        cost, score = zip(*sorted(zip(rival.cost, rival.score, strict=True)), strict=True)
        curves[rival.name] = Curve(cost, score, steps=True)
    in_view = is_constant_in_view(facts)
    constant = None
    if in_view or facts.bill is None:  # else it is far above, and the page's first lines say what it costs
        constant = ConstantLine(facts.constant.score, constant_text(facts), in_view)
    unit = f", {facts.unit}" if facts.unit else ""
    vertical = f"test {facts.score_name}" if facts.bill is None else f"mean cost of mistakes per row{unit}"
    figure = draw_report(
        curves,
        (pick(points.low), pick(points.high)),
        labels=(labels_of(facts)["across"] + unit, vertical),
        title=facts.title,
        full=None if full is None else (full.cost, full.score),
        constant=constant,
        marks=_marks(facts),
    )
    return file_bytes(figure)


def _marks(facts: Facts) -> list[Mark]:
    """Draw the points with a name; the deployed one is on top and has a label."""
    signs = {
        "certified": ("D", "#1e6b37", 8),
        "least total cost": ("v", COLOURS[3], 9),
        "deployed": ("o", "#b3261e", 10),
    }
    found, marked = [], facts.marked
    for name, (marker, colour, size) in signs.items():
        if name in marked:
            place, is_deployed = marked[name], name == "deployed"
            size = 15 if place == facts.deployed and not is_deployed else size
            flag = ", ".join(facts.marks(place)) if is_deployed else ""
            cost, score = facts.points.cost[place], facts.points.score[place]
            found.append(Mark(cost, score, name, marker, colour, size, flag))
    return found
