"""The plan of a sweep: which settings are fitted, and which of them starts where another one ended.

Along gamma, with everything else equal, the solutions of the linear family are neighbours: a fit that starts from its
neighbour's solution needs a fraction of the rounds. So those cells form a series, by falling gamma: few columns
first, then more. The problem has many local optima, and a series may end in another one, better or worse, than a fit
that starts afresh. A cell's key names its settings and, through the key of its predecessor, the whole series before
it: equal keys mean equal results, whoever computed them and when.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from thrifty.dynamod.linear_estimator import DynaModLinClassifier
from thrifty.dynamod.sweeping.identity import digest
from thrifty.errors import InvalidInputError
from thrifty.evidence.evidence import plain_settings

__all__ = ["PlannedCell", "make_plan", "waves"]

_FIXED = ("full", "cv", "feature_costs", "feature_groups", "full_cost", "full_features", "n_jobs")
_WISHES = ("budget", "max_loss", "confidence")


@dataclass(frozen=True)
class PlannedCell:
    """One setting that is to be fitted.

    Attributes
    ----------
    estimator : estimator
        With the cell's settings, not fitted.
    settings : dict
        What the grid says about it, as JSON keeps it.
    key : str
        Equal for equal results.
    follows : str, optional
        Key of the cell whose solution this one starts from.
    """

    estimator: Any
    settings: dict[str, Any]
    key: str
    follows: str | None = None


def make_plan(estimator: Any, grid: Any, *, warm_start: bool = True) -> list[PlannedCell]:
    """Every distinct cell of the grid, in its order, or a refusal before anything is fitted."""
    found: dict[str, PlannedCell] = {}
    for values in _cells_of(grid):
        settings = plain_settings(values)
        key = _key_of(settings, None)
        if key not in found:
            found[key] = PlannedCell(_with_settings(estimator, values), settings, key)
    if not found:
        raise InvalidInputError("grid must hold at least one setting; got none.")
    cells = list(found.values())
    return _in_series(cells) if warm_start else cells


def waves(cells: Sequence[PlannedCell]) -> list[list[PlannedCell]]:
    """Cells by their place in their series: those of one wave need nothing of each other."""
    depth: dict[str, int] = {}
    by_depth: dict[int, list[PlannedCell]] = {}
    pending = list(cells)
    while pending:
        later = []
        for cell in pending:
            if cell.follows is None or cell.follows in depth:
                depth[cell.key] = 0 if cell.follows is None else depth[cell.follows] + 1
                by_depth.setdefault(depth[cell.key], []).append(cell)
            else:
                later.append(cell)
        pending = later
    return [by_depth[number] for number in sorted(by_depth)]


def _cells_of(grid: Any) -> Iterable[dict[str, Any]]:
    if isinstance(grid, Mapping):
        try:
            return list(ParameterGrid(dict(grid)))
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"grid must be a dict of lists, or a list of dicts with one setting each: {error}"
            ) from error
    if isinstance(grid, Sequence) and all(isinstance(cell, Mapping) for cell in grid):
        return [dict(cell) for cell in grid]
    raise InvalidInputError(
        f"grid must be a dict of lists, or a list of dicts with one setting each; got {grid!r}."
    )


def _with_settings(estimator: Any, values: dict[str, Any]) -> Any:
    for name in values:
        if name.split("__")[0] in _FIXED:
            raise InvalidInputError(
                f"grid must not vary {name!r}: points of one frontier share their data, prices and full model. "
                f"Set it on the estimator, and run one sweep for each value."
            )
        if name in _WISHES:
            raise InvalidInputError(
                f"grid must not vary {name!r}, which chooses among the operating points of one fit: every cell is "
                f"judged at all of them. Leave it out, and ask the frontier of the sweep."
            )
    try:
        cell = clone(estimator).set_params(**values)
    except ValueError as error:
        raise InvalidInputError(f"grid holds a setting that the estimator does not know: {error}") from error
    cell._check_parameters()
    return cell


def _key_of(settings: dict[str, Any], follows: str | None) -> str:
    return digest(json.dumps(settings, sort_keys=True), follows or "")


def _in_series(cells: list[PlannedCell]) -> list[PlannedCell]:
    series: dict[str, list[int]] = {}
    for number, cell in enumerate(cells):
        if _can_start_anywhere(cell.estimator):
            others = {name: value for name, value in cell.settings.items() if name != "gamma"}
            series.setdefault(json.dumps(others, sort_keys=True), []).append(number)
    planned = list(cells)
    for one in series.values():
        before: str | None = None
        for number in sorted(one, key=lambda number: -float(cells[number].estimator.gamma)):
            cell = cells[number]
            planned[number] = replace(cell, key=_key_of(cell.settings, before), follows=before)
            before = planned[number].key
    return planned


def _can_start_anywhere(estimator: Any) -> bool:
    """Whether a neighbour's weights are a start: those of a refit or of a margin gate solve another problem."""
    return (
        isinstance(estimator, DynaModLinClassifier)
        and isinstance(estimator.init, str)
        and estimator.init == "logistic"
        and not estimator.refit
        and not estimator.gate_reads_margin
    )
