"""The page as text: self-contained, escaped, small, the same every time."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import thrifty.reporting
from thrifty.reporting.facts import PurchaseLine
from thrifty.reporting.measure import measure
from thrifty.reporting.page import page_of
from thrifty.reporting.words import is_constant_in_view


class Reading(HTMLParser):
    """Tags with their attributes, text outside of scripts and styles, and the contents of those."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.raw, self._inside = [], "", {"script": [], "style": []}, None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._inside = tag if tag in self.raw else None
        if self._inside:
            self.raw[tag].append("")

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside:
            self.raw[self._inside][-1] += data
        else:
            self.text += data.replace("\N{NO-BREAK SPACE}", " ")


@pytest.fixture(scope="module")
def reading(facts):
    return Reading(page_of(facts))


def test_the_page_refers_to_nothing_outside_itself(facts):
    page = page_of(facts).replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//\w+\.|@import|url\((?!#)", page)
    for tag, attributes in Reading(page).tags:
        assert "src" not in attributes, (tag, attributes)
        assert attributes.get("href", "data:,") == "data:,"


def test_the_policy_of_the_page_allows_just_its_own_script_and_style(reading):
    policy = next(a["content"] for tag, a in reading.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for kind in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(reading.raw[kind][-1].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert not [a for _, a in reading.tags if "style" in a or any(name.startswith("on") for name in a)]


def test_hostile_words_stay_words(facts, hostile_words, hostile_facts):
    before, after = Reading(page_of(facts)), Reading(page_of(hostile_facts))
    shape = [(tag, sorted(attributes)) for tag, attributes in before.tags]
    assert [(tag, sorted(attributes)) for tag, attributes in after.tags] == shape
    assert after.text.count(hostile_words) >= 5
    tables = json.loads(after.raw["script"][0])["tables"]
    assert [table["lines"][0][0] for table in tables] == [hostile_words] * 3


def test_without_a_script_every_point_stands_in_a_table(facts, reading):
    lines = [a for tag, a in reading.tags if tag == "tr" and "data-point" in a]
    assert len(lines) == len(facts)
    place = facts.start
    for text in (
        f"{100 * facts.score.value[place]:.1f} %",
        f"{facts.cost.value[place]:.2f}",
        f"{100 * facts.share[place]:.1f} %",
        f"{facts.budget[place]:.2f} (deployed)",
        f"{facts.budget[facts.marked['certified']]:.2f} (certified)",
    ):
        assert text in reading.text


def test_the_page_says_what_was_measured_and_how(facts, reading):
    for text in (
        "223, on which no operating point was chosen",
        f"{facts.n_points} efficient points, chosen on 900 other rows",
        "95 % of 200 bootstrap resamples of the rows (seed 0)",
        f"thrifty {thrifty.__version__}",
        "1 April 2026",
    ):
        assert text in reading.text
    assert "too good" not in reading.text


def test_the_page_says_what_the_deployed_point_achieves_and_marks_its_line(facts, reading):
    place = facts.marked["deployed"]
    cost, saved = facts.cost.value[place], 1 - facts.cost.value[place] / facts.cost.full
    right = f"right on {100 * facts.score.value[place]:.1f} % of rows"
    assert (
        f"Deployed: {right} for {cost:.2f} per row, {100 * saved:.0f} % less than the full model."
        in reading.text
    )
    classes = {a["data-point"]: a.get("class", "") for tag, a in reading.tags if "data-point" in a}
    assert [number for number, kind in classes.items() if "deployed" in kind] == [str(place)]
    unsaid = Reading(page_of(replace(facts, marked={}))).text
    assert not {"Deployed:", "(deployed)"} & set(unsaid.split())


def test_people_read_full_model_and_f0_only_where_it_is_introduced(facts, reading):
    assert len(re.findall(r"\bf0\b", reading.text)) == 1
    assert "the full model (f0), ExtraTreesClassifier, is right on" in reading.text
    assert f"The certified point {facts.certificate}." in reading.text
    named = Reading(page_of(replace(facts, full_name="a forest of 40 trees"))).text
    assert "the full model (f0), a forest of 40 trees, is right on" in named


def test_the_page_says_what_the_majority_class_would_achieve(facts, reading):
    share = f"{100 * facts.score.constant:.1f} %"
    assert f"the most frequent class ({facts.constant}) would be right on {share}." in reading.text


def test_the_picture_reaches_down_to_the_majority_class_if_the_points_keep_half_of_it(facts):
    low = min(*facts.score.low, facts.score.full)
    high = max(*facts.score.high, facts.score.full)
    for below, in_view in ((-0.5, True), (0.5, True), (0.99, True), (1.01, False)):
        level = low - below * (high - low)
        assert is_constant_in_view(replace(facts, score=replace(facts.score, constant=level))) is in_view


def test_numbers_of_the_rows_of_the_choice_are_shown_with_a_warning(digits):
    facts = measure(digits.gate.chain_, digits.X, digits.y, n_boot=40)
    text = Reading(page_of(facts)).text
    assert "These numbers are too good." in text
    assert "the very rows the operating points were chosen on" in text


def test_the_same_facts_make_the_same_page_and_no_clock_is_asked(facts):
    assert page_of(facts) == page_of(facts)
    undated = replace(facts, notes=())
    assert "Date" not in Reading(page_of(undated)).text


def test_a_page_of_a_hundred_points_stays_below_300_kilobytes(facts):
    n_points, n_purchases, rng = 100, 150, np.random.default_rng(0)
    rows = rng.integers(0, len(facts), n_points)

    def drawn(curve, highest=1.0):
        ends = {end: tuple(rng.uniform(0, highest, n_points).tolist()) for end in ("value", "low", "high")}
        return replace(curve, **ends)

    groupings = tuple(
        replace(one, sent=[one.sent[row] for row in rows], sums=[one.sums[row] for row in rows])
        for one in facts.groupings * 3
    )
    large = replace(
        facts,
        score=drawn(facts.score),
        cost=drawn(facts.cost, 60.0),
        lead=drawn(facts.lead),
        measures=tuple(map(drawn, facts.measures)),
        **{name: [getattr(facts, name)[row] for row in rows] for name in ("share", "budget", "efficient")},
        bought=rng.random((n_points, n_purchases)).tolist(),
        purchases=tuple(PurchaseLine(f"pixel {k}", 1.7, k % 6) for k in range(n_purchases)),
        groupings=groupings,
    )
    assert len(page_of(large)) < 300_000


def luminance(colour):
    channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_text_and_lines_stand_out_from_the_paper_by_day_by_night_and_printed():
    style = (Path(thrifty.reporting.__file__).parent / "style.css").read_text()
    themes = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    assert len(themes) == 3
    for theme in themes:
        theme = re.sub(r"#(\w)(\w)(\w);", r"#\1\1\2\2\3\3;", theme)
        colour = dict(re.findall(r"--(\w+): (#\w{6});", theme))
        for name in ("ink", "soft", "accent", "mark", "good", "r0", "r1", "r2", "r3", "r4"):
            assert contrast(colour[name], colour["card"]) >= 4.5, (name, theme)
        assert contrast(colour["soft"], colour["page"]) >= 4.5


def test_a_number_in_the_middle_is_rounded_up(facts):
    said = Reading(page_of(replace(facts, score=replace(facts.score, value=[0.8005] * len(facts))))).text
    assert said.count("80.1 %") > len(facts)


def test_the_script_of_the_page_formats_no_number():
    script = (Path(thrifty.reporting.__file__).parent / "script.js").read_text()
    assert not re.search(r"toLocaleString|Intl|toPrecision", script)
    # What is rounded are places in the picture.
    assert all(re.search(r"x\(|y\(|radius", line) for line in script.splitlines() if "toFixed" in line)
