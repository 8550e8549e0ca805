"""Plain values as JSON, and typed access to the parts of a file.

What JSON has no word for is tagged, and arrays are referred to by number. Numbers come back bit by bit: finite ones are
written with as many digits as tell them apart, the others by name. What is not plain, such as a model or a splitter,
has no form here; whoever asks is told so and decides.

A checksum says that a file is as it was written, not that whoever wrote it meant well. So nothing is taken from a file
without saying what it must be: each part has the form it must have, or is refused by name.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Ints, Labels
from thrifty.bundle.container import is_storable
from thrifty.errors import InvalidInputError
from thrifty.trees import TreeEnsemble
from thrifty.trees.binning import LevelSets
from thrifty.trees.ensemble import children_of

__all__ = ["ENSEMBLE", "Fields", "NotPlainError", "Packer", "Unpacker"]

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

SETS = ("nodes", "offsets", "levels")
"""The arrays of the sets of levels that nodes ask for, where a table has categories."""

_NUMBERS_BY_NAME = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_MOST_LEVELS = 40


class NotPlainError(InvalidInputError):
    """A value is not made of numbers, text, truth values, None, arrays and collections of them."""


class Packer:
    """Turns values into JSON and collects their arrays."""

    def __init__(self) -> None:
        self.arrays: list[Labels] = []
        self._written: dict[int, tuple[int, Any]] = {}

    def once(self, thing: Any, pack: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A thing that several parts of a file share: written where it is first met, later told by its number."""
        if id(thing) in self._written:
            return {"number": self._written[id(thing)][0]}
        number = len(self._written)
        self._written[id(thing)] = number, thing  # kept, so that no other thing gets its identity
        return {"number": number, **pack()}

    def array(self, array: Labels) -> dict[str, int]:
        """Refer to an array by its number."""
        if not is_storable(array):
            raise NotPlainError(f"arrays of type {array.dtype} with {array.ndim} dimensions are not stored.")
        self.arrays.append(array)
        return {"$array": len(self.arrays) - 1}

    def floats(self, array: Any) -> dict[str, int]:
        """Refer to an array of numbers, which is read back as float64."""
        return self.array(np.asarray(array, dtype=np.float64))

    def optional(self, array: Any) -> dict[str, int] | None:
        """Refer to an array of numbers that may be missing."""
        return None if array is None else self.floats(array)

    def columns(self, columns: Ints) -> dict[str, int]:
        """Refer to column numbers, in one width on every machine."""
        return self.array(np.asarray(columns, dtype=np.int64))

    def ensemble(self, trees: TreeEnsemble) -> dict[str, Any]:
        """Trees as their arrays; how many columns they read is known from where they stand."""
        is_leaf = trees.children < 0
        follows = np.array_equal(children_of(is_leaf, trees.node_offsets), trees.children)
        parts = {name: np.asarray(getattr(trees, name), dtype) for name, dtype in ENSEMBLE.items()}
        if follows:
            del parts["children"]
            parts["is_leaf"] = is_leaf
        arrays: dict[str, Any] = {name: self.array(part) for name, part in parts.items()}
        if trees.sets is None:
            return arrays
        sets = {name: self.array(np.asarray(getattr(trees.sets, name), np.int32)) for name in SETS}
        return {**arrays, "sets": sets}

    def value(self, value: Any, level: int = 0) -> Any:
        """The value as JSON; refuses what is not plain."""
        if level > _MOST_LEVELS:
            raise NotPlainError(f"values nested more than {_MOST_LEVELS} deep are not stored.")
        # Exact types: a subclass, numpy's numbers among them, would come back as something else.
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"$float": str(value)}
        if kind is list:
            return [self.value(item, level + 1) for item in value]
        if kind is tuple:
            return {"$tuple": [self.value(item, level + 1) for item in value]}
        if kind is dict:
            return {"$dict": [[self.value(k, level + 1), self.value(v, level + 1)] for k, v in value.items()]}
        if isinstance(value, np.generic):
            return {"$scalar": self.array(np.asarray(value))["$array"]}
        if kind is np.ndarray and value.dtype == object and value.ndim == 1:
            return {"$objects": [self.value(item, level + 1) for item in value.tolist()]}
        if kind is np.ndarray:
            return self.array(value)
        raise NotPlainError(f"a {kind.__name__} is not plain data and is not stored.")


class Unpacker:
    """Turns JSON back into values."""

    def __init__(self, arrays: Any) -> None:
        self._arrays = list(arrays)
        self._read: dict[int, Any] = {}

    def once(self, number: int, make: Callable[[], Any]) -> Any:
        """What ``make`` made of a thing that several parts of a file share, where it was first met."""
        if number not in self._read:
            self._read[number] = make()
        return self._read[number]

    def array(self, number: Any) -> Labels:
        """The array of that number."""
        if type(number) is not int or not 0 <= number < len(self._arrays):
            raise InvalidInputError(
                f"the bundle refers to array {str(number)[:30]} and holds {len(self._arrays)} of them."
            )
        array: Labels = self._arrays[number]
        return array

    def value(self, value: Any) -> Any:
        """The value that was packed."""
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) != 1:
            raise _bad_value(value)
        (tag, content), *_ = value.items()
        if tag == "$float" and isinstance(content, str) and content in _NUMBERS_BY_NAME:
            return _NUMBERS_BY_NAME[content]
        if tag == "$array":
            return self.array(content)
        if tag == "$scalar":
            return self._scalar(content)
        if tag == "$tuple" and isinstance(content, list):
            return tuple(self.value(content))
        if tag == "$objects" and isinstance(content, list):
            return _objects(self.value(content))
        if tag == "$dict" and isinstance(content, list):
            return self._dict(content)
        raise _bad_value(value)

    def _scalar(self, number: Any) -> Any:
        array = self.array(number)
        if array.ndim:
            raise InvalidInputError(f"a number of the bundle is an array of shape {array.shape}.")
        return array[()]

    def _dict(self, pairs: list[Any]) -> dict[Any, Any]:
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            raise _bad_value(pairs)
        try:
            return {self.value(key): self.value(value) for key, value in pairs}
        except TypeError:
            raise _bad_value(pairs) from None


def _objects(items: list[Any]) -> Labels:
    # Filled item by item: numpy would make a table of items that are lists.
    array = np.empty(len(items), dtype=object)
    for place, item in enumerate(items):
        array[place] = item
    return array


def _bad_value(value: Any) -> InvalidInputError:
    return InvalidInputError(f"the bundle holds a value in a form it must not have: {str(value)[:60]}.")


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

    def with_part(self, name: str, part: Any) -> "Fields":
        """The object with one more part."""
        return Fields({**self._facts, name: part}, self.unpacker, self.where)

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

    def array(self, name: str, dtype: Any, shape: tuple[int | None, ...], *, finite: bool = True) -> Labels:
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

    def optional_floats(self, name: str, *shape: int | None, finite: bool = True) -> Floats | None:
        """An array of numbers of this shape, or None."""
        return None if self.raw(name) is None else self.array(name, np.float64, shape, finite=finite)

    def columns(self, name: str, n_features: int) -> Ints:
        """A part that names distinct columns."""
        found = self.array(name, np.int64, (None,)).astype(np.intp)
        if np.any(found < 0) or np.any(found >= n_features) or len(np.unique(found)) < len(found):
            raise self.refusal(name, f"be distinct column numbers in [0, {n_features})", found[:5].tolist())
        return found

    def ensemble(self, name: str, n_features: int, n_outputs: int | None = 1) -> TreeEnsemble:
        """A part that is trees over so many columns; None is any number of outputs."""
        part = self.inside(name)
        shapes: dict[str, tuple[int | None, ...]] = {"children": (None, 2), "values": (None, n_outputs)}
        arrays: dict[str, Any] = {
            key: part.array(key, dtype, shapes.get(key, (None,)), finite=False)
            for key, dtype in ENSEMBLE.items()
            if key != "children" or not part.has("is_leaf")
        }
        for key in ("node_offsets", "leaf_offsets"):
            part.check_offsets(key, arrays[key], len(arrays["feature" if key[0] == "n" else "values"]))
        if "children" not in arrays:
            is_leaf = part.array("is_leaf", np.bool_, (len(arrays["feature"]), 2))
            if len(arrays["node_offsets"]) != len(arrays["leaf_offsets"]):
                raise part.refusal("leaf_offsets", "be as many as node_offsets", len(arrays["leaf_offsets"]))
            arrays["children"] = children_of(is_leaf, arrays["node_offsets"])
        sets = None
        if part.has("sets"):
            inside = part.inside("sets")
            sets = LevelSets(*(inside.array(key, np.int32, (None,)) for key in SETS))
        return TreeEnsemble(n_features, **arrays, sets=sets).validate()

    def check_offsets(self, name: str, offsets: Labels, end: int) -> None:
        """Refuse offsets that do not rise from zero to an end."""
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
