"""docs/paper.md names modules and tests that exist, and the pages of reproduction/ link to files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
REPRODUCTION = ROOT / "reproduction"
ITEM = re.compile(r"^\| (.+) \| `(.+\.py)` \| `(.+\.py)::(test_\w+)` \|$", re.MULTILINE)


def test_every_item_of_the_paper_has_a_module_and_a_test_that_argues_for_it():
    items = ITEM.findall((ROOT / "docs" / "paper.md").read_text())
    said = " ".join(name for name, *_ in items)
    assert all(f"(OPT{number})" in said for number in range(1, 8))
    assert all(f"Algorithm {number}" in said for number in (1, 2, 3))
    for name, module, path, test in items:
        ours = module.startswith("reproduction/")
        assert ((ROOT if ours else ROOT / "src" / "thrifty") / module).is_file(), name
        tests = ROOT if path.startswith("reproduction/") else ROOT / "tests"
        assert f"def {test}(" in (tests / path).read_text(), name


@pytest.mark.parametrize("page", sorted(REPRODUCTION.rglob("*.md")), ids=lambda page: page.stem)
def test_pages_link_to_files_that_are_there(page):
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert link.startswith("http") or (page.parent / link).exists(), link
