"""Price-aware histogram trees: bins, growth, and the flat arrays that serve. Knows nothing of gates."""

from thrifty.trees.binning import BinnedTable, bin_columns
from thrifty.trees.builder import EnsembleBuilder
from thrifty.trees.ensemble import TreeEnsemble
from thrifty.trees.gradients import derivatives_along
from thrifty.trees.grow import TreeGrower

__all__ = [
    "BinnedTable",
    "EnsembleBuilder",
    "TreeEnsemble",
    "TreeGrower",
    "bin_columns",
    "derivatives_along",
]
