"""What the paper says about two methods, and whether it holds here: a difference counts beyond two standard errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from thrifty.experiments.selection import Chosen, gap, share_budgets

__all__ = ["MARGINAL", "Claim", "Verdict", "judge_claims"]

MARGINAL = 0.01
"""A gain below one point of accuracy, mean over budgets, is what we call marginal."""


@dataclass(frozen=True)
class Claim:
    """What is said, or asked, about two methods.

    Attributes
    ----------
    name : str
        As the paper's list or ours calls it.
    ours, theirs : str
        Lines of the figure.
    kind : {"better", "marginal", "asked"}
        Ours is said to be better; or to gain next to nothing; or nothing is said, and we ask.
    """

    name: str
    ours: str
    theirs: str
    kind: Literal["better", "marginal", "asked"] = "better"


@dataclass(frozen=True)
class Verdict:
    """A claim, the mean difference of test accuracy over budgets, its standard error, and what follows."""

    claim: Claim
    mean: float
    error: float

    @property
    def word(self) -> str:
        """``holds`` or ``does not hold``; ``ahead`` or ``behind`` where nothing is claimed; or ``undecided``."""
        low, high = self.mean - 2 * self.error, self.mean + 2 * self.error
        if self.claim.kind == "marginal":
            holds, fails = low > -MARGINAL and high < MARGINAL, low > MARGINAL or high < -MARGINAL
        else:
            holds, fails = low > 0, high < 0
        yes, no = ("ahead", "behind") if self.claim.kind == "asked" else ("holds", "does not hold")
        return yes if holds else no if fails else "undecided"

    def __str__(self) -> str:
        claim = self.claim
        rule = f", claimed to be within {MARGINAL:g}" if claim.kind == "marginal" else ""
        return (
            f"{claim.name}: {claim.ours} minus {claim.theirs}, mean over budgets: {self.mean:+.4f} (standard error "
            f"{self.error:.4f}){rule}: {self.word}."
        )

    def as_numbers(self) -> dict[str, str | float]:
        """For the JSON file."""
        return {
            "claim": self.claim.name,
            "ours": self.claim.ours,
            "theirs": self.claim.theirs,
            "mean": self.mean,
            "standard_error": self.error,
            "verdict": self.word,
        }


def judge_claims(claims: Sequence[Claim], chosen: Mapping[str, Sequence[Chosen]]) -> list[Verdict]:
    """Every claim of which both methods were run and have a budget in common."""
    return [
        Verdict(claim, *gap(chosen[claim.ours], chosen[claim.theirs]))
        for claim in claims
        if claim.ours in chosen
        and claim.theirs in chosen
        and share_budgets(chosen[claim.ours], chosen[claim.theirs])
    ]
