"""A column tells whether classes or numbers are predicted, unless the user does."""

import numpy as np
import pandas as pd
import pytest

from thrifty.engine.table.training import MAX_NUMBERED, training_table
from thrifty.errors import InvalidInputError


def frame_of(values):
    return pd.DataFrame({"x": np.arange(len(values)), "y": values})


@pytest.mark.parametrize(
    ("values", "task", "n_classes"),
    [
        (np.arange(100) % MAX_NUMBERED, None, MAX_NUMBERED),
        (np.arange(100) % (MAX_NUMBERED + 1), None, 0),
        (np.linspace(0, 1, 100), None, 0),
        ([f"name {k % 50}" for k in range(100)], None, 50),
        (np.arange(100) % 2 == 0, None, 2),
        (np.arange(100) % 3, "number", 0),
        (np.arange(100), "classes", 100),
    ],
)
def test_a_column_tells_whether_it_holds_classes_or_numbers_unless_the_user_names_the_task(
    values, task, n_classes
):
    assert len(training_table(frame_of(values), "y", task=task).classes) == n_classes


@pytest.mark.parametrize(
    ("values", "task", "words"),
    [
        (
            [1.5, np.nan, *range(50)],
            None,
            "column 'y', the label, is missing in 1 of 52 rows, the first of them row 2",
        ),
        (
            [1.5, np.inf, *range(50)],
            None,
            "must hold finite numbers, which are what is predicted; got inf in row 2",
        ),
        (
            ["1.5", "2", "red"],
            "number",
            "must hold finite numbers.*got 'red' in row 3.*set the task to classes",
        ),
        ([2.5] * 60, "number", "must hold different numbers; all 60 are 2.5"),
    ],
)
def test_a_target_that_cannot_be_predicted_as_a_number_is_refused_by_row_and_value(values, task, words):
    with pytest.raises(InvalidInputError, match=words):
        training_table(frame_of(values), "y", task=task)
