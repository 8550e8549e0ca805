"""The page in a real browser: Chromium without a screen, one for all tests."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from thrifty.reporting.facts import Curve, MistakeKind
from thrifty.reporting.page import page_of

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")

# Pages are opened once per test; starting the browser is what takes time.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER),
        reason="the report's page is tested in Chromium: install chromium and its driver",
    ),
]
KEYS = {
    "right": "\ue014",
    "left": "\ue012",
    "home": "\ue011",
    "end": "\ue010",
    "up": "\ue00e",
    "tab": "\ue004",
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("profile")
    # Tests may run as root and in a small container: Chromium's sandbox and shared memory are not there then.
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def written(path, facts):
    path.write_text(page_of(facts), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def address(facts, tmp_path_factory):
    return written(tmp_path_factory.mktemp("page") / "report.html", facts)


@pytest.fixture
def page(browser, address):
    return opened(browser, address)


def opened(browser, address, *, width=1280, media="", dark=False):
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": scheme})
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(address)
    return browser


def text(browser, name):
    return browser.execute_script("return document.getElementById(arguments[0])?.textContent", name)


def texts(browser, selector):
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector
    )


def value(browser, script):
    return browser.execute_script(f"return {script}")


def numbers(browser):
    names = (
        "budget-text",
        "accuracy",
        "measure-2",
        "cost",
        "saving",
        "sent",
        "bought",
        "groups",
        "purchases",
        "summary",
    )
    return {name: text(browser, name) for name in names}


def press(browser, key):
    browser.find_element("id", "budget").send_keys(KEYS[key])


def requests_of(browser):
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def shown_facts(facts, place):
    return {
        "budget-text": f"{facts.budget[place]:.2f} per row",
        "accuracy": f"{100 * facts.score.value[place]:.1f}\u00a0%",
        "cost": f"{facts.cost.value[place]:.2f}",
        "saving": f"{100 * (1 - facts.cost.value[place] / facts.cost.full):.0f}\u00a0%",
    }


def test_the_arrow_keys_move_through_the_points_and_change_every_number(page, facts):
    efficient = [place for place in range(len(facts)) if facts.efficient[place]]
    assert numbers(page).items() >= shown_facts(facts, facts.start).items()
    press(page, "home")
    cheapest = numbers(page)
    assert cheapest.items() >= shown_facts(facts, efficient[0]).items()
    press(page, "right")
    second = numbers(page)
    assert second.items() >= shown_facts(facts, efficient[1]).items()
    marker = value(page, "document.getElementById('here').getAttribute('transform')")
    press(page, "end")
    dearest = numbers(page)
    assert dearest.items() >= shown_facts(facts, efficient[-1]).items()
    assert all(cheapest[name] != dearest[name] for name in cheapest)
    assert value(page, "document.getElementById('here').getAttribute('transform')") != marker
    press(page, "left")
    assert numbers(page).items() >= shown_facts(facts, efficient[-2]).items()


def test_dragging_to_a_budget_shows_the_best_point_it_affords(page, facts):
    budgets = [b for b, ok in zip(facts.budget, facts.efficient, strict=True) if ok]
    between = (budgets[3] + budgets[4]) / 2
    value(
        page,
        f"(s => {{ s.value = {between}; s.dispatchEvent(new Event('input')) }})(document.getElementById('budget'))",
    )
    place = facts.budget.index(budgets[3])
    assert numbers(page).items() >= shown_facts(facts, place).items()


def test_the_tables_of_a_point_add_up_to_its_numbers(page, facts):
    press(page, "home")
    for _ in range(3):
        press(page, "up")
        spends = value(
            page, "[...document.querySelectorAll('#purchases tbody tr')].map(r => r.lastChild.textContent)"
        )
        total = value(page, "document.querySelector('#purchases tfoot td:last-child').textContent")
        assert total == text(page, "cost")
        assert sum(map(float, spends)) == pytest.approx(float(total), abs=0.005 * (1 + len(spends)))
        rows = value(
            page,
            "[...document.querySelector('#groups tbody').rows].map(r => [...r.cells].map(c => c.textContent))",
        )
        counts = [float(row[1].replace(",", "")) for row in rows]
        right = [float(row[3].rstrip("\u00a0%")) for row in rows]
        mean = sum(c * r for c, r in zip(counts, right, strict=True)) / sum(counts)
        assert mean == pytest.approx(float(text(page, "accuracy").rstrip("\u00a0%")), abs=0.11)


def test_the_page_opens_at_the_deployed_point_and_says_so_everywhere(page, facts):
    assert numbers(page).items() >= shown_facts(facts, facts.marked["deployed"]).items()
    assert (text(page, "badge"), text(page, "flag")) == ("deployed", "deployed")
    assert texts(page, "#marks .mark") == ["deployed", "certified"]
    assert texts(page, "tr.deployed th") == [f"{facts.budget[facts.marked['deployed']]:.2f} (deployed)"]
    # The flag's pole and the mark under the slider point at the very place.
    ring, pole = value(
        page,
        "[document.querySelector('#here'), document.querySelector('.pole')].map(e => e.getBoundingClientRect())",
    )
    assert pole["x"] == pytest.approx(ring["x"] + ring["width"] / 2, abs=1)
    slider, mark = value(
        page, "['#budget', '.mark.deployed'].map(e => document.querySelector(e).getBoundingClientRect())"
    )
    low, high = facts.budget[0], facts.budget[-1]
    share = (facts.budget[facts.marked["deployed"]] - low) / (high - low)
    assert mark["x"] == pytest.approx(slider["x"] + 8 + share * (slider["width"] - 16), abs=1)
    press(page, "home")
    assert value(page, "document.getElementById('badge').hidden") is True
    assert text(page, "flag") == "deployed"
    page.find_element("id", "show-deployed").click()
    assert numbers(page).items() >= shown_facts(facts, facts.marked["deployed"]).items()
    assert text(page, "badge") == "deployed"


def test_the_line_of_the_deployed_point_is_in_sight_in_the_table(page):
    row, box = value(
        page,
        "['tr.deployed', '.scroll:has(.points)'].map(e => document.querySelector(e).getBoundingClientRect())",
    )
    assert box["top"] < row["top"] < row["bottom"] < box["bottom"]


def test_a_point_that_is_deployed_and_certified_is_marked_once_with_both_words(browser, facts, tmp_path):
    place = facts.marked["certified"]
    both = replace(facts, marked={"deployed": place, "certified": place}, start=place)
    page = opened(browser, written(tmp_path / "both.html", both))
    assert texts(page, "#marks .mark") == ["deployed, certified"]
    assert (text(page, "badge"), text(page, "flag")) == ("deployed, certified", "deployed, certified")


@pytest.mark.parametrize(("place", "width"), [(0, 1280), (-1, 360)])
def test_flag_and_mark_of_a_deployed_point_at_either_end_stay_inside(browser, facts, tmp_path, place, width):
    place %= len(facts)
    end = replace(facts, marked={"deployed": place}, start=place)
    address = written(tmp_path / "end.html", end)
    page = opened(browser, address, width=width)
    for inner, outer in (("#flag", "#chart"), (".mark.deployed", ".slider")):
        a, b = value(
            page, f"['{inner}', '{outer}'].map(e => document.querySelector(e).getBoundingClientRect())"
        )
        assert b["left"] <= a["left"]
        assert a["right"] <= b["right"] + 1


def test_recall_by_class_and_auc_stand_beside_those_of_the_full_model(page, facts):
    classes = facts.groupings[0]
    heads = texts(page, "#groups table:first-of-type thead th")[:5]
    assert heads == ["class", "rows", "to the full model", "recall", "recall, full model"]
    for key, place in ((None, facts.marked["deployed"]), ("home", 0)):
        if key:
            press(page, key)
        recall = [right / n for right, n in zip(classes.sums[place], classes.n_rows, strict=True)]
        full = [right / n for right, n in zip(classes.full_sums, classes.n_rows, strict=True)]
        rows = value(
            page,
            "[...document.querySelector('#groups tbody').rows].map(r => [...r.cells].map(c => c.textContent))",
        )
        assert [row[3] for row in rows] == [f"{100 * one:.1f}\u00a0%" for one in recall]
        assert [row[4] for row in rows] == [f"{100 * one:.1f}\u00a0%" for one in full]
        worst = int(np.argmin(recall))
        assert text(page, "recall") == f"{100 * recall[worst]:.1f}\u00a0%"
        assert text(page, "recall-note").startswith(f"class {classes.labels[worst]}; full model: ")


@pytest.mark.parametrize("level", [0.3, 0.9, 0.995])
def test_the_majority_class_is_a_dashed_line_with_its_name(browser, facts, tmp_path, level):
    other = replace(facts, score=replace(facts.score, constant=level))
    page = opened(browser, written(tmp_path / "m.html", other))
    assert value(page, "getComputedStyle(document.getElementById('majority')).strokeDasharray") != "none"
    name = f"majority class: {100 * level:.1f}\u00a0%"
    assert name in texts(page, "#chart text")
    assert texts(page, "#accuracy-note span")[-1] == name
    line, *dots = value(
        page,
        "[...document.querySelectorAll('#majority, #chart .dot')].map(e => e.getBoundingClientRect().y "
        "+ e.getBoundingClientRect().height / 2)",
    )
    above = sum(accuracy > level for accuracy in facts.score.value)
    assert sum(dot < line for dot in dots) == pytest.approx(above, abs=1)


def test_the_certified_point_can_be_shown(page, facts):
    press(page, "home")
    page.find_element("id", "show-certified").click()
    assert numbers(page).items() >= shown_facts(facts, facts.marked["certified"]).items()
    press(page, "right")
    budget = float(re.match(r"[\d.]+", text(page, "budget-text"))[0])
    assert budget >= round(facts.budget[facts.marked["certified"]], 2)


def test_the_page_asks_for_nothing_and_complains_about_nothing(page, address):
    press(page, "right")
    assert {url for url in requests_of(page) if url != "data:,"} == {address}
    assert page.get_log("browser") == []


def test_the_slider_is_labelled_and_speaks(page):
    slider = page.find_element("id", "budget")
    assert slider.accessible_name.startswith("Budget: at most")
    assert slider.aria_role == "slider"
    press(page, "end")
    spoken = slider.get_attribute("aria-valuetext")
    assert "per row" in spoken
    assert text(page, "accuracy") in spoken
    assert value(page, "document.getElementById('summary').getAttribute('aria-live')") == "polite"
    assert text(page, "accuracy") in text(page, "summary")


def test_every_control_and_table_is_reached_by_tab_and_shows_the_focus(page):
    seen = []
    body = page.find_element("tag name", "body")
    body.send_keys(KEYS["tab"])
    for _ in range(9):
        active = page.switch_to.active_element
        seen.append(active.get_attribute("id") or active.get_attribute("class"))
        assert value(page, "getComputedStyle(document.activeElement).outlineStyle") == "solid"
        active.send_keys(KEYS["tab"])
        if value(page, "document.activeElement === document.body"):
            break
    assert seen[:3] == ["budget", "show-deployed", "show-certified"]
    assert sum("scroll" in name for name in seen) == value(
        page, "document.querySelectorAll('.scroll').length"
    )


@pytest.mark.parametrize("width", [360, 700, 1280])
def test_the_page_is_never_wider_than_the_screen(browser, address, width):
    page = opened(browser, address, width=width)
    assert value(page, "document.documentElement.scrollWidth") <= width
    assert value(page, "document.querySelector('#chart svg').getBoundingClientRect().width") <= width
    # The picture's text is drawn for the width there is, not shrunk to it.
    scale = value(
        page,
        "(s => s.getBoundingClientRect().width / s.viewBox.baseVal.width)(document.querySelector('#chart svg'))",
    )
    assert scale == pytest.approx(1, abs=0.02)


def test_the_picture_is_drawn_again_for_another_width(browser, address):
    page = opened(browser, address)
    before = value(page, "document.querySelector('#chart svg').viewBox.baseVal.width")
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": True},
    )
    value(page, "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert value(page, "document.querySelector('#chart svg').viewBox.baseVal.width") < before
    assert value(page, "document.getElementById('here').getAttribute('transform')") is not None


def test_on_paper_there_is_a_table_of_points_in_the_place_of_the_slider(browser, address):
    page = opened(browser, address, media="print", dark=True)
    shown = "getComputedStyle(document.querySelector('{}')).display"
    assert value(page, shown.format("#budget")) == "none"
    assert value(page, shown.format(".buttons")) == "none"
    assert value(page, shown.format(".points")) == "table"
    assert value(page, "getComputedStyle(document.querySelector('.tall')).overflow") == "visible"
    assert value(page, "getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_by_night_the_page_is_dark(browser, address):
    colours = []
    for dark in (False, True):
        page = opened(browser, address, dark=dark)
        colours.append(value(page, "getComputedStyle(document.body).backgroundColor"))
    light, night = (sum(map(int, re.findall(r"\d+", colour))) for colour in colours)
    assert light > 600 > 100 > night


def test_without_scripts_the_table_is_there_and_what_needs_them_is_not(browser, address):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page = opened(browser, address)
        height = "document.querySelector('{}').offsetHeight"
        assert value(page, height.format(".points")) > 100
        assert value(page, height.format(".stage")) == 0
        assert value(page, height.format("noscript p")) > 0
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_hostile_names_are_shown_and_do_nothing(browser, hostile_facts, hostile_words, tmp_path):
    address = written(tmp_path / "hostile.html", hostile_facts)
    page = opened(browser, address, width=360)
    press(page, "right")
    assert value(page, "window.hacked") is None
    assert value(page, "document.querySelectorAll('img').length") == 0
    assert hostile_words in text(page, "purchases")
    assert hostile_words in text(page, "groups")
    assert value(page, "document.querySelector('h1').textContent") == hostile_words
    assert {url for url in requests_of(page) if url != "data:,"} == {address}
    assert page.get_log("browser") == []
    assert value(page, "document.documentElement.scrollWidth") <= 360


def test_a_page_of_one_point_of_which_little_is_known_works_as_well(browser, facts, tmp_path):
    def cut(curve):
        ends = {end: getattr(curve, end)[:1] for end in ("value", "low", "high")}
        return replace(curve, **ends, full=None)

    group = facts.groupings[0]
    known = {name: getattr(facts, name)[:1] for name in ("share", "budget", "efficient", "bought")}
    known |= {"score": cut(facts.score), "cost": cut(facts.cost), "lead": None}
    known |= {"certificate": "", "marked": {}, "rivals": (), "measures": (), "start": 0}
    known["groupings"] = (replace(group, sent=group.sent[:1], sums=group.sums[:1], full_sums=None),)
    one = replace(facts, unit="\u20ac", **known)
    page = opened(browser, written(tmp_path / "one.html", one), width=360)
    for key in ("right", "left", "home", "end"):
        press(page, key)
    shown = numbers(page)
    assert (shown["accuracy"], shown["cost"], shown["saving"], shown["sent"]) == (
        f"{100 * facts.score.value[0]:.1f}\u00a0%",
        f"{facts.cost.value[0]:.2f}\u00a0\u20ac",
        "\u2013",
        "0\u00a0%",
    )
    assert texts(page, ".tiles dt") == [
        "Answers right",
        "Mean cost per row",
        "Saved",
        "Full model asked for",
        "Lowest recall of a class",
    ]
    for name in ("badge", "show-deployed", "show-certified"):
        assert value(page, f"document.getElementById('{name}').offsetHeight") == 0
    assert value(page, "document.getElementById('flag')") is None
    assert page.get_log("browser") == []


@pytest.mark.parametrize("width", [360, 1280])
def test_purchases_are_shown_with_their_stages_and_shares(browser, facts, address, width):
    page = opened(browser, address, width=width)
    assert texts(page, "#purchases thead th") == ["feature", "stage", "price", "bought for", "per row"]
    place, last = facts.marked["deployed"], facts.n_stages
    words = [str(one.first) if one.first < last else "full model" for one in facts.purchases]
    assert texts(page, "#purchases tbody td:nth-child(2)") == words
    total = value(page, "document.querySelector('#purchases tfoot td:last-child').textContent")
    assert total == text(page, "cost")
    # The page shows the share of rows for purchases that not every row makes.
    every, others = text(page, "bought").split("Only where that is not enough: ")
    for one, share in zip(facts.purchases, facts.bought[place], strict=True):
        assert (f" {one.name}," in every.replace(".", ",")) == (share == 1)
    shares = [int(share) for share in re.findall(r"\((\d+)\u00a0%\)", others)]
    assert len(shares) > 3
    assert shares == sorted(shares, reverse=True)
    assert value(page, "document.documentElement.scrollWidth") <= width
    press(page, "home")
    assert "Only where that is not enough" not in text(page, "bought")
    assert page.get_log("browser") == []


def test_every_measure_has_a_tile_with_its_interval_and_that_of_the_full_model(page, facts):
    assert [one.name for one in facts.measures] == ["balanced accuracy", "log-loss", "AUC"]
    press(page, "home")
    for told, one in zip(texts(page, ".measure"), facts.measures, strict=True):
        ends = (one.low[0], one.high[0]) if one.low else ()
        numbers = one.value[0], *ends, one.full, one.constant
        is_share = one.name == "balanced accuracy"
        *value_, full, constant = (f"{100 * n:.1f}\u00a0%" if is_share else f"{n:.3f}" for n in numbers)
        interval = " to ".join(value_[1:])
        name = one.name[0].upper() + one.name[1:]
        assert told == f"{name}{value_[0]}{interval}full model: {full}; constant: {constant}"


def test_a_bill_of_tests_and_mistakes_follows_the_slider_and_marks_the_least_total(browser, facts, tmp_path):
    mistakes = tuple(20 * (1 - one) for one in facts.score.value)
    halves = tuple(one / 2 for one in mistakes)
    rows = tuple(range(len(mistakes)))
    kinds = tuple(
        MistakeKind(truth, answer, price, rows, halves, 0.5)
        for truth, answer, price in (("low", "high", 20.0), ("high", "low", 5.0))
    )
    ends = [tuple(one + by for one in mistakes) for by in (-0.2, 0.2)]
    totals = tuple(sum(pair) for pair in zip(facts.cost.value, mistakes, strict=True))
    other = replace(
        facts,
        kind="bill",
        score=Curve("cost of mistakes", mistakes, *ends, full=1.0, constant=10.0),
        total=Curve("total", totals, *ends, full=facts.cost.full + 1.0),
        marked={**facts.marked, "least total cost": 1},
        mistakes=kinds,
        rivals=(),
    )
    page = opened(browser, written(tmp_path / "b.html", other), width=360)
    page.find_element("id", "show-least").click()
    total = totals[1]
    assert text(page, "total") == f"{total:.2f}"
    assert text(page, "saving") == f"{100 * (1 - total / (facts.cost.full + 1.0)):.0f}\u00a0%"
    table = texts(page, "#mistakes tbody tr:first-child > *")
    assert table == ["low", "high", "20.00", "1", f"{halves[1]:.2f}", "0.50"]
    assert texts(page, "#mistakes tfoot td")[2:] == ["2", f"{mistakes[1]:.2f}", "1.00"]
    assert "least total cost" in text(page, "badge")
    press(page, "end")
    assert text(page, "total") != f"{total:.2f}"
    assert value(page, "document.querySelectorAll('#chart .lowest').length") == 1
    assert value(page, "document.documentElement.scrollWidth") <= 360
    assert page.get_log("browser") == []
