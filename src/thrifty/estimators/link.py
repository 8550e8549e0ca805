"""What stands behind the stages of an estimator: a full model, or a chain in its place, which must suit."""

from typing import Any

from sklearn.frozen import FrozenEstimator

from thrifty.chain.chain import Chain
from thrifty.errors import InvalidInputError
from thrifty.full.model import EstimatorFull, FullModel
from thrifty.prices.costs import PriceList
from thrifty.tasks.task import Task

__all__ = ["bare", "chain_behind", "link_of"]


def link_of(model: FullModel | Chain, prices: PriceList, task: Task) -> FullModel | Chain:
    """What stands behind the stages: a full model, or the chain that it already is, which must suit."""
    inner = chain_behind(model)
    if inner is None:
        return model
    theirs = inner.price_list
    if inner.task != task or theirs.n_features != prices.n_features:
        raise InvalidInputError(
            f"full is a chain for {theirs.n_features} features and {_answers_of(inner.task)}; here there are "
            f"{prices.n_features} features and {_answers_of(task)}. Both must agree."
        )
    if not theirs.is_same(prices):
        raise InvalidInputError(
            "full is itself a chain, and its feature_costs, feature_groups, full_cost or full_features differ from "
            "those given here. One route has one price list: give both the same."
        )
    return inner


def chain_behind(full: Any) -> Chain | None:
    """The chain that a full model is, by itself or inside an estimator; None where it is none."""
    inner = getattr(bare(full), "chain_", full)
    return inner if isinstance(inner, Chain) else None


def _answers_of(task: Task) -> str:
    """What a task answers with, in words."""
    if len(task.classes):
        return f"the classes {task.classes.tolist()}"
    return f"numbers, by the {task.loss_name}"


def bare(full: Any) -> Any:
    """What is inside a frozen estimator, or a fitted one as the chain holds it; any other wrapper is a model itself."""
    return full.estimator if isinstance(full, EstimatorFull | FrozenEstimator) else full
