"""Run the code of the pages, and follow the links of the site that was built.

    python docs/check_pages.py code              # every page whose code needs nothing that a reader does not have
    python docs/check_pages.py links docs/_build/html

Links within the site must lead to a file, and to a place in it where they name one. Links to elsewhere are read, not
followed: they must be https and name a host.
"""

import doctest
import os
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

HERE = Path(__file__).resolve().parent
RUN_BY_TESTS = {"operating_points.md", "local_remote.md", "report.md"}
"""Pages that tests run, with the data that they need."""


def run_code() -> int:
    """Run what pages show, each in an empty folder, and count what prints something else."""
    failed = 0
    for page in sorted(HERE.glob("*.md")):
        if page.name in RUN_BY_TESTS or ">>> " not in page.read_text():
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
            found = doctest.testfile(str(page), module_relative=False, optionflags=flags)
            os.chdir(HERE)
        print(f"{page.name}: {found.attempted} lines run, {found.failed} failed")
        failed += found.failed
    return failed


class Page(HTMLParser):
    """Where a page leads to, and the places in it that can be led to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.places = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a link or a place."""
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.places.add(value)
            elif name in ("href", "src") and value and tag != "base":
                self.links.add(value)


def broken_links(site: Path) -> list[str]:
    """What is wrong with the links of a site, a line each."""
    written = [
        path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts
    ]  # those are templates
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in written}
    wrong = []
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme in ("http", "https"):
                well_formed = parts.scheme == "https" and "." in parts.netloc and " " not in link
                reason = None if well_formed else "must be https and name a host"
            elif parts.scheme or parts.netloc:
                reason = None if parts.scheme in ("mailto", "data") else f"has the scheme {parts.scheme!r}"
            else:
                reason = _missing(path, link, pages)
            if reason:
                wrong.append(f"{path.relative_to(site)}: {link} {reason}")
    return wrong


def _missing(path: Path, link: str, pages: dict[Path, Page]) -> str | None:
    address, place = urldefrag(unquote(link))
    address = address.split("?")[0]
    target = (path.parent / address).resolve() if address else path
    if not target.is_file():
        return "leads to no file"
    if place and target in pages and place not in pages[target].places:
        return "leads to no place in its file"
    return None


def main(what: str, *where: str) -> int:
    """Do one of both; the number of faults is the exit code, at most 1."""
    if what == "code":
        return min(run_code(), 1)
    wrong = broken_links(Path(*where).resolve())
    print(*wrong, f"{len(wrong)} broken links", sep="\n")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
