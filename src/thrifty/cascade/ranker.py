"""Documents of queries, ranked under a budget."""

from typing import Any, Self

import numpy as np

from thrifty.arrays import Floats
from thrifty.cascade.estimator import BudgetedCascade
from thrifty.errors import InvalidInputError
from thrifty.estimators.base import chain_behind
from thrifty.progress import Progress
from thrifty.tasks.ranking import Queries, RankingTask, as_queries, ranking_of, with_queries
from thrifty.tasks.regression import default_regressor

__all__ = ["BudgetedRanker"]


class BudgetedRanker(BudgetedCascade):
    """Ranks the documents of queries, and buys features of each document only until more would change little.

    The full model (f0) is the last resort, blended linearly with the last stage where that errs less. Every document
    has its own way through the stages: one that stands far from the first places stops early. Scores of all stages
    are on one scale, the gain that a document is expected to have, so that documents which stopped at different stages
    can be ranked together.

    Parameters
    ----------
    full : regressor, ranker, FrozenEstimator, callable or array of numbers, default=None
        The full model (f0). An unfitted estimator is cloned, fitted on the grades and cross-fitted; one whose ``fit``
        takes ``group`` or ``qid``, such as LightGBM's and XGBoost's rankers, is given the queries too. None is a
        ``HistGradientBoostingRegressor``. Anything that was fitted elsewhere should not have seen the rows given.
    loss : {"pointwise", "pairwise", "listwise"}, default="pointwise"
        What the trees of the stages lower: squared errors of gains, the logistic loss of pairs of documents, or the
        cross-entropy of lists.
    metric : {"ndcg", "ap"}, default="ndcg"
        How good the order of a query is: NDCG with the gain ``2**grade - 1``, or average precision, for which a grade
        of 1 or more is relevant.
    k : int, default=10
        Number of first places that count.
    tolerance : float, default=0.01
        How much lower than the full model's the metric of a query may be before its order counts as worse.
    feature_costs, feature_groups, full_cost, full_features, confidence
        As of ``BudgetedClassifier``.
    budget : float, optional
        Mean spend per document.
    max_loss : float, optional
        Share of queries, in (0, 1), whose order may be worse than the full model's. A quarter of the queries is then
        kept out of everything and the cheapest point is taken that they prove to lose no more.
    stages, sizes, max_bins, max_bytes, n_jobs, random_state, verbose
        As of ``BudgetedClassifier``.
    cv : int, splitter or iterable, default=4
        Folds in which everything is judged; documents of a query are in one fold.

    Attributes
    ----------
    chain_, frontier_, certificate_, order_, features_, n_stages_, size_
        As of ``BudgetedClassifier``; scores are means of the metric over queries, costs means over documents.
    evidence_ : QueryEvidence
        The queries of the fit, every document at every stage, scored by models that have not seen its query.
    query_name_ : str
        Name of the queries, by which commands find their column in a table: that of ``qid`` where it is a Series with
        a name, or of the second column of ``y``; "qid" where there is none.
    expected_cost_, expected_score_ : float
        Mean cost per document and mean metric over queries of the operating point in force, out of fold.
    expected_cost_interval_ : tuple of float
        Where the mean cost per document of new queries lies at that point, 19 times out of 20.

    Notes
    -----
    A query without a relevant document has no metric, and is left out of means and certificates; one with a single
    document is in order whatever is bought. Both are common and are accepted: they cost what they cost, and say nothing
    about order. A fit in which no query has documents of different relevance is refused.

    Functions that take ``X`` and ``y``, such as ``evidence_of`` and ``sweep``, take the relevance and the query of each
    document in two columns: ``np.column_stack([relevance, qid])``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from thrifty import BudgetedRanker
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(600, 4)), np.repeat(np.arange(60), 10)
    >>> grade = np.digitize(X[:, 0] + 0.5 * X[:, 1], [0.5, 1.5])
    >>> ranker = BudgetedRanker(Ridge(), budget=2, k=5, sizes=[(20, 3)], cv=2, random_state=0)
    >>> ranker = ranker.fit(X[:400], grade[:400], qid=qid[:400])
    >>> bool(ranker.score(X[400:], grade[400:], qid=qid[400:]) > 0.8), bool(ranker.cost(X[400:]).mean() < 2.5)
    (True, True)
    """

    def __init__(
        self,
        full: Any = None,
        *,
        loss: str = "pointwise",
        metric: str = "ndcg",
        k: int = 10,
        tolerance: float = 0.01,
        feature_costs: Any = None,
        feature_groups: Any = None,
        full_cost: float = 0.0,
        full_features: Any = None,
        budget: float | None = None,
        max_loss: float | None = None,
        confidence: float | None = None,
        stages: int | None = None,
        sizes: Any = None,
        max_bins: int = 255,
        max_bytes: int | None = None,
        cv: Any = 4,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            full,
            feature_costs=feature_costs,
            feature_groups=feature_groups,
            full_cost=full_cost,
            full_features=full_features,
            budget=budget,
            max_loss=max_loss,
            confidence=confidence,
            stages=stages,
            sizes=sizes,
            max_bins=max_bins,
            max_bytes=max_bytes,
            cv=cv,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
        )
        self.loss = loss
        self.metric = metric
        self.k = k
        self.tolerance = tolerance

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
        """Learn the cascade and its operating points, and judge the full model on these documents.

        Parameters
        ----------
        X : array, pandas or polars data frame of shape (n_documents, n_features)
            Every feature, bought or not: training pays for everything. NaN is missing.
        y : array-like of shape (n_documents,) or (n_documents, 2)
            Grades of relevance, whole numbers from 0 to 31; with the query in a second column in place of ``qid``.
        qid : array-like of shape (n_documents,)
            Query of each document; documents of one query stand together. Required, unless ``y`` holds it: a table
            of one query would leave none to judge an order on.
        sample_weight : None
            Refused: queries count alike.
        progress : callable, optional
            Called as ``progress(what, done, total)`` whenever a step of some length ends, in the place of what
            ``verbose`` prints.
        """
        if sample_weight is not None:
            raise InvalidInputError(
                "a BudgetedRanker takes no sample_weight: the order of a query is judged as a whole, and queries count "
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
        """What the documents of each query spend together, in the order of the queries."""
        spent = self.cost(X)
        return as_queries(qid if isinstance(qid, Queries) else Queries(qid), len(spent)).total(spent)

    def certified(
        self,
        X: Any,
        y: Any,
        qid: Any = None,
        *,
        max_loss: Any,
        confidence: float = 0.95,
        duplicates: str = "refuse",
        measure: str = "share",
        largest: float | None = None,
    ) -> Self:
        """Return the same fit at the cheapest point that new queries prove to lose at most ``max_loss``.

        Parameters
        ----------
        X, y, qid
            Documents as in ``fit``, of queries that neither this fit nor the full model has seen; the full model is
            asked about all of them. Queries without a relevant document do not count.
        max_loss, confidence : float
            Share of queries whose metric may be lower than by the full model's order, by more than ``tolerance``, and
            the probability with which that is shown; see ``thrifty.certify``.
        duplicates : {"refuse", "drop", "count"}, default="refuse"
            What becomes of queries that hold the same documents as one of the fit.
        measure : {"share"}, default="share"
            Queries are counted; a mean of their losses is not certified.
        largest : None
            Belongs to a certificate of a mean.
        """
        if measure != "share" or largest is not None:
            raise InvalidInputError(
                f"a ranker is certified by the share of queries whose order is worse than the full model's; got "
                f"measure={measure!r} and largest={largest!r}. Leave both out."
            )
        return super().certified(
            X, _targets(y, qid), max_loss=max_loss, confidence=confidence, duplicates=duplicates
        )

    def _task_of(self, y: Any, weight: Floats) -> RankingTask:  # noqa: ARG002 - there are no weights
        task = ranking_of(y, self.loss, self.metric, self.k, self.tolerance)
        behind = chain_behind(self.full)
        # One route has one unit: gains of a chain in the place of the full model are in units of its own spread.
        theirs = None if behind is None else behind.task
        same = isinstance(theirs, RankingTask) and (theirs.measure, theirs.k) == (task.measure, task.k)
        return theirs if same else task  # type: ignore[return-value]  # a ranking, then

    def _default_full(self) -> Any:
        return default_regressor("squared", self.random_state)

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
    """Relevance and query in two columns, from that or from both; without targets None, which every fit refuses."""
    return y if y is None or (qid is None and np.ndim(y) == 2) else with_queries(y, qid)
