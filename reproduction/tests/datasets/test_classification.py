import numpy as np
import pytest

from reproduction.datasets import (
    PRICED_NAMES,
    load_cifar_images,
    load_digits_at_least_five,
    load_forest,
    load_gas_drift,
    load_letters,
    load_miniboone,
    load_priced,
    load_scene15,
    make_synthetic,
)
from thrifty.errors import InvalidInputError


def test_letters_come_in_file_order_with_the_sizes_of_the_paper(data_folder):
    split = load_letters(data_folder)
    assert (len(split.X_train), len(split.X_val), len(split.X_test)) == (12_000, 4_000, 4_000)
    assert split.X_train.shape[1] == len(split.feature_names) == 16
    assert 0.49 < split.y_train.mean() < 0.52


def test_digits_are_split_without_overlap():
    split = load_digits_at_least_five()
    assert len(split.X_train) + len(split.X_val) + len(split.X_test) == 1797
    assert set(split.y_train) == {0, 1}


def test_the_synthetic_clusters_stand_where_the_paper_puts_them():
    X, y = make_synthetic(noise=0.0)
    points, counts = np.unique(np.c_[X, y], axis=0, return_counts=True)
    assert points.tolist() == [[-1, -3, 1], [-1, -1, 0], [-1, 1, 1], [1, 1, 0]]
    assert counts.tolist() == [15, 15, 20, 20]


def test_miniboone_comes_in_its_published_split_or_in_another_of_the_same_sizes(data_folder):
    published, drawn = load_miniboone(data_folder), load_miniboone(data_folder, seed=1)
    for split in (published, drawn):
        assert [len(part) for part in (split.y_train, split.y_val, split.y_test)] == [2000, 1000, 2000]
    assert published.y_test.mean() == 0.5  # each part of the published split is balanced
    assert not np.array_equal(published.X_train, drawn.X_train)
    everything = [np.vstack([split.X_train, split.X_val, split.X_test]) for split in (published, drawn)]
    np.testing.assert_array_equal(*(np.sort(table, axis=0) for table in everything))


@pytest.mark.slow
def test_forest_has_the_sizes_of_the_paper_and_no_row_twice(data_folder):
    split = load_forest(data_folder, seed=3)
    assert [len(part) for part in (split.y_train, split.y_val, split.y_test)] == [36_603, 15_688, 58_101]
    assert 0.47 < split.y_test.mean() < 0.50  # class 2 is 283,301 of 581,012
    assert (
        len(np.unique(np.vstack([split.X_train, split.X_val, split.X_test]), axis=0))
        == 36_603 + 15_688 + 58_101
    )


@pytest.mark.slow
def test_cifar_images_are_decoded_and_half_of_them_are_of_the_last_five_classes(data_folder):
    images, y = load_cifar_images(data_folder)
    assert images.shape == (20_000, 32, 32, 3)
    assert y.mean() == 0.5
    # Wrongly decoded differences look like noise; neighbouring pixels of a photograph are alike.
    step = np.abs(np.diff(images[:500].astype(int), axis=1)).mean()
    assert step < 20 < images[:500].std()


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
    assert table.days.sum() == {"heart": 9, "pima": 2, "hepatitis": 5, "thyroid": 4}[name]
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


def test_scene15_with_all_its_classes_has_the_same_images_in_the_same_order(data_folder):
    fifteen, _ = load_scene15(data_folder, two_classes=False)
    two, _ = load_scene15(data_folder)
    assert np.unique(fifteen.y_test).tolist() == list(range(15))
    np.testing.assert_array_equal(fifteen.y_test >= 8, two.y_test)
    np.testing.assert_array_equal(fifteen.X_test, two.X_test)


def test_gas_drift_has_eight_batches_in_order_and_sixteen_sensors_of_eight_columns(data_folder):
    table = load_gas_drift(data_folder)
    assert table.X.shape == (6697, 128) == (len(table.y), len(table.feature_names))
    assert np.unique(table.batch).tolist() == [1, 2, 3, 4, 5, 6, 8, 9]
    assert np.bincount(table.sensor).tolist() == [8] * 16
    assert not np.any(table.y[(table.batch >= 3) & (table.batch <= 5)] == 5)  # no toluene there
