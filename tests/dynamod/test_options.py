"""Settings in ``options``: read, set, cloned and searched as scikit-learn does, and as version 0.3 wrote them."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB

from thrifty import DynaModGbrtClassifier, DynaModGbrtRegressor, DynaModLinClassifier, DynaModLstsqClassifier
from thrifty.bundle.objects import SavedEstimator
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod import BoostedOptions, LeafOptions, LinearOptions

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3)).round(3)
Y = X[:, 0] + X[:, 1] > 0
KINDS = {
    DynaModLinClassifier: LinearOptions,
    DynaModGbrtClassifier: BoostedOptions,
    DynaModGbrtRegressor: BoostedOptions,
    DynaModLstsqClassifier: LeafOptions,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_argument_of_version_0_3_is_a_setting_of_the_options(kind):
    for name, default in KINDS[kind]().get_params().items():
        with pytest.warns(FutureWarning, match=rf"{name}: settings of {kind.__name__} are in its options"):
            former = kind(GaussianNB(), **{name: default})
        assert former.options.get_params() == KINDS[kind]().get_params()
        with pytest.warns(FutureWarning, match="options="):
            assert kind().set_params(**{name: default}).options.get_params() == former.options.get_params()
    with pytest.raises(TypeError, match="unexpected keyword argument 'n_tress'"):
        kind(n_tress=3)


def test_options_are_cloned_set_and_searched_as_parameters_of_an_estimator():
    clf = DynaModGbrtClassifier(GaussianNB(), options=BoostedOptions(n_trees=2, max_iter=1), cv=2)
    copied = clone(clf).set_params(options__n_trees=3)
    assert (clf.options.n_trees, copied.options.n_trees, copied.get_params()["options__n_trees"]) == (2, 3, 3)
    search = GridSearchCV(clf.set_params(random_state=0), {"options__n_trees": [1, 4]}, cv=2).fit(X, Y)
    assert search.best_estimator_.options.n_trees in (1, 4)
    assert clf.options.n_trees == 2
    assert DynaModGbrtClassifier().set_params(options__n_trees=7, gamma=2.0).options.n_trees == 7


@pytest.mark.parametrize("options", [{"n_trees": 3}, LinearOptions()])
def test_options_of_another_kind_are_refused(options):
    with pytest.raises(InvalidInputError, match="options must be a BoostedOptions"):
        DynaModGbrtClassifier(options=options).fit(X, Y)


def test_a_file_of_version_0_3_holds_settings_beside_parameters():
    clf = DynaModGbrtClassifier(GaussianNB(), options=BoostedOptions(n_trees=2, max_iter=1), random_state=0)
    stored = SavedEstimator.of(clf.fit(X, Y), evidence=True, writer=_AnythingGoes)
    parameters = {name: value for name, value in stored.parameters.items() if name != "options"}
    restored = replace(stored, parameters=parameters | clf.options.get_params()).restored()
    assert restored.options.get_params() == clf.options.get_params()
    np.testing.assert_array_equal(restored.predict_proba(X), clf.predict_proba(X))


class _AnythingGoes:
    """A writer that stores every value."""

    def value(self, value):
        """Store a value."""
