import numpy as np
import pytest

from thrifty.datasets import PRICED_NAMES, load_priced, load_scene15
from thrifty.exceptions import InvalidInputError


@pytest.mark.parametrize(
    ("name", "shape", "n_positive", "total"),
    [
        ("heart", (303, 13), 139, 600.57),
        ("pima", (768, 8), 268, 46.39),
        ("hepatitis", (155, 19), 123, 51.38),
        ("thyroid", (7200, 20), 534, 76.11),
    ],
)
def test_a_priced_table_has_its_published_size_classes_and_prices(
    data_folder, name, shape, n_positive, total
):
    table = load_priced(name, data_folder)
    assert table.X.shape == shape
    assert int(table.y.sum()) == n_positive
    assert table.feature_costs.sum() == pytest.approx(total)
    assert len(table.groups) == len(table.feature_names) == len(table.later_costs) == shape[1]
    alone = np.array([group == "" for group in table.groups])
    np.testing.assert_array_equal(table.later_costs[alone], table.feature_costs[alone])
    assert np.all(table.later_costs[~alone] < table.feature_costs[~alone])


def test_the_thyroid_has_no_column_that_is_computed_from_others(data_folder):
    assert "FTI" not in load_priced("thyroid", data_folder).feature_names


def test_an_unknown_name_is_refused_with_those_that_are_known():
    with pytest.raises(InvalidInputError, match=f"one of {', '.join(PRICED_NAMES)}; got 'lung'"):
        load_priced("lung")


def test_scene15_is_cut_by_class_code_and_grouped_by_descriptor(data_folder):
    split, groups = load_scene15(data_folder)
    assert [len(part) for part in (split.y_train, split.y_val, split.y_test)] == [1500, 300, 2685]
    assert np.bincount(groups).tolist() == [20, 59, 40]
    assert {name[:3] for name, group in zip(split.feature_names, groups, strict=True) if group == 2} == {
        "lbp"
    }
    assert 0.35 < split.y_train.mean() < 0.5
    other, _ = load_scene15(data_folder, seed=1)
    assert not np.array_equal(split.X_train, other.X_train)
