"""The pages of the site show what their code prints. README.md, which writes no file, is run by pytest itself."""

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = [page for page in sorted(DOCS.glob("*.md")) if ">>> " in page.read_text()]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_what_its_code_prints(page, request, tmp_path, monkeypatch):
    if "from reproduction.datasets import" in page.read_text():
        monkeypatch.setenv("THRIFTY_DATA", str(request.getfixturevalue("data_folder")))
    monkeypatch.chdir(tmp_path)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    found = doctest.testfile(str(page), module_relative=False, optionflags=flags)
    assert found.attempted > 10
    assert found.failed == 0
