"""The front door: stages that each earn their price, at any budget."""

import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from thrifty.chain.cascade_system import CascadeSystem, Operating
from thrifty.chain.sources import kind_of_table
from thrifty.estimators.cascade_assembly import hold_out, system_of, warn_if_full_is_worse
from thrifty.estimators.cascade_outcomes import JudgedRows, held_out_rows_of, judge_rows
from thrifty.estimators.checks import check_count, check_seed, check_training_rows
from thrifty.estimators.explanation import Explanation, explain_rows
from thrifty.estimators.serving import SystemClassifier, all_or_nothing
from thrifty.estimators.wishes import check_sizes, check_wish, refuse_nothing_to_save
from thrifty.evidence.certificate import Certificate, certify
from thrifty.evidence.frontier import Frontier
from thrifty.evidence.policies import Policies
from thrifty.exceptions import InvalidInputError
from thrifty.full.crossfit import held_out_rows, judge_full
from thrifty.full.model import as_full_model
from thrifty.learning.cascade.learn import learn_cascade
from thrifty.learning.cascade.problem import CascadeProblem, Progress, silent
from thrifty.objective.costs import check_price_list
from thrifty.trees import Binner

__all__ = ["BudgetedClassifier"]


class BudgetedClassifier(SystemClassifier):
    """Buys features one after the other, for each row only until an answer is sure enough; f0 is the last resort.

    The stages share one ensemble of trees that grows with every purchase. In which order features are bought, how
    large the stages are, where each row stops and whether f0 earns its price at all is chosen out of fold;
    the operating point is a mean spend (``budget``), a loss against f0 that is proved (``max_loss``), or, with
    neither, the most accurate one. ``at`` switches between operating points without refitting.

    Parameters
    ----------
    full : classifier, FrozenEstimator, callable or array of probabilities, default=None
        f0. An unfitted estimator is cloned, fitted and cross-fitted; None is a
        ``HistGradientBoostingClassifier``. Anything that was fitted elsewhere should not have seen the rows given.
    feature_costs : array-like of shape (n_features,), number, dict by column name, or None
        Price per column; None is 1 each, 0 is a feature at hand.
    feature_groups : array-like of shape (n_features,), dict by column name, or None
        Columns that one purchase delivers together have the same label and the same price.
    full_cost : float, default=0.0
        Extra price of one call of f0, on top of every feature.
    budget : float, optional
        Mean spend per row.
    max_loss : float, optional
        Share of answers, in (0, 1), that may be worse than f0's. A quarter of the rows is then kept out of
        everything and the cheapest point is taken that they prove to lose no more.
    confidence : float, default=0.95
        Of that proof.
    stages : int, optional
        Places along the order of purchases where a row may stop; None chooses up to 16. Those at which no operating
        point lets a row stop are left out afterwards.
    sizes : sequence of (n_trees, max_depth), optional
        Sizes of a stage to choose from out of fold, from small to large; None is (60, 4), which learns at half the
        usual rate, (100, 6) and (150, 10).
    max_bins : int, default=255
        Bins per column.
    cv : int, splitter or iterable, default=4
        Folds in which everything is judged.
    n_jobs : int, optional
        Folds that are fitted side by side.
    random_state : int, RandomState or None
        Of folds, f0's default, and of which rows follow which of two mixed operating points.

    Attributes
    ----------
    system_ : CascadeSystem
        What serves, at the operating point in force; ``cascade_`` is the same at its most accurate one.
    frontier_ : Frontier
        Every operating point, with out-of-fold answers; every row counts once, whatever its weight.
    certificate_ : Certificate or None
        What ``max_loss`` proved.
    order_ : ndarray
        Purchases (numbers of groups) in the order in which they are made.
    features_ : ndarray
        Columns that are bought before f0, in that order.
    n_stages_ : int
        Stages in front of f0.
    expected_cost_, expected_score_ : float
        Mean cost and accuracy of the operating point in force, out of fold.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from thrifty import BudgetedClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = BudgetedClassifier(GaussianNB(), budget=3, sizes=[(20, 3)], cv=3, random_state=0)
    >>> clf = clf.fit(X[::2], y[::2])
    >>> bool(clf.score(X[1::2], y[1::2]) > 0.9), bool(clf.cost(X[1::2]).mean() < 4)
    (True, True)
    >>> bool(clf.at(budget=1.1).cost(X[1::2]).mean() < clf.cost(X[1::2]).mean())
    True
    """

    _accepts_missing = True
    _accepts_sparse = False

    system_: CascadeSystem

    def __init__(
        self,
        full: Any = None,
        *,
        feature_costs: Any = None,
        feature_groups: Any = None,
        full_cost: float = 0.0,
        budget: float | None = None,
        max_loss: float | None = None,
        confidence: float = 0.95,
        stages: int | None = None,
        sizes: Any = None,
        max_bins: int = 255,
        cv: Any = 4,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.full = full
        self.feature_costs = feature_costs
        self.feature_groups = feature_groups
        self.full_cost = full_cost
        self.budget = budget
        self.max_loss = max_loss
        self.confidence = confidence
        self.stages = stages
        self.sizes = sizes
        self.max_bins = max_bins
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, progress: Progress | None = None) -> Self:
        """Learn the cascade and its operating points, and judge f0 on these rows.

        Parameters
        ----------
        X : array, pandas or polars data frame of shape (n_samples, n_features)
            Every feature, bought or not: training pays for everything. NaN is missing.
        y : array-like of shape (n_samples,)
            Two distinct labels.
        sample_weight : array-like of shape (n_samples,), optional
            Weights; a row of weight zero is left out. Not with ``max_loss``, which counts rows.
        progress : callable, optional
            Called as ``progress(what, done, total)`` whenever a step of some length ends.
        """
        wish = check_wish(self.budget, self.max_loss, may_be_none=True)
        sizes = check_sizes(self.sizes)
        if self.stages is not None:
            check_count("stages", self.stages)
        with all_or_nothing(self):
            seed = check_seed(self.random_state)
            given = check_training_rows(self, X, y, sample_weight, self.cv, seed)
            names = getattr(self, "feature_names_in_", None)
            prices = check_price_list(
                self.feature_costs, self.feature_groups, self.full_cost, given.X.shape[1], names
            )
            refuse_nothing_to_save(prices)
            rows, proof = (given, None) if "max_loss" not in wish else hold_out(given, seed)
            report = silent if progress is None else progress
            report("judging f0", 0, 1)
            judged = judge_full(self._full(), rows, n_jobs=self.n_jobs)
            report("judging f0", 1, 1)
            problem = CascadeProblem(
                Binner(self.max_bins).fit_transform(rows.X),
                rows.y,
                rows.weight,
                held_out_rows(rows),
                judged.log_odds(),
                prices,
                sizes,
                self.stages,
                effective_n_jobs(self.n_jobs),
                report,
            )
            # Sums of a BLAS depend on its number of threads in their last digit.
            with threadpool_limits(1, user_api="blas"):
                learned = learn_cascade(problem)
            warn_if_full_is_worse(learned, judged, rows)
            self.classes_ = rows.classes
            self.cascade_ = system_of(learned, judged, prices, rows, names, kind_of_table(X), seed)
            self.order_ = learned.plan.order
            self.size_ = (learned.plan.boosting.n_trees, learned.plan.boosting.max_depth)
            self.features_ = self.cascade_.steps[-1].columns
            self.n_stages_ = self.cascade_.n_stages
            proved = None if proof is None else judge_rows(self.cascade_, proof.table, proof.labels)
            self._remember(held_out_rows_of(learned, judged.log_odds(), rows.y), proved)
            self._move(**wish)
        return self

    # -- operating points ----------------------------------------------------------------------

    def at(self, *, budget: float | None = None, max_loss: float | None = None) -> Self:
        """Return the same fit at another operating point; nothing is refitted.

        Parameters
        ----------
        budget : float, optional
            Mean spend per row, met in expectation by mixing two neighbouring points.
        max_loss : float, optional
            Share of answers that may be worse than f0's. Proved on the rows held out by ``fit(max_loss=...)``; without
            such rows it is only estimated out of fold, and there is no certificate: see ``certified``.
        """
        check_is_fitted(self)
        other = copy.copy(self)
        other._move(**check_wish(budget, max_loss))
        return other

    def certified(self, X: Any, y: ArrayLike, *, max_loss: float, confidence: float = 0.95) -> Self:
        """Return the same fit at the cheapest point that new rows prove to lose at most ``max_loss`` against f0.

        Parameters
        ----------
        X, y : table and labels
            Rows that neither this fit nor f0 has seen; f0 is asked about all of them.
        max_loss, confidence : float
            What is to be shown, and how surely; see ``thrifty.certify``.
        """
        check_is_fitted(self)
        other = copy.copy(self)
        other._proof = judge_rows(self.cascade_, X, np.asarray(y))
        other.confidence = confidence
        other._move(max_loss=max_loss)
        return other

    def with_full(self, full: Any) -> Self:
        """Return the same fit in front of another f0, in any fitted form: nothing is refitted.

        Parameters
        ----------
        full : fitted classifier, FrozenEstimator, callable or probabilities
            Probabilities belong to the rows that will be asked about, in their order.
        """
        check_is_fitted(self)
        model = as_full_model(full, self.classes_, self.n_features_in_)
        other = copy.copy(self)
        other.system_, other.cascade_ = self.system_.with_full(model), self.cascade_.with_full(model)
        return other

    def explain(self, X: Any) -> list[Explanation]:
        """What was bought for each row in which order, what each stage would have answered, and why it stopped.

        f0 is asked about the rows that reach it. ``print(clf.explain(X)[0])`` is made to be read.
        """
        reader = self._reader(X)
        names = getattr(self, "feature_names_in_", [f"x{column}" for column in range(self.n_features_in_)])
        return explain_rows(self.system_, reader, names)

    def _remember(self, held_out: JudgedRows, proof: JudgedRows | None) -> None:
        """Keep what every operating point did with the rows of the fit, and with those kept out for a proof."""
        self._held_out, self._proof = held_out, proof
        self.frontier_ = Frontier.from_outcomes(held_out.points(self.cascade_))

    def _move(self, *, budget: float | None = None, max_loss: float | None = None) -> None:
        """Go to an operating point; the most accurate one without a wish."""
        operating = self.cascade_.operating
        self.certificate_: Certificate | None = None
        self._max_loss = max_loss
        point = len(operating.cost) - 1
        lower, upper, share = point, point, 0.0
        if budget is not None:
            mix = Policies(operating.thresholds, operating.cost, operating.score).within(budget)
            lower, upper, share = mix.lower, mix.upper, mix.share
        elif max_loss is not None:
            place = self._point_that_loses(max_loss)
            if place is None:
                self._send_everything()
                return
            lower = upper = place
        self.system_ = self.cascade_.at(lower, upper, share)
        cost, score = operating.cost, operating.score
        self.expected_cost_ = float((1 - share) * cost[lower] + share * cost[upper])
        self.expected_score_ = float((1 - share) * score[lower] + share * score[upper])

    def _point_that_loses(self, max_loss: float) -> int | None:
        """Cheapest point that loses at most so much against f0, by proof or by estimate; None is f0 for everybody."""
        against = Frontier.from_outcomes(self._points(), against_full=True)
        proof: JudgedRows | None = getattr(self, "_proof", None)
        if proof is not None:
            proved = against.on(proof.points(self.cascade_))
            certificate = certify(proved, max_loss=max_loss, confidence=self.confidence)
            self.certificate_ = certificate
            point = certificate.point
            return None if certificate.is_fallback or point is None else int(point.settings["point"])
        share = against.losses_against_full() / against.n_rows
        allowed = np.flatnonzero(share <= max_loss)
        if not len(allowed):
            return None
        return int(against[int(allowed[np.argmin(against.cost[allowed])])].settings["point"])

    def _send_everything(self) -> None:
        """Every row to f0, whose own answer counts."""
        whole = self.cascade_
        nobody_stops = np.full((1, whole.n_stages), -np.inf)
        total = whole.price_list.cost_of_everything
        score = float(self._held_out.full_right.mean())
        alone = Operating(nobody_stops, np.array([total]), np.array([score]), seed=whole.operating.seed)
        self.system_ = replace(whole, operating=alone, blend=np.array([0.0, 0.0, 1.0]))
        self.expected_cost_, self.expected_score_ = total, score

    def _points(self) -> Any:
        if not hasattr(self, "frontier_"):
            raise InvalidInputError(
                "max_loss needs the out-of-fold answers of the fit, which files of the first versions do not keep. "
                "Ask for a budget, or fit again."
            )
        return self.frontier_.outcomes
