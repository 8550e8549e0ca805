"""No network is used: scikit-learn's fetcher is replaced by one that returns, or fails, as the real one does."""

from http.client import IncompleteRead
from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets as sklearn_datasets
from sklearn.utils import Bunch

from reproduction.datasets import load_forest, load_letters, load_miniboone
from reproduction.datasets.known_files import OpenmlSet, content_digest, fetch_arrays
from thrifty.errors import DataUnavailableError

X = np.array([[1.0, 0.0], [2.5, 1.0], [0.0, 1.0]])


@pytest.fixture
def tiny():
    return OpenmlSet(99, {"A": 0, "B": 1}, content_digest(X, [0, 1, 1]))


@pytest.fixture
def openml(monkeypatch):
    """Replace the fetcher; returns what it was asked for."""
    monkeypatch.delenv("THRIFTY_DATA", raising=False)
    asked = []

    def install(answer):
        def fetch(**arguments):
            asked.append(arguments)
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(sklearn_datasets, "fetch_openml", fetch)
        return asked

    return install


def bunch(table, labels):
    frame = pd.DataFrame({"size": table[:, 0], "flag": pd.Categorical([f"{cell:g}" for cell in table[:, 1]])})
    return Bunch(data=frame, target=pd.Series(pd.Categorical(labels)))


def test_categories_that_are_numbers_and_labels_are_decoded_and_checked(tiny, openml):
    asked = openml(bunch(X, ["A", "B", "B"]))
    arrays = fetch_arrays(tiny, "")
    np.testing.assert_array_equal(arrays["X"], X)
    assert arrays["y"].tolist() == [0, 1, 1]
    assert arrays["feature_names"].tolist() == ["size", "flag"]
    assert asked[0]["data_id"] == 99


def test_another_version_on_openml_is_refused_by_its_content(tiny, openml):
    openml(bunch(X[::-1], ["B", "B", "A"]))  # the same rows in another order
    with pytest.raises(
        DataUnavailableError, match="data set 99 has content checksum .* another version. Put it"
    ):
        fetch_arrays(tiny, "Put it there.")


def test_labels_that_were_never_there_are_refused(tiny, openml):
    openml(bunch(X, ["A", "B", "C"]))
    with pytest.raises(DataUnavailableError, match="does not hold what it held .*'C'"):
        fetch_arrays(tiny, "")


@pytest.mark.parametrize(
    "failure",
    [
        URLError("no route to host"),
        IncompleteRead(b"half", 100),
        TimeoutError("timed out"),
        ValueError("The md5 checksum of the file does not match"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_an_interrupted_download_says_what_to_download_and_where_to_put_it(failure, openml):
    openml(failure)
    with pytest.raises(DataUnavailableError) as refused:
        load_letters()
    text = str(refused.value)
    assert type(failure).__name__ in text
    assert "nothing was kept" in text
    assert "Put the UCI Letter Recognition data" in text
    assert "letter.npz" in text
    assert "--data or in THRIFTY_DATA" in text


def test_a_named_folder_is_never_replaced_by_a_download(openml, tmp_path):
    asked = openml(URLError("must not be asked"))
    with pytest.raises(DataUnavailableError, match="covtype.npz does not exist"):
        load_forest(tmp_path)
    assert not asked


def test_letters_from_openml_are_the_letters_of_the_file(data_folder, openml):
    """OpenML's letters are the file's rows in the file's order, with labels A to Z."""
    with np.load(data_folder / "letter.npz") as arrays:
        table, codes = arrays["X"], arrays["y"]
    frame = pd.DataFrame({f"c{column}": values for column, values in enumerate(table.T)})
    target = pd.Series([chr(ord("A") + code) for code in codes], dtype="category")
    openml(Bunch(data=frame, target=target))
    fetched, read = load_letters(), load_letters(data_folder)
    np.testing.assert_array_equal(fetched.X_test, read.X_test)
    np.testing.assert_array_equal(fetched.y_train, read.y_train)


def test_the_digest_sees_every_cell_and_every_label():
    digest = content_digest(X, [0, 1, 1])
    assert digest == content_digest(
        np.asfortranarray(X.astype(np.float32)), np.array([0, 1, 1], dtype=np.int8)
    )
    assert digest != content_digest(X, [0, 1, 0])
    assert digest != content_digest(X + 1e-9, [0, 1, 1])


def test_a_missing_file_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(DataUnavailableError, match=r"letter.npz does not exist. Put the UCI Letter"):
        load_letters(tmp_path)


def test_a_file_with_another_checksum_is_refused(tmp_path):
    (tmp_path / "letter.npz").write_bytes(b"something else")
    with pytest.raises(DataUnavailableError, match="has checksum .* damaged"):
        load_letters(tmp_path)


def test_a_missing_file_that_openml_has_is_refused_with_both_ways_out(tmp_path):
    with pytest.raises(DataUnavailableError, match="Without a folder it would be fetched from OpenML"):
        load_letters(tmp_path)


def test_without_a_folder_what_openml_does_not_hold_is_refused_with_both_ways_to_name_one(monkeypatch):
    monkeypatch.delenv("THRIFTY_DATA", raising=False)
    with pytest.raises(DataUnavailableError, match="Put the balanced .* --data or in THRIFTY_DATA"):
        load_miniboone()
