"""Routers of these tests are learned from few trees and few rates of exchange between quality and cost."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def few_trees():
    """Fits in a third of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("thrifty.learners.routing.quality.N_TREES", 10)
        patch.setattr("thrifty.learners.routing.learn.N_PRICES", 10)
        yield
