"""Arguments and options shared by several commands, and the values they are read as: prices and goals."""

import glob
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from thrifty.cli.console import print_note
from thrifty.errors import InvalidInputError


class Unseen(StrEnum):
    """Treatment of text that was not in the training table."""

    refuse = "refuse"
    missing = "missing"


SystemFile = Annotated[
    Path,
    typer.Argument(
        help="File that `thrifty fit`, `thrifty route`, or `save` in Python, wrote.", metavar="SYSTEM"
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        help="Column with the label; only for an estimator that was saved from Python.", metavar="COLUMN"
    ),
]
NewRows = Annotated[
    Path,
    typer.Argument(help="Table of new rows, CSV or parquet; - is CSV on standard input.", metavar="TABLE"),
]
PublicKey = Annotated[
    Path | None,
    typer.Option(help="PEM file of an ed25519 public key; SYSTEM must be signed with its private key."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON on standard output.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of all random choices.")]
PricesFile = Annotated[
    Path | None,
    typer.Option(
        "--prices",
        help="Prices of columns, CSV or JSON: a line for each feature with its price and, optionally, its group. "
        "By default every feature costs 1.",
    ),
]
FormerCosts = Annotated[Path | None, typer.Option("--costs", hidden=True)]
FullCost = Annotated[
    list[str] | None,
    typer.Option(
        help="Price of one call of the full model, on top of the columns it reads; or in a resource of the prices, "
        "such as minutes=1; repeat for several resources.",
        metavar="AMOUNT|RESOURCE=AMOUNT",
    ),
]
Delay = Annotated[
    list[str] | None,
    typer.Option(
        help="Resource of the prices that is a delay: purchases that are made together wait together; repeat for "
        "several.",
        metavar="RESOURCE",
    ),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(help="Column that is not a feature; repeat for several.", metavar="COLUMN"),
]
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
    list[str] | None,
    typer.Option(
        help="Mean cost per row, instead of the budget of the fit; or that of a resource, such as minutes=15; "
        "repeat for several resources.",
        metavar="AMOUNT|RESOURCE=AMOUNT",
    ),
]
Cap = Annotated[
    list[str] | None,
    typer.Option(
        help="What no row ever pays, also of a resource, such as minutes=60: routes that cost more are not taken; "
        "repeat for several resources.",
        metavar="AMOUNT|RESOURCE=AMOUNT",
    ),
]
NoMix = Annotated[
    bool,
    typer.Option(
        "--no-mix",
        help="With --budget, stay at the dearest operating point within it: no row's key decides between two.",
    ),
]
Explore = Annotated[
    float,
    typer.Option(
        help="With --budget, share of the rows, drawn by key, that go on buying beyond their stop, within the budget: "
        "a later fit can learn from their receipts.",
        metavar="SHARE",
    ),
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
        help="Largest share of rows with a worse answer than the full model's, such as 0.02, instead of a budget; or "
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


@dataclass(frozen=True)
class Goal:
    """Goals of an operating point; limits by class are by the name of the class."""

    budget: Any = None
    max_loss: float | dict[str, float] | None = None
    min_recall: dict[str, float] | None = None
    mix: bool | None = None
    explore: float | None = None
    cap: Any = None

    @classmethod
    def read(
        cls,
        budget: Sequence[str] | None,
        max_loss: Sequence[str] | None,
        min_recall: Sequence[str] | None = None,
        *,
        no_mix: bool = False,
        explore: float = 0.0,
        cap: Sequence[str] | None = None,
    ) -> "Goal":
        """Parse ``--budget``, ``--max-loss``, ``--min-recall``, ``--no-mix``, ``--explore`` and ``--cap``."""
        if budget and max_loss:
            raise InvalidInputError(
                f"give one of --budget, --max-loss; got --budget {' '.join(budget)} and --max-loss "
                f"{' '.join(max_loss)}."
            )
        if no_mix and not budget:
            raise InvalidInputError("--no-mix is for a --budget. Give one, or leave it out.")
        if explore and (not budget or max_loss or min_recall):
            raise InvalidInputError("--explore is for a --budget alone. Give one, or leave it out.")
        floors = _read_shares("--min-recall", min_recall or ()) or None
        amounts, mix = read_amounts("--budget", budget), False if no_mix else None
        return cls(
            amounts, _read_max_loss(max_loss), floors, mix, explore or None, read_amounts("--cap", cap)
        )

    def as_dict(self) -> dict[str, Any]:
        """The goals that are set, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def read_amounts(option: str, texts: Sequence[str] | None) -> Any:
    """Parse a number, or amounts by resource, such as ``minutes=15``."""
    if not texts:
        return None
    amounts: dict[str, float] = {}
    texts = (
        texts if any("=" in text for text in texts) else texts[-1:]
    )  # of plain numbers the last one counts
    for text in texts:
        name, equals, amount = text.rpartition("=")
        try:
            number = float(amount)
        except ValueError:
            number = float("nan")
        if math.isnan(number) or (bool(equals) and not name) or (len(texts) > 1 and not equals):
            raise InvalidInputError(
                f"{option} must be a number, or one for each resource named, such as minutes=15; got "
                f"{text!r}."
            )
        if name in amounts:
            raise InvalidInputError(f"{option} names {name!r} twice. Keep one of them.")
        amounts[name] = number
    return amounts.get("", amounts)


def _read_shares(option: str, texts: Sequence[str]) -> dict[str, float]:
    """Parse texts such as ``sick=0.9`` into shares by class name."""
    shares: dict[str, float] = {}
    for text in texts:
        name, equals, share = text.rpartition("=")
        try:
            number = float(share)
        except ValueError:
            number = -1.0
        if not equals or not name or not 0 <= number <= 1:
            raise InvalidInputError(
                f"{option} must name a class and a share between 0 and 1, such as sick=0.9; got {text!r}."
            )
        if name in shares:
            raise InvalidInputError(f"{option} names the class {name!r} twice. Keep one of them.")
        shares[name] = number
    return shares


def _read_max_loss(texts: Sequence[str] | None) -> float | dict[str, float] | None:
    """Parse ``--max-loss``: one share for all rows, or shares by class name."""
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        try:
            return float(texts[0])
        except ValueError:
            pass
    if not all("=" in text for text in texts):
        raise InvalidInputError(
            f"--max-loss must be one share, such as 0.02, or one for each class named, such as sick=0.02; got "
            f"{', '.join(map(repr, texts))}."
        )
    return _read_shares("--max-loss", texts)


def read_prices(prices: Path | None, costs: Path | None, full_cost: Sequence[str] | None) -> Any:
    """Prices of columns and of the full model; ``costs`` is the former name of the option ``prices``."""
    from dataclasses import replace

    from thrifty.engine.prices.prices import Prices

    if costs is not None:
        if prices is not None:
            raise InvalidInputError("--costs is the former name of --prices. Give --prices only.")
        print_note("--costs is --prices since thrifty 0.4, and goes in the next release")
    file = prices or costs
    by_column = Prices({}, default=1.0) if file is None else Prices.read(file)
    return by_column if not full_cost else replace(by_column, full=read_amounts("--full-cost", full_cost))


def is_many(table: Path) -> bool:
    """True if a table is a folder, or a pattern of names of files."""
    return table.is_dir() or (not table.exists() and glob.has_magic(str(table)))
