"""Logs of many models as arrays, checked: qualities, costs, answers, evidence, and rows of which some models are known.

A log in which only some models were asked about each row is completed by doubly robust estimates: a regression gives
every row a quality of every model, and where a model was asked the regression's error, divided by the propensity of
asking, is added. Means of the completed qualities are unbiased if either the propensities or the regression are right.
Inverse-propensity estimates need no regression, vary more, and check the doubly robust ones.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Bools, Floats, Ints, Words
from thrifty.engine.prices.billing import Resources
from thrifty.engine.prices.prices import TOKEN_CHARACTERS, ModelPrice
from thrifty.engine.walk.calibration import class_probabilities
from thrifty.engine.walk.next_model import PENALTY
from thrifty.errors import InvalidInputError, InvalidParameterError, MissingSupportWarning
from thrifty.learners.routing.quality import floored, ridge
from thrifty.rows import fingerprints, mix

MIN_ROWS = 30
_MAX_WEIGHT = 20.0
_MIN_SUPPORT = 0.5
"""Least sum of the weights of rows that were asked, as a share of the rows."""

_COMPLETE_SHARE = 0.8
"""Share of rows that know every model from which on the other rows are left out rather than estimated."""


def is_text(X: Any) -> bool:
    """True if rows are texts: a list, array or column of them."""
    if isinstance(X, str) or (hasattr(X, "ndim") and X.ndim != 1) or not hasattr(X, "__len__"):
        return False
    if isinstance(X, np.ndarray) and X.dtype.kind in "iufb":
        return False
    texts = [isinstance(one, str) for one in X]
    if any(texts) and not all(texts):
        row = texts.index(False)
        raise InvalidInputError(
            f"X must hold a text in every row, or numbers; got {list(X)[row]!r} in row {row}."
        )
    return any(texts)


def matrix(name: str, given: Any, models: Sequence[str], n_rows: int | None) -> NDArray[Any]:
    """An array of shape (n_rows, n_models); the columns of a data frame are found by name."""
    if hasattr(given, "columns"):
        missing = [model for model in models if model not in list(given.columns)]
        if missing:
            raise InvalidInputError(f"{name} must have a column for each model; {missing[0]!r} has none.")
        given = given[list(models)].to_numpy()
    array = np.asarray(given)
    if array.ndim != 2 or array.shape[1] != len(models) or (n_rows is not None and len(array) != n_rows):
        rows = "n_rows" if n_rows is None else n_rows
        raise InvalidInputError(
            f"{name} must have shape ({rows}, {len(models)}), a row for each row of X and a column for each model; got "
            f"{None if given is None else array.shape}."
        )
    return array


def numbers(name: str, given: Any, models: Sequence[str], n_rows: int | None) -> Floats:
    """A matrix of numbers."""
    try:
        return matrix(name, given, models, n_rows).astype(np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            f"{name} must hold numbers, NaN where a model was not asked: {error}."
            + " Write 1 for a right answer and 0 for a wrong one." * (name == "quality")
        ) from error


def check_evidence(given: Any, models: Sequence[str], n_rows: int | None) -> Floats:
    """Evidence of shape (n_rows, n_models), or (n_rows, n_models, n_classes); see ``ModelRouter.fit``."""
    if np.ndim(given) != 3:
        return numbers("evidence", given, models, n_rows)
    shape = np.shape(given)
    if shape[1] != len(models) or (n_rows is not None and shape[0] != n_rows) or shape[2] < 1:
        raise InvalidInputError(
            f"evidence with classes must have shape ({n_rows}, {len(models)}, n_classes); got {shape}."
        )
    return class_probabilities(given)


def logged_parts(
    given: Mapping[str, Any],
    models: Sequence[str],
    n_rows: int,
    resources: Resources | None = None,
    groups: Sequence[str] = (),
) -> dict[str, NDArray[Any]]:
    """Those parts of a log that are given, by name: rows x models, evidence perhaps x classes, costs x resources.

    Costs may have further columns, for groups of columns.
    """
    named: dict[str, Sequence[str]] = {}
    if groups and given.get("cost") is not None:
        cost, paid = split_cost(given["cost"], models, groups, np.full(len(groups), np.nan), n_rows)
        given = {**given, "cost": np.column_stack([matrix("cost", cost, models, n_rows), paid])}
        named = {"cost": (*models, *groups)}
    parts = {
        name: check_evidence(part, models, n_rows)
        if name == "evidence"
        else matrix(name, part, named.get(name, models), n_rows)
        for name, part in given.items()
        if part is not None and not (name == "cost" and resources is not None)
    }
    if resources is not None and given.get("cost") is not None:
        check_cost(resources, given["cost"])
        parts["cost"] = costs_in(resources.names, None, given["cost"], None, dict.fromkeys(models), n_rows)
    return parts


def qualities(given: Any, models: Sequence[str], n_rows: int) -> Floats:
    """Qualities in [0, 1], NaN where a model was not asked."""
    quality = numbers("quality", given, models, n_rows)
    wrong = np.argwhere(~np.isnan(quality) & ~((quality >= 0.0) & (quality <= 1.0)))
    if len(wrong):
        row, model = wrong[0]
        raise InvalidInputError(
            f"quality must lie in [0, 1], 1 for right and 0 for wrong; got {quality[row, model]:g} for "
            f"{models[model]!r} in row {row}. Rescale scores of another range."
        )
    return quality


def losses(given: Any, models: Sequence[str], n_rows: int) -> Floats:
    """What answers lose, >= 0, NaN where a model was not asked."""
    loss = numbers("quality", given, models, n_rows)
    if (loss < 0.0).any() or np.isinf(loss).any():
        raise InvalidInputError(
            "quality of a router of losses has finite numbers >= 0, in the unit of costs, NaN where a model was not "
            "asked."
        )
    return loss


def check_quality(given: Any, models: Sequence[str], n_rows: int) -> Floats:
    """Qualities to learn from, of models that were asked and were right."""
    quality = qualities(given, models, n_rows)
    for model, name in enumerate(models):
        known = quality[~np.isnan(quality[:, model]), model]
        if not len(known):
            raise InvalidInputError(
                f"quality of {name!r} is missing in every row: it was never asked. Leave it out."
            )
        if not known.any():
            raise InvalidInputError(f"{name!r} was never right in {len(known)} rows. Leave it out.")
    return quality


def tokens_in(X: Any) -> Floats | None:
    """Tokens of each row that is a text, by its length; None for tables."""
    return np.array([len(text) for text in X]) / TOKEN_CHARACTERS if is_text(X) else None


def costs_of(X: Any, cost: Any, answers: Any, prices: Mapping[str, ModelPrice], n_rows: int) -> Floats:
    """Cost billed for each row and model, NaN where a model was not asked."""
    names = list(prices)
    if cost is not None:
        billed = numbers("cost", cost, names, n_rows)
        wrong = np.argwhere(~np.isnan(billed) & ~((billed >= 0.0) & np.isfinite(billed)))
        if len(wrong):
            row, model = wrong[0]
            raise InvalidInputError(
                f"cost must be a finite number >= 0; got {billed[row, model]:g} for {names[model]!r} in row {row}."
            )
        return billed
    found, asked = np.empty((n_rows, len(names))), tokens_in(X)
    if any(isinstance(price, dict) for price in prices.values()):
        raise InvalidInputError("the models are priced in several resources, and this log is billed in one.")
    for model, (name, price) in enumerate(prices.items()):
        if price is None:
            raise InvalidInputError(
                f"{name!r} has no price: give models as a dict from names to prices, or what was billed as cost=."
            )
        if isinstance(price, tuple):
            column = None if answers is None else matrix("answers", answers, names, n_rows)[:, model]
            if asked is None or column is None or not any(isinstance(one, str) for one in column):
                raise InvalidInputError(
                    f"{name!r} has a price per token, and tokens are known only where X and answers are texts. Give "
                    f"what was billed as cost=, or prices per call."
                )
            told = np.array([len(one) if isinstance(one, str) else 0 for one in column]) / TOKEN_CHARACTERS
            found[:, model] = (price[0] * asked + price[1] * told) / 1e6
        elif callable(price):
            rows = X if is_text(X) else np.asarray(X)
            found[:, model] = [float(price(rows[row])) for row in range(n_rows)]
            if not (np.isfinite(found[:, model]).all() and (found[:, model] > 0.0).all()):
                raise InvalidInputError(
                    f"the price function of {name!r} must return numbers > 0 for every row."
                )
        elif isinstance(price, float):
            found[:, model] = price
    return found


SECONDS = "seconds"
"""Resource of which the longest counts where models are asked at once."""


def check_resources(names: Sequence[str], after: Any, ask: str = "in turn") -> Resources | None:
    """Several resources that answers cost, at equal rates, or None; ``ask`` says whether models may wait together."""
    if ask not in ("in turn", "parallel"):
        raise InvalidParameterError("ask", f"must be 'in turn' or 'parallel'; got {ask!r}.")
    if ask == "parallel" and (len(names) < 2 or SECONDS not in names):
        raise InvalidParameterError(
            "ask",
            f"'parallel' takes costs in several resources, of which one is {SECONDS!r}: that is what models save that "
            f"are asked at once. Give cost={{'dollars': ..., {SECONDS!r}: ...}}, or prices by resource.",
        )
    if len(names) < 2:
        if names:
            raise InvalidInputError(
                f"costs by resource must be in at least two; got {names[0]!r}. Give numbers."
            )
        return None
    if after:
        raise InvalidInputError(
            f"after= takes prices in one resource; costs are in {', '.join(names)}. Leave it out."
        )
    return Resources(tuple(names), (), np.ones(len(names)), (SECONDS,) if ask == "parallel" else ())


def at_usual_rates(resources: Resources, costs: Floats) -> Resources:
    """The resources at exchange rates at which the dearest model costs as much in each of them."""
    dearest = np.nanmax(np.nanmean(costs, axis=0), axis=0)
    free = [name for name, most in zip(resources.names, dearest.tolist(), strict=True) if not most > 0.0]
    if free:
        raise InvalidInputError(f"no model costs any {free[0]} in this log. Leave {free[0]!r} out.")
    return replace(resources, rates=1.0 / (len(dearest) * dearest))


def check_cost(resources: Resources, cost: Any) -> None:
    """Refuse what was billed in one resource where there are several."""
    if cost is not None and not isinstance(cost, Mapping):
        raise InvalidInputError(
            f"cost must be a dict by resource, since the fit knows {', '.join(resources.names)}; got a "
            f"{type(cost).__name__}. Write cost={{{resources.names[0]!r}: ...}}."
        )


def refuse_partial(resources: Resources | None) -> None:
    """Refuse logs in which not all models were asked, where there are several resources."""
    if resources is not None:
        raise InvalidInputError(
            f"costs in several resources ({', '.join(resources.names)}) take a log in which all models were asked "
            f"about nearly every row, and no propensity. Leave the other rows out."
        )


def costs_in(
    resources: Sequence[str], X: Any, cost: Any, answers: Any, prices: Mapping[str, ModelPrice], n_rows: int
) -> Floats:
    """Costs as of ``costs_of``, in each of several resources, shape (n_rows, n_models, n_resources)."""
    lacking = [name for name in resources if cost is not None and name not in cost]
    if lacking:
        raise InvalidInputError(
            f"cost must have what was billed in each resource, {', '.join(resources)}; {lacking[0]!r} is missing."
        )
    if cost is None:
        by_resource: list[Floats] = []
        for resource in resources:
            of_each = [
                price.get(resource, 0.0) if isinstance(price, dict) else 0.0 for price in prices.values()
            ]
            by_resource.append(np.tile(of_each, (n_rows, 1)))
        return np.stack(by_resource, axis=2)
    return np.stack([costs_of(X, cost[name], answers, prices, n_rows) for name in resources], axis=2)


def run_times(
    seconds: Any,
    cost: Any,
    models: Sequence[str],
    groups: Sequence[str],
    prices: Floats,
    cutoff: float,
    n_rows: int,
) -> tuple[Floats, Floats, Bools]:
    """Run times as qualities, costs of models and groups of columns, and the rows that these groups have solved.

    The quality of a run is 1 less its penalised time (PAR10) as a share of ``10 * cutoff``: 0 if it does not end.
    """
    by_group: Any = np.full((n_rows, len(groups)), np.inf)
    if hasattr(seconds, "columns"):
        by_group = seconds.reindex(columns=list(groups)).fillna(np.inf).to_numpy(dtype=np.float64)
    elif np.ndim(seconds) == 2 and len(groups) and np.shape(seconds)[1] == len(models) + len(groups):
        by_group = np.asarray(seconds, dtype=np.float64)[:, len(models) :]
        seconds = np.asarray(seconds)[:, : len(models)]
    taken = numbers("quality", seconds, models, n_rows)
    if (taken < 0.0).any():
        raise InvalidInputError(
            "quality of a router of run times has seconds >= 0, inf for a run that did not end in time, NaN for none."
        )
    if cost is not None and not hasattr(cost, "columns") and np.shape(cost)[1:] == (len(groups),):
        cost = np.column_stack([np.zeros((n_rows, len(models))), np.asarray(cost)])
    paid = split_cost(cost, models, groups, prices, n_rows)[1]
    quality = np.where(taken <= cutoff, 1.0 - taken / (PENALTY * cutoff), 0.0)
    quality[np.isnan(taken)] = np.nan
    return quality, np.column_stack([np.minimum(taken, cutoff), paid]), np.isfinite(by_group)


def split_cost(
    cost: Any, models: Sequence[str], groups: Sequence[str], prices: Floats, n_rows: int
) -> tuple[Any, Floats]:
    """The part of ``cost`` that is of models, and what rows paid for groups of columns: their prices, unless given."""
    paid = np.repeat(np.asarray(prices, dtype=np.float64)[None], n_rows, axis=0)
    if cost is None or not len(groups):
        return cost, paid
    if hasattr(cost, "columns"):
        billed = [name for name in groups if name in list(cost.columns)]
        places, of_groups = [list(groups).index(name) for name in billed], cost[billed].to_numpy()
    else:
        array = np.asarray(cost)
        if array.ndim != 2 or array.shape[1] != len(models) + len(groups):
            return cost, paid
        places, of_groups, cost = list(range(len(groups))), array[:, len(models) :], array[:, : len(models)]
    of_groups = of_groups.astype(np.float64)
    if (of_groups < 0.0).any() or np.isinf(of_groups).any():
        raise InvalidInputError(
            "cost of columns must be finite numbers >= 0, NaN where they were not billed."
        )
    paid[:, places] = np.where(np.isnan(of_groups), paid[:, places], of_groups)
    return cost, paid


def check_billed(costs: Floats, models: Sequence[str]) -> None:
    """Refuse models whose cost is unknown or zero in every row."""
    for model, name in enumerate(models):
        if np.isnan(costs[:, model]).all():
            raise InvalidInputError(f"cost of {name!r} is missing in every row. Give what was billed.")
        if not np.nansum(costs[:, model]) > 0.0:
            raise InvalidInputError(
                f"{name!r} is free in every row of cost. A model that is free needs no router: give what its time is "
                f"worth."
            )


def row_keys(n_rows: int, quality: Any) -> Words:
    """Keys of rows of which nothing is known before a model is asked: their numbers in this log.

    Rows of two logs are different ones, unless the logs hold the same qualities.
    """
    if quality is None:
        return np.arange(n_rows, dtype=np.uint64)
    log = fingerprints(np.asarray(quality, dtype=np.float64)).sum(dtype=np.uint64)
    return mix(np.arange(1, n_rows + 1, dtype=np.uint64) + mix(log[None]))


def shares_after(after: Any, models: Sequence[str], mean_cost: Floats) -> Floats | None:
    """Share of its cost that each model (row) takes where another one (column) was asked before."""
    if not after:
        return None
    shares = np.ones((len(models), len(models)))
    rule = "after must be a dict from models to dicts from models asked before to prices"
    for name, prices in after.items():
        if name not in models or not isinstance(prices, Mapping):
            raise InvalidInputError(f"{rule}; got {name!r}: {prices!r}.")
        place = list(models).index(name)
        for before, price in prices.items():
            if before not in models or before == name:
                raise InvalidInputError(f"{rule}; {name!r} has one after {before!r}.")
            cost = float(mean_cost[place])
            if not (isinstance(price, int | float) and 0.0 <= price <= cost * (1.0 + 1e-9)):
                raise InvalidInputError(
                    f"the price of {name!r} after {before!r} must lie in [0, {cost:g}], its mean cost alone; got "
                    f"{price!r}."
                )
            shares[place, list(models).index(before)] = min(price / cost, 1.0)
    return shares


def normalise(answer: Any) -> Any:
    """Canonical form of an answer, in which answers are compared; None where nothing could be parsed."""
    if answer is None or answer != answer:
        return None
    if isinstance(answer, str):
        return " ".join(answer.casefold().split()).strip(" .!\"'") or None
    return None if isinstance(answer, int | np.integer) and answer < 0 else answer


def answer_codes(
    given: Any,
    models: Sequence[str],
    n_rows: int,
    canonical: Callable[[Any], Any],
    *,
    may_be_unparsed: bool = False,
) -> Ints:
    """Answers as numbers that are equal within a row where answers are; -1 where nothing could be parsed."""
    answers = matrix("answers", given, models, n_rows)
    if answers.dtype.kind in "iu":
        codes = np.where(answers < 0, -1, answers).astype(np.intp)
    else:
        codes = np.full(answers.shape, -1, dtype=np.intp)
        for row, line in enumerate(answers.tolist()):
            seen: dict[Any, int] = {}
            for model, one in enumerate(line):
                form = canonical(one)
                if form is not None:
                    codes[row, model] = seen.setdefault(form, len(seen))
    for model, name in enumerate(models):
        if (codes[:, model] < 0).all() and not may_be_unparsed:
            raise InvalidInputError(
                f"answers of {name!r} are missing or unparsed in every row. Leave answers out, or parse them."
            )
    return codes


def check_propensity(given: Any, known: Bools, models: Sequence[str]) -> Floats:
    """Probabilities with which each model was asked; without them, the share of rows that it was asked in."""
    if given is None:
        return np.broadcast_to(known.mean(axis=0), known.shape)
    if np.ndim(given) == 1 and len(given) == len(known):
        given = np.repeat(np.asarray(given)[:, None], len(models), axis=1)
    array = numbers("propensity", given, models, len(known))
    if not (np.isfinite(array[known]).all() and (array[known] > 0.0).all() and (array[known] <= 1.0).all()):
        raise InvalidInputError("propensity must lie in (0, 1] wherever a model was asked.")
    return np.where(known, array, 1.0)


def whole_rows(quality: Floats, cost: Floats, propensity: Any) -> tuple[Bools, bool]:
    """Rows to learn from, and whether they must be completed because models are missing in many of them."""
    whole: Bools = ~np.asarray((np.isnan(quality) | np.isnan(cost)).any(axis=1))
    if propensity is None and whole.mean() >= _COMPLETE_SHARE and whole.sum() >= MIN_ROWS:
        return whole, False
    return np.ones(len(quality), dtype=bool), not whole.all()


def complete(
    Z: Floats, quality: Floats, cost: Floats, propensity: Floats, folds: Ints, models: Sequence[str]
) -> tuple[Floats, Floats]:
    """Doubly robust qualities and imputed costs of rows in which some models were not asked."""
    columns = np.column_stack([np.ones(len(Z)), np.nan_to_num(Z)])
    whole, costs = np.empty_like(quality), cost.copy()
    for model, name in enumerate(models):
        known = ~np.isnan(quality[:, model])
        weight = 1.0 / propensity[:, model]
        warn_of_support(name, weight, known, MIN_ROWS)
        for fold in np.unique(folds):
            held, learn = folds == fold, known & (folds != fold)
            learn = learn if learn.sum() >= 2 else known
            fitted = columns[held] @ ridge(columns[learn], quality[learn, model, None], 0.1 * learn.sum())
            whole[held, model] = np.clip(fitted[:, 0], 0.0, 1.0)
        whole[:, model] = doubly_robust(whole[:, model], quality[:, model], weight)
        billed = ~np.isnan(cost[:, model])
        if not billed.all():
            seen = floored(cost[billed, model])
            logs = columns @ ridge(columns[billed], np.log(seen)[:, None], 0.1 * billed.sum())
            fitted = np.exp(np.clip(logs[:, 0], -700.0, 700.0))
            fitted *= cost[billed, model].mean() / fitted[billed].mean()
            costs[~billed, model] = np.clip(fitted[~billed], seen.min(), seen.max())
    return whole, costs


def doubly_robust(fitted: Floats, quality: Floats, weight: Floats) -> Floats:
    """Fitted qualities, plus the weighted error where quality is known; weights are at most 20."""
    error = np.where(np.isnan(quality), 0.0, quality - fitted)
    completed: Floats = fitted + np.minimum(weight, _MAX_WEIGHT) * error
    return completed


def inverse_propensity(quality: Floats, weight: Floats) -> Floats:
    """Terms of the self-normalised inverse-propensity estimate (Hajek's, SNIPS), which is their mean.

    Terms are linearised, so that the standard error of their mean is that of the estimate.
    """
    weight = np.where(np.isnan(quality), 0.0, weight)
    if not weight.any():
        return np.full(len(quality), np.nan)
    mean = (weight * np.nan_to_num(quality)).sum() / weight.sum()
    terms: Floats = mean + weight / weight.mean() * np.nan_to_num(quality - mean)
    return terms


def warn_of_support(name: str, weight: Floats, known: Bools, min_rows: int) -> None:
    """Warn where rows that a model is judged on were rarely asked of it.

    The weights of rows that were asked add up to the number of rows on average, unless rows that are never asked exist.
    """
    n_rows, n_known, largest = len(known), int(known.sum()), weight[known].max(initial=1.0)
    least = f", with propensities down to {1.0 / largest:.3g}" if n_known else ""
    if n_known < min_rows or largest > _MAX_WEIGHT or weight[known].sum() < _MIN_SUPPORT * n_rows:
        warnings.warn(
            f"{name!r} was asked in {n_known} of {n_rows} rows{least}: there is little support for what it would have "
            f"done elsewhere. Ask it at random in more rows.",
            MissingSupportWarning,
            stacklevel=4,
        )
