"""Operating points of a fitted estimator: what the one in force spends and scores, and how to go to another."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from thrifty.chain.chain import Chain
from thrifty.chain.policy import Policy
from thrifty.chain.sources import TableReader
from thrifty.errors import InvalidInputError
from thrifty.estimators.checks import check_goal
from thrifty.evidence.budgets import CostBounds
from thrifty.evidence.certificate import Certificate, certify
from thrifty.evidence.evidence import Evidence
from thrifty.evidence.frontier import Frontier
from thrifty.evidence.observe import evidence_of
from thrifty.evidence.tests import HELD_OUT, check_confidence

__all__ = ["OperatingPoints"]

_LEVEL = 0.95
_USUAL_FOLDS = 5


class OperatingPoints:
    """What an estimator with a chain knows of its operating points; subclasses say how to go to one.

    All of it is said by ``evidence_``: what the chain did with rows that its points are judged on.
    """

    chain_: Chain
    evidence_: Evidence
    certificate_: Certificate | None
    _proof: Evidence | None = None
    _duplicates = HELD_OUT

    @property
    def frontier_(self) -> Frontier:
        """Every operating point, on the rows of ``evidence_``; every row counts once, whatever its weight."""
        check_is_fitted(self)
        return Frontier.from_evidence([self._evidence()], task=self.chain_.task)

    @property
    def expected_cost_(self) -> float:
        """Mean cost of the operating point in force, on the rows of ``evidence_``."""
        return self._expected()[0]

    @property
    def expected_score_(self) -> float:
        """Accuracy of the operating point in force, on the rows of ``evidence_``."""
        return self._expected()[1]

    @property
    def expected_cost_interval_(self) -> tuple[float, float]:
        """Where the mean cost of new rows at the operating point in force lies, 19 times out of 20.

        From rows that were kept out of the fit, where ``confidence`` or ``max_loss`` did so; else from the rows of
        ``evidence_``, which were judged by other copies of the stages than those that serve: that is allowed for.
        """
        check_is_fitted(self)
        judged = self._evidence()
        if self._proof is not None:
            spending = CostBounds.on_held_out(self._proof, judged, self._duplicates)
            return spending.interval(self.chain_.policy, _LEVEL)
        folds = getattr(self, "cv", None)
        copies = int(folds) if isinstance(folds, Integral) else _USUAL_FOLDS
        return CostBounds(judged, judged.n_rows).interval(self.chain_.policy, _LEVEL, copies)

    def at(
        self,
        *,
        budget: float | None = None,
        max_loss: float | Mapping[Any, float] | None = None,
        threshold: float | None = None,
        confidence: float | None = None,
    ) -> Self:
        """Return the same fit at another operating point; nothing is refitted.

        Parameters
        ----------
        budget : float, optional
            Mean spend per row.
        max_loss : float, or dict of label to float, optional
            Share of answers that may be worse than the full model's; by label, of the rows of that class.
        threshold : float, optional
            Threshold of the gate, for an estimator with a single one: rows with ``g > threshold`` are sent on.
        confidence : float, optional
            Probability with which the mean cost of new rows keeps to ``budget``, shown on rows that were kept out of
            the fit; without it, the mean is met as it was measured, and new rows spend more as often as less. For
            ``max_loss``, the probability with which it is proved.
        """
        check_is_fitted(self)
        wish, surely = (
            check_goal(budget=budget, max_loss=max_loss, threshold=threshold),
            None if confidence is None else check_confidence(confidence),
        )
        if "threshold" in wish and surely is not None:
            raise InvalidInputError(
                f"confidence={confidence!r} says how surely a budget is kept or a loss proved, and threshold="
                f"{threshold!r} asks for neither. Leave one of them out."
            )
        other = copy.copy(self)
        other._move(confidence=surely, **wish)
        return other

    def certified(
        self,
        X: Any,
        y: ArrayLike,
        *,
        max_loss: float | Mapping[Any, float],
        confidence: float = 0.95,
        duplicates: str = "refuse",
        measure: str = "share",
        largest: float | None = None,
    ) -> Self:
        """Return the same fit at the cheapest point that new rows prove to lose at most ``max_loss``.

        Parameters
        ----------
        X, y : table and labels
            Rows that neither this fit nor the full model has seen; the full model is asked about all of them.
        max_loss : float, or dict of label to float
            What is to be shown against the full model: the share of answers that may be worse, or that of the rows of
            each class named; see ``thrifty.certify``.
        confidence : float, default=0.95
            Probability with which it must hold.
        duplicates : {"refuse", "drop", "count"}, default="refuse"
            What becomes of rows that hold the same as rows of the fit: they are refused, left out, or counted. Rows
            that equal each other count once unless it is "count"; see ``thrifty.certify``.
        measure : {"share", "mean"}, default="share"
            Whether rows that are worse are counted, or the mean excess of the loss is bounded, as a share of
            ``largest``; see ``thrifty.certify``.
        largest : float, optional
            Loss at which losses are clipped before their mean is taken.
        """
        check_is_fitted(self)
        evidence, proof = self._evidence(), evidence_of(self, self._reader(X), y)
        if proof.full_quality is None:
            raise InvalidInputError(
                f"this {type(self).__name__} has no full model, so there is nothing to lose against. Give one with "
                f"`with_full(full)`."
            )
        if evidence.full_quality is None:
            raise InvalidInputError(
                f"this {type(self).__name__} was fitted without a full model, so its evidence cannot tell which points "
                f"are worth a test. Choose them on other rows, with Frontier.from_evidence([evidence_of(...)], "
                f"against_full=True), and give frontier.on([evidence_of(...)]) to thrifty.certify."
            )
        chosen = Frontier.from_evidence([evidence], against_full=measure != "mean")
        certificate = certify(
            chosen.on([proof]),
            max_loss=max_loss,
            confidence=confidence,
            duplicates=duplicates,
            measure=measure,
            largest=largest,
        )
        other = copy.copy(self)
        other._settle(certificate)
        return other

    # -- for subclasses --------------------------------------------------------------------------

    def _reader(self, X: Any, row_key: Any = None) -> TableReader:
        """Read from a table like that of the fit."""
        raise NotImplementedError

    def _move(self, *, confidence: float | None = None, **wish: Any) -> None:
        """Go to an operating point; to the one that is natural without a wish."""
        raise NotImplementedError

    def _settle(self, certificate: Certificate) -> None:
        """Go to the point that a certificate names."""
        self.certificate_ = certificate
        point, seed = certificate.point, self.chain_.policy.seed
        if point is None or certificate.is_fallback:
            # Past every gate, those of a chain behind this one included.
            wide_open = Policy.of(np.full(self.chain_.n_own_stages, -np.inf), seed=seed)
            self.chain_ = replace(self.chain_, full=self.chain_.innermost, policy=wide_open, blend=None)
        else:
            self.chain_ = self.chain_.at(Policy.of(np.array(point.thresholds), seed=seed))

    def _kept_within(self, policy: Policy, budget: float, confidence: float) -> Policy:
        """The policy at the dearest point that rows kept out of the fit show to keep to a budget."""
        if self._proof is None:
            raise InvalidInputError(
                f"confidence={confidence!r} must be shown on rows that were kept out of the fit, and this "
                f"{type(self).__name__} kept none. Fit it with both budget and confidence, or spend a budget on just "
                f"the rows at hand with thrifty.hold_budget."
            )
        spending = CostBounds.on_held_out(self._proof, self._evidence(), self._duplicates)
        return spending.within(policy, budget, confidence)

    def _expected(self) -> tuple[float, float]:
        """Mean cost and mean quality of the point in force on the rows of the evidence."""
        check_is_fitted(self)
        policy, evidence = self.chain_.policy, self._evidence()
        found = []
        for point in (policy.lower, policy.upper):
            _, cost, quality = evidence.at_point(policy.thresholds[point])
            found.append(
                (np.average(cost, weights=evidence.weights), np.average(quality, weights=evidence.weights))
            )
        (low, bad), (high, good) = found
        share = policy.share
        return float((1 - share) * low + share * high), float((1 - share) * bad + share * good)

    def _evidence(self) -> Evidence:
        evidence: Evidence | None = getattr(self, "evidence_", None)
        if evidence is None:
            raise InvalidInputError(
                "this needs the rows that the operating points were judged on, and the file that this estimator comes "
                "from does not keep them: it was saved without evidence, or by a first version. Fit again, or score "
                "points on rows of your own with evidence_of."
            )
        return evidence
