"""AACO: the set of purchases that would serve a row's nearest neighbours best, one purchase at a time.

Valancius, Lennon and Oliva (2024), Acquisition Conditioned Oracle for Nongreedy Active Feature Acquisition.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from torch import Tensor

from reproduction.acquisition.masked import Buyer, Task

__all__ = ["candidate_sets", "fit_oracle", "oracle_choice"]

N_UNCONDITIONAL = 256
"""Rows that stand for a row of which nothing is held: all are equally near."""


def fit_oracle(task: Task, predictor: Any, **settings: Any) -> Buyer:
    """Make AACO's policy of a pretrained classifier; nothing else is fitted."""

    def probabilities(X: Tensor, bought: Tensor) -> Tensor:
        return predictor(task.masked(X, bought)).softmax(dim=1)

    return Buyer(predictor, oracle_choice(task.X, task.y, task.columns, probabilities, **settings))


def oracle_choice(
    X: Tensor,
    y: Tensor,
    columns: Tensor,
    probabilities: Callable[[Tensor, Tensor], Tensor],
    *,
    n_neighbours: int = 5,
    n_sets: int = 100,
    price: float = 0.05,
    stops: bool = False,
    n_at_once: int = 32,
) -> Callable[[Tensor, Tensor], Tensor]:
    """Policy that gives each row the next purchase of the best set, of ``n_sets`` random ones, or of all.

    ``columns`` are those of a ``Task``, ``probabilities(X, bought)`` those of a classifier for masked rows. A purchase
    must save a loss of ``price``. With ``stops`` a row may buy nothing more, rather than go on to a budget.
    """
    n_purchases = len(columns)

    def expected_loss(near: Tensor, sets: Tensor) -> Tensor:
        """Mean loss of neighbours (n_rows, n_near) with each of the sets (n_rows, n_sets, n_purchases)."""
        shape = (len(near), sets.shape[1], near.shape[1])
        rows = near[:, None, :].expand(shape).reshape(-1)
        bought = sets[:, :, None, :].expand(*shape, n_purchases).reshape(-1, n_purchases)
        right = probabilities(X[rows], bought).gather(1, y[rows][:, None])
        return -(right + 1e-10).log().reshape(shape).mean(dim=2)

    def choose_some(X_new: Tensor, held: Tensor) -> Tensor:
        if held.any():
            shown = held @ columns
            distance = shown @ (X**2).T - 2.0 * (X_new * shown) @ X.T
            near = distance.topk(n_neighbours, largest=False).indices
        else:
            near = torch.randperm(len(X))[:N_UNCONDITIONAL][None]
            X_new, held = X_new[:1], held[:1]
        sets = torch.maximum(held[:, None], candidate_sets(n_purchases, n_sets))
        if stops:
            sets[:, 0] = held
        n_new = (sets - held[:, None]).sum(dim=2)
        total = expected_loss(near, sets) + price * n_new
        if not stops:
            total[n_new == 0] = torch.inf
        wanted = sets[torch.arange(len(sets)), total.argmin(dim=1)] - held
        if not stops:
            # No candidate had a purchase that is not held: any will do.
            wanted = torch.where(wanted.any(dim=1, keepdim=True), wanted, 1 - held)
        alone = expected_loss(near, torch.maximum(held[:, None], torch.eye(n_purchases)))
        alone[wanted == 0] = torch.inf
        return torch.where(wanted.any(dim=1), alone.argmin(dim=1), n_purchases)

    def choose(X_new: Tensor, bought: Tensor) -> Tensor:
        if not bought.any():
            return choose_some(X_new, bought).expand(len(X_new))
        parts = zip(X_new.split(n_at_once), bought.split(n_at_once), strict=True)
        return torch.cat([choose_some(*part) for part in parts])

    return choose


def candidate_sets(n_purchases: int, n_sets: int) -> Tensor:
    """Draw random sets of random sizes below ``n_purchases``; every set where there are at most ``n_sets``."""
    if 2**n_purchases <= n_sets:
        return torch.tensor(list(product((0.0, 1.0), repeat=n_purchases)))
    rank = torch.rand(n_sets, n_purchases).argsort(dim=1)
    return (rank < torch.randint(n_purchases, (n_sets, 1))).float()
