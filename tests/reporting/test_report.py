"""One call from a fitted system to a page: what it shows by itself, and what it refuses before anything is measured."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from thrifty import report
from thrifty.errors import InvalidInputError


def facts_in(page):
    """The facts that the script of a page is given."""
    return json.loads(re.search(r'id="facts">(.*?)</script>', page.read_text()).group(1))


@pytest.fixture(scope="module")
def reported(cascade, digits, tmp_path_factory):
    at = cascade.at(budget=7.0)
    page = tmp_path_factory.mktemp("report") / "report.html"
    rivals = {"one fit": digits.gate}
    written = report(
        at, digits.X, digits.y, page, by=digits.groups, rivals=rivals, title="Digits & co", unit="EUR"
    )
    return at, written, facts_in(page)


@pytest.mark.slow
def test_the_page_opens_at_the_point_in_force_and_shows_groups_rivals_and_the_full_model(digits, reported):
    at, written, facts = reported
    place = facts["start"]
    assert place == facts["marked"]["deployed"]
    assert facts["cost"][place] == pytest.approx(at.cost(digits.X).mean(), rel=1e-5)
    assert facts["score"][place] == pytest.approx(at.score(digits.X, digits.y), rel=1e-5)
    assert facts["rivals"][0]["name"] == "one fit"
    text = written.read_text()
    for told in (
        f"chosen on {at.evidence_.n_units} other rows",
        "Digits &amp; co",
        "ExtraTreesClassifier",
        "EUR",
        "bright",
        "deployed",
    ):
        assert told in text


class Untouched(np.ndarray):
    """A table whose cells must not be read."""

    def __array_finalize__(self, other):
        if other is not None:
            raise AssertionError("the rows were read")


def test_what_cannot_become_a_page_is_refused_before_rows_are_read(cascade, tmp_path):
    X = np.ndarray.__new__(Untouched, (3, 64))
    y = [0, 1, 0]
    with pytest.raises(InvalidInputError, match="there is no folder"):
        report(cascade, X, y, tmp_path / "missing" / "report.html")
    with pytest.raises(InvalidInputError, match=r"'site', which is no column of X.*by=\{'site': labels\}"):
        report(cascade, X, y, tmp_path / "report.html", by="site")
    with pytest.raises(InvalidInputError, match=r"\['a'\] must be a fitted estimator or a Chain; got 3"):
        report(cascade, X, y, tmp_path / "report.html", rivals={"a": 3})
    with pytest.raises(InvalidInputError, match="system must be a fitted .*; got BudgetedClassifier"):
        report(clone(cascade), X, y, tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_columns_of_a_data_frame_are_groups_by_name_and_a_chain_has_a_page_too(cascade, digits, tmp_path):
    table = pd.DataFrame(digits.X, columns=digits.names)
    by = digits.names[:1]
    with pytest.warns(UserWarning, match="feature names"):
        written = report(cascade, table, digits.y, tmp_path / "r.html", by=by)
    captions = [one["caption"] for one in facts_in(written)["tables"]]
    assert captions == ["Recall by class", f"By {by[0]}", "Features"]
    written = report(cascade.chain_, digits.X, digits.y, tmp_path / "chain.html")
    assert "These numbers are too good" in written.read_text()
