"""Prices of models whose answers are bought: per call, per token, by a function of the row, or as billed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from thrifty.errors import InvalidInputError

TOKEN_CHARACTERS = 4.0
"""Characters of a token, where nothing says what was billed."""

ModelPrice = float | tuple[float, float] | Callable[[Any], float] | None
"""Price per call, per million tokens in and out, as a function of the row, or known from the log only."""


def check_models(models: Any) -> dict[str, ModelPrice]:
    """Names and prices of the models."""
    if isinstance(models, Mapping):
        pairs = list(models.items())
    elif isinstance(models, Sequence) and not isinstance(models, str):
        pairs = [(name, None) for name in models]
    else:
        raise InvalidInputError(
            f"models must be a dict from names to prices, or a list of names; got {type(models).__name__}."
        )
    names = [name for name, _ in pairs]
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidInputError(f"models must have names that are text; got {name!r}.")
        if names.count(name) > 1:
            raise InvalidInputError(
                f"models must have different names; {name!r} is there {names.count(name)} times."
            )
    if len(names) < 2:
        raise InvalidInputError(f"models must name at least two models to choose from; got {len(names)}.")
    return {name: check_price(name, price) for name, price in pairs}


def check_price(name: str, price: Any) -> ModelPrice:
    """Check the price of one model."""
    if price is None or callable(price):
        return price
    rule = (
        f"the price of {name!r} must be a number > 0 per call, a pair of numbers > 0 per million tokens in and out, or "
        f"a function of the row; got {price!r}. A model that is free needs no router: give what its time is worth."
    )
    parts = list(price) if isinstance(price, tuple | list) else [price]
    is_number = all(
        isinstance(part, int | float | np.number) and not isinstance(part, bool) for part in parts
    )
    if len(parts) not in (1, 2) or not is_number or not all(np.isfinite(part) and part > 0 for part in parts):
        raise InvalidInputError(rule)
    return (
        (float(parts[0]), float(parts[1]))
        if isinstance(price, tuple | list) and len(parts) == 2
        else float(parts[0])
    )


def price_of_answer(price: ModelPrice, x: Any, answer: Any) -> float | None:
    """Price of one answer about one row; None where it is known only from what was billed."""
    if isinstance(price, float):
        return price
    if isinstance(price, tuple) and isinstance(answer, str) and isinstance(x, str):
        tokens = len(x) / TOKEN_CHARACTERS, len(answer) / TOKEN_CHARACTERS
        return (price[0] * tokens[0] + price[1] * tokens[1]) / 1e6
    return float(price(x)) if callable(price) else None
