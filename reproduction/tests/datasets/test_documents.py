import numpy as np
import pytest

from reproduction.datasets import draw_prices, load_mq2008, load_mslr, load_yahoo, load_yahoo_prices
from thrifty.errors import DataUnavailableError, InvalidInputError


def queries_of(*parts):
    return [len(np.unique(part)) for part in parts]


def stand_together(qid):
    return np.count_nonzero(np.diff(qid)) + 1 == len(np.unique(qid))


def test_mq2008_has_the_published_queries_and_grades(data_folder):
    split = load_mq2008(data_folder)
    assert queries_of(split.qid_train, split.qid_val, split.qid_test) == [471, 157, 156]
    assert [len(part) for part in (split.X_train, split.X_val, split.X_test)] == [9630, 2707, 2874]
    assert np.bincount(np.r_[split.y_train, split.y_val, split.y_test]).tolist() == [12279, 2001, 931]
    assert all(stand_together(part) for part in (split.qid_train, split.qid_val, split.qid_test))


def test_mslr_sets_whole_training_queries_aside_to_choose_with(data_folder):
    split, again, other = load_mslr(data_folder), load_mslr(data_folder), load_mslr(data_folder, seed=1)
    assert queries_of(split.qid_train, split.qid_val, split.qid_test) == [28, 15, 43]
    assert len(split.X_train) + len(split.X_val) == len(split.X_test) == 5000
    assert not set(split.qid_train) & set(split.qid_val)
    assert stand_together(split.qid_train)
    np.testing.assert_array_equal(split.qid_val, again.qid_val)
    assert set(split.qid_val) != set(other.qid_val)


def test_relevant_is_a_grade_of_at_least_one(data_folder):
    split = load_mslr(data_folder)
    binary = split.relevant_or_not()
    assert binary.y_test.sum() == 1442 + 579 + 98 + 34
    np.testing.assert_array_equal(binary.y_train, split.y_train > 0)


def test_prices_are_dealt_like_cards_the_same_for_the_same_seed(data_folder):
    prices = load_yahoo_prices(data_folder)
    assert dict(zip(*np.unique(prices, return_counts=True), strict=True)) == {
        1: 123, 5: 31, 20: 191, 50: 125, 100: 16, 150: 32, 200: 1,
    }  # fmt: skip
    np.testing.assert_array_equal(np.sort(draw_prices(519, prices, seed=3)), np.sort(prices))
    np.testing.assert_array_equal(draw_prices(46, prices), draw_prices(46, prices, seed=0))
    assert not np.array_equal(draw_prices(46, prices), draw_prices(46, prices, seed=1))
    with pytest.raises(InvalidInputError, match="between 1 and the 519 prices .* got 520"):
        draw_prices(520, prices)


def test_a_missing_ranking_file_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(
        DataUnavailableError, match="ltr_mq2008_fold1.npz does not exist. Put fold 1 of LETOR"
    ):
        load_mq2008(tmp_path)


def test_missing_yahoo_files_are_refused_by_their_names(yahoo_folder):
    folder, _ = yahoo_folder(519)
    (folder / "set1.valid.txt").unlink()
    with pytest.raises(DataUnavailableError, match=r"set1.valid.txt does not exist. Put the file of set 1"):
        load_yahoo(folder)


@pytest.fixture
def yahoo_folder(data_folder, tmp_path):
    """Files in the form of the original ones: 700 numbered features, of which `n_used` occur."""

    def write(n_used):
        used = np.sort(np.random.default_rng(0).permutation(np.arange(1, 701))[:n_used])
        for name, first in (("train", 1), ("valid", 50), ("test", 90)):
            lines = [
                f"{row % 5} qid:{first + row // 3} "
                + " ".join(f"{column}:{(row + 1) / (column + 1):.4f}" for column in used[row::2])
                for row in range(6)
            ]
            (tmp_path / f"set1.{name}.txt").write_text("\n".join(lines) + "\n")
        name = "yahoo_ltr_set1_feature_costs.csv"
        (tmp_path / name).write_bytes((data_folder / name).read_bytes())
        return tmp_path, used

    return write


def test_the_original_yahoo_files_lose_the_columns_that_set_1_never_uses(yahoo_folder):
    folder, used = yahoo_folder(519)
    split, prices = load_yahoo(folder)
    assert split.X_train.shape == split.X_test.shape == (6, 519)
    assert prices.shape == (519,)
    assert split.feature_names == tuple(f"f{column}" for column in used)
    assert split.X_train[0, 0] == pytest.approx(1 / (used[0] + 1), abs=1e-4)
    assert split.qid_val.tolist() == [50, 50, 50, 51, 51, 51]


def test_yahoo_files_that_use_another_number_of_features_are_refused(yahoo_folder):
    folder, _ = yahoo_folder(300)
    with pytest.raises(InvalidInputError, match="uses 300 features where the price list has 519"):
        load_yahoo(folder)
