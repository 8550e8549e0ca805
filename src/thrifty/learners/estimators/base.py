"""Base classes of estimators with a chain: answers, operating points, ``with_full``, plots, and steps of every fit."""

import copy
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from typing import Any, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import r2_score
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from thrifty._moved import FormerName
from thrifty._version import __version__
from thrifty.arrays import Floats, Ints, Labels
from thrifty.engine.evidence.budgets import (
    CostBounds,
    certified_within,
    mixes_up_to,
    within_budget,
    within_budgets,
)
from thrifty.engine.evidence.certificate import Certificate, certify, certify_sampled, recall_bound
from thrifty.engine.evidence.collect import evidence_of, training_fingerprints
from thrifty.engine.evidence.evidence import Evidence, Means
from thrifty.engine.evidence.frontier import Frontier
from thrifty.engine.evidence.hypothesis_tests import (
    Sampled,
    check_confidence,
    empirical_risk_within,
    trials_of,
)
from thrifty.engine.evidence.measures import check_floors, recalls_at, score_interval
from thrifty.engine.evidence.thresholds import convex_hull, on_hull, path_to_full
from thrifty.engine.full.crossfit import CrossFittedFull, TrainingRows, cross_fit_full
from thrifty.engine.full.model import EstimatorFull, FullModel, as_full_model
from thrifty.engine.plots import (
    Purchased,
    as_html,
    draw_in_force,
    draw_purchases,
    draw_route,
    draw_tree,
    html_table,
    purchase_tree,
    purchased,
    shortened,
)
from thrifty.engine.prices.billing import PriceList, Resources, check_amount
from thrifty.engine.prices.prices import Prices, check_price_list, resolve_prices
from thrifty.engine.table.columns import Levels, has_dates
from thrifty.engine.table.table import Table
from thrifty.engine.tasks.classes import classification_of
from thrifty.engine.tasks.ranking import RankingTask
from thrifty.engine.tasks.regression import RegressionTask, default_regressor, read_targets, regression_of
from thrifty.engine.tasks.task import Task
from thrifty.engine.walk.buying import BuyingMixin, refuse_prices_beside_cap
from thrifty.engine.walk.chain import Chain, Explanation, explain_rows
from thrifty.engine.walk.policy import SLACK, Policy, distinct_thresholds, later_places, route_by
from thrifty.engine.walk.stage import nodes_of
from thrifty.errors import InvalidInputError, InvalidParameterError, NothingSavedWarning, OtherVersionWarning
from thrifty.learners.estimators.checks import check_goal, validated
from thrifty.learners.estimators.incomplete import chance_of_all, read_bought
from thrifty.learners.trees.full import TreesClassifier, TreesRegressor
from thrifty.progress import Progress, silent

_LEVEL = 0.95
_USUAL_FOLDS = 5
_MAX_CUTS = 401
"""Thresholds of a single gate that are tried for a budget to be held: a quarter of a per cent of the rows apart."""

AnyTask = TypeVar("AnyTask", bound=RegressionTask)


def _spread_of(share: float) -> float:
    """Standard deviation of an event that has a share."""
    return float(np.sqrt(max(share * (1 - share), 1e-12)))


def unwrap_chain(model: FullModel | Chain, prices: PriceList, task: Task) -> FullModel | Chain:
    """The chain that a full model is, which must have the same task and prices; other models are unchanged."""
    inner = chain_behind(model)
    if inner is None:
        return model
    theirs = inner.price_list
    if inner.task != task or theirs.n_features != prices.n_features:
        raise InvalidInputError(
            f"full is a chain for {theirs.n_features} features and {_answers_of(inner.task)}; here there are "
            f"{prices.n_features} features and {_answers_of(task)}. Both must agree."
        )
    if not theirs.is_same(prices):
        raise InvalidInputError(
            "full is itself a chain, and its prices differ from those given here. One route has one price list: give "
            "both the same."
        )
    if inner.policy.explore:
        raise InvalidInputError(
            "full is itself a chain, and must not explore: the key of a row draws once how far it goes on. Take it "
            "at(budget=...) without explore, and let the system in front of it explore."
        )
    return inner


def chain_behind(full: Any) -> Chain | None:
    """Chain of a full model that is one, by itself or inside an estimator; None for other models."""
    inner = getattr(unwrap_frozen(full), "chain_", full)
    return inner if isinstance(inner, Chain) else None


def task_of_route(task: AnyTask, full: Any, *same: str) -> AnyTask:
    """Task of a chain used as the full model, where some attributes are the same; else the task itself.

    One route has one unit: losses of a chain are in units of its own spread.
    """
    behind = chain_behind(full)
    theirs = None if behind is None else behind.task
    is_same = isinstance(theirs, type(task)) and all(getattr(theirs, k) == getattr(task, k) for k in same)
    return theirs if is_same else task  # type: ignore[return-value]  # of the same type


def _answers_of(task: Task) -> str:
    """Answers of a task, for error messages."""
    if len(task.classes):
        return f"the classes {task.classes.tolist()}"
    return f"numbers, by the {task.loss_name}"


def unwrap_frozen(full: Any) -> Any:
    """Unwrap a ``FrozenEstimator`` or ``EstimatorFull``; any other object is returned unchanged."""
    return full.estimator if isinstance(full, EstimatorFull | FrozenEstimator) else full


class PickledWithVersion:
    """Estimator whose pickles name the version of thrifty, as those of scikit-learn's own estimators do."""

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()  # that of scikit-learn's BaseEstimator
        return {**state, "_thrifty_version": __version__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        version = (state := dict(state)).pop("_thrifty_version", "0.3.0 or an earlier one")
        if version != __version__:
            warnings.warn(
                f"this {type(self).__name__} was pickled by version {version} of thrifty, and {__version__} reads it: "
                f"it may fail or answer otherwise. Fit again, or keep systems in files of `save`, which later versions "
                f"read.",
                OtherVersionWarning,
                stacklevel=2,
            )
        super().__setstate__(state)  # type: ignore[misc]  # scikit-learn's


class ChainEstimator(PickledWithVersion, BuyingMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Base class of estimators that predict with a ``chain_``; subclasses implement ``fit``.

    ``_learned`` is the chain with all operating points of the fit, ``chain_`` the same at the point in force, and
    ``evidence_`` results of the chain on the rows that operating points are evaluated on.
    """

    chain_: Chain
    evidence_: Evidence
    certificate_: Certificate | None
    _learned: Chain

    _accepts_missing = False
    _accepts_sparse = True
    _accepts_several = False
    # Whether text, categories and dates are read as they are.
    _accepts_levels = False
    # Whether purchases may cost several resources.
    _accepts_resources = False
    # Prices where neither ``feature_costs`` nor ``prices`` is given.
    _default_prices = Prices()
    _levels: Levels | None = None

    full: Any
    feature_costs: Any
    prices: Any
    random_state: Any

    # -- answers -------------------------------------------------------------------------------

    def predict(self, X: Any, row_key: Any = None) -> Labels:
        """Predict each row: with the stage at which it stops, or with the full model.

        Parameters
        ----------
        X : table of shape (n_samples, n_features)
            Rows with the columns of the fit.
        row_key : str or array-like of shape (n_samples,), optional
            Keys of the rows, or the name of the column of X that holds them. Where two operating points are mixed, the
            key decides which of them a row follows: the same key takes the same route in one table, in parts of it and
            alone. Without it, keys are the index of a pandas data frame, else the numbers of the rows.
        """
        reader = self._reader(X, row_key)
        return self.chain_.task.answers(self.chain_.answer(reader))

    def route(self, X: Any, row_key: Any = None) -> Ints:
        """Stage that answers each row, from 0; ``n_stages`` is the full model, which is not called."""
        reader = self._reader(X, row_key)
        return self.chain_.walk(reader).route

    def cost(self, X: Any, row_key: Any = None) -> Any:
        """Cost of each row; of several resources a data frame with one column for each.

        The full model is not called. ``row_key`` as in ``predict``.
        """
        return self.chain_.cost(self._reader(X, row_key))

    def _served(self) -> Chain:
        check_is_fitted(self)
        return self.chain_

    def explain(self, X: Any, row_key: Any = None) -> list[Explanation]:
        """Explain rows: purchases in their order, the answer that each stage would have given, and why a row stopped.

        The full model is asked about the rows that reach it. ``print(clf.explain(X)[0])`` is made to be read.
        ``row_key`` as in ``predict``.
        """
        reader = self._reader(X, row_key)
        return explain_rows(self.chain_, reader, self._names())

    # -- operating points ----------------------------------------------------------------------

    @property
    def frontier_(self) -> Frontier:
        """Frontier of the operating points on the rows of ``evidence_``; every row counts once, without weights."""
        check_is_fitted(self)
        return Frontier.from_evidence([self._evidence()], task=self.chain_.task)

    @property
    def expected_cost_(self) -> Any:
        """Mean cost of the operating point in force, on the rows of ``evidence_``; of several resources a dict."""
        resources = self._resources
        if resources is None:
            return self._expected()[0]
        policy = self.chain_.policy
        if policy.costs is None:  # of a single gate, whose points were not measured
            policy = replace(policy, costs=self._evidence().mean_costs(policy.thresholds))
        costs: dict[str, float] = resources.named(policy.expected_costs)
        return costs

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
        policy = self.chain_.policy
        return score_interval(self._evidence().explored(policy.explore), policy, self.expected_score_, _LEVEL)

    @property
    def expected_cost_interval_(self) -> Any:
        """95 % interval of the mean cost of new rows at the operating point in force; of several resources a dict.

        From the rows of ``evidence_``, which were predicted by other copies of the stages than those that serve: the
        interval allows for that.
        """
        check_is_fitted(self)
        evidence = self._evidence().explored(self.chain_.policy.explore)
        folds = getattr(self, "cv", None)
        copies = int(folds) if isinstance(folds, Integral) else _USUAL_FOLDS
        policy, resources = self.chain_.policy, self._resources
        if resources is None:
            return CostBounds(evidence, evidence.n_units).interval(policy, _LEVEL, copies)
        return {
            name: CostBounds(evidence.of_resource(k), evidence.n_units).interval(policy, _LEVEL, copies)
            for k, name in enumerate(resources.names)
        }

    def at(
        self,
        *,
        budget: Any = None,
        max_loss: float | Mapping[Any, float] | None = None,
        mix: bool = True,
    ) -> Self:
        """Return the same fit at another operating point, by the rows of the fit; nothing is refitted.

        What is met on average on the rows of the fit is an estimate for new rows; ``certified`` proves it.

        Parameters
        ----------
        budget : float, or dict of resource to float, optional
            Largest mean cost per row; less where more would not raise the expected score.
        max_loss : float, or dict of label to float, optional
            Largest share of all rows that is answered worse than by the full model; by label, of the rows of that
            class.
        mix : bool, default=True
            Whether the keys of rows may decide between two points, so that the whole budget is spent: among rows of
            equal gate scores, or among more where that scores higher. Without, it is the dearest point within the
            budget.
        """
        goal = check_goal(budget=budget, max_loss=max_loss)
        other = self._without_certificate()
        if "budget" in goal:
            other._spend(goal["budget"], mix=mix)
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
        budget: Any = None,
        min_recall: Mapping[Any, float] | None = None,
        confidence: float = 0.95,
        duplicates: str = "refuse",
        measure: str = "share",
        largest: float | None = None,
        bought: Any = None,
        propensity: Any = None,
        sensitivity: float = 1.0,
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
        budget : float, or dict of resource to float, optional
            What the mean cost of new rows is to be at most. Budgets of several resources are all kept with the
            confidence asked for, without a correction for their number; so are ``max_loss`` and budgets together, at
            one point that is fixed by the rows of the fit.
        min_recall : dict of label to float, optional
            With ``max_loss``, and budgets or none: least share of the rows of a class to be answered with it. All
            promises are kept together, at one point as above.
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
        bought, propensity : array or data frame, or "known", optional
            What the rows had bought, and with which probabilities, as in ``fit`` of the ``Budgeted*`` estimators. A row
            that bought everything that the system and the full model read counts 1 / probability times; the others
            are not compared with rows of the fit. Probabilities that are estimated make it approximate.
        sensitivity : float, default=1.0
            Factor by which the odds of having bought everything may differ from these probabilities. The
            certificate has the largest one up to which it holds.
        """
        check_is_fitted(self)
        if min_recall is not None and max_loss is None:
            raise InvalidParameterError(
                "min_recall",
                f"is proved together with max_loss; got {min_recall!r} alone. Give max_loss too.",
            )
        is_together = max_loss is not None and (budget is not None or min_recall is not None)
        goal = check_goal(max_loss=max_loss, budget=None if is_together else budget)
        if "max_loss" in goal and (cap := vars(self).get("cap_")) is not None:
            raise InvalidInputError(
                f"max_loss compares with the full model, which the cap of {cap!r} keeps rows from. Certify a budget."
            )
        confidence = check_confidence(confidence)
        fitted_on, sample = self._evidence(), None
        if bought is None and (propensity is not None or sensitivity != 1.0):
            raise InvalidParameterError(
                "bought", "must be given with propensity or sensitivity: they are about it."
            )
        if bought is not None:
            X, y, sample = self._sampled(X, y, bought, propensity)
        new = evidence_of(self, self._reader(X), y)
        if sample is not None and "budget" in goal:
            raise InvalidParameterError(
                "budget",
                "cannot be proved on rows that did not buy everything. Certify max_loss, or give complete rows.",
            )
        other = self._without_certificate()
        if is_together and (sample is not None or measure != "share"):
            raise InvalidParameterError(
                "max_loss",
                "together with a budget or min_recall takes complete rows and measure='share'. Certify one of them.",
            )
        if "budget" in goal:
            policy, resources = self._learned.policy, self._resources
            if resources is not None:
                wanted = resources.check_budget("budget", goal["budget"])
                each = [new.of_resource(k) for k in range(len(resources.names))]
                of_resources = [CostBounds.on_held_out(of_one, fitted_on, duplicates) for of_one in each]
                if policy.is_measured:
                    within_budgets(policy, resources, wanted)  # refuses budgets that nothing keeps to
                    mixes = mixes_up_to(policy, resources.limits(wanted))
                else:
                    cuts = _cuts(fitted_on)
                    mixes = [cuts.at(place) for place in range(len(cuts))]
                proved = certified_within(mixes, of_resources, resources, wanted, confidence)
                if policy.is_measured:
                    other.chain_ = self._learned.at(proved)
                else:
                    other._go_to(proved.thresholds[proved.lower])
                return other
            if not policy.is_measured:
                policy = _cuts(fitted_on)
            bounds = CostBounds.on_held_out(new, fitted_on, duplicates)
            other._mix(bounds.within(policy, goal["budget"], confidence, fitted_on))
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
        if is_together:
            certificate = self._certified_together(
                chosen, new, goal["max_loss"], budget, min_recall, confidence, duplicates
            )
            return other._with_certificate(certificate, goal["max_loss"], alone=alone)
        how = {"max_loss": goal["max_loss"], "confidence": confidence, "measure": measure, "largest": largest}
        if sample is None:
            certificate = certify(chosen.on([new]), duplicates=duplicates, **how)
        else:
            certificate = certify_sampled(chosen.on([new]), sample, sensitivity=sensitivity, **how)
        return other._with_certificate(certificate, goal["max_loss"], alone=alone)

    def _certified_together(
        self,
        chosen: Frontier,
        new: Evidence,
        max_loss: Any,
        budget: Any,
        min_recall: Any,
        confidence: float,
        duplicates: str,
    ) -> Certificate:
        """Certificate of a loss, and of budgets and recalls, at one point, each tested at the full level.

        The point is fixed by the rows of the fit: the one with most room to all limits, in standard errors. To be wrong
        about any promise, the test of that very promise must err (an intersection-union test).
        """
        resources, path, points = self._resources, chosen.evidence[0], chosen.thresholds
        classes, parts, tested = self._learned.task.classes, [path], [new]
        if min_recall is not None and (not len(classes) or new.right is not None):
            raise InvalidParameterError(
                "min_recall",
                f"is proved of classes that are right or wrong; got {min_recall!r} with numbers, or with a loss. Leave "
                f"it out.",
            )
        floors = {} if min_recall is None else check_floors(min_recall, classes)
        if budget is None:
            limits, parts, tested = np.zeros(0), [], []
        elif resources is None:
            limits = np.array([check_amount("budget", budget)])
        else:
            each = range(len(resources.names))
            limits = resources.limits(resources.check_budget("budget", budget))
            parts, tested = [path.of_resource(k) for k in each], [new.of_resource(k) for k in each]
        limit = min(max_loss.values()) if isinstance(max_loss, Mapping) else max_loss
        lost = chosen.losses_against_full() / chosen.n_rows
        room = (limit - lost) / _spread_of(limit)
        for most, part in zip(limits, parts, strict=True):
            paid = np.array([part.at_point(point)[1] for point in points])
            room = np.minimum(
                room, (most - paid.mean(axis=1)) / np.maximum(paid.std(axis=1), 1e-9 * paid.max())
            )
        if floors:
            recalls = recalls_at(path, points, len(classes))
            for number, floor in floors.items():
                share = np.sqrt(np.mean(path.strata == number))
                room = np.minimum(room, share * (recalls[:, number] - floor) / _spread_of(floor))
        point = points[[int(np.argmax(room))]]
        one = Frontier.from_evidence([replace(path, points=point)], against_full=True, every_point=True)
        certificate = certify(
            one.on([replace(new, points=point)]),
            max_loss=max_loss,
            confidence=confidence,
            duplicates=duplicates,
        )
        bounds = [
            CostBounds.on_held_out(part, self._evidence(), duplicates).bound(Policy.of(point[0]), confidence)
            for part in tested
        ]
        trials = trials_of(new.rows, self._evidence().known_rows, new.n_units, duplicates)
        found = {
            classes.tolist()[number]: recall_bound(new, point[0], trials, number, confidence)
            for number in floors
        }
        over = [
            f"a mean cost of up to {bound:.6g}"
            for bound, most in zip(bounds, limits, strict=True)
            if bound > most * (1 + SLACK)
        ]
        over += [
            f"a recall of {label!r} of {bound:.4f} or more"
            for (label, bound), floor in zip(found.items(), floors.values(), strict=True)
            if bound < floor
        ]
        if certificate.is_fallback or certificate.point is None or over:
            shown = over[0] if over else f"a loss of up to {certificate.failed_bound:.4f}"
            wanted = {"a budget": budget, "min_recall": min_recall}
            others = " and ".join(f"{name} of {amount!r}" for name, amount in wanted.items() if amount)
            raise InvalidParameterError(
                "max_loss",
                f"of {max_loss!r} and {others} cannot be shown together with a confidence of {confidence:g}: the point "
                f"with most room to all has {shown}. Ask for less, or give more rows.",
            )
        cost: Any = None
        if budget is not None:
            cost = bounds[0] if resources is None else resources.named(np.array(bounds))
        return replace(certificate, cost=cost, recalls=found or None)

    def _sampled(self, X: Any, y: Any, bought: Any, propensity: Any) -> tuple[Table, Labels, Sampled | None]:
        """Rows that bought everything, their labels, and what they are a sample of; all rows where all did."""
        chain, table, labels = self._learned, Table.of(X), np.asarray(y)
        prices = chain.price_list
        if isinstance(chain.task, RankingTask):
            raise InvalidParameterError(
                "bought", "is for classes and numbers: documents of a query count together."
            )
        table = table.for_fit(validated(self, table, reset=False, completes=True))
        cells = read_bought(bought, propensity, table, len(table), prices)
        if cells is None:
            return table, labels, None
        read = np.flatnonzero(chain.bought_by_place.any(axis=0))
        read = np.union1d(read, prices.read_by_full).astype(np.intp)
        target = chain.task.encode("y", labels, len(table))
        has_all, chance = chance_of_all(table.numbers, target, chain.task, cells, read, prices)
        rows = np.flatnonzero(has_all)
        if not len(rows):
            raise InvalidInputError(
                "no row bought everything that the system and the full model read, so nothing can be compared with "
                "the full model. Let a share of the rows buy everything: at(budget=..., explore=...)."
            )
        sample = Sampled(len(table), labels[~has_all], chance[rows], approximate=cells.propensity is None)
        return table.take(rows), labels[rows], sample

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

    def _measured_on(self, means: Means, n_rows: int, costs: Floats | None) -> None:
        """Take costs and scores of the operating points from other rows: of the policy's points, then the evidence's.

        ``costs`` are those in each of several resources.

        The evidence keeps its rows. By how much their mean scores exceed those of the other rows is its optimism.
        """
        evidence, policy, in_force = self._evidence(), self._learned.policy, self.chain_.policy
        n_points = len(policy)
        policy = replace(policy, cost=means.cost[:n_points], score=means.score[:n_points])
        if costs is None:
            kept = convex_hull(policy.cost, policy.score)
        else:
            policy = replace(policy, costs=costs[:n_points])
            kept = on_hull(costs[:n_points], policy.score)
            kept = kept[np.argsort(policy.cost[kept], kind="stable")]
        self._learned = self._learned.at(policy[kept].at(0))
        thresholds, plain = replace(evidence, optimism=None).every_point()
        spread = np.array([np.std(evidence.at_point(point)[2]) for point in thresholds])
        optimism = np.column_stack([plain.score - means.score[n_points:], spread / np.sqrt(n_rows)])
        self.evidence_ = replace(evidence, optimism=optimism)
        budget = getattr(self, "budget", None)
        if budget is None:
            self._go_to(in_force.thresholds[in_force.lower], evidence.weights)
        else:
            self._spend(budget)

    # -- moving ----------------------------------------------------------------------------------

    def _without_certificate(self) -> Self:
        """A copy that may move: what was proved is about the point that was in force."""
        check_is_fitted(self)
        other = copy.copy(self)
        other.certificate_ = None
        return other

    @property
    def _resources(self) -> Resources | None:
        """Resources that purchases cost, where there are several."""
        check_is_fitted(self)
        return self.chain_.price_list.resources

    def _spend(self, budget: Any, *, mix: bool = True) -> None:
        """Go to the point, or mix, that spends a budget on the rows of the fit, as far as that helps."""
        if (resources := self._resources) is not None:
            wanted = resources.check_budget("budget", budget)
            self.chain_ = self._learned.at(within_budgets(self._learned.policy, resources, wanted, mix=mix))
            return
        budget = check_amount("budget", budget)
        self._mix(within_budget(self._learned.policy, budget, getattr(self, "evidence_", None), mix=mix))

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
                costs = None if evidence.costs is None else evidence.mean_costs(thresholds[None])
                score = score - evidence.optimism_at(thresholds[None])[:, 0]
                other = replace(other, cost=cost, score=score, costs=costs)
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
            costs = np.array([[of_one.cost_by_place[-1] for of_one in whole.by_resource]])
            policy = replace(
                policy,
                cost=cost,
                score=np.array([self._evidence().full_score]),
                costs=costs if whole.by_resource else None,
            )
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
        shares, points = zip(*policy.in_force, strict=True)
        means = self._evidence().weighted_means(policy.thresholds[list(points)])
        cost, quality = (
            float(sum(share * mean for share, mean in zip(shares, of_points, strict=True)))
            for of_points in means
        )
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

    # -- the same fit, changed -----------------------------------------------------------------

    def with_full(self, full: Any, X: Any = None) -> Self:
        """Return the same fit in front of another full model, in any fitted form: nothing is refitted.

        Operating points stay as they were evaluated with the old one; what was proved against it is forgotten.

        Parameters
        ----------
        full : fitted classifier, FrozenEstimator, callable, probabilities or Chain
            The new full model, which reads the same columns as the old one.
        X : table, optional
            Where ``full`` holds probabilities: the rows that they belong to, in their order.
        """
        check_is_fitted(self)
        prices = self.chain_.price_list
        names = getattr(self, "feature_names_in_", None)
        read = columns_of(full, prices)
        read = np.arange(prices.n_features) if read is None else read
        reader = None if X is None else self._reader(X)
        numbers = None if reader is None else reader.block(np.arange(reader.n_samples), read)
        model = as_full_model(
            full, self.chain_.task, len(read), names=None if names is None else names[read], numbers=numbers
        )
        other = copy.copy(self)
        # What was measured against the former full model is forgotten.
        other.certificate_ = None
        if getattr(other, "evidence_", None) is not None:
            other.evidence_ = replace(other.evidence_, full_quality=None, full_scores=None)
        if training_fingerprints(full) is not None and hasattr(other, "evidence_"):
            other.evidence_ = replace(other.evidence_, seen=training_fingerprints(full, other))
        other._change_chain(lambda chain: chain.with_full(unwrap_chain(model, prices, chain.task)))
        return other

    def with_prices(self, prices: Mapping[Any, Any]) -> Self:
        """Return the same fit with other prices by row; nothing is refitted, and operating points stay as they are.

        Parameters
        ----------
        prices : dict
            As ``by_row`` of ``thrifty.Prices``, for some of the purchases that are not free: the column that holds the
            price of each row, or a function of the columns that are free. A file keeps no functions; what is loaded
            from it is given them here.
        """
        check_is_fitted(self)
        refuse_prices_beside_cap(self, prices)
        other = copy.copy(self)
        other._change_chain(lambda chain: chain.with_prices(prices))
        return other

    target_name_ = FormerName("record_.target")
    row_key_name_ = FormerName("record_.row_key")

    # -- plots, and pages of notebooks --------------------------------------------------------

    def plot_route(self, row: Any, ax: Any = None) -> Any:
        """Draw the way of one row: what it pays at each stage, and what that stage would answer.

        The full model is asked if the row reaches it.

        Parameters
        ----------
        row : table with one row, or array of shape (n_features,)
            The row.
        ax : matplotlib axes, optional
            Where to draw; new ones by default.

        Returns
        -------
        matplotlib axes
        """
        table = row if Table.of(row).kind or np.ndim(row) == 2 else np.asarray(row)[None, :]
        if np.shape(table)[0] != 1:
            raise InvalidInputError(
                f"plot_route draws the way of one row; got {np.shape(table)[0]}. Write X[3:4] for the row of number 3."
            )
        return draw_route(self.explain(table)[0], ax)

    def plot_purchases(self, X: Any = None, ax: Any = None) -> Any:
        """Draw how many rows make each purchase, at the operating point in force.

        Parameters
        ----------
        X : table, optional
            Rows to count; by default the rows of ``evidence_``.
        ax : matplotlib axes, optional
            Where to draw; new ones by default.

        Returns
        -------
        matplotlib axes
        """
        if X is None:
            return draw_purchases(self._purchased(self._shares()), ax)
        chain, reader = self.chain_, self._reader(X)
        place = chain.places(chain.walk(reader))
        shares = np.bincount(place, minlength=len(chain.bought_by_place)) / len(place)
        return draw_purchases(self._purchased(shares), ax)

    def plot_tree(self, X: Any, ax: Any = None) -> Any:
        """Draw what rows buy one after the other at the operating point in force, where their ways part, and stop.

        Parameters
        ----------
        X : table
            Rows that go these ways.
        ax : matplotlib axes, optional
            Where to draw; new ones by default.

        Returns
        -------
        matplotlib axes
        """
        return draw_tree(*purchase_tree(self.chain_, self._reader(X), self._names()), ax)

    def _purchased(self, shares: Floats) -> list[Purchased]:
        chain = self.chain_
        return purchased(chain.price_list, chain.bought_by_place, shares, self._names())

    def _names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", [f"x{place}" for place in range(self.n_features_in_)])
        return list(map(str, names))

    def _shares(self) -> Floats:
        """Shares of the rows of the evidence that are answered at each place, shape (n_stages + 1,)."""
        evidence = self._evidence()
        chain = self.chain_
        if chain.behind is not None or chain.has_forks:
            missing = "what each row buys" if chain.has_forks else "what rows buy in the second one"
            kind = "a graph of purchases" if chain.has_forks else "a chain before a chain"
            raise InvalidInputError(
                f"the evidence of {kind} does not hold {missing}. Give rows: plot_purchases(X)."
            )
        policy, n_places = chain.policy, chain.n_stages + 1
        shares = np.zeros(n_places)
        for weight, point in policy.in_force:
            route = route_by(evidence.gate, policy.thresholds[point])
            shares += weight * np.bincount(route, minlength=n_places) / len(route)
        return shares @ later_places(policy.explore, n_places)

    def _repr_html_inner(self) -> str:
        return super()._repr_html_inner() + self._page()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += self._page()
        return bundle

    def _page(self) -> str:
        """Frontier and stages; nothing before the fit, nor where a file did not keep the evidence."""
        if "chain_" not in vars(self):
            return ""
        try:
            parts = [self._frontier_as_html(), self._stages_as_html()]
        except InvalidInputError:
            return ""
        style = "display:flex;flex-wrap:wrap;gap:12px 24px;margin:8px 0;font-size:12px"
        return f'<div style="{style}">{"".join(parts)}</div>'

    def _frontier_as_html(self) -> str:
        frontier, (cost, score) = self.frontier_, self._expected()
        score = -score if frontier.is_priced else score

        name = self.chain_.task.quality_name

        def draw(ax: Any) -> None:
            frontier.plot(ax)
            title = f"in force (dot): {score:.4g} for {cost:.4g} per row"
            draw_in_force(ax, cost, score, title=title)

        return as_html(draw, f"{name} against mean cost per row")

    def _stages_as_html(self) -> str:
        chain, names = self.chain_, self._names()
        if chain.behind is not None:
            return f"<div>{chain.n_stages} stages, the last {chain.behind.n_stages} in a chain of their own</div>"
        if chain.has_forks:
            n_nodes = sum(len(nodes_of(stage)) for stage in chain.stages)
            return f"<div>{chain.n_stages} stages of {n_nodes} nodes: rows buy in orders of their own</div>"
        shares = self._shares()
        held, lines = np.zeros(len(names), dtype=bool), []
        for place, paid in enumerate(chain.cost_by_place.tolist()):
            new = [names[column] for column in np.flatnonzero(chain.bought_by_place[place] & ~held)]
            held |= chain.bought_by_place[place]
            called = f"stage {place}" if place < chain.n_stages else "full model"
            lines.append((f"{called}: {shortened(new)}", f"{paid:.4g}", f"{shares[place]:.1%}"))
        return f"<div>{html_table(('buys', 'paid by then', 'answers'), lines)}</div>"

    # -- for subclasses --------------------------------------------------------------------------

    def _task_of(self, y: Any, weight: Floats) -> Task:
        """Task for the targets ``y``, checked."""
        raise NotImplementedError

    def _change_chain(self, change: Any) -> None:
        self._learned, self.chain_ = change(self._learned), change(self.chain_)

    def _reader(self, X: Any, row_key: Any = None) -> Table:
        if "chain_" not in vars(self):
            check_is_fitted(self)
        table = Table.of(X, row_key, getattr(self, "feature_names_in_", None))
        return table.with_numbers(validated(self, table, reset=False))

    def _full(self) -> Any:
        """The full model as given, or the default one."""
        return self._default_full() if self.full is None else self.full

    def _cross_fit_full(
        self,
        rows: TrainingRows,
        prices: PriceList,
        n_jobs: int | None,
        other_work: Future[Any] | None = None,
        progress: Progress = silent,
        *,
        reads_numbers: bool = False,
    ) -> CrossFittedFull:
        """Full model and its outputs on the training rows; an inner chain is checked before it is called.

        The default full model reads numbers, as the stages do; any other gets the user's table, unless it
        ``reads_numbers`` too.
        """
        full = self._full()
        unwrap_chain(full, prices, rows.task)
        asked = rows.with_columns(columns_of(full, prices))
        is_plain = self._levels is None and not has_dates(rows.table)
        if not reads_numbers and (self.full is not None or is_plain):
            return cross_fit_full(full, asked, n_jobs=n_jobs, other_work=other_work, progress=progress)
        asked = replace(asked, table=asked.table.in_numbers())
        cross_fitted = cross_fit_full(full, asked, n_jobs=n_jobs, other_work=other_work, progress=progress)
        assert isinstance(cross_fitted.model, EstimatorFull)  # a model of scikit-learn
        return replace(cross_fitted, model=replace(cross_fitted.model, reads_numbers=True))

    def _price_list(self, rows: TrainingRows) -> PriceList:
        """Price list of the purchases and the full model, checked."""
        n_features, names = rows.X.shape[1], getattr(self, "feature_names_in_", None)
        prices = check_price_list(
            resolve_prices(self.feature_costs, self.prices, self._default_prices),
            n_features,
            names,
            rows.table,
            rows.weight,
            self.budget if isinstance(getattr(self, "budget", None), Mapping) else None,
        )
        if not self._accepts_resources:
            prices.refuse_resources(f"a {type(self).__name__}")
        price_columns = () if prices.by_row is None else prices.by_row.price_column.tolist()
        levels = [column for column in price_columns if column in self._categorical]
        if levels:
            called = levels[0] if names is None else repr(str(names[levels[0]]))
            raise InvalidInputError(
                f"by_row reads prices from column {called}, which holds text or categories. Write prices as numbers."
            )
        return prices

    @property
    def _categorical(self) -> tuple[int, ...]:
        """Columns that hold levels."""
        return () if self._levels is None else self._levels.columns

    def _default_full(self) -> Any:
        """Unfitted full model, used if ``full`` is None."""
        raise NotImplementedError

    def _other_models(self) -> list[Any]:
        """Models besides the stages that read the table, as the user gave them."""
        return [self._full()]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # The estimator accepts only what all its models accept.
        models = [
            model for model in self._other_models() if hasattr(model, "fit") and not isinstance(model, type)
        ]
        others = [get_tags(model).input_tags for model in models]
        tags.input_tags.sparse = self._accepts_sparse and all(other.sparse for other in others)
        tags.input_tags.allow_nan = self._accepts_missing and all(other.allow_nan for other in others)
        return tags


class ChainClassifier(ClassifierMixin, ChainEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Base class of classifiers that predict with a ``chain_``."""

    def predict_proba(self, X: Any, row_key: Any = None) -> Floats:
        """Probabilities of all classes, by the stage at which each row stops or by the full model.

        ``row_key`` as in ``predict``.
        """
        reader = self._reader(X, row_key)
        return self.chain_.answer(reader)

    def decision_function(self, X: Any, row_key: Any = None) -> Floats:
        """Log-odds of the second class, or a score for each of several, by the stage that answers or the full model.

        ``row_key`` as in ``predict``.
        """
        reader = self._reader(X, row_key)
        chain = self.chain_
        walk = chain.walk(reader)
        return chain.task.decision(chain.scores_of(walk, chain.answer(reader, walk)))

    def _task_of(self, y: Any, weight: Floats) -> Task:  # noqa: ARG002 - a label is a label at any weight
        return classification_of(y, several=self._accepts_several)

    def _default_full(self) -> Any:
        return TreesClassifier()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self._accepts_several
        return tags


class ChainRegressor(RegressorMixin, ChainEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Base class of regressors that predict with a ``chain_``; subclasses store the ``loss``."""

    loss: str
    tolerance: float = 0.01
    quantile: float | None = None

    def _task_of(self, y: Any, weight: Floats) -> RegressionTask:
        task = regression_of(y, self.loss, weight, tolerance=self.tolerance, quantile=self.quantile)
        return task_of_route(task, getattr(self, "full", None), "kind", "quantile")

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R2 of the predictions, as of every regressor, in a unit in which squares of targets do not overflow."""
        predicted, task = self.predict(X), self.chain_.task
        assert isinstance(task, RegressionTask)  # as every fit of this class
        exponent = -int(np.frexp(task.spread)[1])
        both = np.ldexp(read_targets("y", y), exponent), np.ldexp(predicted, exponent)
        return float(r2_score(*both, sample_weight=sample_weight))

    def _default_full(self) -> Any:
        if self.loss == "squared":
            return TreesRegressor()
        return default_regressor(self.loss, self.random_state, self.quantile)


def columns_of(full: Any, prices: PriceList) -> Ints | None:
    """Columns of the table that a full model gets; None (all) for a chain, which selects its own."""
    return None if isinstance(unwrap_frozen(full), Chain | ChainEstimator) else prices.full_columns


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Restore the attributes of the estimator if an error is raised."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise


def _cuts(evidence: Evidence) -> Policy:
    """Thresholds of a single gate, by rising cost."""
    every = distinct_thresholds(evidence.gate[:, 0])
    some = every[np.unique(np.linspace(0, len(every) - 1, _MAX_CUTS).astype(np.intp))]
    return Policy.of(*some[:, None])
