"""What an experiment sweeps, read from a TOML file: one file per experiment, three sizes of it.

The top level of a file is what ``make paper`` runs. The tables ``[quick]`` and ``[smoke]`` replace single values of
it: for a look within minutes, and for the tests. A grid is a list, or ``{ geometric = [least, most, points] }``, or
``{ linear = [first, last, points] }``. Nothing is guessed: a name that the experiment does not know, a value of
another kind or a missing one is refused.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from thrifty.exceptions import InvalidInputError

__all__ = ["PROFILES", "read_settings"]

PROFILES = ("full", "quick", "smoke")
"""Sizes of an experiment; the first is the top level of its file."""

Settings = TypeVar("Settings")

_SPACINGS = ("geometric", "linear")


def read_settings(
    kind: type[Settings],
    experiment: str,
    *,
    profile: str = PROFILES[0],
    config: str | PathLike[str] | None = None,
) -> Settings:
    """Settings of an experiment, every one of them checked.

    Parameters
    ----------
    kind : dataclass
        Its fields are the names that are known, its annotations what each may hold: ``int``, ``float``, ``bool``,
        ``str``, or a tuple of one of them, or of tuples.
    experiment : str
        Name of the file that ships with thrifty.
    profile : {"full", "quick", "smoke"}
        Which size.
    config : path, optional
        A file to read in place of the one that ships.
    """
    if profile not in PROFILES:
        raise InvalidInputError(f"profile must be one of {', '.join(PROFILES)}; got {profile!r}.")
    where, text = _text(experiment, config)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(f"{where} is not proper TOML: {error}.") from None
    return _build(kind, _of_profile(table, profile, where), where)


def _text(experiment: str, config: str | PathLike[str] | None) -> tuple[str, str]:
    if config is None:
        name = f"{experiment}.toml"
        return name, (files("thrifty.experiments") / "configs" / name).read_text(encoding="utf-8")
    path = Path(config)
    if not path.is_file():
        raise InvalidInputError(f"{path} does not exist. config names a TOML file of settings.")
    try:
        return str(path), path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path} is not text. config names a TOML file of settings.") from None


def _of_profile(table: Mapping[str, Any], profile: str, where: str) -> dict[str, Any]:
    """The top level, with the profile's values in the place of its own."""
    parts = {name: table.get(name, {}) for name in PROFILES[1:]}
    wrong = [name for name, part in parts.items() if not isinstance(part, dict)]
    if wrong:
        raise InvalidInputError(
            f"{wrong[0]} in {where} must be a table of settings; got {parts[wrong[0]]!r}."
        )
    top = {name: value for name, value in table.items() if name not in parts}
    added = sorted(parts.get(profile, {}).keys() - top.keys())
    if added:
        raise InvalidInputError(
            f"[{profile}] in {where} sets {added[0]}, which the top level does not. Name it there too."
        )
    return {**top, **parts.get(profile, {})}


def _build(kind: type[Settings], values: dict[str, Any], where: str) -> Settings:
    hints = get_type_hints(kind)
    known = {one.name: one for one in fields(kind)}  # type: ignore[arg-type]  # callers give dataclasses
    unknown = sorted(values.keys() - known.keys())
    if unknown:
        raise InvalidInputError(
            f"{where} sets {unknown[0]}, which is no setting of this experiment. Known are {', '.join(known)}."
        )
    missing = [name for name, one in known.items() if name not in values and one.default is MISSING]
    if missing:
        raise InvalidInputError(f"{where} does not set {missing[0]}. Write it at the top level.")
    try:
        return kind(**{name: _as(hints[name], value, name) for name, value in values.items()})
    except InvalidInputError as error:
        raise InvalidInputError(f"{where}: {error}") from None


def _as(kind: Any, value: Any, name: str) -> Any:
    """A value of the kind that the annotation says, or a refusal."""
    if get_origin(kind) is tuple:
        (inner, *_) = get_args(kind)
        return tuple(_as(inner, one, name) for one in _listed(value, name, whole=inner is int))
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return _finite(float(value), name)
    if kind is str and isinstance(value, str):
        return value
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    raise InvalidInputError(f"{name} must be {words.get(kind, kind)}; got {value!r}.")


def _listed(value: Any, name: str, *, whole: bool) -> list[Any]:
    if isinstance(value, list):
        return value
    grid = _grid(value)
    if grid is None or whole:
        spacings = "" if whole else " or { geometric = [least, most, points] } or { linear = [...] }"
        raise InvalidInputError(f"{name} must be a list{spacings}; got {value!r}.")
    return grid


def _grid(value: Any) -> list[float] | None:
    if not isinstance(value, dict) or len(value) != 1:
        return None
    ((spacing, ends),) = value.items()
    numbers = isinstance(ends, list) and len(ends) == 3 and all(type(end) in (int, float) for end in ends)
    if spacing not in _SPACINGS or not numbers or type(ends[2]) is not int or ends[2] < 1:
        return None
    if not all(map(math.isfinite, ends)) or (spacing == "geometric" and min(ends[:2]) <= 0):
        return None
    first, last, points = ends
    grid = np.geomspace(first, last, points) if spacing == "geometric" else np.linspace(first, last, points)
    return [float(value) for value in grid]


def _finite(value: float, name: str) -> float:
    if not math.isfinite(value):
        raise InvalidInputError(f"{name} must be finite; got {value!r}.")
    return value
