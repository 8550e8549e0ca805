"""A system within limits of flash and RAM: narrower leaves, then fewer trees in each stage, then fewer stages."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from thrifty.device.c99 import plan_of
from thrifty.device.model import device_model, with_leaves, with_trees
from thrifty.engine.evidence.collect import evidence_of
from thrifty.engine.evidence.frontier import Frontier
from thrifty.engine.trees import TreeEnsemble
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.policy import Policy
from thrifty.errors import InvalidInputError

__all__ = ["within_limits"]

FEWEST_TREES = 0.25
"""Share of the trees of each stage that are kept before stages are taken, where there are no labelled rows."""

N_SHARES = 32
"""Shares of trees that are tried."""


def within_limits(
    chain: Chain,
    leaves: str,
    layout: str,
    points: Callable[[Chain], tuple[Policy, ...]],
    limits: tuple[float, float],
    X: Any = None,
    y: Any = None,
) -> tuple[Chain, str]:
    """The chain that fits, and the type of its leaves.

    Parameters
    ----------
    chain : Chain
        As learned.
    leaves : {"float32", "int16"}
        Type to begin with.
    layout : {"table", "code"}
        Of the trees.
    points : callable
        Operating points of a chain.
    limits : tuple of float
        Bytes of flash for tables and program, and bytes of RAM for a session.
    X, y : table and labels, optional
        Rows that choose among what fits: the best at the mean cost of the point in force. Without them as many stages
        are kept as fit with a quarter of their trees.
    """
    has_rows = X is not None and y is not None

    def takes(chain: Chain, kind: str) -> tuple[int, int]:
        more = points(chain)
        plan = plan_of(device_model(with_leaves(chain, kind), more), kind, layout)
        # A point that rows choose anew may mix two rows of thresholds where it was one.
        program = 0 if plan.flags["IS_MIXED"] else 280
        reserve = (8 * len(chain.stages) + 20) * len(more) + program if has_rows else 0
        return plan.flash_bytes + reserve, plan.state_bytes

    def fits(chain: Chain, kind: str) -> bool:
        return all(taken <= limit for taken, limit in zip(takes(chain, kind), limits, strict=True))

    for kind in dict.fromkeys((leaves, "int16")):
        if fits(chain, kind):
            return _measured(with_leaves(chain, kind), X, y), kind
    candidates = list(_fitting(chain, lambda smaller: fits(smaller, "int16")))
    if not candidates:
        smallest = takes(_cut(chain, 1, 1), "int16")
        name, least, limit = next(
            limit
            for limit in zip(("max_flash", "max_ram"), smallest, limits, strict=True)
            if limit[1] > limit[2]
        )
        raise InvalidInputError(
            f"{name} must be at least {least:,} bytes, which the first stage with the first of its trees takes; "
            f"got {limit:,.0f}. Raise it, or export fewer operating points."
        )
    cut = [(share, _measured(with_leaves(smaller, "int16"), X, y)) for share, smaller in candidates]
    if has_rows:
        return max((smaller for _, smaller in cut), key=lambda chain: chain.policy.expected_score), "int16"
    return next((smaller for share, smaller in cut if share >= FEWEST_TREES), cut[-1][1]), "int16"


def _fitting(chain: Chain, fits: Callable[[Chain], bool]) -> Iterator[tuple[float, Chain]]:
    """For every number of stages, the most first, the largest share of trees that fits."""
    for n_stages in range(len(chain.stages), 0, -1):
        low, high = 0, N_SHARES
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits(_cut(chain, n_stages, middle)) else (low, middle - 1)
        if low:
            yield low / N_SHARES, _cut(chain, n_stages, low)
        if low == N_SHARES:
            return


def _cut(chain: Chain, n_stages: int, part: int) -> Chain:
    """The first stages, with a part of ``N_SHARES`` of the first trees of each ensemble."""

    def cut(trees: TreeEnsemble) -> TreeEnsemble:
        return trees.first(max(-(-trees.n_trees * part // N_SHARES), 1)) if trees.n_trees else trees

    stages = chain.stages[:n_stages]
    changes: dict[str, Any] = {
        "stages": tuple(with_trees(stage, ("trees", "cheap", "gate"), cut) for stage in stages)
    }
    if n_stages < len(chain.stages):
        # The blend was learned for the scores of the last stage, which is gone.
        thresholds = chain.policy.thresholds[:, :n_stages]
        changes |= {"policy": replace(chain.policy, thresholds=thresholds), "blend": None}
    return replace(chain, **changes)


def _measured(chain: Chain, X: Any, y: Any) -> Chain:
    """The chain with its operating points measured anew, at the mean cost of the one in force; itself without rows."""
    if X is None or y is None:
        return chain
    frontier = Frontier.from_evidence([evidence_of(chain, X, y)])
    policy = Policy(frontier.thresholds, frontier.cost, frontier.score, seed=chain.policy.seed)
    return chain.at(policy.within(max(chain.policy.expected_cost, float(frontier.cost[0]))))
