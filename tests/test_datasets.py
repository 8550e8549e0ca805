import numpy as np
import pytest

from thrifty.datasets import load_digits_at_least_five, load_letters, make_synthetic
from thrifty.exceptions import DataUnavailableError


def test_letters_come_in_file_order_with_the_sizes_of_the_paper(data_folder):
    split = load_letters(data_folder)
    assert (len(split.X_train), len(split.X_val), len(split.X_test)) == (12_000, 4_000, 4_000)
    assert split.X_train.shape[1] == len(split.feature_names) == 16
    assert 0.49 < split.y_train.mean() < 0.52


def test_a_missing_file_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(DataUnavailableError, match=r"letter.npz does not exist. Put the UCI Letter"):
        load_letters(tmp_path)


def test_a_file_with_another_checksum_is_refused(tmp_path):
    (tmp_path / "letter.npz").write_bytes(b"something else")
    with pytest.raises(DataUnavailableError, match="has checksum .* damaged"):
        load_letters(tmp_path)


def test_no_folder_at_all_is_refused_with_both_ways_to_name_one(monkeypatch):
    monkeypatch.delenv("THRIFTY_DATA", raising=False)
    with pytest.raises(DataUnavailableError, match="--data or in THRIFTY_DATA"):
        load_letters()


def test_digits_are_split_without_overlap():
    split = load_digits_at_least_five()
    assert len(split.X_train) + len(split.X_val) + len(split.X_test) == 1797
    assert set(split.y_train) == {0, 1}


def test_the_synthetic_clusters_stand_where_the_paper_puts_them():
    X, y = make_synthetic(noise=0.0)
    points, counts = np.unique(np.c_[X, y], axis=0, return_counts=True)
    assert points.tolist() == [[-1, -3, 1], [-1, -1, 0], [-1, 1, 1], [1, 1, 0]]
    assert counts.tolist() == [15, 15, 20, 20]
