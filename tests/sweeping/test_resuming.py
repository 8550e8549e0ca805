import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

import thrifty.dynamod.sweeping.run as run
from thrifty import DynaModGbrtClassifier, DynaModLinClassifier, sweep
from thrifty.errors import InvalidInputError

pytestmark = pytest.mark.slow

GRID = {"gamma": [1.0, 10.0], "p_full": [0.2, 0.6]}


def gates_of(found):
    return [cell.evidence.gate.tolist() for cell in found.cells]


def test_one_failed_cell_leaves_the_others_in_the_store_and_is_named(linear, fitting, monkeypatch, tmp_path):
    real = DynaModLinClassifier.fit
    fitted = []

    def fragile(self, X, y, sample_weight=None):
        fitted.append((self.gamma, self.p_full))
        if (self.gamma, self.p_full) == (0.01, 0.2):
            raise ZeroDivisionError("by nothing")
        return real(self, X, y, sample_weight)

    grid = {"gamma": [0.005, 0.01, 0.02], "p_full": [0.2, 0.6]}
    path = tmp_path / "s.db"
    monkeypatch.setattr(DynaModLinClassifier, "fit", fragile)
    with pytest.raises(InvalidInputError, match="1 of 6 cells failed") as refusal:
        sweep(linear, grid, *fitting, store=path)
    assert "'gamma': 0.01, 'p_full': 0.2" in str(refusal.value)
    assert "ZeroDivisionError: by nothing" in str(refusal.value)
    assert "1 more would have started from a failed one" in str(refusal.value)
    assert len(fitted) == 5
    fitted.clear()
    monkeypatch.setattr(
        DynaModLinClassifier, "fit", lambda self, *a, **k: (fitted.append(self.gamma), real(self, *a, **k))[1]
    )
    resumed = sweep(linear, grid, *fitting, store=path)
    assert fitted == [0.01, 0.005]
    monkeypatch.undo()
    assert gates_of(resumed) == gates_of(sweep(linear, grid, *fitting))


def test_a_finished_sweep_is_read_from_its_store_without_fitting_anything(
    trees, fitting, rows, monkeypatch, tmp_path, assert_same_evidence
):
    fresh = sweep(trees, GRID, *fitting, store=tmp_path / "s.db")
    monkeypatch.setattr(run, "fit_cell", None)
    monkeypatch.setattr(run, "judge_once", None)
    again = sweep(trees, GRID, *fitting, store=tmp_path / "s.db")
    assert [cell.fitted for cell in again.cells] == [cell.fitted for cell in fresh.cells]
    for one, other in zip(again.cells, fresh.cells, strict=True):
        assert_same_evidence(one.evidence, other.evidence)
    assert (
        again.on(rows.X_test, rows.y_test).score.tolist() == fresh.on(rows.X_test, rows.y_test).score.tolist()
    )


def test_more_settings_fit_only_what_is_new(trees, fitting, monkeypatch, tmp_path):
    sweep(trees, {"gamma": [1.0], "p_full": [0.2]}, *fitting, store=tmp_path / "s.db")
    seen = []
    sweep(trees, GRID, *fitting, store=tmp_path / "s.db", progress=lambda *step: seen.append(step))
    assert seen == [("fitting", done, 4) for done in range(1, 5)]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda g: g["X"].__setitem__((0, 0), 1.0), "the training rows differs"),
        (lambda g: g["y"].__setitem__(0, 1 - g["y"][0]), "the training rows differs"),
        (lambda g: g["X_val"].__setitem__((0, 0), 1.0), "the validation rows differs"),
        (lambda g: g["y_val"].__setitem__(0, 1 - g["y_val"][0]), "the validation rows differs"),
        (lambda g: g.update(sample_weight=np.full(250, 2.0)), "sample_weight differs"),
        (lambda g: g["estimator"].set_params(full_cost=1.0), "the costs differs"),
        (lambda g: g["estimator"].set_params(feature_costs=np.full(10, 2.0)), "the costs differs"),
        (lambda g: g["estimator"].set_params(full_features=[0, 1]), "the costs differs"),
        (
            lambda g: g["estimator"].set_params(n_trees=6, l2=2.0),
            r"parameters outside the grid \(l2, n_trees\)",
        ),
        (
            lambda g: g["estimator"].set_params(full=LogisticRegression(max_iter=9)),
            r"the full model \(recipe\) differs",
        ),
        (
            lambda g: g["estimator"].set_params(full=lambda t: np.full(len(t), 0.4)),
            "the full model .* differs",
        ),
        (lambda g: g.update(estimator=DynaModLinClassifier()), "the estimator .* differs"),
    ],
)
def test_a_store_of_something_else_is_refused_by_name(trees, rows, tmp_path, change, named):
    given = {"estimator": trees, "X": rows.X.copy(), "y": rows.y.copy(), "X_val": rows.X_val.copy()}
    given |= {"y_val": rows.y_val.copy(), "grid": {"gamma": [1.0]}, "store": tmp_path / "s.db"}
    sweep(**given)
    change(given)
    with pytest.raises(InvalidInputError, match=named):
        sweep(**given)


def test_a_store_of_other_code_is_refused(trees, fitting, tmp_path, monkeypatch):
    sweep(trees, {"gamma": [1.0]}, *fitting, store=tmp_path / "s.db")
    monkeypatch.setattr("thrifty.dynamod.sweeping.identity.code", lambda: "0.0.9, sources of old")
    with pytest.raises(
        InvalidInputError, match=r"the code of thrifty \(.*; now 0.0.9, sources of old\) differs"
    ):
        sweep(trees, {"gamma": [1.0]}, *fitting, store=tmp_path / "s.db")


@pytest.mark.parametrize("kind", ["frozen", "function", "probabilities"])
def test_an_f0_fitted_elsewhere_is_known_by_its_answers(trees, fitting, rows, f0, tmp_path, kind):
    def given(C):
        model = f0.set_params(logisticregression__C=C).fit(rows.X_test, rows.y_test)
        train, val = model.predict_proba(rows.X)[:, 1], model.predict_proba(rows.X_val)[:, 1]
        if kind == "probabilities":
            return {"full": train, "full_val": val}
        return {
            "full": FrozenEstimator(model) if kind == "frozen" else lambda X: model.predict_proba(X)[:, 1]
        }

    def swept(full, **more):
        return sweep(trees.set_params(full=full), {"gamma": [1.0]}, *fitting, store=tmp_path / "s.db", **more)

    fresh = swept(**given(1.0))
    assert gates_of(swept(**given(1.0))) == gates_of(fresh)
    with pytest.raises(InvalidInputError, match="the full model .* differs"):
        swept(**given(0.5))


def test_a_chain_as_f0_is_known_by_its_stages_too(fitting, rows, f0, tmp_path):
    tail = DynaModLinClassifier(f0, gamma=0.02, random_state=0).fit(rows.X_test, rows.y_test)

    def swept(chain):
        front = DynaModGbrtClassifier(FrozenEstimator(chain), n_trees=5)
        return sweep(front, {"gamma": [1.0]}, *fitting, store=tmp_path / "s.db")

    assert gates_of(swept(tail)) == gates_of(swept(tail.at(threshold=0.0)))
    with pytest.raises(InvalidInputError, match="the full model .* differs"):
        swept(tail.at(threshold=-np.inf))


def test_a_recipe_that_is_not_repeatable_is_not_attached_after_a_resume(trees, fitting, tmp_path):
    class Moody(LogisticRegression):
        mood = 0.0

        def predict_proba(self, X):
            probability = super().predict_proba(X)
            return (1 - self.mood) * probability + self.mood / 2

    given = trees.set_params(full=Moody())
    fresh = sweep(given, {"gamma": [1.0]}, *fitting, store=tmp_path / "s.db")
    assert fresh.estimator(fresh.frontier[0]) is not None
    Moody.mood = 0.1
    resumed = sweep(given, {"gamma": [1.0]}, *fitting, store=tmp_path / "s.db")
    with pytest.raises(InvalidInputError, match="answers differently when it is fitted again"):
        resumed.estimator(resumed.frontier[0])


def test_a_flipped_bit_in_a_record_is_refused(trees, fitting, tmp_path):
    path = tmp_path / "s.db"
    sweep(trees, {"gamma": [1.0]}, *fitting, store=path)
    image = bytearray(path.read_bytes())
    place = image.index(b"thrifty\x00") + 200
    image[place] ^= 1
    path.write_bytes(bytes(image))
    with pytest.raises(InvalidInputError, match="of the store is damaged"):
        sweep(trees, {"gamma": [1.0]}, *fitting, store=path)
