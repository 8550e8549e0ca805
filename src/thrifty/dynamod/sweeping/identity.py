"""What a sweep was made of, as text: two sweeps with equal text may share one store, others must not.

A fitted cell depends on the data, the prices, the estimator's settings, the full model and the code. Each is reduced to
something that JSON holds and that is the same in every process: numbers and words as they are, arrays
and tables as a checksum of their content, objects as their class and parameters.
"""

import functools
import hashlib
import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.frozen import FrozenEstimator

import thrifty
from thrifty.chain.columns import as_numbers, learn_levels, plain_table
from thrifty.errors import InvalidInputError
from thrifty.full.model import is_estimator
from thrifty.prices.billing import PriceList

__all__ = ["code", "costs", "describe", "differences", "digest", "libraries", "table"]

_LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba")


def digest(*parts: Any) -> str:
    """Checksum of text, bytes and arrays, the kind and shape of each included."""
    state = hashlib.sha256()
    for part in parts:
        head, body = _bytes(part)
        state.update(f"{head} {len(body)}\n".encode())
        state.update(body)
    return state.hexdigest()[:32]


def _bytes(part: Any) -> tuple[str, bytes]:
    if isinstance(part, bytes):
        return "bytes", part
    if isinstance(part, str):
        return "text", part.encode()
    array = np.asarray(part)
    if array.dtype.kind in "OUST":
        return f"labels {array.shape}", json.dumps([repr(label) for label in array.ravel().tolist()]).encode()
    array = np.ascontiguousarray(array)
    return f"{array.dtype.str} {array.shape}", array.tobytes()


def table(X: Any, y: Any = ()) -> str:
    """Checksum of a table, its column names and its labels."""
    levels = learn_levels(X)
    numbers = as_numbers(plain_table(X, levels))
    parts = (
        [numbers.indptr.astype(np.int64), numbers.indices.astype(np.int64), numbers.data, str(numbers.shape)]
        if sparse.issparse(numbers)
        else [numbers]
    )
    names = json.dumps([str(name) for name in getattr(X, "columns", ())])
    known = (
        () if levels is None else (json.dumps({str(key): levels.of_column[key] for key in levels.columns}),)
    )
    return digest(*parts, names, y, *known)


def costs(prices: PriceList) -> str:
    """Checksum of a price list."""
    read = prices.read_by_full.astype(np.int64)
    shared: list[Any] = []
    if prices.discounts is not None:
        shared += [prices.discounts.of.astype(np.int64), prices.discounts.savings]
    if prices.by_row is not None:
        if any(prices.by_row.functions):
            raise InvalidInputError(
                "a sweep keeps what it has fitted for the prices that it was fitted for, and a function does not say "
                "whether it still tells the same ones. Write the prices into a column, and name it in by_row."
            )
        shared += [prices.by_row.purchases.astype(np.int64), prices.by_row.price_column.astype(np.int64)]
    return digest(
        prices.prices, prices.group_of.astype(np.int64), repr(float(prices.full_cost)), read, *shared
    )


@functools.cache
def code() -> str:
    """Version of thrifty and a checksum of its sources: a changed line may change a result."""
    sources = Path(thrifty.__file__).parent
    files = sorted(sources.rglob("*.py"))
    named = [part for file in files for part in (file.relative_to(sources).as_posix(), file.read_bytes())]
    return f"{thrifty.__version__}, sources {digest(*named)[:12]}"


@functools.cache
def libraries() -> str:
    """What else decides the last digit: the interpreter, the numeric libraries, the kind of processor."""
    found = [f"{name} {version(name)}" for name in _LIBRARIES]
    return ", ".join([f"Python {platform.python_version()}", *found, platform.machine()])


def describe(value: Any, name: str) -> Any:
    """A parameter as JSON would hold it; ``name`` is for the refusal of what cannot be described."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return describe(value.item(), name)
    if isinstance(value, np.ndarray):
        return f"array {digest(value)}"
    if isinstance(value, list | tuple):
        return [describe(one, name) for one in value]
    if isinstance(value, Mapping):
        return {
            str(key): describe(one, name) for key, one in sorted(value.items(), key=lambda kv: str(kv[0]))
        }
    return _describe_object(value, name)


def _describe_object(value: Any, name: str) -> Any:
    kind = type(value)
    if isinstance(value, type):
        return f"class {value.__module__}.{value.__qualname__}"
    if is_estimator(value) and not isinstance(value, FrozenEstimator):
        parameters = {
            key: describe(one, f"{name}.{key}") for key, one in value.get_params(deep=False).items()
        }
        return {"class": f"{kind.__module__}.{kind.__qualname__}", **parameters}
    state = getattr(value, "__dict__", None)
    if callable(value) or not state or isinstance(value, FrozenEstimator):
        raise InvalidInputError(
            f"{name} is a {kind.__name__}, which a sweep cannot tell from another one, so that a stored result might "
            f"be taken for what it is not. Give numbers, text, arrays or an estimator with such parameters."
        )
    return {
        "class": f"{kind.__module__}.{kind.__qualname__}",
        **{key: describe(one, f"{name}.{key}") for key, one in sorted(state.items())},
    }


def differences(stored: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two identities, in words."""
    found = []
    for name in [*now, *(name for name in stored if name not in now)]:
        old, new = stored.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict) and old.keys() | new.keys() and "class" not in new:
            inner = [key for key in sorted(old.keys() | new.keys()) if _text(old, key) != _text(new, key)]
            found += [f"{name} ({', '.join(inner)})"] if inner else []
        elif old != new:
            short = all(isinstance(one, str) and len(one) != 32 for one in (old, new))
            found.append(f"{name} ({old}; now {new})" if short else name)
    return found


def _text(values: Mapping[str, Any], key: str) -> str:
    return json.dumps(values[key]) if key in values else "absent"
