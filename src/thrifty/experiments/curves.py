"""The lines of an "accuracy against cost" figure, by their name in the legend."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thrifty.experiments.candidates import AnyCandidate, Candidate

__all__ = ["CURVES", "curves_from"]


@dataclass(frozen=True)
class CurveKind:
    """A line of the figure: which fits it is made of, what is done to them, and whether the paper draws it."""

    method: str
    of: Callable[[Any], AnyCandidate]
    in_paper: bool


def _as_fitted(candidate: Any) -> AnyCandidate:
    found: AnyCandidate = candidate
    return found


CURVES = {
    "DynaMod-Gbrt, KL, g > 0": CurveKind("kl", _as_fitted, True),
    "DynaMod-Gbrt, squared, g > 0": CurveKind("squared", _as_fitted, True),
    "GreedyMiser": CurveKind("miser", _as_fitted, True),
    "BudgetPrune": CurveKind("prune", _as_fitted, True),
    "DynaMod-Gbrt, KL": CurveKind("kl", Candidate.at_any_threshold, False),
    "DynaMod-Gbrt, squared": CurveKind("squared", Candidate.at_any_threshold, False),
    "DynaMod-Gbrt, gate reads f1": CurveKind("reads_score", Candidate.at_any_threshold, False),
    "GreedyMiser + confidence": CurveKind("miser", Candidate.gated_by_confidence, False),
    "LightGBM-CEGB + confidence": CurveKind("cegb", _as_fitted, False),
    "BudgetedClassifier": CurveKind("cascade", _as_fitted, False),
}
"""Lines of the figure by their name in the legend."""


def curves_from(found: Mapping[str, Sequence[AnyCandidate]]) -> dict[str, list[AnyCandidate]]:
    """Candidates of every line that has any."""
    return {
        name: [kind.of(candidate) for candidate in found[kind.method]]
        for name, kind in CURVES.items()
        if found.get(kind.method)
    }
