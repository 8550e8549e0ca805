"""What an experiment is told, and what it hands back: settings, numbers, a table to read, and files.

Each experiment has a TOML file of settings, in three sizes. The top level of a file is what ``make paper`` runs. The
tables ``[quick]`` and ``[smoke]`` replace single values of it: for a look within minutes, and for the tests. A grid is
a list, or ``{ geometric = [least, most, points] }``, or ``{ linear = [first, last, points] }``. Nothing is guessed: a
name that the experiment does not know, a value of another kind or a missing one is refused.
"""

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from thrifty.errors import InvalidInputError
from thrifty.progress import Progress, silent

__all__ = ["PROFILES", "Outcome", "Run", "read_settings"]

PROFILES = ("full", "quick", "smoke")
"""Sizes of an experiment; the first is the top level of its file."""

Settings = TypeVar("Settings")

_SPACINGS = ("geometric", "linear")


@dataclass(frozen=True)
class Run:
    """How an experiment is run.

    Attributes
    ----------
    out : Path
        Folder for pictures, tables, numbers and finished fits.
    data : str, optional
        Folder with the data; None leaves it to ``THRIFTY_DATA``.
    profile : {"full", "quick", "smoke"}
        Size of the experiment.
    config : path, optional
        File of settings to read in place of the one in ``configs/``.
    n_jobs : int
        Number of processes.
    progress : callable
        Told how far the experiment is.
    """

    out: Path
    data: str | None = None
    profile: str = "full"
    config: Path | None = None
    n_jobs: int = 2
    progress: Progress = silent

    def settings(self, kind: type[Settings], experiment: str) -> Settings:
        """Read the settings of an experiment in this run's size, from this run's file."""
        return read_settings(kind, experiment, profile=self.profile, config=self.config)


@dataclass
class Outcome:
    """Result of one experiment.

    Attributes
    ----------
    name : str
        Name of the experiment and stem of its files.
    title : str
        One line for people.
    header, rows : list
        Table of results.
    numbers : dict
        Everything that was measured, for the JSON file.
    notes : list of str
        Sentences below the table.
    files : list of Path
        Files that were written.
    """

    name: str
    title: str
    header: list[str]
    rows: list[list[str]]
    numbers: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    def write(self, out: Path) -> None:
        """Write the numbers as JSON and the table as Markdown next to the pictures."""
        out.mkdir(parents=True, exist_ok=True)
        numbers = out / f"{self.name}.json"
        numbers.write_text(json.dumps(self.numbers, indent=1, default=_plain, allow_nan=False) + "\n")
        page = out / f"{self.name}.md"
        notes = "".join(f"\n{note}\n" for note in self.notes)
        page.write_text(f"# {self.title}\n\n{_markdown(self.header, self.rows)}\n{notes}")
        self.files += [page, numbers]


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table that reads as text and renders as Markdown."""
    lines = [" | ".join(header), " | ".join("---" for _ in header), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


# -- settings ----------------------------------------------------------------------------------


def read_settings(
    kind: type[Settings],
    experiment: str,
    *,
    profile: str = PROFILES[0],
    config: str | PathLike[str] | None = None,
) -> Settings:
    """Read the settings of an experiment and check every one of them.

    Parameters
    ----------
    kind : dataclass
        Class whose fields are the known names and whose annotations say what each may hold: ``int``, ``float``,
        ``bool``, ``str``, or a tuple of one of them, or of tuples.
    experiment : str
        Name of the experiment, whose file is in ``configs/``.
    profile : {"full", "quick", "smoke"}
        Size of the experiment.
    config : path, optional
        File to read in place of the one in ``configs/``.
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
        return name, (files("reproduction.experiments") / "configs" / name).read_text(encoding="utf-8")
    path = Path(config)
    if not path.is_file():
        raise InvalidInputError(f"{path} does not exist. config names a TOML file of settings.")
    try:
        return str(path), path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path} is not text. config names a TOML file of settings.") from None


def _of_profile(table: Mapping[str, Any], profile: str, where: str) -> dict[str, Any]:
    """Return the top level, with the profile's values in the place of its own."""
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
    """Return a value of the kind that the annotation says, or refuse it."""
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
