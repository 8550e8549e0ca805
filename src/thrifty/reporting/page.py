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
from thrifty.files import check_output, write_atomically
from thrifty.reporting.facts import Facts
from thrifty.reporting.measure import measure
from thrifty.reporting.words import (
    certificate_text,
    deployed_text,
    lead_text,
    measured_lines,
    point_cells,
    titles_of,
    view,
)


def report(
    system: Any,
    X: Any,
    y: ArrayLike,
    path: str | os.PathLike[str],
    *,
    by: Mapping[str, ArrayLike] | Sequence[str] = (),
    rivals: Mapping[str, Any] | None = None,
    cost: Any = None,
    answers: Any = None,
    evidence: Any = None,
    title: str | None = None,
    unit: str = "",
) -> Path:
    """Measure a fitted system on labelled rows, and write one HTML page that explains every operating point.

    The page opens at the operating point in force. It needs no network, library or server. A file that is there already
    is replaced in one step.

    Parameters
    ----------
    system : fitted estimator, Chain or ModelRouter
        The system. Its operating points are those of ``frontier_``; its certificate is shown if it has one.
    X : table of shape (n_samples, n_features)
        Rows that neither the system nor its full model was fitted on.
    y : array-like of shape (n_samples,), or (n_samples, 2) of documents
        Labels or numbers; of documents, relevance and query; for a router, ``quality`` as in its ``fit``.
    path : path
        The file to write, ``report.html`` say.
    by : sequence of str, or dict of str to array-like of shape (n_samples,)
        Groups of rows to tell apart: columns of ``X`` by name, or labels of the rows, by site say.
    rivals : dict of str to fitted estimator, Chain or Frontier, optional
        Other systems, to compare with on the same rows; a frontier must be scored on them.
    cost, answers, evidence : array-like of shape (n_samples, n_models), optional
        Log of a router, as in its ``fit``.
    title, unit : str, optional
        Title of the page, and unit of the prices; measured seconds are called so.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from thrifty import BudgetedClassifier, report
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> X = X.iloc[:, :4].round(2)
    >>> full = LogisticRegression(solver="newton-cholesky")
    >>> clf = BudgetedClassifier(full, cv=2, random_state=0).fit(X[:300], y[:300])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report(clf, X[300:], y[300:], f"{folder}/report.html").name
    'report.html'
    """
    page = Path(path)
    check_output(page)
    log = {"cost": cost, "answers": answers, "evidence": evidence}
    facts = measure(system, X, y, by=groups_of(by, X), rivals=rivals, **log)
    write_atomically(
        page, page_of(replace(facts, title=title or facts.title, unit=unit or facts.unit)).encode()
    )
    return page


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


# -- the page --------------------------------------------------------------------------------------


def page_of(facts: Facts) -> str:
    """The page as text."""
    style, script = _asset("style.css"), _asset("script.js")
    deployed = escape(deployed_text(facts))
    return Template(_asset("template.html")).substitute(
        title=escape(facts.title),
        **{f"word_{name}": escape(text) for name, text in titles_of(facts).items()},
        lead=escape(lead_text(facts)),
        deployed=f'<p class="deployed"><strong>Deployed:</strong> {deployed}</p>' if deployed else "",
        warning="" if facts.held_out else _WARNING,
        certificate=_certificate(facts),
        points=_points_table(facts),
        tree=_tree(facts) + _budgets(facts),
        receipts=_receipts(facts),
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
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def _certificate(facts: Facts) -> str:
    sentences = [escape(text) for text in certificate_text(facts)]
    if not sentences:
        return ""
    paragraphs = "".join(f"<p>{text}</p>" for text in sentences[:-1])
    return (
        '<section class="certificate" aria-labelledby="certificate-title"><h2 id="certificate-title">Certificate</h2>'
        f'{paragraphs}<p class="hint">{sentences[-1]}</p></section>'
    )


def _tree(facts: Facts) -> str:
    if not facts.picture:
        return ""
    return (
        '<section aria-labelledby="tree-title"><h2 id="tree-title">Tree of purchases</h2><p class="hint">At the '
        "deployed point: share of rows that come to each set of purchases, and what they have paid there; where "
        'it is dark, they stop.</p><div class="scroll"><img alt="Tree of purchases" '
        f'src="data:image/png;base64,{base64.b64encode(facts.picture).decode()}"></div></section>\n'
    )


def _budgets(facts: Facts) -> str:
    """What more of each resource buys, with a picture where there are two."""
    if not facts.more:
        return ""
    names = " and ".join(curve.name for curve in facts.costs)
    lines = "\n".join(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in facts.more)
    data = base64.b64encode(facts.budgets_picture).decode()
    picture = f'<div class="scroll"><img alt="Score by budgets" src="data:image/png;base64,{data}"></div>'
    return (
        '<section aria-labelledby="budgets-title" class="measured"><h2 id="budgets-title">What more of each resource '
        f'buys</h2><p class="hint">Budgets of {escape(names)}, and the best mix of points at each, as expected at the '
        f'fit.</p>{picture if data else ""}<dl class="facts">\n{lines}\n</dl>'
        "</section>\n"
    )


def _receipts(facts: Facts) -> str:
    if not facts.receipts:
        return ""
    lines = "\n".join(
        f"<dt>{escape(row)}</dt><dd>{'<br>'.join(escape(line) for line in text.splitlines())}</dd>"
        for row, text in facts.receipts
    )
    return (
        '<section aria-labelledby="receipts-title" class="measured"><h2 id="receipts-title">Some rows</h2>'
        f'<p class="hint">At the deployed point, from the cheapest row to the dearest.</p><dl class="facts">\n{lines}\n'
        "</dl></section>\n"
    )


def _points_table(facts: Facts) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text, _ in point_cells(facts, facts.start))
    lines = []
    for place in range(len(facts)):
        first, *others = (escape(text) for _, text in point_cells(facts, place))
        kinds = [mark.split()[0] for mark in facts.marks(place)]
        kind = f' class="{" ".join(kinds)}"' if kinds else ""
        cells = "".join(f"<td>{text}</td>" for text in others)
        lines.append(f'<tr data-point="{place}"{kind}><th scope="row">{first}</th>{cells}</tr>')
    body = "\n".join(lines)
    return f'<table class="points">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>'
