"""Console output of the commands: sentences on standard output, notes and progress on standard error."""

import json
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import typer

from thrifty.files import check_output
from thrifty.files import write_atomically as write_file

__all__ = [
    "check_output",
    "complain",
    "note",
    "notes_of_warnings",
    "number",
    "print_json",
    "progress",
    "quantity",
    "say",
    "size_of",
    "write_file",
]


def print_json(facts: dict[str, Any]) -> None:
    """Facts for programs, on standard output."""
    typer.echo(json.dumps(facts, indent=1, allow_nan=False, default=_plain, ensure_ascii=False))


def say(text: str) -> None:
    """A sentence on standard output; on a screen it is broken between words."""
    typer.echo(_fitted(text, sys.stdout))


def note(text: str) -> None:
    """Something the user should know, on standard error."""
    typer.echo(_fitted(f"note: {text}", sys.stderr), err=True)


def complain(text: str) -> None:
    """A refusal, on standard error."""
    typer.echo(_fitted(f"thrifty: {text}", sys.stderr), err=True)


def _fitted(text: str, stream: TextIO) -> str:
    if not stream.isatty():
        return text
    width = max(shutil.get_terminal_size().columns, 40)
    indent = " " * (len(text) - len(text.lstrip()))
    return textwrap.fill(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


@contextmanager
def notes_of_warnings() -> Iterator[None]:
    """Warnings of the work inside, as notes: once each, one line each, after it is done."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        yield
    for text in dict.fromkeys(" ".join(str(one.message).split()) for one in caught):
        note(text)


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar per piece of work, with the time remaining; gone when the work is done, silent where nobody watches."""
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(compact=True),
    )
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, bars.TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield report


def quantity(value: float) -> str:
    """A cost or budget: three digits after the point at most, none that say nothing."""
    return f"{value:,.3f}".rstrip("0").rstrip(".") if abs(value) < 1000 else f"{value:,.0f}"


def number(value: float) -> str:
    """A number that was predicted, or an error of it: five digits, and all of those before the point."""
    return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:.5g}"


def size_of(path: Path) -> str:
    """Size of a file, for people."""
    n_bytes = path.stat().st_size
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e5 else f"{n_bytes / 1e3:.1f} kB"


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
