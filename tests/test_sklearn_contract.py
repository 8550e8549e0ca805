"""scikit-learn's own checks; none is expected to fail.

Estimators that differ from another only in what they compute are checked by what depends on that.
"""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils import (
    assert_all_finite,
    check_consistent_length,
    column_or_1d,
    get_tags,
)
from sklearn.utils.estimator_checks import (
    check_estimator_sparse_tag,
    check_estimators_nan_inf,
    estimator_checks_generator,
)

import thrifty
from thrifty import (
    BudgetedClassifier,
    BudgetedRanker,
    BudgetedRegressor,
    CascadeClassifier,
    CascadeRegressor,
    ConfidenceRouter,
    DynaModGbrtClassifier,
    DynaModGbrtRegressor,
    DynaModLinClassifier,
    DynaModLstsqClassifier,
    Prices,
    StageOptions,
)
from thrifty.learners.dynamod import BoostedOptions, LeafOptions, LinearOptions


def _full():
    return LogisticRegression(solver="newton-cholesky", C=0.01, tol=0.1)  # few iterations on such tables


class RankerOfLabels(BudgetedRanker):
    """The ranker on what the checks give, which are labels without queries: grades, and queries of four rows each.

    The rankers of XGBoost and LightGBM need queries as well, and no table without them is fitted by guessing.
    """

    def fit(self, X, y):
        return super().fit(X, y if y is None else self._documents(X, y))

    def score(self, X, y):
        return super().score(X, self._documents(X, y))

    @staticmethod
    def _documents(X, y):
        labels = column_or_1d(y, warn=True)
        check_consistent_length(X, labels)
        assert_all_finite(labels)
        grades = np.unique(labels, return_inverse=True)[1]
        rows = np.arange(len(grades))
        # Every second document is irrelevant: rows of one label may stand together, and a query needs an order.
        return np.column_stack([rows % 2 * (1 + 2 * grades // max(grades.max(), 1)), rows // 4])


_PLAN = {
    "model_prices": {"cheap": 1.0, "dear": 3.0},
    "columns": False,
    "cv": 2,
    "max_asks": 1,
    "random_state": 0,
}

# Those without trees first: whoever runs the others at the same time has compiled the trees by then.
ESTIMATORS = [
    DynaModLinClassifier(_full(), options=LinearOptions(tol=1.0, max_iter=3), cv=2, random_state=0),
    ConfidenceRouter(_full(), _full(), prices=Prices(0.0, full=1.0), cv=2, random_state=0),
    DynaModGbrtClassifier(
        _full(), options=BoostedOptions(n_trees=10, max_iter=2, tol=1.0), cv=2, random_state=0
    ),
    BudgetedClassifier(_full(), stages=StageOptions(max_stages=2, sizes=[(5, 3)]), cv=2, random_state=0),
    BudgetedRegressor(Ridge(), stages=StageOptions(max_stages=1, sizes=[(20, 3)]), cv=2, random_state=0),
    RankerOfLabels(Ridge(), stages=StageOptions(max_stages=1, sizes=[(5, 3)]), cv=2, random_state=0),
    CascadeClassifier([("cheap", GaussianNB()), ("dear", _full())], **_PLAN),
]

VARIANTS = [
    DynaModLinClassifier(
        _full(), options=LinearOptions(distance="squared", tol=1.0, max_iter=3), cv=2, random_state=0
    ),
    DynaModLstsqClassifier(
        _full(), options=LeafOptions(n_trees=3, max_iter=3, tol=1.0), cv=2, random_state=0
    ),
    DynaModGbrtRegressor(
        Ridge(), options=BoostedOptions(n_trees=30, max_iter=2, tol=10.0), cv=2, random_state=0
    ),
    CascadeRegressor(
        [("cheap", Ridge()), ("dear", DecisionTreeRegressor(max_depth=3, random_state=0))], **_PLAN
    ),
]
"""Other ways to compute the same: what is checked before a fit, and around it, does not know of them."""

OF_NUMBERS = {
    "check_classifiers_classes",
    "check_fit_idempotent",
    "check_methods_subset_invariance",
    "check_regressors_train",
    "check_sample_weight_equivalence_on_dense_data",
}
CHECKS_OF_VARIANTS = [
    (estimator, check)
    for variant in VARIANTS
    for estimator, check in estimator_checks_generator(variant)
    if check.func.__name__ in OF_NUMBERS
]

# Labels of the checks may be chance.
pytestmark = [
    pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning"),
    pytest.mark.filterwarnings("ignore::thrifty.errors.DoubtfulRowsWarning"),  # of tables of ten rows
    pytest.mark.filterwarnings("ignore::thrifty.errors.NothingSavedWarning"),
    pytest.mark.usefixtures("small_fits"),
]


def _short_name(one):
    return one.func.__name__ if hasattr(one, "func") else type(one).__name__


CHECKS = [pair for estimator in ESTIMATORS for pair in estimator_checks_generator(estimator)]


# Not by parametrize_with_checks: its names of cases, with all parameters, take a second of every worker.
@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "check"), [*CHECKS, *CHECKS_OF_VARIANTS], ids=_short_name)
def test_scikit_learn_check(estimator, check):
    check(estimator)


def test_variants_are_checked_by_names_that_scikit_learn_has():
    assert {type(estimator) for estimator, _ in CHECKS_OF_VARIANTS} == {type(one) for one in VARIANTS}
    assert {check.func.__name__ for _, check in CHECKS_OF_VARIANTS} == OF_NUMBERS


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator", [*ESTIMATORS, *VARIANTS[1:]], ids=lambda estimator: type(estimator).__name__
)
def test_the_tags_say_what_the_default_full_model_can_read(estimator):
    # All checks but one hold with it too: scikit-learn's own HistGradientBoostingClassifier does not treat a
    # row of weight two as two rows.
    settings = {name: value for name, value in estimator.get_params(deep=False).items() if name != "full"}
    default = type(estimator)(**settings)
    check_estimator_sparse_tag(type(estimator).__name__, default)
    if not get_tags(default).input_tags.allow_nan:
        check_estimators_nan_inf(type(estimator).__name__, default)


def test_every_public_estimator_is_here():
    here = {
        name
        for estimator in [*ESTIMATORS, *VARIANTS]
        for name in (one.__name__ for one in type(estimator).__mro__)
    }
    kinds = ("Classifier", "Ranker", "Regressor", "Router")
    # scikit-learn's checks fit a target; a ModelRouter learns from the qualities of several models.
    assert {name for name in thrifty.__all__ if name.endswith(kinds)} - {"ModelRouter"} <= here
