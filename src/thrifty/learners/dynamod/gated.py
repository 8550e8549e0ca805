"""Base classes of the estimators with one gate: ``fit``, thresholds, and the alternation with its options.

A subclass implements how its stage (g, f1) is learned; everything else is here or in the base class. ``fit`` is all or
nothing: if it raises, the estimator is exactly as before.
"""

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from thrifty.arrays import Floats, Ints
from thrifty.engine.evidence.collect import evidence_of, evidence_of_known, training_fingerprints
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.measures import with_classes
from thrifty.engine.evidence.thresholds import threshold_curve
from thrifty.engine.full.crossfit import CrossFittedFull, TrainingRows, held_out_rows
from thrifty.engine.prices.billing import PriceList, Resources, check_amount, costs_text
from thrifty.engine.table.columns import column_types
from thrifty.engine.table.table import Table
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.policy import SLACK, Policy
from thrifty.engine.walk.stage import Stage
from thrifty.errors import InvalidInputError, InvalidParameterError, UnspentBudgetWarning
from thrifty.learners.dynamod.alternating import (
    Alternation,
    AnyPair,
    CallBudget,
    Fold,
    Limit,
    Problem,
    alternate,
    alternate_under_budget,
)
from thrifty.learners.dynamod.objective import DistanceName, Solution, check_distance
from thrifty.learners.estimators.base import (
    ChainClassifier,
    ChainEstimator,
    ChainRegressor,
    all_or_nothing,
    unwrap_chain,
)
from thrifty.learners.estimators.checks import (
    check_cap,
    check_count,
    check_goal,
    check_seed,
    check_share,
    check_training_rows,
    refuse_keywords,
)
from thrifty.progress import progress_printer
from thrifty.threads import limited_threads, threads_of

AnyClass = TypeVar("AnyClass", bound="type[Any]")

UNSPENT = 0.8
"""A fit that spends less than this part of its budget, although more would buy accuracy, warns."""

DEFAULT_SHARE = 0.3
"""Share of rows that may be sent during learning, without ``p_full`` and budget."""


@dataclass(frozen=True)
class PairProblem:
    """Data, prices and limits from which a subclass learns its stage.

    Attributes
    ----------
    rows : TrainingRows
        Rows to learn from.
    full : CrossFittedFull
        The full model and its outputs on those rows.
    price_list : PriceList
        What purchases cost.
    extra_cost : ndarray of shape (n_samples,) or None
        Price of sending each row on, scaled to a mean of 1; None where it is the same for all of them.
    seed : int
        Seed of all random choices.
    behind : Chain
        The full model, or the chain in its place, with its prices.
    budget : float, dict of resource to float, or None
        Most that a row may spend on average.
    """

    rows: TrainingRows
    full: CrossFittedFull
    price_list: PriceList
    extra_cost: Floats | None
    seed: int
    behind: Chain
    budget: Any = None

    @property
    def reader(self) -> Table:
        """Reader of the training rows."""
        return self.rows.table

    @cached_property
    def calls(self) -> CallBudget:
        """The budget, and what is spent of it."""
        assert self.budget is not None  # checked by the callers
        resources = self.price_list.resources
        budget = self.budget if resources is None else resources.limits(self.budget)
        return CallBudget(budget, self.behind, self.rows, self.behind.walk(self.reader).route)

    def cap(self, p_full: float | None) -> float | None:
        """The cap of (OPT2) on the share sent; None where the budget of (OPT1) takes its place."""
        if p_full is None:
            return DEFAULT_SHARE if self.budget is None else None
        return float(p_full)

    def limit(self, p_full: float | None) -> Limit:
        """Limit of the q-step: the cap, or the budget as a function of the pair."""
        cap = self.cap(p_full)
        return self.calls if cap is None else cap

    def limit_at(self, p_full: float | None, columns: Ints) -> tuple[Any, Floats | None]:
        """The q-step's limit and prices for a stage whose columns are chosen."""
        cap = self.cap(p_full)
        return self.calls.of(columns) if cap is None else (cap, self.extra_cost)

    def share_at(self, p_full: float | None, columns: Ints) -> float:
        """Share of the rows that may be sent by a stage of these columns."""
        cap = self.cap(p_full)
        return self.calls.share_of(columns) if cap is None else cap

    def folds(self, made: Callable[[Ints, Ints], Fold[AnyPair]]) -> list[Fold[AnyPair]]:
        """A pair for each fold of the rows: ``made(train, out)``."""
        everyone = np.arange(len(self.rows.y))
        return [made(np.setdiff1d(everyone, out), out) for out in held_out_rows(self.rows)]


@dataclass(frozen=True)
class Learned:
    """Result of ``_learn``: a stage and, if it was cross-fitted, its scores of the training rows out of fold.

    Attributes
    ----------
    stage : Stage
        What serves.
    gate : ndarray of shape (n_samples,), optional
        Scores g, among which a fit looks for its threshold; by default those of the stage itself.
    scores : ndarray of shape (n_samples, n_scores), optional
        Scores f1. With both, the evidence of the fit is out of fold.
    """

    stage: Stage
    gate: Floats | None = None
    scores: Floats | None = None

    @classmethod
    def by(cls, stage: Stage, run: Solution[Alternation[Any]]) -> "Learned":
        """A stage, with what the alternation that learned it found out of fold."""
        return cls(stage, *(run.value.held_out or (None, None)))


def extra_cost_of(behind: Chain, rows: TrainingRows) -> Floats | None:
    """Price of sending each row on, scaled to a mean of 1; None where it is 0 or the same for all rows."""
    if behind.behind is None and behind.price_list.by_row is None:
        return None
    cost = behind.spent(rows.table, behind.walk(rows.table))
    mean = float(np.average(cost, weights=rows.weight))
    return cost / mean if mean > 0 else None


class GatedEstimator(ChainEstimator):
    """Base of the estimators with one cheap stage in front of the full model; see the subclasses.

    Subclasses store at least ``full, feature_costs, prices, budget, cv, n_jobs`` and ``random_state``, and implement
    ``_learn``.
    """

    _accepts_resources = True

    feature_costs: Any
    prices: Any
    budget: Any
    cv: Any
    n_jobs: int | None
    verbose: int = 0

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **unknown: Any) -> Self:
        """Learn the cheap model and the gate, and cross-fit the full model on these rows.

        Parameters
        ----------
        X : array, CSR matrix, pandas or polars data frame of shape (n_samples, n_features)
            Every feature the full model reads, bought or not: training pays for everything.
        y : array-like of shape (n_samples,)
            Labels of two classes; of more for the estimators whose tag ``multi_class`` says so; numbers, for a
            regressor.
        sample_weight : array-like of shape (n_samples,), optional
            Weights, as ``BudgetedClassifier.fit`` reads them; a row of weight zero is left out.
        """
        refuse_keywords(self, unknown)
        self._check_parameters()
        report = progress_printer(self.verbose, type(self).__name__)
        with all_or_nothing(self), limited_threads(openmp=threads_of(self.n_jobs), blas=1):
            seed = check_seed(self.random_state)
            rows = check_training_rows(self, X, y, sample_weight, self.cv, seed)
            names = getattr(self, "feature_names_in_", None)
            prices, budget = self._price_list(rows), self.budget
            resources = prices.resources
            if resources is not None and resources.delays:
                raise InvalidInputError(
                    f"a {type(self).__name__} makes all purchases of its stage at once, and takes no delays= "
                    f"({', '.join(resources.delays)}). Leave them out."
                )
            if budget is not None:
                budget = (
                    check_amount("budget", budget)
                    if resources is None
                    else resources.check_budget("budget", budget)
                )
            self._check_against(prices, budget)
            cross_fitted = self._cross_fit_full(rows, prices, self.n_jobs)
            report("cross-fitting the full model", 1, 1)
            behind = Chain(
                (),
                unwrap_chain(cross_fitted.model, prices, rows.task),
                prices,
                rows.task,
                Policy.of(np.empty(0), seed=seed),
                names=None if names is None else tuple(str(name) for name in names),
                kind=rows.table.kind,
                levels=self._levels,
                types=column_types(rows.table),
            )
            problem = PairProblem(
                rows, cross_fitted, prices, extra_cost_of(behind, rows), seed, behind, budget
            )
            learned = self._learn(problem)
            if not isinstance(learned, Learned):
                learned = Learned(learned)
            stage = learned.stage
            report("learning the gate and the cheap model", 1, 1)
            if len(rows.task.classes):
                self.classes_ = rows.task.classes
            self.chain_ = replace(behind, stages=(stage,), policy=Policy.of(np.zeros(1), seed=seed))
            self.features_ = stage.columns
            self.certificate_ = None
            self._learned = self.chain_
            self._go_to(np.array([self._default_threshold(learned, problem, budget)]))
            evidence = with_classes(self._evidence_of_fit(learned, problem), rows.task).without_scores()
            self.evidence_ = replace(evidence, seen=training_fingerprints(*self._other_models()))
            self._check_spend(budget)
            report("evaluating operating points", 1, 1)
        return self

    def _check_parameters(self) -> None:
        """Refuse bad constructor arguments before anything is computed."""

    def _check_against(self, prices: PriceList, budget: Any) -> None:
        """Refuse what does not suit the table, and a budget that no pair can keep to, before anything is computed."""

    def _check_spend(self, budget: Any) -> None:
        """Warn of a budget that is left unspent."""

    def _learn(self, problem: PairProblem) -> Learned | Stage:
        """Learn the stage (g, f1), alone or with its scores out of fold; further learned attributes end in ``_``."""
        raise NotImplementedError

    def _default_threshold(self, learned: Learned, problem: PairProblem, budget: Any) -> float:
        """Threshold of a fresh fit: the paper's ``g > 0``, or the one that spends the budget on the training rows."""
        if budget is None:
            return 0.0
        return self._threshold_within(problem.reader, budget, g=learned.gate, weight=problem.rows.weight)

    def _threshold_within(self, reader: Table, budget: Any, **how: Any) -> float:
        """Threshold that sends most of some rows on within a budget, or within those of several resources."""
        curve, resources = self._curve(reader, **how), self.chain_.price_list.resources
        within = curve.within(budget) if resources is None else _most_within(curve, resources, budget)
        return within.threshold

    def _evidence_of_fit(self, learned: Learned, problem: PairProblem) -> Evidence:
        """The training rows: the full model's answers are out of fold, those of the stage if it was cross-fitted."""
        rows, of_stage = problem.rows, self.chain_.visit_all(problem.reader)
        if learned.gate is not None and learned.scores is not None:
            of_stage.gate[:, 0], of_stage.scores[:, 0] = learned.gate, learned.scores
        outputs = problem.full.outputs
        return evidence_of_known(
            self.chain_, problem.reader, rows.y, outputs, seen=of_stage, weight=rows.weight
        )

    # -- operating points -------------------------------------------------------------------------

    def scores(self, X: Any) -> tuple[Floats, Floats]:
        """Gate and cheap-model scores ``(g, f1)`` of the stage, for every row."""
        outputs = self.chain_.visit_all(self._reader(X))
        return outputs.gate[:, 0], self.chain_.task.decision(outputs.scores[:, 0])

    def threshold_for(
        self,
        X: Any,
        y: Any = None,
        *,
        budget: Any = None,
        accuracy: float | None = None,
        remote_share: float | None = None,
    ) -> float:
        """Threshold of the gate that meets a budget, an accuracy or a share on rows ``X`` not used in the fit.

        Parameters
        ----------
        X : table
            Rows to try thresholds on.
        y : array-like, optional
            Their labels, or numbers, for ``accuracy``.
        budget : float, or dict of resource to float, optional
            Most that a row may spend on average; sends as many on as that allows.
        accuracy : float, optional
            Least accuracy, or score of a regressor; sends as few on as that allows. Asks the full model about every
            row.
        remote_share : float, optional
            Largest share of the rows to be sent on.
        """
        check_goal(budget=budget, accuracy=accuracy, remote_share=remote_share)
        reader = self._reader(X)
        if accuracy is not None:
            if y is None:
                raise InvalidInputError("threshold_for(accuracy=...) needs the labels y of the rows X.")
            wanted = check_share("accuracy", accuracy, meaning=f"the least {self.chain_.task.quality_name}")
            evidence = evidence_of(self, reader, y)
            quality = np.asarray(evidence.quality, dtype=np.float64)
            curve = threshold_curve(evidence.gate[:, 0], 0.0, 1.0, quality[:, 0], quality[:, 1])
            enough = np.flatnonzero(curve.score >= wanted - SLACK)
            if not enough.size:
                best = int(np.argmax(curve.score))
                raise InvalidInputError(
                    f"accuracy {wanted!r} is out of reach here: the full model alone has {curve.score[-1]:.6g}, and "
                    f"the best any threshold reaches is {curve.score[best]:.6g}, sending {curve.cost[best]:.1%}. Ask "
                    f"for no more."
                )
            return curve.at(enough[0]).threshold
        if budget is not None:
            resources = self._resources
            budget = (
                check_amount("budget", budget)
                if resources is None
                else resources.check_budget("budget", budget)
            )
            return self._threshold_within(reader, budget)
        share = check_share("remote_share", remote_share, meaning="the largest share of rows sent on")
        return threshold_curve(self.chain_.visit_all(reader).gate[:, 0], 0.0, 1.0).within(share).threshold

    def at(self, *, budget: Any = None, threshold: float | None = None) -> Self:  # type: ignore[override]  # a threshold besides
        """Return the same fit at another threshold of its gate; nothing is refitted.

        A loss against the full model is proved by ``certified``: the evidence of an estimator with a single gate is its
        training rows.

        Parameters
        ----------
        budget : float, or dict of resource to float, optional
            Mean cost per row, on the rows of ``evidence_``.
        threshold : float, optional
            Threshold of the gate: rows with ``g > threshold`` are sent on.
        """
        goal = check_goal(budget=budget, threshold=threshold)
        other = self._without_certificate()
        if "budget" in goal:
            other._spend(goal["budget"])
        else:
            other._go_to(np.array([goal["threshold"]]))
        return other

    def _spend(self, budget: Any, *, mix: bool = True) -> None:  # noqa: ARG002 - a single gate mixes nothing
        evidence, resources = self._evidence(), self._resources
        if resources is not None:
            wanted = resources.check_budget("budget", budget)
            each = [
                (of_one.cost_at(0), of_one.cost_at(1))
                for of_one in map(evidence.of_resource, range(len(resources.names)))
            ]
            curve = _with_costs(evidence.gate[:, 0], each, evidence.weights)
            self._go_to(np.array([_most_within(curve, resources, wanted).threshold]))
            return
        stop, sent_on = evidence.cost_at(0), evidence.cost_at(1)
        curve = threshold_curve(evidence.gate[:, 0], stop, sent_on, weight=evidence.weights)
        self._mix(curve.within(budget))

    def _curve(self, reader: Table, *, g: Floats | None = None, weight: Floats | None = None) -> Policy:
        """Every threshold of the gate on these rows; ``g`` if the gate's own scores are too good."""
        if g is None:
            g = self.chain_.visit_all(reader).gate[:, 0]
        if self.chain_.by_resource:
            each = [self._costs_of(chain, reader) for chain in self.chain_.by_resource]
            return _with_costs(g, each, weight)
        return threshold_curve(g, *self._costs_of(self.chain_, reader), weight=weight)

    def _costs_of(self, chain: Chain, reader: Table) -> tuple[Any, Floats]:
        """Cost of rows that stop, and of rows that are sent on."""
        wide_open = chain.at(Policy.of(np.full(chain.n_own_stages, -np.inf)))
        sent_on = wide_open.spent(reader, wide_open.walk(reader))
        by_row = chain.price_list.by_row is not None
        at_stage = chain.walks_by_stage(reader)[0]
        return chain.spent(reader, at_stage) if by_row else chain.cost_by_place[0], sent_on

    @property
    def threshold_(self) -> float:
        """Rows with ``g > threshold_`` are sent on."""
        check_is_fitted(self)
        return self.chain_.policy.threshold


def _with_costs(g: Floats, each: Sequence[tuple[Any, Any]], weight: Floats | None) -> Policy:
    """Every threshold of a gate, with mean costs in each of several resources."""
    curves = [threshold_curve(g, stop, sent_on, weight=weight) for stop, sent_on in each]
    return replace(curves[0], costs=np.column_stack([curve.cost for curve in curves]))


def _most_within(curve: Policy, resources: Resources, budget: Mapping[str, float]) -> Policy:
    """The threshold of a gate that sends most rows on within budgets of several resources."""
    assert curve.costs is not None  # of several resources
    fits = np.flatnonzero((curve.costs <= resources.limits(budget) * (1 + SLACK)).all(axis=1))
    if not len(fits):
        least = resources.named(curve.costs[0])
        raise InvalidParameterError(
            "budget",
            f"must be at least what the columns of the gate cost, {costs_text(least)}; got {dict(budget)!r}. Raise the "
            f"budget, or let the gate buy fewer columns.",
        )
    return curve.at(fits[-1])


class GatedClassifier(ChainClassifier, GatedEstimator):
    """A classifier with one cheap stage in front of the full model."""


class GatedRegressor(ChainRegressor, GatedEstimator):
    """A regressor with one cheap stage in front of the full model."""


@dataclass(eq=False, repr=False)
class PairOptions(BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Settings of every alternation; its parameters are read and set as those of an estimator.

    Parameters
    ----------
    distance : {"kl", "squared"}, default="kl"
        How the gate is compared with the shares.
    cross_fit : bool, default=False
        Evaluate the cheap model while learning on rows that it was not fitted on, as the full model is: one more pair
        for each fold of ``cv``, which takes as many times as long. The threshold that spends a budget, and the
        evidence, are then out of fold too. False is the paper.
    max_iter, tol : int, float
        Rounds of the alternation, and the change of the objective below which it stops.
    """

    _: KW_ONLY
    distance: DistanceName = "kl"
    cross_fit: bool = False
    max_iter: int = 50
    tol: float = 1e-4

    _min_iter: ClassVar[int] = 1
    _amounts: ClassVar[tuple[str, ...]] = ("tol",)

    def check(self) -> None:
        """Refuse settings out of their range."""
        check_distance(self.distance)
        check_count("max_iter", self.max_iter, min_value=self._min_iter)
        for name in self._amounts:
            check_amount(name, getattr(self, name))


@dataclass(eq=False, repr=False)
class AlternatingEstimator(GatedEstimator):
    """Base of the estimators that learn a pair by alternation, with their parameters; see the subclasses."""

    _options_class: ClassVar[type[PairOptions]]

    full: Any = None
    _: KW_ONLY
    p_full: float | None = None
    feature_costs: Any = None
    prices: Any = None
    budget: Any = None
    options: Any = None
    cv: Any = 5
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0

    @property
    def _gamma(self) -> float | None:
        """Weight of the prices; None follows from the budget or a default. 0 where no columns are chosen."""
        return getattr(self, "gamma", 0.0)

    @property
    def _options(self) -> Any:
        """The options in force: those given, or the defaults."""
        return self._options_class() if self.options is None else self.options

    def set_params(self, **params: Any) -> Self:
        """Set parameters of this estimator, and settings in its options as ``options__name``."""
        params = in_options(type(self), params)
        if self.options is None and any(name.startswith("options__") for name in params):
            params = {"options": self._options_class()} | params
        updated: Self = super().set_params(**params)
        return updated

    def _check_parameters(self) -> None:
        if not isinstance(self._options, self._options_class):
            name = self._options_class.__name__
            raise InvalidInputError(
                f"options must be a {name}; got {self.options!r}. Settings are its arguments: {name}(max_iter=20)."
            )
        self._options.check()
        check_cap(self.p_full)
        if self._gamma is not None:
            check_amount("gamma", self._gamma)

    def _alternate(
        self,
        pair: AnyPair,
        problem: PairProblem,
        X: Any = None,
        *,
        without: Callable[[Ints, Ints], Fold[AnyPair]] | None = None,
        chosen: Ints | None = None,
        targets: tuple[Floats, Floats] | None = None,
    ) -> Solution[Alternation[AnyPair]]:
        """Run the alternation over a table ``X``.

        ``without(train, out)`` is a pair fitted without some rows, for ``cross_fit``; ``chosen`` are the columns of a
        pair that has bought them already; ``targets``, instead of labels and of the full model's loss on them, are
        soft ones.
        """
        rows, options = problem.rows, self._options
        limit: Limit = problem.limit(self.p_full)
        extra = problem.extra_cost
        if chosen is not None:
            limit, extra = problem.limit_at(self.p_full, chosen)
        y, full_loss = (rows.y, problem.full.loss(rows.y)) if targets is None else targets
        paper = Problem(
            y, full_loss, rows.task, limit, distance=options.distance, extra_cost=extra, weight=rows.weight
        )
        rounds: dict[str, Any] = {"max_iter": options.max_iter, "tol": options.tol}
        if self._follows_budget and chosen is None and without is not None:
            # f1 on its own rows looks better than f0, and calls as if they were worth nothing.
            folds = problem.folds(without)
            return alternate_under_budget(pair, X, paper, problem.calls, folds=folds, **rounds)
        return alternate(
            pair,
            X,
            paper,
            folds=problem.folds(without) if options.cross_fit and without is not None else None,
            **rounds,
        )

    def _check_against(self, prices: PriceList, budget: Any) -> None:
        if isinstance(budget, Mapping) and prices.resources is not None:
            limits = zip(prices.resources.lists, prices.resources.limits(budget), strict=True)
            if not np.all([each.prices <= limit for each, limit in limits], axis=0).any():
                raise InvalidParameterError(
                    "budget",
                    f"must afford a gate that buys a column; got {dict(budget)!r}, which affords none.",
                )
            return
        least = self._least_price(prices)
        if budget is not None and budget < least:
            raise InvalidParameterError(
                "budget",
                f"must be at least {least:.6g}, the price of the cheapest gate: one that buys nothing tells no rows "
                f"apart; got {budget!r}.",
            )

    def _least_price(self, prices: PriceList) -> float:
        """Price of the cheapest pair that reads a column."""
        return float(prices.prices.min())

    def _check_spend(self, budget: Any) -> None:
        evidence = self.evidence_
        if budget is None or isinstance(budget, Mapping) or not evidence.full_score > self.expected_score_:
            return
        of_full = np.broadcast_to(evidence.cost_at(1), np.shape(evidence.gate[:, 0]))
        reach = min(budget, float(np.average(of_full, weights=evidence.weights)))
        if self.expected_cost_ < UNSPENT * reach:
            warnings.warn(
                f"The fit spends {self.expected_cost_:.3g} of the budget of {budget:g} a row and scores "
                f"{self.expected_score_:.3g}, where the full model scores {evidence.full_score:.3g}: "
                f"a gate on {len(self.features_)} columns tells too few rows apart. Let it buy more, by a smaller "
                f"`gamma` or by none, or lower the budget.",
                UnspentBudgetWarning,
                stacklevel=3,
            )

    @property
    def _follows_budget(self) -> bool:
        """True if gamma follows from the budget, (OPT1)."""
        return self._gamma is None and self.budget is not None and self.p_full is None

    def _report(self, run: Solution[Alternation[Any]]) -> None:
        """Keep the rounds of an alternation."""
        self.trace_ = np.array([[step.after_shares, step.after_pair] for step in run.value.rounds])
        self.n_iter_, self.excess_ = run.n_iter, run.value.excess

    def _warn_unless_converged(self, *runs: Solution[Alternation[Any]]) -> None:
        """Warn once, about the alternation farthest from convergence."""
        worst = max(runs, key=lambda run: 0.0 if run.converged else run.residual)
        if not worst.converged:
            warnings.warn(
                f"alternate did not reach tol={self._options.tol:g} in {worst.n_iter} rounds (last change "
                f"{worst.residual:.0e}). Raise `max_iter` or `tol` of the options.",
                ConvergenceWarning,
                stacklevel=4,  # this method, _learn, fit of the base class, and then the user
            )


def accept_former_settings(estimator: AnyClass) -> AnyClass:
    """Accept the settings in ``options`` as constructor arguments too, as version 0.3 did, with a warning.

    A decorator of estimators. The signature stays that of the decorated constructor, which ``get_params`` reads.
    """
    init = estimator.__init__

    @functools.wraps(init)
    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        settings = {name: kwargs.pop(name) for name in former_settings(estimator, kwargs)}
        init(self, *args, **kwargs)
        if settings:
            _warn(estimator, settings)
            self.options = (
                estimator._options_class(**settings)
                if self.options is None
                else type(self.options)(**self.options.get_params(deep=False) | settings)
            )

    estimator.__init__ = initialise
    return estimator


def former_settings(estimator: type[Any], names: Any) -> list[str]:
    """Those of some names that were constructor arguments in version 0.3 and are settings in ``options`` now."""
    settings = {field.name for field in fields(estimator._options_class)}
    return [name for name in names if name in settings]


def gather_options(estimator: type[Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters of an estimator in a file of version 0.3, with their settings in ``options``."""
    former = former_settings(estimator, parameters)
    if not former:
        return parameters
    options = estimator._options_class(**{name: parameters[name] for name in former})
    return {name: value for name, value in parameters.items() if name not in former} | {"options": options}


def in_options(estimator: type[Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters of ``set_params``, with settings of version 0.3 as ``options__name``."""
    former = former_settings(estimator, parameters)
    if former:
        _warn(estimator, {name: parameters[name] for name in former}, stacklevel=4)
    return {f"options__{name}" if name in former else name: value for name, value in parameters.items()}


def _warn(estimator: type[Any], settings: dict[str, Any], *, stacklevel: int = 3) -> None:
    listed = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    warnings.warn(
        f"{', '.join(settings)}: settings of {estimator.__name__} are in its options, "
        f"options={estimator._options_class.__name__}({listed}). "
        f"The former arguments go with the next release.",
        FutureWarning,
        stacklevel=stacklevel,
    )
