"""Networks that see what was bought: masks, training until validation rows gain no more, and sequences of purchases."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from reproduction.datasets import Split
from thrifty.arrays import Ints

__all__ = ["Buyer", "Task", "hidden_layers", "minimise", "path_loss", "pretrain", "probabilities_by_step"]

as_tensor = partial(torch.as_tensor, dtype=torch.float32)


@dataclass(frozen=True)
class Task:
    """Rows for fitting and for choosing; ``columns[i, j]`` is 1 where purchase i reveals column j."""

    X: Tensor
    y: Tensor
    X_val: Tensor
    y_val: Tensor
    columns: Tensor
    n_classes: int

    @classmethod
    def of(cls, split: Split, groups: Ints) -> "Task":
        """Make tensors of a split; ``groups`` holds the purchase of each column."""
        X, X_val = as_tensor(split.X_train), as_tensor(split.X_val)
        y, y_val = torch.as_tensor(split.y_train), torch.as_tensor(split.y_val)
        columns = as_tensor(np.eye(int(groups.max()) + 1)[:, groups])
        return cls(X, y, X_val, y_val, columns, int(split.y_train.max()) + 1)

    def masked(self, X: Tensor, bought: Tensor) -> Tensor:
        """Rows with zeros in hidden columns, beside the mask itself; ``bought`` may hold fractions."""
        shown = bought @ self.columns
        return torch.cat([X * shown, shown], dim=1)


@dataclass(frozen=True)
class Buyer:
    """A network that predicts from masked rows, and a policy that chooses the next purchase.

    ``choose(X, bought)`` gives the number of a purchase for each row, or the number of purchases where it stops.
    """

    predictor: Any
    choose: Callable[[Tensor, Tensor], Tensor]


def hidden_layers(task: Task, n_outputs: int, *, width: int = 128, dropout: float = 0.3) -> Any:
    """Two hidden layers on a masked row, the size that authors of GDFS and DIME give tables."""
    layers: list[Any] = []
    for n_inputs in (2 * task.columns.shape[1], width):
        layers += [nn.Linear(n_inputs, width), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(width, n_outputs))


def minimise(
    networks: Any,
    task: Task,
    loss: Callable[[Tensor, Tensor], Tensor],
    judge: Callable[[], Tensor],
    max_epochs: int,
    patience: int = 3,
) -> None:
    """Minimise a loss with Adam, and keep the weights of the epoch that validation rows judge best.

    The rate, 1e-3 at first, falls to a fifth after ``patience`` epochs without a better ``judge()``, and the training
    ends soon after, as in the programs of both authors; so do batches of 128 rows, but an epoch has 24 at most.
    """
    batch_size = max(128, len(task.y) // 24)
    optimizer = torch.optim.Adam(networks.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.2, patience=patience, min_lr=1e-6
    )
    best, weights, n_bad = np.inf, None, 0
    for _ in range(max_epochs):
        networks.train()
        order = torch.randperm(len(task.y))
        for rows in order[: max(len(order) // batch_size, 1) * batch_size].split(batch_size):
            optimizer.zero_grad()
            loss(task.X[rows], task.y[rows]).backward()
            optimizer.step()
        networks.eval()
        with torch.no_grad():
            found = float(judge())
        schedule.step(found)
        n_bad = 0 if found < best else n_bad + 1
        if n_bad == 0:
            best, weights = found, deepcopy(networks.state_dict())
        if n_bad > patience + 1:
            break
    if weights is not None:
        networks.load_state_dict(weights)
    networks.eval()


def pretrain(task: Task, max_epochs: int) -> Any:
    """Train a classifier on rows of which a random number of random purchases is hidden."""
    predictor = hidden_layers(task, task.n_classes)

    def loss(X: Tensor, y: Tensor) -> Tensor:
        bought = (torch.rand(len(X), len(task.columns)) > torch.rand(len(X), 1)).float()
        return functional.cross_entropy(predictor(task.masked(X, bought)), y)

    minimise(predictor, task, loss, partial(loss, task.X_val, task.y_val), max_epochs, patience=8)
    return predictor


def probabilities_by_step(task: Task, buyer: Buyer, X: Tensor, n_steps: int) -> Tensor:
    """Probabilities of the classes after 0, 1, ... purchases, of shape (n_steps + 1, n_rows, n_classes)."""
    n_purchases = len(task.columns)
    bought = torch.zeros(len(X), n_purchases)
    goes_on = torch.ones(len(X), 1)
    with torch.no_grad():
        found = [buyer.predictor(task.masked(X, bought)).softmax(dim=1)]
        for _ in range(n_steps):
            chosen = functional.one_hot(buyer.choose(X, bought), n_purchases + 1).float()
            goes_on = goes_on * (1 - chosen[:, -1:])
            bought = torch.maximum(bought, goes_on * chosen[:, :-1])
            found.append(buyer.predictor(task.masked(X, bought)).softmax(dim=1))
    return torch.stack(found)


def path_loss(task: Task, buyer: Buyer, n_steps: int) -> Tensor:
    """Mean cross-entropy of validation rows after 0 to ``n_steps`` purchases."""
    found = probabilities_by_step(task, buyer, task.X_val, n_steps)
    return functional.nll_loss(found.clamp_min(1e-12).log().flatten(0, 1), task.y_val.repeat(n_steps + 1))
