"""What a user asks of a budgeted classifier, checked before anything is computed."""

from typing import Any

from thrifty.estimators.checks import check_count
from thrifty.exceptions import InvalidInputError
from thrifty.learning.cascade.problem import CAPACITIES
from thrifty.learning.pairs.boosted import Boosting
from thrifty.objective.costs import PriceList, check_amount

__all__ = ["check_sizes", "check_wish", "refuse_nothing_to_save"]


def check_wish(budget: Any, max_loss: Any, *, may_be_none: bool = False) -> dict[str, float]:
    """The wish by name: a budget, a loss that may not be exceeded, or none where that is allowed."""
    given = {name: value for name, value in (("budget", budget), ("max_loss", max_loss)) if value is not None}
    if len(given) > 1 or not (given or may_be_none):
        shown = " and ".join(f"{name}={value!r}" for name, value in given.items()) or "neither"
        raise InvalidInputError(f"give one of budget and max_loss; got {shown}.")
    if "max_loss" in given and not 0 < check_amount("max_loss", max_loss) < 1:
        raise InvalidInputError(
            f"max_loss must lie strictly between 0 and 1; got {max_loss!r}. "
            f"It is the share of answers that may get worse."
        )
    return {name: check_amount(name, value) for name, value in given.items()}


def check_sizes(sizes: Any) -> tuple[Boosting, ...]:
    """Sizes of a stage to choose from, from pairs (n_trees, max_depth)."""
    if sizes is None:
        return CAPACITIES
    try:
        pairs = [(n_trees, max_depth) for n_trees, max_depth in sizes]
    except (TypeError, ValueError):
        pairs = []
    if not pairs:
        raise InvalidInputError(f"sizes must be a list of (n_trees, max_depth); got {sizes!r}.")
    return tuple(
        Boosting(
            n_trees=check_count("n_trees in sizes", n_trees),
            max_depth=check_count("max_depth in sizes", max_depth, most=12),
            l2=CAPACITIES[-1].l2,
        )
        for n_trees, max_depth in pairs
    )


def refuse_nothing_to_save(prices: PriceList) -> None:
    """Where everything is free, f0 for every row is the answer."""
    if prices.cost_of_everything == 0.0:
        raise InvalidInputError(
            "feature_costs and full_cost are all zero, so there is nothing to save: use f0 for every row. "
            "Give a price to at least one feature, or to f0."
        )
