"""Price-aware histogram trees: bins, growth, and the flat arrays that serve. Knows nothing of gates."""

from thrifty.trees.binning import BinnedTable, Binner
from thrifty.trees.ensemble import TreeEnsemble
from thrifty.trees.grow import TreeGrower
from thrifty.trees.output import EnsembleBuilder, GrownTree

Grove = EnsembleBuilder  # name of earlier versions

__all__ = ["BinnedTable", "Binner", "EnsembleBuilder", "Grove", "GrownTree", "TreeEnsemble", "TreeGrower"]
