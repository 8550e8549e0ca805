"""What every estimator with a chain shares, once it is fitted: answers, routes, costs and operating points."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from thrifty.arrays import Floats, Ints, Labels
from thrifty.chain.buying import Buys
from thrifty.chain.chain import Chain
from thrifty.chain.explain import Explanation, explain_rows
from thrifty.chain.levels import Levels, has_dates
from thrifty.chain.policy import Policy
from thrifty.chain.sources import TableReader, kind_of_table
from thrifty.estimators.checks import check_columns, check_wish, validated
from thrifty.estimators.notebook import Notebook
from thrifty.evidence.certificate import Certificate
from thrifty.evidence.evidence import Evidence
from thrifty.evidence.frontier import Frontier
from thrifty.evidence.observe import evidence_of, seen_by
from thrifty.evidence.proof import certify
from thrifty.evidence.spending import Spending, check_confidence
from thrifty.evidence.trials import HELD_OUT
from thrifty.exceptions import InvalidInputError
from thrifty.full.crossfit import JudgedFull, TrainingRows, judge_full
from thrifty.full.model import EstimatorFull, FullModel, as_full_model
from thrifty.objective.costs import PriceList
from thrifty.objective.price_list import check_price_list
from thrifty.objective.row_prices import RowsOfFit
from thrifty.rows import content_folds, query_folds
from thrifty.tasks.choose import classification_of
from thrifty.tasks.labels import ClassTask
from thrifty.tasks.regression import RegressionTask, default_regressor, regression_of
from thrifty.tasks.task import Task

__all__ = [
    "CERTIFYING_SHARE",
    "ChainClassifier",
    "ChainEstimator",
    "ChainRegressor",
    "all_or_nothing",
    "chain_behind",
    "columns_of",
    "link_of",
]

CERTIFYING_SHARE = 4
"""One row in so many is held out where something is to be shown on rows that the fit has not seen."""

_LEVEL = 0.95
_USUAL_FOLDS = 5


class ChainEstimator(Notebook, Buys, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """An estimator whose answers are those of its ``chain_``; subclasses say how that is learned.

    A fit stores ``chain_``, and ``evidence_``: what the chain did with rows that its operating points are judged on.
    """

    _accepts_missing = False
    _accepts_sparse = True
    _accepts_several = False
    # Whether text, categories and dates are read as they are.
    _accepts_levels = False
    # Columns of numbers that are levels, where somebody else has encoded them.
    _encoded: tuple[int, ...] = ()
    _levels: Levels | None = None

    full: Any
    feature_costs: Any
    feature_groups: Any
    full_cost: float
    full_features: Any
    random_state: Any
    chain_: Chain
    evidence_: Evidence
    certificate_: Certificate | None
    _proof: Evidence | None = None
    _duplicates = HELD_OUT

    # -- answers -------------------------------------------------------------------------------

    def predict(self, X: Any) -> Labels:
        """Answer of each row: the answering stage's for rows it keeps, the full model's for the others."""
        reader = self._reader(X)
        return self.chain_.task.answers(self.chain_.answer(reader))

    def route(self, X: Any) -> Ints:
        """Stage that answers each row: 0 is the cheapest one; the last is the full model, which is not asked."""
        reader = self._reader(X)
        return self.chain_.walk(reader).route

    def cost(self, X: Any) -> Floats:
        """What each row spends. The full model is not asked."""
        reader = self._reader(X)
        return self.chain_.spent(reader, self.chain_.walk(reader))

    def _served(self) -> Chain:
        check_is_fitted(self)
        return self.chain_

    def explain(self, X: Any) -> list[Explanation]:
        """What was bought for each row in which order, what each stage would have answered, and why it stopped.

        The full model is asked about the rows that reach it. ``print(clf.explain(X)[0])`` is made to be read.
        """
        reader = self._reader(X)
        names = getattr(self, "feature_names_in_", [f"x{column}" for column in range(self.n_features_in_)])
        return explain_rows(self.chain_, reader, names)

    # -- operating points ----------------------------------------------------------------------

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
            spending = Spending.on_held_out(self._proof, judged, self._duplicates)
            return spending.interval(self.chain_.policy, _LEVEL)
        folds = getattr(self, "cv", None)
        copies = int(folds) if isinstance(folds, Integral) else _USUAL_FOLDS
        return Spending(judged, judged.n_rows).interval(self.chain_.policy, _LEVEL, copies)

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
            check_wish(budget=budget, max_loss=max_loss, threshold=threshold),
            check_confidence(confidence),
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

    def with_full(self, full: Any, X: Any = None) -> Self:
        """Return the same fit in front of another full model, in any fitted form: nothing is refitted.

        Operating points stay as they were judged with the old one; what was proved against it is forgotten.

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
        other._forget_full()
        if seen_by(full) is not None and hasattr(other, "evidence_"):
            other.evidence_ = replace(other.evidence_, seen=seen_by(full, other))
        other._change_chain(lambda chain: chain.with_full(link_of(model, prices, chain.task)))
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
        other = copy.copy(self)
        other._change_chain(lambda chain: chain.with_prices(prices))
        return other

    # -- for subclasses --------------------------------------------------------------------------

    def _task_of(self, y: Any, weight: Floats) -> Task:
        """The task that some targets pose, weighted or not, or a refusal."""
        raise NotImplementedError

    def _move(self, *, confidence: float | None = None, **wish: Any) -> None:
        """Go to an operating point; to the one that is natural without a wish."""
        raise NotImplementedError

    def _hold_out(self, rows: TrainingRows, seed: int, reason: str) -> tuple[TrainingRows, TrainingRows]:
        """Rows to learn from, and one in four to prove with, which nothing else may see."""
        if rows.weighted:
            raise InvalidInputError(
                f"{reason} counts rows and knows no weights; got sample_weight or class_weight. Leave one of them out, "
                f"or repeat rows."
            )
        strata, query = rows.task.strata(rows.y), rows.task.query_of(rows.y)
        if query is None:
            is_proof = content_folds(rows.X, strata, CERTIFYING_SHARE, seed + 1) == 0
        else:
            is_proof = query_folds(rows.X, query, strata, CERTIFYING_SHARE, seed + 1) == 0
        return rows.take(np.flatnonzero(~is_proof)), rows.take(np.flatnonzero(is_proof))

    def _kept_within(self, policy: Policy, budget: float, confidence: float) -> Policy:
        """The policy at the dearest point that rows kept out of the fit show to keep to a budget."""
        if self._proof is None:
            raise InvalidInputError(
                f"confidence={confidence!r} must be shown on rows that were kept out of the fit, and this "
                f"{type(self).__name__} kept none. Fit it with both budget and confidence, or spend a budget on just "
                f"the rows at hand with thrifty.hold_budget."
            )
        spending = Spending.on_held_out(self._proof, self._evidence(), self._duplicates)
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

    def _change_chain(self, change: Any) -> None:
        self.chain_ = change(self.chain_)

    def _forget_full(self) -> None:
        """Forget what was measured against the full model: it speaks of the old one."""
        self.certificate_, self._proof = None, None
        evidence: Evidence | None = getattr(self, "evidence_", None)
        if evidence is not None:
            self.evidence_ = replace(evidence, full_quality=None, full_scores=None)

    def _evidence(self) -> Evidence:
        evidence: Evidence | None = getattr(self, "evidence_", None)
        if evidence is None:
            raise InvalidInputError(
                "this needs the rows that the operating points were judged on, and the file that this estimator comes "
                "from does not keep them: it was saved without evidence, or by a first version. Fit again, or score "
                "points on rows of your own with evidence_of."
            )
        return evidence

    def _reader(self, X: Any) -> TableReader:
        if "chain_" not in vars(self):
            check_is_fitted(self)
        numbers = validated(self, X, reset=False)
        return TableReader(numbers, X if kind_of_table(X) else numbers)

    def _full(self) -> Any:
        """The full model as given, or the default one."""
        return self._default_full() if self.full is None else self.full

    def _judged(self, rows: TrainingRows, prices: PriceList, n_jobs: int | None) -> JudgedFull:
        """The full model and its outputs on the training rows; a chain that does not suit is not asked anything.

        The default one reads numbers, as the stages do; any other one is given the table as it came.
        """
        full = self._full()
        link_of(full, prices, rows.task)
        asked = rows.with_columns(columns_of(full, prices))
        if self.full is not None or (self._levels is None and not has_dates(rows.table)):
            return judge_full(full, asked, n_jobs=n_jobs)
        judged = judge_full(full, replace(asked, table=asked.X), n_jobs=n_jobs)
        assert isinstance(judged.model, EstimatorFull)  # the default one was fitted here
        return replace(judged, model=replace(judged.model, reads_numbers=True))

    def __sklearn_clone__(self) -> Any:
        """An unfitted copy, of the same columns of levels."""
        other = super().__sklearn_clone__()
        if self._encoded:
            other._encoded = self._encoded
        return other

    def _price_list(self, rows: TrainingRows) -> PriceList:
        """What purchases cost, and what the full model reads."""
        n_features, names = rows.X.shape[1], getattr(self, "feature_names_in_", None)
        prices = check_price_list(
            self.feature_costs,
            self.feature_groups,
            self.full_cost,
            n_features,
            names,
            check_columns("full_features", self.full_features, n_features, names),
            RowsOfFit(rows.X, rows.weight, rows.positions, rows.table),
        )
        told = () if prices.by_row is None else prices.by_row.told_by.tolist()
        levels = [column for column in told if column in self._categorical]
        if levels:
            called = levels[0] if names is None else repr(str(names[levels[0]]))
            raise InvalidInputError(
                f"by_row reads prices from column {called}, which holds text or categories. Write prices as numbers."
            )
        return prices

    @property
    def _categorical(self) -> tuple[int, ...]:
        """Columns that hold levels."""
        return self._encoded if self._levels is None else self._levels.columns

    def _default_full(self) -> Any:
        """An unfitted full model for whoever has none."""
        raise NotImplementedError

    def _other_models(self) -> list[Any]:
        """Models that read the table besides our own, in whatever form the user gave them."""
        return [self._full()]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # What another model cannot read is not welcome here either.
        models = [
            model for model in self._other_models() if hasattr(model, "fit") and not isinstance(model, type)
        ]
        others = [get_tags(model).input_tags for model in models]
        tags.input_tags.sparse = self._accepts_sparse and all(other.sparse for other in others)
        tags.input_tags.allow_nan = self._accepts_missing and all(other.allow_nan for other in others)
        return tags


class ChainClassifier(ClassifierMixin, ChainEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A classifier whose answers are those of its ``chain_``."""

    def predict_proba(self, X: Any) -> Floats:
        """Probability of every class: the answering stage's for rows it keeps, the full model's for the others."""
        reader = self._reader(X)
        return self.chain_.answer(reader)

    def decision_function(self, X: Any) -> Floats:
        """Log-odds of the second class, or a score for each of several: the answering stage's own for rows it keeps."""
        reader = self._reader(X)
        chain = self.chain_
        walk = chain.walk(reader)
        return chain.task.decision(chain.scores_of(walk, chain.answer(reader, walk)))

    def _task_of(self, y: Any, weight: Floats) -> Task:  # noqa: ARG002 - a label is a label at any weight
        return classification_of(y, several=self._accepts_several)

    def _default_full(self) -> Any:
        return ClassTask.default_model(self.random_state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self._accepts_several
        return tags


class ChainRegressor(RegressorMixin, ChainEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A regressor whose answers are those of its ``chain_``; subclasses store the ``loss`` that counts."""

    loss: str
    tolerance: float = 0.01
    quantile: float | None = None

    def _task_of(self, y: Any, weight: Floats) -> RegressionTask:
        task = regression_of(y, self.loss, weight, tolerance=self.tolerance, quantile=self.quantile)
        behind = chain_behind(getattr(self, "full", None))
        # One route has one unit: errors of a chain in the place of the full model are in units of its own spread.
        theirs = None if behind is None else behind.task
        same = isinstance(theirs, RegressionTask) and (theirs.kind, theirs.quantile) == (
            task.kind,
            task.quantile,
        )
        return theirs if isinstance(theirs, RegressionTask) and same else task

    def _default_full(self) -> Any:
        return default_regressor(self.loss, self.random_state, self.quantile)


def link_of(model: FullModel | Chain, prices: PriceList, task: Task) -> FullModel | Chain:
    """What stands behind the stages: a full model, or the chain that it already is, which must suit."""
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
            "full is itself a chain, and its feature_costs, feature_groups, full_cost or full_features differ from "
            "those given here. One route has one price list: give both the same."
        )
    return inner


def chain_behind(full: Any) -> Chain | None:
    """The chain that a full model is, by itself or inside an estimator; None where it is none."""
    inner = getattr(_bare(full), "chain_", full)
    return inner if isinstance(inner, Chain) else None


def _answers_of(task: Task) -> str:
    """What a task answers with, in words."""
    if len(task.classes):
        return f"the classes {task.classes.tolist()}"
    return f"numbers, by the {task.loss_name}"


def columns_of(full: Any, prices: PriceList) -> Ints | None:
    """Columns of the table that is handed to a full model; None, all of them, to a chain, which picks its own."""
    return None if isinstance(_bare(full), Chain | ChainEstimator) else prices.full_columns


def _bare(full: Any) -> Any:
    """What is inside a frozen estimator, or a fitted one as the chain holds it; any other wrapper is a model itself."""
    return full.estimator if isinstance(full, EstimatorFull | FrozenEstimator) else full


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """After an error the estimator is exactly as it was before."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise
