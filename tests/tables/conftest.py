"""Systems fitted on small tables; nothing here changes them."""

import pytest

from thrifty.tables.fit import FitGoal, fit_table


@pytest.fixture(scope="session")
def fitted(while_fits_are_small, make_table):
    with while_fits_are_small():
        return fit_table(make_table(), "label", FitGoal(budget=3.0), full="svm")


@pytest.fixture(scope="session")
def certified(while_fits_are_small, make_table):
    with while_fits_are_small():
        return fit_table(make_table(1500), "label", FitGoal(max_loss=0.1), full="svm")
