"""Arguments and options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "AsJson",
    "Budget",
    "Confidence",
    "MaxLoss",
    "MinRecall",
    "NewRows",
    "PublicKey",
    "RowKey",
    "SystemFile",
    "Trust",
    "Unseen",
    "UnseenText",
]


class Unseen(StrEnum):
    """What becomes of text that was not in the training table."""

    refuse = "refuse"
    missing = "missing"


SystemFile = Annotated[Path, typer.Argument(help="File that `thrifty fit` wrote.", metavar="SYSTEM")]
NewRows = Annotated[
    Path,
    typer.Argument(help="Table of new rows, CSV or parquet; - is CSV on standard input.", metavar="TABLE"),
]
Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        help="Full name of a type that the full model may be made of. May be repeated.",
        metavar="TYPE",
    ),
]
PublicKey = Annotated[
    Path | None,
    typer.Option(help="PEM file of an ed25519 key; a SYSTEM that it was not signed for is refused."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print numbers for programs on standard output.")]
RowKey = Annotated[
    str | None,
    typer.Option(
        help="Column with the keys of the rows. Where two operating points are mixed, the key decides which of them a "
        "row follows; without one, its number in the table does.",
        metavar="COLUMN",
    ),
]
UnseenText = Annotated[
    Unseen, typer.Option(help="What to do with text, in a cell that is read, that the fit has not seen.")
]
Budget = Annotated[
    float | None, typer.Option(help="Mean cost per row to spend, in place of the one that was fitted for.")
]
Confidence = Annotated[
    float | None,
    typer.Option(
        help="Probability with which --max-loss is proved (0.95 without it), or new rows keep to --budget, which is "
        "met as measured without it. A quarter of the rows is kept out of the fit for the proof."
    ),
]
MaxLoss = Annotated[
    list[str] | None,
    typer.Option(
        help="Largest share of all rows that is answered worse than by the full model, in place of a budget, such as "
        "0.02; or of the rows of a class, such as sick=0.02, which may be repeated.",
        metavar="SHARE|CLASS=SHARE",
    ),
]
MinRecall = Annotated[
    list[str] | None,
    typer.Option(
        help="Least share of the rows of a class that is answered with it, such as sick=0.9. May be repeated.",
        metavar="CLASS=SHARE",
    ),
]
