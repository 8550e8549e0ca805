"""What all tests share: where real data lies, and how a test says that it is not there."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder with the larger real data: THRIFTY_DATA, or ../shared/data beside the repository."""
    folder = Path(os.environ.get("THRIFTY_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_absolute():
        folder = REPOSITORY / folder
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}: set THRIFTY_DATA to run the tests on the larger real data")
    return folder
