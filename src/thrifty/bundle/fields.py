"""Typed access to the parts of a file: each part has the form it must have, or is refused by name.

A checksum says that a file is as it was written, not that whoever wrote it meant well. So nothing is taken from a file
without saying what it must be.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.bundle.values import Unpacker
from thrifty.exceptions import InvalidInputError
from thrifty.trees import TreeEnsemble

__all__ = ["ENSEMBLE", "Fields"]

ENSEMBLE: dict[str, Any] = {
    "feature": np.int32,
    "threshold": np.float64,
    "last_left": np.uint8,
    "missing_left": np.bool_,
    "children": np.int32,
    "values": np.float64,
    "node_offsets": np.int32,
    "leaf_offsets": np.int32,
}
"""The arrays of an ensemble of trees, and what they are made of."""


class Fields:
    """One JSON object of a file, read part by part."""

    def __init__(self, facts: Any, unpacker: Unpacker, where: str) -> None:
        if not isinstance(facts, dict):
            raise InvalidInputError(f"{where} of the bundle must be an object; got {type(facts).__name__}.")
        self._facts = facts
        self.unpacker = unpacker
        self.where = where

    @property
    def names(self) -> list[str]:
        """What parts there are."""
        return list(self._facts)

    def has(self, name: str) -> bool:
        """Whether there is such a part."""
        return name in self._facts

    def raw(self, name: str) -> Any:
        """A part as it stands in the file."""
        if name not in self._facts:
            raise self.refusal(name, "be there", "nothing")
        return self._facts[name]

    def value(self, name: str) -> Any:
        """A part of any plain kind."""
        return self.unpacker.value(self.raw(name))

    def inside(self, name: str) -> "Fields":
        """A part that is an object itself."""
        return Fields(self.raw(name), self.unpacker, f"{name} in {self.where}")

    def items(self, name: str) -> list["Fields"]:
        """A part that is a list of objects."""
        found = self.raw(name)
        if not isinstance(found, list):
            raise self.refusal(name, "be a list", found)
        return [Fields(item, self.unpacker, f"{name} {i} in {self.where}") for i, item in enumerate(found)]

    def text(self, name: str) -> str:
        """A part that is text."""
        found = self.raw(name)
        if not isinstance(found, str):
            raise self.refusal(name, "be text", found)
        return found

    def flag(self, name: str) -> bool:
        """A part that is true or false."""
        found = self.raw(name)
        if not isinstance(found, bool):
            raise self.refusal(name, "be true or false", found)
        return found

    def whole(self, name: str) -> int:
        """A part that is a whole number."""
        found = self.raw(name)
        if type(found) is not int:
            raise self.refusal(name, "be a whole number", found)
        return found

    def number(self, name: str, *, finite: bool = True) -> float:
        """A part that is a number."""
        found = self.value(name)
        if type(found) is not float or math.isnan(found) or (finite and math.isinf(found)):
            raise self.refusal(name, f"be a {'finite ' if finite else ''}number", found)
        return found

    def array(
        self, name: str, dtype: Any, shape: tuple[int | None, ...], *, finite: bool = True
    ) -> NDArray[Any]:
        """A part that is an array of this type and shape; None is any length."""
        found = self.value(name)
        if not isinstance(found, np.ndarray):
            raise self.refusal(name, "be an array", found)
        fits = len(found.shape) == len(shape) and all(
            wanted in (None, got) for wanted, got in zip(shape, found.shape, strict=True)
        )
        if found.dtype != dtype or not fits:
            wanted = f"be of type {np.dtype(dtype)} and shape {shape}".replace("None", "any")
            raise self.refusal(name, wanted, f"{found.dtype} and {found.shape}")
        if finite and found.dtype.kind == "f" and not np.all(np.isfinite(found)):
            raise self.refusal(name, "be finite", "a number that is not")
        return found

    def columns(self, name: str, n_features: int) -> NDArray[np.intp]:
        """A part that names distinct columns."""
        found = self.array(name, np.int64, (None,)).astype(np.intp)
        if np.any(found < 0) or np.any(found >= n_features) or len(np.unique(found)) < len(found):
            raise self.refusal(name, f"be distinct column numbers in [0, {n_features})", found[:5].tolist())
        return found

    def ensemble(self, name: str, n_features: int, n_outputs: int | None = 1) -> TreeEnsemble:
        """A part that is trees over so many columns; None is any number of outputs."""
        part = self.inside(name)
        shapes: dict[str, tuple[int | None, ...]] = {"children": (None, 2), "values": (None, n_outputs)}
        arrays = {
            key: part.array(key, dtype, shapes.get(key, (None,)), finite=False)
            for key, dtype in ENSEMBLE.items()
        }
        for key in ("node_offsets", "leaf_offsets"):
            part._check_offsets(key, arrays[key], len(arrays["feature" if key[0] == "n" else "values"]))
        return TreeEnsemble(n_features, **arrays).validate()

    def _check_offsets(self, name: str, offsets: NDArray[Any], end: int) -> None:
        # Differences of offsets out of range would wrap around, look harmless and claim any amount of memory.
        inside = len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == end
        if not inside or np.any(offsets[1:] < offsets[:-1]):
            raise self.refusal(name, f"rise from 0 to {end}", offsets[:5].tolist())

    def refusal(self, name: str, rule: str, found: Any) -> InvalidInputError:
        """The error that says what is wrong with a part."""
        return InvalidInputError(
            f"{name} in {self.where} of the bundle must {rule}; got {str(found)[:60]}. "
            f"The file was not written by `save`, or by a version that differs."
        )
