"""Operating points of a fitted estimator: ``at``, ``certified``, and the expected cost and score."""

import copy
import warnings
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from thrifty.arrays import Floats
from thrifty.engine.evidence.averages import Means
from thrifty.engine.evidence.budgets import CostBounds
from thrifty.engine.evidence.certificate import Certificate, certify
from thrifty.engine.evidence.collect import evidence_of
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.frontier import Frontier
from thrifty.engine.evidence.hypothesis_tests import check_confidence, empirical_risk_within
from thrifty.engine.evidence.measures import score_interval
from thrifty.engine.evidence.thresholds import convex_hull, path_to_full
from thrifty.engine.prices.billing import check_amount
from thrifty.engine.table.table import Table
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.policy import Policy, distinct_thresholds
from thrifty.errors import InvalidInputError, NothingSavedWarning
from thrifty.learners.estimators.checks import check_goal

_LEVEL = 0.95
_USUAL_FOLDS = 5
_MAX_CUTS = 401
"""Thresholds of a single gate that are tried for a budget to be held: a quarter of a per cent of the rows apart."""


class OperatingPoints:
    """Operating points of an estimator with a chain: ``at``, ``certified``, and what the point in force spends.

    ``_learned`` is the chain with all operating points of the fit, ``chain_`` the same at the point in force, and
    ``evidence_`` what the chain did with the rows that points are evaluated on.
    """

    chain_: Chain
    evidence_: Evidence
    certificate_: Certificate | None
    _learned: Chain

    @property
    def frontier_(self) -> Frontier:
        """Frontier of the operating points on the rows of ``evidence_``; every row counts once, without weights."""
        check_is_fitted(self)
        return Frontier.from_evidence([self._evidence()], task=self.chain_.task)

    @property
    def expected_cost_(self) -> float:
        """Mean cost of the operating point in force, on the rows of ``evidence_``."""
        return self._expected()[0]

    @property
    def expected_score_(self) -> float:
        """Mean score to expect of new rows at the operating point in force, from the rows of ``evidence_``.

        That of a cascade is corrected by ``evidence_.optimism``: the labels of those rows had a say in the
        order of purchases.
        """
        return self._expected()[1]

    @property
    def expected_score_interval_(self) -> tuple[float, float]:
        """95 % interval of the mean score of many new rows at the operating point in force."""
        return score_interval(self._evidence(), self.chain_.policy, self.expected_score_, _LEVEL)

    @property
    def expected_cost_interval_(self) -> tuple[float, float]:
        """95 % interval of the mean cost of new rows at the operating point in force.

        From the rows of ``evidence_``, which were predicted by other copies of the stages than those that serve: the
        interval allows for that.
        """
        check_is_fitted(self)
        evidence = self._evidence()
        folds = getattr(self, "cv", None)
        copies = int(folds) if isinstance(folds, Integral) else _USUAL_FOLDS
        return CostBounds(evidence, evidence.n_units).interval(self.chain_.policy, _LEVEL, copies)

    def at(self, *, budget: float | None = None, max_loss: float | Mapping[Any, float] | None = None) -> Self:
        """Return the same fit at another operating point, by the rows of the fit; nothing is refitted.

        What is met on average on the rows of the fit is an estimate for new rows; ``certified`` proves it.

        Parameters
        ----------
        budget : float, optional
            Mean spend per row.
        max_loss : float, or dict of label to float, optional
            Largest share of all rows that is answered worse than by the full model; by label, of the rows of that
            class.
        """
        goal = check_goal(budget=budget, max_loss=max_loss)
        other = self._without_certificate()
        if "budget" in goal:
            other._spend(goal["budget"])
            return other
        against = Frontier.from_evidence([self._evidence()], against_full=True)
        allowed = np.flatnonzero(empirical_risk_within(against, goal["max_loss"]))
        if len(allowed):
            cheapest = against[int(allowed[np.argmin(against.cost[allowed])])]
            other._go_to(np.array(cheapest.thresholds))
        else:
            other._send_everything(goal["max_loss"])
        return other

    def certified(
        self,
        X: Any,
        y: Any,
        *,
        max_loss: float | Mapping[Any, float] | None = None,
        budget: float | None = None,
        confidence: float = 0.95,
        duplicates: str = "refuse",
        measure: str = "share",
        largest: float | None = None,
    ) -> Self:
        """Return the same fit at a point that new rows prove to lose at most ``max_loss``, or to keep to ``budget``.

        With ``max_loss`` it is the cheapest such point, and ``certificate_`` says what was proved; with ``budget`` the
        dearest. Nothing is refitted. Shares of lost rows are tested along a path from the full model, alone, over the
        points of the fit, in small steps (``path_to_full``): a fixed sequence, chosen on the rows of the fit.

        Parameters
        ----------
        X, y : table and labels
            Rows that neither this fit nor the full model has seen; the full model is asked about all of them.
        max_loss : float, or dict of label to float, optional
            What is to be shown against the full model: the share of answers that may be worse, or that of the rows of
            each class named; see ``thrifty.certify``.
        budget : float, optional
            What the mean cost of new rows is to be at most; instead of ``max_loss``.
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
        goal = check_goal(max_loss=max_loss, budget=budget)
        confidence = check_confidence(confidence)
        fitted_on, new = self._evidence(), evidence_of(self, self._reader(X), y)
        other = self._without_certificate()
        if "budget" in goal:
            policy = self._learned.policy
            if not policy.is_measured:
                policy = _cuts(fitted_on)
            bounds = CostBounds.on_held_out(new, fitted_on, duplicates)
            other._mix(bounds.within(policy, goal["budget"], confidence))
            return other
        if new.full_quality is None:
            raise InvalidInputError(
                f"this {type(self).__name__} has no full model, so there is nothing to lose against. Give one with "
                f"`with_full(full)`."
            )
        if fitted_on.full_quality is None:
            raise InvalidInputError(
                f"this {type(self).__name__} was fitted without its full model, so its evidence does not show "
                f"which points are worth a test. Choose them on other rows, with "
                f"Frontier.from_evidence([evidence_of(...)], against_full=True), and give "
                f"frontier.on([evidence_of(...)]) to thrifty.certify."
            )
        chosen, alone = self._candidates(measure)
        if alone:
            new = replace(new.with_full_alone(), points=chosen.evidence[0].points)
        certificate = certify(
            chosen.on([new]),
            max_loss=goal["max_loss"],
            confidence=confidence,
            duplicates=duplicates,
            measure=measure,
            largest=largest,
        )
        return other._with_certificate(certificate, goal["max_loss"], alone=alone)

    def _candidates(self, measure: str = "share") -> tuple[Frontier, bool]:
        """Points to certify, by the rows of the fit, and whether the full model, where it is asked, answers alone."""
        fitted_on = self._evidence()
        # A row that gets to the full model is not worse off with the answer of the full model alone.
        if measure == "mean" or not self._learned.policy.is_measured or self._learned.behind is not None:
            return Frontier.from_evidence([fitted_on], against_full=measure != "mean"), False
        fitted_on = fitted_on.with_full_alone()
        safe = Frontier.from_evidence([fitted_on], against_full=True)
        path = replace(fitted_on, points=path_to_full(fitted_on, safe.thresholds), optimism=None)
        return Frontier.from_evidence([path], against_full=True, every_point=True), True

    def _with_certificate(self, certificate: Certificate, max_loss: Any, *, alone: bool) -> Self:
        """Go to the point that a certificate is about, and keep the certificate."""
        self.certificate_ = certificate
        if certificate.point is None or certificate.is_fallback:
            self._send_everything(max_loss)
        else:
            self._go_to(np.array(certificate.point.thresholds), alone=alone)
        return self

    def _measured_on(self, means: Means, n_rows: int) -> None:
        """Take costs and scores of the operating points from other rows: of the policy's points, then the evidence's.

        The evidence keeps its rows. By how much their mean scores exceed those of the other rows is its optimism.
        """
        evidence, policy, in_force = self._evidence(), self._learned.policy, self.chain_.policy
        n_points = len(policy)
        policy = replace(policy, cost=means.cost[:n_points], score=means.score[:n_points])
        self._learned = self._learned.at(policy[convex_hull(policy.cost, policy.score)])
        thresholds, plain = replace(evidence, optimism=None).every_point()
        spread = np.array([np.std(evidence.at_point(point)[2]) for point in thresholds])
        optimism = np.column_stack([plain.score - means.score[n_points:], spread / np.sqrt(n_rows)])
        self.evidence_ = replace(evidence, optimism=optimism)
        budget = getattr(self, "budget", None)
        if budget is None:
            self._go_to(in_force.thresholds[in_force.lower], evidence.weights)
        else:
            self._spend(check_amount("budget", budget))

    # -- moving ----------------------------------------------------------------------------------

    def _without_certificate(self) -> Self:
        """A copy that may move: what was proved is about the point that was in force."""
        check_is_fitted(self)
        other = copy.copy(self)
        other.certificate_ = None
        return other

    def _spend(self, budget: float) -> None:
        """Go to the point, or mix of two, that spends a budget on the rows of the fit."""
        self._mix(self._learned.policy.within(budget))

    def _mix(self, policy: Policy) -> None:
        """Put a policy into force; a single gate keeps one threshold, the cheaper of two neighbours."""
        if self._learned.policy.is_measured:
            self.chain_ = self._learned.at(policy)
        else:
            self._go_to(policy.thresholds[policy.lower])

    def _go_to(self, thresholds: Floats, weights: Floats | None = None, *, alone: bool = False) -> None:
        """Go to a point, one of the policy or not; its means are over the rows of the evidence, so weighted.

        With ``alone`` the full model is not blended with the last stage.
        """
        policy = self._learned.policy
        alone = alone and self._learned.blend is not None
        same = (policy.thresholds == thresholds).all(axis=1) & (not alone)
        if not same.any():
            other = Policy.of(thresholds, seed=policy.seed)
            if policy.is_measured:
                evidence = self._evidence().with_full_alone() if alone else self._evidence()
                _, *means = evidence.at_point(thresholds)
                cost, score = (np.array([np.average(of_rows, weights=weights)]) for of_rows in means)
                other = replace(other, cost=cost, score=score - evidence.optimism_at(thresholds[None])[:, 0])
            policy, same = other, np.ones(1, dtype=bool)
        self.chain_ = self._learned.at(policy.at(int(np.argmax(same))))
        if alone:
            self.chain_ = replace(self.chain_, blend=self.chain_.task.full_alone)

    def _send_everything(self, max_loss: Any) -> None:
        """Send every row to the full model, past a chain used as one too; its own answer counts."""
        learned = self._learned
        blend = None if learned.blend is None else learned.task.full_alone
        whole = replace(learned, full=learned.innermost, blend=blend)
        policy = Policy.of(np.full(whole.n_own_stages, -np.inf), seed=learned.policy.seed)
        if learned.policy.is_measured:
            cost = whole.cost_by_place[-1:]
            if whole.price_list.by_row is not None and learned.behind is None:
                cost = np.array([np.mean(self._evidence().cost_at(-1))])
            policy = replace(policy, cost=cost, score=np.array([self._evidence().full_score]))
        self.chain_ = replace(whole, policy=policy)
        shown = dict(max_loss) if isinstance(max_loss, Mapping) else f"{max_loss:g}"
        warnings.warn(
            f"max_loss={shown} can be met only by sending every row to the full model, which saves nothing. "
            f"Allow a larger loss, give more rows, or let the stages buy more.",
            NothingSavedWarning,
            stacklevel=3,
        )

    def _expected(self) -> tuple[float, float]:
        """Mean cost and mean quality of the point in force on the rows of the evidence."""
        check_is_fitted(self)
        policy = self.chain_.policy
        if policy.is_measured:
            return policy.expected_cost, policy.expected_score
        evidence, share = self._evidence(), policy.share
        means = []
        for point in (policy.lower, policy.upper):
            _, *of_rows = evidence.at_point(policy.thresholds[point])
            means.append([np.average(values, weights=evidence.weights) for values in of_rows])
        cost, quality = (float((1 - share) * low + share * high) for low, high in zip(*means, strict=True))
        return cost, quality

    def _evidence(self) -> Evidence:
        evidence: Evidence | None = getattr(self, "evidence_", None)
        if evidence is None:
            raise InvalidInputError(
                "this needs the rows that the operating points were evaluated on, and the file that this estimator "
                "comes from does not keep them: it was saved without evidence. Fit again, or score points on rows of "
                "your own with evidence_of."
            )
        return evidence

    # -- for subclasses --------------------------------------------------------------------------

    def _reader(self, X: Any, row_key: Any = None) -> Table:
        """Read from a table like that of the fit."""
        raise NotImplementedError


def _cuts(evidence: Evidence) -> Policy:
    """Thresholds of a single gate, by rising cost."""
    every = distinct_thresholds(evidence.gate[:, 0])
    some = every[np.unique(np.linspace(0, len(every) - 1, _MAX_CUTS).astype(np.intp))]
    return Policy.of(*some[:, None])
