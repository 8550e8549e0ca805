"""The command line: commands parse options, call the library and print; errors become one sentence and exit code 2."""

from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Annotated

import typer

from thrifty._version import __version__
from thrifty.cli.console import print_error, progress
from thrifty.cli.database import buy
from thrifty.cli.deploy import export, serve
from thrifty.cli.fit import fit, route
from thrifty.cli.tables import audit, explain, frontier, predict, report
from thrifty.errors import InvalidParameterError, ThriftyError

app = typer.Typer(
    help="Budgeted prediction: answer most rows with cheap features, and pay for more only where it matters.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help: boxes would take longer to draw than everything else that --help does.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS = (fit, predict, buy, explain, frontier, report, route, audit, export, serve)
for _command in COMMANDS:
    app.command()(_command)


@app.command("demo", short_help="Show the trade-off on a small data set.")
def _demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the numbers.")] = Path("thrifty-demo"),
) -> None:
    """Fit a system on data bundled with scikit-learn and print the trade-off."""
    from thrifty.cli.demo import run  # loads scikit-learn, which `--help` must not wait for

    with progress() as report:
        run(out, progress=report)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"thrifty {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Budgeted prediction: answer most rows with cheap features, and pay for more only where it matters."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 on success, 2 after bad input."""
    try:
        app(args=list(argv) if argv is not None else None, prog_name="thrifty", standalone_mode=True)
    except InvalidParameterError as error:
        is_option = any(error.parameter in signature(command).parameters for command in COMMANDS)
        print_error(error.as_option() if is_option else str(error))
        return 2
    except ThriftyError as error:
        print_error(str(error))
        return 2
    except OSError as error:
        named = "" if error.filename is None else f"{error.filename}: "
        print_error(f"{named}{error.strerror or error}.")
        return 2
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    return 0
