"""Arguments and options shared by several commands."""

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
    "Unseen",
    "UnseenText",
]


class Unseen(StrEnum):
    """Treatment of text that was not in the training table."""

    refuse = "refuse"
    missing = "missing"


SystemFile = Annotated[Path, typer.Argument(help="File that `thrifty fit` wrote.", metavar="SYSTEM")]
NewRows = Annotated[
    Path,
    typer.Argument(help="Table of new rows, CSV or parquet; - is CSV on standard input.", metavar="TABLE"),
]
PublicKey = Annotated[
    Path | None,
    typer.Option(help="PEM file of an ed25519 public key; SYSTEM must be signed with its private key."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON on standard output.")]
RowKey = Annotated[
    str | None,
    typer.Option(
        help="Column with a key for each row. Where a budget mixes two operating points, the key decides which of "
        "them a row follows; by default the row number does.",
        metavar="COLUMN",
    ),
]
UnseenText = Annotated[
    Unseen,
    typer.Option(
        help="Treatment of text that was not in the training table: refuse it, or read it as missing."
    ),
]
Budget = Annotated[
    float | None, typer.Option(help="Mean cost per row to spend, in place of the budget of the fit.")
]
Confidence = Annotated[
    float | None,
    typer.Option(
        help="Confidence of the certificate that new rows keep to --max-loss (0.95 by default) or to --budget (no "
        "certificate by default). A quarter of the rows is held out of the fit for it."
    ),
]
MaxLoss = Annotated[
    list[str] | None,
    typer.Option(
        help="Largest share of rows with a worse answer than the full model's, such as 0.02, in place of a budget; or "
        "a share for a class, such as sick=0.02; repeat for several classes.",
        metavar="SHARE|CLASS=SHARE",
    ),
]
MinRecall = Annotated[
    list[str] | None,
    typer.Option(
        help="Smallest recall of a class, such as sick=0.9; repeat for several classes.",
        metavar="CLASS=SHARE",
    ),
]
