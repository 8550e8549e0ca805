"""Price-aware histogram trees: bins, growth, and the flat arrays that serve. Knows nothing of gates."""

from thrifty.trees.binning import BinnedTable, Binner
from thrifty.trees.ensemble import TreeEnsemble
from thrifty.trees.grove import Grove
from thrifty.trees.grower import TreeGrower
from thrifty.trees.grown import GrownTree

__all__ = ["BinnedTable", "Binner", "Grove", "GrownTree", "TreeEnsemble", "TreeGrower"]
