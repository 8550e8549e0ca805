"""Console output of the commands: sentences on standard output, notes and progress on standard error."""

import json
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import typer


def print_json(facts: dict[str, Any]) -> None:
    """Print a dict as JSON on standard output."""
    typer.echo(json.dumps(facts, indent=1, allow_nan=False, default=_plain, ensure_ascii=False))


def print_text(text: str) -> None:
    """Print a sentence on standard output, wrapped to the width of a terminal."""
    typer.echo(_fitted(text, sys.stdout))


def print_table(lines: Sequence[Sequence[str]]) -> None:
    """Print a table on standard output: heads, then lines; numbers are aligned to the right."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for place, head in enumerate(lines[0]):
        table.add_column(head, justify="right" if place or head else "left")
    for line in lines[1:]:
        table.add_row(*line)
    Console().print(table)


def print_note(text: str) -> None:
    """Print a note for the user on standard error."""
    typer.echo(_fitted(f"note: {text}", sys.stderr), err=True)


def print_error(text: str) -> None:
    """Print an error message on standard error."""
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
    """Print the warnings raised inside as notes, once each, at the end."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        yield
    for text in dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught):
        print_note(text)


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """Progress bars with the time remaining, removed at the end; silent if standard error is not a terminal."""
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(compact=True),
    )
    console = Console(stderr=True)
    with bars.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, bars.TaskID] = {}

        def report(task: str, done: int, total: int) -> None:
            if task not in tasks:
                tasks[task] = bar.add_task(task, total=total)
            bar.update(tasks[task], completed=done, total=total)

        yield report


def size_of(path: Path) -> str:
    """Format the size of a file."""
    n_bytes = path.stat().st_size
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e5 else f"{n_bytes / 1e3:.1f} kB"


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
