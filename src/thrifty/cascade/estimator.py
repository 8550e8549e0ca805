"""Base class of the Budgeted* estimators: fit, default operating point, budgets and certificates."""

import copy
import warnings
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any, Self, get_args

import numpy as np
from sklearn.utils.validation import check_is_fitted

from thrifty.arrays import Floats
from thrifty.cascade.judged import CLEARLY, lead
from thrifty.cascade.learn import LearnedCascade, deals_for, learn_cascade
from thrifty.cascade.neighbour_graph import unsupported_reason
from thrifty.cascade.problem import CAPACITIES, CascadeProblem, NextChainRoutes, Structure, lighter
from thrifty.chain.chain import Chain
from thrifty.chain.column_types import column_types
from thrifty.chain.policy import Policy
from thrifty.chain.sources import TableReader, kind_of_table
from thrifty.errors import FullModelNotWorthItWarning, InvalidInputError, NothingSavedWarning
from thrifty.estimators.base import ChainEstimator, all_or_nothing, link_of
from thrifty.estimators.checks import (
    check_count,
    check_goal,
    check_seed,
    check_training_rows,
    refuse_keywords,
)
from thrifty.evidence.claims import loses_at_most
from thrifty.evidence.evidence import Evidence
from thrifty.evidence.frontier import Frontier
from thrifty.evidence.observe import evidence_of, seen_by
from thrifty.evidence.proof import certify, check_hold_out
from thrifty.evidence.query_evidence import QueryEvidence
from thrifty.evidence.recall import with_classes
from thrifty.evidence.spending import check_confidence
from thrifty.evidence.trials import HELD_OUT
from thrifty.full.crossfit import JudgedFull, TrainingRows, held_out_rows
from thrifty.full.model import FullModel
from thrifty.prices.costs import PriceList
from thrifty.prices.row_prices import RowsOfFit
from thrifty.progress import Progress, printed
from thrifty.rows import content_keys, query_keys
from thrifty.threads import limited_threads, threads_of
from thrifty.trees import Binner
from thrifty.trees.boosting import Boosting

__all__ = ["BudgetedCascade"]

_USUAL_CONFIDENCE = 0.95

ROWS_PER_TREE = 10
"""Rows that a tree of a larger size must have before that size is tried: on fewer it would win by chance."""


ROWS_TO_COMPARE = 100
"""Rows from which on smaller penalties are tried where rows are too few for a larger size."""


class BudgetedCascade(ChainEstimator):
    """Fit and operating points of the Budgeted* estimators; subclasses say what an answer is."""

    _accepts_missing = True
    _accepts_sparse = False
    _accepts_levels = True
    # Whether targets and scores of the training rows are kept in the evidence, for those who tell recall and AUC.
    _keeps_scores = False

    def __init__(
        self,
        full: Any = None,
        *,
        feature_costs: Any = None,
        feature_groups: Any = None,
        full_cost: float = 0.0,
        full_features: Any = None,
        budget: float | None = None,
        max_loss: float | Mapping[Any, float] | None = None,
        confidence: float | None = None,
        stages: int | None = None,
        sizes: Any = None,
        structure: str = "line",
        max_bins: int = 255,
        max_bytes: int | None = None,
        cv: Any = 4,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.full = full
        self.feature_costs = feature_costs
        self.feature_groups = feature_groups
        self.full_cost = full_cost
        self.full_features = full_features
        self.budget = budget
        self.max_loss = max_loss
        self.confidence = confidence
        self.stages = stages
        self.sizes = sizes
        self.structure = structure
        self.max_bins = max_bins
        self.max_bytes = max_bytes
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        progress: Progress | None = None,
        **unknown: Any,
    ) -> Self:
        """Learn the cascade and its operating points, and judge the full model on these rows.

        Parameters
        ----------
        X : array, pandas or polars data frame of shape (n_samples, n_features)
            Every feature, bought or not: training pays for everything. NaN is missing. Columns
            of a data frame may hold text or categories, which trees split by sets, and dates, which count as days.
        y : array-like of shape (n_samples,)
            Labels, of two classes or more; numbers, for a regressor.
        sample_weight : array-like of shape (n_samples,), optional
            Weights; a row of weight zero is left out. Not with ``max_loss``, which counts rows.
        progress : callable, optional
            Called as ``progress(what, done, total)`` whenever a step of some length ends, in the place of what
            ``verbose`` prints.
        """
        refuse_keywords(self, unknown)
        self._check_parameters()
        wish = check_goal(may_be_none=True, budget=self.budget, max_loss=self.max_loss)
        report = printed(self.verbose, type(self).__name__) if progress is None else progress
        with all_or_nothing(self), limited_threads(openmp=threads_of(self.n_jobs), blas=1):
            seed = check_seed(self.random_state)
            given = check_training_rows(self, X, y, sample_weight, self.cv, seed)
            prices = self._prices(given)
            if self.structure == "neighbours" and (
                why := unsupported_reason(given.task, len(given.y), has_categories=len(self._categorical) > 0)
            ):
                raise InvalidInputError(
                    f"structure='neighbours' cannot answer these rows: {why}. Give structure='graph'."
                )
            if "budget" in wish:
                _check_affordable(wish["budget"], prices)
            rows, proof = self._parts(given, seed, wish)
            full = self._full()
            report("judging the full model", 0, 1)
            judged = self._judged(rows, prices, self.n_jobs)
            report("judging the full model", 1, 1)
            link = link_of(judged.model, prices, rows.task)
            problem = CascadeProblem(
                Binner(self.max_bins).fit_transform(rows.X, rows.weight, self._categorical),
                rows.task,
                rows.y,
                rows.weight,
                held_out_rows(rows),
                judged.scores,
                prices,
                check_sizes(self.sizes, len(rows.y)),
                self.stages,
                threads_of(self.n_jobs),
                report,
                _behind(link, rows),
                "max_loss" in wish,
                None
                if prices.by_row is None
                else RowsOfFit(rows.X, table=rows.table).amounts(prices.by_row, None),
                self.max_bytes,
                self.structure,  # type: ignore[arg-type]  # checked
                wish.get("budget"),
                # Folds of a splitter of the user's keep together what only the user knows to belong together.
                deals_for(rows.task, len(rows.y)) if isinstance(self.cv, Integral) else 1,
            )
            learned = learn_cascade(problem)
            _warn_if_full_is_worse(learned, judged, rows)
            if len(rows.task.classes):
                self.classes_ = rows.task.classes
            self._learned = self._assemble(learned, link, prices, rows, kind_of_table(X), seed)
            self.chain_ = self._learned
            self.order_ = learned.plan.order
            self.size_ = (learned.plan.boosting.n_trees, learned.plan.boosting.max_depth)
            self.features_ = self.chain_.columns
            self.n_stages_ = self.chain_.n_own_stages
            judged_rows = with_classes(learned.evidence, rows.task)
            self.evidence_ = replace(
                judged_rows if self._keeps_scores else judged_rows.without_scores(),
                features=tuple(self.features_.tolist()),
                stage_columns=tuple(tuple(stage.columns.tolist()) for stage in self.chain_.stages),
                rows=query_keys(content_keys(rows.X, rows.task.strata(rows.y)), rows.task.query_of(rows.y)),
                seen=seen_by(full),
                task=rows.task,
            )
            self._proof = None
            if proof is not None:
                held_out = TableReader(proof.X, proof.table, proof.positions)
                self._proof = self._proof_on(held_out, proof.labels)
            self._duplicates = HELD_OUT
            if wish:
                self._move(confidence=self.confidence, **wish)
            else:
                self._go_to_default(learned)
            report("choosing the operating point", 1, 1)
        return self

    def _check_parameters(self) -> None:
        """Refuse bad constructor arguments before anything is computed."""
        check_goal(may_be_none=True, budget=self.budget, max_loss=self.max_loss)
        check_confidence(self.confidence)
        check_sizes(self.sizes)
        check_count("max_bins", self.max_bins, least=2, most=255)
        if self.structure not in get_args(Structure):
            raise InvalidInputError(
                f"structure must be 'line' (all rows buy in one order), 'graph' (each in its own), 'neighbours' (the "
                f"same, answered by training rows that are alike) or 'auto' (what is clearly best); got "
                f"{self.structure!r}."
            )
        for name in ("stages", "max_bytes"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))

    def _prices(self, rows: TrainingRows) -> PriceList:
        prices = self._price_list(rows)
        if prices.cost_of_everything == 0.0:
            raise InvalidInputError(
                "feature_costs and full_cost are all zero, so there is nothing to save: use the full model for every "
                "row. Give a price to at least one feature, or to the full model."
            )
        return prices

    @property
    def _surely(self) -> float:
        return _USUAL_CONFIDENCE if self.confidence is None else self.confidence

    def _parts(
        self, rows: TrainingRows, seed: int, wish: dict[str, Any]
    ) -> tuple[TrainingRows, TrainingRows | None]:
        """Rows to learn from, and rows to prove with where a wish asks for a proof."""
        if "max_loss" not in wish and ("budget" not in wish or self.confidence is None):
            return rows, None
        learn, proof = self._hold_out(rows, seed, "max_loss" if "max_loss" in wish else "confidence")
        if "max_loss" in wish:
            is_proof = np.isin(rows.positions, proof.positions)
            strata, query = rows.task.strata(rows.y), rows.task.query_of(rows.y)
            classes = rows.task.classes.tolist()
            check_hold_out(rows.X, strata, is_proof, self.max_loss, self._surely, classes, query)
        return learn, proof

    def _assemble(
        self,
        learned: LearnedCascade,
        link: FullModel | Chain,
        prices: PriceList,
        rows: TrainingRows,
        kind: str | None,
        seed: int,
    ) -> Chain:
        """What serves, from what was learned: plain arrays, at the most accurate operating point."""
        staged, names = learned.staged, getattr(self, "feature_names_in_", None)
        stages = staged.stages(rows.task, learned.calibrations, learned.gates)
        last = len(learned.policy) - 1
        return Chain(
            stages,
            link,
            prices,
            rows.task,
            replace(learned.policy, lower=last, upper=last, seed=seed),
            staged.base,
            learned.blend,
            None if names is None else tuple(str(name) for name in names),
            kind,
            self._levels,
            column_types(rows.table),
        )

    # -- operating points ----------------------------------------------------------------------

    def _move(self, *, confidence: float | None = None, **wish: Any) -> None:
        """Go to an operating point."""
        if "threshold" in wish:
            raise InvalidInputError(
                f"a {type(self).__name__} has several gates, and threshold={wish['threshold']!r} speaks of one. Ask "
                f"for a budget or a max_loss."
            )
        policy = self._learned.policy
        self.certificate_ = None
        self._max_loss = wish.get("max_loss")
        if "max_loss" in wish:
            self.confidence = self.confidence if confidence is None else confidence
            self._lose_at_most(wish["max_loss"])
        elif confidence is None:
            self.chain_ = self._learned.at(policy.within(wish["budget"]))
        else:
            self.chain_ = self._learned.at(self._kept_within(policy, wish["budget"], confidence))

    def _go_to_default(self, learned: LearnedCascade) -> None:
        """Go to the point of least total cost where mistakes have prices, else to the most accurate one."""
        self.certificate_, self._max_loss = None, None
        evidence = self._evidence()
        assert evidence.points is not None  # a cascade has the points that it was fitted with
        self._go_to(evidence.points[learned.default_point], evidence.weights)

    def certified(
        self,
        X: Any,
        y: Any,
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
        reader = self._reader(X)
        other = copy.copy(self)
        other._proof = self._proof_on(reader, y)
        other.confidence, other._duplicates = confidence, duplicates
        other.certificate_, other._max_loss = None, None
        other._lose_at_most(check_goal(max_loss=max_loss)["max_loss"], measure=measure, largest=largest)
        return other

    def _proof_on(self, reader: TableReader, y: Any) -> Evidence:
        """What every candidate of a proof does with rows that nothing was learned from."""
        return replace(evidence_of(self._learned, reader, y), points=self._evidence().points).without_scores()

    def _lose_at_most(self, max_loss: Any, **how: Any) -> None:
        """Go to the cheapest point that loses at most so much against the full model, by proof or by estimate."""
        of_mean = how.get("measure") == "mean"
        against = Frontier.from_evidence([self._evidence()], against_full=not of_mean)
        if self._proof is not None:
            certificate = certify(
                against.on([self._proof]),
                max_loss=max_loss,
                confidence=self._surely,
                duplicates=self._duplicates,
                **how,
            )
            self.certificate_ = certificate
            point = None if certificate.is_fallback else certificate.point
        else:
            allowed = np.flatnonzero(loses_at_most(against, max_loss))
            point = against[int(allowed[np.argmin(against.cost[allowed])])] if len(allowed) else None
        if point is None:
            self._send_everything()
            told = max_loss if isinstance(max_loss, Mapping) else f"{max_loss:g}"
            warnings.warn(
                f"max_loss={told} can be met only by sending every row to the full model, which saves nothing. "
                f"Allow a larger loss, give more rows, or let the stages buy more.",
                NothingSavedWarning,
                stacklevel=4,
            )
            return
        self._go_to(np.array(point.thresholds), np.ones(self._evidence().n_rows))

    def _go_to(self, thresholds: Floats, weights: Floats) -> None:
        """Go to a point, one of those that budgets are met with or not; its means are over rows of these weights."""
        policy = self._learned.policy
        same = (policy.thresholds == thresholds).all(axis=1)
        if not same.any():
            _, *means = self._evidence().at_point(thresholds)
            cost, score = (np.array([np.average(one, weights=weights)]) for one in means)
            policy, same = Policy(thresholds[None, :], cost, score, seed=policy.seed), np.ones(1, dtype=bool)
        self.chain_ = self._learned.at(policy.at(int(np.argmax(same))))

    def _send_everything(self) -> None:
        """Send every row to the full model, past a chain in its place too; its own answer counts."""
        whole = replace(self._learned, full=self._learned.innermost, blend=self._learned.task.full_alone)
        nobody_stops = np.full((1, whole.n_own_stages), -np.inf)
        score = self._evidence().full_score
        cost = whole.cost_by_place[-1:]
        if whole.price_list.by_row is not None and self._learned.behind is None:
            cost = np.array([np.mean(self._evidence().cost_at(-1))])
        policy = Policy(nobody_stops, cost, np.array([score]), seed=whole.policy.seed)
        self.chain_ = replace(whole, policy=policy)

    def _expected(self) -> tuple[float, float]:
        check_is_fitted(self)
        policy = self.chain_.policy
        return policy.expected_cost, policy.expected_score

    def _forget_full(self) -> None:
        super()._forget_full()
        self._max_loss = None

    def _change_chain(self, change: Any) -> None:
        self._learned, self.chain_ = change(self._learned), change(self.chain_)


def check_sizes(sizes: Any, n_rows: int = 0) -> tuple[Boosting, ...]:
    """Sizes of a stage to choose from, from pairs (n_trees, max_depth); those that so many rows can feed by default."""
    if sizes is None:
        fed = [size for size in CAPACITIES[1:] if n_rows >= ROWS_PER_TREE * size.n_trees]
        return (CAPACITIES[0], *(fed or ([lighter(CAPACITIES[0])] if n_rows >= ROWS_TO_COMPARE else [])))
    try:
        pairs = [(n_trees, max_depth) for n_trees, max_depth in sizes]
    except (TypeError, ValueError):
        pairs = []
    if not pairs:
        raise InvalidInputError(f"sizes must be a list of (n_trees, max_depth); got {sizes!r}.")
    return tuple(
        Boosting(
            n_trees=check_count("n_trees in sizes", n_trees),
            max_depth=check_count("max_depth in sizes", max_depth, most=12),
            l2=CAPACITIES[-1].l2,
        )
        for n_trees, max_depth in pairs
    )


def _check_affordable(budget: float, prices: PriceList) -> None:
    """Refuse, before anything is learned, a budget that no first purchase fits into."""
    cheapest = 0.0 if (prices.prices == 0).any() else float(prices.prices.min())
    if budget < cheapest:
        raise InvalidInputError(
            f"budget must be at least {cheapest:.6g}, the price of the cheapest purchase, which every row makes; got "
            f"{budget!r}. Raise the budget, or make the first purchase cheaper."
        )


def _behind(link: FullModel | Chain, rows: TrainingRows) -> NextChainRoutes | None:
    """Where the training rows go in a chain that stands in the place of the full model."""
    if not isinstance(link, Chain):
        return None
    walk = link.walk(TableReader(rows.X, rows.table, rows.positions))
    return NextChainRoutes(link.places(walk), link.bought_by_place)


def _warn_if_full_is_worse(learned: LearnedCascade, judged: JudgedFull, rows: TrainingRows) -> None:
    """Say so if a cheap stage answers clearly better than the full model, row by row, and asking both gains nothing."""
    full, weight = rows.task.quality(rows.y, judged.outputs), rows.weight
    stages = learned.evidence.quality[:, :-1]
    if isinstance(learned.evidence, QueryEvidence):
        full, stages = learned.evidence.of_places(judged.scores)
        weight = np.ones(len(full))
    best = int(np.argmax(weight @ stages))
    if not learned.asks_full and lead(stages[:, best], full, weight) > CLEARLY:
        cost = float(np.mean(learned.evidence.cost_at(best)))
        name = rows.task.quality_name
        warnings.warn(
            f"the full model (f0) has {name} {full.mean():.4g} and stage {best}, at cost {cost:g}, "
            f"{stages[:, best].mean():.4g}, both out of fold: it is not worth asking. Every operating "
            f"point does without it; give a better one, or let the stages answer alone.",
            FullModelNotWorthItWarning,
            stacklevel=3,
        )
