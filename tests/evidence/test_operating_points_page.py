import doctest
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operating_points.md"


@pytest.mark.slow
def test_the_page_on_operating_points_shows_what_its_code_prints():
    failed, attempted = doctest.testfile(
        str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    )
    assert attempted > 15
    assert failed == 0
