"""``thrifty demo`` and ``thrifty paper``: experiments that need no table of the user's."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thrifty.cli.progress import progress

if TYPE_CHECKING:
    from thrifty.cli.progress import Report
    from thrifty.experiments.outcome import Outcome

__all__ = ["Experiment", "demo", "paper"]


class Experiment(StrEnum):
    """Experiments of the paper that can be re-run."""

    synthetic = "synthetic"
    letters = "letters"
    table1 = "table1"


class Family(StrEnum):
    """Families of cheap models."""

    linear = "linear"
    boosted = "boosted"


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the numbers.")] = Path("thrifty-demo"),
) -> None:
    """Fit a system on data bundled with scikit-learn and print the trade-off."""
    from thrifty.experiments import demo as experiment

    with progress() as report:
        outcome = experiment.run(out, progress=report)
    _show(outcome)


def paper(
    experiment: Annotated[Experiment, typer.Argument(help="Which experiment.")],
    data: Annotated[Path | None, typer.Option(help="Folder with the data; else THRIFTY_DATA.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for pictures, tables and numbers.")] = Path("paper-out"),
    family: Annotated[Family, typer.Option(help="Family of cheap models (letters).")] = Family.linear,
    thin: Annotated[int, typer.Option(min=1, help="Keep every N-th value of each sweep.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
) -> None:
    """Re-run an experiment of the paper: picture, table and numbers."""
    with progress() as report:
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
    folder = None if data is None else str(data)
    if experiment is Experiment.table1:
        from thrifty.experiments import table1

        return table1.run(out, data=folder, n_jobs=jobs, thin=thin, progress=report)
    from thrifty.experiments import letters, letters_boosted

    runner = {Family.linear: letters.run, Family.boosted: letters_boosted.run}[family]
    return runner(out, data=folder, n_jobs=jobs, thin=thin, progress=report)


def _show(outcome: "Outcome") -> None:
    from rich.console import Console
    from rich.table import Table

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
