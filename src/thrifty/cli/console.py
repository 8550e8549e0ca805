"""Console output of the commands: sentences on standard output, notes and progress on standard error."""

import json
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, TextIO

import typer

SECONDS_PER_LINE = 10.0
"""Seconds between lines of progress where there is no terminal."""


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
    """Progress bars with the time remaining, removed at the end; lines if standard error is not a terminal."""
    from rich import progress as bars
    from rich.console import Console

    if not sys.stderr.isatty():
        yield _progress_in_lines()
        return
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(compact=True),
    )
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, bars.TaskID] = {}

        def report(task: str, done: int, total: int) -> None:
            if task not in tasks:
                tasks[task] = bar.add_task(task, total=total)
            bar.update(tasks[task], completed=done, total=total)

        yield report


def _progress_in_lines() -> Callable[[str, int, int], None]:
    """A line on standard error every ten seconds: what is done, and for how long the command has run."""
    start = last = perf_counter()

    def report(task: str, done: int, total: int) -> None:
        nonlocal last
        now = perf_counter()
        if now - last >= SECONDS_PER_LINE:
            last = now
            typer.echo(f"{task}, {done} of {total}: {now - start:.0f} s", err=True)

    return report


def size_of(path: Path) -> str:
    """Format the size of a file."""
    n_bytes = path.stat().st_size
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e5 else f"{n_bytes / 1e3:.1f} kB"


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
