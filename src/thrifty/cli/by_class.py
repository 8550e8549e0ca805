"""Options by class name: shares such as ``sick=0.9``, and cost matrices of mistakes from files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Labels
from thrifty.errors import InvalidInputError
from thrifty.tables.files import read_rows
from thrifty.tables.frames import listed
from thrifty.tasks.mistakes import read_loss

__all__ = ["is_matrix_file", "labels_by_name", "read_matrix", "read_max_loss", "read_shares"]


def is_matrix_file(loss: str) -> bool:
    """Whether ``--loss`` names a file."""
    return Path(loss).suffix.lower() in (".csv", ".json")


def read_shares(option: str, texts: Sequence[str]) -> dict[str, float]:
    """Parse texts such as ``sick=0.9`` into shares by class name."""
    shares: dict[str, float] = {}
    for text in texts:
        name, equals, share = text.rpartition("=")
        try:
            number = float(share)
        except ValueError:
            number = np.nan
        if not equals or not name or not 0 <= number <= 1:
            raise InvalidInputError(
                f"{option} must name a class and a share between 0 and 1, such as sick=0.9; got {text!r}."
            )
        if name in shares:
            raise InvalidInputError(f"{option} names the class {name!r} twice. Keep one of them.")
        shares[name] = number
    return shares


def read_max_loss(texts: Sequence[str] | None) -> float | dict[str, float] | None:
    """Parse ``--max-loss``: one share for all rows, or shares by class name."""
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        try:
            return float(texts[0])
        except ValueError:
            pass
    if not all("=" in text for text in texts):
        raise InvalidInputError(
            f"--max-loss must be one share, such as 0.02, or one for each class named, such as sick=0.02; got "
            f"{listed(texts)}."
        )
    return dict(read_shares("--max-loss", texts))


def labels_by_name(option: str, shares: Any, classes: Labels) -> Any:
    """Shares by label from shares by class name; a single number is returned unchanged."""
    if not isinstance(shares, Mapping):
        return shares
    label_of = {str(label): label for label in classes.tolist()}
    unknown = [name for name in shares if name not in label_of]
    if unknown:
        told = (
            f"the classes are {listed(label_of)}"
            if label_of
            else "numbers are predicted, or documents ranked, which have no classes"
        )
        raise InvalidInputError(f"{option} names the class {unknown[0]!r}; {told}.")
    return {label_of[name]: share for name, share in shares.items()}


def read_matrix(path: str, classes: Labels) -> Floats:
    """Cost matrix of mistakes from a file that names true classes and answers; in the order of ``classes``.

    CSV: a line of names, the first cell of which is free, then a line for each true class, its name first. JSON: an
    object of true classes, each an object of answers and what they cost.
    """
    names = [str(label) for label in classes.tolist()]
    entries = _from_json(path) if Path(path).suffix.lower() == ".json" else _from_csv(path)
    _check_names(path, "lines for the true classes", list(entries), names)
    for truth, line in entries.items():
        _check_names(path, f"answers to {truth!r}", list(line), names)
    try:
        costs = np.array([[float(entries[truth][answer]) for answer in names] for truth in names])
        read_loss(costs, np.array(names))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{path}: {error}") from None
    return costs


def _from_csv(path: str) -> dict[str, dict[str, Any]]:
    header, *lines = read_rows(path) or [[]]
    for line in lines:
        if len(line) != len(header):
            raise InvalidInputError(
                f"{path} must have {len(header)} cells in every line, as in its line of names; got {len(line)} in the "
                f"line of {line[0]!r}."
            )
    if len({line[0] for line in lines}) < len(lines) or len(set(header[1:])) < len(header[1:]):
        raise InvalidInputError(f"{path} must name every class once in its lines and once in its columns.")
    return {line[0]: dict(zip(header[1:], line[1:], strict=True)) for line in lines}


def _from_json(path: str) -> dict[str, dict[str, Any]]:
    try:
        entries = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{path} cannot be read as JSON: {error}.") from error
    if not isinstance(entries, dict) or not all(isinstance(line, dict) for line in entries.values()):
        raise InvalidInputError(
            f"{path} must hold an object of true classes, each an object of its answers and what they cost. Write "
            f'{{"sick": {{"sick": 0, "well": 9}}, "well": {{"sick": 1, "well": 0}}}}.'
        )
    return entries


def _check_names(path: str, what: str, found: list[str], names: list[str]) -> None:
    if sorted(found) != sorted(names):
        raise InvalidInputError(
            f"{path} must have {what} {listed(names)}, each once; got {listed(found) if found else 'none'}."
        )
