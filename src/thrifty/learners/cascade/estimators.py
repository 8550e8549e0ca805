"""BudgetedClassifier, BudgetedRegressor and BudgetedRanker: cascades that buy features one after the other."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import Any, Self, get_args

import numpy as np

from thrifty.arrays import Floats
from thrifty.engine.evidence.budgets import within_budget, within_budgets
from thrifty.engine.evidence.collect import training_fingerprints
from thrifty.engine.evidence.measures import check_floors, recalls_at, with_classes, within_floors
from thrifty.engine.evidence.thresholds import convex_hull, exploring, measured, with_points_between
from thrifty.engine.full.crossfit import CrossFittedFull, TrainingRows, assign_folds, held_out_rows
from thrifty.engine.prices.billing import PriceList, check_amount
from thrifty.engine.table.columns import column_types
from thrifty.engine.tasks.classes import classification_of, read_loss
from thrifty.engine.tasks.ranking import Queries, RankingTask, as_queries, ranking_of, with_queries
from thrifty.engine.tasks.task import Task
from thrifty.engine.trees import bin_columns
from thrifty.engine.walk.chain import Chain, capped_thresholds
from thrifty.engine.walk.policy import Policy
from thrifty.errors import (
    FullModelNotWorthItWarning,
    InvalidInputError,
    InvalidParameterError,
    NoPriceOfMistakesError,
)
from thrifty.learners.cascade.bought import N_COPIES, completed, warn_if_blanks_tell, with_support
from thrifty.learners.cascade.evaluation import BEYOND_DOUBT, compare
from thrifty.learners.cascade.learn import (
    LearnedCascade,
    best_at_rates,
    learn_cascade,
    most_accurate_point,
    n_repeats_for,
)
from thrifty.learners.cascade.plan import find_plans
from thrifty.learners.cascade.problem import (
    CAPACITIES,
    MIN_ROWS_OF_SIZES,
    CascadeProblem,
    NextChainRoutes,
    Structure,
    lighter,
    slower,
)
from thrifty.learners.estimators.base import (
    ChainClassifier,
    ChainEstimator,
    ChainRegressor,
    all_or_nothing,
    chain_behind,
    task_of_route,
    unwrap_chain,
)
from thrifty.learners.estimators.checks import (
    check_count,
    check_goal,
    check_seed,
    check_training_rows,
    refuse_keywords,
    validated,
)
from thrifty.learners.estimators.incomplete import read_bought
from thrifty.learners.trees.boosting import Boosting
from thrifty.learners.trees.full import TreesRegressor
from thrifty.progress import Progress, progress_printer
from thrifty.rows import content_keys, query_keys
from thrifty.threads import limited_threads, threads_of, workers

ROWS_TO_COMPARE = 100
"""Rows from which on smaller penalties are tried where rows are too few for a larger size
(``benchmarks/choices.py penalties --rows 150 300`` of 0.3)."""


SHARES = {
    "cross-fitting the full model": 0.13,
    "finding orders": 0.16,
    "comparing sizes": 0.1,
    "comparing orders": 0.13,
    "growing stages": 0.21,
    "learning gates": 0.09,
    "growing a tree of purchases": 0.11,
    "choosing the operating point": 0.07,
}
"""Shares of the time of a fit that its phases take, in their order (``benchmarks/fit_ratio.py --phases``)."""

SECONDS_PER_ROOT = 0.018
"""Seconds of a fit with one thread, over the root of the number of cells (``benchmarks/fit_ratio.py``)."""


@dataclass(frozen=True)
class StageOptions:
    """Number, size and order of the stages of a cascade: the ``stages`` of the ``Budgeted*`` estimators.

    Parameters
    ----------
    max_stages : int, optional
        Most places along the order of purchases where a row may stop; None is 16. Those at which no operating point
        lets a row stop are left out afterwards.
    sizes : sequence of (n_trees, max_depth), optional
        Sizes of a stage to choose from out of fold, from small to large, each at most that: a stage ends when its trees
        no longer help. None is (30, 4), from 1,000 rows on (50, 6) and from 1,500 on (50, 10) too, at up to three
        times the usual learning rate, with half as many trees again for numbers; with 100 rows to 1,000,
        (30, 4) with smaller penalties too.
    structure : {"auto", "line", "tree"}, default="auto"
        Whether all rows buy in one order ("line"); in a line or, where that is clearly better out of fold, in a tree of
        purchases, in which what a row holds decides what it buys next ("auto"); or, for classes, in a tree in any case
        in which every row chooses every purchase ("tree"). A ranker has a line only.
    max_bins : int, default=255
        Bins per column.
    max_bytes : int, optional
        Bytes that the trees of all stages may take in a saved file; stages are given fewer trees until they do. Rows
        that operating points were chosen on and the full model come on top. None is no limit.

    Examples
    --------
    >>> from thrifty import BudgetedClassifier, StageOptions
    >>> clf = BudgetedClassifier(stages=StageOptions(max_stages=4, sizes=[(30, 3)]))
    """

    max_stages: int | None = None
    sizes: Sequence[Sequence[int]] | None = None
    structure: str = "auto"
    max_bins: int = 255
    max_bytes: int | None = None


@dataclass(eq=False, repr=False)
class BudgetedCascade(ChainEstimator):
    """Base class of the Budgeted* estimators: fit and operating points; subclasses define the task."""

    _accepts_missing = True
    _accepts_sparse = False
    _accepts_levels = True
    _accepts_resources = True

    full: Any = None
    _: KW_ONLY
    feature_costs: Any = None
    prices: Any = None
    budget: Any = None
    stages: StageOptions | None = None
    cv: Any = 4
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0

    @property
    def share_by_lot_(self) -> float:
        """Share of the rows of ``evidence_`` that two mixed points route differently, so that their keys decide.

        ``at(budget=..., mix=False)`` mixes none.
        """
        return self._evidence().share_by_lot(self.chain_.policy)

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        bought: Any = None,
        propensity: Any = None,
        progress: Progress | None = None,
        **unknown: Any,
    ) -> Self:
        """Learn the cascade and its operating points, and cross-fit the full model on these rows.

        Parameters
        ----------
        X : array, pandas or polars data frame of shape (n_samples, n_features)
            Every feature, bought or not: training pays for everything. NaN is missing. Columns
            of a data frame may hold text or categories, which trees split by sets, and dates, which count as days.
        y : array-like of shape (n_samples,)
            Labels, of two classes or more; numbers, for a regressor.
        sample_weight : array-like of shape (n_samples,), optional
            Weights; a row of weight zero is left out. Whole numbers count rows: weight two is that row given twice.
            Others are relative: multiplied by one number, they change nothing.
        bought : array or data frame of shape (n_samples, n_features) or (n_samples, n_purchases), or "known", optional
            Which cells were bought, or, as in ``Receipts``, the number of each purchase of a row, 0 for none;
            "known" are those that are not blank. The fit ignores what the others hold, and completes them. None takes a
            blank for the answer of a purchase, which new rows will give again.
        propensity : array or data frame of the same shape, optional
            Probability with which a row bought what it has, given what it had bought before. None estimates it.
        progress : callable, optional
            Called as ``progress(what, done, total)`` whenever a step of some length ends, instead of what ``verbose``
            prints; with several jobs, from a thread of the fit too.
        """
        refuse_keywords(self, unknown)
        return self._fit(X, y, sample_weight, bought=bought, propensity=propensity, progress=progress)

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        bought: Any = None,
        propensity: Any = None,
        progress: Progress | None = None,
        reads_numbers: bool = False,
        keeps_scores: bool = False,
    ) -> Self:
        """Fit; see ``fit``.

        With ``reads_numbers`` the full model gets the numbers that stages read instead of the user's table. With
        ``keeps_scores`` the evidence keeps targets and scores of the training rows, for measures such as AUC.
        """
        self._check_parameters()
        options = self.stages or StageOptions()
        budget = self.budget
        if budget is not None and not isinstance(budget, Mapping):
            budget = check_amount("budget", budget)
        with all_or_nothing(self), limited_threads(openmp=threads_of(self.n_jobs), blas=1):
            seed = check_seed(self.random_state)
            rows = check_training_rows(self, X, y, sample_weight, self.cv, seed, completes=bought is not None)
            report = progress
            if report is None:
                expected = _expected_seconds(rows, threads_of(self.n_jobs))
                report = progress_printer(self.verbose, type(self).__name__, SHARES, expected)
            prices = self._price_list(rows)
            check_spending(prices, budget)
            # A parameter of classifiers; the others have twelve without it, and take ``at(cap=...)``.
            resources, limits, cap = prices.resources, None, getattr(self, "cap", None)
            caps: Floats | None = None
            if cap is not None and resources is None:
                cap = check_amount("cap", cap)
                caps = np.array([cap])
            elif cap is not None and resources is not None:
                cap = resources.check_budget("cap", cap)
                caps = resources.limits(cap)
            if resources is not None and budget is not None:
                limits = resources.limits(resources.check_budget("budget", budget))
            has_delays = resources is not None and bool(resources.delays)
            if has_delays and (
                rows.task.query_of(rows.y) is not None or isinstance(chain_behind(self._full()), Chain)
            ):
                raise InvalidInputError(
                    "delays are for classes and numbers, in front of a full model that is no cascade itself. Leave "
                    "delays out of the prices: purchases then wait one after the other."
                )
            if bought is not None and options.structure == "tree":
                raise InvalidParameterError(
                    "structure",
                    "must be line or auto with bought=: what rows of a tree bought is not corrected yet. All rows then "
                    "buy in one order.",
                )
            self.informative_blanks_ = warn_if_blanks_tell(rows, prices) if bought is None else []
            purchased = None
            if bought is not None:
                n_given = len(rows.X if rows.every_row is None else rows.every_row)
                purchased = read_bought(bought, propensity, rows.table, n_given, prices)
            shown, query = rows.X, rows.task.query_of(rows.y)
            if purchased is not None:
                shown = np.where(purchased.cells, rows.X, np.nan)
                if isinstance(self.cv, Integral):  # by content, without that of cells that were not bought
                    strata = rows.task.strata(rows.y)
                    rows = replace(rows, folds=assign_folds(self.cv, shown, rows.y, strata, seed, query))
            # Folds of the user's splitter are all held out, and so are those of queries.
            if isinstance(self.cv, Integral) and query is None:
                rows = rows.with_enough_folds(shown, times=1 if purchased is None else 2)
            if purchased is not None:
                rows = completed(rows, bin_columns(shown, None, self._categorical), purchased, seed)
            if bought is not None and np.isnan(rows.X).any():  # cells that were bought, and came back blank
                validated(self, rows.table, reset=False)
            n_copies = 1 if purchased is None or query is not None else N_COPIES
            full = self._full()
            by_row = prices.by_row
            problem = CascadeProblem(
                task=rows.task,
                table=bin_columns(rows.X, rows.weight, self._categorical, max_bins=options.max_bins),
                y=rows.y,
                weight=rows.weight,
                folds=held_out_rows(rows),
                price_list=prices,
                amounts=None if by_row is None else by_row.of_rows(rows.table, np.arange(len(rows.y)), None),
                capacities=check_sizes(
                    options.sizes, len(rows.y) // n_copies, is_slow=not rows.task.has_uncertainty
                ),
                n_stages=options.max_stages,
                structure="line"
                if purchased or has_delays or (cap is not None and options.structure == "auto")
                else options.structure,  # type: ignore[arg-type]  # checked
                max_bytes=options.max_bytes,
                budget=budget if limits is None else 1.0,
                limits=limits,
                cap=caps,
                # Folds of the user's splitter are not reassigned: they may keep related rows together.
                n_repeats=1
                if purchased or not isinstance(self.cv, Integral)
                else n_repeats_for(rows.task, len(rows.y)),
                n_copies=n_copies,
                n_threads=threads_of(self.n_jobs),
                progress=report,
            )
            with workers(1) as pool:
                # Beside the fits of the full model, which hold the interpreter's lock for much of their time.
                plans = pool.submit(find_plans, problem) if problem.n_threads > 1 else None
                cross_fitted = self._cross_fit_full(
                    rows, prices, self.n_jobs, plans, report, reads_numbers=reads_numbers
                )
                link = unwrap_chain(cross_fitted.model, prices, rows.task)
            comparison, behind = None if plans is None else plans.result(), None
            if isinstance(link, Chain):
                behind = NextChainRoutes(link.places(link.walk(rows.table)), link.bought_by_place)
            learned = learn_cascade(problem.with_full(cross_fitted.scores, behind), comparison)
            if limits is not None:
                others = [
                    problem.with_full(cross_fitted.scores, behind) for problem in problem.at_other_rates()
                ]
                learned, prices = best_at_rates(learned, prices, others, budget)
            is_held_out = rows.folds >= 0
            held_out = replace(cross_fitted, outputs=cross_fitted.outputs[is_held_out])
            _warn_if_full_is_worse(learned, held_out, rows.take(np.flatnonzero(is_held_out)))
            if purchased is not None:
                learned = with_support(learned, rows, purchased, prices)
                rows = rows.take(np.arange(len(purchased.cells)))
                is_held_out = rows.folds >= 0
            if len(rows.task.classes):
                self.classes_ = rows.task.classes
            staged, names = learned.staged, getattr(self, "feature_names_in_", None)
            last = len(learned.policy) - 1
            self._learned = self.chain_ = Chain(
                staged.stages(rows.task, learned.calibrations, learned.gates),
                link,
                prices,
                rows.task,
                replace(learned.policy, lower=last, upper=last, seed=seed),
                staged.base,
                learned.blend,
                None if names is None else tuple(str(name) for name in names),
                rows.table.kind,
                self._levels,
                column_types(rows.table),
            )
            self.order_ = learned.plan.order
            self.size_ = (learned.plan.boosting.n_trees, learned.plan.boosting.max_depth)
            self.features_ = self.chain_.columns
            self.n_stages_ = self.chain_.n_own_stages
            evidence = with_classes(learned.evidence, rows.task)
            keys, seen = content_keys(rows.X, rows.task.strata(rows.y)), training_fingerprints(full)
            if not is_held_out.all():
                only_learned = keys[~is_held_out, 0]
                seen = only_learned if seen is None else np.union1d(seen, only_learned)
            self.evidence_ = replace(
                evidence if keeps_scores else evidence.without_scores(),
                features=tuple(self.features_.tolist()),
                rows=query_keys(keys[is_held_out], rows.task.query_of(rows.y)),
                seen=seen,
                task=rows.task,
            )
            self.certificate_ = None
            if hasattr(self, "cap_"):  # of an earlier fit
                del self.cap_
            assert self.evidence_.points is not None  # a cascade has the points that it was fitted with
            # The point of least total cost where mistakes have prices, else the most accurate one up to noise.
            default = self.evidence_.points[[learned.default_point]]
            if cap is not None:
                default = capped_thresholds(self._learned, default, cap)
                self._become_capped(cap)
            if budget is not None:
                self._spend(budget)
            else:
                self._go_to(default[0], self.evidence_.weights)
            report("choosing the operating point", 1, 1)
        return self

    def at(
        self,
        *,
        budget: Any = None,
        max_loss: float | Mapping[Any, float] | None = None,
        mix: bool = True,
        cap: Any = None,
        explore: float = 0.0,
    ) -> Self:
        """Return the same fit at another operating point, by the rows of the fit; nothing is refitted.

        Parameters
        ----------
        budget : float, or dict of resource to float, optional
            Largest mean cost per row; less where more would not raise the expected score.
        max_loss : float, or dict of label to float, optional
            Largest share of all rows that is answered worse than by the full model; by label, of the rows of that
            class.
        mix : bool, default=True
            Whether the keys of rows may decide between points, so that the whole budget is spent.
        cap : float, or dict of resource to float, optional
            Largest cost of any row: routes that cost more are not taken, here and in all that is made from the
            returned estimator. With a budget, or alone.
        explore : float, default=0.0
            Share of the rows that go on buying beyond their stop, to a later place that their key draws, and are
            answered there. What they pay counts in the budget. A fit can learn from the receipts (``bought=``). What
            ``certified`` and ``hold_budget`` return does not explore.
        """
        if explore:
            return self._exploring(explore, budget, mix=mix, others=(max_loss, cap, vars(self).get("cap_")))
        if cap is not None:
            return self._capped(cap).at(budget=budget, max_loss=max_loss, mix=mix)
        if (in_force := vars(self).get("cap_")) is not None and max_loss is not None:
            raise InvalidParameterError(
                "max_loss",
                f"compares with the full model, which the cap of {in_force!r} keeps rows from. Give a budget.",
            )
        if in_force is not None and budget is None:
            other, evidence = self._without_certificate(), self._evidence()
            assert evidence.points is not None  # those that the cap leaves
            other._go_to(evidence.points[most_accurate_point(evidence)], evidence.weights)
            return other
        return super().at(budget=budget, max_loss=max_loss, mix=mix)

    def _exploring(self, explore: float, budget: Any, *, mix: bool, others: tuple[Any, ...]) -> Self:
        """The same fit at a budget, with a share of the rows that go on beyond their stop."""
        if budget is None or any(other is not None for other in others):
            raise InvalidParameterError(
                "explore", f"must be given with a budget, and neither max_loss nor a cap; got {explore!r}."
            )
        other = self._without_certificate()
        policy, evidence = exploring(self._learned.policy, self._evidence(), explore)
        if (resources := self._resources) is not None:
            wanted = resources.check_budget("budget", budget)
            other._mix(within_budgets(policy, resources, wanted, mix=mix))
        else:
            other._mix(within_budget(policy, check_amount("budget", budget), evidence, mix=mix))
        return other

    def _capped(self, cap: Any) -> Self:
        """The same fit without the routes that cost more than a cap."""
        other = self._without_certificate()
        other._become_capped(cap)
        return other

    def _become_capped(self, cap: Any) -> None:
        """Leave out the routes that cost more than a cap; ``cap_`` is the cap."""
        chain, evidence, resources = self._learned, self._evidence(), self._resources
        limit = check_amount("cap", cap) if resources is None else resources.check_budget("cap", cap)
        points = np.unique(capped_thresholds(chain, chain.policy.thresholds, limit), axis=0)
        at_each_stage = np.zeros((1, chain.n_own_stages))
        is_cut = np.isinf(capped_thresholds(chain, at_each_stage, limit)).any()
        optimism = None if evidence.optimism is None else evidence.optimism_at(points)
        self.evidence_ = replace(evidence, points=points, optimism=optimism)
        unknown = np.zeros(len(points))
        policy = measured(Policy(points, unknown, unknown, seed=chain.policy.seed), self.evidence_)
        kept = np.arange(len(policy)) if resources is not None else convex_hull(policy.cost, policy.score)
        self._learned = chain.at(policy[kept].at(len(kept) - 1))
        self.chain_ = self._learned
        if is_cut:
            self.cap_ = limit

    def _check_parameters(self) -> None:
        """Refuse bad constructor arguments before anything is computed."""
        options = self.stages
        if options is None:
            return
        if not isinstance(options, StageOptions):
            raise InvalidInputError(
                f"stages must be a thrifty.StageOptions; got {options!r}. The number of stages is "
                f"stages=StageOptions(max_stages=...)."
            )
        check_sizes(options.sizes)
        check_count("max_bins", options.max_bins, min_value=2, max_value=255)
        if options.structure not in get_args(Structure):
            is_gone = options.structure in ("graph", "neighbours")
            raise InvalidInputError(
                f"structure must be 'line' (all rows buy in one order), 'auto' (or in a tree of purchases, where that "
                f"is clearly better) or 'tree' (in a tree in any case); got {options.structure!r}."
                + is_gone
                * f" 'tree' takes the place of {options.structure!r}."
            )
        for name in ("max_stages", "max_bytes"):
            if getattr(options, name) is not None:
                check_count(name, getattr(options, name))


def _expected_seconds(rows: TrainingRows, n_threads: int) -> float:
    """Seconds that a fit takes with the default full model, of any other roughly; twice as many with several scores."""
    n_scores_factor = 1 if rows.task.n_scores == 1 else 2
    return SECONDS_PER_ROOT * n_scores_factor * float(np.sqrt(np.prod(rows.X.shape)) / np.sqrt(n_threads))


def check_sizes(sizes: Any, n_rows: int = 0, *, is_slow: bool = False) -> tuple[Boosting, ...]:
    """Candidate sizes of a stage, from pairs (n_trees, max_depth); by default those that ``n_rows`` suffice for."""
    if sizes is None:
        usual = tuple(map(slower, CAPACITIES)) if is_slow else CAPACITIES
        some = tuple(size for size, least in zip(usual, MIN_ROWS_OF_SIZES, strict=False) if n_rows >= least)
        return (*some, lighter(some[0])) if len(some) == 1 and n_rows >= ROWS_TO_COMPARE else some
    try:
        pairs = [(n_trees, max_depth) for n_trees, max_depth in sizes]
    except (TypeError, ValueError):
        pairs = []
    if not pairs:
        raise InvalidInputError(f"sizes must be a list of (n_trees, max_depth); got {sizes!r}.")
    return tuple(
        Boosting(
            n_trees=check_count("n_trees in sizes", n_trees),
            max_depth=check_count("max_depth in sizes", max_depth, max_value=12),
            l2=CAPACITIES[-1].l2,
        )
        for n_trees, max_depth in pairs
    )


def check_spending(prices: PriceList, budget: Any) -> None:
    """Refuse, before anything is learned, prices of zero and a budget that no first purchase fits into."""
    if prices.cost_of_everything == 0.0:
        raise InvalidInputError(
            "the prices of all features and of the full model are zero, so there is nothing to save: use the full "
            "model for every row. Give a price to at least one feature, or to the full model."
        )
    if prices.resources is not None:
        return  # refused with the nearest budgets that can be met
    cheapest = float(prices.prices.min())
    if budget is not None and budget < cheapest:
        raise InvalidParameterError(
            "budget",
            f"must be at least {cheapest:.6g}, the price of the cheapest purchase, which every row makes; got "
            f"{budget!r}. Raise the budget, or make the first purchase cheaper.",
        )


def _warn_if_full_is_worse(
    learned: LearnedCascade, cross_fitted: CrossFittedFull, rows: TrainingRows
) -> None:
    """Warn if a cheap stage is clearly better than the full model, row by row, and their blend gains nothing."""
    full, weight = rows.task.quality(rows.y, cross_fitted.outputs), rows.weight
    stages = learned.evidence.quality[:, :-1]
    evidence = learned.evidence
    if evidence.unit is not None:
        full = evidence.unit.measure(cross_fitted.scores[:, 0])
        stages = np.column_stack([evidence.quality_at(place) for place in range(evidence.n_stages)])
        full, stages = full[evidence.unit.is_known], stages[evidence.unit.is_known]
        weight = np.ones(len(full))
    best = int(np.argmax(weight @ stages))
    if not learned.asks_full and compare(stages[:, best], full, weight) > BEYOND_DOUBT:
        cost = float(np.mean(learned.evidence.cost_at(best)))
        name = rows.task.quality_name
        warnings.warn(
            f"the full model (f0) has {name} {full.mean():.4g} and stage {best}, at cost {cost:g}, "
            f"{stages[:, best].mean():.4g}, both out of fold: it is not worth asking. Every operating "
            f"point does without it; give a better one, or let the stages answer alone.",
            FullModelNotWorthItWarning,
            stacklevel=3,
        )


@dataclass(eq=False, repr=False)
class BudgetedClassifier(ChainClassifier, BudgetedCascade):
    """Classifier that buys features one at a time, for each row only until its prediction is confident enough.

    The full model (f0) is the last resort.

    The stages share one ensemble of trees that grows with every purchase. In which order features are bought, how
    large the stages are, where each row stops and whether the full model earns its price at all is chosen out of fold;
    the operating point is a mean cost (``budget``) or, without it, the cheapest one within half a standard error of
    the most accurate, or the one of least total cost where mistakes have prices. ``at`` switches between operating
    points without refitting, and ``certified`` bounds on new rows what one loses against the full model, or spends.

    Parameters
    ----------
    full : classifier, FrozenEstimator, callable or array of probabilities, default=None
        The full model (f0). An unfitted estimator is cloned, fitted and cross-fitted; None is
        boosted trees of 31 leaves, grown as those of the stages are. Anything that was fitted elsewhere should not have
        seen the rows given.
    loss : {"error", "log", "brier"} or array-like of shape (n_classes, n_classes), default="error"
        What an answer loses: whether it is wrong, the logarithmic or the Brier loss of its probabilities, or a price
        for every mistake in the unit of ``feature_costs``. A matrix has a line for each true class and a column for
        each answer, in the order of ``classes_``; the right answer is the cheapest of its line. With a matrix rows are
        answered with the class of least expected cost, scores are minus the cost of mistakes, and without ``budget``
        the point is taken at which tests and mistakes cost least together (Turney 1995, Journal of
        Artificial Intelligence Research 2). ``decision_function`` is still that of the probabilities.
    class_weight : None, "balanced" or dict of label to weight, default=None
        Weights of the classes, multiplied into ``sample_weight``; labels that are left out have weight 1.
    feature_costs : array-like of shape (n_features,), number, dict by column name, Series or None
        Price per column; None is 1 each, 0 is a feature at hand.
    prices : Prices or path, optional
        All prices, instead of ``feature_costs``: those of columns, groups, discounts, prices that differ by row,
        the price of a call of the full model and the columns that it reads; see ``thrifty.Prices``. A path is a CSV or
        JSON file of prices.
    budget : float, or dict of resource to float, optional
        Mean cost per row; where prices are in several resources, of some of them or all.
    cap : float, or dict of resource to float, optional
        What no row ever spends: purchases that do not fit come last, and routes that cost more are not taken. As
        ``at(cap=...)``, but known to the fit; of other estimators ``at`` alone has it.
    stages : StageOptions, optional
        Number, size and order of the stages; see ``thrifty.StageOptions``.
    cv : int, splitter or iterable, default=4
        Folds by which everything is cross-validated; of a number of them, with more than 2,500 rows, only as many are
        held out as have so many rows, and of 100,000 rows of classes or more about 5,000, which no stage learns from.
    n_jobs : int, optional
        Folds that are fitted in parallel, in threads; each fit of the full model has one thread of OpenMP and of the
        BLAS. None is 1, unless joblib is configured otherwise, and -1 is all cores that the process may use. Results
        do not depend on it.
    random_state : int, RandomState or None
        Seed of all random choices: folds, the default full model, and which rows follow which of two mixed operating
        points.
    verbose : int, default=0
        1 prints a line whenever a phase of a fit ends, with the seconds since its start; 2 prints steps of phases too.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    chain_ : Chain
        What serves, at the operating point in force.
    evidence_ : Evidence
        The held-out rows of the fit at every stage, each answered by models that have not seen it.
    frontier_ : Frontier
        Every operating point, with those answers; weights are ignored, every row counts once.
    certificate_ : Certificate or None
        What ``certified`` proved against the full model.
    cap_ : float or dict of resource to float
        The cap in force, where it left out routes.
    order_ : ndarray
        Purchases (numbers of groups) in the order in which they are made; where rows part, that of the line.
    features_ : ndarray
        Columns that are bought before the full model, in that order.
    n_stages_ : int
        Stages in front of the full model.
    size_ : tuple of int
        Trees of a stage, and their depth.
    informative_blanks_ : list of str
        Columns whose blanks told the target of the rows of the fit, which took them for answers.
    expected_cost_, expected_score_ : float
        Mean cost and accuracy to expect of new rows at the operating point in force, out of fold; with another ``loss``
        than "error", the score is minus the mean loss. Orders of purchases are found on all rows; with fewer than
        1,250 rows, and no cost matrix, the score is corrected by what it loses where they are found without the rows
        it is the mean of.
    expected_total_cost_ : float
        Mean cost of tests and mistakes together, where ``loss`` is a matrix.
    expected_cost_interval_, expected_score_interval_ : tuple of float
        Where the mean cost and the mean score of many new rows lie at that point, 19 times out of 20.
    share_by_lot_ : float
        Share of the rows of ``evidence_`` for which the key decides between two mixed points.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from thrifty import BudgetedClassifier, StageOptions
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = BudgetedClassifier(GaussianNB(), budget=3, stages=StageOptions(sizes=[(20, 3)]), cv=3, random_state=0)
    >>> clf = clf.fit(X[::2], y[::2])
    >>> bool(clf.score(X[1::2], y[1::2]) > 0.9), bool(clf.cost(X[1::2]).mean() < 4)
    (True, True)
    >>> bool(clf.at(budget=1.1).cost(X[1::2]).mean() < clf.cost(X[1::2]).mean())
    True
    """

    _accepts_several = True

    _: KW_ONLY
    loss: Any = "error"
    class_weight: Any = None
    cap: Any = None

    @property
    def expected_total_cost_(self) -> float:
        """Mean cost of tests and mistakes together at the operating point in force, out of fold."""
        cost, score = self._expected()
        if self.chain_.task.mistake_price is None:
            raise NoPriceOfMistakesError(
                f"tests and mistakes add up only where both have prices; this fit has loss={self.loss!r}. Fit with a "
                f"matrix of what each mistake costs."
            )
        return cost - score

    def at(
        self,
        *,
        budget: Any = None,
        max_loss: float | Mapping[Any, float] | None = None,
        min_recall: Mapping[Any, float] | None = None,
        mix: bool = True,
        explore: float = 0.0,
        cap: Any = None,
    ) -> Self:
        """Return the same fit at another operating point, by the rows of the fit; nothing is refitted.

        Parameters
        ----------
        budget : float, or dict of resource to float, optional
            Largest mean cost per row; less where more would not raise the expected score.
        max_loss : float, or dict of label to float, optional
            Largest share of all rows that is answered worse than by the full model; by label, of the rows of that
            class. An estimate: ``certified`` proves it on new rows.
        min_recall : dict of label to float, optional
            Least share of the rows of a class to be answered with it, on the held-out rows of the fit. With ``budget``
            it is the best point within it that reaches every floor; alone the cheapest one or, where mistakes have
            prices, the one of least total cost.
        mix : bool, default=True
            Whether the keys of rows may decide between two points, so that the whole budget is spent: among rows of
            equal gate scores, or among more where that scores higher or ``min_recall`` needs it. Without, it is the
            dearest point within the budget, or the best one that reaches the floors.
        explore : float, default=0.0
            Share of the rows that go on buying beyond their stop, to a later place that their key draws, and are
            answered there. What they pay counts in the budget. A fit can learn from the receipts (``bought=``). What
            ``certified`` and ``hold_budget`` return does not explore.
        cap : float, or dict of resource to float, optional
            Largest cost of any row: routes that cost more are not taken, here and in all that is made from the
            returned estimator. With a budget, or alone.
        """
        if explore and (cap is not None or "cap_" in vars(self)):
            raise InvalidParameterError(
                "explore",
                f"sends rows on to routes that a cap forbids; got {explore!r} with a cap. Leave one out.",
            )
        if cap is not None:
            return self._capped(cap).at(
                budget=budget, max_loss=max_loss, min_recall=min_recall, mix=mix, explore=explore
            )
        if explore and min_recall is not None:
            raise InvalidParameterError(
                "explore", f"must be given with a budget, and nothing else; got {explore!r}."
            )
        if min_recall is None:
            return super().at(budget=budget, max_loss=max_loss, mix=mix, explore=explore)
        if max_loss is not None:
            raise InvalidParameterError(
                "min_recall",
                f"must be given alone or with a budget; got max_loss={max_loss!r} too. Leave one out.",
            )
        budget = check_goal(may_be_none=True, budget=budget).get("budget")
        other = self._without_certificate()
        task, evidence = self._learned.task, self._evidence()
        floors, found, refusals = check_floors(min_recall, task.classes), list[tuple[float, Policy]](), []
        if (resources := self._resources) is not None:
            policy = self._learned.policy
            recalls = recalls_at(evidence, policy.thresholds, len(task.classes))
            wanted = {} if budget is None else resources.check_budget("budget", budget)
            other._mix(within_budgets(policy, resources, wanted, mix=mix, recalls=recalls, floors=floors))
            return other
        # Points between two may have a lower recall than a mix of the two.
        for policy in (with_points_between(self._learned.policy, evidence), self._learned.policy):
            recalls = recalls_at(evidence, policy.thresholds, len(task.classes))
            # Scores of the rows that recalls are of.
            uncorrected = measured(policy, replace(evidence, optimism=None))
            goal = (floors, budget, task.mistake_price, task.classes)
            try:
                best = within_floors(uncorrected, recalls, *goal, mix=mix)
            except InvalidParameterError as error:
                refusals.append(error)
                continue
            cost, score = best.expected_cost, best.expected_score
            lost = -score if budget is not None else cost if task.mistake_price is None else cost - score
            found.append((round(lost, 12), policy.at(best.lower, best.upper, best.share)))
        if not found:
            raise refusals[0]
        other._mix(min(found, key=lambda each: each[0])[1])
        return other

    def _task_of(self, y: Any, weight: Floats) -> Task:  # noqa: ARG002 - labels have no spread
        task = classification_of(y)
        return replace(task, mistakes=read_loss(self.loss, task.classes))


@dataclass(eq=False, repr=False)
class BudgetedRegressor(ChainRegressor, BudgetedCascade):
    """Predicts a number, and buys features one after the other, for each row only until more would change little.

    The full model (f0) is the last resort, blended linearly with the last stage where that errs less. A number does not
    say how sure it is, so that each stage has a gate of its own, which learns from what is held how much a row would
    gain by going on.

    Parameters
    ----------
    full : regressor, FrozenEstimator, callable or array of numbers, default=None
        The full model (f0). An unfitted estimator is cloned, fitted and cross-fitted; None is
        boosted trees or, for another than the squared error, a ``HistGradientBoostingRegressor`` of the same loss.
        Anything that was fitted elsewhere should not have seen the rows given.
    loss : {"squared", "absolute", "pinball"}, default="squared"
        The error that counts. The pinball loss is that of a quantile: answers are numbers that the target does not
        exceed with the probability ``quantile``. Its full model should be of the same quantile, such as
        ``HistGradientBoostingRegressor(loss="quantile", quantile=0.9)``, which is the default then.
    quantile : float, default=None
        Quantile in (0, 1) that is predicted with ``loss="pinball"``; None with the other losses.
    tolerance : float, default=0.01
        How much larger than the full model's an error may be before ``certified`` and ``at(max_loss=...)`` count the
        answer as worse: squared errors in units
        of the variance of ``y``, absolute ones in units of its mean distance from the median, pinball losses in
        units of that of the best constant.
    feature_costs, prices, budget
        As of ``BudgetedClassifier``.
    stages, cv, n_jobs, random_state, verbose
        As of ``BudgetedClassifier``.

    Attributes
    ----------
    chain_, evidence_, frontier_, certificate_, cap_, order_, features_, n_stages_, size_, informative_blanks_
        As of ``BudgetedClassifier``.
    expected_cost_, expected_score_ : float
        Mean cost and score of the operating point in force, out of fold. A score is one minus the error in units of the
        spread of ``y``: near ``r2_score``, ``d2_absolute_error_score`` or ``d2_pinball_score`` of these rows.
    expected_cost_interval_, expected_score_interval_ : tuple of float
        Where the mean cost and the mean score of many new rows lie at that point, 19 times out of 20.
    share_by_lot_ : float
        Share of the rows of ``evidence_`` for which the key decides between two mixed points.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> from thrifty import BudgetedRegressor, StageOptions
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BudgetedRegressor(Ridge(0.01), budget=3, stages=StageOptions(sizes=[(30, 3)]), cv=3, random_state=0)
    >>> model = model.fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.3), bool(model.cost(X[1::2]).mean() < 4)
    (True, True)
    """

    _: KW_ONLY
    loss: str = "squared"
    quantile: float | None = None
    tolerance: float = 0.01


@dataclass(eq=False, repr=False)
class BudgetedRanker(BudgetedCascade):
    """Ranks the documents of queries, and buys features of each document only until more would change little.

    The full model (f0) is the last resort, blended linearly with the last stage where that errs less. Every document
    has its own route through the stages: one that ranks far below the first places stops early. Scores of all stages
    are on one scale, the gain that a document is expected to have, so that documents which stopped at different stages
    can be ranked together.

    Parameters
    ----------
    full : regressor, ranker, FrozenEstimator, callable or array of numbers, default=None
        The full model (f0). An unfitted estimator is cloned, fitted on the grades and cross-fitted; one whose ``fit``
        takes ``group`` or ``qid``, such as LightGBM's and XGBoost's rankers, is given the queries too. None is
        boosted trees. Anything that was fitted elsewhere should not have seen the rows given.
    loss : {"pointwise", "pairwise", "listwise"}, default="pointwise"
        What the trees of the stages lower: squared errors of gains, the logistic loss of pairs of documents, or the
        cross-entropy of lists.
    metric : str, default="ndcg@10"
        How good the first places of a query are, "ndcg@k" or "ap@k": NDCG with the gain ``2**grade - 1``, or average
        precision, for which a grade of 1 or more is relevant.
    tolerance : float, default=0.01
        How much lower than the full model's the metric of a query may be before its order counts as worse.
    feature_costs, prices
        As of ``BudgetedClassifier``.
    budget : float, optional
        Mean cost per document.
    stages, n_jobs, random_state, verbose
        As of ``BudgetedClassifier``.
    cv : int, splitter or iterable, default=4
        Folds by which everything is cross-validated; documents of a query are in one fold.

    Attributes
    ----------
    chain_, frontier_, certificate_, cap_, order_, features_, n_stages_, size_, informative_blanks_
        As of ``BudgetedClassifier``; scores are means of the metric over queries, costs means over documents.
    evidence_ : Evidence
        The queries of the fit, every document at every stage, scored by models that have not seen its query.
    query_name_ : str
        Name of the queries, by which commands find their column in a table: that of ``qid`` where it is a Series with
        a name, or of the second column of ``y``; "qid" where there is none.
    expected_cost_, expected_score_ : float
        Mean cost per document and mean metric over queries of the operating point in force, out of fold.
    expected_cost_interval_, expected_score_interval_ : tuple of float
        Where the mean cost per document and the mean metric of many new queries lie at that point, 19 times out of 20.
    share_by_lot_ : float
        Share of the rows of ``evidence_`` for which the key decides between two mixed points.

    Notes
    -----
    A query without a relevant document has no metric, and is left out of means and certificates; one with a single
    document is always in order. Both are common and accepted: their costs count, their orders do not. A fit in which
    no query has documents of different relevance is refused.

    Functions that take ``X`` and ``y``, such as ``evidence_of`` and ``sweep``, take the relevance and the query of each
    document in two columns: ``np.column_stack([relevance, qid])``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from thrifty import BudgetedRanker, StageOptions
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(600, 4)), np.repeat(np.arange(60), 10)
    >>> grade = np.digitize(X[:, 0] + 0.5 * X[:, 1], [0.5, 1.5])
    >>> few = StageOptions(sizes=[(20, 3)])
    >>> ranker = BudgetedRanker(Ridge(), metric="ndcg@5", budget=2, stages=few, cv=2, random_state=0)
    >>> ranker = ranker.fit(X[:400], grade[:400], qid=qid[:400])
    >>> bool(ranker.score(X[400:], grade[400:], qid=qid[400:]) > 0.8), bool(ranker.cost(X[400:]).mean() < 2.5)
    (True, True)
    """

    _: KW_ONLY
    loss: str = "pointwise"
    metric: str = "ndcg@10"
    tolerance: float = 0.01

    def fit(  # type: ignore[override]  # the query of each document besides
        self,
        X: Any,
        y: Any,
        *,
        qid: Any = None,
        sample_weight: Any = None,
        progress: Progress | None = None,
        **unknown: Any,
    ) -> Self:
        """Learn the cascade and its operating points, and cross-fit the full model on these documents.

        Parameters
        ----------
        X : array, pandas or polars data frame of shape (n_documents, n_features)
            Every feature, bought or not: training pays for everything. NaN is missing.
        y : array-like of shape (n_documents,) or (n_documents, 2)
            Grades of relevance, whole numbers from 0 to 31; with the query in a second column instead of ``qid``.
        qid : array-like of shape (n_documents,)
            Query of each document; documents of one query are contiguous. Required, unless ``y`` holds it: a table
            of one query would leave none to evaluate an order on.
        sample_weight : None
            Refused: queries count alike.
        progress : callable, optional
            Called as ``progress(what, done, total)`` whenever a step of some length ends, instead of what ``verbose``
            prints; with several jobs, from a thread of the fit too.
        """
        if sample_weight is not None:
            raise InvalidInputError(
                "a BudgetedRanker takes no sample_weight: the order of a query counts as a whole, and queries count "
                "alike. Leave it out, or give a query more often, under different ids."
            )
        super().fit(X, _targets(y, qid), progress=progress, **unknown)
        self.query_name_ = _name_of_queries(y, qid)
        return self

    def score(self, X: Any, y: Any, qid: Any = None) -> float:
        """Mean of the metric over the queries that have a relevant document."""
        target = self.chain_.task.encode("y", _targets(y, qid), np.shape(X)[0])
        task = self.chain_.task
        assert isinstance(task, RankingTask)  # what fit makes
        return float(np.nanmean(task.value_of_queries(target, self.predict(X))))

    def query_cost(self, X: Any, qid: Any) -> Floats:
        """Total cost of the documents of each query, in the order of the queries."""
        spent = self.cost(X)
        return as_queries(qid if isinstance(qid, Queries) else Queries(qid), len(spent)).total(spent)

    def certified(  # type: ignore[override]  # queries are counted: there is no mean to certify
        self,
        X: Any,
        y: Any,
        qid: Any = None,
        *,
        max_loss: float | None = None,
        budget: float | None = None,
        confidence: float = 0.95,
        duplicates: str = "refuse",
    ) -> Self:
        """Return the same fit at a point that new queries prove to lose at most ``max_loss``, or to keep to ``budget``.

        Parameters
        ----------
        X, y, qid
            Documents as in ``fit``, of queries that neither this fit nor the full model has seen; the full model is
            asked about all of them. Queries without a relevant document do not count.
        max_loss : float, optional
            Share of queries whose metric may be lower than by the full model's order, by more than ``tolerance``.
        budget : float, optional
            What the mean cost per document of new queries is to be at most; instead of ``max_loss``.
        confidence : float, default=0.95
            Probability with which it must hold; see ``thrifty.certify``.
        duplicates : {"refuse", "drop", "count"}, default="refuse"
            What becomes of queries that hold the same documents as one of the fit.
        """
        return super().certified(
            X,
            _targets(y, qid),
            max_loss=max_loss,
            budget=budget,
            confidence=confidence,
            duplicates=duplicates,
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.stages is not None and self.stages.structure == "tree":
            raise InvalidParameterError(
                "structure",
                "must be 'line' or 'auto', which is a line here, for a ranking of documents, which buys for all rows "
                "in one order; got 'tree'.",
            )

    def _task_of(self, y: Any, weight: Floats) -> RankingTask:  # noqa: ARG002 - there are no weights
        task = ranking_of(y, self.loss, self.metric, self.tolerance)
        return task_of_route(task, self.full, "measure", "k")

    def _default_full(self) -> Any:
        return TreesRegressor()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.two_d_labels = True
        tags.target_tags.required = True
        return tags


def _name_of_queries(y: Any, qid: Any) -> str:
    """Name of the column that queries come from, where it has one."""
    name = getattr(qid, "name", None) if qid is not None else [*getattr(y, "columns", ()), None, None][1]
    return name if isinstance(name, str) and name else "qid"


def _targets(y: Any, qid: Any) -> Any:
    """Stack relevance and query into two columns, unless ``y`` has both; None without targets, which a fit refuses."""
    return y if y is None or (qid is None and np.ndim(y) == 2) else with_queries(y, qid)
