import pytest
from hypothesis import given
from hypothesis import strategies as st

from thrifty import BudgetedClassifier, ConfidenceRouter, DynaModGbrtClassifier, DynaModLinClassifier
from thrifty.dynamod.sweeping.grid import make_plan, waves
from thrifty.errors import InvalidInputError

GAMMAS = st.lists(st.sampled_from([0.001, 0.003, 0.01, 0.03, 0.1]), min_size=1, max_size=5, unique=True)
CAPS = st.lists(st.sampled_from([0.1, 0.3, 0.5]), min_size=1, max_size=3, unique=True)


@pytest.mark.slow
@given(gammas=GAMMAS, caps=CAPS)
def test_along_gamma_each_linear_cell_starts_from_the_next_larger_one(gammas, caps):
    plan = make_plan(DynaModLinClassifier(), {"gamma": gammas, "p_full": caps})
    by_key = {cell.key: cell for cell in plan}
    assert len(by_key) == len(gammas) * len(caps)
    for cell in plan:
        larger = [gamma for gamma in gammas if gamma > cell.settings["gamma"]]
        if cell.follows is None:
            assert not larger
        else:
            assert by_key[cell.follows].settings == {**cell.settings, "gamma": min(larger)}


@pytest.mark.slow
@given(gammas=GAMMAS, caps=CAPS, data=st.data())
def test_keys_do_not_depend_on_the_order_of_the_grid(gammas, caps, data):
    plan = make_plan(DynaModLinClassifier(), {"gamma": gammas, "p_full": caps})
    shuffled = data.draw(st.permutations([cell.settings for cell in plan]))
    again = make_plan(DynaModLinClassifier(), shuffled)
    assert [cell.settings for cell in again] == shuffled
    assert {cell.key: cell.settings for cell in again} == {cell.key: cell.settings for cell in plan}


@pytest.mark.slow
@given(gammas=GAMMAS, caps=CAPS)
def test_a_wave_holds_what_needs_nothing_but_earlier_waves(gammas, caps):
    plan = make_plan(DynaModLinClassifier(), {"gamma": gammas, "p_full": caps})
    done = {None}
    for wave in waves(plan):
        assert all(cell.follows in done for cell in wave)
        done |= {cell.key for cell in wave}
    assert len(done) == len(plan) + 1


def test_a_gamma_put_between_two_others_changes_the_keys_of_those_after_it():
    few = {c.settings["gamma"]: c.key for c in make_plan(DynaModLinClassifier(), {"gamma": [0.01, 0.1]})}
    more = {
        c.settings["gamma"]: c.key for c in make_plan(DynaModLinClassifier(), {"gamma": [0.01, 0.03, 0.1]})
    }
    assert few[0.1] == more[0.1]
    assert few[0.01] != more[0.01]


def test_without_warm_starts_every_cell_stands_alone():
    plan = make_plan(DynaModLinClassifier(), {"gamma": [0.01, 0.1]}, warm_start=False)
    assert {cell.follows for cell in plan} == {None}


@pytest.mark.parametrize(
    "estimator",
    [
        DynaModGbrtClassifier(),
        DynaModLinClassifier(init="gaussian"),
        DynaModLinClassifier(refit=True),
        DynaModLinClassifier(gate_reads_margin=True),
    ],
)
def test_what_a_neighbour_cannot_help_starts_by_itself(estimator):
    assert {cell.follows for cell in make_plan(estimator, {"gamma": [0.01, 0.1]})} == {None}


def test_a_setting_given_twice_is_one_cell():
    assert len(make_plan(DynaModGbrtClassifier(), [{"gamma": 1}, {"gamma": 2}, {"gamma": 1}])) == 2


def test_an_empty_dict_is_the_estimator_as_it_is():
    (cell,) = make_plan(DynaModGbrtClassifier(gamma=3.0), {})
    assert cell.settings == {}
    assert cell.estimator.gamma == 3.0


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [
        ([], "grid must hold at least one setting"),
        ({"gamma": 3}, "grid must be a dict of lists"),
        ("gamma", "grid must be a dict of lists"),
        ([1, 2], "grid must be a dict of lists"),
        ({"gamme": [1]}, "does not know"),
        ({"gamma": [1, -1]}, "gamma must be a finite number >= 0; got -1"),
        ({"full": [None]}, "grid must not vary 'full'"),
        ({"full__C": [1]}, "grid must not vary 'full__C'"),
        ({"full_cost": [1]}, "grid must not vary 'full_cost'"),
        ({"full_features": [[0]]}, "grid must not vary 'full_features'"),
        ({"feature_costs": [None]}, "grid must not vary 'feature_costs'"),
        ({"budget": [1, 2]}, "grid must not vary 'budget', which chooses among the operating points"),
    ],
)
def test_a_bad_grid_is_refused_before_anything_is_fitted(grid, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        make_plan(DynaModGbrtClassifier(), grid)


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [
        ({"sizes": [[(5, 2)], [5]]}, "sizes must be a list of"),
        ({"sizes": [[(5, 99)]]}, r"max_depth in sizes must be a whole number in \[1, 12\]; got 99"),
        ({"stages": [3, 0]}, "stages must be a whole number >= 1; got 0"),
        ({"max_loss": [0.1]}, "grid must not vary 'max_loss'"),
    ],
)
def test_a_bad_grid_of_cascades_is_refused_before_anything_is_fitted(grid, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        make_plan(BudgetedClassifier(), grid)


def test_a_model_in_the_grid_is_refused():
    with pytest.raises(InvalidInputError, match="settings must be a dict of what JSON can hold"):
        make_plan(ConfidenceRouter(), {"cheap": [DynaModLinClassifier()]})
