"""The command ``python -m reproduction``: run an experiment of the paper again, or compare selectors of algorithms."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from reproduction.algorithms.compare import selection
from reproduction.experiments import drawing, experiments
from reproduction.experiments.experiment import Outcome, Run
from thrifty.cli.console import print_error, progress
from thrifty.errors import InvalidInputError, ThriftyError

__all__ = ["Experiment", "Family", "Profile", "main", "names_of", "paper"]


class Experiment(StrEnum):
    """Experiments of the paper, which ``all`` runs one after the other, and ``acquisition``, of others."""

    synthetic = "synthetic"
    letters = "letters"
    miniboone = "miniboone"
    forest = "forest"
    rank = "rank"
    scene15 = "scene15"
    cifar = "cifar"
    table1 = "table1"
    cross_fit_miniboone = "cross_fit_miniboone"
    cross_fit_letters = "cross_fit_letters"
    acquisition = "acquisition"
    all = "all"


class Family(StrEnum):
    """Families of cheap models."""

    linear = "linear"
    boosted = "boosted"


class Profile(StrEnum):
    """Sizes of an experiment."""

    full = "full"
    quick = "quick"
    smoke = "smoke"


def paper(
    experiment: Annotated[
        Experiment, typer.Argument(help="The experiment to run, or all of them one after the other.")
    ],
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with the data. Without it, the variable THRIFTY_DATA names the folder."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for pictures, tables, numbers and finished fits.")] = Path(
        "paper-out"
    ),
    family: Annotated[
        Family | None,
        typer.Option(help="Family of cheap models, for letters only. Without it, both families are run."),
    ] = None,
    profile: Annotated[
        Profile,
        typer.Option(
            help="Size of the experiment: as in reproduction/README.md, thinned to minutes, or to seconds."
        ),
    ] = Profile.full,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file of settings to read in place of the one in configs/.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes that fit side by side.")] = 2,
    redraw: Annotated[
        bool,
        typer.Option("--redraw", help="Fit nothing: draw the picture again from the numbers in the folder."),
    ] = False,
) -> None:
    """Run an experiment of the paper again and write its picture, table and numbers.

    A run that was interrupted continues with the fits that it lacks.
    """
    names = names_of(experiment, family)
    if len(names) > 1 and config is not None:
        raise InvalidInputError(
            f"config holds the settings of one experiment, not of {len(names)}. Name the experiment, and for letters "
            f"the family."
        )
    if redraw:
        typer.echo("wrote " + ", ".join(str(drawing.redraw(name, out)) for name in names))
        return
    folder = None if data is None else str(data)
    for name in names:
        with progress() as report:
            outcome = experiments()[name](Run(out, folder, profile.value, config, jobs, report))
        _show(outcome)


def names_of(experiment: Experiment, family: Family | None) -> tuple[str, ...]:
    """Names of the experiments that were asked for, in the order in which they are run."""
    if family is not None and experiment is not Experiment.letters:
        raise InvalidInputError(
            f"family is a choice for letters only; got {family.value!r} for {experiment.value}."
        )
    if experiment is Experiment.all:
        # Rivals of other papers need torch, which nothing else does.
        return tuple(name for name in experiments() if name != Experiment.acquisition)
    if experiment is Experiment.letters:
        return tuple(f"letters_{one.value}" for one in Family if family in (None, one))
    return (experiment.value,)


def _show(outcome: Outcome) -> None:
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
    """Run the command; 0 on success, 2 and one sentence on bad input."""
    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
    words = list(sys.argv[1:] if argv is None else argv)
    is_selection = words[:1] == ["selection"]
    app.command()(selection if is_selection else paper)
    try:
        name = "python -m reproduction" + (" selection" if is_selection else "")
        app(args=words[1:] if is_selection else words, prog_name=name)
    except ThriftyError as error:
        print_error(str(error))
        return 2
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
