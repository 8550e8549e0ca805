"""Trees as they are grown, one after the other, in arrays that have room for more."""

from typing import Any

from numpy.typing import NDArray

from thrifty.exceptions import InvalidInputError
from thrifty.trees.ensemble import TreeEnsemble
from thrifty.trees.harvest import Harvest, make_harvest

__all__ = ["Grove"]


class Grove:
    """Collects what ``TreeGrower.add_tree`` grows.

    Parameters
    ----------
    n_features : int
        Columns of the table they are grown on.
    n_outputs : int, default=1
        Values of a leaf.
    """

    def __init__(self, n_features: int, n_outputs: int = 1) -> None:
        self.n_features = n_features
        self.n_outputs = n_outputs
        self.n_trees = self.n_splits = 0
        self._arrays = make_harvest(16, 256, n_outputs)

    def check_shape(self, n_features: int, n_outputs: int) -> None:
        """Refuse trees of other columns or outputs."""
        if (self.n_features, self.n_outputs) != (n_features, n_outputs):
            raise InvalidInputError(
                f"grove must hold trees of {n_features} columns and {n_outputs} outputs, as this one is; it was made "
                f"for {self.n_features} and {self.n_outputs}. Make another Grove."
            )

    def room_for(self, n_splits: int) -> Harvest:
        """Arrays with room for one more tree of so many splits; twice as long as before if they were full."""
        kept, wanted = self._arrays, self.n_splits + n_splits
        most_trees, most_splits = len(kept.node_offsets) - 1, len(kept.feature)
        if self.n_trees + 1 > most_trees or wanted > most_splits:
            larger = make_harvest(
                2 * most_trees if self.n_trees + 1 > most_trees else most_trees,
                max(2 * most_splits, wanted) if wanted > most_splits else most_splits,
                self.n_outputs,
            )
            for name in kept._fields:
                old: NDArray[Any] = getattr(kept, name)
                getattr(larger, name)[: len(old)] = old
            self._arrays = larger
        return self._arrays

    def ensemble(self) -> TreeEnsemble:
        """The trees so far."""
        arrays, n_trees, nodes, leaves = (
            self._arrays,
            self.n_trees,
            self.n_splits,
            self.n_splits + self.n_trees,
        )
        return TreeEnsemble(
            self.n_features,
            arrays.feature[:nodes].copy(),
            arrays.threshold[:nodes].copy(),
            arrays.last_left[:nodes].copy(),
            arrays.missing_left[:nodes].copy(),
            arrays.children[:nodes].copy(),
            arrays.values[:leaves].copy(),
            arrays.node_offsets[: n_trees + 1].copy(),
            arrays.leaf_offsets[: n_trees + 1].copy(),
        )
