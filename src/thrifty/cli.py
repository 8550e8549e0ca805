"""The command line: every command parses, calls the library and prints."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import thrifty
from thrifty.exceptions import ThriftyError

if TYPE_CHECKING:
    from thrifty.experiments.outcome import Outcome
    from thrifty.experiments.outcome import Progress as Report

__all__ = ["app", "main"]

app = typer.Typer(
    help="Answer most inputs with a cheap model; pay for the expensive one only where it matters.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Experiment(StrEnum):
    """Experiments of the paper that can be re-run."""

    synthetic = "synthetic"
    letters = "letters"


class Family(StrEnum):
    """Families of cheap models."""

    linear = "linear"
    boosted = "boosted"


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"thrifty {thrifty.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    """Answer most inputs with a cheap model; pay for the expensive one only where it matters."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the numbers.")] = Path("thrifty-demo"),
) -> None:
    """Fit a system on data bundled with scikit-learn and print the trade-off."""
    from thrifty.experiments import demo as experiment

    with _progress() as report:
        outcome = experiment.run(out, progress=report)
    _show(outcome)


@app.command()
def paper(
    experiment: Annotated[Experiment, typer.Argument(help="Which experiment.")],
    data: Annotated[Path | None, typer.Option(help="Folder with the data; else THRIFTY_DATA.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for pictures, tables and numbers.")] = Path("paper-out"),
    family: Annotated[Family, typer.Option(help="Family of cheap models (letters).")] = Family.linear,
    thin: Annotated[int, typer.Option(min=1, help="Keep every N-th value of each sweep.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
) -> None:
    """Re-run an experiment of the paper: picture, table and numbers."""
    with _progress() as report:
        outcome = _run_paper(experiment, data, out, family, thin, jobs, report)
    _show(outcome)


def _run_paper(
    experiment: Experiment,
    data: Path | None,
    out: Path,
    family: Family,
    thin: int,
    jobs: int,
    report: "Report",
) -> "Outcome":
    if experiment is Experiment.synthetic:
        from thrifty.experiments import synthetic

        return synthetic.run(out, progress=report)
    from thrifty.experiments import letters, letters_boosted

    folder = None if data is None else str(data)
    runner = {Family.linear: letters.run, Family.boosted: letters_boosted.run}[family]
    return runner(out, data=folder, n_jobs=jobs, thin=thin, progress=report)


@contextmanager
def _progress() -> "Iterator[Report]":
    """Progress on standard error, with the time remaining; silent where nobody watches."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, int] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = int(bar.add_task(what, total=total))
            bar.update(tasks[what], completed=done)  # type: ignore[arg-type]  # TaskID is an int

        yield report


def _show(outcome: "Outcome") -> None:
    console = Console()
    table = Table(title=outcome.title, title_justify="left")
    for number, name in enumerate(outcome.header):
        table.add_column(name, justify="right" if number else "left")
    for row in outcome.rows:
        table.add_row(*row)
    console.print(table)
    for note in outcome.notes:
        console.print(note, soft_wrap=True)
    console.print("wrote " + ", ".join(str(path) for path in outcome.files), soft_wrap=True, highlight=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 on success, 2 and one sentence on bad input."""
    try:
        app(args=list(argv) if argv is not None else None, prog_name="thrifty", standalone_mode=True)
    except ThriftyError as error:
        print(f"thrifty: {error}", file=sys.stderr)  # noqa: T201 - this is the command line
        return 2
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    return 0
