"""Write a report: the page, and its main picture beside it."""

import os
from pathlib import Path

from thrifty.files import write_atomically
from thrifty.report.facts import Facts
from thrifty.report.page import page_of
from thrifty.report.picture import picture_of

__all__ = ["write_report"]


def write_report(path: str | os.PathLike[str], facts: Facts, *, picture: bool = True) -> list[Path]:
    """Write facts as one self-contained HTML page, and its main picture beside it.

    Parameters
    ----------
    path : path
        The page, ``report.html`` say; the picture is ``report.png`` beside it. Old files are replaced in one step each,
        or left as they are if anything fails.
    facts : Facts
        What ``collect_facts`` returned.
    picture : bool, default=True
        Whether to draw the picture, which needs matplotlib. The page draws its own.

    Returns
    -------
    list of Path
        What was written.
    """
    page = Path(path)
    contents = {page: page_of(facts).encode()}
    if picture:
        contents[page.with_suffix(".png")] = picture_of(facts)
    for target, content in contents.items():
        write_atomically(target, content)
    return list(contents)
