"""What people read is complete: every public name, parameter, attribute and layer has its place."""

import importlib.util
import inspect
import re
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator, ClassifierMixin

import thrifty

REPOSITORY = Path(__file__).resolve().parents[1]
DOCS = REPOSITORY / "docs"
SRC = REPOSITORY / "src" / "thrifty"
ESTIMATORS = [
    name
    for name in thrifty.__all__
    if inspect.isclass(getattr(thrifty, name)) and issubclass(getattr(thrifty, name), BaseEstimator)
]


def sections(docstring):
    """Sections of a numpydoc docstring, by title."""
    parts = re.split(r"^([A-Z][A-Za-z ]+)\n-{3,}\n", inspect.cleandoc(docstring), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def described(section):
    """Names that a section of parameters or attributes describes, each with a text below it."""
    entries = re.findall(r"^([A-Za-z_][\w, ]*?)(?: : .*)?\n(?=    \S)", section, flags=re.MULTILINE)
    return {name for entry in entries for name in entry.split(", ")}


def learned(estimator):
    """Attributes that a fit stores or that a property of a fitted estimator tells, by their names."""
    ours = [one for one in estimator.__mro__ if one.__module__.startswith("thrifty.")]
    found = {name for one in ours for name, value in vars(one).items() if isinstance(value, property)}
    for one in ours:
        for targets in re.findall(
            r"^ +(self\.[a-z_]+_\b[^=\n]*?)(?:: [^=]+)? = ", inspect.getsource(one), re.M
        ):
            found.update(re.findall(r"self\.(\w+)", targets))
    # What a common base learns for estimators of the other kind.
    found -= {"largest_loss_"} if issubclass(estimator, ClassifierMixin) else {"classes_", "pooling_"}
    return {name for name in found if re.fullmatch(r"[a-z]\w*(?<!_in)_", name)}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_describes_every_parameter_and_attribute_and_shows_an_example(name):
    estimator = getattr(thrifty, name)
    told = sections(estimator.__doc__)
    assert described(told["Parameters"]) == set(estimator().get_params(deep=False))
    assert learned(estimator) - described(told["Attributes"]) == set()
    assert ">>> " in told["Examples"]


def test_the_reference_lists_every_public_name_once():
    listed = re.findall(r"^   (\w+)$", (DOCS / "reference.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(thrifty.__all__)


def test_every_page_stands_in_a_table_of_contents():
    pages = {path.stem for path in DOCS.glob("*.md")} - {"index"}
    text = "".join(path.read_text() for path in DOCS.glob("*.md"))
    tables = "".join(re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    assert pages - set(re.findall(r"^(\w+)$", tables, re.MULTILINE)) == set()


def test_the_architecture_lists_every_folder():
    listed = re.findall(r"(?<=[|`] `)([\w/]+)/(?=`.* \|)", (DOCS / "architecture.md").read_text())
    folders = {path.parent.relative_to(SRC).as_posix() for path in SRC.rglob("*/__init__.py")}
    assert sorted(listed) == sorted(folders - {"engine", "learners"})


def test_every_example_asks_something_draws_a_picture_and_has_a_page_of_its_own():
    for path in sorted((REPOSITORY / "examples").glob("*.py")):
        text = path.read_text()
        assert path.name.startswith("plot_")
        assert re.match(r'"""\n(.+)\n={10,}\n', text), path.name
        assert "?" in text.split('"""')[1], f"{path.name} asks no question"
        assert "plt.subplots" in text
    assert len(list((REPOSITORY / "examples").glob("*.py"))) >= 10


@pytest.fixture(scope="module")
def check_links():
    spec = importlib.util.spec_from_file_location("check_links", DOCS / "check_links.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_broken_links_of_a_site_are_told_and_sound_ones_are_not(tmp_path, check_links):
    (tmp_path / "b.html").write_text('<p id="here">there</p>')
    links = ["b.html", "b.html#here", "#top", "https://scikit-learn.org/stable/", "mailto:a@example.org"]
    broken = ["c.html", "b.html#gone", "http://scikit-learn.org", "https://nowhere"]
    anchors = "".join(f'<a href="{link}">x</a>' for link in [*links, *broken])
    (tmp_path / "a.html").write_text(f'<h1 id="top">a</h1>{anchors}')
    told = check_links.broken_links(tmp_path)
    assert sorted(line.split()[1] for line in told) == sorted(broken)


def test_each_promise_about_security_names_a_part_of_the_attacks_or_tests_that_there_are():
    table = (DOCS / "security.md").read_text().split("## Promises")[1].split("## ")[0]
    parts = re.search(
        r"^PARTS = \{(.*?)^\}", (REPOSITORY / "benchmarks/hostile.py").read_text(), re.M | re.S
    )[1]
    known = set(re.findall(r'^    "(\w+)":', parts, re.MULTILINE))
    promises = [line.split("|")[3] for line in table.splitlines() if line.startswith("|")][2:]
    shown = [re.findall(r"`([^`]+)`", one) for one in promises]
    assert all(shown)
    assert {one for some in shown for one in some if "/" not in one} == known
    assert all((REPOSITORY / one).is_file() for some in shown for one in some if "/" in one)
