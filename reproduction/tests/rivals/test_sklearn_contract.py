"""scikit-learn's own checks on every rival; none is expected to fail."""

import pytest
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from reproduction.rivals.budget_prune import BudgetPruneClassifier
from reproduction.rivals.greedy_l1 import GreedyL1Classifier
from reproduction.rivals.greedy_leaf import GreedyLeafClassifier
from reproduction.rivals.greedy_miser import GreedyMiserClassifier, GreedyMiserRegressor

pytestmark = [
    pytest.mark.slow,
    # Labels of the checks may be chance.
    pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning"),
    pytest.mark.filterwarnings("ignore::thrifty.errors.DoubtfulRowsWarning"),  # of tables of ten rows
]

FULL = LogisticRegression(solver="newton-cholesky", C=0.01, tol=0.1)  # few iterations on such tables
LOCAL = GradientBoostingClassifier(n_estimators=3, max_depth=3, random_state=0)
RIVALS = [
    GreedyL1Classifier(FULL, cv=2, random_state=0),
    GreedyLeafClassifier(FULL, LOCAL, cv=2, random_state=0),
    BudgetPruneClassifier(n_trees=5, random_state=0),
    GreedyMiserClassifier(n_trees=10),
    GreedyMiserRegressor(loss="absolute", n_trees=30),
]
OTHER_SOLVER = BudgetPruneClassifier(
    n_trees=5, holdout="oob", error="probability", solver="lp", random_state=0
)
OF_NUMBERS = (
    "check_classifiers_classes",
    "check_classifiers_train",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_sample_weight_equivalence_on_dense_data",
)


@parametrize_with_checks(RIVALS)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_the_other_solver_of_pruned_forests_passes_the_checks_of_what_is_computed(name):
    checks = {check.func.__name__: check for _, check in estimator_checks_generator(OTHER_SOLVER)}
    checks[name](OTHER_SOLVER)
