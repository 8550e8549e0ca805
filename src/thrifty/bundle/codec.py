"""Codec between registered dataclasses of arrays and a list of JSON objects.

A file may hold classes that were registered with ``register``, and no others. An object is written as its fields, whose
annotations define what they may hold: arrays, numbers, text, booleans, tuples, dicts, other objects. Objects form a
list, each after those that it refers to, so that there are no cycles, and reading is one pass over the list.

Every value of a file is checked: a field has the type of its annotation, floats and arrays are finite unless the class
was registered otherwise, an object is referred to once, and ``validate`` of the class, or the check that it was
registered with, refuses fields that do not fit together.
"""

import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from thrifty.arrays import Labels
from thrifty.bundle.container import is_storable
from thrifty.errors import InvalidInputError

_NUMBERS_BY_NAME = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_MAX_LEVELS = 40
_MAX_OBJECTS = 100_000

AnyClass = TypeVar("AnyClass", bound=type)


class NotPlainError(InvalidInputError):
    """A value cannot be written: it is not made of numbers, text, booleans, None, arrays and registered objects."""


@dataclass(frozen=True)
class _Registered:
    """A registered class, and how it is checked and converted."""

    cls: type
    left_out: frozenset[str]
    infinite: frozenset[str]
    shared: bool
    renamed: Mapping[str, str]
    check: Callable[[Any], object] | None


_REGISTERED: dict[str, _Registered] = {}

_GONE = dict.fromkeys(
    ("Neighbours", "NeighbourStage", "NeighbourTurn", "TurnByNeighbours"),
    "Version 0.3 wrote it for structure='neighbours', now StageOptions(structure='tree'): fit again.",
)
"""Classes that files of former versions may hold, and the way out."""


def register(
    cls: AnyClass,
    *,
    left_out: Sequence[str] = (),
    infinite: Sequence[str] = (),
    shared: bool = False,
    renamed: Mapping[str, str] = types.MappingProxyType({}),
    check: Callable[[Any], object] | None = None,
) -> AnyClass:
    """Register a dataclass, so that files may hold its objects, and return it.

    Parameters
    ----------
    cls : dataclass
        Its fields are stored by their annotations.
    left_out : sequence of str
        Fields that a file does not keep; they have their default when it is read.
    infinite : sequence of str
        Fields in which infinite numbers and NaN are allowed.
    shared : bool
        Whether several objects may refer to the same one.
    renamed : dict of str to str
        Fields that files of former versions hold by another name: its present name.
    check : callable, optional
        Refuses objects whose fields do not fit together; ``cls.validate`` where there is one.
    """
    other = _REGISTERED.get(cls.__name__)
    if other is not None and other.cls.__module__ != cls.__module__:
        raise InvalidInputError(
            f"files know a class {cls.__name__} already, of {other.cls.__module__}; give yours another name."
        )
    check = check or getattr(cls, "validate", None)
    _REGISTERED[cls.__name__] = _Registered(
        cls, frozenset(left_out), frozenset(infinite), shared, renamed, check
    )
    return cls


def known_name(thing: Any) -> str | None:
    """The name under which files hold objects of this exact class, or None."""
    registered = _REGISTERED.get(type(thing).__name__)
    return type(thing).__name__ if registered is not None and registered.cls is type(thing) else None


class _Field(NamedTuple):
    hint: Any
    is_required: bool


@cache
def _fields_of(cls: type) -> dict[str, _Field]:
    """Fields that the constructor takes, with their annotations."""
    hints = get_type_hints(cls)
    return {
        field.name: _Field(hints[field.name], field.default is MISSING and field.default_factory is MISSING)
        for field in fields(cls)
        if field.init
    }


# -- writing -----------------------------------------------------------------------------------------


class ObjectWriter:
    """Collects objects and arrays.

    Parameters
    ----------
    lowered : callable
        ``(object) -> object``: what is stored instead of an object whose class is not known.
    """

    def __init__(self, lowered: Callable[[Any], Any] = lambda thing: thing) -> None:
        self.objects: list[dict[str, Any]] = []
        self.arrays: list[Labels] = []
        self._lowered = lowered
        self._shared: dict[int, tuple[int, Any]] = {}

    def object(self, thing: Any) -> dict[str, int]:
        """Refer to an object by its number."""
        if id(thing) in self._shared:
            return {"$object": self._shared[id(thing)][0]}
        original, thing = thing, self._lowered(thing)
        name = known_name(thing)
        if name is None:
            raise NotPlainError(f"a {type(thing).__name__} is not plain data and is not stored.")
        registered = _REGISTERED[name]
        parts = {
            key: self.value(_coerced(getattr(thing, key), field.hint))
            for key, field in _fields_of(registered.cls).items()
            if key not in registered.left_out
        }
        self.objects.append({"class": name, **parts})
        number = len(self.objects) - 1
        if registered.shared:
            self._shared[id(original)] = number, original  # kept, so that no other object gets its identity
        return {"$object": number}

    def array(self, array: Labels) -> dict[str, int]:
        """Refer to an array by its number."""
        if not is_storable(array):
            raise NotPlainError(f"arrays of type {array.dtype} with {array.ndim} dimensions are not stored.")
        self.arrays.append(array)
        return {"$array": len(self.arrays) - 1}

    def value(self, value: Any, level: int = 0) -> Any:
        """Value as JSON; raises ``NotPlainError`` for values that cannot be written."""
        if level > _MAX_LEVELS:
            raise NotPlainError(f"values nested more than {_MAX_LEVELS} deep are not stored.")
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
        if isinstance(value, dict | types.MappingProxyType):
            return {"$dict": [[self.value(k, level + 1), self.value(v, level + 1)] for k, v in value.items()]}
        if isinstance(value, np.generic):
            return {"$scalar": self.array(np.asarray(value))["$array"]}
        if kind is np.ndarray and value.dtype == object and value.ndim == 1:
            return {"$objects": [self.value(item, level + 1) for item in value.tolist()]}
        if kind is np.ndarray:
            return self.array(value)
        return self.object(value)


def _coerced(value: Any, hint: Any) -> Any:
    """Value converted to the type of its annotation, if that is a number or an array: ints are allowed as floats."""
    if hint is float and isinstance(value, int | float | np.number):
        return float(value)
    if hint in (int, bool) and isinstance(value, int | np.integer | np.bool_):
        return hint(value)
    if get_origin(hint) in (Union, types.UnionType) and value is not None:
        options = [option for option in get_args(hint) if option is not type(None)]
        return _coerced(value, options[0]) if len(options) == 1 else value
    if get_origin(hint) is np.ndarray:
        dtype = _dtype_of(hint)
        return np.asarray(value) if dtype is None else np.asarray(value, dtype=dtype)
    if get_origin(hint) is tuple and isinstance(value, tuple) and get_args(hint)[-1:] == (...,):
        return tuple(_coerced(item, get_args(hint)[0]) for item in value)
    return value


@cache
def _dtype_of(hint: Any) -> Any:
    """The type of the numbers in an annotated array; None where several are allowed."""
    (inner,) = get_args(get_args(hint)[1]) or (Any,)
    kind = get_origin(inner) or inner
    is_concrete = isinstance(kind, type) and issubclass(kind, np.generic) and kind not in _ABSTRACT
    return np.dtype(kind) if is_concrete else None


_ABSTRACT = (np.generic, np.number, np.integer, np.unsignedinteger, np.signedinteger, np.floating)


# -- reading -----------------------------------------------------------------------------------------


class ObjectReader:
    """Makes the objects of a file.

    Parameters
    ----------
    objects : list
        As a file lists them.
    arrays : sequence of arrays
        Made when they are asked for.
    lifted : callable
        ``(object) -> object``: converts an object that was read into its final form.
    """

    def __init__(
        self, objects: Any, arrays: Sequence[Labels], lifted: Callable[[Any], Any] = lambda thing: thing
    ) -> None:
        if not isinstance(objects, list) or not 0 < len(objects) <= _MAX_OBJECTS:
            raise InvalidInputError(f"the file must list from 1 to {_MAX_OBJECTS} objects.")
        self._listed, self._arrays, self._lifted = objects, arrays, lifted
        self._made: list[Any] = []
        self._used: set[tuple[str, int]] = set()

    def root(self) -> Any:
        """The last object, which nothing refers to."""
        for number, facts in enumerate(self._listed):
            self._made.append(self._object(facts, number))
        return self._made[-1]

    def _object(self, facts: Any, number: int) -> Any:
        name = facts.get("class") if isinstance(facts, dict) else None
        registered = _REGISTERED.get(name) if isinstance(name, str) else None
        if registered is None:
            raise InvalidInputError(
                f"object {number} of the file must be one of the known classes; got {str(name)[:60]!r}. "
                + _GONE.get(
                    str(name), "The file was not written by `save`, or by a version with other classes."
                )
            )
        facts = {registered.renamed.get(key, key): value for key, value in facts.items()}
        wanted = _fields_of(registered.cls)
        strange = facts.keys() - wanted.keys() - {"class"} | (facts.keys() & registered.left_out)
        if strange:
            raise _refusal(registered, min(strange), "be no field of this class", "one")
        values = {}
        for key, field in wanted.items():
            if key in facts:
                value = self._value(facts[key])
                problem = _problem(value, field.hint, key in registered.infinite)
                if problem:
                    raise _refusal(registered, key, problem, value)
                values[key] = value
            elif field.is_required:
                raise _refusal(registered, key, "be there", "nothing")
        try:
            made = registered.cls(**values)
            if registered.check is not None:
                registered.check(made)
            return self._lifted(made)
        except InvalidInputError as error:
            raise InvalidInputError(f"{registered.cls.__name__} in the file: {error}") from None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"{registered.cls.__name__} in the file does not hold together: {type(error).__name__}: "
                f"{str(error)[:150]}"
            ) from error

    def _value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._value(item) for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) != 1:
            raise _bad_value(value)
        (tag, content), *_ = value.items()
        if tag == "$float" and isinstance(content, str) and content in _NUMBERS_BY_NAME:
            return _NUMBERS_BY_NAME[content]
        if tag == "$array":
            return self._array(content)
        if tag == "$object":
            return self._referred(content)
        if tag == "$scalar":
            array = self._array(content)
            if array.ndim:
                raise _bad_value(value)
            return array[()]
        if tag == "$tuple" and isinstance(content, list):
            return tuple(self._value(content))
        if tag == "$objects" and isinstance(content, list):
            return _object_array(self._value(content))
        if tag == "$dict" and isinstance(content, list):
            return self._dict(content)
        raise _bad_value(value)

    def _array(self, number: Any) -> Labels:
        self._take("array", number, len(self._arrays))
        return self._arrays[number]

    def _referred(self, number: Any) -> Any:
        if type(number) is int and 0 <= number < len(self._made):
            name = self._listed[number]["class"]
            if _REGISTERED[name].shared:
                return self._made[number]
        self._take("object", number, len(self._made))
        return self._made[number]

    def _take(self, kind: str, number: Any, n_known: int) -> None:
        """Refuse a reference that is invalid or was used before, so that a file cannot expand into a larger object."""
        if type(number) is not int or not 0 <= number < n_known:
            raise InvalidInputError(
                f"the file refers to {kind} {str(number)[:30]}, and holds {n_known} of them at that place. The file "
                f"was not written by `save`."
            )
        if (kind, number) in self._used:
            raise InvalidInputError(
                f"the file refers to {kind} {number} from several places. The file was not written by `save`."
            )
        self._used.add((kind, number))

    def _dict(self, pairs: list[Any]) -> dict[Any, Any]:
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            raise _bad_value(pairs)
        try:
            return {self._value(key): self._value(value) for key, value in pairs}
        except TypeError:
            raise _bad_value(pairs) from None


@cache
def _parts_of(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(hint), get_args(hint)


def _problem(value: Any, hint: Any, infinite: bool) -> str | None:
    """Reason why a value does not match its annotation, or None."""
    if hint is Any:
        return None
    origin, inner = _parts_of(hint)
    if origin in (Union, types.UnionType):
        problems = [_problem(value, option, infinite) for option in inner]
        return None if None in problems else problems[0]
    if origin is Literal:
        return None if value in inner else f"be one of {', '.join(map(str, inner))}"
    if hint is None or hint is type(None):
        return None if value is None else "be None"
    if hint is float:
        is_right = type(value) is float and (infinite or math.isfinite(value))
        return None if is_right else "be a finite number"
    if hint in (bool, int, str):
        return None if type(value) is hint else f"be of type {hint.__name__}"
    if origin is np.ndarray:
        return _array_problem(value, hint, infinite)
    if origin is tuple:
        if type(value) is not tuple or (inner[-1:] != (...,) and len(value) != len(inner)):
            return "be a tuple"
        each = [inner[0]] * len(value) if inner[-1:] == (...,) else inner
        return next((p for v, h in zip(value, each, strict=True) if (p := _problem(v, h, infinite))), None)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if type(value) is not dict:
            return "be a dict"
        pairs = [pair for key, item in value.items() for pair in ((key, inner[0]), (item, inner[1]))]
        return next((p for v, h in pairs if (p := _problem(v, h, infinite))), None)
    kind = origin or hint
    if getattr(kind, "_is_protocol", False):
        # By the class: a property of the object would run on parts that nothing has checked yet.
        held = {*dir(type(value)), *getattr(type(value), "__dataclass_fields__", ())}
        is_right = held.issuperset(name for name in vars(kind) if not name.startswith("_"))
        return None if is_right else f"be a {kind.__name__}"
    if not isinstance(kind, type) or not isinstance(value, kind):
        return f"be a {getattr(kind, '__name__', kind)}"
    return None


def _array_problem(value: Any, hint: Any, infinite: bool) -> str | None:
    if not isinstance(value, np.ndarray):
        return "be an array"
    dtype = _dtype_of(hint)
    if dtype is not None and value.dtype != dtype:
        return f"be of type {dtype}"
    if dtype is None and (get_args(get_args(hint)[1]) or (Any,))[0] is not Any and value.dtype.kind != "u":
        return "be of an unsigned type"
    if not infinite and value.dtype.kind == "f" and not np.isfinite(value).all():
        return "be finite"
    return None


def _object_array(items: list[Any]) -> Labels:
    # Filled item by item: numpy would make a table of items that are lists.
    array = np.empty(len(items), dtype=object)
    for place, item in enumerate(items):
        array[place] = item
    return array


def _bad_value(value: Any) -> InvalidInputError:
    return InvalidInputError(f"the file holds a value in a form it must not have: {str(value)[:60]}.")


def _refusal(registered: _Registered, name: str, rule: str, value: Any) -> InvalidInputError:
    shown = f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else str(value)[:60]
    return InvalidInputError(
        f"{name[:60]} of {registered.cls.__name__} in the file must {rule}; got {shown}. The file was not written by "
        f"`save`, or by a version that differs."
    )
