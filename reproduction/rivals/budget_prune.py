"""BudgetPrune: a random forest pruned to minimise error plus the price of the features that rows use."""

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from reproduction.pruning.closure import Pruning
from reproduction.pruning.forest import PrunedForest
from reproduction.pruning.node_costs import closure_of
from reproduction.pruning.optimum import SOLVERS, prune_along
from reproduction.rivals.forests import ForestRecipe, PruningTask, pruning_task
from thrifty.arrays import Bools, Floats
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.frontier import Frontier
from thrifty.engine.plots import draw_purchases, purchased
from thrifty.engine.prices.billing import check_amount
from thrifty.engine.tasks.classes import classification
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod.objective import Solution
from thrifty.learners.estimators.base import all_or_nothing
from thrifty.learners.estimators.checks import check_count, check_seed, validated
from thrifty.threads import limited_threads, threads_of

__all__ = ["BudgetPruneClassifier"]


@dataclass(eq=False, repr=False)
class BudgetPruneClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A random forest, pruned for prediction on a budget (Nan, Wang and Saligrama, NIPS 2016).

    Of all ways to prune the trees, the one that minimises, over some rows, the mean error of the trees plus ``gamma``
    times the mean price of what a row needs: a purchase is paid once per row, however many trees look at it. The
    optimum is found, not approached: ``solution_`` holds the gap to a lower bound. The pruned forest answers alone.

    Parameters
    ----------
    forest : RandomForestClassifier or ExtraTreesClassifier, default=None
        What to prune. An estimator is a recipe, cloned and fitted; a fitted one in a ``FrozenEstimator`` is pruned
        as it stands, on all rows that ``fit`` is given. None grows ``n_trees`` trees here.
    gamma : float, default=0.01
        Weight of the prices: error that one unit of mean price must save. The paper's lambda.
    holdout : float or "oob", default=0.0
        Rows that decide what is pruned. 0 takes those that the trees were grown on; a larger share
        is kept from growing; "oob" grows on all rows and judges each tree on those that it did not draw. The last two
        prune harder, which tends to be worse at large budgets, since a forest is better than its trees.
    error : {"vote", "probability"}, default="vote"
        What a tree loses on a row: 1 if the most frequent class of its leaf is wrong, or the share of
        the wrong classes in the leaf.
    feature_costs, prices
        As in ``DynaModLinClassifier``; trees are pruned by full prices too, and discounts only billed.
    n_trees : int, default=40
        Trees to grow.
    max_depth : int, default=None
        Most levels of splits; None grows until leaves are pure.
    min_samples_leaf : int, default=1
        Fewest rows in a leaf.
    solver : {"auto", "lp", "decomposed"}, default="auto"
        The linear program by HiGHS; prices shared among trees that prune themselves, which is faster; or the latter,
        and the former where that should fail.
    tol : float, default=1e-6
        Gap at which a pruning counts as optimal.
    max_iter : int, default=1000
        Most rounds of sharing prices.
    n_jobs : int, default=None
        Threads that grow trees; None is 1, unless joblib is configured otherwise, and -1 is all cores that the process
        may use.
    random_state : int or RandomState, default=None
        For growing and for the rows held out.

    Attributes
    ----------
    forest_ : PrunedForest
        What serves: trees as plain arrays, prices, labels.
    solution_ : Solution of Pruning
        ``value`` has ``loss``, ``spend``, ``objective`` and ``bound`` on the rows that decided; ``residual`` is
        the gap between the last two.
    n_iter_ : int
        Rounds or steps that the solver took.
    n_nodes_ : int
        Splits and leaves that are left.
    features_ : ndarray
        Columns that some row may be asked for.
    classes_ : ndarray
        Labels.
    evidence_ : Evidence
        Its one operating point, on the rows that decided what is pruned.
    frontier_ : Frontier
        That point.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from reproduction.rivals.budget_prune import BudgetPruneClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = BudgetPruneClassifier(gamma=0.01, random_state=0).fit(X, y)
    >>> bool(clf.cost(X).mean() < 30 and clf.solution_.residual <= 1e-6)
    True
    """

    forest: Any = None
    _: KW_ONLY
    gamma: float = 0.01
    holdout: float | Literal["oob"] = 0.0
    error: Literal["vote", "probability"] = "vote"
    feature_costs: Any = None
    prices: Any = None
    n_trees: int = 40
    max_depth: int | None = None
    min_samples_leaf: int = 1
    solver: Literal["auto", "lp", "decomposed"] = "auto"
    tol: float = 1e-6
    max_iter: int = 1000
    n_jobs: int | None = None
    random_state: Any = None

    # -- learning ------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Grow the forest, or take it as it stands, and prune it.

        Parameters
        ----------
        X : table of shape (n_samples, n_features)
            Every feature: training pays for everything. Missing values are NaN.
        y : array-like of shape (n_samples,)
            Labels of two or more classes.
        sample_weight : array-like of shape (n_samples,), optional
            Weights; a row of weight zero is left out.
        """
        with all_or_nothing(self):
            task = self._prepare(X, y, sample_weight)
            (solution,) = self._solve(task, [check_amount("gamma", self.gamma)])
            self._take(task, solution)
        return self

    def fit_path(self, X: Any, y: Any, gammas: Sequence[float], sample_weight: Any = None) -> list[Self]:
        """Fit once, prune at every gamma; returns one fitted estimator per gamma, in the order given.

        One forest is grown, its rows are walked once, and larger gammas are solved inside what smaller ones kept.
        This estimator itself stays as it is.
        """
        checked = [check_amount("gamma", gamma) for gamma in gammas]
        estimators = [clone(self).set_params(gamma=gamma) for gamma in gammas]
        task: PruningTask | None = None
        for estimator in estimators:
            if task is None:
                task = estimator._prepare(X, y, sample_weight)
                solutions = iter(estimator._solve(task, checked))
            estimator._take(task, next(solutions))
        return estimators

    def _prepare(self, X: Any, y: Any, sample_weight: Any) -> PruningTask:
        self._check_parameters()
        recipe = ForestRecipe(self.forest, self.n_trees, self.max_depth, self.min_samples_leaf, self.n_jobs)
        with limited_threads(openmp=threads_of(self.n_jobs), blas=1):
            return pruning_task(
                self, recipe, X, y, sample_weight, self.holdout, check_seed(self.random_state)
            )

    def _check_parameters(self) -> None:
        check_count("n_trees", self.n_trees)
        check_count("min_samples_leaf", self.min_samples_leaf)
        check_count("max_iter", self.max_iter)
        if self.max_depth is not None:
            check_count("max_depth", self.max_depth)
        check_amount("tol", self.tol)
        for name, allowed in (("solver", SOLVERS), ("error", ("vote", "probability"))):
            if getattr(self, name) not in allowed:
                shown = ", ".join(map(repr, allowed))
                raise InvalidInputError(f"{name} must be one of {shown}; got {getattr(self, name)!r}.")

    def _solve(self, task: PruningTask, gammas: list[float]) -> list[Solution[Pruning]]:
        closure = closure_of(task.forest, task.rows, task.prices, self.error)
        n_splits = task.forest.n_splits
        found = prune_along(closure, gammas, n_splits, self.solver, tol=self.tol, max_iter=self.max_iter)
        for solution in found:
            if not solution.converged:
                warnings.warn(
                    f"the gap between pruning and bound is {solution.residual:.1g} after {solution.n_iter} rounds, "
                    f"above tol={self.tol:g}. Raise `max_iter` or `tol`.",
                    ConvergenceWarning,
                    stacklevel=3,
                )
        return found

    def _take(self, task: PruningTask, solution: Solution[Pruning]) -> None:
        """Become the pruned forest."""
        trees = task.forest.pruned(solution.value.kept)
        self._serve(PrunedForest(trees, task.prices, task.classes, task.names), solution)
        rows = task.rows
        right = self.forest_.probability(rows.X).argmax(axis=1) == rows.code
        nobody = np.zeros(len(right), dtype=bool)
        features, strata = tuple(self.features_.tolist()), rows.code.astype(np.uint8)
        self.evidence_ = Evidence.of_point(
            self.forest_.cost(rows.X), right, nobody, features=features, strata=strata
        )

    def _serve(self, system: PrunedForest, solution: Solution[Pruning]) -> None:
        """Everything that is known once there is a pruned forest."""
        self.forest_ = system
        self.solution_ = solution
        self.n_iter_ = max(1, solution.n_iter)
        self.classes_ = system.classes
        self.n_features_in_ = system.price_list.n_features
        if system.names is not None:
            self.feature_names_in_ = np.array(system.names, dtype=object)
        self.features_ = np.flatnonzero(system.trees.features_used)
        self.n_nodes_ = len(system.trees.feature) + len(system.trees.values)

    # -- answers -------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> Floats:
        """Probability of every class: the mean over trees of the class shares in the leaf reached."""
        numbers = self._numbers(X)
        return self.forest_.probability(numbers)

    def predict(self, X: Any) -> NDArray[Any]:
        """Label of each row."""
        probability = self.predict_proba(X)
        return np.asarray(self.classes_[probability.argmax(axis=1)])

    def bought(self, X: Any) -> Bools:
        """Columns that each row is asked for on its ways through the trees, shape (n_samples, n_features)."""
        numbers = self._numbers(X)
        return self.forest_.bought(numbers)

    def cost(self, X: Any) -> Floats:
        """What each row spends: the price of the distinct purchases that it needs."""
        numbers = self._numbers(X)
        return self.forest_.cost(numbers)

    def route(self, X: Any) -> NDArray[np.intp]:
        """Stage that answers each row: there is one, 0."""
        return np.zeros(len(self._numbers(X)), dtype=np.intp)

    # -- doors that other estimators have ----------------------------------------------------------

    @property
    def frontier_(self) -> Frontier:
        """The one operating point, on the rows that decided what is pruned."""
        check_is_fitted(self)
        return Frontier.from_evidence([self.evidence_], task=classification(self.classes_))

    def buy(self, source: Any, **how: Any) -> NoReturn:  # noqa: ARG002
        """Refuse: every split decides what to buy next."""
        raise InvalidInputError(
            "a pruned forest decides node by node what a row needs, and a source is asked stage by stage. Use "
            "BudgetedClassifier to buy from a source, or predict on a table."
        )

    def start(self, row: int = 0, **how: Any) -> NoReturn:  # noqa: ARG002
        """Refuse: every split decides what to buy next."""
        self.buy(row)

    def explain(self, X: Any) -> NoReturn:  # noqa: ARG002
        """Refuse: there are no stages to tell of."""
        raise InvalidInputError(
            "a pruned forest has no stages whose verdicts could be told: a row walks many trees at once. `bought(X)` "
            "says what each row needed."
        )

    def plot_route(self, row: Any, ax: Any = None) -> NoReturn:  # noqa: ARG002
        """Refuse, as ``explain`` does."""
        self.explain(row)

    def plot_purchases(self, X: Any, ax: Any = None) -> Any:
        """Draw how many of some rows make each purchase, on matplotlib axes."""
        names = getattr(self, "feature_names_in_", [f"x{place}" for place in range(self.n_features_in_)])
        bought = self.bought(X)
        each = np.full(len(bought), 1.0 / len(bought))
        return draw_purchases(purchased(self.forest_.price_list, bought, each, list(map(str, names))), ax)

    def at(self, **wish: Any) -> NoReturn:  # noqa: ARG002
        """Refuse: there is one operating point."""
        raise InvalidInputError(
            "a pruned forest has one operating point, that of its gamma. Fit several with fit_path, and choose from "
            "their frontier."
        )

    def certified(self, X: Any, y: Any, **wish: Any) -> NoReturn:  # noqa: ARG002
        """Refuse: there is no full model."""
        raise InvalidInputError(
            "a pruned forest has no full model behind it, so there is nothing to lose against. Put it behind a stage, "
            "or compare frontiers."
        )

    def _numbers(self, X: Any) -> Any:
        check_is_fitted(self)
        return validated(self, X, reset=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        others = [get_tags(self.forest).input_tags] if hasattr(self.forest, "fit") else []
        tags.input_tags.allow_nan = all(other.allow_nan for other in others)
        return tags
