"""What the estimators with one cheap stage share: the template of ``fit``, and thresholds of their gate.

A subclass says how its stage (g, f1) is learned; everything else is here or in the base class. ``fit`` is all or
nothing: after a refusal the estimator is exactly as it was before.
"""

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from thrifty.arrays import Floats
from thrifty.chain.chain import Chain
from thrifty.chain.column_types import column_types
from thrifty.chain.policy import Policy
from thrifty.chain.sources import TableReader, kind_of_table
from thrifty.chain.stage import Stage
from thrifty.dynamod.pair_problem import PairProblem, extra_cost_of
from thrifty.dynamod.sizes import Part, Unit, local_size
from thrifty.errors import InvalidInputError
from thrifty.estimators.base import (
    ChainClassifier,
    ChainEstimator,
    ChainRegressor,
    all_or_nothing,
)
from thrifty.estimators.checks import (
    check_seed,
    check_share,
    check_training_rows,
    check_wish,
    refuse_keywords,
)
from thrifty.estimators.link import link_of
from thrifty.evidence.cuts import ThresholdCurve, cuts_of, threshold_curve
from thrifty.evidence.evidence import Evidence
from thrifty.evidence.observe import evidence_of, evidence_of_known, seen_by
from thrifty.evidence.recall import with_classes
from thrifty.evidence.spending import check_confidence
from thrifty.prices.costs import check_amount
from thrifty.progress import printed
from thrifty.threads import limited_threads, threads_of

__all__ = ["GatedClassifier", "GatedEstimator", "GatedRegressor", "PairProblem"]

_MOST_CUTS = 401
"""Cuts that are tried where a budget is to be kept with confidence: a quarter of a per cent of the rows apart."""


class GatedEstimator(ChainEstimator):
    """Base of the estimators with one cheap stage in front of the full model; see the subclasses.

    Subclasses store at least ``full, feature_costs, feature_groups, full_cost, full_features, budget, confidence,
    cv, n_jobs`` and ``random_state``, and implement ``_learn``.
    """

    feature_costs: Any
    feature_groups: Any
    full_cost: float
    full_features: Any
    budget: float | None
    confidence: float | None
    cv: Any
    n_jobs: int | None
    verbose: int = 0

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **unknown: Any) -> Self:
        """Learn the cheap model and the gate, and judge the full model on these rows.

        Parameters
        ----------
        X : array, CSR matrix, pandas or polars data frame of shape (n_samples, n_features)
            Every feature the full model reads, bought or not: training pays for everything.
        y : array-like of shape (n_samples,)
            Labels of two classes; of more for the estimators whose tag ``multi_class`` says so; numbers, for a
            regressor.
        sample_weight : array-like of shape (n_samples,), optional
            Weights; a row of weight zero is left out.
        """
        refuse_keywords(self, unknown)
        self._check_parameters()
        budget = None if self.budget is None else check_amount("budget", self.budget)
        surely = None if budget is None else check_confidence(self.confidence)
        report = printed(self.verbose, type(self).__name__)
        with all_or_nothing(self), limited_threads(openmp=threads_of(self.n_jobs), blas=1):
            seed = check_seed(self.random_state)
            rows, proof = check_training_rows(self, X, y, sample_weight, self.cv, seed), None
            if surely is not None:
                rows, proof = self._hold_out(rows, seed, "confidence")
            names = getattr(self, "feature_names_in_", None)
            n_features = rows.X.shape[1]
            prices = self._price_list(rows)
            self._check_against(n_features, names)
            judged = self._judged(rows, prices, self.n_jobs)
            report("judging the full model", 1, 1)
            behind = Chain(
                (),
                link_of(judged.model, prices, rows.task),
                prices,
                rows.task,
                Policy.of(np.empty(0), seed=seed),
                names=None if names is None else tuple(str(name) for name in names),
                kind=kind_of_table(X),
                levels=self._levels,
                types=column_types(rows.table),
            )
            problem = PairProblem(rows, judged, prices, extra_cost_of(behind, rows), seed, behind, budget)
            stage = self._learn(problem)
            report("learning the gate and the cheap model", 1, 1)
            problem = replace(problem, held_out=self.__dict__.pop("_out_of_fold", None))
            if len(rows.task.classes):
                self.classes_ = rows.task.classes
            self.chain_ = replace(behind, stages=(stage,), policy=Policy.of(np.zeros(1), seed=seed))
            self.features_ = stage.columns
            self.certificate_ = None
            self._set_threshold(self._default_threshold(problem, budget))
            evidence = with_classes(self._judged_rows(problem), rows.task).without_scores()
            self.evidence_ = replace(evidence, seen=seen_by(*self._other_models()))
            self._proof = None
            if proof is not None:
                held_out = TableReader(proof.X, proof.table, proof.positions)
                self._proof = evidence_of(self, held_out, proof.labels).without_scores()
            if surely is not None and budget is not None:
                self._move(budget=budget, confidence=surely)
            report("judging operating points", 1, 1)
        return self

    def _check_parameters(self) -> None:
        """Refuse bad constructor arguments before anything is computed."""

    def _check_against(self, n_features: int, names: Any) -> None:
        """Refuse constructor arguments that do not suit the table, before anything is computed."""

    def _learn(self, problem: PairProblem) -> Stage:
        """Learn (g, f1); what else was learned is stored under names that end in ``_``.

        A stage that was cross-fitted leaves its scores out of fold in ``_out_of_fold``.
        """
        raise NotImplementedError

    def _default_threshold(self, problem: PairProblem, budget: float | None) -> float:
        """Threshold of a fresh fit: the paper's ``g > 0``, or the one that spends the budget on the training rows."""
        if budget is None:
            return 0.0
        g = None if problem.held_out is None else problem.held_out[0]
        curve = self._curve(problem.reader, g=g, weight=problem.rows.weight)
        return float(curve.threshold[curve.within(budget)])

    def _judged_rows(self, problem: PairProblem) -> Evidence:
        """The training rows: the full model's answers are out of fold, those of the stage if it was cross-fitted."""
        rows, seen = problem.rows, self.chain_.visit_all(problem.reader)
        if problem.held_out is not None:
            seen.gate[:, 0], seen.scores[:, 0] = problem.held_out
        outputs = problem.full.outputs
        return evidence_of_known(self.chain_, problem.reader, rows.y, outputs, seen=seen, weight=rows.weight)

    # -- operating points -------------------------------------------------------------------------

    def scores(self, X: Any) -> tuple[Floats, Floats]:
        """Gate and cheap-model scores ``(g, f1)`` of the stage, for every row."""
        seen = self.chain_.visit_all(self._reader(X))
        return seen.gate[:, 0], self.chain_.task.decision(seen.scores[:, 0])

    def local_size(self, unit: Unit = "bytes", *, of: Part = "both") -> int:
        """Complexity of what is answered with locally: bytes that are stored, or trees that are walked for a row.

        Parameters
        ----------
        unit : {"bytes", "trees"}
            What is counted.
        of : {"both", "cheap", "gate"}
            The pair, the cheap model alone, or what the gate adds to it.
        """
        check_is_fitted(self)
        return local_size(self.chain_.stages[0], unit, of)

    def threshold_for(
        self,
        X: Any,
        y: Any = None,
        *,
        budget: float | None = None,
        accuracy: float | None = None,
        remote_share: float | None = None,
    ) -> float:
        """Threshold of the gate that meets one wish on the rows ``X``, which should be new to the system.

        Parameters
        ----------
        X : table
            Rows to try thresholds on.
        y : array-like, optional
            Their labels, or numbers, for ``accuracy``.
        budget : float, optional
            Most that a row may spend on average; sends as many on as that allows.
        accuracy : float, optional
            Least accuracy, or score of a regressor; sends as few on as that allows. Asks the full model about every
            row.
        remote_share : float, optional
            Largest share of the rows to be sent on.
        """
        check_wish(budget=budget, accuracy=accuracy, remote_share=remote_share)
        reader = self._reader(X)
        if accuracy is not None:
            if y is None:
                raise InvalidInputError("threshold_for(accuracy=...) needs the labels y of the rows X.")
            wanted = check_share("accuracy", accuracy, meaning=f"the least {self.chain_.task.quality_name}")
            seen = evidence_of(self, reader, y)
            right = np.asarray(seen.quality, dtype=np.float64)
            curve = threshold_curve(seen.gate[:, 0], 0.0, 1.0, right[:, 0], right[:, 1])
            return float(curve.threshold[curve.reaching(wanted)])
        curve = self._curve(reader)
        if budget is not None:
            return float(curve.threshold[curve.within(check_amount("budget", budget))])
        share = check_share("remote_share", remote_share, meaning="the largest share of rows sent on")
        return float(curve.threshold[curve.sending(share)])

    def _move(self, *, confidence: float | None = None, **wish: Any) -> None:
        if "max_loss" in wish:
            raise InvalidInputError(
                f"max_loss={wish['max_loss']!r} must be shown on rows that this fit has not seen, and the evidence of "
                f"a {type(self).__name__} is its training rows. Use certified(X, y, max_loss=...)."
            )
        self.certificate_ = None
        if "threshold" in wish:
            self._set_threshold(wish["threshold"])
            return
        seen = self._evidence()
        if confidence is not None:
            every = cuts_of(seen.gate[:, 0]).threshold
            some = every[np.unique(np.linspace(0, len(every) - 1, _MOST_CUTS).astype(np.intp))]
            kept = self._kept_within(Policy.of(*some[:, None]), wish["budget"], confidence)
            # Of two neighbouring cuts the cheaper one: a single threshold stays in force.
            self._set_threshold(float(kept.thresholds[kept.lower, 0]))
            return
        curve = threshold_curve(seen.gate[:, 0], seen.cost_at(0), seen.cost_at(1), weight=seen.weights)
        self._set_threshold(float(curve.threshold[curve.within(wish["budget"])]))

    def _curve(
        self, reader: TableReader, *, g: Floats | None = None, weight: Floats | None = None
    ) -> ThresholdCurve:
        """Every threshold of the gate on these rows; ``g`` if the gate's own scores are too good."""
        if g is None:
            g = self.chain_.visit_all(reader).gate[:, 0]
        wide_open = self.chain_.at(Policy.of(np.full(self.chain_.n_own_stages, -np.inf)))
        sent_on = wide_open.spent(reader, wide_open.walk(reader))
        by_row = self.chain_.price_list.by_row is not None
        stop = self.chain_.spent_at(reader, 0) if by_row else self.chain_.cost_by_place[0]
        return threshold_curve(g, stop, sent_on, weight=weight)

    def _set_threshold(self, threshold: float) -> None:
        """Cut the first gate; those behind it stay as they are."""
        policy = self.chain_.policy
        thresholds = policy.thresholds[policy.lower].copy()
        thresholds[0] = threshold
        self.chain_ = self.chain_.at(Policy.of(thresholds, seed=policy.seed))

    @property
    def threshold_(self) -> float:
        """Rows with ``g > threshold_`` are sent on."""
        check_is_fitted(self)
        policy = self.chain_.policy
        return float(policy.thresholds[policy.lower, 0])


class GatedClassifier(ChainClassifier, GatedEstimator):
    """A classifier with one cheap stage in front of the full model."""


class GatedRegressor(ChainRegressor, GatedEstimator):
    """A regressor with one cheap stage in front of the full model."""
