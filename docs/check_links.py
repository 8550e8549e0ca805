"""Follow the links of the site that was built.

    python docs/check_links.py docs/_build/html

Links within the site must lead to a file, and to a place in it where they name one. Links to elsewhere are read, not
followed: they must be https and name a host.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit


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


def main(site: str) -> int:
    """Say what is wrong; the exit code is 1 if anything is."""
    wrong = broken_links(Path(site).resolve())
    print(*wrong, f"{len(wrong)} broken links", sep="\n")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
