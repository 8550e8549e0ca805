"""Price-aware histogram trees: how they grow. What they leave is ``thrifty.engine.trees``."""

from thrifty.learners.trees.gradients import derivatives_along
from thrifty.learners.trees.grow import EnsembleBuilder, TreeGrower

__all__ = ["EnsembleBuilder", "TreeGrower", "derivatives_along"]
