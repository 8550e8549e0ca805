"""What an experiment is told, and what it hands back: numbers, a table to read, and the files it wrote."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Outcome", "Progress", "Run", "markdown_table", "silent"]

Progress = Callable[[str, int, int], None]
"""Called as ``progress(what, done, total)``."""


def silent(what: str, done: int, total: int) -> None:
    """Show nothing: the library itself never prints."""


@dataclass(frozen=True)
class Run:
    """How an experiment is run.

    Attributes
    ----------
    out : Path
        Folder for pictures, tables, numbers and finished fits.
    data : str, optional
        Folder with the data; None leaves it to ``THRIFTY_DATA``.
    profile : {"full", "quick", "smoke"}
        Which size of it.
    config : path, optional
        Settings to read in place of those that ship with thrifty.
    n_jobs : int
        Processes.
    progress : callable
        Told how far it is.
    """

    out: Path
    data: str | None = None
    profile: str = "full"
    config: Path | None = None
    n_jobs: int = 2
    progress: Progress = silent


@dataclass
class Outcome:
    """Result of one experiment.

    Attributes
    ----------
    name : str
        Also the stem of the files.
    title : str
        One line for people.
    header, rows : list
        A table.
    numbers : dict
        Everything that was measured, for the JSON file.
    files : list of Path
        What was written.
    """

    name: str
    title: str
    header: list[str]
    rows: list[list[str]]
    numbers: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    def write(self, out: Path) -> None:
        """Write the numbers as JSON and the table as Markdown next to the pictures."""
        out.mkdir(parents=True, exist_ok=True)
        numbers = out / f"{self.name}.json"
        numbers.write_text(json.dumps(self.numbers, indent=1, default=_plain, allow_nan=False) + "\n")
        page = out / f"{self.name}.md"
        notes = "".join(f"\n{note}\n" for note in self.notes)
        page.write_text(f"# {self.title}\n\n{markdown_table(self.header, self.rows)}\n{notes}")
        self.files += [page, numbers]


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table that reads as text and renders as Markdown."""
    lines = [" | ".join(header), " | ".join("---" for _ in header), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
