import doctest
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "report.md"


@pytest.mark.slow
def test_the_page_on_reports_shows_what_its_code_prints(data_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("THRIFTY_DATA", str(data_folder))
    failed, attempted = doctest.testfile(
        str(PAGE),
        module_relative=False,
        globs={"folder": tmp_path},
        optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS,
    )
    assert attempted > 20
    assert failed == 0
    assert 40_000 < (tmp_path / "report.html").stat().st_size < 200_000
