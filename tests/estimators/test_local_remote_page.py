import doctest
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "local_remote.md"


@pytest.mark.slow
def test_the_page_on_local_and_remote_shows_what_its_code_prints():
    found = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted > 10
    assert found.failed == 0
