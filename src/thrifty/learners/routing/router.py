"""``ModelRouter``: many models with prices, one budget.

A purchase is the answer of a model: the router buys answers one after another, looks at whether they agree, and stops
for each row when another answer is not worth its price. Rows go through rules in ``engine.walk.next_model``,
one row at a time in sessions (``engine.walk.model_session``). Here, ``quality`` has what is expected before asking,
``learn`` how rules are learned, ``state`` what a fit knows, ``logs`` the checks of what a log holds. Operating points,
budgets, bills and certificates are those of cascades.
"""

import copy
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from thrifty._moved import FormerName
from thrifty.arrays import Bools, Floats, Ints, Labels, Words
from thrifty.engine.evidence.budgets import (
    CostBounds,
    CostCertificate,
    certified_within,
    mixes_up_to,
    within_budget,
    within_budgets,
)
from thrifty.engine.evidence.certificate import Certificate, certify
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.frontier import Frontier
from thrifty.engine.evidence.hypothesis_tests import check_confidence
from thrifty.engine.prices.billing import Resources, amount_text, check_amount, times
from thrifty.engine.prices.prices import (
    ModelPrice,
    Prices,
    check_models,
    check_price,
    resolve_prices,
    resources_of_models,
)
from thrifty.engine.purchases.readers import Ledger
from thrifty.engine.purchases.receipts import Receipt
from thrifty.engine.walk.buying import buy_answers
from thrifty.engine.walk.calibration import UNCOMPARED, UNPARSED, class_probabilities
from thrifty.engine.walk.model_session import ModelExplanation, ModelSession, PricedModels
from thrifty.engine.walk.next_model import Asker, ColumnSets, Log, Replay, walk_mixed
from thrifty.engine.walk.policy import SLACK, Policy
from thrifty.errors import InvalidInputError, InvalidParameterError, listed
from thrifty.learners.estimators.base import PickledWithVersion, all_or_nothing
from thrifty.learners.estimators.checks import check_count, check_goal, check_seed, validated
from thrifty.learners.routing import logs
from thrifty.learners.routing.frontier import RouterFrontier
from thrifty.learners.routing.learn import choose_pool
from thrifty.learners.routing.plan import free_columns, learn_columns, priced_columns, with_columns
from thrifty.learners.routing.quality import QualityModel, crossfit, learn_text_reader, ridge
from thrifty.learners.routing.state import (
    MAX_CHOSEN,
    MAX_PLANNED,
    MAX_POOL,
    NO_POLICY,
    RouterState,
    learn_policy,
)
from thrifty.learners.routing.thresholds import learn_calibration
from thrifty.rows import fingerprints, key_chance, key_words
from thrifty.threads import limited_threads

N_FOLDS = 5
_FEW_ROWS = 10
"""Rows that a model must be known of to be added, or estimated."""
_N_NEXT = 0.5
"""With ``confidence``, the budget is held over this many new rows for each row of the log."""
_MIN_TAKEN = 0.05
"""Share of rows that a policy sends to a model, from which on missing support is warned of."""


class NewLog(NamedTuple):
    """A log of new rows, of the models of the pool.

    Attributes
    ----------
    log : Log
        Expectations before asking, and what the models returned.
    keys : ndarray of shape (n_rows,)
        Fingerprints of what rows hold, which decide between two operating points that are mixed.
    """

    log: Log
    keys: Words

    def rows(self, rows: Ints | Bools) -> "NewLog":
        """These rows only."""
        return NewLog(self.log.rows(rows), self.keys[rows])


@dataclass(eq=False, repr=False)
class ModelRouter(PickledWithVersion, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Many models with prices, one budget: which models to ask about each row, and whose answer to take.

    Learned from a log: what each model answered to each row, whether that was right, and what it cost. Single models,
    routing by the row, fixed cascades (ask two, a third where they disagree), thresholds (ask the next one unless the
    answer is sure enough) and a dynamic programme over sets of asked models are compared out of fold and mixed, so that
    the mean cost per row is the budget.

    Parameters
    ----------
    models : dict from str to price, or list of str
        The models. A price is a number per call, a pair of dollars per million tokens in and out, a function of the
        row, or a dict of several resources, such as ``{"dollars": 0.1, "seconds": 2}``. A list of names where ``fit``
        is given what was billed.
    budget : float, or dict of resource to float, default=None
        Mean cost per row; of several resources, of some of them or all. None is the best quality at any cost.
    max_asks : int, default=3
        Models that may be asked about one row.
    confidence : float, default=None
        With 0.95, a margin is kept so that the mean cost of half as many new rows as the log has stays below the
        budget, as estimated from the rows of the fit; ``certified`` does so from new ones. None keeps no margin.
    random_state : int, RandomState or None, default=0
        Seed of folds and trees.
    after : dict of str to dict, default=None
        Prices that depend on what was asked: ``{"exit2": {"exit1": 8.5}}`` is the price of exit2 after exit1, in the
        unit of ``cost``; the least applies. Exits of one network, heads on one embedding, a cached prompt.
    prices : Prices or path, default=None
        Prices of the columns of X, alone or in groups, in the unit of ``cost``: which columns a row buys is then
        decided like which models it asks. None are columns that are at hand.
    outcome : {"quality", "loss", "runtime"}, default="quality"
        What ``fit``, ``replay`` and ``certified`` are given as ``quality``.

        With "loss" it is what each answer loses, in the unit of costs, such as dollars; as a quality, 1 less its share
        of ``largest_loss_``. Without a budget the router is at the least loss and cost together.

        With "runtime" it is the seconds until a model has solved a row, inf where it did not, and seconds are the
        costs. The score of a row is then its time in all, columns included, counted ten times the cutoff where it is
        not solved by then (PAR10); as a quality, 1 less its share of ``10 * cutoff``. Models are run one after the
        other where that pays, at most ``max_asks`` of them after short runs.
    cutoff : float, default=None
        With "runtime", seconds that a row may take.
    ask : {"in turn", "parallel"}, default="in turn"
        Whether models may be asked at once where costs are in several resources, one of them ``"seconds"``: seconds are
        then the longest of them, all else adds. Which rows do so is decided as all else is.
    cap : float, or dict of resource to float, default=None
        What no row ever pays, of prices per call: models that no longer fit are not asked, also where another one
        fails.

    Attributes
    ----------
    pool_ : list of str
        Models that the policy chooses from, cheapest first, and behind them the groups of columns that cost.
    frontier_ : RouterFrontier
        Mean cost and quality of the operating points.
    expected_cost_, expected_score_ : float
        Mean cost and quality at the budget, out of fold; of several resources, the cost is a dict.
    share_by_lot_ : float
        Share of the rows of the fit for which the key decides between two mixed points.
    certificate_ : Certificate, CostCertificate or None
        What ``certified`` proved, of quality or of the next bill.
    largest_loss_ : float
        With "loss", the largest one of the log of the fit.
    policy_ : Policy
        Operating points, and the one or two in force.
    state_ : RouterState
        What the fit learned; a file holds it.

    Examples
    --------
    >>> import numpy as np
    >>> from thrifty import ModelRouter
    >>> rng = np.random.default_rng(0)
    >>> hard = rng.random(400)
    >>> X = np.column_stack([hard, rng.random(400)])
    >>> quality = np.column_stack([rng.random(400) > hard, rng.random(400) > 0.1])
    >>> router = ModelRouter({"small": 1.0, "large": 10.0}, budget=4.0).fit(X, quality)
    >>> list(router.predict([[0.05, 0.5], [0.95, 0.5]]))
    ['small', 'large']
    >>> session = router.start(X[0])
    >>> while session.next_purchase is not None:
    ...     session = session.give(f"what {session.next_purchase.name} says")
    >>> session.answer == f"what {session.model} says"
    True
    """

    expected_quality_ = FormerName("expected_score_")

    normalise = staticmethod(logs.normalise)
    """Canonical form in which answers are compared, None where nothing could be parsed; a subclass may replace it."""

    quality_name, unit = "quality", ""
    """What qualities and costs are called, in explanations and certificates."""

    _min_rows = logs.MIN_ROWS

    models: Any = None
    budget: Any = None
    max_asks: int = 3
    confidence: float | None = None
    random_state: Any = 0
    after: Any = None
    prices: Any = None
    outcome: str = "quality"
    cutoff: float | None = None
    ask: str = "in turn"
    cap: Any = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags

    # -- learning --------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        quality: Any,
        cost: Any = None,
        answers: Any = None,
        evidence: Any = None,
        propensity: Any = None,
    ) -> Self:
        """Learn from a log.

        Parameters
        ----------
        X : list of str, or table of shape (n_rows, n_features), or None
            Texts, or numbers: a table or embeddings. None where nothing is known of a row before a model is asked.
        quality : array-like of shape (n_rows, n_models)
            In [0, 1], or right and wrong; NaN where a model was not asked. Columns of data frames are found by name.
        cost : array-like of shape (n_rows, n_models), or dict of resource to such arrays, optional
            What was billed; unless given, by the prices of the models. Where columns cost, it may have a further column
            for each of their groups, in the order of ``prices`` (a data frame has their names).
        answers : array-like of shape (n_rows, n_models), optional
            Texts, or labels that are equal within a row where answers are; None, NaN, "" or a negative number where
            nothing could be parsed. Without them and without evidence one model is asked about each row.
        evidence : array-like of shape (n_rows, n_models) or (n_rows, n_models, n_classes), optional
            A number known after asking, such as a log-probability; or class probabilities or their logarithms, of which
            the largest is the answer. It is calibrated for each model, by isotonic regression of quality. With one
            class, numbers that models predict, in units in which quality is one less the squared error.
        propensity : array-like of shape (n_rows, n_models) or (n_rows,), optional
            Probability with which each model was asked, for logs in which not all were.
        """
        prices = check_models(self.models)
        max_asks = check_count("max_asks", self.max_asks)
        seed = check_seed(self.random_state)
        names = tuple(prices)
        self._check_outcome(answers, evidence, propensity)
        resources = logs.check_resources(resources_of_models(cost, prices), self.after, self.ask)
        self._check_goal(self.budget, self.confidence, resources)
        with all_or_nothing(self), limited_threads(openmp=1, blas=1):
            is_texts, rows = X is not None and logs.is_text(X), X
            if X is None:
                rows = logs.row_keys(len(logs.matrix("quality", quality, names, None)), quality)
            else:
                rows = list(X) if is_texts else validated(self, X, reset=True)
            n_rows = len(rows)
            if n_rows < self._min_rows:
                raise InvalidInputError(
                    f"a log must have at least {self._min_rows} rows to learn from; got {n_rows}. Log more rows."
                )
            columns, discounts, listed_price = None, None, np.empty(0)
            if self.prices is not None:
                columns, listed_price, discounts = self._priced_columns(X, names, resources)
            elif self.cutoff is not None and X is not None and not is_texts:
                columns = free_columns(len(rows[0]))
            groups = () if columns is None else columns.names
            by_resource, solved_by = None, None
            largest_loss = None
            if self.outcome == "loss":
                quality = logs.losses(quality, names, n_rows)
                largest_loss = float(np.nanmax(quality, initial=0.0)) or 1.0
                quality = 1.0 - quality / largest_loss
            if self.cutoff is None:
                scores = logs.check_quality(quality, names, n_rows)
            else:
                scores, cost, solved_by = logs.run_times(
                    quality, cost, names, groups, listed_price, self.cutoff, n_rows
                )
            cost, bought = logs.split_cost(cost, names, groups, listed_price, n_rows)
            if resources is None:
                costs = logs.costs_of(X, cost, answers, prices, n_rows)
            else:
                by_resource = logs.costs_in(resources.names, X, cost, answers, prices, n_rows)
                resources = logs.at_usual_rates(resources, by_resource)
                costs = (by_resource * resources.rates).sum(axis=2)
            logs.check_billed(costs, names)
            codes = None if answers is None else logs.answer_codes(answers, names, n_rows, self.normalise)
            shown = None if evidence is None else logs.check_evidence(evidence, names, n_rows)
            known = ~np.isnan(scores)
            asked = logs.check_propensity(propensity, known, names)
            kept, partial = logs.whole_rows(scores, costs, propensity)
            if not kept.all():
                rows = [row for row, keep in zip(rows, kept, strict=True) if keep] if is_texts else rows[kept]
                scores, costs, asked, bought = scores[kept], costs[kept], asked[kept], bought[kept]
                by_resource = None if by_resource is None else by_resource[kept]
                solved_by = None if solved_by is None else solved_by[kept]
                codes = None if codes is None else codes[kept]
                shown = None if shown is None else shown[kept]
            keys = key_words(rows) if is_texts or X is None else fingerprints(rows)
            folds = np.unique(key_chance(keys, seed), return_inverse=True)[1] % N_FOLDS
            if len(np.unique(folds)) < N_FOLDS:
                raise InvalidInputError(
                    f"X must have at least {N_FOLDS} different rows; got {len(np.unique(keys))}."
                )
            reader = learn_text_reader(rows, seed) if is_texts else None
            Z: Floats = np.empty((len(rows), 0))
            if X is not None:
                Z = np.asarray(rows) if reader is None else reader.transform(rows)
            if partial:
                logs.refuse_partial(resources)
                scores, costs = logs.complete(Z, scores, costs, asked, folds, names)
                codes = shown = None
            names_in = None if X is None else getattr(self, "feature_names_in_", None)
            mean_cost = np.concatenate([costs.mean(axis=0), bought.mean(axis=0)])
            after = logs.shares_after(self.after, (*names, *groups), mean_cost)
            size = MAX_POOL
            if columns is not None or self.cutoff is not None:
                asks_one = max_asks == 1 or (codes is None and shown is None)
                size = MAX_CHOSEN if asks_one else MAX_PLANNED
            pool = choose_pool(names, scores, costs, codes, size)
            model: QualityModel | None = None
            single_costs = None if by_resource is None else by_resource.mean(axis=0)
            if by_resource is not None:
                by_resource = by_resource[:, pool]
            paid = costs[:, pool] if by_resource is None else by_resource.reshape(len(rows), -1)
            if X is None or columns is not None:
                means = (values.mean(axis=0) for values in (scores[:, pool], paid))
                prior, expected = (np.tile(mean, (len(rows), 1)) for mean in means)
            else:
                model, prior, expected = crossfit(Z, scores[:, pool], paid, folds, seed)
            calibration = classes = None
            codes = None if codes is None else codes[:, pool]
            if shown is not None:
                calibration = learn_calibration(shown[:, pool], scores[:, pool])
                shown, classes, codes = calibration.of_log(shown[:, pool], codes)
            if after is not None:
                of_pool = np.concatenate([pool, len(names) + np.arange(len(groups))])
                after = after[np.ix_(of_pool, of_pool)]
            log = Log(prior, expected, scores[:, pool], costs[:, pool], codes, shown, classes, after)
            log = replace(log, cutoff=self.cutoff, solved_by=solved_by)
            if columns is not None:
                called = [names[model] for model in pool]
                log = learn_columns(with_columns(log, columns, bought, discounts, called), Z, folds, seed)
            state = RouterState(
                names=names,
                pool=(*(names[model] for model in pool), *(() if log.columns is None else log.columns.names)),
                reader=reader,
                model=model,
                log=log,
                folds=folds,
                keys=keys,
                tokens=logs.tokens_in(rows) if is_texts else None,
                evidence_mean=np.zeros(len(pool)),
                single_cost=costs.mean(axis=0),
                single_quality=scores.mean(axis=0),
                n_features=0 if is_texts else int(Z.shape[1]),
                columns=None if is_texts or names_in is None else tuple(map(str, names_in)),
                calibration=calibration,
                resources=resources,
                single_costs=single_costs,
                largest_loss=largest_loss,
                **NO_POLICY,
            )
            if by_resource is not None:
                state = replace(state, log=state.in_resources(log, by_resource))
            self.state_ = learn_policy(state, max_asks)
            if self.cap is not None:
                self.state_ = self._capped(self.cap)
            self._go_to_budget()
        return self

    def _capped(self, cap: Any) -> RouterState:
        """What the fit learned, with rules under which no row pays more than a cap."""
        state, resources = self.state_, self.state_.resources
        limits = np.array([check_amount("cap", cap)]) if resources is None else None
        if resources is not None:
            limits = resources.limits(resources.check_budget("cap", cap))
        assert limits is not None
        if state.log.columns is not None or state.log.cutoff is not None:
            raise InvalidParameterError(
                "cap", f"is for routers whose columns are free, of qualities; got {cap!r}. Leave it out."
            )
        costs = state.log.cost[:, :, None] if state.log.costs is None else state.log.costs
        varies = state.calls is not None or bool(np.any(np.ptp(costs, axis=0) > 1e-9 * costs.max(axis=0)))
        if varies:
            raise InvalidParameterError(
                "cap",
                f"needs prices per call: these costs differ from row to row, and what a row pays is known afterwards "
                f"only; got {cap!r}. The gateway's max_cost keeps a ceiling per request, by the most that tokens can "
                f"cost.",
            )
        prices = costs[0]
        if not np.any(np.all(prices <= limits * (1 + SLACK), axis=1)):
            least = self.named(prices[np.argmin(state.log.cost[0])])
            raise InvalidParameterError(
                "cap",
                f"must be at least {amount_text(least if resources is not None else float(prices.min()), digits=6)}, "
                f"the price of the cheapest model; got {cap!r}. Raise the cap.",
            )
        return state.capped(prices, limits)

    def _priced_columns(
        self, X: Any, names: tuple[str, ...], resources: Resources | None
    ) -> tuple[ColumnSets, Floats, Floats | None]:
        """Groups of columns that cost, their listed prices, and shares of these after another group."""
        if X is None or logs.is_text(X):
            raise InvalidInputError(
                "prices are of columns, and a router of texts, or without X, has none. Give X as a table."
            )
        if resources is not None:
            raise InvalidInputError(
                f"prices of columns take models that are priced in one resource; got {', '.join(resources.names)}."
            )
        columns = getattr(self, "feature_names_in_", None)
        priced = resolve_prices(None, self.prices, Prices())
        found = priced_columns(priced, self.n_features_in_, columns)
        taken = [name for name in found[0].names if name in names]
        if taken:
            raise InvalidInputError(f"{taken[0]!r} is a model and a purchase of columns. Rename one of them.")
        return found

    @property
    def largest_loss_(self) -> float:
        """The largest loss of the log of the fit."""
        largest = self._fitted().largest_loss
        if largest is None:
            raise AttributeError("largest_loss_ is known with outcome='loss'.")
        return largest

    def qualities_of(self, quality: Any, n_rows: int) -> Any:
        """Qualities of a log: what it has, or those of its losses; one above the largest of the fit counts as that."""
        largest, names = self._fitted().largest_loss, self._fitted().names
        if largest is None or quality is None:
            return quality
        return 1.0 - np.minimum(logs.losses(quality, names, n_rows) / largest, 1.0)

    @property
    def _resources(self) -> Resources | None:
        """Resources that answers cost, where there are several."""
        return self._fitted().resources

    def named(self, costs: Any) -> Any:
        """Costs of rows as users see them: of several resources a data frame, of one row a dict."""
        resources = self._resources
        return costs if resources is None else resources.named(costs)

    def _check_outcome(self, *log: Any) -> None:
        if self.outcome not in ("quality", "loss", "runtime"):
            raise InvalidParameterError(
                "outcome", f"must be 'quality', 'loss' or 'runtime'; got {self.outcome!r}."
            )
        is_runtime = self.outcome == "runtime"
        if is_runtime != (self.cutoff is not None) or (is_runtime and not float(self.cutoff or 0.0) > 0.0):
            raise InvalidParameterError(
                "cutoff",
                f"must be a number of seconds > 0 with outcome='runtime', and None without; got {self.cutoff!r}.",
            )
        if is_runtime and any(part is not None for part in log):
            raise InvalidInputError(
                "a router of run times asks one model about each row: leave out answers, evidence and propensity."
            )

    def _check_goal(self, budget: Any, confidence: Any, resources: Resources | None) -> None:
        if resources is not None and budget is not None:
            resources.check_budget("budget", budget)
        elif budget is not None and not (
            isinstance(budget, int | float | np.number) and not isinstance(budget, bool) and budget > 0
        ):
            raise InvalidParameterError(
                "budget", f"must be positive; got {budget!r}. It is the mean cost of a row."
            )
        if confidence is not None:
            check_confidence(confidence)

    def _go_to_budget(self, *, mix: bool = True) -> None:
        """Choose the points to mix."""
        state, budget, resources = self.state_, self.budget, self._resources
        if resources is not None:
            self._set_policy(self._within_budgets(resources, mix=mix))
        elif budget is None and state.largest_loss is not None:
            total = state.policy.score - state.policy.cost / state.largest_loss
            self._set_policy(state.policy.at(int(np.argmax(np.round(total, 12)))))
        elif budget is None:
            self._set_policy(state.policy.at(len(state.policy) - 1))
        elif self.confidence is None:
            within = within_budget(state.policy, budget, None, mix=mix)
            self._set_policy(state.affordable(within, budget, attrgetter("expected_cost")))
        else:
            n_rows = len(state.log)
            bounds = CostBounds(state.evidence, n_rows, max(int(_N_NEXT * n_rows), 1))
            self._set_policy(self._bounded(bounds, budget, self.confidence, mix=mix))

    def _within_budgets(self, resources: Resources, *, mix: bool) -> Policy:
        """The best mix of points within the budgets of several resources."""
        state, policy = self.state_, self.state_.policy
        if self.budget is None:
            return policy.at(int(np.argmax(np.round(policy.score, 12))))
        wanted = resources.check_budget("budget", self.budget)
        within = within_budgets(policy, resources, wanted, mix=mix)
        if self.confidence is None:
            return within
        n_next = max(int(_N_NEXT * len(state.log)), 1)
        return self._kept(state.evidence, len(state.log), n_next, wanted, self.confidence)[0]

    def _kept(
        self, evidence: Evidence, n_rows: int, n_next: int, budget: dict[str, float], confidence: float
    ) -> tuple[Policy, dict[str, float]]:
        """The best mix that some rows show to keep to budgets of several resources, and the bounds of its costs."""
        policy, resources = self.state_.policy, self._resources
        assert resources is not None  # asked for only where there are several
        each = range(len(resources.names))
        bounds = [CostBounds(evidence.of_resource(number), n_rows, n_next) for number in each]
        mixes = mixes_up_to(policy, resources.limits(budget))
        proved = certified_within(mixes, bounds, resources, budget, confidence)
        named: dict[str, float] = resources.named(
            np.array([bound.bound(proved, confidence) for bound in bounds])
        )
        return proved, named

    def _bounded(self, bounds: CostBounds, budget: float, confidence: float, *, mix: bool = True) -> Policy:
        """The dearest mix whose bill is bounded by a budget."""
        within = bounds.within(self.state_.policy, budget, confidence)
        within = within if mix or within.share == 1.0 else within.at(within.lower)
        return self.state_.affordable(within, budget, partial(bounds.bound, confidence=confidence))

    def _set_policy(self, policy: Policy) -> None:
        self.policy_ = policy
        self.pool_ = list(self.state_.pool)
        self.expected_cost_: Any = policy.expected_cost + self.state_.mixing_cost(policy)
        if self._resources is not None:
            self.expected_cost_ = self.named(policy.expected_costs)
        self.expected_score_ = policy.expected_score
        self.certificate_: Certificate | CostCertificate | None = None

    def restored(
        self,
        state: RouterState,
        in_force: tuple[Ints, Floats],
        certificate: Certificate | CostCertificate | None,
    ) -> Self:
        """Become the router that a file was written from, and return it."""
        self.state_ = state
        if state.reader is None:
            self.n_features_in_ = state.n_features
        if state.columns is not None:
            self.feature_names_in_ = np.array(state.columns, dtype=object)
        self._set_policy(state.policy.mixed(*in_force))
        self.certificate_ = certificate
        return self

    # -- other settings of the same fit ------------------------------------------------------------

    @property
    def share_by_lot_(self) -> float:
        """Share of the rows of the fit that two mixed points treat differently, so that their keys decide."""
        return self._fitted().evidence.share_by_lot(self.policy_)

    def at(
        self,
        *,
        budget: Any = None,
        share: float | None = None,
        confidence: float | None = None,
        mix: bool = True,
        cap: Any = None,
    ) -> Self:
        """Return the same fit at another budget; nothing is learned again.

        Without ``mix`` it is at the dearest point within the budget, and no row's key decides what is asked. A
        ``share`` is a budget as a share of what the best single model costs, in each resource. A ``cap`` is what no row
        ever pays, here and in all that is made from the returned router.
        """
        if share is not None:
            if budget is not None:
                raise InvalidParameterError(
                    "budget", f"and share must not both be given; got budget={budget!r}, share={share!r}."
                )
            budget = times(check_amount("share", share), self.single_cost(self._fitted().best_single))
        self._check_goal(budget, confidence, self._resources)
        other = copy.copy(self)
        other.budget, other.confidence = budget, confidence
        if cap is not None:
            other.state_, other.cap = self._capped(cap), cap
        other._go_to_budget(mix=mix)
        return other

    def with_prices(self, prices: Mapping[str, Any]) -> Self:
        """Return a router for other prices of some models: the policy is learned again, expectations are kept.

        A price per token may change in its two parts differently where rows are texts, whose tokens are known.
        """
        state = self._fitted()
        self._refuse_resources("with_prices")
        self._refuse_columns("with_prices")
        log, old, new = state.log, check_models(self.models), dict(prices)
        costs, single, factor = log.cost.copy(), state.single_cost.copy(), np.ones(len(state.pool))
        for name, given in prices.items():
            if name not in state.names:
                raise InvalidInputError(
                    f"prices must be of models that are known; got {name!r}. with_model adds one."
                )
            before, after = old[name], check_price(name, given)
            new[name] = after
            ratio: Any
            if isinstance(before, float) and isinstance(after, float):
                ratio = after / before
            elif isinstance(before, tuple) and isinstance(after, tuple):
                parts = after[0] / before[0], after[1] / before[1]
                ratio = parts[0]
                if not np.isclose(*parts):
                    if state.tokens is None or name not in state.pool:
                        raise InvalidInputError(
                            f"the prices in and out of {name!r} must change by the same factor where tokens are not "
                            f"known; got {parts[0]:.3g} and {parts[1]:.3g}. Fit again with the new costs."
                        )
                    billed = log.cost[:, state.pool.index(name)]
                    asked = np.minimum(before[0] * state.tokens / 1e6, billed)
                    ratio = (asked * parts[0] + (billed - asked) * parts[1]) / np.maximum(billed, 1e-300)
            else:
                raise InvalidInputError(
                    f"the new price of {name!r} must be of the same kind as {before!r}; got {given!r}."
                )
            if name in state.pool:
                place = state.pool.index(name)
                costs[:, place] *= ratio
                factor[place] = ratio = float(costs[:, place].mean() / log.cost[:, place].mean())
            single[state.names.index(name)] *= ratio
        changed = replace(
            state,
            log=replace(log, cost=costs, expected=log.expected * factor),
            single_cost=single,
            calls=None if state.calls is None else state.calls * factor,
            model=None if state.model is None else state.model.with_costs(factor),
        )
        return self._relearned(changed, {**old, **new})

    def with_model(self, name: str, price: Any, X: Any, quality: Any, cost: Any = None) -> Self:
        """Return a router that may also ask a new model, of which only few rows are known.

        Its expected quality is a linear combination of those of the other models, learned from the few rows; the policy
        is learned again. Answers of the new model are not compared with others until the router is fitted again.

        Parameters
        ----------
        name : str
            The new model.
        price : float or pair of float
            Its price, as in ``models``; a price per token needs ``cost``.
        X : rows as in ``fit``
            At least ten rows that it was asked about.
        quality : array-like of shape (n_rows,)
            How good its answers were, in [0, 1].
        cost : array-like of shape (n_rows,), optional
            What was billed for them.
        """
        state, prices = self._fitted(), check_models(self.models)
        self._refuse_resources("with_model")
        if state.largest_loss is not None:
            raise InvalidInputError("with_model takes qualities, and this router knows losses. Fit it again.")
        self._refuse_columns("with_model")
        new = check_models({**prices, name: price}) if name not in prices else {}
        if not new:
            raise InvalidInputError(
                f"name must be that of a new model; {name!r} is known. Fit again to change it."
            )
        prior = self.unasked(logs.row_keys(len(quality), None) if X is None else X).log.prior
        scores = logs.check_quality(np.reshape(quality, (-1, 1)), [name], len(prior))[:, 0]
        if len(scores) < _FEW_ROWS or np.isnan(scores).any():
            raise InvalidInputError(
                f"quality of {name!r} must be known in at least {_FEW_ROWS} rows; got {int((~np.isnan(scores)).sum())}."
            )
        billed = None if cost is None else np.reshape(cost, (-1, 1))
        costs = logs.costs_of(X, billed, None, {name: new[name]}, len(scores))
        logs.check_billed(costs, [name])
        spent = float(np.nanmean(costs))
        weights = ridge(np.column_stack([np.ones(len(prior)), prior]), scores[:, None], 10.0)[:, 0]
        log, model, calibration = state.log, state.model, state.calibration
        expected = weights[0] + log.prior @ weights[1:]
        quality_of_new = np.clip(expected, 0.0, 1.0)
        mean, n_classes = float(quality_of_new.mean()), 0 if log.classes is None else log.classes.shape[2]

        def with_column(values: Any, column: Any) -> Any:
            return None if values is None else np.append(values, np.full_like(values[:, :1], column), axis=1)

        whole = Log(
            with_column(log.prior, expected[:, None]),
            with_column(log.expected, spent),
            with_column(log.quality, quality_of_new[:, None]),
            with_column(log.cost, spent),
            with_column(log.answers, UNPARSED if calibration is None else UNCOMPARED),
            with_column(log.evidence, 0.0 if calibration is None else mean),
            with_column(log.classes, np.nan if n_classes == 1 else 1.0 / max(n_classes, 1)),
            None if log.after is None else np.pad(log.after, (0, 1), constant_values=1.0),
        )
        if model is not None:
            model = model.with_combination(float(weights[0]), weights[1:], spent)
        if calibration is not None:
            calibration = calibration.with_model(mean)
        pool, kept = (*state.pool, name), np.arange(len(state.pool) + 1)
        if len(pool) > MAX_POOL:
            best = choose_pool(pool[:-1], log.quality, log.cost, log.answers, MAX_POOL - 1)
            kept = np.array([*np.sort(best), len(pool) - 1])
        changed = replace(
            state,
            names=(*state.names, name),
            pool=tuple(pool[one] for one in kept),
            model=None if model is None else model.take(kept),
            calibration=None if calibration is None else calibration.take(kept),
            log=whole.take(kept),
            evidence_mean=np.append(state.evidence_mean, 0.0)[kept],
            calls=None if state.calls is None else np.append(state.calls, 0.0)[kept],
            single_cost=np.append(state.single_cost, spent),
            single_quality=np.append(state.single_quality, whole.quality[:, -1].mean()),
            models_without_answers=(*state.models_without_answers, name),
        )
        return self._relearned(changed, new)

    def _refuse_columns(self, method: str) -> None:
        if self._fitted().log.columns is not None:
            raise InvalidInputError(
                f"{method} is for routers whose columns are free; this one has prices of columns. Fit it again."
            )

    def _refuse_resources(self, what: str) -> None:
        if (resources := self._resources) is not None:
            raise InvalidInputError(
                f"{what} takes costs in one resource; these are in {', '.join(resources.names)}. Fit again on a log "
                f"with the new costs."
            )

    def _relearned(self, state: RouterState, models: dict[str, ModelPrice]) -> Self:
        """The router with a policy that is learned again from a changed state."""
        other = copy.copy(self)
        if self.after:  # these prices move with those of their models
            former = self.state_
            ratio = dict(
                zip(former.names, state.single_cost[: len(former.names)] / former.single_cost, strict=True)
            )
            other.after = {
                name: {before: price * float(ratio[name]) for before, price in prices.items()}
                for name, prices in self.after.items()
            }
        other.models = models
        with limited_threads(openmp=1, blas=1):
            other.state_ = learn_policy(state, int(self.max_asks))
        if self.cap is not None:
            other.state_ = other._capped(self.cap)
        other._go_to_budget()
        return other

    # -- the models ---------------------------------------------------------------------------------

    def _fitted(self) -> RouterState:
        state: RouterState | None = getattr(self, "state_", None)
        if state is None:  # only then: the check of scikit-learn takes as long as a decision
            check_is_fitted(self, "state_")
        assert state is not None
        return state

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "state_")

    @property
    def model_prices(self) -> dict[str, ModelPrice]:
        """Prices of all models by name; None where a price is known from the log only."""
        return check_models(self.models)

    @property
    def model_costs(self) -> dict[str, float]:
        """Mean cost of each model alone, by name, on the rows of the fit; of several resources, their sum at rates."""
        state = self._fitted()
        return dict(zip(state.names, state.single_cost.tolist(), strict=True))

    def single_cost(self, model: int) -> Any:
        """Mean cost of a model alone; of several resources a dict."""
        state = self._fitted()
        return self.named(
            state.single_cost[model] if state.single_costs is None else state.single_costs[model]
        )

    @property
    def best_model(self) -> str:
        """The single model of the highest quality; the cheaper of equals."""
        state = self._fitted()
        return state.names[state.best_single]

    @property
    def reads_texts(self) -> bool:
        """True if rows are texts."""
        return self._fitted().reader is not None

    @property
    def table_columns(self) -> tuple[str, ...]:
        """Columns of a table of rows: ``text``, or the columns of the fit; x0, x1 and so on where it knew no names."""
        state = self._fitted()
        if self.reads_texts:
            return ("text",)
        return state.columns or tuple(f"x{column}" for column in range(state.n_features))

    def rows_of(self, frame: Any) -> Any:
        """Rows of a data frame as the router reads them: its texts, or its columns in the order of the fit.

        Of a router without columns, their keys: the column ``id``, or their numbers.
        """
        if not self._fitted().reads_rows:
            return frame["id"].tolist() if "id" in frame.columns else np.arange(len(frame))
        columns = list(self.table_columns)
        lacking = [name for name in columns if name not in frame.columns]
        if lacking:
            raise InvalidInputError(
                f"the table must have a column {lacking[0]!r}, as the log of the fit; it has {listed(frame.columns)}. "
                f"Rename the one that holds it."
            )
        if self.reads_texts:
            return frame["text"].astype(str).tolist()
        return frame[columns] if self._fitted().columns else frame[columns].to_numpy()

    # -- rows ---------------------------------------------------------------------------------------

    def _read(self, X: Any, keys: Words | None = None) -> tuple[Floats, Words]:
        """Rows as numbers, and their keys: of their content, unless given."""
        state = self._fitted()
        if not state.reads_rows:
            if X is None:
                raise InvalidInputError(
                    "a router without columns needs a log, or the keys of the rows as X, to know how many there are."
                )
            return np.empty((len(X), 0)), key_words(X) if keys is None else keys
        if state.reader is None:
            # One row of a session has no names; scikit-learn would warn of it.
            plain = state.columns is not None and isinstance(X, np.ndarray) and X.dtype.kind == "f"
            has_width = plain and X.ndim == 2 and X.shape[1] == state.n_features
            Z = X.astype(np.float64) if has_width else validated(self, X, reset=False)
            return Z, fingerprints(Z) if keys is None else keys
        if not logs.is_text(X):
            raise InvalidInputError(f"X must be a list of texts, as in fit; got {type(X).__name__}.")
        return state.reader.transform(list(X)), key_words(list(X)) if keys is None else keys

    def unasked(self, X: Any, keys: Words | None = None, *, is_in_force: bool = False) -> NewLog:
        """Rows of which no model was asked yet.

        With ``is_in_force`` they follow the points in force only: where these do not look at what is expected of a
        row, which takes longer than the decision, means stand for it.
        """
        state, (Z, keys), policy = self._fitted(), self._read(X, keys), self.policy_
        known = state.log
        if known.columns is not None:
            prior, cost = known.columns.predict(0, Z)
            expected = np.column_stack([cost, np.repeat(state.group_prices[None], len(keys), axis=0)])
        elif state.model is None:
            prior, expected = (np.repeat(mean[None], len(keys), axis=0) for mean in state.means)
        elif is_in_force and not any(
            state.families[state.point_family[point]].reads_row for _, point in policy.in_force
        ):
            expected = state.model.expected_cost(Z)
            prior = np.broadcast_to(state.model.mean, (len(expected), len(state.pool)))
        else:
            prior, expected = state.model.predict(Z)
        unknown = np.full(prior.shape, np.nan)
        answers = None if known.answers is None else np.full(prior.shape, UNPARSED)
        evidence = None if known.evidence is None else unknown.copy()
        classes = None if known.classes is None else np.zeros((*prior.shape, known.classes.shape[2]))
        log = Log(
            prior,
            expected,
            unknown,
            unknown.copy() if known.columns is None else np.full(expected.shape, np.nan),
            answers,
            evidence,
            classes,
            known.after,
            known.pooling,
            columns=known.columns,
            cells=None if known.columns is None else Z,
            cutoff=known.cutoff,
        )
        return NewLog(log if state.resources is None else state.in_resources(log), keys)

    def read_log(
        self,
        X: Any,
        quality: Any = None,
        cost: Any = None,
        answers: Any = None,
        evidence: Any = None,
        *,
        is_in_force: bool = False,
    ) -> NewLog:
        """Read a log of new rows, as in ``fit``; costs that were not billed are those expected.

        With ``is_in_force``, only the points in force may be followed on it.
        """
        state = self._fitted()
        if X is None and not state.reads_rows:
            logged = next((part for part in (quality, cost, answers, evidence) if part is not None), None)
            X = None if logged is None else logs.row_keys(len(logged), quality)
        new, n_rows = self.unasked(X, is_in_force=is_in_force), len(X)
        log, names, pool = new.log, state.names, state.pool_places
        solved_by = None
        if log.cutoff is not None and quality is not None:
            quality, cost, solved_by = self._timed(quality, cost, n_rows)
        quality = self.qualities_of(quality, n_rows)
        cost, paid = logs.split_cost(cost, names, state.groups, state.column_prices, n_rows)
        scores = log.quality if quality is None else logs.qualities(quality, names, n_rows)[:, pool]
        prices = self.model_prices
        is_billed = cost is not None or all(price is not None for price in prices.values())
        costs, by_resource, resources = log.cost[:, : log.n_models], log.costs, state.resources
        if log.costs is not None and log.expected_costs is not None and resources is not None:
            by_resource = log.expected_costs
            if is_billed or quality is not None:
                logs.check_cost(resources, cost)
                billed = logs.costs_in(resources.names, X, cost, answers, prices, n_rows)[:, pool]
                by_resource = np.where(np.isnan(billed), by_resource, billed)
            costs = (by_resource * resources.rates).sum(axis=2)
        elif is_billed or quality is not None:
            costs = logs.costs_of(X, cost, answers, prices, n_rows)[:, pool]
        early: list[Floats] = []
        if log.columns is not None and log.columns.runs:
            taken, ends = log.columns.early(
                scores, np.where(np.isnan(costs), log.expected[:, : log.n_models], costs)
            )
            early, solved_by = [taken], None if solved_by is None else np.column_stack([solved_by, ends])
        costs = np.column_stack([costs, paid, *early])
        codes, shown, classes = log.answers, log.evidence, log.classes
        if codes is not None and (classes is None or answers is not None):
            if answers is None:
                raise InvalidInputError(
                    "the router was fitted with answers, and looks at them: give answers=."
                )
            codes = logs.answer_codes(answers, names, n_rows, self.normalise, may_be_unparsed=True)[:, pool]
            not_compared = [name in state.models_without_answers for name in state.models]
            codes[:, not_compared] = UNPARSED if state.calibration is None else UNCOMPARED
        if shown is not None:
            shown = np.full(shown.shape if classes is None else classes.shape, np.nan)
            if evidence is not None:
                shown = logs.check_evidence(evidence, names, n_rows)
                if state.calibration is not None:
                    state.calibration.check_shape(shown, names)
                shown = shown[:, pool]
            if state.calibration is None:
                shown = np.where(np.isfinite(shown), shown, state.evidence_mean)
            else:
                own = None if answers is None else codes
                shown, classes, codes = state.calibration.of_log(shown, own)
        costs = np.where(np.isnan(costs), log.expected, costs)
        return new._replace(
            log=replace(
                log,
                quality=scores,
                cost=costs,
                answers=codes,
                evidence=shown,
                classes=classes,
                costs=by_resource,
                solved_by=solved_by,
            )
        )

    def _timed(self, quality: Any, cost: Any, n_rows: int) -> tuple[Floats, Floats, Bools]:
        """Run times as qualities and costs of all models, and the rows that columns have solved."""
        state = self._fitted()
        assert state.log.cutoff is not None
        return logs.run_times(
            quality, cost, state.names, state.groups, state.column_prices, state.log.cutoff, n_rows
        )

    def walk(self, new: NewLog, point: int | None = None, ask: Asker | None = None) -> Replay:
        """Walk rows of a log, each under the operating point that it follows, or all under one of the frontier.

        Models of the result are places in ``pool_``, -1 behind the last one asked. ``ask(model, rows)`` writes into the
        log what a model returns; without it, the log holds what every model returned.
        """
        state = self._fitted()
        masks = self._parts(new.keys) if point is None else [(np.ones(len(new.log), dtype=bool), point)]
        parts = [
            (np.flatnonzero(mask), state.families[state.point_family[place]], int(state.point_place[place]))
            for mask, place in masks
        ]
        replay = walk_mixed(parts, new.log, ask)
        policy = self.policy_ if point is None else state.policy.at(point)
        return replay._replace(cost=replay.cost + state.unreached_at(policy))

    def run(self, ask: Callable[[str, Ints], Any], X: Any, keys: Words | None = None) -> Replay:
        """Ask models in batches: each one about all rows that need it, at the same place, in one call.

        Faster than ``buy`` for models that do not fail: no session of each row.

        Parameters
        ----------
        ask : callable
            Of the name of a model and the numbers of rows; returns the evidence of its answers, as in ``fit``.
        X : rows as in ``fit``, or their keys where rows have no columns
        keys : ndarray of shape (n_rows,), optional
            Keys of the rows, which decide between two points that are mixed; their content unless given.

        Returns
        -------
        Replay
            Models asked and the one whose answer is taken, by their places in ``pool_``, and the expected cost of each
            row; qualities are NaN.
        """
        state, new = self._fitted(), self.unasked(X, keys, is_in_force=True)
        calibration = state.calibration
        log = replace(new.log, cost=new.log.expected, costs=new.log.expected_costs)
        if calibration is None or (calibration.n_classes == 0 and log.answers is not None):
            raise InvalidInputError(
                "run needs a router that was fitted with evidence, and without answers unless evidence has classes. "
                "Use buy, which reads answers."
            )

        def fill(model: int, rows: Ints) -> None:
            shown = ask(state.pool[model], rows)
            assert log.evidence is not None
            if log.classes is None or log.answers is None:
                log.evidence[rows, model] = calibration.of_numbers(model, np.asarray(shown, np.float64))
            else:
                parts = calibration.of_classes(model, class_probabilities(shown))
                log.evidence[rows, model], log.classes[rows, model], log.answers[rows, model] = parts

        return self.walk(NewLog(log, new.keys), ask=fill)

    def _parts(self, keys: Words) -> list[tuple[Bools, int]]:
        """Masks of the rows that follow each of the points in force, if any do, and the points."""
        follows = self.policy_.follows(keys)
        masks = [
            (follows == point, point) for point in dict.fromkeys(point for _, point in self.policy_.in_force)
        ]
        return [(mask, point) for mask, point in masks if mask.any()]

    def _first(self, new: NewLog) -> tuple[Ints, Floats]:
        """First model that each row asks, and what the row is expected to pay for it and all that follow."""
        state, n_rows = self._fitted(), len(new.log)
        expected = new.log.expected if new.log.expected_costs is None else new.log.expected_costs
        first = np.empty(n_rows, np.intp)
        cost = np.full((n_rows, *expected.shape[2:]), state.mixing_cost(self.policy_))
        for mask, point in self._parts(new.keys):
            ask, paid = state.until_asked(point, new.log.rows(mask))
            first[mask] = ask
            cost[mask] += paid + state.mean_further_cost(point)[ask]
        return first, cost

    # -- answers ------------------------------------------------------------------------------------

    def predict(self, X: Any) -> Labels:
        """First model to ask about each row; equal rows are treated alike."""
        new, state = self.unasked(X, is_in_force=True), self._fitted()
        first = np.empty(len(new.log), np.intp)
        for mask, point in self._parts(new.keys):
            first[mask] = state.first_asked(point, new.log.rows(mask))
        return np.array(state.pool, dtype=object)[first]

    def first_asked(self, X: Any) -> tuple[Labels, Any]:
        """First model to ask about each row, and what the row is expected to pay, as ``predict`` and ``cost`` say."""
        first, cost = self._routed(X)
        return np.array(self._fitted().pool, dtype=object)[first], self.named(cost)

    def cost_columns(self, cost: Any) -> dict[str, Floats]:
        """Columns of a table of answers with what ``cost`` returns: one, or of several resources one more for each."""
        return {"cost": cost} if self._resources is None else self._resources.columns(cost)

    def _routed(self, X: Any, *log: Any) -> tuple[Ints, Floats]:
        """Model that answers each row of a log, and its cost; without one, the first model, and what is expected."""
        if all(part is None for part in log):
            return self._first(self.unasked(X, is_in_force=True))
        replay = self.walk(self.read_log(X, None, *log, is_in_force=True))
        return replay.model, replay.cost if replay.costs is None else replay.costs

    def route(self, X: Any, cost: Any = None, answers: Any = None, evidence: Any = None) -> Ints:
        """Model that answers each row, by its place in ``pool_``.

        Without a log (``cost``, ``answers`` and ``evidence`` as in ``fit``), the first model that is asked.
        """
        return self._routed(X, cost, answers, evidence)[0]

    def cost(self, X: Any, cost: Any = None, answers: Any = None, evidence: Any = None) -> Any:
        """Cost of each row: what it would pay on a log, or without one, what it is expected to pay.

        Of several resources, a data frame with a column for each.

        Expected are the cost of the first model, and the mean of what rows of the fit paid beyond it that asked the
        same one first. Arguments as in ``fit``.
        """
        return self.named(self._routed(X, cost, answers, evidence)[1])

    def expected_cost(self, X: Any) -> Floats:
        """Expected cost of asking each model of ``pool_`` about each row, shape (n_rows, n_pool)."""
        return self.unasked(X).log.expected

    def score(
        self, X: Any, quality: Any, cost: Any = None, answers: Any = None, evidence: Any = None
    ) -> float:
        """Mean quality of the answers that are taken on a log, over the rows of which it is known."""
        return float(np.nanmean(self.replay(X, quality, cost, answers, evidence).quality))

    def _priced_models(self) -> PricedModels:
        """Models, prices and rules of sessions, checked once for each policy and not at every start."""
        policy, models, priced = getattr(self, "_priced", (None, None, None))
        if priced is None or policy is not self.policy_ or models is not self.models:
            state, policy, prices = self._fitted(), self.policy_, self.model_prices
            priced = PricedModels(
                state.pool,
                tuple(prices[name] for name in state.models),
                tuple(
                    (share, state.families[state.point_family[point]], int(state.point_place[point]))
                    for share, point in policy.in_force
                ),
                self.model_costs,
                state.evidence_mean,
                frozenset(state.models_without_answers),
                self.normalise,
                state.calibration,
                state.unreached_at(policy),
                self.quality_name,
                self.unit,
                state.resources,
                state.columns,
            )
            self._priced = policy, self.models, priced
        return priced

    def sessions(self, X: Any, new: NewLog) -> list[ModelSession]:
        """A session of each row, which functions that tell prices read as they were given."""
        rows: Any = X if self.reads_texts else np.asarray(X)
        models, follows = self._priced_models(), self._follows(new.keys)
        return [
            ModelSession(models, x, new.log.rows(np.array([row])), follows=follows[row])
            for row, x in enumerate(rows)
        ]

    def _start_row(self, x: Any) -> ModelSession:
        """A session of a row that buys its columns: ``x`` has those that are free, by name, or a number for each."""
        cells, names = np.full((1, self.n_features_in_), np.nan), self.table_columns
        if isinstance(x, Mapping):
            for name, value in x.items():
                if name not in names:
                    raise InvalidInputError(f"x must hold columns of the fit; got {name!r}.")
                cells[0, names.index(name)] = value
        elif x is not None:
            cells[0] = np.asarray(x, dtype=np.float64)
        key = np.array([random.getrandbits(63)], dtype=np.uint64) if np.isnan(cells).any() else None
        new = self.unasked(cells, key)
        return ModelSession(self._priced_models(), x, new.log, follows=self._follows(new.keys)[0])

    def _follows(self, keys: Words) -> list[int]:
        """Which of the points in force each row follows, by its number among them."""
        points = [point for _, point in self.policy_.in_force]
        return [points.index(point) for point in self.policy_.follows(keys).tolist()]

    def start(self, x: Any = None) -> ModelSession:
        """Start a session of one row: a text, or the numbers of a row; without columns its key, which may be drawn.

        Where columns cost, ``x`` holds those that are free, by name or with NaN for the others; None where none is. Its
        key is then drawn, unless the row is whole.
        """
        if self._fitted().log.columns is not None:
            session = self._start_row(x)
        else:
            if not self._fitted().reads_rows:
                new = self.unasked([random.getrandbits(63) if x is None else x])
            else:
                new = self.unasked([x] if isinstance(x, str) else np.asarray(x)[None])
            session = ModelSession(self._priced_models(), x, new.log, follows=self._follows(new.keys)[0])
        session.origin = {"x": x}
        return session

    def resume(self, saved: Mapping[str, Any]) -> ModelSession:
        """Go on with a session that was ``saved``, such as one that waits for the answer of a person."""
        return self.start(**saved["start"]).resumed(saved)

    def buy(
        self,
        models: Mapping[str, Any],
        X: Any,
        *,
        on_failure: str = "answer",
        batch_size: int | None = None,
    ) -> Receipt:
        """Answer every row by asking models; return a receipt of what was asked, its cost and what failed.

        Parameters
        ----------
        models : dict of str to callable
            For each model of ``pool_`` a function of rows, which are a part of ``X``: it returns an answer for each of
            them, or a ``thrifty.Delivery`` with answers as ``values``, ``cost`` and ``evidence`` of each row where they
            are known, and as ``failed`` why rows got no answer, by their places in the part. An error is a failure of
            all these rows. Groups of columns that cost may have functions too, of their values; else ``X`` has them.
        X : rows as in ``fit``
            Rows to answer.
        on_failure : {"answer", "skip", "raise"}, default="answer"
            What becomes of a row whose model fails: it goes on with another model, as in a session; with "raise",
            nothing more is asked and ``PurchaseFailedError`` carries the receipt of everything so far.
        batch_size : int, optional
            Most rows in one question; None asks about all rows that need a model together.
        """
        ledger, new, state = Ledger(on_failure, batch_size), self.unasked(X), self._fitted()
        sessions, columns = self.sessions(X, new), new.log.columns
        if columns is not None:
            in_table = {
                name: partial(self._cells_of, columns=of_group)
                for name, of_group in zip(columns.names, columns.groups, strict=True)
                if len(of_group)
            }
            runs = zip(columns.names[columns.n_delivering :], columns.runs, strict=True)
            early = {name: models.get(state.pool[model]) for name, (model, _) in runs}
            models = {**in_table, **early, **models}

        def rows_of(rows: Ints) -> Any:
            if hasattr(X, "iloc"):
                return X.iloc[rows]
            return [X[row] for row in rows.tolist()] if self.reads_texts else X[rows]

        return buy_answers(sessions, models, self.pool_, rows_of, ledger)

    def _cells_of(self, rows: Any, columns: Ints) -> Floats:
        """Values of some columns of rows."""
        cells: Floats = self._read(rows)[0][:, columns]
        return cells

    def replay(
        self,
        X: Any,
        quality: Any,
        cost: Any = None,
        answers: Any = None,
        evidence: Any = None,
        propensity: Any = None,
    ) -> Replay:
        """Purchases, cost and quality of the policy on a log, row by row; arguments as in ``fit``.

        On a log in which not all models were asked, ``propensity`` gives estimates of the quality of a policy that asks
        one model about each row; costs that were not billed are those expected.
        """
        new = self.read_log(X, quality, cost, answers, evidence, is_in_force=propensity is None)
        replay, names = self.walk(new), np.array([*self._fitted().pool, ""], dtype=object)
        result = replay._replace(asked=names[replay.asked], model=names[replay.model])
        return result if propensity is None else self._estimated(result, replay.model, new.log, propensity)

    def _estimated(self, replay: Replay, model: Ints, log: Log, propensity: Any) -> Replay:
        """Doubly robust and inverse-propensity qualities instead of those that a log does not have."""
        state, rows = self._fitted(), np.arange(len(log))
        if np.ndim(propensity) == 2:
            pool = state.pool_places
            propensity = logs.numbers("propensity", propensity, state.names, len(log))[:, pool]
        chances = logs.check_propensity(propensity, ~np.isnan(log.quality), state.models)
        if not np.isnan(log.quality).any():
            return replay._replace(ips=replay.quality)  # nothing is estimated
        if replay.asked.shape[1] > 1:
            raise InvalidInputError(
                f"propensity is for a policy that asks one model about each row; this one asks up to "
                f"{replay.asked.shape[1]}, and the log lacks answers of the others. Give a log of all models, or fit "
                f"with max_asks=1."
            )
        weight = 1.0 / chances[rows, model]
        for place, name in enumerate(state.models):
            taken = model == place
            if taken.mean() >= _MIN_TAKEN:
                logs.warn_of_support(name, weight[taken], ~np.isnan(replay.quality[taken]), _FEW_ROWS)
        fitted = np.clip(log.prior[rows, model], 0.0, 1.0)
        return replay._replace(
            quality=logs.doubly_robust(fitted, replay.quality, weight),
            ips=logs.inverse_propensity(replay.quality, weight),
        )

    # -- what is known of it -------------------------------------------------------------------------

    @property
    def frontier_(self) -> RouterFrontier:
        """Mean cost and quality of the operating points, out of fold."""
        state = self._fitted()
        frontier = RouterFrontier.from_evidence([state.evidence])
        return replace(
            frontier,
            single_cost=state.single_cost,
            single_quality=state.single_quality,
            score_name=self.quality_name,
            resources=state.resources,
            single_costs=state.single_costs,
        )

    def certified(
        self,
        X: Any,
        quality: Any,
        cost: Any = None,
        answers: Any = None,
        evidence: Any = None,
        *,
        max_loss: float | None = None,
        budget: Any = None,
        against: str | None = None,
        n_next: int | None = None,
        confidence: float = 0.95,
        duplicates: str = "refuse",
    ) -> Self:
        """Return the router at a setting whose loss, or bill, new rows bound, with its ``certificate_``.

        Parameters
        ----------
        X, quality, cost, answers, evidence
            New rows of a log, as in ``fit``.
        max_loss : float, optional
            Mean quality that may be lost against a single model. Points are tested from the dearest down, and the
            cheapest one before the first that fails is taken (fixed-sequence testing).
        budget : float, or dict of resource to float, optional
            Mean cost of the next ``n_next`` rows; the dearest mix whose bill is bounded by it is taken. Budgets of
            several resources are all kept with the confidence asked for, without a correction for their number.
        against : str, optional
            The model compared with; the best single one of the fit unless given.
        n_next : int, optional
            Rows that the bill is for; as many as are given here unless given.
        confidence : float, default=0.95
            Confidence of the bound.
        duplicates : {"refuse", "drop", "count"}, default="refuse"
            Treatment of rows that hold the same as rows of the fit: they are refused, left out, or counted. Rows that
            equal each other, qualities included, count once unless it is "count"; see ``thrifty.certify``.
        """
        state = self._fitted()
        check_confidence(confidence)
        check_goal(max_loss=max_loss, budget=budget)
        new = self.read_log(X, quality, cost, answers, evidence)
        log = new.log
        name = state.names[state.best_single] if against is None else against
        if name not in state.names:
            raise InvalidInputError(f"against must be one of the models; got {name!r}.")
        if budget is not None:
            n_next = check_count("n_next", len(log) if n_next is None else n_next)
            return self._with_bill(new, budget, n_next, confidence, duplicates)
        if log.cutoff is not None:
            quality = self._timed(quality, cost, len(log))[0]
        quality = self.qualities_of(quality, len(log))
        reference = logs.qualities(quality, state.names, len(log))[:, state.names.index(name)]
        n_partial = int(np.isnan(np.column_stack([log.quality, reference])).any(axis=1).sum())
        if n_partial:
            raise InvalidInputError(
                f"quality must be known of {name} and of all models of the pool in rows that are to prove something; "
                f"it is missing in {n_partial} of {len(log)} rows. Leave them out."
            )
        limit = float(max_loss or 0.0)
        chosen = Frontier.from_evidence([state.evidence], every_point=True)
        certificate = certify(
            chosen.on([self._evidence_on(new, reference)]),
            max_loss=limit,
            confidence=confidence,
            duplicates=duplicates,
            measure="mean",
            largest=1.0,
        )
        if certificate.point is None:
            raise InvalidInputError(
                f"max_loss={limit:g} cannot be proved on these {certificate.n_rows} rows: the best setting loses up to "
                f"{certificate.failed_bound:.4f} against {name}. Give more rows, or allow a larger loss."
            )
        other = copy.copy(self)
        other._set_policy(state.policy.at(int(certificate.point.thresholds[0])))
        other.certificate_ = replace(certificate, against=name, loss=self.quality_name)
        return other

    def evidence_on(
        self, X: Any, quality: Any, cost: Any = None, answers: Any = None, evidence: Any = None
    ) -> Evidence:
        """Every row of a log under every operating point, as ``evidence_of`` returns it; arguments as in ``fit``."""
        return self._evidence_on(self.read_log(X, quality, cost, answers, evidence))

    def _evidence_on(self, new: NewLog, reference: Floats | None = None) -> Evidence:
        """Every row of a log under every point, beside the quality of a model that points are compared with."""
        state = self._fitted()
        walks = [self.walk(new, point) for point in range(len(state.policy))]
        cost, quality = (
            np.column_stack([getattr(one, name) for one in walks]) for name in ("cost", "quality")
        )
        labels = new.log.quality if reference is None else np.column_stack([new.log.quality, reference])
        costs = None if state.resources is None else np.stack([one.costs for one in walks], axis=1)
        return state.evidence_on(new.keys, labels, cost, np.nan_to_num(quality), reference, costs)

    def _with_bill(self, new: NewLog, budget: Any, n_next: int, confidence: float, duplicates: str) -> Self:
        state = self._fitted()
        if state.resources is not None:
            wanted = state.resources.check_budget("budget", budget)
            within_budgets(state.policy, state.resources, wanted)  # refuses budgets that nothing keeps to
            held_out = CostBounds.on_held_out(self._evidence_on(new), state.evidence, duplicates, n_next)
            proved, kept_to = self._kept(held_out.evidence, held_out.n_rows, n_next, wanted, confidence)
            other = copy.copy(self)
            other._set_policy(proved)
            other.certificate_ = CostCertificate(
                wanted, kept_to, float(confidence), held_out.n_rows, int(n_next)
            )
            return other
        bounds = CostBounds.on_held_out(self._evidence_on(new), state.evidence, duplicates, n_next)
        other = copy.copy(self)
        other._set_policy(self._bounded(bounds, budget, confidence))
        bound = bounds.bound(other.policy_, confidence) + state.mixing_cost(other.policy_)
        other.certificate_ = CostCertificate(
            float(budget), bound, float(confidence), bounds.n_rows, int(n_next)
        )
        return other

    def bill(self, n_rows: int, confidence: float = 0.95) -> Any:
        """Upper prediction bound of the total cost of the next ``n_rows`` rows, from the rows of the fit.

        Of several resources a dict, in which each bound has the confidence by itself.
        """
        check_confidence(confidence)
        n_rows = check_count("n_rows", n_rows)
        if (resources := self._resources) is not None:
            evidence, n_known = self.state_.evidence, len(self.state_.log)
            each = [
                CostBounds(evidence.of_resource(number), n_known, n_rows).bound(self.policy_, confidence)
                for number in range(len(resources.names))
            ]
            return resources.named(n_rows * np.array(each))
        bounds = CostBounds(self._fitted().evidence, len(self.state_.log), n_rows)
        bound = bounds.bound(self.policy_, confidence)
        return n_rows * (bound + self.state_.mixing_cost(self.policy_))

    def explain(
        self, X: Any = None, quality: Any = None, cost: Any = None, answers: Any = None, evidence: Any = None
    ) -> Any:
        """Explain what the router chooses from and what is expected of it; of rows, what is asked about each, and why.

        Parameters
        ----------
        X : rows as in ``fit``, optional
            Rows to explain.
        quality, cost, answers, evidence : array-like of shape (n_rows, n_models), optional
            A log of these rows, as in ``replay``. Without it, only the first model to ask is named.

        Returns
        -------
        str, or list of ModelExplanation
            A text, or an explanation of each row, which is printed as text.
        """
        state, policy = self._fitted(), self.policy_
        if X is not None:
            given = {"quality": quality, "cost": cost, "answers": answers, "evidence": evidence}
            new, groups = self.unasked(X), state.groups
            if self.cutoff is not None and quality is not None:
                given["quality"], given["cost"], _ = self._timed(quality, cost, len(X))
                cost = given["cost"]
            given["quality"] = self.qualities_of(given["quality"], len(X))
            log = logs.logged_parts(given, state.names, len(X), state.resources, groups)
            paid = logs.split_cost(cost, state.names, groups, state.column_prices, len(X))[1]
            sessions = list(enumerate(self.sessions(X, new)))
            if log:
                parts = [{name: part[row] for name, part in log.items()} for row, _ in sessions]
                return [self._explained(one, parts[row], new.log, row, paid[row]) for row, one in sessions]
            for row, session in sessions:
                self._buy_columns(session, new.log, row, paid[row])
            expected, resources = self._first(new)[1], state.resources
            if resources is not None:
                summed = resources.columns(expected)["cost"].tolist()
                return [
                    replace(session.explanation(), cost=summed[row], costs=resources.named(expected[row]))
                    for row, session in sessions
                ]
            return [replace(session.explanation(), cost=float(expected[row])) for row, session in sessions]
        best, in_force = state.best_single, policy.in_force
        rules, share = [state.rules[point] for _, point in in_force], policy.share
        words = rules[0]
        if len(in_force) > 2:
            by_rule = dict.fromkeys(rules, 0.0)
            for rule, (of_point, _) in zip(rules, in_force, strict=True):
                by_rule[rule] += of_point
            words = ", ".join(f"{rule} for {of_rule:.0%} of rows" for rule, of_rule in by_rule.items())
            words = f"a mix of {len(in_force)} points: {words}"
        elif share > 0.0 and rules[0] == rules[1]:
            words = f"{words}; {1 - share:.0%} of rows follow the cheaper of two operating points"
        elif share > 0.0:
            words = f"{words} for {1 - share:.0%} of rows, else {rules[1]}"
        if 0.0 < share < 1.0:
            words = f"{words}, by their keys, which decide about {self.share_by_lot_:.0%} of rows"
        return (
            f"expected quality {self.expected_score_:.3f} for {amount_text(self.expected_cost_, digits=3)} a row "
            f"({words}); {state.names[best]} alone has {state.single_quality[best]:.3f} for "
            f"{amount_text(self.single_cost(best), digits=3)}"
        )

    def _buy_columns(self, session: ModelSession, rows: Log, row: int, paid: Floats) -> None:
        """Give a session the columns that it buys next, from a row that has all of them."""
        while (wanted := session.next_purchase) is not None and wanted.columns:
            assert rows.columns is not None
            assert rows.cells is not None
            group = rows.columns.names.index(wanted.name)
            session.give(rows.cells[row, rows.columns.groups[group]], float(paid[group]))

    def _explained(
        self, session: ModelSession, log: Mapping[str, Any], rows: Log, row: int, paid: Floats
    ) -> ModelExplanation:
        """Explain one row, given what the models returned."""
        names, quality = self._fitted().names, None
        self._buy_columns(session, rows, row, paid)
        while session.next_purchase is not None:
            place = names.index(session.next_purchase.name)
            answer, cost, evidence = (
                log[name][place] if name in log else None for name in ("answers", "cost", "evidence")
            )
            if rows.cutoff is not None:
                _play(session, float(log["quality"][place]), float(log["cost"][place]))
            elif self._resources is not None and cost is not None:
                session.give(answer, None if np.isnan(cost).any() else self.named(cost), evidence)
            else:
                session.give(answer, None if cost is None or np.isnan(cost) else float(cost), evidence)
            self._buy_columns(session, rows, row, paid)
        if rows.cutoff is not None:
            quality = 0.0 if session.model is None else 1.0 - rows.second * session.cost
        elif "quality" in log and session.model is not None:
            quality = float(log["quality"][names.index(session.model)])
        return session.explanation(quality)


def _play(session: ModelSession, quality: float, seconds: float) -> None:
    """Report a logged run to a session: solved within its limit, or not."""
    wanted = session.next_purchase
    assert wanted is not None
    assert wanted.limit is not None
    if quality > 0.0 and seconds <= wanted.limit:
        session.give(None, seconds)
    else:
        session.fail(min(seconds, wanted.limit))
