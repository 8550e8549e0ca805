"""docs/paper.md: what it says argues for the paper's items is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ITEM = re.compile(r"^\| (.+) \| `(.+\.py)` \| `(.+\.py)::(test_\w+)` \|$", re.MULTILINE)


def test_every_item_of_the_paper_has_a_module_and_a_test_that_argues_for_it():
    items = ITEM.findall((ROOT / "docs" / "paper.md").read_text())
    said = " ".join(name for name, *_ in items)
    assert all(f"(OPT{number})" in said for number in range(1, 8))
    assert all(f"Algorithm {number}" in said for number in (1, 2, 3))
    for name, module, path, test in items:
        assert (ROOT / "src" / "thrifty" / module).is_file(), name
        assert f"def {test}(" in (ROOT / "tests" / path).read_text(), name
