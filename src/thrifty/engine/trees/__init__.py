"""Trees as flat arrays, which serve: ensembles, binned tables, and trees of other libraries in the same form."""

from thrifty.engine.trees.binning import BinnedTable, bin_columns
from thrifty.engine.trees.ensemble import TreeEnsemble

__all__ = ["BinnedTable", "TreeEnsemble", "bin_columns"]
